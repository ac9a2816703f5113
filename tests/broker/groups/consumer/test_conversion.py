"""Goal: a group changes between the classic and the consumer protocol while it has members, and members of
both share it (T202).

Method: a coordinator over memory partitions and a manual clock; what clients do is in tests/clients, what
Kafka does beside it in tests/kafka.
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct

import pytest

from broker.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from broker.groups.consumer.member import (
    partitions_of,
)
from broker.groups.epochs import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from broker.groups.membership import Group, JoinResult, SyncResult
from broker.groups.state import GroupState
from protocol.codegen import encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from storage.layout import TopicPartition
from tests.broker.groups.world import RANGE, REBALANCE_TIMEOUT_MS, ROWS_0, SESSION_TIMEOUT_MS, World, refused


def subscription(*owned: int, topic: str = "rows") -> list[tuple[str, bytes]]:
    said = ConsumerProtocolSubscription(
        topics=[topic],
        owned_partitions=[ConsumerProtocolSubscription.TopicPartition(topic="rows", partitions=list(owned))],
    )
    return [("range", struct.pack(">h", 1) + b"".join(encode(said, 1)))]


def assignment(*partitions: int) -> bytes:
    topic = ConsumerProtocolAssignment.TopicPartition(topic="rows", partitions=list(partitions))
    said = ConsumerProtocolAssignment(assigned_partitions=[topic] if partitions else [])
    return struct.pack(">h", 1) + b"".join(encode(said, 1))


async def classic_group(world: World) -> JoinResult:
    """One member of the classic protocol that has both partitions of rows."""
    waiting = world.joining(protocols=subscription())
    world.clock.advance(2 * world.config.group_initial_rebalance_delay_ms)
    joined = waiting.result()
    world.sync(joined, {joined.member_id: assignment(0, 1)})
    assert world.state() is GroupState.STABLE
    return joined


def rejoin(world: World, member_id: str, *owned: int) -> JoinResult:
    answer = world.join(member_id, protocols=subscription(*owned))
    assert isinstance(answer, JoinResult)
    return answer


async def mixed(world: World) -> JoinResult:
    """The same with a member of the consumer protocol, a partition each."""
    joined = await classic_group(world)
    assert world.beat("new", 0).assigned == {}
    assert world.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = rejoin(world, joined.member_id, 0, 1)
    kept = world.sync(joined)
    assert isinstance(kept, SyncResult)
    (index,) = [index for index in (0, 1) if kept.assignment == assignment(index)]
    joined = rejoin(world, joined.member_id, index)
    assert world.heartbeat(joined) is ErrorCode.NONE
    world.sync(joined)
    assert world.beat("new", joined.generation).assigned == world.rows(1 - index)
    assert world.consumer_group().state is ConsumerGroupState.STABLE
    return joined


async def test_t202_members_of_both_protocols_share_a_group_and_its_offsets() -> None:
    world = World()
    world.commit({ROWS_0: 7})
    await mixed(world)
    assert world.committed() == {ROWS_0: 7}


async def test_t202_the_mixed_group_outlives_a_restart() -> None:
    world = World()
    joined = await mixed(world)
    before = world.consumer_group()
    await world.restart()
    assert world.consumer_group().members == before.members
    assert world.heartbeat(joined) is ErrorCode.NONE
    world.clock.advance(SESSION_TIMEOUT_MS)
    assert world.consumer_group().members.keys() == {"new"}, "its session is the one it asked for"


async def test_t202_who_has_not_joined_again_yet_outlives_a_restart() -> None:
    """What the log knew of it as a classic member is gone with the first member of the other protocol."""
    world = World()
    joined = await classic_group(world)
    world.beat("new", 0)
    await world.restart()
    member = world.consumer_group().members[joined.member_id]
    assert (member.epoch, partitions_of(member.assigned)) == (joined.generation, world.rows(0, 1))
    assert world.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
    world.clock.advance(SESSION_TIMEOUT_MS)
    assert world.consumer_group().members.keys() == {"new"}, "its session is the one it asked for"


async def test_t202_who_does_not_come_again_is_fenced() -> None:
    """It is a member by what it said in the classic group, and for as long as it said there."""
    world = World()
    joined = await classic_group(world)
    epoch = world.beat("new", 0).epoch
    world.clock.advance(SESSION_TIMEOUT_MS - 1)
    assert joined.member_id in world.consumer_group().members
    world.clock.advance(1)
    assert world.consumer_group().members.keys() == {"new"}
    assert world.beat("new", epoch).assigned == world.rows(0, 1)


@pytest.mark.parametrize("is_fenced", [False, True])
async def test_t202_without_the_last_new_member_it_is_classic_again(is_fenced: bool) -> None:
    world = World()
    joined = await mixed(world)
    if is_fenced:
        for _ in range(world.config.group_consumer_session_timeout_ms // 5_000):
            world.clock.advance(5_000)
            world.heartbeat(joined)
    else:
        world.beat("new", LEAVE_EPOCH)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
    again = world.joining(joined.member_id, protocols=subscription(0)).result()
    assert again.leader_id == joined.member_id
    world.sync(again, {joined.member_id: assignment(0, 1)})
    await world.restart()
    assert world.state() is GroupState.STABLE
    assert world.group().members[joined.member_id].assignment == assignment(0, 1)


async def test_t202_the_classic_group_leaves_no_pattern_behind() -> None:
    """A start of Kafka would take what is stored of one for a consumer group."""
    world = World()
    await classic_group(world)
    world.beat("new", 0, topics=(), topic_regex="rows")
    assert [value is None for value in world.stored_values(16)] == [False]
    world.beat("new", LEAVE_EPOCH)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert [value is None for value in world.stored_values(16)] == [False, True]


async def test_t202_what_the_consumer_group_waited_for_is_over_when_it_is_classic() -> None:
    """Its members' sessions would end in the middle of the classic group's."""
    world = World()
    joined = await mixed(world)
    world.beat("new", LEAVE_EPOCH)
    again = world.joining(joined.member_id, protocols=subscription(0)).result()
    world.sync(again, {joined.member_id: assignment(0, 1)})
    stored = len(world.stored())
    for _ in range(2 * REBALANCE_TIMEOUT_MS // 5_000):
        world.clock.advance(5_000)
        assert world.heartbeat(again) is ErrorCode.NONE
    assert world.state() is GroupState.STABLE
    assert len(world.stored()) == stored


async def test_t202_the_answer_to_who_left_last_waits_for_the_disk() -> None:
    world = World()
    await mixed(world)
    world.hold_flushes()
    left = world.beat("new", LEAVE_EPOCH)
    assert left.flushed is not None and not left.flushed.done()
    await world.flush()
    assert left.flushed.done()


async def test_t202_each_that_leaves_by_the_classic_protocol_has_its_answer() -> None:
    world = World()
    joined = await mixed(world)
    leaving = [("stranger", None), (joined.member_id, None), ("", "instance")]
    assert world.groups.leave("g", leaving) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert world.consumer_group().members.keys() == {"new"}


async def test_t202_a_classic_client_without_a_member_id_is_given_one_first() -> None:
    world = World()
    await mixed(world)
    before = world.consumer_group().members
    told = world.join(protocols=subscription(), requires_known_member_id=True)
    assert isinstance(told, JoinResult)
    assert told.error is ErrorCode.MEMBER_ID_REQUIRED
    assert world.consumer_group().members == before
    known = world.join(told.member_id, protocols=subscription(), requires_known_member_id=True)
    assert isinstance(known, JoinResult)
    assert (known.error, known.member_id) == (ErrorCode.NONE, told.member_id)


async def test_t202_an_administrator_takes_a_member_out_by_its_instance_alone() -> None:
    world = World()
    await static_and_classic(world)
    wrong, right = ("other", "i"), ("", "i")
    assert world.groups.leave("g", [wrong]) == [ErrorCode.FENCED_INSTANCE_ID]
    assert "new" in world.consumer_group().members
    assert world.groups.leave("g", [right]) == [ErrorCode.NONE]
    assert "new" not in world.group().members


async def test_t202_a_classic_member_needs_room_in_the_consumer_group() -> None:
    world = World(group_consumer_max_size=2)
    world.beat("new", 0)
    joined = rejoin(world, "")
    full = refused(lambda: world.join(protocols=subscription()))
    assert full is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rejoin(world, joined.member_id).error is ErrorCode.NONE, "who is in may stay"


async def test_t202_a_full_group_changes_its_protocol_and_has_no_room_then() -> None:
    """As in Kafka: one that is larger than that could not change at all."""
    world = World(group_consumer_max_size=1)
    await classic_group(world)
    assert refused(lambda: world.beat("new", 0)) is ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_t202_a_classic_group_changes_its_protocol_before_its_first_generation() -> None:
    world = World()
    waiting = world.joining(protocols=subscription())
    world.beat("new", 0)
    assert waiting.result().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(world.consumer_group().members) == 2
    assert world.consumer_group().subscribed_topics() == {"rows"}


async def test_t202_a_classic_member_that_comes_to_a_consumer_group_is_fenced_when_it_is_silent() -> None:
    world = World()
    epoch = world.beat("new", 0).epoch
    joined = rejoin(world, "")
    world.clock.advance(SESSION_TIMEOUT_MS - 1)
    assert joined.member_id in world.consumer_group().members
    world.clock.advance(1)
    assert joined.member_id not in world.consumer_group().members
    assert world.beat("new", epoch).epoch > epoch


@pytest.mark.parametrize("has_synced", [True, False])
async def test_t202_a_classic_member_of_a_consumer_group_syncs_in_time(has_synced: bool) -> None:
    """Within the rebalance timeout that it said last."""
    world = World()
    world.beat("new", 0, topics=["columns"])
    joined = rejoin(world, "")
    joined = rejoin(world, joined.member_id)
    if has_synced:
        world.sync(joined)
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000 - 1):
        world.clock.advance(5_000)
        world.beat("new", world.consumer_group().members["new"].epoch)
        assert world.heartbeat(joined) is ErrorCode.NONE
    world.clock.advance(5_000)
    assert (joined.member_id in world.consumer_group().members) is has_synced


async def test_t202_a_classic_member_that_has_to_join_again_has_its_rebalance_timeout_for_it() -> None:
    world = World()
    world.beat("new", 0, topics=["columns"])
    joined = rejoin(world, "")
    world.sync(joined)
    world.beat("third", 0)
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000):
        assert world.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
        world.clock.advance(5_000)
        for member_id in ("new", "third"):
            world.beat(member_id, world.consumer_group().members[member_id].epoch)
    assert world.consumer_group().members.keys() == {"new", "third"}


async def test_t202_the_protocol_of_a_classic_member_is_the_first_that_it_named() -> None:
    world = World()
    joined = await mixed(world)
    two = [*subscription(), ("roundrobin", subscription()[0][1])]
    again = world.join(joined.member_id, protocols=two)
    assert isinstance(again, JoinResult)
    assert again.protocol_name == "range"
    for name in ("roundrobin", "sticky"):
        wrong = dataclasses.replace(again, protocol_name=name)
        assert refused(lambda wrong=wrong: world.sync(wrong)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = dataclasses.replace(again, protocol_type="connect")
    assert refused(lambda: world.sync(other)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert isinstance(world.sync(again), SyncResult)


async def test_t202_who_waits_in_the_classic_group_joins_the_new_one() -> None:
    world = World()
    joined = await classic_group(world)
    waiting = world.joining(protocols=subscription())
    world.beat("new", 0)
    assert waiting.result().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.consumer_group().members.keys() >= {joined.member_id, "new"}


async def test_t202_who_waits_for_an_assignment_of_the_classic_group_joins_the_new_one() -> None:
    world = World()
    waiting = [world.joining(protocols=subscription()) for _ in range(2)]
    world.clock.advance(2 * world.config.group_initial_rebalance_delay_ms)
    syncing = world.sync(waiting[1].result())
    assert isinstance(syncing, asyncio.Future)
    world.beat("new", 0)
    assert syncing.result().error is ErrorCode.REBALANCE_IN_PROGRESS


async def test_t202_a_classic_member_that_does_not_join_or_sync_in_time_is_fenced() -> None:
    world = World()
    joined = await mixed(world)
    world.beat("third", 0)
    assert world.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000):
        world.beat("new", world.consumer_group().members["new"].epoch, owned={})
        world.beat("third", world.consumer_group().members["third"].epoch)
        world.clock.advance(5_000)
        if joined.member_id in world.consumer_group().members:
            world.heartbeat(joined)
    assert joined.member_id not in world.consumer_group().members
    world = World()
    joined = await mixed(world)
    world.beat("third", 0)
    joined = rejoin(world, joined.member_id)
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000):
        world.beat("third", world.consumer_group().members["third"].epoch)
        world.beat("new", world.consumer_group().members["new"].epoch, owned={})
        assert world.heartbeat(joined) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        world.clock.advance(5_000)
    assert joined.member_id not in world.consumer_group().members


async def test_t202_a_static_member_comes_back_under_the_other_protocol_and_back() -> None:
    world = World()
    waiting = world.joining(protocols=subscription(), group_instance_id="i")
    world.clock.advance(2 * world.config.group_initial_rebalance_delay_ms)
    joined = waiting.result()
    world.sync(joined, {joined.member_id: assignment(0, 1)}, group_instance_id="i")
    upgraded = world.beat("new", 0, instance_id="i")
    assert upgraded.assigned == world.rows(0, 1)
    assert upgraded.epoch == joined.generation, "there is nothing to divide anew"
    assert world.consumer_group().members.keys() == {"new"}
    assert world.beat("new", STATIC_LEAVE_EPOCH, instance_id="i").flushed is None
    back = world.join(protocols=subscription(), group_instance_id="i")
    assert isinstance(back, JoinResult) and back.error is ErrorCode.NONE
    assert list(world.group().static_members) == ["i"]
    assert world.state() is GroupState.STABLE, "it has what it had, and nobody has to join again"
    synced = world.sync(back, group_instance_id="i")
    assert isinstance(synced, SyncResult) and synced.assignment == assignment(0, 1)
    assert world.heartbeat(back, "i") is ErrorCode.NONE
    await world.restart()
    assert world.heartbeat(back, "i") is ErrorCode.NONE
    assert world.group().members[back.member_id].assignment == assignment(0, 1)


async def test_t202_what_a_classic_leader_left_undivided_is_divided_when_the_group_changes() -> None:
    world = World()
    waiting = world.joining(protocols=subscription(), group_instance_id="i")
    world.clock.advance(2 * world.config.group_initial_rebalance_delay_ms)
    joined = waiting.result()
    world.sync(joined, {joined.member_id: assignment(0, 1)}, group_instance_id="i")
    world.topics.create("rows", 3, {})
    upgraded = world.beat("new", 0, instance_id="i")
    assert (upgraded.epoch, upgraded.assigned) == (joined.generation + 1, world.rows(0, 1, 2))


async def static_and_classic(world: World) -> JoinResult:
    """A static member of the consumer protocol and one of the classic one, a partition each."""
    world.beat("new", 0, instance_id="i")
    joined = rejoin(world, "")
    kept = world.beat("new", 2, instance_id="i", owned=world.rows(0, 1)).assigned
    assert kept is not None and len(kept) == 1
    assert world.beat("new", 2, instance_id="i", owned=kept).epoch == 3
    joined = rejoin(world, joined.member_id)
    assert world.consumer_group().state is ConsumerGroupState.STABLE
    return joined


async def test_t202_who_takes_the_last_new_members_place_disturbs_nobody() -> None:
    world = World()
    joined = await static_and_classic(world)
    world.beat("new", STATIC_LEAVE_EPOCH, instance_id="i")
    back = world.join(protocols=subscription(), group_instance_id="i")
    assert isinstance(back, JoinResult) and back.generation == joined.generation
    assert world.state() is GroupState.STABLE
    synced = [world.sync(joined), world.sync(back, group_instance_id="i")]
    assert {one.assignment for one in synced if isinstance(one, SyncResult)} == {
        assignment(0), assignment(1),
    }  # fmt: skip
    assert world.heartbeat(joined) is world.heartbeat(back, "i") is ErrorCode.NONE


async def test_t202_a_classic_group_that_goes_on_has_its_offsets_sessions_and_subscriptions() -> None:
    world = World()
    columns = TopicPartition("columns", 0)
    world.commit({ROWS_0: 7, columns: 7})
    joined = await static_and_classic(world)
    world.beat("new", STATIC_LEAVE_EPOCH, instance_id="i")
    back = world.join(protocols=subscription(), group_instance_id="i")
    assert isinstance(back, JoinResult) and world.state() is GroupState.STABLE
    assert world.groups.delete_offsets("g", [ROWS_0, columns]).errors == {
        ROWS_0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        columns: ErrorCode.NONE,
    }
    assert world.committed() == {ROWS_0: 7}
    world.clock.advance(SESSION_TIMEOUT_MS - 1)
    assert world.heartbeat(back, "i") is ErrorCode.NONE
    world.clock.advance(1)
    assert world.group().members.keys() == {back.member_id}
    assert joined.member_id != back.member_id


async def test_t202_who_leaves_with_the_last_new_member_is_not_in_the_classic_group() -> None:
    world = World()
    joined = await mixed(world)
    second = rejoin(world, "")
    assert world.groups.leave("g", [("new", None), (second.member_id, None)]) == [ErrorCode.NONE] * 2
    assert world.group().members.keys() == {joined.member_id}


@pytest.mark.parametrize("reason", ["another subscription", "partitions that were waited for"])
async def test_t202_who_takes_its_place_and_changes_what_others_have_lets_them_divide_anew(
    reason: str,
) -> None:
    world = World()
    protocols = subscription()
    if reason == "another subscription":
        joined = await static_and_classic(world)
        protocols = subscription(topic="columns")
    else:
        world.beat("new", 0, instance_id="i")
        joined = rejoin(world, "")
        world.sync(joined)
    world.beat("new", STATIC_LEAVE_EPOCH, instance_id="i")
    back = world.join(protocols=protocols, group_instance_id="i")
    assert isinstance(back, JoinResult) and back.error is ErrorCode.NONE
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS, "in the generation that it knows"


async def test_t202_who_was_alone_and_comes_back_for_something_else_divides_anew() -> None:
    world = World()
    world.beat("new", 0, instance_id="i")
    world.beat("new", STATIC_LEAVE_EPOCH, instance_id="i")
    back = world.join(protocols=subscription(topic="columns"), group_instance_id="i")
    assert isinstance(back, JoinResult) and back.error is ErrorCode.NONE
    assert world.state() is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("policy", "may_upgrade", "may_downgrade"),
    [("bidirectional", True, True), ("upgrade", True, False), ("downgrade", False, True)],
)
async def test_t202_the_migration_policy_says_which_way_is_open(
    policy: str, may_upgrade: bool, may_downgrade: bool
) -> None:
    world = World(group_consumer_migration_policy=policy)
    joined = await classic_group(world)
    if may_upgrade:
        world.beat("new", 0)
    else:
        assert refused(lambda: world.beat("new", 0)) is ErrorCode.GROUP_ID_NOT_FOUND
        assert world.heartbeat(joined) is ErrorCode.NONE
        world.groups.leave("g", [(joined.member_id, None)])
        world.beat("new", 0)
        answer = world.join(protocols=subscription())
        assert isinstance(answer, JoinResult) and answer.error is ErrorCode.NONE
    world.beat("new", LEAVE_EPOCH)
    assert isinstance(world.groups.find("g"), Group if may_downgrade else ConsumerGroup)


async def test_t202_without_migration_a_group_keeps_its_protocol_while_it_has_members() -> None:
    world = World(group_consumer_migration_policy="disabled")
    joined = await classic_group(world)
    assert refused(lambda: world.beat("new", 0)) is ErrorCode.GROUP_ID_NOT_FOUND
    world.groups.leave("g", [(joined.member_id, None)])
    world.beat("new", 0)
    code = refused(lambda: world.join(protocols=subscription()))
    assert code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.beat("new", LEAVE_EPOCH)
    assert isinstance(world.join(protocols=subscription()), asyncio.Future)


async def test_t202_a_group_that_cannot_be_understood_stays_classic() -> None:
    world = World()
    broken = [("range", b"\x00\x01\x7f\xff\xff\xff")]
    waiting = world.joining(protocols=broken)
    world.clock.advance(2 * world.config.group_initial_rebalance_delay_ms)
    joined = waiting.result()
    world.sync(joined, {joined.member_id: b"?"})
    assert refused(lambda: world.beat("new", 0)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat(joined) is ErrorCode.NONE
    world.beat("m", 0, group_id="other")
    code = refused(lambda: world.join(protocols=broken, group_id="other"))
    assert code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_t202_a_group_that_is_no_consumers_stays_classic() -> None:
    world = World()
    waiting = world.joining(protocols=RANGE, protocol_type="connect")
    world.clock.advance(2 * world.config.group_initial_rebalance_delay_ms)
    assert waiting.result().error is ErrorCode.NONE
    assert refused(lambda: world.beat("new", 0)) is ErrorCode.GROUP_ID_NOT_FOUND
    world.beat("m", 0, group_id="other")
    for wrong in ({"protocol_type": "connect"}, {"protocols": []}):
        told = {"protocols": subscription(), **wrong}
        code = refused(lambda told=told: world.join(group_id="other", **told))
        assert code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_t202_a_classic_member_joins_again_once_there_is_something_new_for_it() -> None:
    """As long as nobody has made targets of an epoch it would be told what it knows."""
    world = World()
    joined = await mixed(world)
    world.beat("third", 0, topics=["columns"])
    assert world.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
    kept = partitions_of(world.consumer_group().members[joined.member_id].assigned)
    joined = rejoin(world, joined.member_id, *(index for indexes in kept.values() for index in indexes))
    world.beat("third", LEAVE_EPOCH)
    group = world.consumer_group()
    assert group.epoch > group.target_epoch
    assert world.heartbeat(joined) is ErrorCode.NONE
    assert isinstance(world.sync(joined), SyncResult)
    world.beat("new", group.members["new"].epoch)
    assert group.epoch == group.target_epoch
    assert world.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
    assert refused(lambda: world.sync(joined)) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_t202_a_classic_member_that_waits_joins_again_when_that_is_free() -> None:
    """Sooner it would join again and again; later what it waits for would be nobody's."""
    world = World()
    world.beat("new", 0)
    joined = rejoin(world, "")
    assert isinstance(world.sync(joined), SyncResult)
    assert world.heartbeat(joined) is ErrorCode.NONE
    kept = world.beat("new", 2, owned=world.rows(0, 1)).assigned
    assert kept is not None
    assert world.heartbeat(joined) is ErrorCode.NONE, "it is not given back yet"
    world.beat("new", 2, owned=kept)
    assert world.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = rejoin(world, joined.member_id)
    assert world.heartbeat(joined) is ErrorCode.NONE
    assert world.consumer_group().state is ConsumerGroupState.STABLE


