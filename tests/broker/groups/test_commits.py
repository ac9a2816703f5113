"""Goal: committed offsets are kept as long as promised, for whom they were promised (T191-T200, T203).
Method: a coordinator over memory partitions and a manual clock; restarts keep only what was written."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast
from uuid import UUID

import pytest

from broker.background import Background
from broker.groups import coordinator
from broker.groups.commits import lags
from broker.groups.contents import read_contents
from broker.groups.membership import Group, JoinResult
from broker.groups.records import (
    GroupKey,
    OffsetKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_commit,
    read_key,
)
from broker.groups.state import GroupState
from broker.state_topic import Producer, java_hash, partition_for
from broker.topic import OFFSETS_TOPIC
from protocol.batch import CONTROL
from protocol.errors import ErrorCode, KafkaError
from protocol.records import encode_batch
from storage.layout import TopicPartition
from storage.types import Origin
from tests.broker.groups.world import (
    REBALANCE_TIMEOUT_MS,
    ROWS_0,
    ROWS_1,
    SESSION_TIMEOUT_MS,
    MemoryLog,
    World,
    refused,
    settle,
)

if TYPE_CHECKING:
    from broker.broker import Broker

COLUMNS_0 = TopicPartition("columns", 0)
MINUTE_MS = 60_000
RETENTION_MS = 7 * 24 * 60 * MINUTE_MS
OK = ErrorCode.NONE


async def test_t191_a_simple_consumer_commits_only_while_the_group_is_empty() -> None:
    world = World()
    assert world.commit({ROWS_0: 5}).errors == {ROWS_0: OK}
    assert world.committed() == {ROWS_0: 5}
    (leader,) = await world.form(None)
    assert refused(lambda: world.commit({ROWS_0: 6})) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.committed() == {ROWS_0: 5}
    world.groups.leave("g", [(leader.member_id, None)])
    assert world.commit({ROWS_0: 7}).errors == {ROWS_0: OK}


async def test_t191_the_empty_group_id_may_commit_and_fetch() -> None:
    world = World()
    assert world.commit({ROWS_0: 5}, group_id="").errors == {ROWS_0: OK}
    assert world.committed("") == {ROWS_0: 5}


async def test_t192_only_the_current_generation_commits() -> None:
    world = World()
    leader, follower = await world.form(None, None)
    assert world.commit({ROWS_0: 1}, by=follower).errors == {ROWS_0: OK}
    old = leader
    stranger = type(leader)("stranger", generation=1)
    assert refused(lambda: world.commit({ROWS_0: 2}, by=stranger)) is ErrorCode.UNKNOWN_MEMBER_ID
    world.joining(leader.member_id)
    assert world.commit({ROWS_0: 3}, by=follower).errors == {ROWS_0: OK}
    world.joining(follower.member_id)
    assert world.state() is GroupState.COMPLETING_REBALANCE
    assert refused(lambda: world.commit({ROWS_0: 4}, by=old)) is ErrorCode.ILLEGAL_GENERATION
    new = type(leader)(leader.member_id, generation=2)
    assert refused(lambda: world.commit({ROWS_0: 4}, by=new)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.committed() == {ROWS_0: 3}


@pytest.mark.parametrize("producer", [None, Producer(1000, 0)])
async def test_t192_who_says_only_half_of_who_it_is_is_told_what_is_wrong(producer: Producer | None) -> None:
    """Whether or not it commits in a transaction."""
    world = World()
    await world.form("a")
    (member_id,) = world.group().members
    for code, instance_id, by in (
        (ErrorCode.ILLEGAL_GENERATION, None, JoinResult(member_id)),
        (ErrorCode.FENCED_INSTANCE_ID, "a", None),
        (ErrorCode.UNKNOWN_MEMBER_ID, "b", None),
    ):
        said = {"by": by, "instance_id": instance_id, "producer": producer}
        assert refused(lambda said=said: world.commit({ROWS_0: 1}, **said)) is code  # type: ignore[misc]
    assert world.groups.undecided_offsets("g") == set()


async def test_t192_a_generation_of_a_group_that_is_not_there() -> None:
    world = World()
    (leader,) = await world.form(None)
    absent = {"by": leader, "group_id": "x"}
    assert refused(lambda: world.commit({ROWS_0: 1}, **absent, version=8)) is ErrorCode.ILLEGAL_GENERATION
    assert refused(lambda: world.commit({ROWS_0: 1}, **absent, version=9)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.groups.find("x") is None


async def test_a_commit_is_a_sign_of_life() -> None:
    world = World()
    (leader,) = await world.form(None)
    for offset in range(5):
        world.clock.advance(SESSION_TIMEOUT_MS - 1)
        world.commit({ROWS_0: offset}, by=leader)
    assert world.heartbeat(leader) is OK


async def test_t193_metadata_has_a_limit_and_round_trips_below_it() -> None:
    world = World()
    limit = world.config.offset_metadata_max_bytes
    assert limit == 4096
    refusal = world.commit({ROWS_0: 1}, metadata="x" * (limit + 1))
    assert refusal.errors == {ROWS_0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert world.groups.find("g") is None
    world.commit({ROWS_0: 1}, metadata="x" * limit)
    await world.restart()
    assert world.groups.fetch_offsets("g")[ROWS_0].metadata == "x" * limit


async def test_a_commit_for_a_partition_that_is_not_there() -> None:
    world = World()
    absent = TopicPartition("rows", 9)
    outcome = world.commit({ROWS_0: 1, absent: 2})
    assert outcome.errors == {ROWS_0: OK, absent: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.committed() == {ROWS_0: 1}


async def test_a_commit_is_visible_when_it_is_durable_and_not_before() -> None:
    world = World()
    world.commit({ROWS_0: 1})
    world.hold_flushes()
    outcome = world.commit({ROWS_0: 2})
    assert outcome.flushed is not None
    assert world.committed() == {ROWS_0: 1}
    await world.flush()
    assert outcome.errors == {ROWS_0: OK}
    assert world.committed() == {ROWS_0: 2}


async def test_a_commit_whose_flush_fails_is_refused_and_never_visible() -> None:
    world = World()
    world.hold_flushes()
    outcome = world.commit({ROWS_0: 2})
    await world.flush(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert outcome.errors == {ROWS_0: ErrorCode.NOT_COORDINATOR}
    assert world.committed() == {}


async def test_a_commit_whose_flush_fails_does_not_hold_the_offset_before_it() -> None:
    world = World()
    world.commit({ROWS_0: 1})
    world.hold_flushes()
    world.commit({ROWS_0: 2})
    await world.flush(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert world.expire(world.clock.now_ms() + RETENTION_MS) == 1
    assert world.groups.find("g") is None


async def test_t195_a_transactions_commit_whose_flush_fails_counts_for_nothing() -> None:
    """Else the marker would make it visible, and until then a client that asks for what is stable waits."""
    world = World()
    world.commit({ROWS_0: 1})
    world.hold_flushes()
    outcome = world.commit({ROWS_0: 2}, producer=Producer(7, 0))
    assert world.groups.undecided_offsets("g") == {ROWS_0}
    await world.flush(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert outcome.errors == {ROWS_0: ErrorCode.NOT_COORDINATOR}
    assert world.groups.undecided_offsets("g") == set()
    for index in range(3):
        world.groups.end_transaction(TopicPartition(OFFSETS_TOPIC, index), 7, is_commit=True)
    assert world.committed() == {ROWS_0: 1}


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_t195_a_group_of_nothing_but_a_transactions_commit_is_there_and_stays(
    is_restarted: bool,
) -> None:
    world = World()
    world.commit({ROWS_0: 1}, producer=Producer(1000, 0))
    if is_restarted:
        await world.restart()
    assert world.groups.undecided_offsets("g") == {ROWS_0}
    world.expire(world.clock.now_ms() + RETENTION_MS)
    world.groups.end_transaction(world.groups.place_of("g"), 1000, is_commit=True)
    assert world.committed() == {ROWS_0: 1}


async def test_t195_a_transactions_commit_that_names_a_generation_needs_its_member() -> None:
    """Without either it is of a client that knows nothing of members (Kafka's `validateOffsetCommit`)."""
    world = World()
    await world.form(None)
    assert world.commit({ROWS_0: 1}, producer=Producer(7, 0)).errors == {ROWS_0: OK}
    for generation in (0, 1):
        nobody = JoinResult("", generation=generation)
        asked = partial(world.commit, {ROWS_0: 1}, by=nobody, producer=Producer(7, 0))
        assert refused(asked) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_a_commit_that_cannot_be_appended(refusal: ErrorCode, answer: ErrorCode) -> None:
    world = World()
    world.refuse_appends(refusal)
    assert world.commit({ROWS_0: 2}).errors == {ROWS_0: answer}
    assert world.groups.find("g") is None


async def test_t194_what_was_not_committed_is_not_there() -> None:
    world = World()
    world.commit({ROWS_0: 1, COLUMNS_0: 2})
    world.commit({ROWS_1: 3}, group_id="other")
    assert world.committed() == {ROWS_0: 1, COLUMNS_0: 2}
    assert world.committed("other") == {ROWS_1: 3}
    assert world.committed("nobody") == {}


async def test_t196_offsets_expire_after_the_group_was_empty_for_the_retention() -> None:
    world = World()
    (leader,) = await world.form(None)
    world.commit({ROWS_0: 1}, by=leader)
    for _ in range(3):
        world.clock.advance(SESSION_TIMEOUT_MS - 1)
        world.heartbeat(leader)
    assert world.expire(world.clock.now_ms() + RETENTION_MS) == 0
    world.groups.leave("g", [(leader.member_id, None)])
    empty_since_ms = world.clock.now_ms()
    assert world.expire(empty_since_ms + RETENTION_MS - 1) == 0
    assert world.expire(empty_since_ms + RETENTION_MS) == 1
    assert world.groups.find("g") is None
    tombstones = [record.key for record in world.stored() if record.value is None]
    assert tombstones[0] == offset_key("g", ROWS_0)
    assert [read_key(key or b"") for key in tombstones] == [OffsetKey("g", ROWS_0), GroupKey("g")]
    await world.restart()
    assert world.groups.find("g") is None


async def test_t196_a_simple_consumers_offsets_age_one_by_one() -> None:
    world = World()
    world.commit({ROWS_0: 1})
    world.clock.advance(MINUTE_MS)
    world.commit({ROWS_1: 1})
    first_ms = world.clock.now_ms() - MINUTE_MS
    assert world.expire(first_ms + RETENTION_MS) == 1
    assert world.committed() == {ROWS_1: 1}


async def test_t196_a_stable_group_keeps_what_it_subscribes_to() -> None:
    world = World()
    (leader,) = await world.form(None)
    world.commit({ROWS_0: 1, COLUMNS_0: 2}, by=leader)
    world.expire(world.clock.now_ms() + RETENTION_MS)
    assert world.committed() == {ROWS_0: 1}


async def test_t196_a_group_with_members_stays_though_it_has_committed_nothing() -> None:
    world = World()
    (leader,) = await world.form(None)
    assert world.expire(world.clock.now_ms() + RETENTION_MS) == 0
    assert world.heartbeat(leader) is OK
    await world.restart()
    assert world.heartbeat(leader) is OK


async def test_t196_a_group_that_rebalances_keeps_all() -> None:
    """What it subscribes to is being settled: Kafka's `ClassicGroup.offsetExpirationCondition`."""
    world = World()
    (leader,) = await world.form(None)
    world.commit({COLUMNS_0: 1}, by=leader)
    world.joining()
    assert world.state() is GroupState.PREPARING_REBALANCE
    assert world.expire(world.clock.now_ms() + RETENTION_MS) == 0
    world.joining(leader.member_id)
    assert world.state() is GroupState.COMPLETING_REBALANCE
    assert world.expire(world.clock.now_ms() + RETENTION_MS) == 0


async def test_t196_a_commit_may_name_its_own_retention() -> None:
    world = World()
    world.commit({ROWS_0: 1}, version=4, retention_ms=MINUTE_MS)
    await world.restart()
    assert world.expire(world.clock.now_ms() + MINUTE_MS - 1) == 0
    assert world.expire(world.clock.now_ms() + MINUTE_MS) == 1


async def test_t196_a_commit_may_be_kept_for_ever() -> None:
    world = World()
    world.commit({ROWS_0: 1}, version=4, retention_ms=2**63 - 1)
    await world.restart()
    assert world.committed() == {ROWS_0: 1}


async def test_t196_when_an_offset_may_go_is_told_as_it_is_done() -> None:
    """What `kompakt groups` shows; None is for good."""
    world = World()

    def told(place: TopicPartition = ROWS_0) -> int | None:
        group = world.groups.groups["g"]
        return world.groups.expires_ms(group, place.topic, group.offsets.committed[place])

    began_ms = world.clock.now_ms()
    world.commit({ROWS_0: 1}, retention_ms=5_000)
    assert told() == began_ms + 5_000
    world.commit({ROWS_0: 1}, retention_ms=0)
    assert told() == began_ms
    world.commit({ROWS_0: 1})
    assert told() == began_ms + RETENTION_MS
    world.clock.advance(1_000)
    (leader,) = await world.form(None)
    world.commit({COLUMNS_0: 1}, by=leader)
    assert told(COLUMNS_0) == world.clock.now_ms() + RETENTION_MS, "nobody subscribes to it"
    assert told() is None
    world.joining()
    assert told(COLUMNS_0) is None, "the group rebalances"
    world.clock.advance(2 * REBALANCE_TIMEOUT_MS)
    left = [(member_id, None) for member_id in world.group().members]
    world.groups.leave("g", left)
    assert world.state() is GroupState.EMPTY
    assert told() == told(COLUMNS_0) == world.group().state_since_ms + RETENTION_MS
    assert world.expire((told() or 0) - 1) == 0
    assert world.expire(told() or 0) == 2


async def test_t196_others_get_their_turn_while_many_groups_end() -> None:
    world = World()
    names = [f"group-{number}" for number in range(5)]
    for name in names:
        world.commit({ROWS_0: 1}, group_id=name)
    world.clock.advance(RETENTION_MS)
    ending = asyncio.ensure_future(Background(cast("Broker", world)).expire_offsets())
    while names[0] in world.groups.groups:
        assert not ending.done()
        await asyncio.sleep(0)
    assert names[-1] in world.groups.groups  # a client that comes now need not wait for the others
    world.groups.delete_group(names[-1])
    world.commit({ROWS_0: 2}, group_id=names[-1])
    await ending
    assert list(world.groups.groups) == names[-1:]
    assert world.committed(names[-1]) == {ROWS_0: 2}


async def test_t196_others_get_their_turn_where_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of thousands of commits may be looked at in vain."""
    monkeypatch.setattr(coordinator, "COMMITS_A_STEP", 4)
    world = World()
    for number in range(6):
        world.commit({ROWS_0: 1, ROWS_1: 1}, group_id=f"group-{number}")
    assert len(list(world.groups.expire_offsets(world.clock.now_ms()))) == 3
    assert len(list(world.groups.on_topics_deleted(["columns"]))) == 3
    assert len(world.groups.groups) == 6


async def test_t196_a_commit_under_way_holds_its_offset() -> None:
    world = World()
    world.commit({ROWS_0: 1})
    world.hold_flushes()
    world.commit({ROWS_0: 2})
    assert world.expire(world.clock.now_ms() + RETENTION_MS) == 0
    await world.flush()
    assert world.committed() == {ROWS_0: 2}


async def test_t196_a_commit_of_a_transaction_that_goes_on_holds_the_one_before_it() -> None:
    world = World()
    world.commit({ROWS_0: 1})
    world.commit({ROWS_0: 2}, producer=Producer(1000, 0))
    assert world.expire(world.clock.now_ms() + RETENTION_MS) == 0
    world.groups.end_transaction(world.groups.place_of("g"), 1000, is_commit=True)
    assert world.committed() == {ROWS_0: 2}


async def test_t197_only_an_empty_group_is_deleted() -> None:
    world = World()
    (leader,) = await world.form(None)
    world.commit({ROWS_0: 1}, by=leader)
    assert refused(lambda: world.groups.delete_group("g")) is ErrorCode.NON_EMPTY_GROUP
    assert refused(lambda: world.groups.delete_group("x")) is ErrorCode.GROUP_ID_NOT_FOUND
    world.groups.leave("g", [(leader.member_id, None)])
    assert world.groups.delete_group("g") == []
    assert world.groups.find("g") is None
    await world.restart()
    assert world.groups.find("g") is None


async def test_t197_what_cannot_be_deleted_now_is_asked_for_again() -> None:
    """Clients look for the coordinator anew then; to be told of the disk they give up."""
    world = World()
    world.commit({ROWS_0: 1})
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    assert refused(lambda: world.groups.delete_group("g")) is ErrorCode.NOT_COORDINATOR
    assert refused(lambda: world.groups.delete_offsets("g", [ROWS_0])) is ErrorCode.NOT_COORDINATOR
    assert world.committed() == {ROWS_0: 1}


async def test_t198_a_disk_that_takes_no_tombstone_gives_no_offset_of_another_topic() -> None:
    world = World()
    world.commit({ROWS_0: 2, COLUMNS_0: 1})
    world.refuse_appends(ErrorCode.KAFKA_STORAGE_ERROR)
    assert len(list(world.groups.on_topics_deleted(["columns"]))) == 1
    assert world.committed() == {ROWS_0: 2}
    world.topics.created["columns"].topic_id = UUID(int=7)
    world.refuse_appends(None)
    await world.restart()
    assert world.committed() == {ROWS_0: 2}


@pytest.mark.parametrize("way", ["deleted", "expired"])
async def test_t197_a_group_that_kafka_stored_before_its_first_generation_stays_gone(way: str) -> None:
    """Kafka writes an empty group down when somebody begins to join it."""
    world = World()
    never_formed = Group("g", world.clock.now_ms())
    world.offsets_partitions()[partition_for("g", 3)].append(
        encode_batch([(0, group_key("g"), group_value(never_formed, {}), ())], now_ms=0),
        0,
        Origin.COORDINATOR,
    )
    await world.restart()
    assert world.state() is GroupState.EMPTY
    if way == "deleted":
        assert world.groups.delete_group("g") == []
    else:
        world.expire(world.clock.now_ms())
    assert world.groups.find("g") is None
    await world.restart()
    assert world.groups.find("g") is None


async def test_t197_a_commit_in_flight_does_not_bring_a_deleted_group_back() -> None:
    world = World()
    world.commit({ROWS_0: 1})
    world.hold_flushes()
    world.commit({ROWS_0: 2})
    world.groups.delete_group("g")
    await world.flush()
    assert world.groups.find("g") is None
    await world.restart()
    assert world.committed() == {}


async def test_t197_a_commit_in_flight_does_not_bring_back_an_offset_that_was_deleted() -> None:
    """The tombstone lies behind its record, so that after a restart it would be gone."""
    world = World()
    world.commit({ROWS_0: 1, ROWS_1: 1})
    world.hold_flushes()
    world.commit({ROWS_0: 2})
    assert world.groups.delete_offsets("g", [ROWS_0]).errors == {ROWS_0: OK}
    await world.flush()
    assert world.committed() == {ROWS_1: 1}
    await world.restart()
    assert world.committed() == {ROWS_1: 1}


async def test_t197_offset_delete_spares_what_is_subscribed() -> None:
    world = World()
    (leader,) = await world.form(None)
    world.commit({ROWS_0: 1, COLUMNS_0: 2}, by=leader)
    absent = TopicPartition("absent", 0)
    outcome = world.groups.delete_offsets("g", [ROWS_0, COLUMNS_0, absent])
    assert outcome.errors == {
        ROWS_0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        COLUMNS_0: OK,
        absent: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert world.committed() == {ROWS_0: 1}
    world.groups.leave("g", [(leader.member_id, None)])
    for _ in range(2):  # the second time there is none
        assert world.groups.delete_offsets("g", [ROWS_0]).errors == {ROWS_0: OK}
    assert refused(lambda: world.groups.delete_offsets("x", [ROWS_0])) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_t197_what_a_group_subscribed_to_before_it_was_empty_may_go() -> None:
    world = World()
    (leader,) = await world.form(None)
    world.commit({ROWS_0: 1}, by=leader)
    world.groups.leave("g", [(leader.member_id, None)])
    world.joining()
    assert world.groups.delete_offsets("g", [ROWS_0]).errors == {ROWS_0: OK}


async def test_t197_each_topic_of_a_subscription_is_spared() -> None:
    world = World()
    world.topics.create("other", 1, {})
    said = b"\x00\x01\x00\x00\x00\x02\x00\x04rows\x00\x07columns\xff\xff\xff\xff"
    waiter = world.joining(protocols=[("range", said)])
    world.clock.advance(100)
    await world.assign([waiter.result()])
    other = TopicPartition("other", 0)
    world.commit({ROWS_0: 1, COLUMNS_0: 2, other: 3}, by=waiter.result())
    spared = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    outcome = world.groups.delete_offsets("g", [ROWS_0, COLUMNS_0, other])
    assert outcome.errors == {ROWS_0: spared, COLUMNS_0: spared, other: OK}


async def test_t197_offset_delete_of_a_group_that_is_no_consumer_group() -> None:
    world = World()
    waiter = world.joining(protocol_type="connect")
    world.clock.advance(100)
    await world.assign([waiter.result()])
    assert refused(lambda: world.groups.delete_offsets("g", [ROWS_0])) is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x00\x01\x7f\xff\xff\xffrubbish",
        b"\x00\x01\xff\xff\xff\xff",
        b"\x00\x01\x00\x00\x00\x01\x00\x07rows",
        b"\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff",
        b"\x00\x01\x00\x00\x00\x02\x00\x04rows\x00",
        b"\x00\x01\x00\x00\x00\x01\x00\x04row\xff",
    ],
)
async def test_t197_subscriptions_that_do_not_parse_count_as_subscribed(said: bytes) -> None:
    world = World()
    waiter = world.joining(protocols=[("range", said)])
    world.clock.advance(100)
    await world.assign([waiter.result()])
    world.commit({COLUMNS_0: 2}, by=waiter.result())
    outcome = world.groups.delete_offsets("g", [COLUMNS_0])
    assert outcome.errors == {COLUMNS_0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


async def test_t198_a_deleted_topic_takes_its_offsets_along() -> None:
    world = World()
    world.commit({ROWS_0: 1, ROWS_1: 1, COLUMNS_0: 2})
    world.commit({ROWS_0: 3}, group_id="other")
    steps = world.groups.on_topics_deleted(["rows"])
    next(steps)
    assert world.committed() == {COLUMNS_0: 2}
    assert world.committed("other") == {ROWS_0: 3}  # others have their turn before it goes too
    assert list(steps) == [None]
    assert world.committed("other") == {}
    await world.restart()
    assert world.committed() == {COLUMNS_0: 2}


@pytest.mark.parametrize("retention_ms", [-1, RETENTION_MS])
async def test_t198_a_crash_between_a_topics_deletion_and_that_of_its_offsets_is_made_good(
    retention_ms: int,
) -> None:
    """A commit that names its own retention does not say of which topic it is."""
    world = World()
    world.commit({ROWS_0: 1, COLUMNS_0: 2}, retention_ms=retention_ms)
    del world.topics.created["rows"]
    await world.restart()
    assert world.committed() == {COLUMNS_0: 2}
    world.topics.create("rows", 2, {})
    await world.restart()
    assert world.committed() == {COLUMNS_0: 2}


async def test_t199_the_offsets_topic_is_created_as_kafkas() -> None:
    world = World()
    del world.topics.created[OFFSETS_TOPIC]
    await world.groups.ensure_offsets_topic()
    topic = world.topics.created[OFFSETS_TOPIC]
    assert topic.partition_count == 3
    assert topic.overrides["cleanup.policy"] == "compact"
    assert topic.overrides["segment.bytes"] == str(100 * 1024 * 1024)


def test_t199_groups_lie_in_the_partition_where_kafka_looks_for_them() -> None:
    # The numbers are java.lang.String.hashCode's.
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert java_hash("\U0001f600") == 1772899
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
    assert {partition_for(f"group-{number}", 50) for number in range(1000)} == set(range(50))


async def test_t200_a_restart_brings_back_groups_members_generations_and_offsets() -> None:
    world = World()
    leader, follower = await world.form("a", None)
    world.commit({ROWS_0: 1}, by=leader)
    await world.restart()
    group = world.group()
    assert (group.state, group.generation, group.protocol_name) == (GroupState.STABLE, 1, "range")
    assert group.leader_id == leader.member_id
    assert world.committed() == {ROWS_0: 1}
    instance = group.members[leader.member_id].group_instance_id
    assert world.heartbeat(leader, instance) is OK
    answer = world.sync(leader, group_instance_id=instance)
    assert not hasattr(answer, "done")
    assert group.members[follower.member_id].assignment == follower.member_id.encode()
    assert group.subscribed_topics == {"rows"}
    assert group.rebalance_timeout_ms == REBALANCE_TIMEOUT_MS


async def test_t200_restored_members_expire_when_they_do_not_come_back() -> None:
    world = World()
    await world.form(None, None)
    await world.restart()
    world.clock.advance(SESSION_TIMEOUT_MS)
    assert world.state() is GroupState.EMPTY
    assert world.group().generation == 2


async def test_t200_an_empty_group_is_restored_with_the_time_it_became_empty() -> None:
    world = World()
    (leader,) = await world.form(None)
    world.commit({ROWS_0: 1}, by=leader)
    world.groups.leave("g", [(leader.member_id, None)])
    empty_since_ms = world.clock.now_ms()
    world.clock.advance(MINUTE_MS)
    await world.restart()
    assert world.state() is GroupState.EMPTY
    assert world.expire(empty_since_ms + RETENTION_MS) == 1


async def test_t200_while_a_partition_is_read_its_groups_are_not_served() -> None:
    world = World()
    world.commit({ROWS_0: 1})
    answers: list[ErrorCode] = []
    run_blocking = world.run_blocking

    def looking(function: object, *arguments: object) -> object:
        answers.append(refused(lambda: world.groups.fetch_offsets("g")))
        answers.append(refused(lambda: world.groups.list_groups((), ())))
        return run_blocking(function, *arguments)  # type: ignore[arg-type]

    world.run_blocking = looking  # type: ignore[method-assign,assignment]
    await world.restart()
    assert set(answers) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert world.committed() == {ROWS_0: 1}


async def test_t200_a_group_larger_than_the_new_limit_rebalances() -> None:
    world = World()
    await world.form(None, None)
    for most, state in ((2, GroupState.STABLE), (1, GroupState.PREPARING_REBALANCE)):
        world.config = World(group_max_size=most).config
        await world.restart()
        assert world.state() is state


async def test_t203_lag_is_what_is_left_to_read() -> None:
    world = World()
    log = world.partitions[ROWS_0].log
    log.log_start_offset, log.high_watermark = 50, 80
    found = []
    for offset in (70, 10, 90):
        world.commit({ROWS_0: offset})
        found += [lag.lag for lag in lags(world.groups.committed(), world.partitions)]
    assert found == [10, 30, 0]
    world.partitions.pop(ROWS_0)
    assert list(lags(world.groups.committed(), world.partitions)) == []


async def test_groups_are_listed_by_state_and_type() -> None:
    world = World()
    await world.form(None)
    world.commit({ROWS_0: 1}, group_id="simple")

    def names(states: list[str], types: list[str]) -> set[str]:
        return {group.group_id for group in world.groups.list_groups(states, types)}

    assert names([], []) == {"g", "simple"}
    assert names(["stable"], []) == {"g"}
    assert names(["Empty", "Stable"], ["Classic"]) == {"g", "simple"}
    assert names([], ["consumer"]) == set()
    assert names(["nonsense"], []) == set()


def log_of(*batches: bytes) -> MemoryLog:
    log = MemoryLog()
    for batch in batches:
        log.batches.append(log.log_end_offset.to_bytes(8, "big") + batch[8:])
        log.log_end_offset += 1
    return log


def transactional(place: TopicPartition, offset: int, producer_id: int) -> bytes:
    world_commit = read_commit(offset_value_of(offset), 0)
    item = (0, offset_key("g", place), offset_value(world_commit), ())
    return encode_batch([item], producer_id=producer_id, producer_epoch=0, is_transactional=True, now_ms=0)


def offset_value_of(offset: int) -> bytes:
    return b"\x00\x03" + offset.to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\x00\x00" + bytes(8)


def marker(producer_id: int, kind: int) -> bytes:
    item = (0, b"\x00\x00" + kind.to_bytes(2, "big"), bytes(6), ())
    return encode_batch(
        [item], producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True, now_ms=0
    )


def test_t195_a_transactions_offsets_count_from_its_commit_marker_on() -> None:
    """As a topic that Kafka wrote holds them."""
    log = log_of(
        transactional(ROWS_0, 1, 7),
        transactional(ROWS_1, 2, 8),
        transactional(COLUMNS_0, 3, 9),
        marker(7, 1),
        marker(8, 0),
    )
    assert CONTROL
    contents = read_contents(log)  # type: ignore[arg-type]
    undecided = [
        (producer, key, commit.log_offset)
        for producer, rows in contents.undecided.items()
        for key, commit in rows
    ]
    assert undecided == [(9, OffsetKey("g", COLUMNS_0), 2)]
    committed = contents.committed["g"]
    assert {place: commit.offset for place, commit in committed.items()} == {ROWS_0: 1}


def test_records_of_an_unknown_kind_or_without_a_key_are_skipped() -> None:
    known = (0, offset_key("g", ROWS_0), offset_value_of(4), ())
    items = [(0, b"\x00\x63later", b"x", ()), (0, None, b"x", ()), (0, b"\x00\x01\x7f", b"x", ()), known]
    groups, committed, _ = read_contents(log_of(encode_batch(items, now_ms=0)))  # type: ignore[arg-type]
    assert (groups, list(committed["g"])) == ({}, [ROWS_0])


def test_batches_as_the_cleaner_leaves_them_are_read() -> None:
    """With holes, empty, compressed, or many records in one."""

    def item(partition: int, offset: int | None) -> tuple[int, bytes, bytes | None, tuple[()]]:
        value = None if offset is None else offset_value_of(offset)
        return (0, offset_key("g", TopicPartition("rows", partition)), value, ())

    log = MemoryLog()
    log.batches = [
        encode_batch([item(0, 1), item(1, 2)], base_offset=10, offset_deltas=[3, 7], now_ms=0),
        encode_batch([], base_offset=20, last_offset_delta=5, now_ms=0),
        encode_batch([item(1, 3), item(2, 4), item(3, 5)], base_offset=30, codec=4, now_ms=0),
        encode_batch([item(3, None)], base_offset=40, now_ms=0),
    ]
    committed = read_contents(log).committed["g"]  # type: ignore[arg-type]
    assert {place: (commit.log_offset, commit.offset) for place, commit in committed.items()} == {
        TopicPartition("rows", 0): (13, 1),
        TopicPartition("rows", 1): (30, 3),
        TopicPartition("rows", 2): (31, 4),
    }


def test_a_damaged_batch_costs_only_its_own_records() -> None:
    def batch(offset: int) -> bytes:
        return encode_batch([(0, offset_key("g", ROWS_0), offset_value_of(offset), ())], now_ms=0)

    damaged = bytearray(batch(2))
    damaged[-1] ^= 1
    committed = read_contents(log_of(batch(1), bytes(damaged))).committed["g"]  # type: ignore[arg-type]
    assert [commit.offset for commit in committed.values()] == [1]


async def test_settling_leaves_no_futures_behind() -> None:
    world = World()
    world.hold_flushes()
    outcome = world.commit({ROWS_0: 1})
    await world.groups.stop()
    await world.flush()
    await settle()
    assert outcome.errors == {ROWS_0: OK}
