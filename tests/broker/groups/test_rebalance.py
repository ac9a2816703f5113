"""Goal: a rebalance ends for everybody who takes part and removes exactly who does not (T189, T190).
Method: a coordinator over memory partitions and a manual clock; then random clients at random moments."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.membership import JoinResult, SyncResult
from broker.groups.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from broker.groups.state import GroupState
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.world import (
    RANGE,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    World,
    refused,
    settle,
)


async def test_t189_a_silent_member_expires_and_the_others_are_told() -> None:
    world = World()
    leader, follower = await world.form(None, None)
    world.clock.advance(SESSION_TIMEOUT_MS - 1)
    assert world.heartbeat(leader) is ErrorCode.NONE
    world.clock.advance(1)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert refused(lambda: world.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID
    rejoined = world.joining(leader.member_id)
    assert rejoined.result().generation == 2
    assert world.heartbeat(rejoined.result()) is ErrorCode.NONE
    assert refused(lambda: world.heartbeat(leader)) is ErrorCode.ILLEGAL_GENERATION


async def test_t189_who_does_not_rejoin_in_time_is_removed() -> None:
    world = World()
    leader, follower = await world.form(None, None)
    rejoined = world.joining(leader.member_id)
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000):
        assert world.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
        world.clock.advance(5_000)
    assert [member_id for member_id, _, _ in rejoined.result().members] == [leader.member_id]
    assert refused(lambda: world.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_t189_a_waiting_member_does_not_expire_while_it_waits() -> None:
    world = World()
    leader, follower = await world.form(None, None)
    rejoined = world.joining(leader.member_id)
    for _ in range(5):
        world.heartbeat(follower)
        world.clock.advance(SESSION_TIMEOUT_MS - 1)
    assert leader.member_id in world.group().members
    assert not rejoined.done()


async def test_t189_a_new_member_that_asks_again_still_has_the_long_deadline() -> None:
    world = World()
    leader, _ = await world.form(None, None)
    world.joining()
    (new_id,) = [member.member_id for member in world.group().members.values() if member.is_new]
    again = world.joining(new_id)
    for _ in range(3):
        for member in list(world.group().members.values()):
            if not member.is_new:
                world.groups.heartbeat("g", leader.generation, member.member_id, None)
        world.clock.advance(SESSION_TIMEOUT_MS - 1)
    assert not again.done()
    assert new_id in world.group().members


async def test_t189_a_new_member_that_hung_up_before_its_first_generation_expires_late() -> None:
    world = World()
    leader, _ = await world.form(None, None)
    world.joining(rebalance_timeout_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        assert len(world.group().members) == 3
        for member in list(world.group().members.values()):
            if not member.is_new:
                world.groups.heartbeat("g", leader.generation, member.member_id, None)
        world.clock.advance(5_000)
    assert len(world.group().members) == 2


async def test_t189_who_does_not_sync_in_time_is_removed() -> None:
    world = World()
    waiters = [world.joining(), world.joining()]
    world.clock.advance(200)
    first, second = [waiter.result() for waiter in waiters]
    syncing = world.sync(second)
    assert isinstance(syncing, asyncio.Future)
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000):
        world.heartbeat(first) if first.member_id in world.group().members else None
        world.clock.advance(5_000)
    assert syncing.result().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(world.group().members) == [second.member_id]


async def test_t189_a_sync_in_the_wrong_moment_or_with_the_wrong_words() -> None:
    world = World()
    leader, follower = await world.form(None, None)
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(lambda: world.sync(leader, protocol_type="connect")) is inconsistent
    assert refused(lambda: world.sync(leader, protocol_name="sticky")) is inconsistent
    assert refused(lambda: world.sync(leader, generation=7)) is ErrorCode.ILLEGAL_GENERATION
    assert refused(lambda: world.sync(leader, member_id="x")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(lambda: world.sync(leader, group_id="x")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(lambda: world.sync(leader, group_id="")) is ErrorCode.INVALID_GROUP_ID
    world.joining(follower.member_id, protocols=[("range", b"new")])
    assert refused(lambda: world.sync(leader)) is ErrorCode.REBALANCE_IN_PROGRESS


async def test_t189_heartbeats_of_a_group_that_is_empty_or_not_there() -> None:
    world = World()
    (leader,) = await world.form(None)
    assert world.groups.leave("g", [(leader.member_id, None)]) == [ErrorCode.NONE]
    assert world.state() is GroupState.EMPTY
    assert refused(lambda: world.heartbeat(leader)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(lambda: world.heartbeat(leader, group_id="x")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(lambda: world.heartbeat(leader, group_id="")) is ErrorCode.INVALID_GROUP_ID


async def test_followers_get_their_assignment_only_when_it_is_durable() -> None:
    world = World()
    waiters = [world.joining(), world.joining()]
    world.clock.advance(200)
    leader, follower = [waiter.result() for waiter in waiters]
    world.hold_flushes()
    waiting = world.sync(follower)
    leading = world.sync(leader, {follower.member_id: b"f", "a stranger": b"s"})
    await settle()
    assert isinstance(waiting, asyncio.Future)
    assert isinstance(leading, asyncio.Future)
    assert not waiting.done()
    await world.flush()
    assert waiting.result() == SyncResult(ErrorCode.NONE, "consumer", "range", b"f")
    assert leading.result().assignment == b""
    late = world.sync(follower)
    assert isinstance(late, SyncResult)
    assert late.assignment == b"f"


async def test_a_sync_that_is_repeated_while_waiting_answers_the_older_one() -> None:
    """Apache Kafka forgets the older one: whoever shares its connection waits behind it."""
    world = World()
    waiters = [world.joining(), world.joining()]
    world.clock.advance(200)
    leader, follower = [waiter.result() for waiter in waiters]
    older, newer = world.sync(follower), world.sync(follower)
    assert isinstance(older, asyncio.Future) and isinstance(newer, asyncio.Future)
    assert older.result().error is ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(leader, {follower.member_id: b"f"})
    await settle()
    assert newer.result().assignment == b"f"


@pytest.mark.parametrize("joins", [True, False])
async def test_who_asks_again_has_to_send_heartbeats_all_the_same(joins: bool) -> None:
    """As in Kafka, where no answer that is there already is a sign of life."""
    world = World()
    leader, follower = await world.form(None, None)
    world.clock.advance(SESSION_TIMEOUT_MS // 2)
    world.heartbeat(leader)
    again = world.join(follower.member_id) if joins else world.sync(follower)
    assert not isinstance(again, asyncio.Future)
    world.clock.advance(SESSION_TIMEOUT_MS // 2)
    assert world.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert refused(lambda: world.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_assignment_that_cannot_be_stored_starts_over(at_once: bool) -> None:
    world = World()
    (leader,) = await world.form(None)
    again = world.joining(leader.member_id).result()
    if at_once:
        world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    else:
        world.hold_flushes()
    syncing = world.sync(again, {})
    await world.flush(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert isinstance(syncing, asyncio.Future)
    assert syncing.result().error is ErrorCode.NOT_COORDINATOR
    assert world.state() is GroupState.PREPARING_REBALANCE
    world.refuse_appends(None)
    third = world.joining(leader.member_id).result()
    assert third.generation == 3


async def test_an_assignment_of_a_generation_that_is_gone_reaches_nobody() -> None:
    world = World()
    (leader,) = await world.form(None)
    again = world.joining(leader.member_id).result()
    world.hold_flushes()
    syncing = world.sync(again, {leader.member_id: b"old"})
    newcomer = world.joining()
    assert isinstance(syncing, asyncio.Future)
    assert syncing.result().error is ErrorCode.REBALANCE_IN_PROGRESS
    await world.flush()
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.group().members[leader.member_id].assignment == b""
    world.joining(leader.member_id)
    assert newcomer.result().generation == 3


async def test_an_assignment_of_the_generation_before_reaches_nobody() -> None:
    world = World()
    (leader,) = await world.form(None)
    again = world.joining(leader.member_id).result()
    world.hold_flushes()
    world.sync(again, {leader.member_id: b"old"})
    newcomer = world.joining()
    third = world.joining(leader.member_id).result()
    waiting = world.sync(newcomer.result())
    await world.flush()
    assert world.state() is GroupState.COMPLETING_REBALANCE
    world.sync(third, {newcomer.result().member_id: b"new"})
    await world.flush()
    assert isinstance(waiting, asyncio.Future) and waiting.result().assignment == b"new"


async def test_a_member_that_leaves_while_all_wait_is_answered_and_the_rest_goes_on() -> None:
    world = World()
    waiters = [world.joining(), world.joining()]
    world.clock.advance(200)
    leader, follower = [waiter.result() for waiter in waiters]
    syncing = world.sync(follower)
    assert world.groups.leave("g", [(follower.member_id, None)]) == [ErrorCode.NONE]
    assert isinstance(syncing, asyncio.Future)
    assert syncing.result().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.joining(leader.member_id).result().generation == 2


async def test_leaving_in_a_batch_by_id_by_instance_and_wrongly() -> None:
    world = World()
    await world.form("a", "b", None)
    by_instance = {member.group_instance_id: member for member in world.group().members.values()}
    answers = world.groups.leave(
        "g", [("", "a"), ("wrong", "b"), ("", "c"), ("stranger", None), (by_instance[None].member_id, None)]
    )
    assert answers == [
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert list(world.group().static_members) == ["b"]
    assert refused(lambda: world.groups.leave("x", [("m", None)])) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(lambda: world.groups.leave("", [("m", None)])) is ErrorCode.INVALID_GROUP_ID


async def test_leaving_that_removes_nobody_does_not_rebalance() -> None:
    world = World()
    await world.form(None)
    assert world.groups.leave("g", [("stranger", None)]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.state() is GroupState.STABLE


async def test_the_last_member_gone_leaves_an_empty_generation_that_is_stored() -> None:
    world = World()
    (leader,) = await world.form(None)
    before = len(world.stored())
    world.groups.leave("g", [(leader.member_id, None)])
    group = world.group()
    assert (group.state, group.generation, group.protocol_name) == (GroupState.EMPTY, 2, None)
    assert len(world.stored()) == before + 1
    again = world.joining()
    world.clock.advance(100)
    assert again.result().generation == 3


async def test_all_left_during_the_first_delay() -> None:
    world = World()
    waiter = world.joining()
    (member_id,) = world.group().members
    world.groups.leave("g", [(member_id, None)])
    assert waiter.result().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.state() is GroupState.EMPTY
    world.clock.advance(1000)
    assert world.state() is GroupState.EMPTY


async def test_the_leader_that_does_not_rejoin_is_replaced_by_one_that_did() -> None:
    world = World()
    leader, follower = await world.form(None, None)
    rejoined = world.joining(follower.member_id, protocols=[("range", b"new")])
    world.clock.advance(REBALANCE_TIMEOUT_MS)
    assert rejoined.result().leader_id == follower.member_id
    assert leader.member_id not in world.group().members


async def test_t188_a_static_leader_that_does_not_join_again_is_replaced_by_who_did() -> None:
    world = World()
    leader, follower = await world.form("a", "b")
    assert world.group().static_members["a"] == leader.member_id
    rejoined = world.joining(follower.member_id, group_instance_id="b", protocols=[("range", b"new")])
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000):
        assert not rejoined.done()
        world.heartbeat(leader, "a")
        world.clock.advance(5_000)
    assert rejoined.result().leader_id == follower.member_id
    assert len(rejoined.result().members) == 2


async def test_t188_absent_static_members_keep_their_place_until_their_session_ends() -> None:
    world = World()
    leader, follower = await world.form("a", "b")
    instance = world.group().members[leader.member_id].group_instance_id
    long_session_ms = 3 * REBALANCE_TIMEOUT_MS
    world.group().members[follower.member_id].session_timeout_ms = long_session_ms
    world.groups.heartbeat("g", 1, follower.member_id, other(instance))
    rejoined = world.joining(leader.member_id, group_instance_id=instance)
    world.clock.advance(REBALANCE_TIMEOUT_MS)
    assert len(rejoined.result().members) == 2
    await world.assign([rejoined.result()])
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000 + 1):
        world.heartbeat(rejoined.result(), instance)
        world.clock.advance(5_000)
    assert follower.member_id in world.group().members
    for _ in range(long_session_ms // 5_000):
        world.groups.heartbeat("g", world.group().generation, leader.member_id, instance)
        world.clock.advance(5_000)
    assert follower.member_id not in world.group().members


async def test_t188_a_group_of_absent_static_members_waits_for_them() -> None:
    world = World()
    await world.form("a", "b")
    group = world.group()
    for member in group.members.values():
        member.session_timeout_ms = 10 * REBALANCE_TIMEOUT_MS
        world.groups.heartbeat("g", 1, member.member_id, member.group_instance_id)
    newcomer = world.joining()
    (joined,) = [member.member_id for member in group.members.values() if member.is_awaiting_join]
    world.groups.leave("g", [(joined, None)])
    world.clock.advance(3 * REBALANCE_TIMEOUT_MS)
    assert newcomer.result().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(group.members) == 2
    assert group.state is GroupState.PREPARING_REBALANCE
    (back, _) = [world.joining(group_instance_id=instance) for instance in ("a", "b")]
    assert back.result().generation == 2


def other(instance: str | None) -> str:
    return "b" if instance == "a" else "a"


async def test_t190_three_groups_rebalance_side_by_side() -> None:
    world = World()
    names = ["etl-1", "etl-2", "etl-3"]
    waiters = {name: [world.joining(group_id=name) for _ in range(10)] for name in names}
    world.clock.advance(200)
    for name in names:
        results = [waiter.result() for waiter in waiters[name]]
        assert {result.generation for result in results} == {1}
        answers = await world.assign(results, group_id=name)
        assert sorted(answer.assignment.decode() for answer in answers) == sorted(
            result.member_id for result in results
        )
    for name in names:
        assert len(world.group(name).members) == 10


async def test_stopping_answers_everybody_who_waits() -> None:
    world = World()
    joined = [world.joining(group_id="other") for _ in range(2)]
    world.clock.advance(200)
    syncing = world.sync(joined[1].result(), group_id="other")
    waiter = world.joining()
    await world.groups.stop()
    assert waiter.result().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert isinstance(syncing, asyncio.Future)
    assert syncing.result().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refused(world.join) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_client_that_hung_up_does_not_disturb_the_others() -> None:
    world = World()
    first, second = world.joining(), world.joining()
    first.cancel()
    world.clock.advance(200)
    assert second.result().error is ErrorCode.NONE


ACTIONS = (
    "join",
    "static",
    "rejoin",
    "change",
    "sync",
    "heartbeat",
    "leave",
    "wait",
    "flush",
    "fail",
    "commit",
)


@settings(max_examples=120)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5)), max_size=60))
def test_whatever_clients_do_the_group_stays_consistent(steps: list[tuple[str, int]]) -> None:
    """No order of requests leads to an impossible state, and who waits is always counted (the state table
    raises on anything it does not know)."""
    asyncio.run(play(steps))


async def play(steps: list[tuple[str, int]]) -> None:
    world = World()
    world.hold_flushes()
    seen: list[JoinResult] = []
    waiting: list[asyncio.Future[JoinResult]] = []
    for action, number in steps:
        try:
            answer = act(world, seen, action, number)
        except KafkaError:
            answer = None
        if action in ("flush", "fail"):
            await world.flush(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) if action == "fail" else None)
        if isinstance(answer, JoinResult):
            seen.append(answer)
        elif isinstance(answer, asyncio.Future) and action in ("join", "static", "rejoin", "change"):
            waiting.append(answer)
        seen += [waiter.result() for waiter in waiting if waiter.done()]
        waiting = [waiter for waiter in waiting if not waiter.done()]
        check(world)
    await world.flush()
    world.clock.advance(10 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    await world.flush()
    assert all(waiter.done() for waiter in waiting)
    group = world.groups.find("g")
    assert group is None or (group.state is GroupState.EMPTY and not group.members)
    await world.groups.stop()


def act(world: World, seen: list[JoinResult], action: str, number: int) -> object:
    known = seen[-1 - number % len(seen)] if seen else JoinResult("nobody", generation=number)
    match action:
        case "join":
            return world.join(requires_known_member_id=number % 2 == 0)
        case "static":
            return world.join(group_instance_id=f"i{number % 2}")
        case "rejoin":
            return world.join(known.member_id)
        case "change":
            return world.join(known.member_id, protocols=[*RANGE, ("sticky", bytes([number]))])
        case "sync":
            return world.sync(known, {known.member_id: b"a"}, protocol_type=None, protocol_name=None)
        case "heartbeat":
            return world.heartbeat(known)
        case "leave":
            return world.groups.leave("g", [(known.member_id, None)])
        case "wait":
            return world.clock.advance((50, 200, 5_000, 10_000, 60_000, 300_000)[number])
        case "commit":
            return world.commit({}, by=known)
    return None


def check(world: World) -> None:
    group = world.groups.find("g")
    if group is None:
        return
    members = group.members.values()
    assert group.awaiting_join_count == sum(member.is_awaiting_join for member in members)
    assert set(group.static_members.values()) <= set(group.members)
    assert group.pending_sync <= set(group.members)
    assert not (set(group.pending_members) & set(group.members))
    assert (group.leader_id is None) == (not group.members)
    assert group.leader_id is None or group.leader_id in group.members
    if group.state is GroupState.EMPTY:
        assert not group.members
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        assert not any(member.is_awaiting_join for member in members)
        assert group.protocol_name is not None
    if group.state is GroupState.STABLE:
        assert not any(member.is_awaiting_sync for member in members)
