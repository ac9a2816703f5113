"""Goal: a full disk is a pause, not an end: the broker stays up, refuses what it cannot store, serves what it
has, and goes on by itself within 5 s of room being made.

Method: the data directory lies on a tmpfs of a few MiB that a ballast file fills to the last byte while
producers write, a group commits and the cleaner rewrites; then the ballast goes. Asked directly, without a
client that would repeat. (Apache Kafka ends its process here.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.group_offsets import OffsetCommitRequest
from protocol.messages.produce import ProduceRequest
from protocol.records import encode_batch
from storage.verify import verify_data_directory
from tests.broker.client import Client
from tests.clients.adaptors import Confluent
from tests.crash.machine import fill, small_tmpfs
from tests.process import BrokerProcess
from tests.siege import PRODUCE_VERSION, produce_request
from tests.waiting import wait_for

DISK_BYTES = 24 << 20
VALUE_BYTES = 20_000
RESUME_SECONDS = 5.0
PLAIN, COMPACTED = "plain", "compacted"
SETTINGS = {
    "log.segment.bytes": "262144",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "10",
    "log.retention.check.interval.ms": "200",
    "offsets.topic.num.partitions": "2",
}


class Producer:
    """One record a request, acks=all; knows what was acknowledged. Owned by: the test."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._port = broker.port
        self._number = 0
        self.acknowledged: dict[str, dict[int, int]] = {PLAIN: {}, COMPACTED: {}}

    def write(self, topic: str) -> ErrorCode:
        """The broker's answer to the next number."""
        number = self._number
        self._number += 1
        value = (b"%d " % number).ljust(VALUE_BYTES, b".")
        batch = encode_batch([(None, b"%d" % (number % 5), value, ())], now_ms=time.time_ns() // 1_000_000)
        answer = asyncio.run(self._ask(produce_request((topic, 0, batch))))
        if answer.error_code == ErrorCode.NONE:
            self.acknowledged[topic][answer.base_offset] = number
        return ErrorCode(answer.error_code)

    async def _ask(self, request: ProduceRequest) -> ProduceRequest.TopicProduceData.PartitionProduceData:
        client = await Client.connect("127.0.0.1", self._port)
        try:
            response = await client.ask(request, PRODUCE_VERSION)
            return response.responses[0].partition_responses[0]
        finally:
            await client.close()

    def write_until(self, topic: str, wanted: ErrorCode, limit_s: float = 60.0) -> None:
        wait_for(lambda: self.write(topic) == wanted, f"{wanted.name} from {topic}", limit_s)


def commit(broker: BrokerProcess, offset: int) -> ErrorCode:
    """Commit as a consumer without a group's membership does."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id="g", topics=[topic(name=PLAIN, partitions=[partition])])

    async def ask() -> int:
        client = await Client.connect("127.0.0.1", broker.port)
        try:
            response = await client.ask(request, 7)
            return int(response.topics[0].partitions[0].error_code)
        finally:
            await client.close()

    return ErrorCode(asyncio.run(ask()))


def commit_until_taken(broker: BrokerProcess, offset: int) -> None:
    wait_for(lambda: commit(broker, offset) == ErrorCode.NONE, "a commit that is taken", RESUME_SECONDS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with small_tmpfs(DISK_BYTES) as disk:
        process = BrokerProcess(disk / "data", SETTINGS)
        process.output = tmp_path / "output"
        process.start()
        try:
            yield process
        finally:
            if process.process is not None:
                process.kill()


def check_records(broker: BrokerProcess, producer: Producer, topic: str) -> None:
    """Everything acknowledged can be read; of a compacted topic the last value of each key."""
    client = Confluent(broker.bootstrap)
    first, end = client.offsets(topic, 0)
    found = {
        record.offset: int((record.value or b"").split(b" ")[0])
        for record in client.read(topic, 0, first, end)
    }
    acknowledged = producer.acknowledged[topic]
    if topic == COMPACTED:
        last = {number % 5: offset for offset, number in sorted(acknowledged.items())}
        acknowledged = {offset: acknowledged[offset] for offset in last.values()}
        newest = {number % 5: offset for offset, number in sorted(found.items())}
        assert all(newest[key] >= offset for key, offset in last.items())
        return
    assert {offset: found.get(offset) for offset in acknowledged} == acknowledged


def assert_lives(broker: BrokerProcess) -> None:
    assert broker.process is not None
    assert broker.process.poll() is None, broker.log()
    assert "goes offline" not in broker.log()


@pytest.mark.crash
def test_producers_are_refused_while_the_disk_is_full_and_go_on_by_themselves(broker: BrokerProcess) -> None:
    """The partial write is cut off, a due roll is made up for, fetches and other partitions are served."""
    Confluent(broker.bootstrap).create_topic(PLAIN)
    producer = Producer(broker)
    for _ in range(3):
        for _ in range(20):
            assert producer.write(PLAIN) == ErrorCode.NONE
        ballast = fill(broker.data.parent)
        producer.write_until(PLAIN, ErrorCode.KAFKA_STORAGE_ERROR)
        for _ in range(5):
            assert producer.write(PLAIN) == ErrorCode.KAFKA_STORAGE_ERROR
        check_records(broker, producer, PLAIN)
        assert_lives(broker)
        ballast.unlink()
        producer.write_until(PLAIN, ErrorCode.NONE, RESUME_SECONDS)
    check_records(broker, producer, PLAIN)
    assert broker.stop() == 0
    assert verify_data_directory(broker.data) == []
    broker.start()
    check_records(broker, producer, PLAIN)


@pytest.mark.crash
def test_a_roll_that_the_full_disk_refuses_is_made_up_for(broker: BrokerProcess) -> None:
    """The next batch begins a segment: neither the producer snapshot nor the files can be made."""
    Confluent(broker.bootstrap).create_topic(PLAIN)
    producer = Producer(broker)
    per_segment = int(SETTINGS["log.segment.bytes"]) // VALUE_BYTES
    while len(producer.acknowledged[PLAIN]) % per_segment != per_segment - 1:
        assert producer.write(PLAIN) == ErrorCode.NONE
    ballast = fill(broker.data.parent)
    producer.write_until(PLAIN, ErrorCode.KAFKA_STORAGE_ERROR)
    assert_lives(broker)
    ballast.unlink()
    producer.write_until(PLAIN, ErrorCode.NONE, RESUME_SECONDS)
    segments = len(list((broker.data / f"{PLAIN}-0").glob("*.log")))
    for _ in range(2 * per_segment):
        assert producer.write(PLAIN) == ErrorCode.NONE
    assert len(list((broker.data / f"{PLAIN}-0").glob("*.log"))) > segments
    check_records(broker, producer, PLAIN)


@pytest.mark.crash
def test_the_cleaner_and_groups_outlive_a_full_disk(broker: BrokerProcess) -> None:
    """T124: a cleaning that finds no room is tried again, and its half-written files are gone."""
    client = Confluent(broker.bootstrap)
    client.create_topic(COMPACTED, 1, {"cleanup.policy": "compact"})
    client.create_topic(PLAIN)
    producer = Producer(broker)
    committed = 0
    client.commit(PLAIN, "g", 0, committed)  # makes `__consumer_offsets`
    for number in range(3):
        ballast = fill(broker.data.parent)
        ballast.write_bytes(bytes(ballast.stat().st_size - 700_000))  # room to write, none to clean
        producer.write_until(COMPACTED, ErrorCode.KAFKA_STORAGE_ERROR)
        refused = [commit(broker, 100 * number + offset) for offset in range(50)]
        committed = max(
            (100 * number + offset for offset, code in enumerate(refused) if not code), default=committed
        )
        check_records(broker, producer, COMPACTED)
        assert_lives(broker)
        ballast.unlink()
        producer.write_until(COMPACTED, ErrorCode.NONE, RESUME_SECONDS)
        committed = 100 * number + 50
        commit_until_taken(broker, committed)
        wait_for(lambda: _is_cleaned(broker), "the cleaning that was refused")
    check_records(broker, producer, COMPACTED)
    broker.kill()
    broker.start()
    check_records(broker, producer, COMPACTED)
    assert Confluent(broker.bootstrap).committed(PLAIN, "g", 0) == committed
    assert broker.stop() == 0
    assert verify_data_directory(broker.data) == []


def _is_cleaned(broker: BrokerProcess) -> bool:
    """Every closed segment was rewritten: few bytes are left."""
    directory = broker.data / f"{COMPACTED}-0"
    closed = sorted(directory.glob("*.log"))[:-1]
    is_busy = any(directory.glob("*.cleaned")) or any(directory.glob("*.deleted"))
    return not is_busy and sum(path.stat().st_size for path in closed) <= 6 * VALUE_BYTES
