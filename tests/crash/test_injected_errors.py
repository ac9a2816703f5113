"""Goal: a system call that fails costs the partition whose file it was about, nothing else: it goes offline
with its reason, the others serve on, the process stays, and a restart recovers what was acknowledged (how it
comes back without one: `test_offline_logs.py`).

Method: the real process under `strace`, which makes calls on one partition's files fail; the same in
process and at every call is `storage/test_durability.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from storage.verify import verify_data_directory
from tests.clients.adaptors import Confluent
from tests.crash.machine import needs
from tests.crash.test_full_disk import Producer
from tests.process import BrokerProcess
from tests.waiting import wait_for

VICTIM, BYSTANDER = "victim", "bystander"
SETTINGS = {
    "log.segment.bytes": "262144",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": "10",
}
ROLL_SECONDS = 300.0
"""for the writes that fill a segment, each with its flush: a loaded disk takes its time"""
FIRST = "00000000000000000000.log"
WRITES, RENAMES = "pwritev,pwritev2", "rename,renameat,renameat2"


class FaultyProcess(BrokerProcess):
    """A broker whose calls `calls` on the victim's file `name` fail from the `when`th of a thread on."""

    def inject(self, calls: str, error: str, name: str, when: str) -> FaultyProcess:
        path = self.data / f"{VICTIM}-0" / name
        return self.traced(calls, f"error={error}:when={when}", "-P", str(path))

    @property
    def trace(self) -> Path:
        return self.data.parent / "trace"

    def traced(self, calls: str, fault: str, *options: str) -> FaultyProcess:
        """To be started under strace, which does `fault` to `calls`."""
        # -D: the tracer is a grandchild, so that signals and the exit status are those of the broker
        prefix = ["strace", "-D", "-f", "-qq", "-o", str(self.trace), *options]
        self.prefix = [*prefix, "-e", f"trace={calls}", "-e", f"inject={calls}:{fault}"]
        # strace sees the calls of threads, not what the kernel's own workers do for io_uring
        self.settings["flush.io.uring.enable"] = "false"
        return self

    def heal(self) -> None:
        self.prefix = []
        del self.settings["flush.io.uring.enable"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FaultyProcess]:
    needs("strace", root=False)
    process = FaultyProcess(tmp_path / "data", SETTINGS)
    yield process
    process.close()


def offline_reason(broker: BrokerProcess) -> str:
    lines = [line for line in broker.log().splitlines() if f"{VICTIM}-0 goes offline: " in line]
    return lines[0].split("goes offline: ")[1] if lines else ""


def make_topics(broker: FaultyProcess) -> Producer:
    """Both topics with a few records, made before anything fails."""
    broker.start()
    client = Confluent(broker.bootstrap)
    client.create_topic(VICTIM, 1, {"cleanup.policy": "compact"})
    client.create_topic(BYSTANDER)
    producer = Producer(broker)
    producer.acknowledged = {VICTIM: {}, BYSTANDER: {}}
    for _ in range(5):
        assert producer.write(VICTIM) == producer.write(BYSTANDER) == ErrorCode.NONE
    return producer


def check(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    """Every acknowledged record, or on the compacted topic one of the same key behind it."""
    client = Confluent(broker.bootstrap)
    first, end = client.offsets(topic, 0)
    found = {
        record.offset: int((record.value or b"").split(b" ")[0])
        for record in client.read(topic, 0, first, end)
    }
    newest = {number % 5: offset for offset, number in sorted(found.items())}
    for offset, number in producer.acknowledged[topic].items():
        is_superseded = topic == VICTIM and newest.get(number % 5, -1) > offset
        assert found.get(offset) == number or is_superseded, f"offset {offset} of {topic} is lost"


@pytest.mark.crash
@pytest.mark.parametrize(
    ("calls", "error", "name", "when"),
    [
        ("fdatasync", "EIO", FIRST, "1+"),
        ("fdatasync", "EIO", FIRST, "3+"),
        ("fdatasync", "ENOSPC", FIRST, "2+"),
        (WRITES, "EIO", FIRST, "1+"),
        (WRITES, "EIO", FIRST, "4"),
        ("fsync", "EIO", FIRST.replace("log", "index"), "1+"),
        (RENAMES, "EIO", FIRST + ".cleaned", "1+"),
        (RENAMES, "EIO", FIRST + ".swap", "1+"),
        (RENAMES, "ENOSPC", FIRST + ".swap", "1+"),
    ],
)
def test_a_failing_call_costs_one_partition(
    broker: FaultyProcess, calls: str, error: str, name: str, when: str
) -> None:
    producer = make_topics(broker)
    assert broker.stop() == 0
    broker.inject(calls, error, name, when).start()
    if name.endswith(".cleaned"):  # nothing was changed yet: the cleaning alone failed, and says why
        wait_for(
            lambda: producer.write(VICTIM) or "cannot be cleaned" in broker.log(),
            "the failed swap",
            ROLL_SECONDS,
        )
        assert f"{VICTIM}-0 cannot be cleaned" in broker.log()
        assert producer.write(VICTIM) == ErrorCode.NONE
    else:
        producer.write_until(VICTIM, ErrorCode.KAFKA_STORAGE_ERROR, ROLL_SECONDS)
        assert wait_for(lambda: offline_reason(broker), "the reason")
        if when.endswith("+"):  # the broker's own attempts to open it fail as well
            assert producer.write(VICTIM) == ErrorCode.KAFKA_STORAGE_ERROR
    assert all(producer.write(BYSTANDER) == ErrorCode.NONE for _ in range(20))
    check(broker, producer, BYSTANDER)
    assert broker.process is not None
    assert broker.process.poll() is None, broker.log()
    broker.kill()
    broker.heal()
    broker.start()
    assert producer.write(VICTIM) == producer.write(BYSTANDER) == ErrorCode.NONE
    check(broker, producer, VICTIM)
    check(broker, producer, BYSTANDER)
    assert broker.stop() == 0
    assert verify_data_directory(broker.data) == []


@pytest.mark.crash
def test_a_write_that_finds_no_room_once_is_refused_once(broker: FaultyProcess) -> None:
    producer = make_topics(broker)
    assert broker.stop() == 0
    broker.inject(WRITES, "ENOSPC", FIRST, "2").start()
    answers = [producer.write(VICTIM) for _ in range(4)]
    assert sorted(answers) == [ErrorCode.NONE] * 3 + [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not offline_reason(broker)
    check(broker, producer, VICTIM)
