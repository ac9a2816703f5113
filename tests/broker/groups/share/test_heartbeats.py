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
from protocol.errors import ErrorCode
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

    def beats(self, member_id: str, epoch: int, *topics: str) -> ShareBeat:
        """A ShareGroupHeartbeat that says which topics it wants, or nothing of them."""
        request = ShareHeartbeat(
            group_id="g",
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
