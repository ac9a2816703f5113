"""Goal: a member of a share group (KIP-932) that lost an answer goes on, and one that the broker has gone on
without begins anew.

Method: a coordinator over memory partitions and a manual clock. A whole broker is in tests/broker/share,
Apache Kafka beside it in tests/kafka/test_share_groups.py.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING, Any, cast

import pytest

from broker.groups.coordinator import GroupCoordinator
from broker.groups.share.group import Begun, ShareGroup
from broker.groups.share.heartbeats import ShareBeat, ShareHeartbeat
from broker.groups.streams.heartbeats import StreamsHeartbeat
from broker.groups.streams.member import Assignment
from broker.groups.topics import Partitions
from broker.share.coordinator import ShareCoordinator
from broker.share.partition import ShareKey
from broker.topic import SHARE_STATE_TOPIC
from config.broker import BrokerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.internal_streams_groups import StreamsGroupTopologyValue
from protocol.messages.streams_groups import Subtopology
from tests.broker.groups.world import World, refused

if TYPE_CHECKING:
    from broker.node import Node
    from broker.topics import TopicRegistry

SESSION_MS = BrokerConfig().group_share_session_timeout_ms
INTERVAL_MS = 15_000


class Shares(World):
    """Members of one share group."""

    def _coordinator(self) -> GroupCoordinator:
        if SHARE_STATE_TOPIC not in self.topics.created:
            self.topics.create(SHARE_STATE_TOPIC, 3, {})
        node, topics = cast("Node", self), cast("TopicRegistry", self.topics)
        self.shares = ShareCoordinator(node, topics, self.group_settings)
        return GroupCoordinator(node, topics, self.group_settings, None, self.shares)

    async def restart(self) -> None:
        await super().restart()
        await self.shares.load()

    def share_group(self, group_id: str = "g") -> ShareGroup:
        group = self.groups.find(group_id)
        assert isinstance(group, ShareGroup)
        return group

    def columns(self) -> Partitions:
        return {self.topics.created["columns"].topic_id: frozenset((0,))}

    def key(self, topic: str, partition: int) -> ShareKey:
        return ShareKey("g", self.topics.created[topic].topic_id, partition)

    def beats(
        self, member_id: str, epoch: int, *topics: str, group_id: str = "g", **changes: Any
    ) -> ShareBeat:
        """A ShareGroupHeartbeat that says which topics it wants, or nothing of them."""
        request = ShareHeartbeat(
            group_id=group_id,
            member_id=member_id,
            epoch=epoch,
            rack_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            topic_names=frozenset(topics) or None,
        )
        return self.groups.shared.beat(dataclasses.replace(request, **changes))


async def test_who_lost_an_answer_may_be_one_epoch_behind_and_no_further() -> None:
    """Kafka's `throwIfShareGroupMemberEpochIsInvalid`."""
    world = Shares()
    assert world.beats("a", 0, "rows").epoch == 2
    world.beats("b", 0, "rows")
    assert world.beats("a", 2).epoch == 3
    assert world.beats("a", 2).epoch == 3, "it was lost"
    for epoch, relation in ((1, "smaller"), (4, "greater")):
        with pytest.raises(KafkaError, match=f"has a {relation} member epoch") as caught:
            world.beats("a", epoch)
        assert caught.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    world.beats("b", -1)
    assert world.beats("a", 3).assigned == world.rows(0, 1)
    assert refused(lambda: world.beats("a", 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(lambda: world.beats("b", 3)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_who_says_what_it_wants_or_gets_something_else_is_told_what_it_has() -> None:
    world = Shares()
    assert world.beats("a", 0, "rows").assigned == world.rows(0, 1)
    written = len(world.stored())
    assert world.beats("a", 2).assigned is None
    assert len(world.stored()) == written, "nor is anything written"
    assert world.beats("a", 2, "rows").assigned == world.rows(0, 1)
    again = world.beats("a", 0, "rows")
    assert (again.epoch, again.assigned) == (2, world.rows(0, 1)), "nothing has changed"
    told = world.beats("a", 2, "columns")
    assert (told.epoch, told.assigned) == (3, world.columns())
    world.beats("b", 0, "columns", "rows")
    assert world.beats("a", 3, rack_id="r").assigned is None, "both have the one partition"
    member = world.share_group().members["a"]
    assert (member.rack_id, member.topic_names) == ("r", {"columns"})
    world.beats("a", 4, client_id="other", client_host="/10.0.0.1")
    await world.restart()
    member = world.share_group().members["a"]
    assert (member.rack_id, member.client_id, member.client_host) == ("r", "other", "/10.0.0.1")
    assert (member.topic_names, member.epoch, member.previous_epoch) == ({"columns"}, 4, 3)


async def test_topics_that_come_grow_and_go_are_divided_anew() -> None:
    """And where the group stands elsewhere stays as it is."""
    world = Shares()
    assert world.beats("a", 0, "rows", "new").assigned == world.rows(0, 1)
    old = world.shares.partitions[world.key("rows", 0)]
    world.topics.create("new", 1, {})
    world.topics.create("rows", 3, {})
    told = world.beats("a", 2)
    new = {world.topics.created["new"].topic_id: frozenset((0,))}
    assert (told.epoch, told.assigned) == (3, {**world.rows(0, 1, 2), **new})
    assert world.shares.partitions[world.key("rows", 0)] is old
    assert world.key("rows", 2) in world.shares.partitions
    world.topics.create("other", 1, {})
    told = world.beats("a", 3)
    assert (told.epoch, told.assigned) == (3, None), "nothing of its own"
    gone = world.key("new", 0)
    del world.topics.created["new"]
    world.topics.version += 1
    list(world.groups.on_topics_deleted(["new"]))
    told = world.beats("a", 3)
    assert (told.epoch, told.assigned) == (4, world.rows(0, 1, 2))
    assert gone not in world.shares.partitions


async def test_a_group_is_divided_anew_only_so_often() -> None:
    world = Shares(group_share_assignment_interval_ms=INTERVAL_MS)
    assert world.beats("a", 0, "rows", "columns").assigned == {**world.rows(0, 1), **world.columns()}
    told = world.beats("b", 0, "rows")
    assert (told.epoch, told.assigned) == (2, {}), "it has not got a target yet"
    told = world.beats("a", 2, "columns")
    assert (told.epoch, told.assigned) == (2, world.columns()), "what it wants no more it has no more"
    world.clock.advance(INTERVAL_MS)
    told = world.beats("b", 2)
    assert (told.epoch, told.assigned) == (4, world.rows(0, 1))
    told = world.beats("a", 2)
    assert (told.epoch, told.assigned) == (4, None)


async def test_a_silent_member_is_fenced_and_one_that_left_is_not() -> None:
    world = Shares()
    for member_id in "abc":
        world.beats(member_id, 0, "rows")
    world.beats("c", -1)
    assert world.share_group().epoch == 5
    world.clock.advance(SESSION_MS // 2)
    world.beats("a", 2)
    await world.restart()
    world.clock.advance(SESSION_MS - 1)
    assert world.beats("a", 5).epoch == 5
    world.clock.advance(1)
    for epoch in (4, -1):
        assert refused(lambda epoch=epoch: world.beats("b", epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beats("a", 5).epoch == 6
    world.clock.advance(SESSION_MS // 2)
    world.beats("b", 0, "columns")
    world.beats("b", -1)
    await world.restart()
    assert world.beats("a", 6).epoch == 8, "what b wanted is nothing new when nobody wants it"
    world.clock.advance(SESSION_MS - 1)
    world.beats("a", 8)
    world.clock.advance(SESSION_MS - 1)
    assert world.beats("a", 8).epoch == 8


async def test_who_cannot_be_fenced_now_is_a_member_until_it_can() -> None:
    world = Shares()
    world.beats("a", 0, "rows")
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    world.clock.advance(SESSION_MS)
    assert not world.share_group().is_empty
    world.refuse_appends(None)
    world.clock.advance(SESSION_MS - 1)
    assert not world.share_group().is_empty
    world.clock.advance(1)
    assert world.share_group().is_empty


async def test_what_a_member_that_came_back_shall_have_outlives_a_restart() -> None:
    world = Shares()
    world.beats("a", 0, "rows")
    world.beats("a", -1)
    world.beats("a", 0, "rows")
    await world.restart()
    assert world.share_group().targets == {"a": world.rows(0, 1)}


async def test_a_group_is_no_larger_than_it_may_be() -> None:
    world = Shares(group_share_max_size=2)
    for member_id in "ab":
        world.beats(member_id, 0, "rows")
    assert refused(lambda: world.beats("c", 0, "rows")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beats("a", 2).epoch == world.beats("b", 0, "rows").epoch == 3


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        (ErrorCode.INVALID_REQUEST, {"member_id": ""}),
        (ErrorCode.INVALID_REQUEST, {"group_id": ""}),
        (ErrorCode.INVALID_REQUEST, {"rack_id": ""}),
        (ErrorCode.INVALID_REQUEST, {"topic_names": None}),
        (ErrorCode.INVALID_REQUEST, {"topic_names": frozenset()}),
        (ErrorCode.INVALID_REQUEST, {"epoch": -2}),
        (ErrorCode.INVALID_REQUEST, {"member_id": "m" * 40_000}),
        (ErrorCode.INVALID_GROUP_ID, {"group_id": "g" * 40_000}),
    ],
)
async def test_a_heartbeat_that_makes_no_sense_is_refused(code: ErrorCode, changes: dict[str, Any]) -> None:
    world = Shares()
    said = {"epoch": 0, "topic_names": frozenset(("rows",)), "member_id": "a", **changes}
    assert refused(lambda: world.beats(said.pop("member_id"), **said)) is code
    assert not world.groups.shared.groups


async def test_nobody_joins_while_groups_or_where_they_stand_are_read() -> None:
    """What is read would be laid over what was done meanwhile."""
    world = Shares()
    world.beats("a", 0, "rows")
    for topic in (world.shares._topic, world.groups._store):
        topic._loading.update(range(3))
        for epoch in (0, 2, -1):
            loading = refused(lambda epoch=epoch: world.beats("a", epoch, "rows"))
            assert loading is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        topic._loading.clear()
    assert world.beats("a", 2).epoch == 2
    world.beats("a", -1)
    world.groups._store._loading.update(range(3))
    assert refused(lambda: world.groups.shared.existing("g")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.groups._store._loading.clear()
    world.shares._topic._loading.update(range(3))
    for call in (
        lambda: world.groups.shared.alter_offsets("g", {world.key("rows", 0): 1}),
        lambda: world.groups.shared.delete_offsets("g", {world.key("rows", 0).topic_id}),
        lambda: world.groups.delete_group("g"),
    ):
        assert refused(call) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_answers_wait_for_the_disk() -> None:
    world = Shares()
    world.hold_flushes()
    joined = world.beats("a", 0, "rows")
    left = world.beats("a", -1)
    shared, key = world.groups.shared, world.key("rows", 0)
    altered, forgotten = shared.alter_offsets("g", {key: 1}), shared.delete_offsets("g", {key.topic_id})
    for waits in (joined.waits, left.waits, altered, forgotten, world.groups.delete_group("g")):
        assert waits and not any(one.done() for one in waits)
    await world.flush()
    assert all(one.done() for one in joined.waits)


async def test_where_an_empty_group_stands_is_set_and_forgotten_topic_by_topic() -> None:
    world = Shares()
    shared, topic_id = world.groups.shared, world.topics.created["rows"].topic_id
    zero, one, columns = world.key("rows", 0), world.key("rows", 1), world.key("columns", 0)
    assert shared.alter_offsets("g", {}) == []
    assert world.groups.find("g") is None
    shared.alter_offsets("g", {zero: 7})
    shared.alter_offsets("g", {one: 8, columns: 9})
    await world.restart()
    stands = {key: share.stored.start_offset for key, share in world.shares.partitions.items()}
    assert stands == {zero: 7, one: 8, columns: 9}
    shared = world.groups.shared
    assert world.share_group().begun[topic_id] == Begun("rows", frozenset((0, 1)))
    shared.delete_offsets("g", {topic_id, uuid.uuid4()})
    await world.restart()
    assert world.shares.partitions.keys() == {columns}
    assert world.share_group().begun.keys() == {columns.topic_id}
    assert world.beats("a", 0, "rows", "columns").assigned == {**world.rows(0, 1), **world.columns()}
    assert world.shares.partitions[columns].stored.start_offset == 9
    for call in (
        lambda: world.groups.shared.alter_offsets("g", {zero: 1}),
        lambda: world.groups.shared.delete_offsets("g", {topic_id}),
        lambda: world.groups.delete_group("g"),
    ):
        assert refused(call) is ErrorCode.NON_EMPTY_GROUP
    world.beats("a", -1)
    world.groups.delete_group("g")
    await world.restart()
    assert (world.groups.find("g"), world.shares.partitions) == (None, {})


async def test_what_cannot_be_written_changes_nothing() -> None:
    world = Shares()
    world.beats("a", 0, "rows")
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    for call in (
        lambda: world.beats("b", 0, "rows"),
        lambda: world.beats("a", 2, "columns"),
        lambda: world.beats("a", -1),
    ):
        assert refused(call) is ErrorCode.NOT_COORDINATOR
    world.refuse_appends(None)
    again = world.beats("a", 2, "rows")
    assert (again.epoch, again.assigned) == (2, world.rows(0, 1))
    assert refused(lambda: world.beats("b", 2)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_that_is_not_there_cannot_be_beaten_or_left() -> None:
    world = Shares()
    for epoch in (-1, 1):
        assert refused(lambda epoch=epoch: world.beats("a", epoch)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(lambda: world.groups.shared.existing("")) is ErrorCode.INVALID_GROUP_ID
    world.joining()
    alter = world.groups.shared.alter_offsets
    assert refused(lambda: alter("g", {world.key("rows", 0): 1})) is ErrorCode.GROUP_ID_NOT_FOUND
    for epoch in (-1, 0, 1):
        with pytest.raises(KafkaError, match="Group g is not a share group"):
            world.beats("a", epoch, "rows")


async def test_a_group_that_is_deleted_while_topics_go_stays_so() -> None:
    """What is deleted is forgotten group by group; requests are answered in between."""
    world = Shares()
    world.beats("a", 0, "columns", group_id="first")
    world.beats("a", 0, "columns", group_id="second")
    world.beats("a", -1, group_id="second")
    del world.topics.created["columns"]
    steps = world.groups.on_topics_deleted(["columns"])
    next(steps)
    world.groups.delete_group("second")
    assert not any(True for _ in steps)
    await world.restart()
    assert {group.group_id for group in world.groups.list_groups((), ())} == {"first"}


@pytest.mark.parametrize("is_empty", [False, True])
async def test_a_streams_member_finds_no_place_in_a_share_group(is_empty: bool) -> None:
    """Nor makes a group beside it, of the same name."""
    world = Shares()
    world.beats("a", 0, "rows")
    if is_empty:
        world.beats("a", -1)
    request = StreamsHeartbeat(
        group_id="g",
        member_id="s",
        epoch=0,
        endpoints_epoch=0,
        rack_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        topology=StreamsGroupTopologyValue(
            subtopologies=[Subtopology(subtopology_id="0", source_topics=["rows"])]
        ),
        owned=Assignment(),
        process_id="s",
        endpoint=None,
        client_tags=None,
        wants_shutdown=False,
    )
    assert refused(lambda: world.groups.beat_streams(request)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert not world.groups.groups
