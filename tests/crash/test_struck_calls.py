"""Goal: a process that dies at its nth flush or renaming has lost nothing acknowledged; a call that fails on
a file that is no segment of a user's topic (a checkpoint, the metadata, the committed offsets, a directory)
costs what that file is for, and no more.

Method: the real process under `strace`, which sends SIGKILL at the nth call of a thread, or makes calls on
chosen paths fail; what died is named by the trace. The calls on a victim's own segments are
`test_injected_errors.py`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from storage.verify import verify_data_directory
from tests.clients.adaptors import Confluent
from tests.crash.machine import needs
from tests.crash.test_full_disk import PLAIN, Producer, commit, commit_until_taken
from tests.crash.test_injected_errors import (
    BYSTANDER,
    FIRST,
    RENAMES,
    VICTIM,
    check,
    make_topics,
    offline_reason,
)
from tests.crash.test_injected_errors import FaultyProcess as OneVictim
from tests.waiting import wait_for

KILLED_AT = (1, 2, 3, 5, 8, 12)
SETTINGS = {
    "log.segment.bytes": "131072",
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "10",
    "log.segment.delete.delay.ms": "50",
    "offsets.topic.num.partitions": "1",
}
CHECKPOINT = "recovery-point-offset-checkpoint.tmp"
OFFSETS, METADATA = "__consumer_offsets-0", "__kompakt_metadata-0"


class StruckProcess(OneVictim):
    """A broker that dies at its nth call, or whose calls on chosen paths fail."""

    def strike(self, calls: str, when: int, *names: str) -> None:
        """It dies at a thread's nth of these calls, or of those on these paths of the data directory."""
        self.traced(calls, f"signal=KILL:when={when}", "-y", *self._paths(names))

    def fail(self, calls: str, error: str, *names: str) -> None:
        """These calls fail on these paths of the data directory, always."""
        self.traced(calls, f"error={error}:when=1+", *self._paths(names))

    def _paths(self, names: tuple[str, ...]) -> list[str]:
        return [part for name in names for part in ("-P", str(self.data / name))]

    def is_dead(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def last_calls(self) -> list[str]:
        """What the threads did last: the one that was struck is among them."""
        lines = self.trace.read_text(errors="replace").splitlines()
        return [line for line in lines if "+++" not in line and "resumed" not in line][-3:]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[StruckProcess]:
    needs("strace", root=False)
    process = StruckProcess(tmp_path / "data", SETTINGS)
    yield process
    process.close()


def begin(broker: StruckProcess) -> Producer:
    """Topics, records and a committed offset, made before anything fails; the broker is stopped."""
    producer = make_topics(broker)
    Confluent(broker.bootstrap).create_topic(PLAIN)
    Confluent(broker.bootstrap).commit(PLAIN, "g", 0, 1)  # by a client that asks for the coordinator first
    assert broker.stop() == 0
    return producer


def write_until_dead(broker: StruckProcess, producer: Producer) -> bool:
    """Both topics and a commit, again and again; a connection that breaks is the end that was wanted."""
    try:
        for topic in (VICTIM, BYSTANDER):
            producer.write(topic)
        commit(broker, 1)
    except (OSError, EOFError, asyncio.IncompleteReadError):
        return broker.is_dead()
    return broker.is_dead()


@pytest.mark.crash
@pytest.mark.parametrize(
    ("calls", "checkpoint_ms", "wanted", "at_last"),
    [
        ("fdatasync", "100", ".log", ()),
        ("fsync", "100", "checkpoint", (CHECKPOINT,)),
        (RENAMES, "100", "checkpoint", (CHECKPOINT,)),
        (RENAMES, "600000", ".swap", ()),
    ],
    ids=["flush", "sync", "checkpoint", "swap"],
)
def test_dying_at_the_nth_call_loses_nothing_acknowledged(
    broker: StruckProcess, calls: str, checkpoint_ms: str, wanted: str, at_last: tuple[str, ...]
) -> None:
    """T119 by a real process: whatever the nth flush or renaming is about, and once surely a checkpoint
    where they are written all the time; where they are not, the thread that swaps comes to n first.
    """
    broker.settings["log.flush.offset.checkpoint.interval.ms"] = checkpoint_ms
    producer = begin(broker)
    met: list[str] = []
    anywhere: tuple[str, ...] = ()
    strikes = [(when, anywhere) for when in KILLED_AT]
    for when, names in [*strikes, (2, at_last)] if at_last else strikes:
        broker.strike(calls, when, *names)
        broker.process = broker.launch()
        wait_for(functools.partial(write_until_dead, broker, producer), f"death at {calls} {when}", 120)
        assert broker.process.wait() == -9
        met += broker.last_calls()
        broker.heal()
        broker.start()
        for topic in (VICTIM, BYSTANDER):
            check(broker, producer, topic)
        assert broker.stop() == 0
        assert verify_data_directory(broker.data) == [], f"{calls} {when}"
    calls_met = "\n".join(met)
    assert wanted in calls_met, calls_met


def goes_on(broker: StruckProcess, producer: Producer, *topics: str) -> None:
    """These topics take records, nothing acknowledged is gone, the process stays."""
    for topic in topics:
        assert all(producer.write(topic) == ErrorCode.NONE for _ in range(10)), topic
        check(broker, producer, topic)
    assert not broker.is_dead(), broker.log()


def restart_and_check(broker: StruckProcess, producer: Producer) -> None:
    broker.kill()
    broker.heal()
    broker.start()
    goes_on(broker, producer, VICTIM, BYSTANDER)
    commit_until_taken(broker, 3)
    Confluent(broker.bootstrap).create_topic("made-later")
    assert broker.stop() == 0
    assert verify_data_directory(broker.data) == []


@pytest.mark.crash
@pytest.mark.parametrize(("calls", "error"), [("fsync", "EIO"), (RENAMES, "EIO"), (RENAMES, "ENOSPC")])
def test_checkpoints_that_cannot_be_written_cost_no_partition(
    broker: StruckProcess, calls: str, error: str
) -> None:
    """They only make the next start look further back."""
    producer = begin(broker)
    names = [
        f"{name}-offset-checkpoint" for name in ("recovery-point", "log-start", "cleaner", "replication")
    ]
    broker.fail(calls, error, *(f"{name}{suffix}" for name in names for suffix in ("", ".tmp")))
    broker.start()
    wait_for(
        lambda: producer.write(VICTIM) or "INJECTED" in broker.trace.read_text(), "a checkpoint that failed"
    )
    goes_on(broker, producer, VICTIM, BYSTANDER)
    assert "goes offline" not in broker.log()
    restart_and_check(broker, producer)


@pytest.mark.crash
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_committed_offsets_that_cannot_be_flushed_cost_only_commits(
    broker: StruckProcess, error: str
) -> None:
    producer = begin(broker)
    broker.fail("fdatasync", error, f"{OFFSETS}/{FIRST}")
    broker.start()
    assert commit(broker, 2) != ErrorCode.NONE
    goes_on(broker, producer, VICTIM, BYSTANDER)
    restart_and_check(broker, producer)


@pytest.mark.crash
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_metadata_that_cannot_be_flushed_costs_only_changes_of_topics(
    broker: StruckProcess, error: str
) -> None:
    producer = begin(broker)
    broker.fail("fdatasync", error, f"{METADATA}/{FIRST}")
    broker.start()
    with pytest.raises(Exception, match="KafkaError"):
        Confluent(broker.bootstrap).create_topic("refused")
    goes_on(broker, producer, VICTIM, BYSTANDER)
    commit_until_taken(broker, 2)
    restart_and_check(broker, producer)


@pytest.mark.crash
def test_a_directory_that_cannot_be_synced_costs_its_partition(broker: StruckProcess) -> None:
    """A record in a new segment is not acknowledged while the segment's name may vanish."""
    producer = begin(broker)
    broker.fail("fsync", "EIO", f"{VICTIM}-0")
    broker.start()
    wait_for(lambda: producer.write(VICTIM) == ErrorCode.KAFKA_STORAGE_ERROR, "a roll")
    assert wait_for(lambda: offline_reason(broker), "the reason")
    goes_on(broker, producer, BYSTANDER)
    restart_and_check(broker, producer)
