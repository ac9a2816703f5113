"""Goal: Flink's KafkaSource and KafkaSink copy records of kompakt's as they are, and go on from a savepoint.

Method: an unmodified Flink copies a topic of many partitions, with null keys and values, headers and times of
every kind, in each codec. It is stopped with a savepoint and goes on from it, once in peace, once while the
broker is killed again and again; the copy is compared with what was written, record by record.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.flink.test_flink import LIMIT_SECONDS, OPTIONS, flink_tools
from tests.kafka.fixtures import or_skip
from tests.kafka.jars import environment
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.slow]
COPY = str(Path(__file__).resolve().parent / "Copy.java")
PARTITIONS, RECORDS, KILLS = 24, 6_000, 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIME = 1_700_000_000_000
OTHERS = [("none", None), ("", b""), ("number", b"again")]
Headers = tuple[tuple[str, bytes | None], ...]
Record = tuple[int, bytes | None, bytes | None, Headers, int]
"""partition, key, value, headers, time"""


class Job:
    """A Flink that copies. Owned by: the test, which ends it."""

    def __init__(self, tools: Tools, directory: Path, bootstrap: str) -> None:
        classes = directory / "classes"
        compiler = [tools.java, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        jars = ":".join(map(str, sorted(tools.libraries.glob("*.jar"))))
        command = [*compiler, "-cp", jars, "-d", str(classes), COPY]
        # Compiled apart: Flink's threads look for classes where `java Copy.java` has none.
        subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_SECONDS, env=environment())
        self._command = tools.jvm("Copy", *OPTIONS)
        self._command[self._command.index("-cp") + 1] += f":{classes}"
        self._directory = directory
        self._bootstrap = bootstrap
        self._runs: list[subprocess.Popen[bytes]] = []

    def start(self, guarantee: str, codec: str, savepoint: str = "", option: str = "-Dattempts=1000") -> None:
        java, *rest = self._command
        arguments = [self._bootstrap, guarantee, codec, str(self._directory / "savepoints")]
        with self._output().open("wb") as output:
            run = subprocess.Popen(
                [java, option, *rest, *arguments, *([savepoint] if savepoint else [])],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
            )
        self._runs.append(run)

    def _output(self) -> Path:
        return self._directory / f"copy-{len(self._runs)}"

    def told(self, word: str) -> list[str]:
        """What the last run told behind this word."""
        lines = (self._directory / f"copy-{len(self._runs) - 1}").read_text().splitlines()
        return [line.removeprefix(word + " ") for line in lines if line.startswith(word + " ")]

    def has_committed(self, count: int) -> bool:
        """Has the group so many records behind it, by the checkpoints of this job?"""
        failed = self.told("failed")
        assert not failed, failed
        return committed(self._bootstrap) >= count

    def ask_to_stop(self) -> None:
        pipe = self._runs[-1].stdin
        assert pipe is not None
        pipe.write(b"\n")
        pipe.flush()

    def savepoint(self) -> str:
        """The savepoint with which it stopped, when it has ended."""
        assert self._runs[-1].wait(LIMIT_SECONDS) == 0, self.told("failed")
        (path,) = self.told("savepoint")
        return path

    def failure(self) -> list[str]:
        assert self._runs[-1].wait(LIMIT_SECONDS) == 1
        return self.told("failed")

    def close(self) -> None:
        for run in self._runs:
            run.kill()
            run.wait()
            assert run.stdin is not None
            run.stdin.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data").start()
    yield process
    log = process.log()
    process.close()
    assert "Traceback" not in log, log


@pytest.fixture
def job(broker: BrokerProcess, tmp_path: Path) -> Iterator[Job]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    forever = {"retention.ms": "-1"}  # the records are older than what is kept by default
    topics = [NewTopic(name, PARTITIONS, config=forever) for name in ("from", "to")]
    for created in admin.create_topics(topics).values():
        created.result(60)
    made = Job(or_skip(flink_tools), tmp_path, broker.bootstrap)
    yield made
    made.close()


def write(bootstrap: str, first: int, codec: str) -> None:
    """RECORDS of every kind, until they are acknowledged."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
        }
    )
    for number in range(first, first + RECORDS):
        producer.produce(
            "from",
            None if number % 7 == 0 else f"value {number}".encode() if number % 5 else b"",
            None if number % 3 == 0 else f"key {number % 100}".encode() if number % 11 else b"",
            partition=number % PARTITIONS,
            timestamp=FIRST_TIME + number * 37,
            headers=[("number", str(number).encode()), *OTHERS[: number % 4]],
        )
    assert producer.flush(LIMIT_SECONDS) == 0


def records(bootstrap: str, topic: str) -> list[Record]:
    """All of a topic, each partition in its order."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "view", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[Record] = []
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        headers = tuple(message.headers() or [])
        time = message.timestamp()[1]
        found.append((message.partition(), message.key(), message.value(), headers, time))
    consumer.close()
    return sorted(found, key=lambda record: record[0])


def committed(bootstrap: str) -> int:
    """The records that the group has behind it, of all partitions."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "copy"})
    places = [confluent_kafka.TopicPartition("from", index) for index in range(PARTITIONS)]
    total = sum(max(place.offset, 0) for place in consumer.committed(places, 60))
    consumer.close()
    return total


def test_every_record_is_copied_as_it_is_in_every_codec(job: Job, broker: BrokerProcess) -> None:
    """Each codec a run, from the last one's savepoint on: none twice; the group has what was read."""
    savepoint = ""
    for index, codec in enumerate(CODECS):
        write(broker.bootstrap, index * RECORDS, codec)
        job.start("NONE" if index % 2 else "AT_LEAST_ONCE", codec, savepoint)
        written = (index + 1) * RECORDS
        wait_for(partial(job.has_committed, written), f"{codec}: commits", LIMIT_SECONDS)
        job.ask_to_stop()
        savepoint = job.savepoint()
    everything = records(broker.bootstrap, "from")
    assert len(everything) == len(CODECS) * RECORDS
    assert records(broker.bootstrap, "to") == everything


@pytest.mark.parametrize("guarantee", ["AT_LEAST_ONCE", "EXACTLY_ONCE"])
def test_nothing_is_lost_when_the_broker_is_killed_within_checkpoints_and_savepoints(
    job: Job, broker: BrokerProcess, guarantee: str
) -> None:
    """Exactly once, nothing is there twice either, for readers of committed records."""
    savepoint = ""
    for round_ in range(KILLS):
        job.start(guarantee, CODECS[round_ + 1], savepoint)
        wait_for(partial(job.has_committed, round_ * RECORDS), "the last round's commits", LIMIT_SECONDS)
        write(broker.bootstrap, round_ * RECORDS, CODECS[round_])
        broker.kill()
        broker.start()
        job.ask_to_stop()
        broker.kill()
        broker.start()
        savepoint = job.savepoint()
    job.start(guarantee, "none", savepoint)
    everything = KILLS * RECORDS
    wait_for(partial(job.has_committed, everything), "all commits", LIMIT_SECONDS)
    job.ask_to_stop()
    job.savepoint()
    written, copied = Counter(records(broker.bootstrap, "from")), Counter(records(broker.bootstrap, "to"))
    assert sum(written.values()) == everything
    assert not written - copied, f"{sum((written - copied).values())} are lost"
    assert set(copied) == set(written), "records that nobody wrote"
    if guarantee == "EXACTLY_ONCE":
        assert copied == written, f"{sum((copied - written).values())} are there twice"
