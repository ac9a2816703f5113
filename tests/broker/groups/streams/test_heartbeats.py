"""Goal: a task of a streams group (KIP-1071) is active with one member at a time and in one form in a
process, whoever comes, goes, falls silent or cannot be written down.

Method: a coordinator over memory partitions and a manual clock; then random members at random moments, each
of which does what a client does. As Apache Kafka answers is in tests/kafka/test_streams_groups.py.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.epochs import JOIN_EPOCH, LEAVE_EPOCH
from broker.groups.membership import JoinResult
from broker.groups.streams.draft import STANDBY_REPLICAS
from broker.groups.streams.group import StreamsGroup, StreamsGroupState
from broker.groups.streams.heartbeats import StreamsBeat, StreamsHeartbeat
from broker.groups.streams.member import Assignment, Endpoint, HeldPartitions, MemberState
from broker.groups.streams.topology import StatusCode
from config.broker import BrokerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.internal_streams_groups import StreamsGroupTopologyValue
from protocol.messages.streams_groups import Subtopology, TopicInfo
from tests.broker.groups.world import REBALANCE_TIMEOUT_MS, ROWS_0, ROWS_1, World, refused

SESSION_MS = BrokerConfig().group_streams_session_timeout_ms
HALF_MS = SESSION_MS // 2
INTERVAL_MS = 15_000
ROWS = StreamsGroupTopologyValue(subtopologies=[Subtopology(subtopology_id="0", source_topics=["rows"])])
STORED = StreamsGroupTopologyValue(
    subtopologies=[
        Subtopology(
            subtopology_id="0",
            source_topics=["rows"],
            state_changelog_topics=[TopicInfo(name="log")],
        ),
        Subtopology(subtopology_id="1", source_topics=["columns"]),
    ]
)
BOTH = Assignment({"0": frozenset((0, 1))})
FIRST, SECOND = Assignment({"0": frozenset((0,))}), Assignment({"0": frozenset((1,))})


class Streams(World):
    """Members of one group, with what each was told to have."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(**{"group_streams_initial_rebalance_delay_ms": 0, **changes})

    def beats(self, member_id: str, epoch: int | None = None, **changes: Any) -> StreamsBeat:
        """As a client that says who it is when it joins; without an epoch the member's own."""
        if epoch is None:
            epoch = self.streams_group().members[member_id].epoch
        joins = epoch == JOIN_EPOCH
        request = StreamsHeartbeat(
            group_id="g",
            member_id=member_id,
            epoch=epoch,
            endpoints_epoch=0,
            rack_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else None,
            topology=ROWS if joins else None,
            owned=Assignment() if joins else None,
            process_id=member_id.upper() if joins else None,
            endpoint=None,
            client_tags=None,
            wants_shutdown=False,
        )
        return self.groups.beat_streams(dataclasses.replace(request, **changes))

    def streams_group(self) -> StreamsGroup:
        group = self.groups.find("g")
        assert isinstance(group, StreamsGroup)
        return group


def settled() -> Streams:
    """Two members have a task each."""
    world = Streams()
    assert world.beats("a", 0).assigned == BOTH
    assert world.beats("b", 0).assigned == Assignment()
    assert world.beats("a", owned=BOTH).assigned == FIRST
    assert world.beats("a", owned=FIRST).epoch == 3
    assert world.beats("b", owned=Assignment()).assigned == SECOND
    assert world.streams_group().state is StreamsGroupState.STABLE
    return world


