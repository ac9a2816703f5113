"""Goal: a broker that stops and starts again is the same broker, and never gives a producer id twice.

Method: restarts of a whole broker on the same directory; requests that wait while it stops.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from broker import producer_ids
from broker.background import MIN_SLEEP_MS, Background
from broker.broker_server import BrokerServer
from config.broker import BrokerConfig
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import FindCoordinatorRequest, HeartbeatRequest, SyncGroupRequest
from protocol.messages.metadata import ApiVersionsRequest
from protocol.messages.transactions import InitProducerIdRequest
from protocol.records import encode_batch
from storage.deleted import DeletedDirectories
from storage.jobs import Expired
from storage.layout import TopicPartition
from storage.log import Log
from storage.manager import LogManager
from storage.retention import MOST_AT_ONCE
from tests.broker.client import passes_in, until
from tests.broker.conftest import World, fetch_request

ONE = (b"k", b"v")
HOUR_MS = 3_600_000


async def test_records_topics_and_ids_survive_a_restart(world: World) -> None:
    """T167, G6, G34."""
    topic = world.topic(partitions=2, retention_ms="123456")
    client = await world.connect()
    await world.produce(client, world.batch(ONE, (b"k2", None)))
    cluster_id = world.broker.cluster_id
    assert (world.directory / ".kafka_cleanshutdown").exists() is False
    await world.restart()
    client = await world.connect()
    assert await world.values(client) == [b"v", None]
    assert world.broker.topics.get("t") == topic
    assert world.broker.cluster_id == cluster_id
    assert (await world.produce(client, world.batch(ONE))).base_offset == 2


async def test_producer_ids_are_never_given_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "BLOCK", 3)
    given: list[int] = []
    for _ in range(3):
        client = await world.connect()
        for version in (0, 1, 2, 3, 4, 5, 0):
            answer = await client.ask(InitProducerIdRequest(transactional_id=None), version)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            given.append(answer.producer_id)
        await world.restart()
    assert len(set(given)) == len(given)
    assert given == sorted(given)


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch", "code"),
    [(-1, 5, ErrorCode.INVALID_REQUEST), (5, -1, ErrorCode.INVALID_REQUEST), (5, 0, 0)],
)
async def test_an_old_producer_names_both_its_id_and_its_epoch(
    world: World, producer_id: int, producer_epoch: int, code: int
) -> None:
    client = await world.connect()
    asked = InitProducerIdRequest(
        transactional_id=None, producer_id=producer_id, producer_epoch=producer_epoch
    )
    assert (await client.ask(asked, 4)).error_code == code


async def test_stopping_answers_who_waits(world: World) -> None:
    world.topic()
    client = await world.connect()
    client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await world.broker.stop()
    answer = (await client.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert (answer.error_code, answer.records) == (0, b"")
    assert await client.is_closed_by_peer()
    await world.start()


async def test_a_second_broker_on_the_same_directory_is_refused(world: World) -> None:
    """T181."""
    with pytest.raises(Exception, match="in use by another broker"):
        BrokerServer(BrokerConfig.parse(world.settings), world.clock)
    assert (await (await world.connect()).ask(ApiVersionsRequest(), 0)).error_code == 0


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_is_the_registry_of_handlers(world: World, version: int) -> None:
    """G1, G2, G15, G18."""
    client = await world.connect()
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = await client.ask(request, version)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert ranges[0] == (0, 13)
    assert ranges[1] == (4, 18)
    assert (ranges[8], ranges[9]) == ((2, 10), (1, 10))
    assert ranges[2] == (1, 11)
    assert ranges[18] == (0, 4)
    assert ranges[22] == (0, 5)
    assert [ranges[key] for key in (24, 25, 26, 28)] == [(0, 5), (0, 4), (0, 5), (0, 5)]
    assert not ranges.keys() & {71, 72}
    features = [(one.name, one.max_version_level) for one in answer.finalized_features]
    finalized = [
        ("eligible.leader.replicas.version", 1), ("group.version", 1), ("kraft.version", 1),
        ("metadata.version", 30), ("share.version", 1), ("streams.version", 1), ("transaction.version", 2),
    ]  # fmt: skip
    assert features == (finalized if version >= 3 else [])
    supported = [one.name for one in answer.supported_features]
    assert supported == [name for name, _ in features if version >= 4 or name == "metadata.version"], (
        "0 is no version to older clients"
    )


async def test_a_badly_named_client_is_told_so(world: World) -> None:
    """G1."""
    client = await world.connect()
    answer = await client.ask(ApiVersionsRequest(client_software_name="-", client_software_version="1"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_retention_runs_by_the_clock(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    """T127, T130."""
    world = await make_world(log_retention_check_interval_ms="1000", log_initial_task_delay_ms="1000")
    world.topic(retention_ms="5000")
    client = await world.connect()
    await world.produce(client, world.batch(ONE))
    log = world.broker.partitions[TopicPartition("t", 0)].log
    world.clock.advance(4_000)
    await until(lambda: True)
    assert log.log_start_offset == 0
    for _ in range(10):
        world.clock.advance(1_000)
        for _ in range(20):
            await until(lambda: True)
    await until(lambda: log.log_start_offset == 1)
    assert (await world.produce(client, world.batch(ONE))).base_offset == 1


async def test_retention_of_many_segments_is_one_turn_in_small_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop serves others in between, while all that is old goes."""
    world.topic(retention_ms="5000")
    partition = world.broker.partitions[TopicPartition("t", 0)]
    log, expire = partition.log, partition.log.expire
    for _ in range(MOST_AT_ONCE + 3):
        partition.append(world.batch(ONE), world.clock.now_ms())
        log.roll(world.clock.now_ms())
    flushed = partition.when_flushed(log.log_end_offset)
    assert flushed is not None
    await flushed
    steps: list[int] = []

    def watched(now_ms: int) -> Expired:
        expired = expire(now_ms)
        steps.append(expired.removed_segments)
        return expired

    monkeypatch.setattr(log, "expire", watched)
    world.clock.advance(6_000)
    await world.broker.background.expire_segments()
    assert steps == [MOST_AT_ONCE, 3]
    assert log.log_start_offset == log.log_end_offset == MOST_AT_ONCE + 3


