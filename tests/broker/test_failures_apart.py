"""Goal: no failure of one partition, file or job is silently a failure of others, and nothing is promised
that is not on disk, whatever changes at run time.

Method: a whole broker in the loop; single calls of its storage are made to fail or to wait.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.broker import Broker
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchResponse
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import FindCoordinatorRequest
from storage.jobs import Expired, FlushJob
from storage.layout import TopicPartition
from storage.log import Log
from storage.opening import open_log
from storage.segment import Segment
from tests.broker.client import Client, until
from tests.broker.conftest import World, fetch_request

ONE = (b"k", b"v")
MakeWorld = Callable[..., Awaitable[World]]


def log_of(world: World, topic: str = "t", partition: int = 0) -> Log:
    return world.broker.partitions[TopicPartition(topic, partition)].log


async def test_what_was_readable_is_flushed_when_flushes_begin_to_matter(world: World) -> None:
    """flush.messages 1000 -> 1: a repetition of an old batch is not acknowledged before it is on disk."""
    world.topic(flush_messages="1000")
    client = await world.connect()
    batch = world.batch(ONE, producer_id=7, producer_epoch=0, base_sequence=0)
    await world.produce(client, batch, acks=1)
    log = log_of(world)
    assert (log.high_watermark, log.recovery_point) == (1, 0)
    world.broker.topics.set_overrides("t", {"flush.messages": "1"})
    assert (await world.produce(client, batch)).base_offset == 0
    assert log.recovery_point == 1


async def test_it_is_flushed_though_nobody_appends_any_more(world: World) -> None:
    world.topic(flush_messages="1000")
    client = await world.connect()
    await world.produce(client, world.batch(ONE), acks=1)
    world.broker.topics.set_overrides("t", {"flush.messages": "1"})
    await until(lambda: log_of(world).recovery_point == 1)


async def test_who_waits_reads_on_when_flushes_matter_no_more(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flush.messages 1 -> 1000 moves the high watermark."""
    world = await make_world(flush_io_uring_enable="false")
    world.topic()
    client, reader = await world.connect(), await world.connect()
    held = threading.Event()
    run = FlushJob.run

    def wait_and_run(job: FlushJob) -> None:
        held.wait()
        run(job)

    monkeypatch.setattr(FlushJob, "run", wait_and_run)
    try:
        await world.produce(client, world.batch(ONE), acks=1)
        reader.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
        await until(lambda: len(world.broker.purgatory) == 1)
        world.broker.topics.set_overrides("t", {"flush.messages": "1000"})
        answer = (await reader.receive(FetchResponse, 12))[1].responses[0].partitions[0]
        assert answer.records
    finally:
        held.set()


async def test_a_flush_that_fails_by_a_bug_is_a_failed_flush(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever, and the thread lives on."""
    world = await make_world(flush_io_uring_enable="false")
    world.topic("t")
    world.topic("u")
    client = await world.connect()
    log = log_of(world)
    real = FlushJob.run

    def fail(job: FlushJob) -> None:
        if job.end_segment is log.active_segment:
            raise RuntimeError("a bug")
        real(job)

    monkeypatch.setattr(FlushJob, "run", fail)
    answer = await world.produce(client, world.batch(ONE))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline_reason is not None
    for _ in range(8):
        assert (await world.produce(client, world.batch(ONE), "u")).error_code == 0


@pytest.mark.parametrize("call", ["expire", "run"])
async def test_retention_that_fails_for_one_log_goes_on_for_the_others(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    world = await make_world()
    client = await world.connect()
    for name in ("a", "b"):
        world.topic(name, retention_ms="1")
        await world.produce(client, world.batch(ONE), name)
    world.clock.advance(10_000)
    first = log_of(world, "a")
    expire = Log.expire

    def fail() -> None:
        raise OSError(5, "Input/output error")

    def expire_or_fail(log: Log, now_ms: int) -> Any:
        if log is first and call == "expire":
            fail()
        return Expired(1, 1, fail) if log is first else expire(log, now_ms)

    monkeypatch.setattr(Log, "expire", expire_or_fail)
    await world.broker.background.expire_segments()
    assert log_of(world, "b").log_start_offset == 1


async def test_retention_looks_into_cold_files_on_a_thread(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the time of a closed segment is in its time index only."""
    world = await make_world()
    world.topic(retention_ms="1000000")
    client = await world.connect()
    await world.produce(client, world.batch(ONE))
    log_of(world).roll(world.clock.now_ms())
    await world.restart()
    threads: list[str] = []
    real = Segment._read_largest

    def read(segment: Segment) -> tuple[int, int]:
        threads.append(threading.current_thread().name)
        return real(segment)

    monkeypatch.setattr(Segment, "_read_largest", read)
    await world.broker.background.expire_segments()
    assert threads
    assert threading.current_thread().name not in threads


def fail_to_open(monkeypatch: pytest.MonkeyPatch, is_failing: Callable[[Path], bool]) -> None:
    def open_or_fail(directory: Path, *arguments: Any, **fields: Any) -> Log:
        if is_failing(directory):
            raise OSError(5, "Input/output error")
        return open_log(directory, *arguments, **fields)

    monkeypatch.setattr("storage.manager.open_log", open_or_fail)


async def commit(client: Client, offset: int) -> int:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(committed_offset=offset)
    request = OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[partition])])
    return int((await client.ask(request, 8)).topics[0].partitions[0].error_code)


