"""Goal: offsets by name, by time and by epoch are Kafka's, and deleted records stay deleted.

Method: a whole broker, three batches a minute apart, every special timestamp in every version.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.offsets import SEARCHES_TOGETHER
from protocol.errors import ErrorCode
from protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from storage.data_directory import DataDirectory
from storage.layout import TopicPartition
from tests.broker.client import Client, until
from tests.broker.conftest import World
from tests.broker.test_produce import HeldFlushes

MINUTE_MS = 60_000


async def listed(
    client: Client,
    timestamp: int,
    version: int = 9,
    topic: str = "t",
    isolation_level: int = 0,
    **fields: Any,
) -> tuple[int, int, int]:
    """(error code, timestamp, offset)."""
    asked = ListOffsetsRequest.ListOffsetsTopic
    partition = asked.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **fields)
    topics = [asked(name=topic, partitions=[partition])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
    answer = (await client.ask(request, version)).topics[0].partitions[0]
    return answer.error_code, answer.timestamp, answer.offset


async def filled(world: World, client: Client, topic: str = "t") -> int:
    """Offsets 0-1, 2-3, 4-5 at start, a minute and two minutes later; the start."""
    start = world.clock.now_ms()
    for number in range(3):
        records = [(b"k", b"%d" % number)] * 2
        await world.produce(client, world.batch(*records, now_ms=start - (2 - number) * MINUTE_MS), topic)
    return start - 2 * MINUTE_MS


@pytest.mark.parametrize("version", range(1, 12))
async def test_special_timestamps(world: World, version: int) -> None:
    """G21, S18."""
    world.topic()
    client = await world.connect()
    start = await filled(world, client)
    unsupported = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    assert await listed(client, -1, version) == (0, -1, 6)
    assert await listed(client, -2, version) == (0, -1, 0)
    assert await listed(client, -3, version) == (
        (0, start + 2 * MINUTE_MS, 4) if version >= 7 else unsupported
    )
    assert await listed(client, -4, version) == ((0, -1, 0) if version >= 8 else unsupported)
    assert await listed(client, -5, version) == ((0, -1, -1) if version >= 9 else unsupported)
    assert await listed(client, -6, version) == ((0, -1, -1) if version >= 11 else unsupported)
    assert await listed(client, -7, version) == unsupported
    assert await listed(client, -7, version, topic="none") == unsupported


async def test_offsets_by_time(world: World) -> None:
    """S45; T67."""
    world.topic()
    client = await world.connect()
    start = await filled(world, client)
    assert await listed(client, 0) == (0, start, 0)
    assert await listed(client, start) == (0, start, 0)
    assert await listed(client, start + 1) == (0, start + MINUTE_MS, 2)
    assert await listed(client, start + 2 * MINUTE_MS) == (0, start + 2 * MINUTE_MS, 4)
    assert await listed(client, start + 2 * MINUTE_MS + 1) == (0, -1, -1)


async def test_many_partitions_are_searched_by_time_each_for_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread searches many of them: one that cannot be read leaves the others alone."""
    count = SEARCHES_TOGETHER + 2
    world.topic(partitions=count)
    client = await world.connect()
    now_ms = world.clock.now_ms()
    for index in range(count):
        records = [(b"k", b"%d" % number) for number in range(index % 3)]
        if records:
            await world.produce(client, world.batch(*records, now_ms=now_ms + index), partition=index)

    def unreadable(_: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(
        world.broker.partitions[TopicPartition("t", 4)].log, "offset_for_timestamp", unreadable
    )
    asked = ListOffsetsRequest.ListOffsetsTopic
    partitions = [
        asked.ListOffsetsPartition(partition_index=index, timestamp=now_ms) for index in range(count)
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[asked(name="t", partitions=partitions)])
    answers = (await client.ask(request, 9)).topics[0].partitions
    assert [one.partition_index for one in answers] == list(range(count))
    for index, one in enumerate(answers):
        expected = (0, now_ms + index, 0) if index % 3 else (0, -1, -1)
        if index == 4:
            expected = (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
        assert (one.error_code, one.timestamp, one.offset) == expected


async def test_empty_and_unknown_partitions(world: World) -> None:
    world.topic()
    client = await world.connect()
    assert await listed(client, -1) == (0, -1, 0)
    assert await listed(client, -3) == (0, -1, -1)
    assert await listed(client, 5) == (0, -1, -1)
    assert (await listed(client, -1, topic="missing"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await listed(client, -1, current_leader_epoch=99))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_latest_waits_for_what_was_acknowledged_with_acks_1(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was told that its record is written finds it below the latest offset."""
    world.topic()
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")), acks=1)
    assert await listed(client, -1) == (0, -1, 1)
    flushes = HeldFlushes(world, monkeypatch)
    await world.produce(client, world.batch((b"k", b"v")), acks=1)
    other = await world.connect()
    await world.produce(other, None, acks=1)
    assert world.broker.partitions[TopicPartition("t", 0)].log.high_watermark == 1
    asked = world.broker.partitions[TopicPartition("t", 0)].when_flushed(2)
    assert asked is not None
    flushes.end()
    assert await listed(client, -1) == (0, -1, 2)


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_times_wait_for_what_was_acknowledged_with_acks_1(
    world: World, monkeypatch: pytest.MonkeyPatch, isolation_level: int
) -> None:
    """Whoever was told that its record is written finds it by its time, and as the youngest of all."""
    world.topic()
    client = await world.connect()
    await world.hold_lingering(monkeypatch)
    start = world.clock.now_ms()
    for offset in range(0, 4, 2):
        await world.produce(client, world.batch((b"k", b"v"), now_ms=start + offset), acks=1)
        found = (0, start + offset, offset)
        assert await listed(client, start + offset, isolation_level=isolation_level) == found
        await world.produce(client, world.batch((b"k", b"v"), now_ms=start + offset + 1), acks=1)
        youngest = (0, start + offset + 1, offset + 1)
        assert await listed(client, -3, isolation_level=isolation_level) == youngest


async def test_a_search_by_time_tells_of_the_flush_that_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    client = await world.connect()
    flushes = HeldFlushes(world, monkeypatch)
    await world.produce(client, world.batch((b"k", b"v")), acks=1)
    asked = asyncio.create_task(listed(client, -3))
    await until(lambda: flushes.held)
    flushes.end(OSError(errno.EIO, "as a test says"))
    assert (await asked)[0] == ErrorCode.KAFKA_STORAGE_ERROR


async def test_the_end_of_the_current_epoch_is_that_of_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who seeks behind its own record, with the epoch, must not be sent back as if it had been lost."""
    world.topic()
    client = await world.connect()
    await world.hold_lingering(monkeypatch)
    await world.produce(client, world.batch((b"k", b"v")), acks=1)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[topic(topic="t", partitions=[partition])])
    answer = (await client.ask(request, 4)).topics[0].partitions[0]
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 1)


async def test_end_of_an_epoch(world: World) -> None:
    """G10."""
    world.topic()
    client = await world.connect()
    await filled(world, client)
    epoch = world.broker.partitions[TopicPartition("t", 0)].log.leader_epoch

    async def end(asked_epoch: int, version: int, current: int = -1) -> tuple[int, int, int]:
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        partition = topic.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=asked_epoch
        )
        request = OffsetForLeaderEpochRequest(topics=[topic(topic="t", partitions=[partition])])
        answer = (await client.ask(request, version)).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    for version in (2, 3, 4):
        assert await end(epoch, version) == (0, epoch, 6)
        assert (await end(epoch + 5, version))[1:] == (-1, -1)
        assert (await end(epoch, version, current=epoch + 1))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


async def deleted(client: Client, offset: int, topic: str = "t", version: int = 2) -> tuple[int, int]:
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    partition = asked.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[asked(name=topic, partitions=[partition])], timeout_ms=1000)
    answer = (await client.ask(request, version)).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("offset", [-1, 3])