async def test_t202_classic_members_among_themselves_do_not_wait_for_a_heartbeat_of_others() -> None:
    """Apache Kafka's do: what a member had that left would be nobody's."""
    world = World(group_consumer_migration_policy="upgrade")
    world.beat("new", 0)
    first, second = rejoin(world, ""), rejoin(world, "")
    world.beat("new", LEAVE_EPOCH)
    first = rejoin(world, first.member_id)
    second = rejoin(world, second.member_id)
    world.groups.leave("g", [(second.member_id, None)])
    assert world.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    first = rejoin(world, first.member_id)
    synced = world.sync(first)
    assert isinstance(synced, SyncResult) and synced.assignment == assignment(0, 1)


async def test_t202_classic_members_among_themselves_wait_until_the_group_may_be_divided_anew() -> None:
    """They would join again and again."""
    interval_ms = 5_000
    world = World(
        group_consumer_migration_policy="upgrade", group_consumer_assignment_interval_ms=interval_ms
    )
    world.beat("new", 0)
    first, second = rejoin(world, ""), rejoin(world, "")
    world.groups.leave("g", [("new", None), (second.member_id, None)])
    world.sync(first)
    assert world.heartbeat(first) is ErrorCode.NONE
    world.clock.advance(interval_ms)
    assert world.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    first = rejoin(world, first.member_id)
    synced = world.sync(first)
    assert isinstance(synced, SyncResult) and synced.assignment == assignment(0, 1)