@pytest.mark.parametrize("how", ["open", "read"])
async def test_offsets_that_cannot_be_read_are_not_taken_for_none(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A consumer would start over, or skip everything."""
    world.topic()
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    assert await commit(client, 5) == 0
    await world.stop()
    if how == "open":
        fail_to_open(monkeypatch, lambda directory: directory.name.startswith("__consumer_offsets-"))
    else:

        def fail(log: Log, *arguments: Any) -> Any:
            if log.topic_partition.topic == "__consumer_offsets":
                raise OSError(5, "Input/output error")
            return scan(log, *arguments)

        scan = Log.scan
        monkeypatch.setattr(Log, "scan", fail)
    await world.start()
    client = await world.connect()
    fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert fetched.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await commit(client, 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    monkeypatch.undo()
    await world.restart()
    client = await world.connect()
    fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert fetched.topics[0].partitions[0].committed_offset == 5


async def test_a_partition_that_cannot_be_read_does_not_keep_others_from_being_fetched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world.connect()
    for name in ("t", "u"):
        world.topic(name)
        await world.produce(client, world.batch(ONE), name)
    broken = log_of(world).active_segment.file
    real = type(broken).read_cached

    def read_or_fail(file: Any, size: int, position: int) -> bytes | None:
        if file is broken:
            raise OSError(5, "Input/output error")
        return real(file, size, position)

    monkeypatch.setattr(type(broken), "read_cached", read_or_fail)
    answer = await client.ask(fetch_request([("t", 0, 0), ("u", 0, 0)]), 12)
    codes = {topic.topic: topic.partitions[0].error_code for topic in answer.responses}
    assert codes == {"t": ErrorCode.KAFKA_STORAGE_ERROR, "u": 0}
    assert next(topic for topic in answer.responses if topic.topic == "u").partitions[0].records


async def test_a_deleted_topics_checkpoints_go_before_its_name_is_free(world: World) -> None:
    world.topic()
    client = await world.connect()
    await world.produce(client, world.batch(ONE))
    log_of(world).delete_records(1)
    broker: Broker = world.broker
    broker.logs.checkpoint()
    file = broker.logs.directories[0].log_start_checkpoint
    assert file.read() == {TopicPartition("t", 0): 1}
    await broker.deletions.delete("t")
    assert file.read() == {}


async def test_the_name_of_a_deleted_topic_is_free_even_if_its_end_could_not_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk in the middle of a deletion: the name can be used when there is room again."""
    world.topic()
    metadata = world.broker.metadata
    append = metadata.append

    def append_or_fail(kind: str, name: str, value: Any) -> None:
        if value is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device")
        append(kind, name, value)

    monkeypatch.setattr(metadata, "append", append_or_fail)
    with pytest.raises(KafkaError):
        await world.broker.deletions.delete("t")
    monkeypatch.undo()
    world.topic()
    await world.restart()
    assert world.broker.topics.get("t") is not None
