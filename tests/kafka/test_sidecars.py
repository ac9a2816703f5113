"""Goal: the statistics that kompakt keeps beside a segment disturb no Apache Kafka, and Kafka's doings do not
make kompakt believe them.

Method: a partition with statistics is put into a real Apache Kafka, which serves, cleans and recovers it
segment by segment with the files lying there, its dump tool reads the directory; then kompakt opens what
Kafka has made of it, and answers for every key.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from config.topic import TopicConfig
from protocol.records import decode_all, encode_batch
from storage import layout, statistics
from storage.key_search import find_key
from storage.layout import TopicPartition
from storage.opening import open_log
from storage.verify import verify_log
from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.kafka.tools import Tools
from tests.storage.builders import NOW_MS, LogBuilder
from tests.waiting import wait_for

Start = Callable[..., KafkaBroker]
TOPIC = "kept"
KEYS = 40
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000000000",
    "file.delete.delay.ms": "0",
}


def build(tmp_path: Path) -> LogBuilder:
    """Two closed segments with statistics, and an active one."""
    log = LogBuilder(tmp_path / f"{TOPIC}-0", cleanup_policy="compact")
    for turn in range(3):
        for number in range(KEYS):
            row = (NOW_MS, b"key-%d" % number, b"%d" % turn, ())
            log.log.append(encode_batch([row]), now_ms=NOW_MS)
        if turn < 2:
            log.log.roll(NOW_MS)
    log.log.flush()
    for segment in log.log.segments[:-1]:
        statistics.ensure(segment)
    log.log.close()
    return log


def adopt(log: LogBuilder, kafka: KafkaBroker) -> Path:
    """Put the partition into a Kafka that knows the topic, and take its trust away."""
    raw = Raw(kafka.port)
    raw.create(TOPIC, {**SETTINGS, "min.cleanable.dirty.ratio": "1.0"})
    raw.close()
    kafka.stop()
    target = kafka.data / f"{TOPIC}-0"
    identity = (target / layout.PARTITION_METADATA).read_bytes()
    shutil.rmtree(target)
    shutil.copytree(log.directory, target)
    (target / layout.PARTITION_METADATA).write_bytes(identity)
    (kafka.data / layout.CLEAN_SHUTDOWN).unlink()
    return target


def values(raw: Raw) -> list[bytes | None]:
    return [record.value for record in decode_all(raw.read(TOPIC)[0])]


def is_cleaned(port: int) -> bool:
    """Whether two records of each key are left. Kafka ends a connection whose file its cleaner takes away."""
    raw = Raw(port)
    try:
        return len(values(raw)) == 2 * KEYS
    except AssertionError:
        return False
    finally:
        raw.close()


@pytest.mark.java
def test_kafka_leaves_statistics_alone(start_kafka: Start, kafka_tools: Tools, tmp_path: Path) -> None:
    log = build(tmp_path)
    sidecars = log.files(layout.STATISTICS_SUFFIX)
    assert len(sidecars) == 2
    kafka = start_kafka({"log.cleaner.backoff.ms": "100"})
    target = adopt(log, kafka)
    kafka.start()
    raw = Raw(kafka.port)
    raw.wait_for_leader(TOPIC)
    assert values(raw) == [b"%d" % turn for turn in range(3) for _ in range(KEYS)]
    raw.configure(TOPIC, SETTINGS)
    raw.close()
    wait_for(lambda: is_cleaned(kafka.port), "Kafka's cleaning")
    kafka.stop()
    assert sorted(path.name for path in target.glob("*.stats")) == sidecars
    logs = ",".join(str(path) for path in sorted(target.glob("*.log")))
    kafka_tools.dump("--deep-iteration", "--files", logs)
    assert verify_log(target) == []
    own = open_log(target, TopicPartition(TOPIC, 0), TopicConfig(), is_clean=True)
    assert len(own.segments) < 3
    assert [path.name for path in target.glob("*.stats")] == [f"{0:020d}.stats"]
    for number in range(KEYS):
        found = find_key(own, b"key-%d" % number, history=True)
        assert [record.value for record in found.versions] == [b"2", b"1"]
    assert statistics.ensure(own.segments[0]).records == KEYS
    own.close()
