"""Goal: a member of a share group (KIP-932) that lost an answer goes on, and one that the broker has gone on
without begins anew.

Method: a coordinator over memory partitions and a manual clock. A whole broker is in tests/broker/share,
Apache Kafka beside it in tests/kafka/test_share_groups.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from broker.groups.coordinator import GroupCoordinator
from broker.groups.share.heartbeats import ShareBeat, ShareHeartbeat
from broker.groups.streams.heartbeats import StreamsHeartbeat
from broker.groups.streams.member import Assignment
from broker.share.coordinator import ShareCoordinator
from broker.topic import SHARE_STATE_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.internal_streams_groups import StreamsGroupTopologyValue
from protocol.messages.streams_groups import Subtopology
from tests.broker.groups.world import World, refused

if TYPE_CHECKING:
    from broker.node import Node
    from broker.topics import TopicRegistry


class Shares(World):
    """Members of one share group."""

    def _coordinator(self) -> GroupCoordinator:
        self.topics.create(SHARE_STATE_TOPIC, 3, {})
        node, topics = cast("Node", self), cast("TopicRegistry", self.topics)
        shares = ShareCoordinator(node, topics, self.group_settings)
        return GroupCoordinator(node, topics, self.group_settings, None, shares)

    def beats(self, member_id: str, epoch: int, *topics: str, group_id: str = "g") -> ShareBeat:
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
        return self.groups.shared.beat(request)


async def test_who_lost_an_answer_may_be_one_epoch_behind_and_no_further() -> None:
    """Kafka's `throwIfShareGroupMemberEpochIsInvalid`."""
    world = Shares()
    assert world.beats("a", 0, "rows").epoch == 2
    world.beats("b", 0, "rows")
    assert world.beats("a", 2).epoch == 3
    assert world.beats("a", 2).epoch == 3, "it was lost"
    for epoch in (1, 4):
        assert refused(lambda epoch=epoch: world.beats("a", epoch)) is ErrorCode.FENCED_MEMBER_EPOCH
    world.beats("b", -1)
    assert world.beats("a", 3).assigned == world.rows(0, 1)
    assert refused(lambda: world.beats("a", 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(lambda: world.beats("b", 3)) is ErrorCode.UNKNOWN_MEMBER_ID


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
