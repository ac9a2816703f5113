"""Goal: a data directory goes from Apache Kafka to kompakt and back, and nobody notices.

Method: transactions of librdkafka, aborted, committed and one left open, with every codec, compacted and not,
are written to Apache Kafka; its directory is copied. Both brokers then serve the same files, clean them
further alike, and at last kompakt's partitions are put into an Apache Kafka that has never seen them,
once trusted after a clean stop and once recovered segment by segment.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest

from protocol.compression import Codec
from protocol.records import encode_batch
from storage.verify import verify_data_directory
from tests.kafka import compare, sequences
from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.kafka.sides import SETTINGS, Side, clean
from tests.kafka.tools import Tools
from tests.process import BrokerProcess

Start = Callable[..., KafkaBroker]
StartOwn = Callable[[Path], BrokerProcess]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = [f"{policy}-{codec}" for policy in ("delete", "compact") for codec in CODECS]
COMPACTED = [topic for topic in TOPICS if topic.startswith("compact")]
OPEN_TOPICS = ("delete-none", "delete-lz4", "compact-gzip")
PRODUCER_ID = 700_000


def settings_of(topic: str) -> dict[str, str]:
    given = {
        "cleanup.policy": topic.partition("-")[0],
        "segment.ms": str(sequences.SEGMENT_MS),
        "retention.ms": "-1",
        "delete.retention.ms": "0" if topic.endswith(("none", "zstd")) else str(sequences.DAY_MS),
        "message.timestamp.after.max.ms": str(30 * sequences.DAY_MS),
        "file.delete.delay.ms": "0",
    }
    return {**given, **sequences.DIRTY_NEVER}


class Writer:
    """Transactions and plain batches into Apache Kafka; each step begins a segment."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.now_ms = int(time.time() * 1000) + sequences.LEAP_MS
        self.raw = Raw(broker.port)
        self.last: dict[str, bytes] = {}
        self._sequences = dict.fromkeys(TOPICS, 0)

    def begin(self, codec: str, name: str) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "transactional.id": f"{codec}-{name}",
                "compression.type": codec,
                "transaction.timeout.ms": 900_000,
            }
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        return producer

    def put(
        self, producer: confluent_kafka.Producer, topic: str, first: int, count: int, word: bytes
    ) -> None:
        for number in range(first, first + count):
            value = None if number % 7 == 6 else word + b"-%d" % number * 5
            headers = [("n", b"%d" % number)]
            producer.produce(topic, value, b"key-%d" % number, timestamp=self.now_ms, headers=headers)
        assert producer.flush(60) == 0

    def plain(self, topic: str) -> bytes:
        """An idempotent batch of ours; its bytes."""
        items = [(self.now_ms, b"key-%d" % number, b"plain", ()) for number in (1, 1, 30)]
        batch = encode_batch(
            items,
            codec=Codec(CODECS.index(topic.partition("-")[2])),
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=self._sequences[topic],
        )
        self._sequences[topic] += len(items)
        self.last[topic] = batch
        return batch

    def leap(self) -> None:
        self.now_ms += sequences.LEAP_MS

    def write(self, codec: str, *, leave_open: bool) -> None:
        """Transactions that overlap, end one way or the other, or not at all."""
        topics = [topic for topic in TOPICS if topic.endswith(f"-{codec}")]
        first, second = self.begin(codec, "first"), self.begin(codec, "second")
        for round_ in range(3):
            for topic in topics:
                self.put(first, topic, round_, 8, b"committed")
                self.put(second, topic, round_ + 2, 8, b"aborted")
                self.produce(topic)
                self.put(second, topic, 40 + round_, 2, b"aborted")
            second.abort_transaction(60)
            self.leap()
            first.commit_transaction(60)
            for one in (first, second):
                one.begin_transaction()
        self.leap()
        for topic in topics:
            if leave_open and topic in OPEN_TOPICS:
                self.put(first, topic, 0, 3, b"open")
            self.produce(topic)
        self.leap()

    def produce(self, topic: str) -> bytes:
        batch = self.plain(topic)
        answer = self.raw.produce(topic, batch)
        assert answer.error_code == 0, answer
        return batch