async def test_what_was_acknowledged_with_acks_1_can_be_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """Not refused, and none of it left over: to the producer the record is there."""
    world.topic()
    client = await world.connect()
    await world.hold_lingering(monkeypatch)
    await world.produce(client, world.batch(*[(b"k", b"v")] * 3), acks=1)
    assert await deleted(client, offset) == (0, 3)
    assert await listed(client, -2) == (0, -1, 3)


async def test_deleting_tells_of_the_flush_that_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topic()
    client = await world.connect()
    flushes = HeldFlushes(world, monkeypatch)
    await world.produce(client, world.batch((b"k", b"v")), acks=1)
    asked = asyncio.create_task(deleted(client, -1))
    await until(lambda: flushes.held)
    flushes.end(OSError(errno.EIO, "as a test says"))
    assert await asked == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


async def test_a_partition_named_twice_is_deleted_from_once(world: World) -> None:
    world.topic("t", 2)
    client = await world.connect()
    await filled(world, client)
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    offsets = [asked.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (9999, 2)]
    other = [asked.DeleteRecordsPartition(partition_index=1, offset=0)]
    topics = [asked(name="t", partitions=offsets), asked(name="t", partitions=other)]
    answer = await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    (topic,) = answer.topics
    rows = [(row.partition_index, row.error_code, row.low_watermark) for row in topic.partitions]
    assert rows == [(0, 0, 2), (1, 0, 0)]


