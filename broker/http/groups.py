"""Consumer groups: what they are, where they stand, and where they shall read on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from broker.groups.commits import AnyGroup, CommitRequest, Position
from broker.groups.share.group import ShareGroup
from broker.http.access import READ_GROUP, SEE_GROUP, name_in
from broker.http.asking import Asking, Refused, body_of
from broker.questions.groups import group_head, group_heads, group_rows, place_rows
from broker.questions.reset import PLACES, WITH_VALUE, new_offset
from broker.questions.share_groups import share_group
from broker.security.acls import Operation, Resource
from broker.share.partition import ShareKey
from protocol.errors import ErrorCode, KafkaError
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.questions.partitions import Moment
    from broker.topic import Topic

T = TypeVar("T")
RESET_FIELDS = {"topic": str, "partition": int, "to": str, "value": int, "dry_run": bool}
OFFLINE = "the partition is offline"
ADMIN_VERSION = 9
"""of OffsetCommit, as an admin client commits for a group without members"""


class Groups:
    """Owned by: event loop."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._broker = asking.broker

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        answering = self._asking.answering
        router.add_get("/api/groups", answering(self.groups))
        router.add_get("/api/groups/{group:[^/]+}", answering(self.group, SEE_GROUP))
        router.add_post("/api/groups/{group:[^/]+}/reset", answering(self.reset, READ_GROUP))
        # A group may be called `.` or `..`, which a browser takes out of every path, or have no name at all.
        router.add_get("/api/group", answering(self.group, SEE_GROUP))
        router.add_post("/api/group/reset", answering(self.reset, READ_GROUP))

    async def groups(self, request: web.Request) -> web.StreamResponse:
        """Every group that may be known, in one line."""
        broker, may = self._broker, self._asking.access.may
        there = _loaded(group_heads, broker)
        heads = [one for one in there if may(request, Operation.DESCRIBE, Resource.GROUP, one["group"])]
        if there and not heads:
            self._asking.access.ask_who(request)
        committed = broker.groups.committed()
        rows = await broker.run_blocking(group_rows, heads, committed, broker.partitions.copy())
        for row in rows:
            row["topics"] = [
                one for one in row["topics"] if may(request, Operation.DESCRIBE, Resource.TOPIC, one)
            ]
        return await self._asking.respond({"groups": rows})

    async def group(self, request: web.Request) -> web.StreamResponse:
        """One group: its members, and where it stands in each partition."""
        group = self._group(request)
        if isinstance(group, ShareGroup):
            shown = share_group(self._broker, group)
            self._check_topics(request, shown, {row["topic"] for row in shown["offsets"]})
            return await self._asking.respond(shown)
        head, places = group_head(self._broker, group)
        self._check_topics(request, head, {place.topic_partition.topic for place in places})
        return await self._asking.respond({**head, "offsets": await self._asking.reading(place_rows, places)})

    def _check_topics(self, request: web.Request, head: dict[str, Any], topics: set[str]) -> None:
        topics |= {topic for member in head["members"] for topic in member["subscribed"]}
        may = self._asking.access.may
        if not all(may(request, Operation.DESCRIBE, Resource.TOPIC, topic) for topic in topics):
            raise Refused(403, "the group has topics that you have no right to DESCRIBE")

    def _group(self, request: web.Request) -> AnyGroup | ShareGroup:
        name = name_in(request, "group")
        if not name and "group" not in request.query:
            raise Refused(400, "ask for one: ?group=GROUP")
        group = _loaded(self._broker.groups.find, name)
        if group is None:
            raise Refused(404, f"there is no group {name}")
        return group

    async def reset(self, request: web.Request) -> web.StreamResponse:
        """Where the group shall read on in a topic or one of its partitions; with `dry_run` where it would.
        Its members must be gone, for they commit where they are.
        """
        group = self._group(request)
        body = await body_of(request, RESET_FIELDS)
        to = body.get("to")
        if to not in PLACES:
            raise Refused(400, f"field 'to' is one of {', '.join(PLACES)}")
        if (to in WITH_VALUE) != ("value" in body):
            raise Refused(400, f"field 'value' goes with {' and '.join(WITH_VALUE)}, and with nothing else")
        name = body.get("topic", "")
        self._asking.access.demand(request, Operation.READ, Resource.TOPIC, name)
        topic = self._asking.topic_called(name)
        indexes = self._asking.indexes(topic, body.get("partition"))
        moments = self._asking.moments(topic, indexes)
        offsets = await self._asking.reading(_new_offsets, moments, to, body.get("value", 0))
        before = _stands(self._broker, group, topic, indexes)
        if group.members:
            raise Refused(409, f"{group.group_id} has members, which commit where they are: stop them first")
        errors = {} if body.get("dry_run", False) else await self._commit(group, topic, offsets)
        errors |= {index: OFFLINE for index in indexes if index not in offsets}
        rows = [
            {
                "partition": index,
                "committed_offset": before[index],
                "new_offset": offsets.get(index),
                "error": errors.get(index),
            }
            for index in indexes
        ]
        return await self._asking.respond({"group": group.group_id, "topic": topic.name, "partitions": rows})

    async def _commit(
        self, group: AnyGroup | ShareGroup, topic: Topic, offsets: dict[int, int]
    ) -> dict[int, str]:
        """What could not be committed, and why."""
        if isinstance(group, ShareGroup):
            return await self._begin(group, topic, offsets)
        positions = [
            Position(TopicPartition(topic.name, index), offset, -1, "") for index, offset in offsets.items()
        ]
        request = CommitRequest(group.group_id, "", None, -1, -1, positions)
        try:
            outcome = self._broker.groups.commit(request, api_version=ADMIN_VERSION)
        except KafkaError as error:  # somebody has joined meanwhile
            raise Refused(409, error.message) from error
        if outcome.flushed is not None:
            await outcome.flushed
        return {
            place.partition: error.name
            for place, error in outcome.errors.items()
            if error is not ErrorCode.NONE
        }

    async def _begin(self, group: ShareGroup, topic: Topic, offsets: dict[int, int]) -> dict[int, str]:
        """As `_commit`, where a group commits nothing and begins elsewhere."""
        starts = {
            ShareKey(group.group_id, topic.topic_id, index): offset for index, offset in offsets.items()
        }
        try:
            await asyncio.gather(*self._broker.groups.shared.alter_offsets(group.group_id, starts))
        except KafkaError as error:
            raise Refused(409, error.message) from error
        return {}


def _stands(
    broker: Broker, group: AnyGroup | ShareGroup, topic: Topic, indexes: Iterable[int]
) -> dict[int, int | None]:
    """Where the group stands, by partition."""
    if isinstance(group, ShareGroup):
        rows = share_group(broker, group)["offsets"]
        known = {row["partition"]: row["start_offset"] for row in rows if row["topic"] == topic.name}
    else:
        committed = group.offsets.committed
        known = {place.partition: one.offset for place, one in committed.items() if place.topic == topic.name}
    return {index: known.get(index) for index in indexes}


def _new_offsets(moments: list[tuple[int, Moment]], to: str, value: int) -> dict[int, int]:
    """On an I/O thread, by partition; of a log that is offline nothing is known."""
    return {index: new_offset(at.log, to, value) for index, at in moments if at.log.offline_reason is None}


def _loaded(ask: Callable[..., T], *arguments: object) -> T:
    """What `ask` answers of groups; Refused while they are being read."""
    try:
        return ask(*arguments)
    except KafkaError as error:
        if error.code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            raise Refused(503, error.message) from error
        raise