@pytest.fixture
def start_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartOwn]:
    started: list[BrokerProcess] = []

    def start(data: Path) -> BrokerProcess:
        started.append(BrokerProcess(data, {**SETTINGS, "node.id": "1"}))
        return started[-1].start()

    yield start
    for process in started:
        log = process.log()
        process.close()
        assert "Traceback" not in log, log


def connect(broker: KafkaBroker | BrokerProcess) -> Raw:
    """A connection to a broker that leads all topics."""
    raw = Raw(broker.port)
    for topic in TOPICS:
        raw.wait_for_leader(topic)
    return raw


def compare_views(kafka: Raw, own: Raw) -> None:
    """Every topic by both isolation levels: the batches, the aborted transactions, the ends."""
    for topic in TOPICS:
        for isolation in (0, 1):
            (expected, expected_aborted), (found, found_aborted) = (
                raw.read(topic, isolation=isolation) for raw in (kafka, own)
            )
            difference = compare.differences(compare.batches(expected), compare.batches(found))
            assert not difference, f"{topic} {difference}"
            assert expected_aborted == found_aborted, topic
        ends = [raw.fetch(topic, 0, isolation=1) for raw in (kafka, own)]
        assert ends[0].last_stable_offset == ends[1].last_stable_offset, topic
        assert ends[0].high_watermark == ends[1].high_watermark, topic
        assert (ends[0].last_stable_offset < ends[0].high_watermark) == (topic in OPEN_TOPICS)


def committed_view(bootstrap: str, topics: Sequence[str]) -> list[tuple[object, ...]]:
    """What librdkafka gives a read_committed reader."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "view", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0) for topic in topics])
    ended: set[str] = set()
    seen = []
    while len(ended) < len(topics):
        message = consumer.poll(60)
        assert message is not None, f"only {sorted(ended)} came to their end"
        if message.error() is None:
            seen.append(
                (message.topic(), message.offset(), message.key(), message.value(), message.timestamp())
            )
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            ended.add(message.topic())
    consumer.close()
    return sorted(seen, key=lambda record: record[:2])


def ends_of(side: Side, topics: Sequence[str]) -> dict[str, int]:
    """How far may be cleaned: to the active segment, not beyond an open transaction."""
    stable = {topic: side.raw.fetch(topic, 0, isolation=1).last_stable_offset for topic in topics}
    return {topic: min(side.segments(topic)[-1], stable[topic]) for topic in topics}


def write_to_kafka(kafka: KafkaBroker) -> Writer:
    """All topics written, partly cleaned, written on."""
    writer = Writer(kafka)
    for topic in TOPICS:
        writer.raw.create(topic, settings_of(topic))
    side = Side(kafka.data, writer.raw)
    for codec in CODECS:
        writer.write(codec, leave_open=False)
    clean([side], ends_of(side, COMPACTED))
    for codec in CODECS:
        writer.write(codec, leave_open=True)
    return writer


def clean_alike(writer: Writer, kafka: Side, own: Side) -> None:
    """Two more cleanings, the second with all horizons of the first behind it."""
    for _ in range(2):
        for topic in COMPACTED:
            batch = writer.plain(topic)
            answers = [side.raw.produce(topic, batch) for side in (kafka, own)]
            assert [answer.error_code for answer in answers] == [0, 0], answers
            assert answers[0].base_offset == answers[1].base_offset
            assert kafka.segments(topic) == own.segments(topic)
        writer.leap()
        clean([kafka, own], ends_of(kafka, COMPACTED))
        compare_views(kafka.raw, own.raw)


def adopt_into_kafka(source: Path, kafka: KafkaBroker) -> None:
    """Put kompakt's partitions into a fresh Kafka, under the ids that it gave the topics."""
    raw = Raw(kafka.port)
    for topic in TOPICS:
        raw.create(topic, settings_of(topic))
    raw.close()
    kafka.stop()
    for topic in TOPICS:
        target = kafka.data / f"{topic}-0"
        identity = (target / "partition.metadata").read_bytes()
        shutil.rmtree(target)
        shutil.copytree(source / f"{topic}-0", target)
        (target / "partition.metadata").write_bytes(identity)


