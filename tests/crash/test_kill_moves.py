"""Goal: partitions that move between disks lose, double and reorder no record, wherever `kill -9` meets them.

Method: an idempotent producer writes numbers into two partitions, which are moved to and fro all the time,
while the broker is killed: at random, and at the renames that end a move. At the end each partition has all
numbers, once and in order, and lies in one directory; both directories are in order.
"""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path
from subprocess import Popen, TimeoutExpired

import confluent_kafka
import pytest

from protocol.messages.admin import AlterReplicaLogDirsRequest
from storage.verify import verify_data_directory
from tests.crash.assassin import hire
from tests.kafka.raw import Raw
from tests.process import BrokerProcess
from tests.waiting import wait_for

KILLS = 16
RENAMES = 3
"""the copy gets its name, the old directory loses its own, and is removed"""
TOPIC = "numbers"
PACE_SECONDS = 0.0005
VALUE_BYTES = 500
MOST_WAITING = 50_000
"""records that the producer keeps while no broker takes them"""


class Writer:
    """Numbers into both partitions, until it is stopped. Owned by: its thread, then the test."""

    def __init__(self, bootstrap: str) -> None:
        self.written = [0, 0]
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _report(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(str(error))

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition in (0, 1):
                value = (b"%d " % self.written[partition]).ljust(VALUE_BYTES, b"x")
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._report)
                self.written[partition] += 1
            self._producer.poll(PACE_SECONDS if len(self._producer) < MOST_WAITING else 1)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0


def ask_for(broker: BrokerProcess, directory: Path, partition: int) -> None:
    """Have a partition move, if the broker lives."""
    asked = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = asked.AlterReplicaLogDirTopic(name=TOPIC, partitions=[partition])
    with contextlib.suppress(OSError, AssertionError):  # it was killed meanwhile
        raw = Raw(broker.port)
        try:
            raw.ask(AlterReplicaLogDirsRequest(dirs=[asked(path=str(directory), topics=[topic])]), 2)
        finally:
            raw.close()


def numbers(bootstrap: str, partition: int) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(int((message.value() or b"").split(b" ")[0]))
    consumer.close()
    return found


def places(directories: list[Path], partition: int) -> list[Path]:
    return [path for path in directories if (path / f"{TOPIC}-{partition}").is_dir()]


def dismiss(assassin: Popen[bytes] | None) -> None:
    """Before somebody else has the number of the process that was to be killed."""
    if assassin is not None:
        assassin.kill()
        assassin.wait()


@pytest.mark.crash
def test_partitions_move_through_kills(tmp_path: Path) -> None:
    chance = random.Random(11)
    directories = [tmp_path / "a", tmp_path / "b"]
    settings = {"log.segment.bytes": str(1 << 20), "num.partitions": "2"}
    broker = BrokerProcess(directories[0], settings, more_data=directories[1:]).start()
    assassin: Popen[bytes] | None = None
    writer = Writer(broker.bootstrap)
    try:
        wait_for(lambda: all(places(directories, one) for one in (0, 1)), "the topic")
        for number in range(KILLS):
            assert broker.process is not None
            partition = chance.randrange(2)
            found = places(directories, partition)
            target = next(path for path in directories if path != found[-1])
            if number % 2:
                suffix, count = f"{TOPIC}-{partition}", chance.randrange(RENAMES)
                assassin = hire(str(target), broker.process.pid, suffix, count)
            ask_for(broker, target, partition)
            with contextlib.suppress(TimeoutExpired):  # at a rename that came before somebody looked
                broker.process.wait(chance.uniform(0.5, 4))
            broker.kill()
            dismiss(assassin)
            broker.start()
            assert all(len(places(directories, one)) == 1 for one in (0, 1))
        writer.finish()
        assert not writer.errors
        for partition in (0, 1):
            assert numbers(broker.bootstrap, partition) == list(range(writer.written[partition]))
        assert "has moved to" in broker.log()
        assert broker.stop() == 0
    finally:
        dismiss(assassin)
        broker.close()
    for path in directories[1:]:
        assert verify_data_directory(path) == []
