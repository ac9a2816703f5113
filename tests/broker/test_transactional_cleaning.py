"""Goal: transactions that another broker wrote, or a coordinator will, are cleaned and shown as Kafka does.

Method: transactional batches and markers are appended to the logs of a running broker as its coordinator
would; readers, groups, the cleaner and the explanation are asked over the broker's own doors.
"""

from __future__ import annotations

import threading

import pytest

from broker.groups.records import offset_key, offset_value, read_commit
from broker.questions.partitions import explained, moment_of
from broker.state_topic import partition_for
from broker.topic import OFFSETS_TOPIC
from protocol.control import Marker, marker_batch
from protocol.messages.fetch import FetchResponse
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.offsets import ListOffsetsRequest
from protocol.messages.transactions import DescribeProducersRequest, WriteTxnMarkersRequest
from protocol.records import Record, decode_all, encode_batch
from storage.layout import TopicPartition
from storage.slice import Slice
from storage.types import Origin
from tests.broker.client import LIMIT_SECONDS, Client, until
from tests.broker.conftest import World, fetch_request
from tests.broker.test_metrics import scrape, value

T = TopicPartition("t", 0)
ROWS = TopicPartition("rows", 0)


class Transaction:
    """One transaction in one partition."""

    def __init__(self, world: World, topic_partition: TopicPartition, producer_id: int = 7) -> None:
        self.world, self.producer_id, self.sequence = world, producer_id, 0
        self.partition = world.broker.partitions[topic_partition]

    async def _append(self, batch: bytes) -> int:
        offset = self.partition.append(batch, self.world.clock.now_ms(), Origin.COORDINATOR).last_offset
        flushed = self.partition.when_flushed(offset + 1)
        if flushed is not None:
            await flushed
        return offset

    async def write(self, *records: tuple[bytes, bytes | None]) -> int:
        batch = self.world.batch(
            *records, producer_id=self.producer_id, producer_epoch=0, base_sequence=self.sequence,
            is_transactional=True,
        )  # fmt: skip
        self.sequence += len(records)
        return await self._append(batch)

    async def end(self, *, is_commit: bool) -> int:
        return await self._append(
            marker_batch(
                Marker(is_commit=is_commit),
                producer_id=self.producer_id,
                producer_epoch=0,
                now_ms=self.world.clock.now_ms(),
            )
        )


async def read(client: Client, isolation_level: int, topic: str = "t") -> list[Record]:
    """What a reader of this isolation level has of partition 0, markers and aborted records left out as
    clients do.
    """
    answer = await client.ask(fetch_request([(topic, 0, 0)], isolation_level=isolation_level), 12)
    partition = answer.responses[0].partitions[0]
    return list(decode_all(partition.records or b""))


async def clean(world: World, topic_partition: TopicPartition = T) -> dict[str, int]:
    world.broker.partitions[topic_partition].log.roll(world.clock.now_ms())
    result = await world.broker.run_blocking(world.broker.cleaner.clean_now, topic_partition)
    return dict(result.removed)


async def test_t100_read_uncommitted_sees_aborted_records_until_they_are_cleaned(world: World) -> None:
    world.topic(cleanup_policy="compact")
    client = await world.connect()
    await world.produce(client, world.batch((b"a", b"committed")))
    transaction = Transaction(world, T)
    await transaction.write((b"a", b"aborted"), (b"b", b"aborted"))
    open_values = [record.value for record in await read(client, 0)]
    assert open_values == [b"committed", b"aborted", b"aborted"], "even while it is undecided"
    await transaction.end(is_commit=False)
    assert [record.value for record in await read(client, 0)] == [b"committed", b"aborted", b"aborted"]
    assert (await clean(world))["aborted"] == 2
    assert [(record.offset, record.value) for record in await read(client, 0)] == [(0, b"committed")]


async def test_t102_a_marker_at_the_end_leaves_a_lag_of_one(world: World) -> None:
    """Offsets are counted, as in Kafka: who committed behind the last record of a transaction lags by its
    marker, although no record is left to read. A client that reads on commits behind the marker.
    """
    world.topic()
    client = await world.connect()
    transaction = Transaction(world, T)
    last = await transaction.write((b"a", b"1"), (b"b", b"2"))
    marker = await transaction.end(is_commit=True)
    assert marker == last + 1
    await client.ask(FindCoordinatorRequest(key="g"), 2)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    lags = []
    for committed in (last + 1, marker + 1):
        place = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=committed)
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=-1, topics=[topic(name="t", partitions=[place])]
        )
        assert (await client.ask(request, 7)).topics[0].partitions[0].error_code == 0
        samples, _ = await scrape(world)
        lags.append(value(samples, "kafka_consumergroup_lag", consumergroup="g", topic="t", partition="0"))
        assert await world.records(client, offset=committed) == []
    assert lags == [1, 0]


def commit_record(group: str, offset: int) -> tuple[bytes, bytes]:
    plain = b"\x00\x03" + offset.to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\x00\x00" + bytes(8)
    return offset_key(group, ROWS), offset_value(read_commit(plain, 0))


