"""What changes something or costs much: dry runs, compact, erase, reopen, move, abort. Whatever was asked for
and still runs ends when the broker stops; a move goes on with the next start.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from broker.http.access import ALTER_BROKER, ALTER_TOPIC, DELETE_TOPIC
from broker.http.asking import Asking, Refused, body_of, decoded
from broker.questions.compactions import Compactions, Progress, Wish
from broker.questions.erasing import Erasing, why_not
from broker.reopening import NotNow
from broker.security.acls import CLUSTER_NAME, Operation, Resource
from config.definition import ConfigError
from protocol.errors import KafkaError
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.partition import Partition
    from broker.topic import Topic

LINES = "application/x-ndjson"
PROGRESS_SECONDS = 0.2
MOST_WAITING = 16
ERASE_FIELDS = {"partition": int, "key": str, "encoding": str}
COMPACT_FIELDS = {"partition": int, "roll": bool, "dry_run": bool, "set": dict}


class Changes:
    """Owned by: event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._broker = asking.broker
        self._compactions = Compactions(asking.broker)
        self._erasing = 0
        """how many erase a key, most of the time waiting for a compaction or a look at the files"""

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        answering = self._asking.answering
        router.add_post("/api/topics/{topic}/explain", answering(self.explain_with_dry_run, ALTER_TOPIC))
        router.add_post("/api/topics/{topic}/compact", answering(self.compact, ALTER_TOPIC))
        router.add_post("/api/topics/{topic}/erase", answering(self.erase, DELETE_TOPIC))
        router.add_post("/api/topics/{topic}/reopen", answering(self.reopen, ALTER_TOPIC))
        router.add_post("/api/topics/{topic}/move", answering(self.move, ALTER_BROKER))
        router.add_post("/api/topics/{topic}/abort", answering(self.abort, ALTER_TOPIC))

    async def stop(self) -> None:
        """Abort what somebody asked for and still runs."""
        await self._compactions.stop()

    def _refuse_a_crowd(self) -> None:
        """Before anything that has to wait for its turn."""
        if self._compactions.waiting + self._erasing >= MOST_WAITING:
            raise Refused(429, f"{MOST_WAITING} compactions wait already")

    async def explain_with_dry_run(self, request: web.Request) -> web.StreamResponse:
        """Why each partition is or is not being compacted, and what a cleaning would give back."""
        topic = self._asking.topic(request)
        body = await body_of(request, {"partition": int})
        indexes = self._asking.indexes(topic, body.get("partition"))
        runs = {}
        if topic.config.is_compacted:
            self._refuse_a_crowd()
            for index in indexes:
                key = TopicPartition(topic.name, index)
                runs[index] = await self._compactions.compact(key, Wish(is_dry=True))
        return await self._asking.respond_of(topic, await self._asking.explained(topic, indexes, runs))

    async def compact(self, request: web.Request) -> web.StreamResponse:
        """Clean now, or count in a dry run. With `Accept: application/x-ndjson` progress comes as lines; the
        last one is the answer.
        """
        topic = self._asking.topic(request)
        body = await body_of(request, COMPACT_FIELDS)
        indexes = self._asking.indexes(topic, body.get("partition"))
        wish = self._wish(topic, body)
        self._refuse_a_crowd()
        config, verb = (topic.config, "is") if wish.config is None else (wish.config, "would be")
        if not config.is_compacted:
            policy = ",".join(sorted(config.cleanup_policy)) or "none"
            raise Refused(409, f"{topic.name} is not compacted: cleanup.policy {verb} {policy}")
        if request.headers.get("Accept") != LINES:
            return await self._asking.respond_of(
                topic, [await self._compact(topic, index, wish) for index in indexes]
            )
        response = web.StreamResponse(headers={"Content-Type": LINES})
        await response.prepare(request)
        answers = []
        for index in indexes:
            progress = Progress(index)
            running = asyncio.ensure_future(self._compact(topic, index, wish, progress))
            while not (await asyncio.wait({running}, timeout=PROGRESS_SECONDS))[0]:
                await response.write(_line(dataclasses.asdict(progress)))
            answers.append(running.result())
        final = {"topic": topic.name, "now_ms": self._broker.clock.now_ms(), "partitions": answers}
        await response.write(_line(final))
        await response.write_eof()
        return response

    async def erase(self, request: web.Request) -> web.StreamResponse:
        """Leave no value of a key in any file; a receipt for each partition that had one."""
        topic = self._asking.topic(request)
        body = await body_of(request, ERASE_FIELDS)
        indexes = self._asking.indexes(topic, body.get("partition"))
        if "key" not in body:
            raise Refused(400, "field 'key' is needed")
        try:
            written = body["key"].encode()
        except UnicodeEncodeError as error:
            raise Refused(400, str(error)) from error
        key = decoded(written, body.get("encoding", "text"))
        if topic.is_internal:
            raise Refused(409, f"{topic.name} is the broker's own")
        if (why := why_not(topic.config)) is not None:
            raise Refused(409, f"nothing of {topic.name} can be erased: {why}")
        self._refuse_a_crowd()
        erasing = Erasing(self._broker, self._compactions, key, self._asking.reading)
        self._erasing += 1
        try:
            receipts = [await self._erase(erasing, topic, index) for index in indexes]
        finally:
            self._erasing -= 1
        return await self._asking.respond_of(topic, [one for one in receipts if one is not None])

    async def _erase(self, erasing: Erasing, topic: Topic, index: int) -> dict[str, Any] | None:
        partition = self._broker.partition(topic.name, index)
        if partition is None or partition.log.offline_reason is not None:
            return {"partition": index, "is_erased": False, "error": f"partition {index} is offline"}
        try:
            receipt = await erasing.erase(partition)
        except (KafkaError, OSError) as error:
            return {"partition": index, "is_erased": False, "error": str(error)}
        return None if receipt is None else {"partition": index, **receipt}

    async def reopen(self, request: web.Request) -> web.StreamResponse:
        """Open the logs that went offline now, whenever their next try is due."""
        topic = self._asking.topic(request)
        body = await body_of(request, {"partition": int})
        indexes = self._asking.indexes(topic, body.get("partition"))
        return await self._asking.respond_of(topic, [await self._reopen(topic, index) for index in indexes])

    async def _reopen(self, topic: Topic, index: int) -> dict[str, Any]:
        broker = self._broker
        partition = broker.partition(topic.name, index)
        if partition is None:
            return {"partition": index, "error": "the partition is being deleted", "retry_ms": None}
        try:
            await broker.reopening.reopen(partition)
        except (NotNow, OSError, KafkaError) as error:
            retry_ms = broker.reopening.retry_ms(partition.topic_partition)
            return {"partition": index, "error": str(error), "retry_ms": retry_ms}
        served = broker.partition(topic.name, index) or partition
        return {"partition": index, "end_offset": served.log.log_end_offset}

    async def move(self, request: web.Request) -> web.StreamResponse:
        """Have partitions move to another data directory; how far they are stands in /api/broker."""
        topic = self._asking.topic(request)
        body = await body_of(request, {"partition": int, "directory": str})
        if "directory" not in body:
            raise Refused(400, "name the directory, one of log.dirs")
        indexes = self._asking.indexes(topic, body.get("partition"))
        return await self._asking.respond_of(
            topic, [await self._move(topic, index, body["directory"]) for index in indexes]
        )

    async def _move(self, topic: Topic, index: int, directory: str) -> dict[str, Any]:
        moves, key = self._broker.moves, TopicPartition(topic.name, index)
        try:
            await moves.begin(key, directory)
        except KafkaError as error:
            return {"partition": index, "error": error.message}
        return {"partition": index, "directory": directory, "is_moving": moves.target_of(key) is not None}

    async def abort(self, request: web.Request) -> web.StreamResponse:
        """End open transactions: those of a topic or of one partition, or the one that began at
        `start_offset` there. One that a coordinator knows ends in all its partitions, and its producer is
        fenced.
        """
        topic = self._asking.topic(request)
        body = await body_of(request, {"partition": int, "start_offset": int})
        start_offset = body.get("start_offset")
        if start_offset is not None and "partition" not in body:
            raise Refused(400, "a start offset is one of a partition: name that as well")
        indexes = self._asking.indexes(topic, body.get("partition"))
        ending = self._may_end(request, topic, indexes, start_offset)
        return await self._asking.respond_of(
            topic, [await self._abort(topic, index, start_offset, ending) for index in indexes]
        )

    def _may_end(
        self, request: web.Request, topic: Topic, indexes: Sequence[int], start_offset: int | None
    ) -> set[int]:
        """The producers whose transactions are meant. NotAllowed, before any has ended: who asks needs what
        EndTxn asks for, or WriteTxnMarkers, for a transaction is of other topics too.
        """
        access, producer_ids = self._asking.access, set[int]()
        for index in indexes:
            partition = self._broker.partition(topic.name, index)
            for producer_id, _ in () if partition is None else _open(partition, start_offset):
                place = TopicPartition(topic.name, index)
                name = self._broker.transactions.taking_part(place, producer_id)
                if name is None or not access.may(request, Operation.WRITE, Resource.TRANSACTIONAL_ID, name):
                    access.demand(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
                producer_ids.add(producer_id)
        return producer_ids

    async def _abort(
        self, topic: Topic, index: int, start_offset: int | None, ending: set[int]
    ) -> dict[str, Any]:
        partition = self._broker.partition(topic.name, index)
        if partition is None:
            return {"partition": index, "error": "the partition is being deleted"}
        aborted = [one for one in _open(partition, start_offset) if one[0] in ending]
        try:
            for producer_id, _ in aborted:
                await self._abort_one(partition, producer_id)
        except KafkaError as error:
            return {"partition": index, "error": str(error)}
        if start_offset is not None and not aborted:
            return {
                "partition": index,
                "error": f"no transaction that is open began at offset {start_offset}",
            }
        return {
            "partition": index,
            "aborted": [{"producer_id": one, "first_offset": first} for one, first in aborted],
            "last_stable_offset": partition.log.last_stable_offset,
        }

    async def _abort_one(self, partition: Partition, producer_id: int) -> None:
        transactions = self._broker.transactions
        transactional_id = transactions.taking_part(partition.topic_partition, producer_id)
        if transactional_id is not None:
            await transactions.shielded(transactions.abort(transactional_id))
        if producer_id in partition.log.producers.open_transactions():  # nobody knows of it
            now_ms = self._broker.clock.now_ms()
            flushed = partition.end_open_transaction(producer_id, now_ms, is_commit=False)
            if flushed is not None:
                await flushed

    def _wish(self, topic: Topic, body: Mapping[str, Any]) -> Wish:
        settings, is_dry = body.get("set", {}), body.get("dry_run", False)
        if settings and not is_dry:
            raise Refused(400, "other settings are only for a dry run")
        if not all(isinstance(value, str) for value in settings.values()):
            raise Refused(400, "the values of settings are strings")
        try:
            config = self._compactions.settings(topic, settings)
        except ConfigError as error:
            raise Refused(400, error.message) from error
        return Wish(roll=body.get("roll", False), is_dry=is_dry, config=config)

    async def _compact(
        self, topic: Topic, index: int, wish: Wish, progress: Progress | None = None
    ) -> dict[str, Any]:
        """The answer for one partition: the cleaning, and what the partition waits for afterwards."""
        key = TopicPartition(topic.name, index)
        answer = await self._compactions.compact(key, wish, progress)
        after = await self._asking.explained(topic, [index])
        now = {name: after[0][name] for name in ("reason", "sentence")} if after else {}
        return {"partition": index, **answer, "now": now}


def _open(partition: Partition, start_offset: int | None) -> list[tuple[int, int]]:
    """Producers of open transactions and where these began; or of the one that began there."""
    found = partition.log.producers.open_transactions().items()
    return [(producer_id, first) for producer_id, first in found if start_offset in (None, first)]


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
