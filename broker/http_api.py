"""`/api/`: the questions about topics as JSON over HTTP, and what changes something: compact, reopen
and abort.

A web page that a person has open is an attacker: it can reach 127.0.0.1. Every request must therefore name
this server by an address or a name that is surely its own (else an attacker's name that resolves to 127.0.0.1
would do), and must not come from another site's page. What changes something or costs much is POST and takes
only `application/json`, which a page may not send elsewhere without being asked first. Anything that reads
files runs on I/O threads.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_to_bytes

from aiohttp import web

from broker.questions.compactions import Compactions, Progress, Wish
from broker.questions.keys import ENCODINGS, PARTITIONERS, BadKey, decode_key, key_answer, partitions_for
from broker.questions.partitions import Moment, explained, moment_of
from broker.questions.seek import TimeNotThere, explain_offset, explain_time
from broker.questions.segments import segment_rows
from broker.reopening import NotNow
from config.definition import ConfigError
from protocol.errors import KafkaError
from storage.explain import OffsetNotThere
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.partition import Partition
    from broker.topic import Topic

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LINES = "application/x-ndjson"
PROGRESS_SECONDS = 0.2
READERS = 2
MOST_WAITING = 16
COMPACT_FIELDS = {"partition": int, "roll": bool, "dry_run": bool, "set": dict}
READING = ("GET", "HEAD")
OWN_NAMES = ("localhost",)
LONG_MAX = 2**63 - 1
LONG_DIGITS = 19
SHOWN_LETTERS = 60
UNREADABLE = (ValueError, LookupError, RecursionError, web.RequestPayloadError)
"""what a body may be: no JSON or no text, in no charset that is known, too deep, packed wrongly"""


class Refused(Exception):
    """The request is answered with this status and these words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def in_json(request: web.Request, error: web.HTTPException) -> web.Response:
    """What aiohttp refuses by itself, as the API refuses: who asks it reads JSON."""
    allowed = " and ".join(error.headers.getall("Allow", []))
    words = {
        404: f"there is no {request.path[:SHOWN_LETTERS]!r} here",
        405: f"{request.method} is not taken here, {allowed} would be",
        413: f"the body is too long: {request.client_max_size} bytes are taken",
    }
    answer = web.json_response({"error": words.get(error.status, error.reason)}, status=error.status)
    if "Allow" in error.headers:
        answer.headers["Allow"] = error.headers["Allow"]
    return answer