async def test_flushes_checkpoints_and_expiries_run_by_the_clock(world: World) -> None:
    """T163, T196: nobody asks for them."""
    world.topic(flush_messages="1000", flush_ms="5000")
    client = await world.connect()
    await world.commit(client)
    batch = world.batch(ONE, producer_id=7, producer_epoch=0, base_sequence=0)
    assert (await world.produce(client, batch, acks=1)).error_code == 0
    log, groups = world.broker.partitions[TopicPartition("t", 0)].log, world.broker.groups.groups
    checkpoint = world.directory / "recovery-point-offset-checkpoint"
    began_ms = world.clock.now_ms()

    def is_written() -> bool:
        return checkpoint.exists() and "t 0 1\n" in checkpoint.read_text()

    async def passes(step_ms: int, at_least_ms: int, condition: Callable[[], bool]) -> None:
        """The condition comes true, and not before its time."""

        def is_over() -> bool:
            world.clock.advance(step_ms)
            return condition()

        await until(is_over)
        assert world.clock.now_ms() - began_ms >= at_least_ms

    await passes(500, 5_000, lambda: log.recovery_point == 1)
    await passes(1_000, world.broker.config.log_initial_task_delay_ms, is_written)
    await passes(HOUR_MS, 24 * HOUR_MS, lambda: 7 not in log.producers.producers)
    await passes(HOUR_MS, 168 * HOUR_MS, lambda: "g" not in groups)


