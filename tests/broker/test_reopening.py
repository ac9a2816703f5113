"""Goal: a log that went offline comes back without a restart: by itself after growing pauses, or on command;
nothing that was acknowledged is lost, and nothing is promised that only the page cache holds.

Method: a whole broker in the loop whose clock the test moves; flushes, and the opening of one log, are made
to fail or to wait. What is written once more after a failed flush is seen at the disk.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.background import Background
from broker.metadata_log import METADATA_PARTITION
from broker.reopening import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, NotNow
from cleaner.states import Phase
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.messages.group_offsets import OffsetFetchRequest
from protocol.messages.groups import FindCoordinatorRequest
from storage.file import Buffer, Disk
from storage.jobs import FlushJob
from storage.layout import TopicPartition
from storage.log import Log
from tests.broker.client import Client, until
from tests.broker.conftest import World, fetch_request
from tests.broker.test_failures_apart import ONE, commit, fail_to_open, log_of
from tests.broker.test_sessions import Session

MakeWorld = Callable[..., Awaitable[World]]
T = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test itself says when the broker looks at its logs."""
    every = Background._every

    def without_reopening(self: Background, name: str, interval_ms: int, job: Any, **how: Any) -> None:
        if name != "offline logs":
            every(self, name, interval_ms, job, **how)

    monkeypatch.setattr(Background, "_every", without_reopening)


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    """Its flushes are run by threads, where `Failing` meets them."""
    return await make_world(flush_io_uring_enable="false")


class Failing:
    """Makes the flushes of topic t fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = False
        real = FlushJob.run

        def run(job: FlushJob) -> None:
            if self.is_on and job.end_segment.directory.name == "t-0":
                raise OSError(errno.EIO, "Input/output error")
            real(job)

        monkeypatch.setattr(FlushJob, "run", run)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


async def offline(world: World, failing: Failing) -> Client:
    """Topic t with an acknowledged record and one behind it whose flush failed."""
    if world.broker.topics.get("t") is None:
        world.topic()
    client = await world.connect()
    assert (await world.produce(client, world.batch(ONE))).error_code == 0
    failing.is_on = True
    refused = await world.produce(client, world.batch((b"k", b"refused")))
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    failing.is_on = False
    assert log_of(world).offline_reason is not None
    return client


async def look(world: World, later_ms: int = 0) -> None:
    world.clock.advance(later_ms)
    await world.broker.reopening.run()


async def test_it_comes_back_by_itself_after_a_pause(world: World, failing: Failing) -> None:
    client, reader = await offline(world, failing), await world.connect()
    await look(world)
    await look(world, FIRST_PAUSE_MS - 1)
    assert log_of(world).offline_reason is not None
    await look(world, 1)
    assert log_of(world).offline_reason is None
    assert (await world.produce(client, world.batch((b"k", b"after")))).base_offset == 2
    assert await world.values(client) == [b"v", b"refused", b"after"]
    reader.send(fetch_request([("t", 0, 3)], max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await world.produce(client, world.batch((b"k", b"last")))
    answer = (await reader.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert answer.records, "who waits at the end of the new log is woken by it"


async def test_a_fetch_session_goes_on_with_the_log_that_was_opened_anew(
    world: World, failing: Failing
) -> None:
    """Sessions keep the partitions that they found."""
    world.topic()
    session = Session(await world.connect())
    await session.fetch(("t", 0, 0))
    await offline(world, failing)
    (topic,) = (await session.fetch(max_wait_ms=0)).responses
    assert topic.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await look(world)
    await look(world, FIRST_PAUSE_MS)
    (topic,) = (await session.fetch(max_wait_ms=0)).responses
    assert topic.partitions[0].error_code == 0
    assert topic.partitions[0].records


async def test_a_clock_that_is_set_back_makes_no_pause_longer(world: World, failing: Failing) -> None:
    await offline(world, failing)
    await look(world)
    await look(world, -24 * 3_600_000)
    assert log_of(world).offline_reason is None


async def test_a_reader_that_waits_is_told_when_it_goes_offline(world: World, failing: Failing) -> None:
    world.topic()
    client, reader = await world.connect(), await world.connect()
    failing.is_on = True
    reader.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await world.produce(client, world.batch(ONE))
    answer = (await reader.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    failing.is_on = False


async def test_each_failure_in_a_row_waits_longer(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offline(world, failing)
    reopening, clock = world.broker.reopening, world.clock
    await look(world)
    with monkeypatch.context() as patch:
        fail_to_open(patch, lambda directory: directory.name == "t-0")
        pauses = []
        for _ in range(10):
            retry_ms = reopening.retry_ms(T)
            assert retry_ms is not None
            pauses.append(retry_ms - clock.now_ms())
            await look(world, pauses[-1])
    assert pauses[:4] == [FIRST_PAUSE_MS << number for number in range(4)]
    assert pauses[-1] == LONGEST_PAUSE_MS
    await look(world, LONGEST_PAUSE_MS)
    assert log_of(world).offline_reason is None
    assert reopening.retry_ms(T) is not None, "were it to fail again at once, it would wait as long again"
    await look(world, 2 * LONGEST_PAUSE_MS + 1)
    assert reopening.retry_ms(T) is None


async def test_a_bug_waits_as_long_and_takes_nobodys_turn(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened again at every look, it would keep all logs behind it from being looked at."""
    await offline(world, failing)
    await look(world)

    def fail(old: Log) -> Log:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(world.broker.logs, "reopen", fail)
        with pytest.raises(RuntimeError):
            await look(world, FIRST_PAUSE_MS)
        await look(world)
    await look(world, 2 * FIRST_PAUSE_MS)
    assert log_of(world).offline_reason is None