class HttpApi:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._compactions = Compactions(broker)
        self._readers = asyncio.Semaphore(READERS)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        router.add_get("/api/topics/{topic}/explain", self._answering(self.explain))
        router.add_post("/api/topics/{topic}/explain", self._answering(self.explain_with_dry_run))
        router.add_post("/api/topics/{topic}/compact", self._answering(self.compact))
        router.add_post("/api/topics/{topic}/reopen", self._answering(self.reopen))
        router.add_post("/api/topics/{topic}/abort", self._answering(self.abort))
        router.add_get("/api/topics/{topic}/history", self._answering(self.history))
        router.add_get("/api/topics/{topic}/segments", self._answering(self.segments))
        router.add_get("/api/topics/{topic}/partitions/{partition}/seek", self._answering(self.seek))
        router.add_get("/api/topics/{topic}/get", self._answering(self.get))

    async def stop(self) -> None:
        """Abort what somebody asked for and still runs."""
        await self._compactions.stop()

    def _answering(self, handler: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                if not self._broker.is_ready:
                    raise Refused(503, "the broker is starting or stopping")
                self._guard(request)
                return await handler(request)
            except Refused as refused:
                return web.json_response({"error": str(refused)}, status=refused.status)
            except ConnectionError:  # who asked is gone
                raise
            except (KafkaError, OSError) as error:
                return web.json_response({"error": str(error)}, status=500)

        return answer

    def _guard(self, request: web.Request) -> None:
        if request.method not in READING and request.content_type != "application/json":
            raise Refused(415, "the content type must be application/json")
        if not self._is_own(request.host):
            raise Refused(403, f"this is not {request.host}: ask by an address or a configured name")
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{request.host}":
            raise Refused(403, "requests from other origins are refused")
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused(403, "requests from other sites are refused")

    def _is_own(self, host: str) -> bool:
        """Whether `host` can only mean this machine: an address, or a name that it has by itself."""
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower()
        try:
            ipaddress.ip_address(name)
        except ValueError:
            own = {*OWN_NAMES, socket.gethostname().lower(), self._broker.config.http_host.lower()}
            own.update(listener.advertised_host.lower() for listener in self._broker.listeners)
            return name in own
        return True

    # What is asked about

    def _topic(self, request: web.Request) -> Topic:
        name = request.match_info["topic"]
        topic = self._broker.topics.get(name)
        if topic is None:
            raise Refused(404, f"there is no topic {name}")
        return topic

    def _indexes(self, topic: Topic, wanted: object) -> list[int]:
        """The partitions that are meant; None means all."""
        if wanted is None:
            return list(range(topic.partition_count))
        index = _number(str(wanted), "partition")
        if not 0 <= index < topic.partition_count:
            raise Refused(404, f"{topic.name} has {topic.partition_count} partitions, none is {index}")
        return [index]

    def _moments(self, topic: Topic, indexes: list[int]) -> list[tuple[int, Moment]]:
        found = ((index, moment_of(self._broker, TopicPartition(topic.name, index))) for index in indexes)
        return [(index, at) for index, at in found if at is not None]

    async def _respond(self, topic: Topic, partitions: list[dict[str, Any]]) -> web.Response:
        """Thousands of segments make a long text: it is written on an I/O thread."""
        answer = {"topic": topic.name, "now_ms": self._broker.clock.now_ms(), "partitions": partitions}
        text = await self._broker.run_blocking(json.dumps, answer)
        return web.Response(text=text, content_type="application/json")

    def _refuse_a_crowd(self) -> None:
        """Before anything that has to wait for its turn."""
        if self._compactions.waiting >= MOST_WAITING:
            raise Refused(429, f"{MOST_WAITING} compactions wait already")

    # The questions

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """Why each partition is or is not being compacted now."""
        topic = self._topic(request)
        indexes = self._indexes(topic, request.query.get("partition"))
        return await self._respond(topic, await self._explained(topic, indexes, {}))

    async def explain_with_dry_run(self, request: web.Request) -> web.StreamResponse:
        """As `explain`, and what a cleaning would give back."""
        topic = self._topic(request)
        body = await _body(request, {"partition": int})
        indexes = self._indexes(topic, body.get("partition"))
        runs = {}
        if topic.config.is_compacted:
            self._refuse_a_crowd()
            for index in indexes:
                key = TopicPartition(topic.name, index)
                runs[index] = await self._compactions.compact(key, Wish(is_dry=True), Progress(index))
        return await self._respond(topic, await self._explained(topic, indexes, runs))

    async def _explained(
        self, topic: Topic, indexes: list[int], runs: Mapping[int, dict[str, Any]]
    ) -> list[dict[str, Any]]:
        moments = self._moments(topic, indexes)
        async with self._readers:
            return await self._broker.run_blocking(explained, self._broker, topic, moments, runs)

    async def history(self, request: web.Request) -> web.StreamResponse:
        """What the cleaner did, oldest first."""
        topic = self._topic(request)
        indexes = self._indexes(topic, request.query.get("partition"))
        runs_of = self._broker.cleanings.runs
        return await self._respond(
            topic,
            [
                {"partition": index, "runs": runs_of(TopicPartition(topic.name, index), topic.topic_id)}
                for index in indexes
            ],
        )

    async def segments(self, request: web.Request) -> web.StreamResponse:
        """Each segment, counted."""
        topic = self._topic(request)
        moments = self._moments(topic, self._indexes(topic, request.query.get("partition")))

        def read() -> list[dict[str, Any]]:
            now_ms = self._broker.clock.now_ms()
            return [_segments(self._broker, index, at, now_ms) for index, at in moments]

        async with self._readers:
            return await self._respond(topic, await self._broker.run_blocking(read))

    async def seek(self, request: web.Request) -> web.StreamResponse:
        """How a read finds an offset, or a time in ms since 1970."""
        topic = self._topic(request)
        index = self._indexes(topic, request.match_info["partition"])[0]
        asked = {name: request.query[name] for name in ("offset", "time") if name in request.query}
        if len(asked) != 1:
            raise Refused(400, "ask for one: ?offset=N or ?time=MS")
        (name, text), at = asked.popitem(), self._moments(topic, [index])
        number = _number(text, name)
        if not at or at[0][1].log.offline_reason is not None:
            raise Refused(503, f"partition {index} is offline")
        explain = explain_offset if name == "offset" else explain_time
        try:
            async with self._readers:
                answer = await self._broker.run_blocking(explain, at[0][1].log, number)
        except (OffsetNotThere, TimeNotThere) as error:
            raise Refused(404, str(error)) from error
        return web.json_response({"topic": topic.name, "partition": index, **answer})

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The latest value of a key, or with `history=1` every version that is left."""
        topic, query = self._topic(request), request.query
        encoding = _one_of(query.get("encoding", "text"), "encoding", ENCODINGS)
        partitioner = _one_of(query.get("partitioner", "all"), "partitioner", PARTITIONERS)
        history = _one_of(query.get("history", "0"), "history", ("0", "1")) == "1"
        try:
            key = decode_key(_raw(request, "key"), encoding)
        except BadKey as error:
            raise Refused(400, str(error)) from error
        indexes = partitions_for(key, partitioner, topic.partition_count)
        logs = [at.log for _, at in self._moments(topic, indexes)]

        def read() -> list[dict[str, Any]]:
            return [key_answer(log, key, history) for log in logs]

        async with self._readers:
            return await self._respond(topic, await self._broker.run_blocking(read))

    async def compact(self, request: web.Request) -> web.StreamResponse:
        """Clean now, or count in a dry run. With `Accept: application/x-ndjson` progress comes as lines; the
        last one is the answer.
        """
        topic = self._topic(request)
        body = await _body(request, COMPACT_FIELDS)
        indexes = self._indexes(topic, body.get("partition"))
        wish = self._wish(topic, body)
        self._refuse_a_crowd()
        config, verb = (topic.config, "is") if wish.config is None else (wish.config, "would be")
        if not config.is_compacted:
            policy = ",".join(sorted(config.cleanup_policy)) or "none"
            raise Refused(409, f"{topic.name} is not compacted: cleanup.policy {verb} {policy}")
        if request.headers.get("Accept") != LINES:
            return await self._respond(topic, [await self._compact(topic, index, wish) for index in indexes])
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

    async def reopen(self, request: web.Request) -> web.StreamResponse:
        """Open the logs that went offline now, whenever their next try is due."""
        topic = self._topic(request)
        body = await _body(request, {"partition": int})
        indexes = self._indexes(topic, body.get("partition"))
        return await self._respond(topic, [await self._reopen(topic, index) for index in indexes])

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

    async def abort(self, request: web.Request) -> web.StreamResponse:
        """End open transactions: those of a topic or of one partition, or the one that began at
        `start_offset` there. One that a coordinator knows ends in all its partitions, and its producer is
        fenced.
        """
        topic = self._topic(request)
        body = await _body(request, {"partition": int, "start_offset": int})
        start_offset = body.get("start_offset")
        if start_offset is not None and "partition" not in body:
            raise Refused(400, "a start offset is one of a partition: name that as well")
        indexes = self._indexes(topic, body.get("partition"))
        return await self._respond(
            topic, [await self._abort(topic, index, start_offset) for index in indexes]
        )

    async def _abort(self, topic: Topic, index: int, start_offset: int | None) -> dict[str, Any]:
        partition = self._broker.partition(topic.name, index)
        if partition is None:
            return {"partition": index, "error": "the partition is being deleted"}
        found = partition.log.producers.open_transactions().items()
        aborted = [(producer_id, first) for producer_id, first in found if start_offset in (None, first)]
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
        answer = await self._compactions.compact(key, wish, progress or Progress(index))
        after = await self._explained(topic, [index], {})
        now = {name: after[0][name] for name in ("reason", "sentence")} if after else {}
        return {"partition": index, **answer, "now": now}


def _raw(request: web.Request, name: str) -> bytes:
    """The bytes of a parameter: where they are no UTF-8, `request.query` would leave the escapes as text."""
    for pair in request.rel_url.raw_query_string.replace("+", " ").split("&"):
        found, _, value = pair.partition("=")
        if unquote(found) == name:
            return unquote_to_bytes(value.encode(errors="surrogateescape"))
    raise Refused(400, f"ask for one: ?{name}={name.upper()}")


def _number(text: str, name: str) -> int:
    """Digits, as many as a long has."""
    if not text.isascii() or not text.isdigit() or len(text) > LONG_DIGITS or int(text) > LONG_MAX:
        raise Refused(400, f"{text[:SHOWN_LETTERS]!r} is no {name}")
    return int(text)


def _one_of(value: str, name: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise Refused(400, f"{value!r} is no {name}; there are {', '.join(choices)}")
    return value


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


async def _body(request: web.Request, fields: Mapping[str, type]) -> dict[str, Any]:
    """The JSON object that was sent, nothing unknown in it; an empty body is an empty object."""
    try:
        text = await request.text()
        body = json.loads(text) if text.strip() else {}
    except UNREADABLE as error:
        raise Refused(400, f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "the body must be a JSON object")
    for name, value in body.items():
        if name not in fields:
            raise Refused(400, f"unknown field {name!r}; there are {', '.join(fields)}")
        if type(value) is not fields[name]:
            raise Refused(400, f"field {name!r} must be of type {fields[name].__name__}")
    return body


def _segments(broker: Broker, index: int, at: Moment, now_ms: int) -> dict[str, Any]:
    """On an I/O thread."""
    if at.log.offline_reason is not None:
        return {"partition": index, "error": f"the log is offline: {at.log.offline_reason}", "segments": []}
    found = broker.cleaner.assess(at.log)
    return {
        "partition": index,
        "first_dirty_offset": found.first_dirty_offset,
        "segments": [dataclasses.asdict(row) for row in segment_rows(at.log, found, now_ms)],
    }
