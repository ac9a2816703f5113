"""What is in a topic: its records, page by page, and the table that they mean."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from aiohttp import web

from broker.http.access import READ_TOPIC
from broker.http.asking import Asking, Refused, bytes_of, is_gone, is_set, limit, number, time_ms
from broker.questions.records import Wanted, latest_page, records_page, steadily
from broker.questions.table import Page, TooEarly, table_page, upper_for
from storage.log import Log

DEFAULT_ROWS, MOST_ROWS = 100, 1000
MOST_KEYS = 10_000
"""rows of a page of the table: each page reads the whole topic"""


class Contents:
    """Owned by: event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._broker = asking.broker

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        answering = self._asking.answering
        router.add_get(
            "/api/topics/{topic}/partitions/{partition}/records", answering(self.records, READ_TOPIC)
        )
        router.add_get("/api/topics/{topic}/table", answering(self.table, READ_TOPIC))

    async def records(self, request: web.Request) -> web.StreamResponse:
        """A page of records: from `offset` on, from the first at or after `time`, or the last before
        `before` (the end, where nothing is said).
        """
        topic, query = self._asking.topic(request), request.query
        index, at = self._asking.readable(topic, request.match_info["partition"])
        asked = [name for name in ("offset", "time", "before") if name in query]
        if len(asked) > 1:
            raise Refused(400, "ask for one: ?offset=N, ?time=MS or ?before=N")
        most, hidden = limit(request, DEFAULT_ROWS, MOST_ROWS), is_set(request, "hidden")
        read_as = time_ms if asked == ["time"] else number
        place = read_as(query[asked[0]], asked[0]) if asked else at.log.log_end_offset
        contains = bytes_of(request, "contains") if "contains" in query else b""

        def read() -> dict[str, Any]:
            offset = _first_at(at.log, place) if asked == ["time"] else place
            wanted = Wanted(offset, most, contains, hidden)
            return (latest_page if asked in ([], ["before"]) else records_page)(at.log, wanted)

        page = await self._asking.reading(steadily, read)
        named = {"topic": topic.name, "topic_id": str(topic.topic_id), "partition": index}
        return await self._asking.respond(named | page)

    async def table(self, request: web.Request) -> web.StreamResponse:
        """The latest value of each key, in the order of the keys' bytes; `partition` and `offset` ask for the
        table as of that offset.
        """
        topic, query = self._asking.topic(request), request.query
        moments = self._asking.moments(topic, self._asking.indexes(topic, query.get("partition")))
        as_of = None
        if "offset" in query:
            if "partition" not in query:
                raise Refused(400, "an offset is one of a partition: name that as well")
            as_of = number(query["offset"], "offset")
        page = Page(
            prefix=bytes_of(request, "prefix") if "prefix" in query else b"",
            after=_base64(query["after"]) if "after" in query else None,
            most=limit(request, DEFAULT_ROWS, MOST_KEYS),
            tombstones=is_set(request, "tombstones"),
        )

        def read() -> dict[str, Any]:
            logs = [(at.log, upper_for(at.log, as_of, self._clean_to(at.log))) for _, at in moments]
            found = table_page(logs, page, lambda: is_gone(request))
            for _, at in moments:  # a cleaning may have ended meanwhile
                upper_for(at.log, as_of, self._clean_to(at.log))
            return found

        try:
            found = await self._asking.scanning(request, steadily, read)
        except TooEarly as error:
            raise Refused(409, str(error)) from error
        return await self._asking.respond({"topic": topic.name, **found})

    def _clean_to(self, log: Log) -> int:
        """Up to where the log was ever compacted, whatever its policy is now; by a cleaning that is swapping
        segments, or was aborted between two of its swaps, too.
        """
        found = self._broker.cleaner.checkpoints.offset_of(log.directory.parent, log.topic_partition)
        return max(log.compacted_to, log.log_start_offset if found is None else found)


def _first_at(log: Log, time_ms: int) -> int:
    """The offset of the first record at or after a time; the end where there is none."""
    found = log.offset_for_timestamp(time_ms)
    return log.log_end_offset if found is None else found.offset


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(400, f"after is the next_after_base64 of the page before: {error}") from error
