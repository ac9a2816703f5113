"""Goal: a consumer group (KIP-848) gives every partition to one member at a time, whoever comes, goes, falls
silent or cannot be written down (T201).

Method: a coordinator over memory partitions and a manual clock; then random members at random moments, each
of which does what a client does.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import state_topic
from broker.groups.consumer.group import ConsumerGroupState
from broker.groups.consumer.heartbeats import Beat
from broker.groups.consumer.member import (
    MemberState,
    partitions_of,
)
from broker.groups.coordinator import GroupCoordinator
from broker.groups.epochs import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from broker.groups.membership import JoinResult
from broker.groups.topics import Partitions
from config.broker import BrokerConfig
from config.definition import ConfigError
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.internal_consumer_groups import ConsumerGroupRegularExpressionValue
from storage.layout import TopicPartition
from tests.broker.groups.world import REBALANCE_TIMEOUT_MS, ROWS_0, ROWS_1, World, refused

SESSION_MS = BrokerConfig().group_consumer_session_timeout_ms
HALF_MS = SESSION_MS // 2
INTERVAL_MS = 15_000


def shared() -> World:
    """One member has both partitions of rows, another waits for its share."""
    world = World()
    assert world.beat("a", 0).assigned == world.rows(0, 1)
    assert world.beat("b", 0).assigned == {}
    return world


def settled() -> World:
    """Two members have a partition of rows each."""
    world = shared()
    assert world.beat("a", 2, owned=world.rows(0, 1)).assigned == world.rows(0)
    assert world.beat("a", 2, owned=world.rows(0)).epoch == 3
    assert world.beat("b", 3).assigned == world.rows(1)
    assert world.consumer_group().state is ConsumerGroupState.STABLE
    return world


def next_beat(world: World, member_id: str, **more: object) -> Beat:
    epoch = world.consumer_group().members[member_id].epoch
    return world.beat(member_id, epoch, **more)  # type: ignore[arg-type]


async def test_t201_a_silent_member_is_fenced_and_the_others_get_what_it_had() -> None:
    world = settled()
    world.clock.advance(HALF_MS)
    next_beat(world, "b")
    world.clock.advance(HALF_MS - 1)
    assert "a" in world.consumer_group().members
    world.clock.advance(1)
    assert refused(lambda: world.beat("a", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert next_beat(world, "b").assigned == world.rows(0, 1)


async def test_t201_who_does_not_give_back_in_time_is_fenced() -> None:
    world = shared()
    next_beat(world, "a", owned=world.rows(0, 1))
    for _ in range(REBALANCE_TIMEOUT_MS // 10_000):
        next_beat(world, "b")
        next_beat(world, "a", owned=world.rows(0, 1))
        world.clock.advance(10_000)
    assert "a" not in world.consumer_group().members
    assert next_beat(world, "b").assigned == world.rows(0, 1)


async def test_t201_who_gives_back_in_time_is_not() -> None:
    world = settled()
    for _ in range(2 * REBALANCE_TIMEOUT_MS // 10_000):
        next_beat(world, "a", owned=world.rows(0))
        next_beat(world, "b")
        world.clock.advance(10_000)
    assert world.consumer_group().members.keys() == {"a", "b"}


async def test_t201_what_a_member_unsubscribes_from_goes_with_what_it_has_still_to_give_back() -> None:
    """It kept that until it had given back the rest, and the others waited for one more round."""
    world = World()
    columns = {world.topics.created["columns"].topic_id: frozenset((0,))}
    owned = {**world.rows(0, 1), **columns}
    assert world.beat("a", 0, topics=["rows", "columns"]).assigned == owned
    world.beat("b", 0, topics=["rows", "columns"])
    assert next_beat(world, "a", owned=owned).assigned == {**world.rows(0), **columns}
    told = next_beat(world, "a", owned=owned, topics=["rows"])
    assert (told.epoch, told.assigned) == (2, world.rows(0))
    member = world.consumer_group().members["a"]
    assert member.state is MemberState.UNREVOKED_PARTITIONS
    assert partitions_of(member.pending_revocation) == {**world.rows(1), **columns}
    assert next_beat(world, "a", owned={**world.rows(0), **columns}).epoch == 2, "not all is given back"
    assert next_beat(world, "b").assigned is None, "a has it still"
    assert next_beat(world, "a", owned=world.rows(0)).epoch == 4
    assert next_beat(world, "b").assigned == {**world.rows(1), **columns}


async def test_a_group_is_divided_anew_only_so_often() -> None:
    world = World(group_consumer_assignment_interval_ms=INTERVAL_MS)
    world.beat("a", 0)
    assert (world.beat("b", 0).epoch, world.beat("c", 0).assigned) == (2, {})
    world.clock.advance(INTERVAL_MS // 2)
    assert next_beat(world, "a", owned=world.rows(0, 1)).assigned is None
    assert world.consumer_group().state is ConsumerGroupState.ASSIGNING
    world.clock.advance(INTERVAL_MS // 2)
    assert next_beat(world, "a", owned=world.rows(0, 1)).assigned == world.rows(0)
    assert world.consumer_group().target_epoch == 4, "those of all three"


async def test_a_clock_that_was_set_back_holds_no_group_up() -> None:
    world = World(group_consumer_assignment_interval_ms=INTERVAL_MS)
    world.beat("a", 0)
    world.consumer_group().target_ms = world.clock.now_ms() + 1
    world.beat("b", 0)
    assert world.consumer_group().target_epoch == 3


async def test_what_a_member_unsubscribes_from_it_gives_back_whenever_the_group_is_divided_anew() -> None:
    world = World(group_consumer_assignment_interval_ms=INTERVAL_MS)
    columns = {world.topics.created["columns"].topic_id: frozenset((0,))}
    owned = {**world.rows(0, 1), **columns}
    assert world.beat("a", 0, topics=["rows", "columns"]).assigned == owned
    assert next_beat(world, "a", topics=["columns"]).assigned == columns
    member = world.consumer_group().members["a"]
    assert (member.epoch, member.state) == (2, MemberState.UNREVOKED_PARTITIONS)
    assert next_beat(world, "a", owned=columns).assigned is None
    assert world.consumer_group().members["a"].has_reached(2)
    told = next_beat(world, "a", topic_names=frozenset(), owned={})
    assert told.assigned == {}
    assert world.consumer_group().members["a"].has_reached(2), "it had let go of it before"
    assert next_beat(world, "a", topics=["rows"]).assigned is None, "its target has it, but it gave it back"


async def test_t201_a_static_member_has_its_session_to_come_back() -> None:
    world = World()
    world.beat("a", 0, instance_id="i")
    assert world.beat("a", STATIC_LEAVE_EPOCH, instance_id="i").epoch == STATIC_LEAVE_EPOCH
    world.beat("b", 0)
    world.clock.advance(SESSION_MS - 1)
    assert world.beat("c", 0, instance_id="i").assigned == world.rows(0)
    world = World()
    world.beat("a", 0, instance_id="i")
    world.beat("a", STATIC_LEAVE_EPOCH, instance_id="i")
    world.clock.advance(SESSION_MS)
    assert world.consumer_group().is_empty


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_t201_a_static_member_that_is_away_has_nothing_to_give_back(is_restarted: bool) -> None:
    """Its session was cut short by the time that it had for that before it left."""
    world = World()
    world.beat("a", 0, instance_id="i", rebalance_timeout_ms=HALF_MS)
    world.beat("b", 0)
    next_beat(world, "a", instance_id="i", owned=world.rows(0, 1))
    assert world.consumer_group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    world.beat("a", STATIC_LEAVE_EPOCH, instance_id="i")
    if is_restarted:
        await world.restart()
    world.clock.advance(SESSION_MS - 1)
    assert "a" in world.consumer_group().members
    assert world.beat("c", 0, instance_id="i").assigned == world.rows(0)


async def test_t201_a_late_heartbeat_brings_back_no_static_member_that_is_away() -> None:
    """Its epoch is greater than that of who is away (Kafka's `throwIfConsumerGroupMemberEpochIsInvalid`); the
    instance would be taken, and who comes back under its id refused.
    """
    world = World()
    world.beat("a", 0, instance_id="i")
    world.beat("b", 0)
    next_beat(world, "a", instance_id="i", owned=world.rows(0, 1))
    next_beat(world, "a", instance_id="i", owned=world.rows(0))
    member = world.consumer_group().members["a"]
    assert (member.epoch, member.previous_epoch) == (3, 2)
    world.beat("a", STATIC_LEAVE_EPOCH, instance_id="i")
    for epoch in (2, 3):
        late = lambda: world.beat("a", epoch, instance_id="i", owned=world.rows(0))  # noqa: B023, E731
        assert refused(late) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("c", 0, instance_id="i").assigned == world.rows(0)


async def test_t201_who_lost_an_answer_may_be_one_epoch_behind() -> None:
    """If it has nothing that it shall not have: Kafka's `isSubset` of what it owns."""
    world = settled()
    member = world.consumer_group().members["a"]
    assert (member.epoch, member.previous_epoch) == (3, 2)
    for owned in (world.rows(0), {}):
        assert world.beat("a", 2, owned=owned).epoch == 3
    for owned in (world.rows(0, 1), world.rows(1), None):
        late = lambda: world.beat("a", 2, owned=owned)  # noqa: B023, E731
        assert refused(late) is ErrorCode.FENCED_MEMBER_EPOCH


async def test_t201_the_answer_waits_for_the_disk_and_a_plain_heartbeat_does_not() -> None:
    world = World()
    world.hold_flushes()
    joined = world.beat("a", 0)
    assert joined.flushed is not None and not joined.flushed.done()
    await world.flush()
    assert joined.flushed.done()
    assert world.beat("a", 2).flushed is None


async def test_t201_what_cannot_be_written_has_not_happened() -> None:
    world = settled()
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    before = dataclasses.replace(world.consumer_group().members["a"])
    assert refused(lambda: world.beat("c", 0)) is ErrorCode.NOT_COORDINATOR, "what clients try again"
    assert refused(lambda: world.beat("b", LEAVE_EPOCH)) is ErrorCode.NOT_COORDINATOR
    group = world.consumer_group()
    assert (group.members.keys(), group.members["a"], group.epoch) == ({"a", "b"}, before, 3)
    world.clock.advance(SESSION_MS)
    assert group.members.keys() == {"a", "b"}, "fenced without a record"
    world.refuse_appends(None)
    world.clock.advance(SESSION_MS)
    assert group.is_empty


async def test_t201_a_group_that_cannot_be_written_is_not_there() -> None:
    world = World()
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    assert refused(lambda: world.beat("a", 0)) is ErrorCode.NOT_COORDINATOR
    assert world.groups.find("g") is None


async def test_t201_a_topic_that_comes_grows_or_goes_is_divided_anew() -> None:
    world = World()
    world.beat("a", 0, topics=["rows", "later"])
    assert world.beat("a", 2).assigned is None
    world.topics.create("later", 1, {})
    later = world.topics.created["later"].topic_id
    assert world.beat("a", 2).assigned == {**world.rows(0, 1), later: frozenset((0,))}
    world.topics.create("unrelated", 9, {})
    assert world.beat("a", 3).assigned is None
    world.topics.create("rows", 4, {})
    assert world.beat("a", 3).assigned == {**world.rows(0, 1, 2, 3), later: frozenset((0,))}
    del world.topics.created["later"]
    world.topics.version += 1
    assert world.beat("a", 4, owned=world.rows(0, 1, 2, 3)).assigned == world.rows(0, 1, 2, 3)
    assert world.beat("a", 5).assigned is None


async def test_t201_a_regular_expression_follows_the_topics() -> None:
    world = World()
    world.topics.create("rows.new", 1, {})
    new = world.topics.created["rows.new"].topic_id
    joined = world.beat("a", 0, topics=(), topic_regex="rows.*")
    assert joined.assigned == {**world.rows(0, 1), new: frozenset((0,))}
    world.topics.create("rows.newer", 1, {})
    assert len(next_beat(world, "a").assigned or ()) == 3
    assert world.consumer_group().subscribed_topics() == {"rows", "rows.new", "rows.newer"}
    stored = ConsumerGroupRegularExpressionValue(
        topics=["rows", "rows.new", "rows.newer"],
        version=world.topics.version,
        timestamp=world.clock.now_ms(),
    )
    assert world.stored_values(16)[-1] == stored
    next_beat(world, "a", topics=["columns"], topic_regex="", owned={})
    assert world.consumer_group().regexes == {}
    assert world.consumer_group().subscribed_topics() == {"columns"}


class Ruled(World):
    """With rules, of which a heartbeat says what they come to for its client."""

    def _coordinator(self) -> GroupCoordinator:
        parts: Any = (self, self.topics, self.group_settings, SimpleNamespace(version=0), None)
        return GroupCoordinator(*parts)


async def test_t201_a_pattern_finds_what_its_member_may_know() -> None:
    """Whoever goes meanwhile: what is new the next one that beats finds, by its own rights."""
    world = Ruled()
    rows: dict[str, Any] = {"may_know": lambda name: name == "rows"}
    assert world.beat("a", 0, topics=(), topic_regex=".*s", **rows).assigned == world.rows(0, 1)
    world.beat("b", 0, topics=["rows"], **rows)
    world.topics.create("news", 1, {})
    world.beat("b", LEAVE_EPOCH)
    assert world.consumer_group().subscribed_topics() == {"rows"}
    next_beat(world, "a", may_know=lambda name: name in ("rows", "news"))
    assert world.consumer_group().subscribed_topics() == {"rows", "news"}


async def test_t201_a_pattern_goes_with_the_last_member_that_has_it() -> None:
    world = World()
    for member_id in "ab":
        world.beat(member_id, 0, topics=(), topic_regex="rows")
    world.beat("c", 0)
    world.beat("a", LEAVE_EPOCH)
    assert world.consumer_group().regexes == {"rows": {"rows"}}
    world.beat("b", LEAVE_EPOCH)
    assert world.consumer_group().regexes == {}
    assert world.stored_values(16)[-1] is None


async def test_t201_a_topic_that_went_stays_with_its_member_until_all_is_divided_anew() -> None:
    """Only what a client unsubscribes from goes at once; to say where it runs is no other subscription."""
    world = World(group_consumer_assignment_interval_ms=INTERVAL_MS)
    columns = {world.topics.created["columns"].topic_id: frozenset((0,))}
    world.beat("a", 0, topics=["rows", "columns"])
    del world.topics.created["columns"]
    world.topics.version += 1
    assert next_beat(world, "a").assigned is None
    assert next_beat(world, "a", client_host="/127.0.0.2").assigned is None
    assert partitions_of(world.consumer_group().members["a"].assigned) == {**world.rows(0, 1), **columns}
    world.clock.advance(INTERVAL_MS)
    assert next_beat(world, "a", owned=world.rows(0, 1)).assigned == world.rows(0, 1)


async def test_t201_an_instance_is_nobodys_when_its_member_has_left() -> None:
    world = World()
    world.beat("a", 0, instance_id="i")
    world.beat("a", LEAVE_EPOCH, instance_id="i")
    world.beat("a", 0)
    world.beat("b", 0, instance_id="i")
    assert world.consumer_group().static_members == {"i": "b"}


async def test_t201_a_pattern_that_is_none_is_refused_and_the_group_stays_as_it_is() -> None:
    world = settled()
    assert refused(lambda: next_beat(world, "a", topic_regex="(")) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.consumer_group().epoch == 3


async def test_a_pattern_takes_linear_time_whatever_it_says() -> None:
    """What backtracks would not end within a lifetime here."""
    world = World()
    world.topics.create("a" * 200 + "!", 1, {})
    assert world.beat("a", 0, topics=(), topic_regex="(a+)+").assigned == {}


async def test_t201_a_group_has_room_for_so_many() -> None:
    world = World(group_consumer_max_size=2)
    world.beat("a", 0)
    world.beat("b", 0)
    assert refused(lambda: world.beat("c", 0)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    world.beat("b", 0)


async def test_the_first_assignor_is_that_of_who_wants_none_and_others_are_not_to_be_had() -> None:
    world = World(group_consumer_assignors=("range",))
    world.beat("a", 0)
    assert world.consumer_group().assignor == "range"
    assert refused(lambda: world.beat("b", 0, server_assignor="uniform")) is ErrorCode.UNSUPPORTED_ASSIGNOR
    world.beat("c", 0, server_assignor="range")
    await world.restart()
    assert world.consumer_group().assignor == "range"
    both = World(group_consumer_assignors=("range", "uniform"))
    both.beat("a", 0)
    assert both.consumer_group().assignor == "range"
    both.beat("b", 0, server_assignor="uniform")
    assert both.consumer_group().assignor == "uniform"
    with pytest.raises(ConfigError, match="one of: uniform, range"):
        BrokerConfig.parse({"group.consumer.assignors": "range,mine"})


async def test_t201_members_outlive_a_restart() -> None:
    world = shared()
    world.beat("c", 0, topics=(), topic_regex="row.*", instance_id="i", rack_id="r", server_assignor="range")
    next_beat(world, "a", owned=world.rows(0, 1))
    before = world.consumer_group()
    await world.restart()
    group = world.consumer_group()
    assert group is not before
    assert group.members == before.members
    assert (group.epoch, group.target_epoch, group.metadata_hash) == (
        before.epoch, before.target_epoch, before.metadata_hash,
    )  # fmt: skip
    assert (group.targets, group.regexes) == (before.targets, before.regexes)
    assert group.static_members == {"i": "c"}
    assert next_beat(world, "a", owned=world.rows(1)).epoch == group.epoch
    world.clock.advance(SESSION_MS)
    assert world.consumer_group().is_empty


async def test_t201_a_topic_that_grew_while_nobody_looked_is_seen_after_the_restart() -> None:
    world = World()
    world.beat("a", 0)
    world.topics.create("rows", 3, {})
    await world.restart()
    assert world.beat("a", 2).assigned == world.rows(0, 1, 2)


async def test_t201_a_revocation_under_way_ends_in_time_after_a_restart() -> None:
    world = shared()
    next_beat(world, "a", owned=world.rows(0, 1))
    await world.restart()
    for _ in range(REBALANCE_TIMEOUT_MS // 10_000):
        next_beat(world, "a", owned=world.rows(0, 1))
        world.clock.advance(10_000)
    assert "a" not in world.consumer_group().members


async def test_t201_an_empty_group_goes_with_its_last_offset_and_leaves_nothing() -> None:
    world = World()
    world.beat("a", 0, topics=(), topic_regex="rows")
    world.beat("a", LEAVE_EPOCH)
    world.commit({ROWS_0: 3})
    assert world.expire(world.clock.now_ms()) == 0
    week_ms = world.config.offsets_retention_minutes * 60_000
    assert world.expire(world.clock.now_ms() + week_ms) == 1
    assert world.groups.find("g") is None
    await world.restart()
    assert world.groups.find("g") is None


async def test_t201_what_members_subscribe_to_does_not_expire() -> None:
    world = settled()
    week_ms = world.config.offsets_retention_minutes * 60_000
    member = world.consumer_group().members["a"]
    request = {ROWS_0: 3}
    world.commit(request, by=_as_result("a", member.epoch))
    assert world.expire(world.clock.now_ms() + 2 * week_ms) == 0
    next_beat(world, "a", topics=["columns"], owned={})
    next_beat(world, "b", topics=["columns"], owned={})
    assert world.expire(world.clock.now_ms() + 2 * week_ms) == 1


async def test_t201_commits_of_an_older_epoch_count_for_what_was_held_since() -> None:
    world = settled()
    world.topics.create("rows", 4, {})
    next_beat(world, "a", owned=world.rows(0))
    late = refused(lambda: world.commit({ROWS_0: 2, ROWS_1: 2}, by=_as_result("a", 3)))
    assert late is ErrorCode.STALE_MEMBER_EPOCH, "all of it or nothing, as in Kafka"
    unknown = TopicPartition("none", 0)
    late = refused(lambda: world.commit({unknown: 2, ROWS_1: 2}, by=_as_result("a", 3)))
    assert late is ErrorCode.STALE_MEMBER_EPOCH, "of what is not there nothing is held"
    assert world.committed() == {}
    assert world.commit({ROWS_0: 1}, by=_as_result("a", 3)).errors == {ROWS_0: ErrorCode.NONE}
    assert world.committed() == {ROWS_0: 1}
    late = refused(lambda: world.commit({ROWS_0: 1}, by=_as_result("a", 9)))
    assert late is ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("member_id", "instance", "epoch", "is_transaction", "is_refused"),
    [
        ("", None, -1, True, False),
        ("", None, -1, False, True),
        ("", None, 0, True, True),
        ("", "i", -1, True, True),
        ("x", None, -1, True, True),
    ],
)
async def test_who_is_no_member_commits_within_a_transaction_if_it_does_not_say_that_it_is_one(
    member_id: str, instance: str | None, epoch: int, is_transaction: bool, is_refused: bool
) -> None:
    """As clients from before KIP-447 do; with nobody in the group, anybody does that says so little."""
    world = settled()

    def commits() -> object:
        return world.consumer_group().check_commit(
            member_id, instance, epoch, is_transaction=is_transaction, api_version=9
        )

    if is_refused:
        assert refused(commits) is ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert commits() is None
    for one in "ab":
        world.beat(one, LEAVE_EPOCH)
    if epoch < 0:
        assert commits() is None
    else:
        assert refused(commits) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_change_of_many_members_goes_into_the_log_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_topic, "BATCH_BYTES", 200)
    world = World()
    for number in range(5):
        world.beat(f"m{number}", 0)
    before = world.consumer_group()
    await world.restart()
    assert world.consumer_group().members == before.members
    assert world.consumer_group().targets == before.targets


async def test_a_member_in_a_state_of_another_broker_begins_anew() -> None:
    """A later Kafka may have left one: who knows what it means to have what it has."""
    world = settled()
    group = world.consumer_group()
    group.put(dataclasses.replace(group.members["a"], state=MemberState.UNKNOWN))
    assert refused(lambda: next_beat(world, "a", owned=world.rows(0))) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("a", 0).assigned == world.rows(0)
    assert group.state is ConsumerGroupState.STABLE


async def test_names_that_no_record_holds_are_refused() -> None:
    world = World()
    long = "x" * 32_768
    assert refused(lambda: world.beat(long, 0)) is ErrorCode.INVALID_REQUEST
    assert refused(lambda: world.beat("a", 0, topic_regex=long)) is ErrorCode.INVALID_REQUEST
    assert refused(lambda: world.beat("a", 0, group_id=long)) is ErrorCode.INVALID_GROUP_ID
    world.beat("a", 0)
    assert refused(lambda: world.join(long)) is ErrorCode.INVALID_REQUEST


async def test_an_unreadable_record_of_a_group_is_skipped() -> None:
    world = World()
    world.beat("a", 0)
    for partition in world.offsets_partitions():
        for number, batch in enumerate(partition.log.batches):
            partition.log.batches[number] = batch[:-1] + bytes((batch[-1] ^ 1,))
    await world.restart()
    assert world.groups.find("g") is None


def _as_result(member_id: str, epoch: int) -> JoinResult:
    return JoinResult(member_id, generation=epoch)


class Client:
    """What a client of the protocol does: it owns what it was told, after it has let go of the rest."""

    def __init__(self, world: World, member_id: str) -> None:
        self.world = world
        self.member_id = member_id
        self.epoch = 0
        self.owned: Partitions = {}
        self.assigned: Partitions = {}
        self.topics = ["rows"]

    def beat(self, *, is_answer_lost: bool = False) -> None:
        """With all that it knows, as after any doubt."""
        try:
            answer = self.world.beat(
                self.member_id, self.epoch, topics=self.topics, owned=self.owned,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            )  # fmt: skip
        except KafkaError as error:
            assert error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH), error
            self.epoch, self.owned, self.assigned = 0, {}, {}
            return
        if not is_answer_lost:
            self.epoch = answer.epoch
            if answer.assigned is not None:
                self.assigned = answer.assigned

    def let_go(self) -> None:
        self.owned = {
            topic: partitions & self.assigned.get(topic, frozenset())
            for topic, partitions in self.owned.items()
            if partitions & self.assigned.get(topic, frozenset())
        }

    def take(self) -> None:
        self.let_go()
        self.owned = self.assigned