async def test_what_is_deleted_is_forgotten(world: World, failing: Failing) -> None:
    await offline(world, failing)
    await look(world)
    assert world.broker.reopening.retry_ms(T) is not None
    await world.broker.deletions.delete("t")
    await look(world)
    assert world.broker.reopening.retry_ms(T) is None


async def test_a_log_that_could_not_be_opened_at_the_start_comes_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its groups too: what they committed is read then."""
    world.topic()
    client = await world.connect()
    await world.produce(client, world.batch(ONE))
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    assert await commit(client, 5) == 0
    await world.stop()
    with monkeypatch.context() as patch:
        fail_to_open(patch, lambda directory: directory.name.startswith(("t-", "__consumer_offsets-")))
        await world.start()
    client = await world.connect()
    assert await commit(client, 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await look(world)
    await look(world, FIRST_PAUSE_MS)
    fetched = await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert fetched.topics[0].partitions[0].committed_offset == 5
    assert await commit(client, 6) == 0
    assert await world.values(client) == [b"v"]


async def test_the_topics_themselves_wait_for_a_restart(world: World) -> None:
    partition = world.broker.partitions[METADATA_PARTITION]
    partition.log.take_offline("a test")
    await look(world)
    await look(world, LONGEST_PAUSE_MS)
    assert partition.log.offline_reason == "a test"
    with pytest.raises(NotNow, match="restart"):
        await world.broker.reopening.reopen(partition)


async def test_not_while_a_cleaning_of_it_runs(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still write files that the recovery would take away under its hands."""
    await offline(world, failing)
    partition, states = world.broker.partitions[T], world.broker.cleaner.state_of
    with monkeypatch.context() as patch:
        running = states(T).__class__(Phase.IN_PROGRESS)
        patch.setattr(world.broker.cleaner, "state_of", lambda topic_partition: running)
        with pytest.raises(NotNow, match="going on"):
            await world.broker.reopening.reopen(partition)
    await world.broker.reopening.reopen(partition)
    assert log_of(world).offline_reason is None


class Held:
    """Lets the opening of topic t's log wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may_go_on = threading.Event(), threading.Event()
        monkeypatch.setattr("storage.recovery.finish_swaps", self._wait(monkeypatch))

    def _wait(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        from storage.recovery import finish_swaps

        def wait(disk: Disk, directory: Path) -> None:
            if directory.name == "t-0":
                self.began.set()
                self.may_go_on.wait()
            finish_swaps(disk, directory)

        return wait


async def test_a_topic_that_is_deleted_meanwhile_stays_deleted(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await offline(world, failing)
    held = Held(monkeypatch)
    opening = asyncio.create_task(world.broker.reopening.reopen(world.broker.partitions[T]))
    await until(held.began.is_set)
    with pytest.raises(NotNow, match="being opened"):
        await world.broker.reopening.reopen(world.broker.partitions[T])
    deletion = asyncio.create_task(world.broker.deletions.delete("t"))
    await until(lambda: T not in world.broker.partitions)
    held.may_go_on.set()
    await asyncio.gather(opening, deletion)
    assert T not in world.broker.partitions
    assert T not in world.broker.logs.logs
    assert not (world.directory / "t-0").exists()
    world.topic()
    assert log_of(world).log_end_offset == 0


async def test_a_stop_waits_for_it(world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    await offline(world, failing)
    held, broker = Held(monkeypatch), world.broker
    close, stop = broker.logs.close, broker.reopening.stop
    offline_at_the_end: list[str | None] = []

    def note_and_close() -> None:
        offline_at_the_end.append(broker.logs.logs[T].offline_reason)
        held.may_go_on.set()
        close()

    async def let_go_and_stop() -> None:
        held.may_go_on.set()
        await stop()

    monkeypatch.setattr(broker.logs, "close", note_and_close)
    monkeypatch.setattr(broker.reopening, "stop", let_go_and_stop)
    asking = asyncio.create_task(broker.reopening.reopen(broker.partitions[T]))
    await until(held.began.is_set)
    asking.cancel()
    await world.stop()
    assert offline_at_the_end == [None]
    await world.start()
    assert await world.values(await world.connect()) == [b"v", b"refused"]


async def test_what_was_not_flushed_is_written_once_more(
    world: World, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed flush the kernel calls the pages clean, and the next flush leaves them out."""
    await offline(world, failing)
    log = log_of(world)
    first = log.active_segment.position_behind(1)
    written: list[tuple[int, int]] = []
    synced: list[int] = []
    pwritev, fdatasync = Disk.pwritev, Disk.fdatasync

    def note_write(disk: Disk, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        written.append((position, sum(map(len, buffers))))
        return pwritev(descriptor, buffers, position)

    def note_sync(disk: Disk, descriptor: int) -> None:
        synced.append(len(written))
        fdatasync(disk, descriptor)

    monkeypatch.setattr(Disk, "pwritev", note_write)
    monkeypatch.setattr(Disk, "fdatasync", note_sync)
    size = log.size_bytes
    await world.broker.reopening.reopen(world.broker.partitions[T])
    at = written.index((first, size - first))
    assert synced[-1] > at, "and flushed behind that"
