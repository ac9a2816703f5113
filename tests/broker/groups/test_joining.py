"""Goal: who may join a group, under which id, and when that disturbs the others (T185-T188).
Method: a coordinator over memory partitions and a manual clock; the test is every client."""

from __future__ import annotations

import asyncio

import pytest

from broker.groups.membership import JoinResult, SyncResult
from broker.groups.state import GroupState
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.world import RANGE, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, World, refused, settle


def answered(answer: JoinResult | asyncio.Future[JoinResult]) -> JoinResult:
    assert isinstance(answer, JoinResult)
    return answer


async def test_t185_a_new_member_gets_an_id_and_comes_back_with_it() -> None:
    world = World()
    first = answered(world.join(requires_known_member_id=True))
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    assert world.state() is GroupState.EMPTY
    second = world.joining(first.member_id, requires_known_member_id=True)
    world.clock.advance(100)
    assert second.result().member_id == first.member_id
    assert second.result().error is ErrorCode.NONE


async def test_t185_an_id_that_is_not_used_expires() -> None:
    world = World()
    first = answered(world.join(requires_known_member_id=True))
    world.clock.advance(SESSION_TIMEOUT_MS)
    assert refused(lambda: world.join(first.member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_pending_member_holds_the_join_phase_until_it_joins_or_expires() -> None:
    world = World()
    (leader,) = await world.form(None)
    pending = answered(world.join(requires_known_member_id=True))
    rejoined = world.joining(leader.member_id)
    assert not rejoined.done()
    joined = world.joining(pending.member_id)
    assert rejoined.done()
    assert joined.result().generation == rejoined.result().generation == 2


async def test_a_pending_member_that_does_not_come_back_does_not_hold_the_join_phase() -> None:
    world = World()
    (leader,) = await world.form(None)
    world.join(requires_known_member_id=True)
    rejoined = world.joining(leader.member_id)
    world.clock.advance(SESSION_TIMEOUT_MS - 1)
    assert not rejoined.done()
    world.clock.advance(1)
    assert rejoined.result().generation == 2


async def test_a_pending_member_that_leaves_does_not_hold_the_join_phase() -> None:
    world = World()
    (leader,) = await world.form(None)
    pending = answered(world.join(requires_known_member_id=True))
    rejoined = world.joining(leader.member_id)
    assert world.groups.leave("g", [(pending.member_id, None)]) == [ErrorCode.NONE]
    assert rejoined.done()


async def test_t186_a_group_of_one_waits_the_initial_delay_and_no_longer() -> None:
    world = World()
    assert world.config.group_initial_rebalance_delay_ms == 100
    waiter = world.joining()
    world.clock.advance(99)
    assert not waiter.done()
    world.clock.advance(1)
    result = waiter.result()
    assert result.generation == 1
    assert result.leader_id == result.member_id
    assert result.members == [(result.member_id, None, RANGE[0][1])]
    assert world.state() is GroupState.COMPLETING_REBALANCE


async def test_t186_the_initial_delay_is_prolonged_while_members_arrive() -> None:
    world = World()
    first = world.joining()
    world.clock.advance(60)
    second = world.joining()
    world.clock.advance(60)
    assert not first.done()
    world.clock.advance(80)
    assert first.result().generation == second.result().generation == 1
    assert len(first.result().members) == 2
    assert second.result().members == []


async def test_t186_the_prolonged_delay_ends_with_the_rebalance_timeout() -> None:
    world = World()
    first = world.joining(rebalance_timeout_ms=250)
    for _ in range(4):
        world.clock.advance(60)
        world.joining(rebalance_timeout_ms=250)
    assert not first.done()
    world.clock.advance(10)
    assert first.done()


async def test_t186_a_group_that_is_empty_again_waits_no_longer_than_the_first_time() -> None:
    world = World()
    waiting = [world.joining(rebalance_timeout_ms=100)]
    world.clock.advance(60)
    waiting.append(world.joining(rebalance_timeout_ms=100))
    world.clock.advance(40)
    world.groups.leave("g", [(one.result().member_id, None) for one in waiting])
    assert world.state() is GroupState.EMPTY
    again = world.joining()
    world.clock.advance(100)
    assert again.result().generation == 3


async def test_t187_a_follower_that_rejoins_unchanged_gets_the_standing_generation() -> None:
    world = World()
    leader, follower = await world.form(None, None)
    again = answered(world.join(follower.member_id))
    assert (again.error, again.generation, again.leader_id) == (ErrorCode.NONE, 1, leader.member_id)
    assert again.members == []
    assert world.state() is GroupState.STABLE


async def test_t187_changed_metadata_or_a_rejoining_leader_rebalances() -> None:
    world = World()
    leader, follower = await world.form(None, None)
    world.joining(follower.member_id, protocols=[("range", b"other")])
    assert world.state() is GroupState.PREPARING_REBALANCE
    world.joining(leader.member_id)
    await world.assign([leader_again(world, leader), leader_again(world, follower)])
    world.joining(leader.member_id)
    assert world.state() is GroupState.PREPARING_REBALANCE


def leader_again(world: World, result: JoinResult) -> JoinResult:
    group = world.group()
    return JoinResult(
        result.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id or "",
    )


async def test_a_join_that_is_repeated_before_the_assignment_gets_the_same_generation() -> None:
    world = World()
    waiter = world.joining()
    world.clock.advance(100)
    again = answered(world.join(waiter.result().member_id))
    assert again == waiter.result()


async def test_a_join_that_is_repeated_while_waiting_answers_the_older_one() -> None:
    world = World()
    leader, follower = await world.form(None, None)
    older = world.joining(follower.member_id, protocols=[("range", b"other")])
    newer = world.joining(follower.member_id, protocols=[("range", b"other")])
    assert older.result().error is ErrorCode.REBALANCE_IN_PROGRESS
    world.joining(leader.member_id)
    assert newer.result().error is ErrorCode.NONE


async def test_the_protocol_with_most_votes_among_those_that_all_support_wins() -> None:
    world = World()
    first = world.joining(protocols=[("sticky", b"1"), ("range", b"2"), ("own", b"3")])
    world.joining(protocols=[("range", b"4"), ("sticky", b"5")])
    world.joining(protocols=[("range", b"6"), ("sticky", b"7"), ("other", b"8")])
    world.clock.advance(200)
    assert first.result().protocol_name == "range"
    assert sorted(metadata for _, _, metadata in first.result().members) == [b"2", b"4", b"6"]


async def test_who_would_rather_have_what_others_do_not_know_has_its_next_choice() -> None:
    world = World()
    first = world.joining(protocols=[("own", b"1"), ("range", b"2"), ("sticky", b"3")])
    world.joining(protocols=[("another", b"4"), ("sticky", b"5"), ("range", b"6")])
    world.joining(protocols=[("a third", b"7"), ("sticky", b"8"), ("range", b"9")])
    world.clock.advance(200)
    assert first.result().protocol_name == "sticky"


async def test_protocols_that_cannot_agree_are_refused() -> None:
    world = World()
    await world.form(None)
    assert refused(lambda: world.join(protocols=[("sticky", b"")])) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(lambda: world.join(protocol_type="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for changes in ({"protocols": []}, {"protocol_type": ""}):
        answer = refused(lambda changes=changes: world.join(group_id="new", **changes))  # type: ignore[misc]
        assert answer is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.groups.find("new") is None


async def test_limits_of_a_join() -> None:
    world = World()
    assert refused(lambda: world.join(group_id="")) is ErrorCode.INVALID_GROUP_ID
    for timeout_ms in (5_999, 1_800_001, -1):
        answer = refused(lambda t=timeout_ms: world.join(session_timeout_ms=t))  # type: ignore[misc]
        assert answer is ErrorCode.INVALID_SESSION_TIMEOUT
    too_long = "x" * 40_000
    assert refused(lambda: world.join(group_id=too_long)) is ErrorCode.INVALID_GROUP_ID
    for changes in ({"group_instance_id": too_long}, {"protocol_type": too_long}):
        assert refused(lambda c=changes: world.join(**c)) is ErrorCode.INVALID_REQUEST  # type: ignore[misc]
    huge = [("range", bytes(world.config.message_max_bytes))]
    assert refused(lambda: world.join(protocols=huge)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(lambda: world.join("nobody")) is ErrorCode.UNKNOWN_MEMBER_ID


FULL = JoinResult("", ErrorCode.GROUP_MAX_SIZE_REACHED)


async def test_group_max_size_keeps_out_who_is_not_in() -> None:
    world = World(group_max_size=2)
    leader, follower = await world.form(None, None)
    assert answered(world.join()) == FULL
    rejoined = world.joining(leader.member_id)
    world.joining(follower.member_id)
    assert rejoined.result().error is ErrorCode.NONE
    assert answered(world.join()) == FULL


async def test_group_max_size_keeps_who_waits_and_asks_again() -> None:
    world = World(group_max_size=1)
    first = answered(world.join(requires_known_member_id=True))
    older, newer = world.joining(first.member_id), world.joining(first.member_id)
    world.clock.advance(100)
    assert older.result().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert newer.result().error is ErrorCode.NONE


async def test_group_max_size_turns_away_who_was_asked_to_come_back() -> None:
    """As in Kafka ids are handed out to more than there is room for; who comes too late has none any more."""
    world = World(group_max_size=1)
    first, second = (answered(world.join(requires_known_member_id=True)) for _ in range(2))
    world.joining(first.member_id)
    assert answered(world.join(second.member_id)) == FULL
    world.clock.advance(100)
    assert world.group().pending_members == {}
    assert world.state() is GroupState.COMPLETING_REBALANCE


async def test_who_is_taken_out_while_it_joins_has_no_id_any_more() -> None:
    world = World()
    await world.form("a", None)
    waiting = world.joining(group_instance_id="other")
    assert world.groups.leave("g", [("", "other")]) == [ErrorCode.NONE]
    assert waiting.result() == JoinResult("", ErrorCode.UNKNOWN_MEMBER_ID)


async def test_who_leaves_before_it_has_joined_makes_the_others_join_again() -> None:
    """Kafka asks whether anybody has left, and not whether it was a member."""
    world = World()
    await world.form(None)
    pending = answered(world.join(requires_known_member_id=True))
    assert world.groups.leave("g", [(pending.member_id, "of anybody")]) == [ErrorCode.NONE]
    assert world.state() is GroupState.PREPARING_REBALANCE


async def test_an_empty_group_stays_so_when_somebody_leaves_before_it_has_joined() -> None:
    world = World()
    pending = answered(world.join(requires_known_member_id=True))
    assert world.groups.leave("g", [(pending.member_id, None)]) == [ErrorCode.NONE]
    assert world.state() is GroupState.EMPTY


async def test_t188_a_static_member_comes_back_to_its_assignment_without_a_rebalance() -> None:
    world = World()
    leader, follower = await world.form("a", "b")
    instance = world.group().members[follower.member_id].group_instance_id
    back = world.joining(group_instance_id=instance)
    await settle()
    result = back.result()
    assert result.member_id != follower.member_id
    assert (result.generation, result.leader_id) == (1, leader.member_id)
    assert world.state() is GroupState.STABLE
    answer = world.sync(result, group_instance_id=instance)
    assert not isinstance(answer, asyncio.Future)
    assert answer.assignment == follower.member_id.encode()
    assert refused(lambda: world.heartbeat(follower, instance)) is ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(result, instance) is ErrorCode.NONE
    assert refused(lambda: world.heartbeat(follower)) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_t188_a_static_leader_that_comes_back_does_not_assign_anew() -> None:
    for can_skip in (True, False):
        world = World()
        leader, _ = await world.form("a", "b")
        instance = world.group().members[leader.member_id].group_instance_id
        back = world.joining(group_instance_id=instance, can_skip_assignment=can_skip)
        await settle()
        result = back.result()
        assert result.skip_assignment is can_skip
        assert (result.leader_id == result.member_id) is can_skip
        assert len(result.members) == (2 if can_skip else 0)
        assert world.group().leader_id == result.member_id


async def test_t188_a_static_member_that_comes_back_has_a_whole_session() -> None:
    """The one that it names now."""
    world = World()
    leader, _ = await world.form("a", "b")
    world.clock.advance(SESSION_TIMEOUT_MS - 1)
    world.heartbeat(leader, "a")
    back = world.joining(group_instance_id="b", session_timeout_ms=SESSION_TIMEOUT_MS - 1_000)
    world.clock.advance(SESSION_TIMEOUT_MS - 1_001)
    assert world.state() is GroupState.STABLE
    world.clock.advance(1)
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert back.result().member_id not in world.group().members


async def test_t188_a_static_leader_that_came_back_leads_the_next_generation_too() -> None:
    world = World()
    leader, follower = await world.form("a", "b")
    assert world.group().static_members["a"] == leader.member_id
    back = world.joining(group_instance_id="a")
    await settle()
    world.joining(follower.member_id, group_instance_id="b", protocols=[("range", b"other")])
    rejoined = world.joining(back.result().member_id, group_instance_id="a", protocols=[("range", b"other")])
    assert rejoined.result().generation == 2
    assert rejoined.result().leader_id == back.result().member_id


@pytest.mark.parametrize("at_once", [True, False])
async def test_t188_a_static_member_whose_record_fails_keeps_its_old_id(at_once: bool) -> None:
    world = World()
    _, follower = await world.form("a", "b")
    instance = world.group().members[follower.member_id].group_instance_id
    if at_once:
        world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    else:
        world.hold_flushes()
    back = world.joining(group_instance_id=instance)
    await world.flush(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert back.result() == JoinResult("", ErrorCode.NOT_COORDINATOR), "it waits before it tries again"
    assert world.group().static_members[instance or ""] == follower.member_id
    assert world.heartbeat(follower, instance) is ErrorCode.NONE


async def test_t188_a_replaced_member_that_still_waits_is_fenced() -> None:
    world = World()
    world.joining(group_instance_id="b")
    waiting = world.joining(group_instance_id="a")
    newer = world.joining(group_instance_id="a")
    assert waiting.result().error is ErrorCode.FENCED_INSTANCE_ID
    world.clock.advance(200)
    assert newer.result().error is ErrorCode.NONE
    syncing = world.sync(newer.result(), group_instance_id="a")
    assert isinstance(syncing, asyncio.Future)
    world.joining(group_instance_id="a")
    assert syncing.result().error is ErrorCode.FENCED_INSTANCE_ID


async def test_t188_a_static_member_whose_record_fails_is_as_it_was() -> None:
    """Its session as well, which begins anew: Kafka's `updateStaticMemberThenRebalanceOrCompleteJoin`."""
    world = World()
    leader, follower = await world.form("a", "b")
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    for session_timeout_ms in (SESSION_TIMEOUT_MS // 2 + 1_000, 10 * SESSION_TIMEOUT_MS):
        back = world.joining(
            group_instance_id="b",
            protocols=[("range", b"other")],
            rebalance_timeout_ms=1,
            session_timeout_ms=session_timeout_ms,
        )
        assert back.result().error is ErrorCode.NOT_COORDINATOR
        member = world.group().members[follower.member_id]
        assert (member.protocols, member.rebalance_timeout_ms) == (RANGE, REBALANCE_TIMEOUT_MS)
        world.heartbeat(leader, "a")
        world.clock.advance(SESSION_TIMEOUT_MS - 1)
        assert world.state() is GroupState.STABLE
    world.heartbeat(leader, "a")
    world.clock.advance(1)
    assert refused(lambda: world.heartbeat(follower, "b")) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("has_synced", [True, False])
async def test_t188_a_static_member_that_comes_back_before_it_synced_is_waited_for(has_synced: bool) -> None:
    """By its new id: Apache Kafka waits for the old one, and has all join again in any case."""
    world = World()
    waiting = [world.joining(group_instance_id=instance) for instance in "ab"]
    world.clock.advance(200)
    leader, follower = (one.result() for one in waiting)
    assert leader.member_id == leader.leader_id
    world.sync(leader, {follower.member_id: b"its own"}, group_instance_id="a")
    back = world.joining(group_instance_id="b")
    await settle()
    if has_synced:
        answer = world.sync(back.result(), group_instance_id="b")
        assert isinstance(answer, SyncResult) and answer.assignment == b"its own"
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000 - 1):
        world.clock.advance(5_000)
        assert world.heartbeat(leader, "a") is world.heartbeat(back.result(), "b") is ErrorCode.NONE
    world.clock.advance(5_000)
    late = back.result().member_id
    assert (late in world.group().members) is has_synced
    assert world.state() is (GroupState.STABLE if has_synced else GroupState.PREPARING_REBALANCE)


async def test_t188_another_choice_of_protocol_does_rebalance() -> None:
    world = World()
    both = [("range", b""), ("sticky", b"")]
    waiting = world.joining(group_instance_id="a", protocols=both)
    world.clock.advance(100)
    await world.assign([waiting.result()])
    world.joining(group_instance_id="a", protocols=both[1:])
    assert world.group().generation == 2


async def test_t188_an_id_that_was_handed_out_is_no_static_members() -> None:
    world = World()
    pending = answered(world.join(requires_known_member_id=True))
    answer = refused(lambda: world.join(pending.member_id, group_instance_id="a"))
    assert answer is ErrorCode.UNKNOWN_MEMBER_ID
    world.joining(pending.member_id)


async def test_t188_a_wrong_id_for_an_instance_is_fenced() -> None:
    world = World()
    (leader,) = await world.form("a")
    assert refused(lambda: world.join("other", group_instance_id="a")) is ErrorCode.FENCED_INSTANCE_ID
    assert refused(lambda: world.join("other", group_instance_id="b")) is ErrorCode.UNKNOWN_MEMBER_ID
    unknown = refused(lambda: world.sync(leader, group_instance_id="b"))
    assert unknown is ErrorCode.UNKNOWN_MEMBER_ID


async def test_who_rejoins_may_say_anew_how_long_others_wait_for_it() -> None:
    """The group waits as long as its most patient member says now, not as long as it once said."""
    world = World()
    first, second = await world.form(None, None)
    for result in (first, second):
        world.joining(result.member_id, rebalance_timeout_ms=3000)
    assert world.group().rebalance_timeout_ms == 3000
