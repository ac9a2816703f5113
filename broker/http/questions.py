"""Questions about compaction: why, what the cleaner did, the segments, how a read finds its place, a key."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from aiohttp import web

from broker.http.access import READ_TOPIC, SEE_TOPIC
from broker.http.asking import Asking, Refused, bytes_of, is_set, number, one_of, time_ms
from broker.questions.keys import PARTITIONERS, key_answer, partitions_for
from broker.questions.partitions import Moment
from broker.questions.seek import TimeNotThere, explain_offset, explain_time
from broker.questions.segments import segment_rows
from storage.explain import OffsetNotThere
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker


class Questions:
    """Owned by: event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._broker = asking.broker

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        answering = self._asking.answering
        router.add_get("/api/topics/{topic}/explain", answering(self.explain, SEE_TOPIC))
        router.add_get("/api/topics/{topic}/history", answering(self.history, SEE_TOPIC))
        router.add_get("/api/topics/{topic}/segments", answering(self.segments, SEE_TOPIC))
        router.add_get("/api/topics/{topic}/partitions/{partition}/seek", answering(self.seek, READ_TOPIC))
        router.add_get("/api/topics/{topic}/get", answering(self.get, READ_TOPIC))

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """Why each partition is or is not being compacted now."""
        topic = self._asking.topic(request)
        indexes = self._asking.indexes(topic, request.query.get("partition"))
        return await self._asking.respond_of(topic, await self._asking.explained(topic, indexes))

    async def history(self, request: web.Request) -> web.StreamResponse:
        """What the cleaner did, oldest first."""
        topic = self._asking.topic(request)
        indexes = self._asking.indexes(topic, request.query.get("partition"))
        runs_of = self._broker.cleanings.runs
        return await self._asking.respond_of(
            topic,
            [
                {"partition": index, "runs": runs_of(TopicPartition(topic.name, index), topic.topic_id)}
                for index in indexes
            ],
        )

    async def segments(self, request: web.Request) -> web.StreamResponse:
        """Each segment, counted."""
        topic = self._asking.topic(request)
        moments = self._asking.moments(topic, self._asking.indexes(topic, request.query.get("partition")))

        def read() -> list[dict[str, Any]]:
            now_ms = self._broker.clock.now_ms()
            return [_segments(self._broker, index, at, now_ms) for index, at in moments]

        return await self._asking.respond_of(topic, await self._asking.scanning(request, read))

    async def seek(self, request: web.Request) -> web.StreamResponse:
        """How a read finds an offset, or a time in ms since 1970."""
        topic = self._asking.topic(request)
        index = self._asking.indexes(topic, request.match_info["partition"])[0]
        asked = {name: request.query[name] for name in ("offset", "time") if name in request.query}
        if len(asked) != 1:
            raise Refused(400, "ask for one: ?offset=N or ?time=MS")
        name, text = asked.popitem()
        wanted = number(text, name) if name == "offset" else time_ms(text, name)
        index, at = self._asking.readable(topic, index)
        explain = explain_offset if name == "offset" else explain_time
        try:
            answer = await self._asking.reading(explain, at.log, wanted)
        except (OffsetNotThere, TimeNotThere) as error:
            raise Refused(404, str(error)) from error
        return web.json_response({"topic": topic.name, "partition": index, **answer})

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The latest value of a key, or with `history=1` every version that is left; `shortened=1` for the
        first bytes of each value.
        """
        topic, query = self._asking.topic(request), request.query
        partitioner = one_of(query.get("partitioner", "all"), "partitioner", PARTITIONERS)
        history = is_set(request, "history")
        key = bytes_of(request, "key")
        indexes = partitions_for(key, partitioner, topic.partition_count)
        logs = [at.log for _, at in self._asking.moments(topic, indexes)]
        shortened = is_set(request, "shortened")

        def read() -> list[dict[str, Any]]:
            return [key_answer(log, key, history, shortened=shortened) for log in logs]

        return await self._asking.respond_of(topic, await self._asking.scanning(request, read))


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