@pytest.mark.parametrize("instance", [None, "i"])
async def test_t202_a_classic_member_keeps_a_protocol_that_it_had(instance: str | None) -> None:
    """Also who takes a static member's place; one that the others do not share is none for it either."""
    world = World()
    world.beat("new", 0)
    joined = world.join(protocols=subscription(), group_instance_id=instance)
    assert isinstance(joined, JoinResult)
    (_, said) = subscription()[0]
    member_id = "" if instance else joined.member_id

    def join_by(*names: str) -> JoinResult | asyncio.Future[JoinResult]:
        protocols = [(name, said) for name in names]
        return world.join(member_id, protocols=protocols, group_instance_id=instance)

    assert refused(lambda: join_by("other")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.consumer_group().members.keys() == {"new", joined.member_id}
    again = join_by("other", "range")
    assert isinstance(again, JoinResult) and again.protocol_name == "other"
    member_id = "" if instance else again.member_id
    assert isinstance(join_by("other"), JoinResult), "it said so before"


async def test_t202_a_classic_members_join_waits_for_the_disk() -> None:
    world = World()
    world.beat("new", 0)
    world.hold_flushes()
    waiting = world.joining(protocols=subscription())
    assert not waiting.done()
    await world.flush()
    assert waiting.result().generation == 3
    waiting = world.joining(waiting.result().member_id, protocols=[*subscription(), ("other", b"")])
    await world.flush(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk"))
    assert waiting.result().error is ErrorCode.NOT_COORDINATOR


async def test_t202_empty_groups_change_whatever_the_policy_is_and_leave_one_record_behind() -> None:
    world = World(group_consumer_migration_policy="disabled")
    joined = await classic_group(world)
    world.groups.leave("g", [(joined.member_id, None)])
    world.commit({ROWS_0: 5})
    world.beat("new", 0)
    await world.restart()
    assert world.consumer_group().members.keys() == {"new"}
    world.beat("new", LEAVE_EPOCH)
    waiting = world.joining(protocols=subscription())
    world.clock.advance(2 * world.config.group_initial_rebalance_delay_ms)
    world.sync(waiting.result(), {waiting.result().member_id: assignment(0)})
    assert world.committed() == {ROWS_0: 5}
    await world.restart()
    assert world.state() is GroupState.STABLE
    assert world.committed() == {ROWS_0: 5}


async def test_t202_an_empty_group_is_classic_though_who_made_it_so_is_refused() -> None:
    """As in Kafka, which changes the group before it looks at who comes."""
    world = World()
    world.beat("new", 0)
    world.commit({ROWS_0: 5}, by=JoinResult("new", generation=world.consumer_group().epoch))
    world.beat("new", LEAVE_EPOCH)
    assert refused(lambda: world.join(protocols=[])) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state() is GroupState.EMPTY
    assert world.committed() == {ROWS_0: 5}


async def test_t202_an_empty_group_that_cannot_change_yet_is_joined_again() -> None:
    """A client that is told of the disk gives up."""
    world = World()
    world.beat("new", 0)
    world.beat("new", LEAVE_EPOCH)
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    assert refused(lambda: world.join(protocols=subscription())) is ErrorCode.NOT_COORDINATOR
    world.consumer_group()
    world.refuse_appends(None)
    world.joining(protocols=subscription())
    assert world.state() is GroupState.PREPARING_REBALANCE
