"""Goal: where a log has holes, `format("kompakt")` finds what Spark's own Kafka source finds, nothing less.

Method: both sources in one session read topics that a cleaner has really been through, whose head was
deleted, and whose transactions were aborted or are still open; in batch and as a stream, from places inside
the holes too; every row and the end of every batch is compared.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import confluent_kafka
import pytest

from tests.spark.peer.topics import (
    ROUNDS,
    Topics,
    left_after_compaction,
    rows,
    same,
    same_stream,
    transact,
)
from tests.spark.test_spark import create_topic
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LOST = "offsets 3 to 9 are gone, the log starts at 10"
COMMITTED = {"kafka.isolation.level": "read_committed"}


def places(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(offsets)}})


def offsets_of(found: list[str], partition: int = 0) -> list[int]:
    """Of rows as JSON, in order."""
    read = map(json.loads, found)
    return sorted(row["offset"] for row in read if row["partition"] == partition)


def offsets_in(topics: Topics, topic: str) -> list[int]:
    """Of partition 0, as librdkafka reads it."""
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": "holes", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "neither a record nor the end"
        if message.error() is not None:
            consumer.close()
            return found
        found.append(message.offset())


@pytest.fixture
def compacted(topics: Topics) -> str:
    """The cleaner has been there; Apache Kafka's looks every 15 s."""
    wait_for(lambda: offsets_in(topics, topics.compacted) == left_after_compaction(), "the cleaner")
    return topics.compacted


def test_holes_of_compaction(topics: Topics, compacted: str) -> None:
    """failOnDataLoss being true; headers and a tombstone survive."""
    found = same(topics, subscribe=compacted, includeHeaders="true", failOnDataLoss="true")
    assert offsets_of(found) == left_after_compaction()
    read = [json.loads(text) for text in found]
    assert [row["offset"] for row in read if "value" not in row] == [sum(map(len, ROUNDS[:3])) - 1]
    assert any("headers" in row for row in read)
    assert any("headers" not in row for row in read)


@pytest.mark.usefixtures("queries")
def test_places_inside_holes(topics: Topics, compacted: str, tmp_path: Path) -> None:
    """To begin and to end where no record is, is no loss either; limits count offsets, holes among them."""
    left = left_after_compaction()
    assert not {0, 2, 21} & set(left), "no holes there"
    base = {"subscribe": compacted, "includeHeaders": "true", "failOnDataLoss": "true"}
    begin = places(compacted, 2, 0, 0)
    found = same(topics, **base, startingOffsets=begin, endingOffsets=places(compacted, 21, 0, 0))
    assert offsets_of(found) == [offset for offset in left if 2 <= offset < 21]
    split = same(topics, **base, startingOffsets=begin, minPartitions="9")
    assert offsets_of(split) == [offset for offset in left if offset >= 2]
    assert same(topics, **base, endingOffsets=places(compacted, 1, 0, 0)) == []
    streamed, ends = same_stream(topics, tmp_path, **base, startingOffsets=begin, maxOffsetsPerTrigger="19")
    assert streamed == split
    assert ends["0"] == places(compacted, 21, 0, 0).replace(" ", "")


def test_a_start_below_a_deleted_head(topics: Topics) -> None:
    """Both refuse it; told to go on, both give what is left of the range, none of it twice."""
    topic = topics.beheaded
    begin, end = places(topic, 3, -2, 12), places(topic, 20, -1, 15)
    base = {"subscribe": topic, "startingOffsets": begin, "includeHeaders": "true"}
    strict = {**base, "failOnDataLoss": "true"}
    for source, said in ((topics.peer, "Some data may have been lost"), ("kompakt", f"{topic}-0: {LOST}")):
        with pytest.raises(Exception, match=said):
            topics.frame(source, strict).count()
    patient = {**base, "failOnDataLoss": "false"}
    found = same(topics, **patient)
    assert [offsets_of(found, number) for number in range(3)] == [
        list(range(10, 30)),
        list(range(10, 30)),
        list(range(12, 30)),
    ]
    # Ours alone: the tasks of Spark's own that share a partition fail there, by its shared consumers.
    assert rows(topics.frame("kompakt", {**patient, "minPartitions": "8"})) == found
    some = same(topics, **patient, endingOffsets=end)
    assert offsets_of(some) == list(range(10, 20))
    gone = {**patient, "startingOffsets": places(topic, 3, 3, 3), "endingOffsets": places(topic, 7, 8, 9)}
    assert same(topics, **gone) == []


@pytest.mark.parametrize("topics", ["kompakt"], indirect=True)  # how a query ends, no broker decides
@pytest.mark.usefixtures("queries")
def test_a_stream_that_starts_below_a_deleted_head(topics: Topics, tmp_path: Path) -> None:
    topic = topics.beheaded
    options = {"subscribe": topic, "startingOffsets": places(topic, 3, -2, 12), "includeHeaders": "true"}
    for source, said in ((topics.peer, "Some data may have been lost"), ("kompakt", LOST)):
        with pytest.raises(Exception, match=said):
            topics.run(source, tmp_path / f"{source}-strict", "availableNow", options)
    patient = {**options, "failOnDataLoss": "false"}
    streamed, _ = same_stream(topics, tmp_path, **patient, maxOffsetsPerTrigger="50")
    assert streamed == same(topics, **patient)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("topics", [pytest.param("kafka", marks=pytest.mark.java)], indirect=True)
def test_transactions(topics: Topics, level: str) -> None:
    """Of six transactions three were aborted; markers leave holes, the last one at the very end."""
    topic = topics.transactional
    isolation = {"kafka.isolation.level": level}
    found = same(topics, subscribe=topic, **isolation)
    assert len(found) == {"read_committed": 15, "read_uncommitted": 30}[level]
    ends = places(topic, 14, 14, 9)
    cut = same(topics, subscribe=topic, endingOffsets=ends, minPartitions="7", **isolation)
    assert 0 < len(cut) <= len(found)


@pytest.mark.parametrize("topics", [pytest.param("kafka", marks=pytest.mark.java)], indirect=True)
@pytest.mark.usefixtures("queries")
def test_a_stream_of_committed_records(topics: Topics, tmp_path: Path) -> None:
    """Aborted ones stay out, batches may hold nothing else, and an open transaction is waited for."""
    topic = create_topic(topics.bootstrap)
    producer = topics.transactional_producer(topic)
    for number in range(4):
        transact(producer, topic, number)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(60)
    transact(producer, topic, 4)
    options = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    streamed, ends = same_stream(topics, tmp_path, **options, **COMMITTED, maxOffsetsPerTrigger="12")
    assert streamed == same(topics, subscribe=topic, includeHeaders="true", **COMMITTED)
    assert values_of(streamed) == {f"{number}.{index}" for number in (0, 2) for index in range(5)}
    assert len(ends) > 1
    everything = same(topics, subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert len(everything) == 25
    producer.commit_transaction(60)
    streamed, _ = same_stream(topics, tmp_path, **options, **COMMITTED)
    assert values_of(streamed) == {f"{number}.{index}" for number in (0, 2, 4) for index in range(5)}
    assert len(streamed) == 15


def values_of(found: list[str]) -> set[str]:
    return {base64.b64decode(json.loads(text)["value"]).decode() for text in found}