async def test_a_start_that_cannot_be_written_down_is_an_error_of_its_partitions(
    make_world: Callable[..., Awaitable[World]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk was answered as a bug of ours, for the partitions of the other disk too."""
    world = await make_world(log_dirs=f"{tmp_path / 'data'},{tmp_path / 'b'}")
    world.topic("t", 2)
    client = await world.connect()
    for number in range(2):
        await world.produce(client, world.batch((b"k", b"v")), partition=number)
    full = world.broker.partitions[TopicPartition("t", 0)].log.directory.parent
    real = DataDirectory.write_checkpoints

    def write(directory: DataDirectory, *arguments: Any) -> None:
        if directory.path == full:
            raise OSError(errno.ENOSPC, "as a test says")
        real(directory, *arguments)

    async def answers() -> dict[int, tuple[int, int]]:
        asked = DeleteRecordsRequest.DeleteRecordsTopic
        both = [asked.DeleteRecordsPartition(partition_index=number, offset=1) for number in range(2)]
        request = DeleteRecordsRequest(topics=[asked(name="t", partitions=both)], timeout_ms=1000)
        (topic,) = (await client.ask(request, 2)).topics
        return {row.partition_index: (row.error_code, row.low_watermark) for row in topic.partitions}

    monkeypatch.setattr(DataDirectory, "write_checkpoints", write)
    assert await answers() == {0: (ErrorCode.KAFKA_STORAGE_ERROR, -1), 1: (0, 1)}
    assert world.broker.metrics_state.internal_errors == 0
    monkeypatch.undo()
    assert await answers() == {0: (0, 1), 1: (0, 1)}


async def test_delete_records(world: World) -> None:
    """T136, T142, S3."""
    world.topic()
    world.topic("compacted", cleanup_policy="compact")
    client = await world.connect()
    for topic in ("t", "compacted"):
        await filled(world, client, topic)
    assert await deleted(client, 3, version=0) == (0, 3)
    assert await deleted(client, 2, version=1) == (0, 3)
    assert await listed(client, -2) == (0, -1, 3)
    assert await deleted(client, 7) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await deleted(client, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await deleted(client, 3, "compacted") == (ErrorCode.POLICY_VIOLATION, -1)
    assert await deleted(client, 0, "__kompakt_metadata") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert await deleted(client, 0, "missing") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    await world.restart()
    client = await world.connect()
    assert await listed(client, -2) == (0, -1, 3)
    assert await deleted(client, -1) == (0, 6)
    assert (await world.produce(client, world.batch((b"k", b"v")))).base_offset == 6