async def test_a_silent_member_is_fenced_and_the_others_get_what_it_had() -> None:
    world = settled()
    world.clock.advance(HALF_MS)
    world.beats("b")
    world.clock.advance(HALF_MS - 1)
    assert "a" in world.streams_group().members
    world.clock.advance(1)
    assert refused(lambda: world.beats("a", 3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beats("b", owned=SECOND).assigned == BOTH


async def test_what_the_threads_of_an_instance_have_is_told_together() -> None:
    """Clients keep one row of an endpoint: of two they would look for keys at the last one's partitions."""
    world = Streams()
    here, there = Endpoint("here", 1), Endpoint("there", 2)
    world.beats("a", 0, endpoint=here, process_id="H")
    world.beats("b", 0, endpoint=here, process_id="H")
    world.beats("a", owned=BOTH)
    world.beats("a", owned=FIRST)
    world.beats("b", owned=Assignment())
    world.beats("c", 0, endpoint=there)
    told = world.beats("a", endpoints_epoch=-1).endpoints
    assert told == [HeldPartitions(there, [], []), HeldPartitions(here, [("rows", [0, 1])], [])]
    world.topics.create("log", 2, {})
    world.beats("c", endpoint=here)
    (everybody,) = world.beats("c", endpoints_epoch=-1).endpoints or ()
    assert everybody == HeldPartitions(here, [("rows", [0, 1])], [])
    for member_id in "bc":
        world.beats(member_id, LEAVE_EPOCH)
    world.beats("a", owned=FIRST)
    assert world.beats("a", endpoints_epoch=-1).endpoints == [HeldPartitions(here, [("rows", [0, 1])], [])]


async def test_a_heartbeat_that_changes_nothing_costs_nothing_that_grows_with_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of who is there and who has what no copy is made."""
    world = settled()

    def copied(group: StreamsGroup) -> None:
        raise AssertionError(group.group_id)

    monkeypatch.setattr(StreamsGroup, "detach", copied)
    assert world.beats("a", owned=FIRST) == dataclasses.replace(world.beats("a"), flushed=None)


async def test_who_does_not_give_back_in_time_is_fenced() -> None:
    world = Streams()
    world.beats("a", 0)
    world.beats("b", 0)
    for _ in range(REBALANCE_TIMEOUT_MS // 10_000):
        world.beats("b")
        world.beats("a", owned=BOTH)
        world.clock.advance(10_000)
    assert "a" not in world.streams_group().members
    assert world.beats("b", owned=Assignment()).assigned == BOTH


async def test_who_gives_back_in_time_is_not() -> None:
    world = settled()
    for _ in range(2 * REBALANCE_TIMEOUT_MS // 10_000):
        world.beats("a", owned=FIRST)
        world.beats("b", owned=SECOND)
        world.clock.advance(10_000)
    assert world.streams_group().members.keys() == {"a", "b"}


async def test_who_lost_an_answer_is_told_its_tasks_again() -> None:
    """Kafka says nothing then, and the tasks are with a member that does not know it."""
    world = Streams()
    world.beats("a", 0)
    world.beats("b", 0)
    assert world.beats("a", owned=BOTH).assigned == FIRST
    assert world.beats("a", owned=BOTH).assigned == FIRST, "it was lost"
    assert world.beats("a", 2, owned=FIRST).epoch == 3
    assert world.beats("a", 2, owned=FIRST).epoch == 3, "it was lost"
    assert world.beats("b", owned=Assignment()).assigned == SECOND
    assert world.beats("b", owned=Assignment()).assigned == SECOND, "it was lost"
    assert world.beats("b", owned=SECOND).assigned is None


async def test_a_new_group_waits_for_more_members() -> None:
    world = Streams(group_streams_initial_rebalance_delay_ms=3000)
    told = world.beats("a", 0)
    assert (told.epoch, told.assigned) == (1, Assignment())
    assert [status.code for status in told.statuses] == [StatusCode.ASSIGNMENT_DELAYED]
    world.clock.advance(2999)
    assert world.beats("b", 0).assigned == Assignment()
    world.clock.advance(1)
    assert not world.beats("a", owned=Assignment()).statuses
    held = [world.streams_group().members[one].assigned.without_epochs() for one in "ab"]
    assert held[0] == FIRST
    assert world.beats("b", owned=Assignment()).assigned == SECOND
    assert world.beats("c", 0).statuses == [], "only who begins waits"


async def test_a_group_is_divided_anew_only_so_often() -> None:
    world = Streams(group_streams_assignment_interval_ms=INTERVAL_MS)
    assert world.beats("a", 0).assigned == BOTH
    told = world.beats("b", 0)
    assert (told.epoch, told.assigned) == (2, Assignment())
    assert [status.code for status in told.statuses] == [StatusCode.ASSIGNMENT_DELAYED]
    world.clock.advance(INTERVAL_MS // 2)
    assert world.beats("a", owned=BOTH).statuses != []
    world.clock.advance(INTERVAL_MS // 2)
    assert world.beats("a", owned=BOTH).assigned == FIRST


async def test_a_group_that_was_divided_just_before_is_not_for_who_begins_it_anew() -> None:
    world = Streams(
        group_streams_initial_rebalance_delay_ms=100, group_streams_assignment_interval_ms=INTERVAL_MS
    )
    world.beats("a", 0)
    world.clock.advance(100)
    world.beats("a", LEAVE_EPOCH)
    world.beats("b", 0)
    world.clock.advance(100)
    assert world.streams_group().state is StreamsGroupState.ASSIGNING
    world.clock.advance(INTERVAL_MS)
    assert world.beats("b", owned=Assignment()).assigned == BOTH


async def test_a_group_that_everybody_left_while_it_waited_is_divided_when_somebody_comes() -> None:
    world = Streams(group_streams_initial_rebalance_delay_ms=3000)
    world.beats("a", 0)
    world.beats("a", LEAVE_EPOCH)
    world.clock.advance(3000)
    assert world.streams_group().is_empty
    world.beats("b", 0)
    world.clock.advance(3000)
    assert world.beats("b", owned=Assignment()).assigned == BOTH


async def test_the_answer_waits_for_the_disk_and_a_plain_heartbeat_does_not() -> None:
    world = Streams()
    world.hold_flushes()
    joined = world.beats("a", 0)
    assert joined.flushed is not None and not joined.flushed.done()
    await world.flush()
    assert joined.flushed.done()
    assert world.beats("a").flushed is None


async def test_what_cannot_be_written_has_not_happened() -> None:
    world = settled()
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    before = world.streams_group().members["a"]
    assert refused(lambda: world.beats("c", 0)) is ErrorCode.NOT_COORDINATOR, "what clients try again"
    assert refused(lambda: world.beats("b", LEAVE_EPOCH)) is ErrorCode.NOT_COORDINATOR
    group = world.streams_group()
    assert (group.members.keys(), group.members["a"], group.epoch) == ({"a", "b"}, before, 3)
    world.clock.advance(SESSION_MS)
    assert group.members.keys() == {"a", "b"}, "fenced without a record"
    world.refuse_appends(None)
    world.clock.advance(SESSION_MS)
    assert group.is_empty


async def test_a_group_that_cannot_be_written_is_not_there() -> None:
    world = Streams()
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    assert refused(lambda: world.beats("a", 0)) is ErrorCode.NOT_COORDINATOR
    assert world.groups.find("g") is None


async def test_a_first_division_that_cannot_be_written_comes_with_the_next_heartbeat() -> None:
    world = Streams(group_streams_initial_rebalance_delay_ms=3000)
    world.beats("a", 0)
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    world.clock.advance(3000)
    world.refuse_appends(None)
    assert world.beats("a", owned=Assignment()).assigned == BOTH


async def test_topics_that_come_and_grow_are_divided_anew() -> None:
    world = Streams()
    del world.topics.created["columns"]
    told = world.beats("a", 0, topology=STORED)
    assert [status.code for status in told.statuses] == [StatusCode.MISSING_SOURCE_TOPICS]
    assert world.streams_group().state is StreamsGroupState.NOT_READY
    world.topics.create("columns", 1, {})
    told = world.beats("a")
    assert [status.code for status in told.statuses] == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert [(info.name, told.configured.sizes[info.name]) for info in told.configured.missing] == [("log", 2)]
    world.topics.create("log", 2, {})
    told = world.beats("a", owned=Assignment())
    assert told.assigned == Assignment({"0": frozenset((0, 1)), "1": frozenset((0,))})
    world.topics.create("columns", 3, {})
    told = world.beats("a", owned=told.assigned)
    assert told.assigned == Assignment({"0": frozenset((0, 1)), "1": frozenset((0, 1, 2))})


async def test_a_setting_of_the_group_is_followed() -> None:
    world = settled()
    world.topics.create("log", 2, {})
    world.beats("a", LEAVE_EPOCH)
    world.beats("b", LEAVE_EPOCH)
    world.groups.delete_group("g")
    first, second = (world.beats(one, 0, topology=STORED) for one in "ab")
    assert first.assigned is not None and second.assigned is not None
    world.group_settings.overrides["g"] = {"streams.num.standby.replicas": "1"}
    held = {"a": first.assigned, "b": second.assigned}
    for _ in range(6):
        for one, owned in held.items():
            held[one] = world.beats(one, owned=owned).assigned or owned
    assert world.streams_group().assignment_configs == {STANDBY_REPLICAS: "1"}
    copied = Counter(
        partition for owned in held.values() for partition in owned.standby.get("0", frozenset())
    )
    assert copied == {0: 1, 1: 1}


async def test_a_restart_keeps_members_tasks_and_topology() -> None:
    world = settled()
    before = world.streams_group()
    world.commit({ROWS_0: 7}, by=None, group_id="other")
    await world.restart()
    after = world.streams_group()
    for name in ("epoch", "target_epoch", "targets", "members", "topology", "validated_epoch"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.state is StreamsGroupState.STABLE
    world.clock.advance(SESSION_MS - 1)
    assert world.beats("a", owned=FIRST).assigned is None
    world.clock.advance(1)
    assert after.members.keys() == {"a"}, "who stays silent has its session"


async def test_a_restart_while_a_member_has_to_give_back_keeps_its_deadline() -> None:
    world = Streams()
    world.beats("a", 0)
    world.beats("b", 0)
    world.beats("a", owned=BOTH)
    await world.restart()
    assert world.streams_group().members["a"].state is MemberState.UNREVOKED_TASKS
    for _ in range(REBALANCE_TIMEOUT_MS // 10_000):
        world.beats("b")
        world.beats("a", owned=BOTH)
        world.clock.advance(10_000)
    assert "a" not in world.streams_group().members


async def test_nobody_joins_while_groups_are_read() -> None:
    """A group that is made meanwhile would lose its offsets."""
    world = Streams()
    world.commit({ROWS_0: 7})
    world.groups._store._loading.update(range(3))
    for epoch in (JOIN_EPOCH, 1, LEAVE_EPOCH):
        loading = refused(lambda epoch=epoch: world.beats("a", epoch))
        assert loading is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.groups._store._loading.clear()
    world.beats("a", 0)
    world.beats("a", LEAVE_EPOCH)
    assert world.committed() == {ROWS_0: 7}


async def test_a_deleted_group_is_gone_after_a_restart() -> None:
    world = settled()
    assert refused(lambda: world.groups.delete_group("g")) is ErrorCode.NON_EMPTY_GROUP
    for one in "ab":
        world.beats(one, LEAVE_EPOCH)
    world.groups.delete_group("g")
    await world.restart()
    assert world.groups.find("g") is None


@pytest.mark.parametrize("kind", [17, 19, 20, 21, 22, 23])
@pytest.mark.parametrize("is_left", [True, False], ids=["left", "lost"])
async def test_a_group_of_which_records_are_lost_goes_on_with_who_joins(kind: int, is_left: bool) -> None:
    """Of all its records but one kind, or one kind alone; and it can be deleted for good."""
    before = {record.key or b"": record.value for record in settled().stored()}
    records = [one for one in before.items() if one[1] and (one[0][1] == kind) is is_left]
    world = Streams()
    world.groups._store.append("g", records)
    await world.restart()
    world.beats("c", 0)
    group = world.streams_group()
    for member_id in sorted(group.members) * 9:
        world.beats(member_id, owned=group.members[member_id].assigned.without_epochs())
    assert group.state is StreamsGroupState.STABLE
    held = [task for member in group.members.values() for task in member.assigned.active.get("0", {})]
    assert sorted(held) == [0, 1]
    for member_id in list(group.members):
        world.beats(member_id, LEAVE_EPOCH)
    world.groups.delete_group("g")
    await world.restart()
    assert world.groups.find("g") is None


async def test_a_group_whose_topology_is_lost_is_told_it_by_members_that_join_again() -> None:
    world = settled()
    world.streams_group().topology = None
    assert refused(lambda: world.beats("a", owned=FIRST)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beats("a", 0).assigned == FIRST
    assert world.beats("b", owned=SECOND).assigned is None


async def test_an_empty_group_goes_when_its_offsets_do() -> None:
    world = settled()
    for one in "ab":
        world.beats(one, LEAVE_EPOCH)
    assert world.commit({ROWS_0: 7}).errors == {ROWS_0: ErrorCode.NONE}
    assert world.expire(world.clock.now_ms()) == 0
    retention_ms = world.config.offsets_retention_minutes * 60_000
    assert world.expire(world.clock.now_ms() + retention_ms + 1) == 1
    assert world.groups.find("g") is None


async def test_the_group_is_not_larger_than_it_may_be() -> None:
    world = Streams(group_streams_max_size=1)
    world.beats("a", 0)
    assert refused(lambda: world.beats("b", 0)) is ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_a_shutdown_is_told_to_everybody_until_all_have_left() -> None:
    """Kafka's `shutdownRequestMemberId`: it ends with the last member, or an application that is started anew
    would end at once.
    """
    world = settled()
    assert shutdowns(world.beats("a", owned=FIRST)) == []
    assert "member a encountered" in shutdowns(world.beats("a", owned=FIRST, wants_shutdown=True))[0]
    assert "member a encountered" in shutdowns(world.beats("b", owned=SECOND, wants_shutdown=True))[0]
    world.beats("a", LEAVE_EPOCH)
    assert "member a encountered" in shutdowns(world.beats("c", 0))[0]
    for member_id in "bc":
        world.beats(member_id, LEAVE_EPOCH)
    assert shutdowns(world.beats("d", 0)) == []


def shutdowns(told: StreamsBeat) -> list[str]:
    return [one.detail for one in told.statuses if one.code is StatusCode.SHUTDOWN_APPLICATION]


async def test_an_older_topology_is_told_at_each_heartbeat() -> None:
    world = Streams()
    world.beats("a", 0, topology=dataclasses.replace(ROWS, epoch=1))
    for told in (world.beats("b", 0), world.beats("b", owned=Assignment())):
        [status] = told.statuses
        assert status.code is StatusCode.STALE_TOPOLOGY
        assert "topology epoch 0 is behind the group's topology epoch 1" in status.detail
    assert world.beats("a", owned=BOTH).statuses == []


@pytest.mark.parametrize("task", [("9", 0), ("0", 2)])
async def test_a_task_that_there_is_not_is_refused(task: tuple[str, int]) -> None:
    world = settled()
    owned = Assignment(standby={task[0]: frozenset((task[1],))})
    assert refused(lambda: world.beats("a", owned=owned)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("owned", [None, BOTH, SECOND, Assignment({"1": frozenset((0,))})])
async def test_who_is_an_epoch_behind_says_that_it_has_no_more_than_it_shall(
    owned: Assignment | None,
) -> None:
    world = settled()
    assert world.beats("a", 2, owned=FIRST).epoch == 3
    assert refused(lambda: world.beats("a", 2, owned=owned)) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_commits_of_an_older_epoch_count_for_what_was_held_since(is_restarted: bool) -> None:
    """KIP-1251: a had the first partition in epoch 2 already, b has got the other one in epoch 3."""
    world = settled()
    if is_restarted:
        await world.restart()
    older = JoinResult("a", generation=2)
    assert world.commit({ROWS_0: 7}, by=older).errors == {ROWS_0: ErrorCode.NONE}
    assert refused(lambda: world.commit({ROWS_1: 7}, by=older)) is ErrorCode.STALE_MEMBER_EPOCH
    retention_ms = world.config.offsets_retention_minutes * 60_000
    assert world.expire(world.clock.now_ms() + retention_ms + 1) == 0, "the members read it"


async def test_a_group_of_another_kind_is_told_from_one_that_is_not_there() -> None:
    world = Streams()
    with pytest.raises(KafkaError, match="Streams group g not found"):
        world.beats("a", 1)
    with pytest.raises(KafkaError, match="Group g not found"):
        world.beats("a", LEAVE_EPOCH)
    await world.form(None)
    for epoch in (JOIN_EPOCH, 1, LEAVE_EPOCH):
        with pytest.raises(KafkaError, match="Group g is not a streams group") as caught:
            world.beats("a", epoch)
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_another_topology_in_the_same_epoch_is_refused() -> None:
    world = settled()
    assert refused(lambda: world.beats("a", 0, topology=STORED)) is ErrorCode.INVALID_REQUEST
    assert world.streams_group().topology == ROWS


async def test_who_says_nothing_of_its_tasks_has_not_given_them_back() -> None:
    world = Streams()
    world.beats("a", 0)
    world.beats("b", 0)
    assert world.beats("a").assigned == FIRST
    assert world.beats("b").assigned is None, "a has both still"
    world.beats("a")
    assert world.streams_group().members["a"].state is MemberState.UNREVOKED_TASKS


async def test_who_has_nothing_to_give_back_need_not_say_so() -> None:
    """Neither who gets more, nor who has let go of it before it is told to."""
    world = settled()
    world.beats("b", LEAVE_EPOCH)
    assert world.beats("a").assigned == BOTH
    assert world.streams_group().state is StreamsGroupState.STABLE
    world.beats("b", 0)
    told = world.beats("a", owned=FIRST)
    assert (told.epoch, told.assigned) == (5, FIRST)
    assert world.beats("b", owned=Assignment()).assigned == SECOND


async def test_who_has_given_back_and_has_to_give_back_more_is_told_so_in_the_next_epoch() -> None:
    """Kafka's `computeNextAssignment(memberEpoch + 1, ...)`."""
    world = Streams()
    world.topics.create("rows", 4, {})
    everything = world.beats("a", 0).assigned
    world.beats("b", 0)
    half = world.beats("a", owned=everything)
    assert half.epoch == 2 and half.assigned is not None
    for member_id in "cd":
        world.beats(member_id, 0)
    told = world.beats("a", owned=half.assigned)
    assert told.epoch == 3 and told.assigned is not None
    assert [len(one.active["0"]) for one in (half.assigned, told.assigned)] == [2, 1]
    assert world.streams_group().members["a"].state is MemberState.UNREVOKED_TASKS
    assert world.beats("a", owned=told.assigned).epoch == 5


async def test_what_an_instance_has_of_a_topic_grows_with_it() -> None:
    """Its tasks, which are as many as its widest topic has partitions, are the same."""
    world = Streams()
    both = Subtopology(subtopology_id="0", source_topics=["rows", "columns"])
    here = Endpoint("here", 1)
    world.beats("a", 0, topology=StreamsGroupTopologyValue(subtopologies=[both]), endpoint=here)
    told = world.beats("a", endpoints_epoch=-1).endpoints
    assert told == [HeldPartitions(here, [("rows", [0, 1]), ("columns", [0])], [])]
    world.beats("b", 0, topology=StreamsGroupTopologyValue(subtopologies=[both]))
    world.topics.create("columns", 2, {})
    told = world.beats("b", endpoints_epoch=-1).endpoints
    assert told == [HeldPartitions(here, [("rows", [0, 1]), ("columns", [0, 1])], [])]


async def test_the_answer_to_who_leaves_waits_for_the_disk() -> None:
    world = settled()
    world.hold_flushes()
    left = world.beats("a", LEAVE_EPOCH)
    assert left.flushed is not None and not left.flushed.done()
    await world.flush()
    assert left.flushed.done()


async def test_who_leaves_may_want_all_others_to_end() -> None:
    world = settled()
    world.beats("c", 0)
    world.beats("c", LEAVE_EPOCH)
    assert shutdowns(world.beats("a")) == []
    world.beats("b", LEAVE_EPOCH, wants_shutdown=True)
    (told,) = shutdowns(world.beats("a"))
    assert "member b " in told
    assert shutdowns(world.beats("a", wants_shutdown=True)) == [told], "it was the first"


async def test_a_member_of_no_known_state_has_to_begin_anew() -> None:
    """As a broker may have written that knows more states."""
    world = settled()
    group = world.streams_group()
    group.put(dataclasses.replace(group.members["a"], state=MemberState.UNKNOWN))
    assert refused(lambda: world.beats("a", owned=FIRST)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beats("a", owned=Assignment()).assigned == FIRST
    assert group.members["a"].state is MemberState.STABLE


STEPS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from("PQR"), st.integers(0, 9)), min_size=5, max_size=80
)


class _Client:
    """What a client of Kafka Streams knows, and does."""

    def __init__(self, world: Streams, member_id: str, process: str) -> None:
        self.process = process
        self.owned = Assignment()
        self._epoch = 0
        self._world = world
        self._member_id = member_id
        self.join()

    def join(self) -> None:
        self.owned = Assignment()
        self._hear(self._world.beats(self._member_id, 0, topology=STORED, process_id=self.process))

    def beat(self, *, loses_answer: bool = False) -> None:
        """Whose first answer is lost says the same once more; who is fenced for that joins again."""
        try:
            if loses_answer:
                self._world.beats(self._member_id, self._epoch, owned=self.owned)
            told = self._world.beats(self._member_id, self._epoch, owned=self.owned)
        except KafkaError as error:
            assert error.code is ErrorCode.FENCED_MEMBER_EPOCH and loses_answer, error
            self.join()
        else:
            self._hear(told)

    def _hear(self, told: StreamsBeat) -> None:
        self._epoch = told.epoch
        if told.assigned is not None:
            self.owned = told.assigned


@settings(max_examples=150)
@given(STEPS, st.integers(0, 2))
def test_a_task_is_active_once_whoever_comes_and_goes(
    steps: list[tuple[str, str, int]], replicas: int
) -> None:
    world = Streams(group_streams_num_standby_replicas=replicas)
    world.topics.create("log", 2, {})
    clients: dict[str, _Client] = {}
    for member_id, process, what in steps:
        if member_id not in clients:
            clients[member_id] = _Client(world, member_id, process)
        elif what == 0:
            world.beats(member_id, LEAVE_EPOCH)
            del clients[member_id]
        else:
            clients[member_id].beat(loses_answer=what == 1)
        _check(clients)
    for _ in range(12):
        for client in clients.values():
            client.beat()
            _check(clients)
    if clients:
        assert world.streams_group().state is StreamsGroupState.STABLE
        active = sorted(task for client in clients.values() for task in _tasks(client.owned, 0))
        assert active == [("0", 0), ("0", 1), ("1", 0)]


def _tasks(owned: Assignment, which: int) -> list[tuple[str, int]]:
    return [(name, one) for name, partitions in owned[which].items() for one in partitions]


def _check(clients: dict[str, _Client]) -> None:
    active = Counter(task for client in clients.values() for task in _tasks(client.owned, 0))
    assert all(count == 1 for count in active.values()), active
    forms = Counter(
        (client.process, task)
        for client in clients.values()
        for which in (0, 1)
        for task in _tasks(client.owned, which)
    )
    assert all(count == 1 for count in forms.values()), forms
