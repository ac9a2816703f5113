"""Goal: what happens while `__consumer_offsets` or `__share_group_state` is being read lasts, though the
reading finds the log as it was when it began (T200). What is found is read as far as it can be.

Method: a whole broker starts anew, and is held in the middle of a reading, before or behind the moment at
which the reading fixes where it ends; a client does its work meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.groups import records
from broker.groups.consumer import changes
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.coordinator import GroupCoordinator
from broker.groups.kinds import Change, RecordKey
from broker.groups.offsets import Commit
from broker.groups.records import group_key, offset_key
from broker.partition import Partition
from broker.state_topic import StateTopic, partition_for
from broker.topic import OFFSETS_TOPIC, SHARE_STATE_TOPIC, Topic
from config.broker import BrokerConfig
from protocol.errors import ErrorCode
from protocol.messages.group_offsets import OffsetFetchRequest
from protocol.messages.groups import DeleteGroupsRequest
from protocol.messages.internal_consumer_groups import ConsumerGroupCurrentMemberAssignmentValue
from protocol.messages.share_groups import AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest
from protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from protocol.messages.transactions import WriteTxnMarkersRequest
from protocol.records import encode_batch
from storage.layout import TopicPartition
from storage.log import Log
from storage.types import Origin
from tests.broker.client import Client, until
from tests.broker.conftest import World
from tests.broker.groups.world import ROWS_0
from tests.broker.groups.world import World as GroupWorld
from tests.broker.share.test_share_groups import Member, stands
from tests.broker.test_lifecycle import is_answered
from tests.broker.transactions.producer import T, Transactional
from tests.broker.transactions.test_offsets import begun, fetched

G = TopicPartition(OFFSETS_TOPIC, partition_for("g", 2))


class Held:
    """Readings of a topic stand still until `let_go`. What they find is the log as it was before, or as it is
    then.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str, *, is_old: bool = True) -> None:
        self.reached, self._free = threading.Event(), threading.Event()
        scan = Log.scan

        def held(log: Log, *place: Any) -> Any:
            if log.topic_partition.topic != topic:
                return scan(log, *place)
            found = scan(log, *place)
            self.reached.set()
            self._free.wait(60)
            return found if is_old else scan(log, *place)

        monkeypatch.setattr(Log, "scan", held)

    def let_go(self) -> None:
        self._free.set()


@asynccontextmanager
async def starting(
    world: World, monkeypatch: pytest.MonkeyPatch, topic: str = OFFSETS_TOPIC, *, is_old: bool = True
) -> AsyncIterator[None]:
    """A broker that starts anew and is held while it reads `topic`; behind it the start is over."""
    await world.stop()
    held, old = Held(monkeypatch, topic, is_old=is_old), world.broker
    start = asyncio.ensure_future(world.start())
    try:
        await until(lambda: held.reached.is_set() and world.broker is not old and is_answered(world.broker))
        yield
    finally:
        held.let_go()
        await start


@pytest.fixture(params=[True, False], ids=["behind", "within"])
def is_old(request: pytest.FixtureRequest) -> bool:
    """Whether what the reading finds is from before the marker."""
    return bool(request.param)


async def undecided(world: World) -> Transactional:
    """Offset 1 of t-0 is committed, 5 is by a transaction that goes on."""
    tx = await begun(world)
    await world.commit(tx.client)
    assert await tx.add_offsets() == 0
    assert await tx.commit_offsets({T: 5}) == [0]
    return tx


@pytest.mark.parametrize("is_commit", [True, False], ids=["committed", "aborted"])
async def test_a_transaction_may_end(
    world: World, monkeypatch: pytest.MonkeyPatch, is_commit: bool, is_old: bool
) -> None:
    tx = await undecided(world)
    async with starting(world, monkeypatch, is_old=is_old):
        tx.client = await world.connect()
        assert await tx.end(is_commit=is_commit) == 0
        assert world.broker.groups._store.is_loading
    assert await fetched(tx.client, stable=True) == [(5 if is_commit else 1, 0), (-1, 0)]
    assert await tx.add_offsets() == 0
    assert await tx.commit_offsets({T: 7}) == [0]
    assert await tx.end(is_commit=True) == 0
    assert await fetched(tx.client, stable=True) == [(7, 0), (-1, 0)]