def owned_by(clients: Iterable[Client]) -> list[tuple[object, int]]:
    return sorted(
        (
            (topic, partition)
            for client in clients
            for topic, found in client.owned.items()
            for partition in found
        ),
        key=str,
    )


actions = st.sampled_from(
    ("beat", "beat", "beat and take", "beat and take", "lose", "let go", "topics", "leave", "grow", "restart")
)


@settings(max_examples=150)
@given(st.lists(st.tuples(actions, st.integers(0, 3)), min_size=20, max_size=60))
def test_t201_no_partition_is_ever_with_two_and_in_the_end_each_is_with_one(
    moves: list[tuple[str, int]],
) -> None:
    asyncio.run(_play(moves))


async def _play(moves: list[tuple[str, int]]) -> None:
    world = World()
    clients = [Client(world, f"m{number}") for number in range(4)]
    for action, number in moves:
        client = clients[number]
        if action == "beat":
            client.beat()
        elif action == "lose":
            client.beat(is_answer_lost=True)
        elif action == "let go":
            client.let_go()
        elif action == "beat and take":
            client.beat()
            client.take()
        elif action == "topics":
            client.topics = ["rows", "columns"] if client.topics == ["rows"] else ["rows"]
        elif action == "leave" and client.epoch:
            client.owned, client.assigned = {}, {}
            world.beat(client.member_id, LEAVE_EPOCH)
            client.epoch = 0
        elif action == "grow":
            world.topics.create("rows", 2 + number, {})
        elif action == "restart":
            await world.restart()
        places = owned_by(clients)
        assert len(places) == len(set(places)), f"two have the same after {action} of {number}"
    for _ in range(12):
        for client in clients:
            client.beat()
            client.take()
    group = world.consumer_group()
    assert group.state is ConsumerGroupState.STABLE
    wanted = {"rows"}.union(*(client.topics for client in clients))
    everything = sum(world.topics.created[name].partition_count for name in wanted)
    assert len(owned_by(clients)) == everything