def again(raw: Raw, writer: Writer) -> dict[str, int]:
    """Where a repeated batch is said to lie: what a broker knows of the producer."""
    answers = {topic: raw.produce(topic, batch) for topic, batch in writer.last.items()}
    assert {answer.error_code for answer in answers.values()} == {0}, answers
    return {topic: answer.base_offset for topic, answer in answers.items()}


def contents(raw: Raw) -> dict[str, list[object]]:
    """Everything a reader may get."""
    return {
        topic: [raw.read(topic, isolation=isolation) for isolation in (0, 1)]
        + [raw.fetch(topic, 0, isolation=1).last_stable_offset, raw.list_offset(topic, -3)]
        for topic in TOPICS
    }


def dump_everything(data: Path, tools: Tools) -> None:
    files = [
        path
        for topic in TOPICS
        for path in sorted((data / f"{topic}-0").iterdir())
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    ]
    tools.dump("--deep-iteration", "--files", ",".join(map(str, files)))
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    tools.assert_sane_indexes([path for path in files if path.suffix in (".index", ".timeindex")])


@dataclass
class Exchanged:
    """What kompakt answered last about a directory that came from Kafka, and left."""

    writer: Writer
    data: Path
    contents: dict[str, list[object]]
    places: dict[str, int]
    view: list[tuple[object, ...]]


def from_kafka(start_kafka: Start, start_own: StartOwn, kafka_tools: Tools, tmp_path: Path) -> Exchanged:
    """Kafka's directory in kompakt, beside Kafka itself."""
    broker = start_kafka(SETTINGS)
    writer = write_to_kafka(broker)
    broker.stop()
    shutil.copytree(broker.data, tmp_path / "data")
    assert verify_data_directory(tmp_path / "data") == []
    process = start_own(tmp_path / "data")
    broker.start()
    kafka, own = Side(broker.data, connect(broker)), Side(process.data, connect(process))
    compare_views(kafka.raw, own.raw)
    assert committed_view(broker.bootstrap, TOPICS) == committed_view(process.bootstrap, TOPICS)
    for topic in TOPICS:  # it took them over from Kafka's quorum log
        assert own.raw.described(topic, settings_of(topic)) == settings_of(topic)
    clean_alike(writer, kafka, own)
    expected, places = contents(own.raw), again(own.raw, writer)
    assert places == again(kafka.raw, writer)
    view = committed_view(process.bootstrap, TOPICS)
    for raw in (writer.raw, kafka.raw, own.raw):
        raw.close()
    broker.close()
    assert process.stop() == 0, process.log()
    assert verify_data_directory(process.data) == []
    dump_everything(process.data, kafka_tools)
    return Exchanged(writer, process.data, expected, places, view)


@pytest.mark.java
def test_t184_kafkas_directory_is_served_and_cleaned_alike(
    start_kafka: Start, start_own: StartOwn, kafka_tools: Tools, tmp_path: Path
) -> None:
    exchanged = from_kafka(start_kafka, start_own, kafka_tools, tmp_path)
    assert {topic for topic, *_ in exchanged.view} == set(TOPICS)


@pytest.mark.java
@pytest.mark.slow
def test_t184_directories_go_there_and_back(
    start_kafka: Start, start_own: StartOwn, kafka_tools: Tools, tmp_path: Path
) -> None:
    exchanged = from_kafka(start_kafka, start_own, kafka_tools, tmp_path)
    fresh = start_kafka()
    adopt_into_kafka(exchanged.data, fresh)
    for is_recovered in (False, True):
        if is_recovered:
            (fresh.data / ".kafka_cleanshutdown").unlink()
        fresh.start()
        back = connect(fresh)
        assert contents(back) == exchanged.contents
        assert again(back, exchanged.writer) == exchanged.places
        assert committed_view(fresh.bootstrap, TOPICS) == exchanged.view
        back.close()
        fresh.stop()
