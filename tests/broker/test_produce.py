"""Goal: what a producer is told is what happened to its batch.

Method: a whole broker; requests written by hand, so that they can be wrong; flushes held back or failed at
the partition's door.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from broker import connection
from broker.partition import Partition
from protocol.batch import checksum
from protocol.codegen import decode
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponse
from protocol.messages.transactions import InitProducerIdRequest
from storage.layout import TopicPartition
from tests.broker.client import until
from tests.broker.conftest import World, fetch_request, produce_request

ONE = (b"k", b"v")


def partition_of(world: World, topic: str = "t", index: int = 0) -> Partition:
    return world.broker.partitions[TopicPartition(topic, index)]


class HeldFlushes:
    """Flush jobs of topics that end when the test says so; those of the broker's own log go on."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[tuple[Any, Any]] = []
        self._pass_on = world.broker.flusher.submit
        monkeypatch.setattr(world.broker.flusher, "submit", self._submit)

    def _submit(self, job: Any, done: Any) -> None:
        if done.__self__.is_internal:
            self._pass_on(job, done)
        else:
            self.held.append((job, done))

    def end(self, error: OSError | None = None) -> None:
        job, done = self.held.pop(0)
        if error is None:
            job.run()
        done(job, error)


@pytest.mark.parametrize("version", [3, 5, 7, 8, 9, 10, 11])
@pytest.mark.parametrize("acks", [1, -1])
async def test_offsets_count_from_zero_in_each_partition(world: World, version: int, acks: int) -> None:
    """S1, S2."""
    world.topic(partitions=2)
    client = await world.connect()
    for index in (0, 1):
        offsets = [
            (
                await world.produce(
                    client, world.batch(ONE, ONE), partition=index, acks=acks, version=version
                )
            ).base_offset
            for _ in range(3)
        ]
        assert offsets == [0, 2, 4]
    assert await world.values(client, partition=1) == [b"v"] * 6


async def no_lingering(world: World) -> None:
    """Somebody reads at the end of the log: the next append begins a flush at once, and no other time."""
    reader = await world.connect()
    reader.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
    await until(lambda: partition_of(world).high_watermark_waiters)


async def test_who_waits_for_the_flush_behind_one_that_fails_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None follows: without an answer the producer would wait until it gives up."""
    world.topic()
    flushes = HeldFlushes(world, monkeypatch)
    await no_lingering(world)
    clients = [await world.connect() for _ in range(2)]
    log = partition_of(world).log
    for number, client in enumerate(clients):
        client.send(produce_request([("t", 0, world.batch(ONE))], acks=-1), 9)
        await until(lambda: log.log_end_offset == number + 1)  # noqa: B023
    flushes.end(OSError(5, "as a test says"))
    for client in clients:
        answer = (await client.receive(ProduceResponse, 9))[1].responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_what_came_during_a_flush_is_flushed_though_nobody_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    flushes = HeldFlushes(world, monkeypatch)
    await no_lingering(world)
    client = await world.connect()
    for _ in range(2):
        await world.produce(client, world.batch(ONE), acks=1)
    assert len(flushes.held) == 1
    flushes.end()
    await until(lambda: flushes.held)
    flushes.end()
    assert partition_of(world).log.high_watermark == 2


async def test_a_closed_segment_is_flushed_whatever_flush_messages_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka: else a crash would have all of them read again, and their files stay open."""
    world.topic(flush_messages="1000000", segment_bytes="1000")
    flushes = HeldFlushes(world, monkeypatch)
    client = await world.connect()
    log = partition_of(world).log
    while len(log.segments) == 1:
        assert not flushes.held
        await world.produce(client, world.batch((b"k", b"v" * 200)), acks=1)
    (rolled,) = flushes.held[0][0].rolled
    assert rolled is log.segments[0]
    flushes.end()


async def test_records_that_wait_for_a_flush_are_in_the_log_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection may have a thousand requests at work: a disk that hangs would fill the memory."""
    world.topic()
    requests: list[Any] = []

    def noting(*arguments: Any) -> Any:
        requests.append(decode(*arguments))
        return requests[-1]

    monkeypatch.setattr(connection, "decode", noting)
    flushes = HeldFlushes(world, monkeypatch)
    client = await world.connect()
    log = partition_of(world).log
    for number in range(3):
        client.send(produce_request([("t", 0, world.batch((b"k", b"v" * 100_000)))], acks=-1), 9)
        await until(lambda: log.log_end_offset == number + 1)  # noqa: B023
    held = [data.records for request in requests for data in request.topic_data[0].partition_data]
    assert held == [None] * 3
    while flushes.held:
        flushes.end()
    for number in range(3):
        answer = (await client.receive(ProduceResponse, 9))[1].responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)


async def test_acks_all_waits_for_the_flush_and_one_flush_serves_many(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Group commit: what arrives while a flush is in flight shares the next one; acks=1 does not wait."""
    world.topic()
    flushes = HeldFlushes(world, monkeypatch)
    waiting = [await world.connect() for _ in range(3)]
    for number, client in enumerate(waiting):
        client.send(produce_request([("t", 0, world.batch(ONE))]), 9)
        await until(lambda: partition_of(world).log.log_end_offset == number + 1)  # noqa: B023
    assert (await world.produce(await world.connect(), world.batch(ONE), acks=1)).base_offset == 3
    assert len(flushes.held) == 1
    assert partition_of(world).log.high_watermark == 0
    flushes.end()
    assert (await waiting[0].receive(ProduceResponse, 9))[1].responses[0].partition_responses[
        0
    ].base_offset == 0
    assert partition_of(world).log.high_watermark == 1
    assert len(flushes.held) == 1
    flushes.end()
    for number, client in enumerate(waiting[1:], 1):
        answer = (await client.receive(ProduceResponse, 9))[1].responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, number)
    assert partition_of(world).log.high_watermark == 4
    assert not flushes.held