async def committed_offset(client: Client) -> int:
    """Of the group g in `ROWS`."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    asked = group(group_id="g", topics=[group.OffsetFetchRequestTopics(name="rows", partition_indexes=[0])])
    answer = await client.ask(OffsetFetchRequest(groups=[asked]), 8)
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


@pytest.mark.parametrize("is_commit", [True, False], ids=["committed", "aborted"])
async def test_t103_offsets_of_a_transaction_are_cleaned_like_any_record(
    world: World, is_commit: bool
) -> None:
    """`__consumer_offsets` has the same cleaner; an aborted transaction's commits vanish, and those before it
    stay. (`__transaction_state` of a directory of Kafka's is cleaned alike.)
    """
    world.topic("rows")
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 2)
    place = TopicPartition(OFFSETS_TOPIC, partition_for("g", 2))
    transaction = Transaction(world, place)
    now_ms = world.clock.now_ms()
    transaction.partition.append(
        encode_batch([(now_ms, *commit_record("g", 5), ())], now_ms=now_ms), now_ms, Origin.COORDINATOR
    )
    await transaction.write(commit_record("g", 9))
    await transaction.end(is_commit=is_commit)
    removed = await clean(world, place)
    assert (removed["aborted"], removed["superseded"]) == ((0, 1) if is_commit else (1, 0))
    log = transaction.partition.log
    kept = [record for _, batch in log.scan(0) for record in decode_all(batch)]
    assert len([record for record in kept if record.key == commit_record("g", 0)[0]]) == 1
    await world.restart()
    assert await committed_offset(await world.connect()) == (9 if is_commit else 5)


async def test_t104_a_hanging_transaction_is_the_reason_that_is_shown(world: World) -> None:
    """Nothing behind its first record is cleaned until a marker ends it: then at once. DescribeProducers
    tells an administrator's client what WriteTxnMarkers wants to know.
    """
    world.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    client = await world.connect()
    transaction = Transaction(world, T, producer_id=42)
    await transaction.write((b"a", b"hanging"))
    for number in range(3):
        await world.produce(client, world.batch((b"b", b"%d" % number)))
    log = world.broker.partitions[T].log
    log.roll(world.clock.now_ms())
    assert world.broker.cleaner.grab() is None
    topic, at = world.broker.topics.get("t"), moment_of(world.broker, T)
    assert topic is not None
    assert at is not None
    answer = (await world.broker.run_blocking(explained, world.broker, topic, [(0, at)], {}))[0]
    assert answer["reason"] == "last_stable_offset"
    assert "open transaction of producer 42" in answer["sentence"]
    assert answer["open_transactions"] == [
        {"producer_id": 42, "first_offset": 0, "since_ms": world.clock.now_ms(), "aborted_ms": None}
    ]
    samples, _ = await scrape(world)
    labels = {"topic": "t", "partition": "0"}
    assert value(samples, "kompakt_uncleanable_bytes", reason="lso", **labels) == log.size_bytes
    assert value(samples, "kompakt_last_stable_offset", **labels) == 0
    asked = ListOffsetsRequest.ListOffsetsTopic
    latest = asked.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(isolation_level=1, topics=[asked(name="t", partitions=[latest])])
    assert (await client.ask(request, 5)).topics[0].partitions[0].offset == 0
    described = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
    told = (await client.ask(DescribeProducersRequest(topics=[described]), 0)).topics[0].partitions[0]
    (hanging,) = [one for one in told.active_producers if one.current_txn_start_offset >= 0]
    assert (hanging.producer_id, hanging.producer_epoch, hanging.current_txn_start_offset) == (42, 0, 0)
    assert (hanging.last_sequence, hanging.last_timestamp) == (0, world.clock.now_ms())
    wanted = WriteTxnMarkersRequest.WritableTxnMarker
    marker = wanted(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        coordinator_epoch=hanging.coordinator_epoch,
        topics=[wanted.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    ended = await client.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert ended.markers[0].topics[0].partitions[0].error_code == 0
    told = (await client.ask(DescribeProducersRequest(topics=[described]), 0)).topics[0].partitions[0]
    assert [one.current_txn_start_offset for one in told.active_producers if one.producer_id == 42] == [-1]
    assert (await clean(world))["aborted"] == 1
    assert [record.value for record in await read(client, 1)] == [b"2"]


@pytest.mark.parametrize("version", [9, 12])
async def test_t99_what_was_aborted_is_told_of_a_segment_that_goes_while_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Its transaction index leaves the log with it; the reader has the records."""
    world.topic(retention_ms="1000")
    transaction = Transaction(world, T)
    await transaction.write((b"a", b"aborted"))
    await transaction.end(is_commit=False)
    log = world.broker.partitions[T].log
    log.roll(world.clock.now_ms())
    is_reading, may_read = threading.Event(), threading.Event()
    warm = Slice.warm

    def held_up(self: Slice) -> None:
        is_reading.set()
        assert may_read.wait(LIMIT_SECONDS)
        warm(self)

    monkeypatch.setattr(Slice, "warm", held_up)
    monkeypatch.setattr(Slice, "_would_wait", lambda self: not self.is_warm)
    client = await world.connect()
    client.send(fetch_request([("t", 0, 0)], isolation_level=1), version)
    await until(is_reading.is_set)
    world.clock.advance(2000)
    assert log.expire(world.clock.now_ms()).removed_segments == 1
    may_read.set()
    answer = (await client.receive(FetchResponse, version))[1].responses[0].partitions[0]
    assert [record.value for record in decode_all(answer.records or b"") if record.key == b"a"]
    assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()] == [(7, 0)]