@pytest.mark.parametrize("is_commit", [True, False], ids=["committed", "aborted"])
async def test_an_administrator_may_end_a_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch, is_commit: bool, is_old: bool
) -> None:
    tx = await undecided(world)
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    wanted = marker(
        producer_id=tx.producer.producer_id,
        producer_epoch=tx.producer.epoch,
        transaction_result=is_commit,
        topics=[marker.WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=[G.partition])],
    )
    async with starting(world, monkeypatch, is_old=is_old):
        client = await world.connect()
        answer = await client.ask(WriteTxnMarkersRequest(markers=[wanted]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0
    assert await fetched(client, stable=True) == [(5 if is_commit else 1, 0), (-1, 0)]


@pytest.mark.parametrize("is_commit", [True, False], ids=["committed", "aborted"])
async def test_a_transaction_may_end_while_a_log_that_came_back_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch, is_commit: bool, is_old: bool
) -> None:
    tx = await undecided(world)
    await start_unreadable(world, monkeypatch)
    tx.client = await world.connect()
    assert await fetched_code(tx) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    held = Held(monkeypatch, OFFSETS_TOPIC, is_old=is_old)
    reading = asyncio.ensure_future(world.broker.groups.load_again(G))
    await until(held.reached.is_set)
    assert await tx.end(is_commit=is_commit) == 0
    held.let_go()
    await reading
    assert await fetched(tx.client, stable=True) == [(5 if is_commit else 1, 0), (-1, 0)]


async def test_a_transaction_may_end_where_nothing_can_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = await undecided(world)
    await start_unreadable(world, monkeypatch)
    tx.client = await world.connect()
    assert await tx.end(is_commit=True) == 0
    await world.broker.groups.load_again(G)
    assert await fetched(tx.client, stable=True) == [(5, 0), (-1, 0)]


async def test_offsets_are_made_of_their_records_on_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 000 of one partition held everybody up for seven seconds, once clients were answered."""
    tx = await undecided(world)
    threads, real = [], records.read_commit

    def watched(value: bytes, log_offset: int) -> Commit:
        threads.append(threading.current_thread())
        return real(value, log_offset)

    monkeypatch.setattr("broker.groups.contents.read_commit", watched)
    await world.restart()
    tx.client = await world.connect()
    assert await fetched(tx.client, stable=False) == [(1, 0), (-1, 0)]
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_a_transaction_whose_end_was_lost_ends_for_its_group_as_well(world: World) -> None:
    """When the log of the coordinator's state comes back."""
    tx = await undecided(world)
    state = world.broker.transactions.states["tx"]
    world.broker.transactions._set("tx", state.fenced(world.clock.now_ms()).completed(world.clock.now_ms()))
    await world.broker.transactions.load_again(G)
    await until(lambda: not world.broker.groups.undecided_offsets("g"))
    assert await fetched(tx.client, stable=True) == [(1, 0), (-1, 0)]


async def start_unreadable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts anew and cannot read what groups there are."""
    await world.stop()
    real: Callable[..., Any] = StateTopic._load_one

    async def fails(topic: Any, index: int, apply: Any) -> None:
        if topic.name == OFFSETS_TOPIC:
            raise OSError(errno.EIO, "as a test says")
        await real(topic, index, apply)

    with monkeypatch.context() as patches:
        patches.setattr(StateTopic, "_load_one", fails)
        await world.start()


async def fetched_code(tx: Transactional) -> int:
    """What a group's OffsetFetch is refused with."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = await tx.client.ask(OffsetFetchRequest(groups=[group]), 8)
    return int(answer.groups[0].error_code)


async def recreated(client: Client) -> None:
    """Another topic t takes the place of the one that is there."""
    deleted = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    assert (await client.ask(deleted, 3)).responses[0].error_code == 0
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    created = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    assert (await client.ask(created, 5)).topics[0].error_code == 0


async def test_a_new_topic_has_no_offsets_of_one_that_was_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    tx = await undecided(world)
    async with starting(world, monkeypatch, is_old=is_old):
        client = await world.connect()
        await recreated(client)
    assert await fetched(client, stable=True) == [(-1, 0), (-1, 0)]
    await world.commit(client)
    await world.restart()
    tx.client = await world.connect()
    assert await fetched(tx.client, stable=True) == [(1, 0), (-1, 0)]
    assert await tx.end(is_commit=True) == 0
    assert await fetched(tx.client, stable=True) == [(1, 0), (-1, 0)]


async def test_a_new_topic_has_no_offsets_of_one_whose_deletion_a_crash_interrupted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start ends it, before anybody is served."""
    await undecided(world)
    world.broker.topics.begin_deletion("t")
    for place in [place for place in world.broker.partitions if place.topic == "t"]:
        world.broker.forget(place)
    async with starting(world, monkeypatch):
        world.topic("t", 2)
    assert await fetched(await world.connect(), stable=True) == [(-1, 0), (-1, 0)]


@pytest.mark.parametrize("is_old_record", [False, True], ids=["with ids", "as written without"])
async def test_a_crash_before_offsets_are_read_gives_a_new_topic_none_of_its_namesakes(
    world: World, monkeypatch: pytest.MonkeyPatch, is_old_record: bool
) -> None:
    """The deletion could write no tombstone for what it did not know yet: the record names its topic. One
    that does not, of an older version, is taken for the topic's that the next start finds.
    """
    if is_old_record:
        monkeypatch.setattr(records, "_OFFSET_VALUE", 3)
    await undecided(world)
    with monkeypatch.context() as crashing:
        crashing.setattr(GroupCoordinator, "_forget_lost_topics", lambda *_: None)
        async with starting(world, crashing):
            await recreated(await world.connect())
        await world.stop()
    await world.start()
    expected = [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (-1, 0)] if is_old_record else [(-1, 0), (-1, 0)]
    assert await fetched(await world.connect(), stable=True) == expected


async def test_a_new_topic_has_no_offsets_that_could_not_be_read_when_its_namesake_was_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = await undecided(world)
    await start_unreadable(world, monkeypatch)
    tx.client = await world.connect()
    await recreated(tx.client)
    await world.broker.groups.load_again(G)
    assert await fetched(tx.client, stable=True) == [(-1, 0), (-1, 0)]
    await world.commit(tx.client)
    await world.restart()
    assert await fetched(await world.connect(), stable=True) == [(1, 0), (-1, 0)]


async def test_there_is_no_new_topic_before_it_is_durable_that_nobody_stands_in_the_old_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may take the tombstones back: until the deletion is over the next start ends it."""
    await undecided(world)
    partition, ended, waited = world.broker.partitions[G], [], []
    log, flush, when_flushed = partition.log, Partition.flush, Partition.when_flushed
    end = world.broker.topics.end_deletion

    def noted_end(topic: Topic) -> None:
        ended.append(log.recovery_point == log.log_end_offset)
        end(topic)

    def noted_wait(one: Partition, offset: int) -> Any:
        waited.extend([offset] if one is partition else [])
        return when_flushed(one, offset)

    monkeypatch.setattr(world.broker.topics, "end_deletion", noted_end)
    monkeypatch.setattr(Partition, "when_flushed", noted_wait)
    monkeypatch.setattr(Partition, "flush", lambda one: None if one is partition else flush(one))
    deletion = asyncio.ensure_future(world.broker.deletions.delete("t"))
    await until(lambda: ended or len(waited) > 1)  # the first is that of who appended
    monkeypatch.setattr(Partition, "flush", flush)
    partition.flush()
    await deletion
    assert ended == [True]


async def test_where_a_share_group_stands_is_not_changed_before_it_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka: it would be undone."""
    client = await world.connect()
    world.topic("t")
    member = await Member.join(world)
    await member.beat(epoch=-1)
    altered = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    part = altered.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=3)
    topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name="t")
    alter = AlterShareGroupOffsetsRequest(group_id="g", topics=[altered(topic_name="t", partitions=[part])])
    async with starting(world, monkeypatch, SHARE_STATE_TOPIC):
        client = await world.connect()
        await until(lambda: not world.broker.groups._store.is_loading)
        deleted = DeleteShareGroupOffsetsRequest(group_id="g", topics=[topic])
        codes = [
            (await client.ask(alter, 0)).error_code,
            (await client.ask(deleted, 0)).error_code,
            (await client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code,
        ]
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    assert (await client.ask(alter, 0)).error_code == 0
    assert (await stands(client))[0] == 3


@pytest.mark.parametrize("is_undecided", [False, True])
@pytest.mark.parametrize(
    "key",
    [
        group_key("other"),
        offset_key("other", ROWS_0),
        RecordKey(3, "other").encoded(),
        RecordKey(10, "other", "m").encoded(),
        RecordKey(17, "other").encoded(),
    ],
    ids=["group", "offset", "consumer", "share", "streams"],
)
async def test_a_record_of_a_newer_broker_costs_only_itself(
    key: bytes, is_undecided: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker did not start."""
    memory = GroupWorld()
    memory.commit({ROWS_0: 1})
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True} if is_undecided else {}
    value = (9).to_bytes(2, "big") + bytes(40)
    batch = encode_batch([(0, key, value, ())], now_ms=0, **producer)  # type: ignore[arg-type]
    memory.partitions[memory.groups.place_of("other")].append(batch, 0, Origin.COORDINATOR)
    await memory.restart()
    assert memory.committed() == {ROWS_0: 1}
    is_read = not is_undecided or key == offset_key("other", ROWS_0)
    assert ("unreadable record" in caplog.text) == is_read


def test_a_member_whose_epochs_are_not_one_a_partition_has_its_own() -> None:
    of = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4, assigned_partitions=[of(partitions=[0, 1], assignment_epochs=[3])]
    )
    group = ConsumerGroup("g", BrokerConfig().group_consumer_assignors)
    changes.apply(group, [Change(RecordKey(8, "g", "m"), value)])
    (held,) = group.members["m"].assigned.values()
    assert held == {0: 4, 1: 4}