async def test_a_failed_flush_is_not_acknowledged_and_takes_only_its_log_offline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic("bad")
    world.topic("good")
    flushes = HeldFlushes(world, monkeypatch)
    client = await world.connect()
    client.send(produce_request([("bad", 0, world.batch(ONE))]), 9)
    await until(lambda: flushes.held)
    flushes.end(OSError(5, "Input/output error"))
    answer = (await client.receive(ProduceResponse, 9))[1].responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    monkeypatch.undo()
    assert (
        await world.produce(client, world.batch(ONE), "bad", acks=1)
    ).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await world.produce(client, world.batch(ONE), "good")).error_code == 0


async def test_flush_messages_above_one_is_kafkas_durability(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic(flush_messages="3")
    flushes = HeldFlushes(world, monkeypatch)
    client = await world.connect()
    for number in range(3):
        assert (await world.produce(client, world.batch(ONE))).base_offset == number
        assert partition_of(world).log.high_watermark == number + 1
    assert len(flushes.held) == 1
    flushes.end()
    assert partition_of(world).log.recovery_point == 3


async def test_flush_ms_flushes_what_is_old(world: World) -> None:
    world.topic(flush_messages="1000", flush_ms="5000")
    client = await world.connect()
    await world.produce(client, world.batch(ONE))
    log = partition_of(world).log
    await world.broker.background.flush_by_time()
    world.clock.advance(4_999)
    world.clock.set_by(-3_600_000)  # no matter: what was acknowledged has waited as long as it has
    await world.broker.background.flush_by_time()
    assert log.recovery_point == 0
    world.clock.advance(2)
    await world.broker.background.flush_by_time()
    await until(lambda: log.recovery_point == 1)


async def test_a_keyless_record_is_refused_with_its_index_and_others_are_not(world: World) -> None:
    """T144, T145, G24."""
    world.topic("compacted", cleanup_policy="compact")
    world.topic("plain")
    client = await world.connect()
    for codec in (Codec.NONE, Codec.LZ4):
        bad = world.batch(ONE, (None, b"v"), ONE, codec=codec)
        response = await client.ask(produce_request([("compacted", 0, bad), ("plain", 0, bad)]), 9)
        refused, taken = (topic.partition_responses[0] for topic in response.responses)
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert [row.batch_index for row in refused.record_errors] == [1]
        text = refused.record_errors[0].batch_index_error_message
        assert text is not None
        assert text.startswith("Compacted topic cannot accept message without key")
        assert taken.error_code == 0
    counters = world.broker.metrics_state.topics
    assert counters["compacted"].no_key_compacted_topic_records == 2
    assert counters["plain"].messages_in == 6


def resealed(batch: bytes, position: int, data: bytes) -> bytes:
    """`batch` with bytes changed and the checksum right again."""
    changed = bytearray(batch)
    changed[position : position + len(data)] = data
    struct.pack_into(">I", changed, 17, checksum(changed, 0, len(changed)))
    return bytes(changed)


BREAK: dict[str, tuple[Callable[[bytes], bytes | None], ErrorCode]] = {
    "T148 checksum": (lambda batch: batch[:-1] + bytes([batch[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
    "T149 control": (lambda batch: resealed(batch, 21, b"\x00\x20"), ErrorCode.INVALID_RECORD),
    "transactional": (
        lambda batch: resealed(batch, 21, b"\x00\x10"),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "T150 count": (lambda batch: resealed(batch, 57, b"\0\0\0\5"), ErrorCode.INVALID_RECORD),
    "T150 two batches": (lambda batch: batch + batch, ErrorCode.INVALID_RECORD),
    "T151 magic 1": (lambda batch: resealed(batch, 16, b"\1"), ErrorCode.INVALID_RECORD),
    "no batch": (lambda batch: b"", ErrorCode.INVALID_RECORD),
    "null": (lambda batch: None, ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("name", BREAK)
async def test_bad_batches_are_refused_and_nothing_is_written(world: World, name: str) -> None:
    world.topic()
    client = await world.connect()
    spoil, code = BREAK[name]
    answer = await world.produce(client, spoil(world.batch(ONE, ONE)))
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert partition_of(world).log.log_end_offset == 0
    assert (await world.produce(client, world.batch(ONE))).base_offset == 0


async def test_sizes(world: World) -> None:
    """T146."""
    world.topic(max_message_bytes="1000")
    client = await world.connect()
    assert (
        await world.produce(client, world.batch((b"k", b"x" * 2000)))
    ).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await world.produce(client, world.batch((b"k", b"x" * 500)))).error_code == 0


async def test_zstd_needs_version_7(world: World) -> None:
    """T151b."""
    world.topic()
    client = await world.connect()
    batch = world.batch((b"k", b"v" * 100), codec=Codec.ZSTD)
    assert (
        await world.produce(client, batch, version=6)
    ).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await world.produce(client, batch, version=7)).error_code == 0


async def test_who_may_write_where(world: World) -> None:
    world.topic()
    client = await world.connect()
    batch = world.batch(ONE)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await world.produce(client, batch, "missing")).error_code == unknown
    assert (await world.produce(client, batch, partition=1)).error_code == unknown
    assert (
        await world.produce(client, batch, "__kompakt_metadata")
    ).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await world.produce(client, batch, acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert "missing" not in world.broker.metrics_state.topics


async def test_more_replicas_in_sync_are_asked_for_than_there_are(world: World) -> None:
    """T154: as in Kafka, all replicas are enough where there are fewer than a topic asks for."""
    world.topic(min_insync_replicas="2")
    client = await world.connect()
    assert (await world.produce(client, world.batch(ONE))).base_offset == 0
    assert (await world.produce(client, world.batch(ONE), acks=1)).base_offset == 1


async def test_acks_0_is_silent_and_an_error_closes_the_connection(world: World) -> None:
    """G25."""
    world.topic()
    client = await world.connect()
    client.send(produce_request([("t", 0, world.batch(ONE))], acks=0), 9)
    assert await world.values(client) == [b"v"]  # the next answer is that of the fetch
    client.send(produce_request([("missing", 0, world.batch(ONE))], acks=0), 9)
    assert await client.is_closed_by_peer()
    other = await world.connect()
    parts = [("missing", 0, world.batch(ONE)), ("t", 0, world.batch((b"k", b"w")))]
    other.send(produce_request(parts, acks=0), 9)
    assert await other.is_closed_by_peer(), "whatever stands behind what was refused"
    assert await world.values(await world.connect()) == [b"v", b"w"]


async def test_log_append_time(world: World) -> None:
    """T153."""
    world.topic(message_timestamp_type="LogAppendTime")
    client = await world.connect()
    answer = await world.produce(client, world.batch(ONE, now_ms=5))
    assert answer.log_append_time_ms == world.clock.now_ms()
    (record,) = await world.records(client)
    assert record.timestamp == world.clock.now_ms()


async def test_idempotent_producers(world: World) -> None:
    """T155-T159: a duplicate gets its old offset back, a gap is refused, an old epoch too."""
    world.topic()
    client = await world.connect()
    producer_id = (await client.ask(InitProducerIdRequest(transactional_id=None), 4)).producer_id

    async def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
        batch = world.batch(ONE, ONE, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = await world.produce(client, batch)
        return answer.error_code, answer.base_offset

    assert [await send(sequence) for sequence in (0, 2, 4)] == [(0, 0), (0, 2), (0, 4)]
    assert await send(2) == (0, 2)
    assert await send(8) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(3, epoch=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(0, epoch=1) == (0, 6)
    assert await send(6) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert len(await world.values(client)) == 8


async def test_pipelined_requests_of_one_connection_keep_their_order(world: World) -> None:
    """G26."""
    world.topic()
    client = await world.connect()
    for number in range(300):
        client.send(
            produce_request([("t", 0, world.batch((b"k", b"%d" % number)))], acks=number % 2 or -1), 9
        )
    for number in range(300):
        answer = (await client.receive(ProduceResponse, 9))[1].responses[0].partition_responses[0]
        assert answer.base_offset == number
    assert await world.values(client) == [b"%d" % number for number in range(300)]


async def test_a_cancelled_waiter_does_not_cancel_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    flushes = HeldFlushes(world, monkeypatch)
    gone, stays = await world.connect(), await world.connect()
    for client in (gone, stays):
        client.send(produce_request([("t", 0, world.batch(ONE))]), 9)
    await until(lambda: partition_of(world).log.log_end_offset == 2)

    async def wait() -> None:
        await (partition_of(world).when_flushed(2) or asyncio.sleep(0))

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    await gone.close()
    await until(lambda: world.broker.metrics_state.connections_open == 1)
    while flushes.held:
        flushes.end()
    assert (await stays.receive(ProduceResponse, 9))[1].responses[0].partition_responses[0].error_code == 0
