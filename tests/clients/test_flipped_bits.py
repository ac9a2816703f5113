"""Goal: an unmodified consumer never gets a record that a flipped bit spoiled, is told so, and can read on.

Method: a broker process; ten batches in one partition, one bit of one of them flipped on disk while the
broker is down: of its base offset, length, leader epoch, magic byte, checksum, payload. librdkafka reads from
the start and seeks one offset on when it is told of an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from protocol.batch import iterate_headers
from tests.process import BrokerProcess
from tests.waiting import wait_for

BATCHES = 10
DAMAGED = 4
FIELDS = {"base_offset": 7, "length": 11, "leader_epoch": 15, "magic": 16, "crc": 17, "payload": 70}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data").start()
    yield broker
    broker.close()


def flip(log: Path, byte: int) -> None:
    data = bytearray(log.read_bytes())
    position = [position for position, _ in iterate_headers(bytes(data))][DAMAGED]
    data[position + byte] ^= 1
    log.write_bytes(data)


def consume(bootstrap: str) -> tuple[dict[int, bytes], set[int]]:
    """All records of t-0 by offset, and the offsets that an error was reported for."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    found: dict[int, bytes] = {}
    errors: set[int] = set()
    offset = 0
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    try:
        while offset < BATCHES:
            message = consumer.poll(30)
            assert message is not None, f"nothing at {offset}: {found}"
            if message.error() is None:
                value, offset = message.value(), message.offset() + 1
                assert isinstance(value, bytes)
                found[message.offset()] = value
            elif offset not in errors:
                errors.add(offset)
                offset += 1
                consumer.assign([confluent_kafka.TopicPartition("t", 0, offset)])
    finally:
        consumer.close()
    return found, errors


def corrupt_batches(process: BrokerProcess) -> list[float]:
    wait_for(lambda: answers(process), "HTTP")
    lines = process.http("/metrics").splitlines()
    return [
        float(line.split()[-1])
        for line in lines
        if line.startswith("kompakt_corrupt_batches_total{") and 'topic="t"' in line
    ]


def answers(process: BrokerProcess) -> bool:
    with contextlib.suppress(OSError):
        return bool(process.http("/healthz"))
    return False


def test_librdkafka_reads_all_but_what_is_damaged(process: BrokerProcess) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": process.bootstrap, "acks": "all"})
    for number in range(BATCHES):
        producer.produce("t", b"value %d" % number, key=b"k", partition=0)
        assert producer.flush(30) == 0
    assert process.stop() == 0
    log = process.data / "t-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    expected = {number: b"value %d" % number for number in range(BATCHES) if number != DAMAGED}
    for field, byte in FIELDS.items():
        flip(log, byte)
        process.start()
        assert consume(process.bootstrap) == (expected, {DAMAGED}), field
        assert corrupt_batches(process) == [1], field
        assert process.stop() == 0
        log.write_bytes(whole)