async def test_a_producer_that_writes_old_records_is_not_forgotten_at_once(world: World) -> None:
    """By its records' times it is old already. As in Kafka the first look is an interval behind the start."""
    world.topic()
    client = await world.connect()
    old_ms = world.clock.now_ms() - 48 * HOUR_MS
    batch = encode_batch([(old_ms, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    assert (await world.produce(client, batch)).error_code == 0
    producers = world.broker.partitions[TopicPartition("t", 0)].log.producers.producers
    interval_ms, began_ms = world.broker.config.producer_id_expiration_check_interval_ms, world.clock.now_ms()

    def is_forgotten() -> bool:
        world.clock.advance(1_000)
        return 7 not in producers

    await until(is_forgotten)
    assert world.clock.now_ms() - began_ms >= interval_ms


async def test_the_files_of_removed_segments_stay_for_the_delay_of_their_topic(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    """Not for that of the broker, which is a day here."""
    world = await make_world(log_segment_delete_delay_ms=str(24 * HOUR_MS), log_initial_task_delay_ms="0")
    world.topic(file_delete_delay_ms="5000", internal_segment_bytes="100", retention_bytes="0")
    client = await world.connect()
    for _ in range(2):
        assert (await world.produce(client, world.batch(ONE))).error_code == 0
    directory = world.directory / "t-0"
    await world.broker.background.expire_segments()
    assert list(directory.glob("*.deleted"))
    assert await passes_in(world.clock, 60_000, lambda: not list(directory.glob("*.deleted"))) >= 5_000


@pytest.mark.parametrize("key", ["log_flush_offset", "log_flush_start_offset"])
async def test_a_moved_log_start_is_written_by_the_clock(
    make_world: Callable[..., Awaitable[World]], key: str
) -> None:
    world = await make_world(**{f"{key}_checkpoint_interval_ms": "2000"})
    world.topic()
    client = await world.connect()
    assert (await world.produce(client, world.batch(ONE, ONE))).error_code == 0
    assert world.broker.partitions[TopicPartition("t", 0)].log.delete_records(1) == 1
    starts = world.directory / "log-start-offset-checkpoint"
    await passes_in(world.clock, 10_000, lambda: starts.exists() and "t 0 1\n" in starts.read_text())


async def test_a_disk_that_takes_no_removal_does_not_fill_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Looked for every second, tried again each minute, and said without a traceback: it is no bug."""
    tries: list[int] = []

    def fail(deleted: DeletedDirectories) -> int:
        tries.append(world.clock.now_ms())
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(DeletedDirectories, "remove", fail)

    def has_tried_twice() -> bool:
        world.clock.advance(500)
        return world.broker.metrics_state.internal_errors == 2

    await until(has_tried_twice)
    assert tries[1] - tries[0] >= 60_000
    told = [one for one in caplog.records if "Read-only file system" in one.getMessage()]
    assert {one.getMessage() for one in told} == {
        "removal of deleted files failed, and is tried again: [Errno 30] Read-only file system"
    }
    assert all(one.exc_info is None for one in told)


async def test_a_job_that_the_disk_refuses_says_so_once_until_it_goes_well(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoints of a directory that is gone were a traceback each minute."""
    failures: list[OSError | None] = []

    def checkpoint(manager: LogManager) -> None:
        failures.append(OSError(errno.EIO, "a", "b") if len(failures) != 2 else None)
        if failures[-1] is not None:
            raise failures[-1]

    monkeypatch.setattr(LogManager, "checkpoint", checkpoint)

    def has_tried(count: int) -> bool:
        world.clock.advance(10_000)
        return len(failures) >= count

    await until(lambda: has_tried(5))
    told = [one for one in caplog.records if one.getMessage().startswith("checkpoints failed")]
    assert len(told) == 2, "the second and the fifth failure are in the words of the one before"
    assert all(one.exc_info is None for one in told)


async def test_why_the_topic_of_groups_cannot_be_made_is_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit of open files: consumers were refused for ever, and nothing said why. It is tried once a
    second, for each time some partitions are made and taken away.
    """
    tried = []

    def refuse(*_: object) -> None:
        tried.append(1)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    client = await world.connect()
    with monkeypatch.context() as patch:
        patch.setattr(LogManager, "create", refuse)
        for waited_ms, count in ((0, 1), (600, 1), (600, 2)):
            world.clock.advance(waited_ms)
            answer = await client.ask(FindCoordinatorRequest(key="g"), 2)
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert len(tried) == count
    world.clock.advance(1_001)
    assert (await client.ask(FindCoordinatorRequest(key="g"), 2)).error_code == 0
    told = [one.getMessage() for one in caplog.records if "__consumer_offsets" in one.getMessage()]
    assert len(told) == 1
    assert "Too many open files" in told[0]


async def test_an_interval_of_nothing_keeps_nobody_busy(
    make_world: Callable[..., Awaitable[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    async def remove_deleted(background: Background) -> None:
        runs.append(background._broker.clock.now_ms())

    monkeypatch.setattr(Background, "remove_deleted", remove_deleted)
    world = await make_world(log_segment_delete_delay_ms="0", log_initial_task_delay_ms="0")
    for _ in range(200):
        world.clock.advance(1)
        for _ in range(5):
            await asyncio.sleep(0)
    assert 3 <= len(runs) <= 5
    assert all(after - before >= MIN_SLEEP_MS for before, after in itertools.pairwise(runs))


async def test_a_recovery_can_be_watched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """T183: /healthz answers 503 and /metrics its figures while logs are recovered."""
    await world.stop()
    (world.directory / ".kafka_cleanshutdown").unlink()
    world.settings["http.port"] = "0"
    held = threading.Event()
    open_all = LogManager.open_all

    def wait_and_open(self: LogManager, *arguments: Any) -> None:
        held.wait()
        open_all(self, *arguments)

    monkeypatch.setattr(LogManager, "open_all", wait_and_open)
    old, starting = world.broker, asyncio.ensure_future(world.start())
    await until(
        lambda: world.broker is not old and hasattr(world.broker, "http") and world.broker.http.port > 0
    )
    address = f"http://127.0.0.1:{world.broker.http.port}"
    async with aiohttp.ClientSession() as session:
        for path, status in (("healthz", 503), ("metrics", 200)):
            async with session.get(f"{address}/{path}") as answer:
                assert answer.status == status
        held.set()
        await starting
        async with session.get(f"{address}/healthz") as answer:
            assert answer.status == 200


def is_answered(broker: BrokerServer) -> bool:
    """Whether somebody listens to clients."""
    with socket.socket() as probe:
        ports = [listener.port for listener in broker.listeners]
        return bool(ports) and probe.connect_ex(("127.0.0.1", ports[0])) == 0


async def test_groups_are_loaded_while_clients_connect(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """T200."""
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[topic(name="t", partitions=[topic.OffsetCommitRequestPartition(committed_offset=5)])],
    )
    world.topic()
    assert (await client.ask(commit, 8)).topics[0].partitions[0].error_code == 0
    held = threading.Event()
    scan = Log.scan

    def wait_and_scan(self: Log, *arguments: Any) -> Any:
        if self.topic_partition.topic == "__consumer_offsets":
            held.wait()
        return scan(self, *arguments)

    await world.stop()
    monkeypatch.setattr(Log, "scan", wait_and_scan)
    old, starting = world.broker, asyncio.ensure_future(world.start())
    await until(lambda: world.broker is not old and is_answered(world.broker))
    client = await world.connect()
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (await client.ask(heartbeat, 3)).error_code == ErrorCode.NONE  # Kafka answers it blindly
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert (await client.ask(sync, 3)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    held.set()
    await starting
    fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert fetched.topics[0].partitions[0].committed_offset == 5
