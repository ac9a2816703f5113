"""Goal: every version of the consumer protocol's APIs says in its own words what the coordinator decided, and
a heartbeat is answered when what it changed is durable.

Method: requests are encoded, decoded, handled, and the response encoded and decoded again, each version.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.api import Later
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from tests.broker.groups.test_handlers import ask, read, start
from tests.broker.groups.world import World

VERSIONS = (0, 1)


def joining(**changes: Any) -> ConsumerGroupHeartbeatRequest:
    said = {"group_id": "g", "member_id": "m", "rebalance_timeout_ms": 60_000, "topic_partitions": []}
    names = ["rows"]
    return ConsumerGroupHeartbeatRequest(**{**said, "subscribed_topic_names": names, **changes})


def partitions(world: World, rows: Any) -> dict[str, list[int]]:
    names = {topic.topic_id: topic.name for topic in world.topics.all()}
    return {names[row.topic_id]: row.partitions for row in rows}


@pytest.mark.parametrize("version", VERSIONS)
async def test_t201_a_member_joins_beats_and_leaves(version: int) -> None:
    world = World()
    joined = ask(world, joining(), version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 2)
    assert joined.heartbeat_interval_ms == world.config.group_consumer_heartbeat_interval_ms
    assert partitions(world, joined.assignment.topic_partitions) == {"rows": [0, 1]}
    nothing_new = {"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout_ms": -1}
    beat = ask(world, joining(member_epoch=2, **nothing_new), version)
    assert (beat.error_code, beat.member_epoch, beat.assignment) == (0, 2, None)
    left = ask(world, joining(member_epoch=-1, **nothing_new), version)
    assert (left.error_code, left.member_epoch, left.heartbeat_interval_ms) == (0, -1, 0)


@pytest.mark.parametrize(
    "subscription",
    [
        {"subscribed_topic_names": ["rows"]},
        {"subscribed_topic_names": None, "subscribed_topic_regex": "rows"},
    ],
)
async def test_t201_who_says_everything_is_told_everything(subscription: dict[str, Any]) -> None:
    """An answer was lost; who subscribes by a pattern has no names to say."""
    world = World()
    ask(world, joining(**subscription), 1)
    told = ask(world, joining(member_epoch=2, **subscription), 1)
    assert partitions(world, told.assignment.topic_partitions) == {"rows": [0, 1]}
    nothing = {"subscribed_topic_names": None, "subscribed_topic_regex": None}
    for unsaid in (nothing, {"topic_partitions": None}, {"rebalance_timeout_ms": -1}):
        answer = ask(world, joining(member_epoch=2, **{**subscription, **unsaid}), 1)
        assert (answer.error_code, answer.assignment) == (0, None)


@pytest.mark.parametrize(("epoch", "relation"), [(3, "greater"), (1, "smaller")])
async def test_t201_another_epoch_is_fenced_and_told_so(epoch: int, relation: str) -> None:
    world = World()
    ask(world, joining(), 1)
    fenced = ask(world, joining(member_epoch=epoch, topic_partitions=None), 1)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert f"has a {relation} member epoch ({epoch}) than the one known" in fenced.error_message


@pytest.mark.parametrize("epoch", [-3, -(2**31)])
async def test_an_epoch_that_means_nothing_is_refused(epoch: int) -> None:
    world = World()
    for instance_id in (None, "i"):
        answer = ask(world, joining(member_epoch=epoch, instance_id=instance_id), 1)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "MemberEpoch is invalid.",
        )


@pytest.mark.parametrize("owned", [None, "some"])
async def test_t201_who_joins_owns_nothing_and_says_so(owned: str | None) -> None:
    world = World()
    topic = ConsumerGroupHeartbeatRequest.TopicPartitions(
        topic_id=world.topics.created["rows"].topic_id, partitions=[0]
    )
    answer = ask(world, joining(topic_partitions=[topic] if owned else None), 1)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "TopicPartitions must be empty when (re-)joining.",
    )


async def test_t201_an_instance_that_nobody_holds_is_unknown() -> None:
    world = World()
    ask(world, joining(), 1)
    for epoch in (2, -1, -2):
        answer = ask(world, joining(instance_id="i", member_epoch=epoch), 1)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.UNKNOWN_MEMBER_ID,
            "Instance id i is unknown.",
        )


async def test_t201_a_client_of_version_0_gets_its_member_id() -> None:
    world = World()
    first, second = (ask(world, joining(member_id=""), 0).member_id for _ in range(2))
    assert first and second and first != second
    assert ask(world, joining(member_id=""), 1).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", VERSIONS)
async def test_t201_a_group_is_described(version: int) -> None:
    world = World()
    ask(world, joining(instance_id="i", rack_id="r"), version)
    request = ConsumerGroupDescribeRequest(group_ids=["g", "none"], include_authorized_operations=True)
    found, missing = ask(world, request, version).groups
    assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (
        0,
        "Stable",
        2,
        2,
    )
    assert found.assignor_name == "uniform" and found.authorized_operations > 0
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 2)
    assert (member.client_id, member.client_host) == ("client", "/10.0.0.9")
    assert partitions(world, member.assignment.topic_partitions) == {"rows": [0, 1]}
    assert partitions(world, member.target_assignment.topic_partitions) == {"rows": [0, 1]}
    assert member.member_type == (1 if version else -1)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_t201_what_is_given_back_is_described_as_had_until_it_is() -> None:
    world = World()
    ask(world, joining(), 1)
    ask(world, joining(member_id="n"), 1)
    world.beat("m", 2, owned=world.rows(0, 1))
    rows = ask(world, ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups[0].members
    had = {row.member_id: partitions(world, row.assignment.topic_partitions) for row in rows}
    assert had == {"m": {"rows": [0, 1]}, "n": {}}


async def test_t201_the_classic_apis_see_such_a_group_as_another_kind() -> None:
    world = World()
    ask(world, joining(), 1)
    described = ask(world, DescribeGroupsRequest(groups=["g"]), 6).groups[0]
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group g is not a classic group."
    assert ask(world, DescribeGroupsRequest(groups=["g"]), 5).groups[0].error_code == 0
    (listed,) = ask(world, ListGroupsRequest(), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g", "consumer", "Stable", "consumer",
    )  # fmt: skip
    assert ask(world, ListGroupsRequest(types_filter=["classic"]), 5).groups == []
    assert ask(world, ListGroupsRequest(states_filter=["empty"]), 5).groups == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_t201_the_answer_waits_for_the_disk(version: int) -> None:
    world = World()
    world.hold_flushes()
    waiting = start(world, joining(), version)
    assert isinstance(waiting, Later)
    await world.flush()
    assert read(waiting, version).error_code == 0
    world.hold_flushes()
    waiting = start(world, joining(member_id="n"), version)
    await world.flush(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk"))
    assert read(waiting, version).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("version", "epoch", "expected"),
    [(8, 2, 35), (9, 2, 0), (9, 3, 113), (9, 1, 113)],
)
async def test_t201_only_who_knows_epochs_commits(version: int, epoch: int, expected: int) -> None:
    world = World()
    ask(world, joining(), 1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    place = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=epoch, member_id="m",
        topics=[topic(name="rows", partitions=[place])],
    )  # fmt: skip
    assert ask(world, request, version).topics[0].partitions[0].error_code == expected


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("m", 2, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        ("m", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_t201_who_says_that_it_is_a_member_has_to_be_one(
    member_id: str | None, epoch: int, expected: ErrorCode
) -> None:
    world = World()
    ask(world, joining(), 1)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(
        groups=[group(group_id="g", member_id=member_id, member_epoch=epoch, topics=None)]
    )
    assert ask(world, request, 9).groups[0].error_code == expected
