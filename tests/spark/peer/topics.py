"""One topic of each kind on one broker, read by Spark's own source and by ours with the same options.

Each test module that compares has a fixture `topics`; a topic is made when the first test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
from pyspark.sql.functions import struct, to_json

from tests.spark.test_spark import CODECS, create_topic, produce
from tests.spark.timeless import produce_without_times

Options = dict[str, str]
ROUNDS: tuple[tuple[int, ...], ...] = (
    tuple(range(20)),
    tuple(range(0, 20, 2)),
    (1, 2, 3, 19),
    tuple(range(20, 25)),
)
"""The keys that each segment of the compacted topic has."""
DELETED = 3, 19
"""The key whose third record is a tombstone, and the round: its records before are gone, it is not."""


def left_after_compaction() -> list[int]:
    """The offsets that the first cleaning leaves: the last of each key, the active segment whole."""
    last: dict[int, int] = {}
    offset = 0
    for keys in ROUNDS:
        for key in keys:
            last[key] = offset
            offset += 1
    return sorted(last.values())


class Topics:
    """Owned by: one test module."""

    def __init__(self, spark: Any, peer: str, bootstrap: str, has_transactions: bool) -> None:
        self.spark, self.peer, self.bootstrap = spark, peer, bootstrap
        self.has_transactions = has_transactions
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})

    @cached_property
    def plain(self) -> str:
        """300 records in all codecs, with tombstones and headers."""
        topic = create_topic(self.bootstrap)
        for number, codec in enumerate(CODECS):
            produce(self.bootstrap, topic, 60, codec, first=60 * number)
        return topic

    @cached_property
    def stamped(self) -> str:
        topic = create_topic(self.bootstrap, {"message.timestamp.type": "LogAppendTime"})
        produce(self.bootstrap, topic, 30)
        return topic

    @cached_property
    def timeless(self) -> str:
        """Three records in partition 1, the first and the last without a timestamp."""
        topic = create_topic(self.bootstrap)
        produce_without_times(self.bootstrap, topic)
        return topic

    def filled(self, *sizes: int) -> str:
        """A new topic with so many records in each partition."""
        topic = create_topic(self.bootstrap)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for number, size in enumerate(sizes):
            for record in range(size):
                producer.produce(topic, b"%d" % record, partition=number)
        assert producer.flush(60) == 0
        return topic

    @cached_property
    def empty(self) -> str:
        return create_topic(self.bootstrap)

    @cached_property
    def beheaded(self) -> str:
        """30 offsets in each of three partitions, the first ten deleted."""
        topic = create_topic(self.bootstrap)
        produce(self.bootstrap, topic, 90)
        wanted = [confluent_kafka.TopicPartition(topic, number, 10) for number in range(3)]
        for done in self.admin.delete_records(wanted).values():
            done.result(30)
        return topic

    @cached_property
    def compacted(self) -> str:
        """A segment for each of ROUNDS, in partition 0; the cleaner may not have come yet."""
        config = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
        topic = create_topic(self.bootstrap, config)
        for number, keys in enumerate(ROUNDS):
            settings = {"bootstrap.servers": self.bootstrap, "compression.type": CODECS[number]}
            producer = confluent_kafka.Producer(settings)
            for key in keys:
                value = None if (number, key) == (2, DELETED[1]) else b"%d of %d" % (number, key)
                producer.produce(
                    topic,
                    value,
                    b"%d" % key,
                    partition=0,
                    timestamp=1_700_000_000_000 + number * 60_000,
                    headers=[("round", b"%d" % number), ("none", None)] if key % 3 else None,
                )
            assert producer.flush(60) == 0
        return topic

    @cached_property
    def transactional(self) -> str:
        """Six transactions of five records, every other one aborted."""
        topic = create_topic(self.bootstrap)
        producer = self.transactional_producer(topic)
        for number in range(6):
            transact(producer, topic, number)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(60)
        return topic

    def bounds(self, name: str, partitions: Iterable[int] = range(3)) -> list[tuple[int, int]]:
        """Of each partition the first offset, and the one behind the last."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": "bounds"})
        try:
            places = [confluent_kafka.TopicPartition(name, number) for number in partitions]
            return [consumer.get_watermark_offsets(place, 30) for place in places]
        finally:
            consumer.close()

    def transactional_producer(self, name: str) -> confluent_kafka.Producer:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": name, "linger.ms": 0}
        producer = confluent_kafka.Producer({**settings, "transaction.timeout.ms": 600_000})
        producer.init_transactions(60)
        return producer

    @property
    def all(self) -> list[str]:
        kinds = [self.plain, self.stamped, self.timeless, self.empty, self.beheaded]
        return [*kinds, self.transactional] if self.has_transactions else kinds

    def frame(self, source: str, options: Options, *, streams: bool = False) -> Any:
        reader = (self.spark.readStream if streams else self.spark.read).format(source)
        return reader.option("kafka.bootstrap.servers", self.bootstrap).options(**options).load()

    def run(self, source: str, directory: Path, trigger: str, options: Options) -> None:
        """A stream into Parquet, from its checkpoint on, until it ends."""
        writer = self.frame(source, options, streams=True).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
        query = writer.trigger(**{trigger: True}).start(str(directory / "rows"))
        assert query.awaitTermination(120)
        assert query.exception() is None


def transact(producer: confluent_kafka.Producer, topic: str, number: int) -> None:
    """Begin a transaction and send its five records; how it ends, the caller says."""
    producer.begin_transaction()
    for index in range(5):
        producer.produce(topic, b"%d.%d" % (number, index), partition=index % 3)
    assert producer.flush(60) == 0


def rows(frame: Any) -> list[str]:
    """Every column of every row as one text; timestamps to the microsecond."""
    precise = {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS"}
    return sorted(row[0] for row in frame.select(to_json(struct("*"), precise)).collect())


def same(topics: Topics, **options: str) -> list[str]:
    """What both sources find, after it was compared."""
    theirs, ours = (topics.frame(source, options) for source in (topics.peer, "kompakt"))
    assert ours.schema == theirs.schema
    found = rows(ours)
    assert found == rows(theirs)
    return found


def same_stream(
    topics: Topics, directory: Path, trigger: str = "availableNow", **options: str
) -> tuple[list[str], dict[str, str]]:
    """The rows that a stream of each source writes, and the ends of its batches, after both were compared.

    Called again for the same directory, both go on from their checkpoints.
    """
    ends, found = [], []
    for source in (topics.peer, "kompakt"):
        topics.run(source, directory / source, trigger, options)
        offsets = (directory / source / "checkpoint" / "offsets").iterdir()
        ends.append(
            {path.name: path.read_text().splitlines()[-1] for path in offsets if path.name.isdecimal()}
        )
        found.append(rows(topics.spark.read.parquet(str(directory / source / "rows"))))
    assert ends[0] == ends[1]
    assert found[0] == found[1]
    return found[1], ends[1]
