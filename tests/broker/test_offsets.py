"""Goal: offsets by name, by time and by epoch are Kafka's, and deleted records stay deleted.

Method: a whole broker, three batches a minute apart, every special timestamp in every version.
"""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from storage.layout import TopicPartition
from tests.broker.client import Client
from tests.broker.conftest import World
from tests.broker.test_produce import HeldFlushes

MINUTE_MS = 60_000


async def listed(
    client: Client, timestamp: int, version: int = 9, topic: str = "t", **fields: Any
) -> tuple[int, int, int]:
    """(error code, timestamp, offset)."""
    asked = ListOffsetsRequest.ListOffsetsTopic
    partition = asked.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **fields)
    request = ListOffsetsRequest(replica_id=-1, topics=[asked(name=topic, partitions=[partition])])
    answer = (await client.ask(request, version)).topics[0].partitions[0]
    return answer.error_code, answer.timestamp, answer.offset


async def filled(world: World, client: Client, topic: str = "t") -> int:
    """Offsets 0-1, 2-3, 4-5 at start, a minute and two minutes later; the start."""
    start = world.clock.now_ms()
    for number in range(3):
        records = [(b"k", b"%d" % number)] * 2
        await world.produce(client, world.batch(*records, now_ms=start - (2 - number) * MINUTE_MS), topic)
    return start - 2 * MINUTE_MS


@pytest.mark.parametrize("version", range(1, 11))
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
    assert await listed(client, -6, version) == unsupported


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
