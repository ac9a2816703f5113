"""Goal: a flush ends the same way whoever does it, io_uring or a thread: acknowledged if the disk has it,
the log offline with the reason if not, and nobody waits for ever.

Method: a broker with real logs whose ring answers what the test says.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import pytest

from broker.partition import Partition
from protocol.errors import ErrorCode
from storage.jobs import FlushJob
from storage.ring import Ring, open_ring
from tests.broker.client import Client
from tests.broker.conftest import World

MakeWorld = Callable[..., Awaitable[World]]
ONE = (b"k", b"v")


@pytest.fixture
async def client(world: World) -> Client:
    """Topics t and u whose files and directories are on the disk, as all that the broker wrote by itself is
    (its metadata): from now on each produce is one flush, and that one fdatasync.
    """
    probe = open_ring()
    if probe is None:
        pytest.skip("this machine has no io_uring for us")
    probe.close()
    made = await world.connect()
    for topic in ("t", "u"):
        world.topic(topic)
        assert (await world.produce(made, world.batch(ONE), topic)).error_code == 0
    await world.broker.flusher.drain()
    return made


@pytest.fixture
def by_threads(world: World, client: Client, monkeypatch: pytest.MonkeyPatch) -> list[FlushJob]:
    """The jobs that threads run."""
    jobs: list[FlushJob] = []
    run = FlushJob.run

    def note(job: FlushJob) -> None:
        jobs.append(job)
        run(job)

    monkeypatch.setattr(FlushJob, "run", note)
    return jobs


def answer_with(monkeypatch: pytest.MonkeyPatch, *codes: int) -> None:
    """The next flushes by ring end with these errors, the others as they do."""
    finished, left = Ring.finished, list(codes)

    def answer(ring: Ring) -> list[tuple[int, int]]:
        return [(token, left.pop(0) if left else code) for token, code in finished(ring)]

    monkeypatch.setattr(Ring, "finished", answer)


async def test_a_flush_of_one_file_needs_no_thread(
    world: World, client: Client, by_threads: list[FlushJob]
) -> None:
    flushes = world.broker.metrics_state.flushes
    for _ in range(10):
        assert (await world.produce(client, world.batch(ONE))).error_code == 0
    assert by_threads == []
    assert world.broker.metrics_state.flushes == flushes + 10
    assert world.broker.metrics_state.flush_nanoseconds > 0
    assert world.broker.partitions["t", 0].log.active_segment.file._users == 0  # type: ignore[index]


async def test_more_than_one_file_goes_by_a_thread(world: World, by_threads: list[FlushJob]) -> None:
    """A topic's first flush makes its directory durable, too."""
    world.topic("new")
    newcomer = await world.connect()
    assert (await world.produce(newcomer, world.batch(ONE), "new")).error_code == 0
    assert len(by_threads) == 1


async def test_without_a_ring_threads_do_it(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.node.open_ring", lambda: None)
    world = await make_world()
    world.topic()
    client = await world.connect()
    for _ in range(3):
        assert (await world.produce(client, world.batch(ONE))).error_code == 0


async def test_a_full_ring_leaves_it_to_a_thread(
    world: World, client: Client, by_threads: list[FlushJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ring, "fdatasync", lambda *_: False)
    assert (await world.produce(client, world.batch(ONE))).error_code == 0
    assert len(by_threads) == 1


@pytest.mark.parametrize("code", [errno.ECANCELED, errno.EAGAIN, errno.EINTR])
async def test_what_the_kernel_has_not_done_a_thread_does(
    world: World, client: Client, by_threads: list[FlushJob], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    answer_with(monkeypatch, code)
    assert (await world.produce(client, world.batch(ONE))).error_code == 0
    assert len(by_threads) == 1
    assert world.broker.metrics_state.flush_errors == 0


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
async def test_a_failed_flush_takes_its_log_offline_and_no_other(
    world: World, client: Client, by_threads: list[FlushJob], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    answer_with(monkeypatch, code)
    assert (await world.produce(client, world.batch(ONE))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"[Errno {code}]" in str(world.broker.partitions["t", 0].log.offline_reason)  # type: ignore[index]
    assert world.broker.metrics_state.flush_errors == 1
    assert (await world.produce(client, world.batch(ONE), "u")).error_code == 0
    assert by_threads == []  # a failed flush is never tried again


async def test_a_bug_behind_a_flush_holds_up_no_other(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both end in one look at the ring; the first meets the bug."""
    held: list[tuple[int, int]] = []
    finished, ended = Ring.finished, Partition._flush_ended

    def hold_the_first(ring: Ring) -> list[tuple[int, int]]:
        held.extend(finished(ring))
        return held if len(held) > 1 else []

    def fail(partition: Partition, job: FlushJob, error: OSError | None) -> None:
        if partition.topic_partition.topic == "t":
            raise RuntimeError("a bug")
        ended(partition, job, error)

    monkeypatch.setattr(Ring, "finished", hold_the_first)
    monkeypatch.setattr(Partition, "_flush_ended", fail)
    assert (await world.produce(client, world.batch(ONE), "t", acks=1)).error_code == 0
    world.broker.partitions["t", 0].flush()  # type: ignore[index]
    assert (await world.produce(client, world.batch(ONE), "u")).error_code == 0
    assert "what follows a flush failed by a bug" in caplog.text


async def test_stopping_waits_for_what_is_on_its_way(world: World, client: Client) -> None:
    partition = world.broker.partitions["t", 0]  # type: ignore[index]
    for _ in range(20):
        assert (await world.produce(client, world.batch(ONE), acks=1)).error_code == 0
    partition.flush()
    assert partition.is_flushing
    await world.broker.flusher.drain()
    assert not partition.is_flushing
    assert partition.log.recovery_point == 21
    await world.restart()
