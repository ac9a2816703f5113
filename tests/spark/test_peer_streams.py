"""Goal: a real Spark stream of `format("kompakt")` begins, waits and ends as one of Spark's own Kafka source.

Method: both sources run in one session with the same options: where a stream begins by time, a pattern that
gets a topic later, triggers that wait for enough records, what the progress says, options that only batches
have. What only ours has (`maxBytesPerTrigger`) shows in the sizes of the micro-batches that Spark makes, and
what Spark gives to its own alone is pinned, so that the documents change when Spark does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.spark.peer.topics import Topics, same_stream
from tests.spark.test_spark import create_topic, produce, run_stream
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("queries"),
]
BEGIN_MS = 1_700_000_000_000  # of the records that `produce` makes, a millisecond each
on_kompakt = pytest.mark.parametrize("topics", ["kompakt"], indirect=True)
by_both = pytest.mark.parametrize("source", ["kafka", "kompakt"])


def times(topic: str, *milliseconds: int) -> str:
    return json.dumps({topic: {str(number): BEGIN_MS + ms for number, ms in enumerate(milliseconds)}})


@on_kompakt
def test_a_stream_that_starts_at_a_time(topics: Topics, tmp_path: Path) -> None:
    """One time for all beats places."""
    topic = create_topic(topics.bootstrap)
    produce(topics.bootstrap, topic, 90)
    options = {
        "subscribe": topic,
        "startingTimestamp": str(BEGIN_MS + 60),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "20",
    }
    found, ends = same_stream(topics, tmp_path, **options)
    assert (len(found), len(ends)) == (30, 2)


@on_kompakt
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"startingTimestamp": "-2"}, [10, 10, 10]),
        ({"startingTimestamp": "-1"}, [0, 0, 0]),
        ({"startingOffsetsByTimestamp": '{"T": {"0": -2, "1": -1, "2": 1700000000015}}'}, [10, 0, 5]),
    ],
    ids=["earliest", "latest", "each"],
)
def test_a_stream_that_starts_at_a_word_for_a_time(
    topics: Topics, tmp_path: Path, option: dict[str, str], expected: list[int]
) -> None:
    """-2 and -1 go to ListOffsets as they are, which takes them for the start and the end of a log."""
    topic = create_topic(topics.bootstrap)
    produce(topics.bootstrap, topic, 30)
    options = {name: value.replace("T", topic) for name, value in option.items()}
    found, _ = same_stream(topics, tmp_path, subscribe=topic, **options)
    partitions = [row["partition"] for row in map(json.loads, found)]
    assert [partitions.count(number) for number in range(3)] == expected


@on_kompakt
def test_a_stream_that_starts_at_a_time_for_each_partition(topics: Topics, tmp_path: Path) -> None:
    """A partition without a record that young is an error, or starts at its end."""
    topic = create_topic(topics.bootstrap)
    produce(topics.bootstrap, topic, 90)
    options = {"subscribe": topic, "startingOffsetsByTimestamp": times(topic, 60, 10**9, 30)}
    for source in (topics.peer, "kompakt"):
        with pytest.raises(Exception, match=rf"(?s)No offset matched.*{topic}-1|{topic}-1 has no record at"):
            topics.run(source, tmp_path / f"{source}-strict", "availableNow", options)
    options["startingOffsetsByTimestampStrategy"] = "latest"
    found, _ = same_stream(topics, tmp_path, **options)
    partitions = [row["partition"] for row in map(json.loads, found)]
    assert [partitions.count(number) for number in range(3)] == [10, 0, 20]


@pytest.mark.parametrize("topics", [pytest.param("kafka", marks=pytest.mark.java)], indirect=True)
def test_a_pattern_that_gets_a_topic_later(topics: Topics, tmp_path: Path) -> None:
    """Between two runs over one checkpoint; it is read from its first record on."""
    first = create_topic(topics.bootstrap)
    produce(topics.bootstrap, first, 30)
    second = f"{first}-second"
    options = {"subscribePattern": f"{first}.*", "startingOffsets": "earliest"}
    assert len(same_stream(topics, tmp_path, **options)[0]) == 30
    create_topic(topics.bootstrap, name=second)
    produce(topics.bootstrap, second, 60)
    produce(topics.bootstrap, first, 30, first=30)
    found, ends = same_stream(topics, tmp_path, **options)
    assert len(found) == 120
    assert json.loads(ends["1"]) == {first: dict.fromkeys("012", 20), second: dict.fromkeys("012", 20)}


def start(topics: Topics, source: str, **options: str) -> Any:
    """A stream that looks every 100 ms and keeps nothing."""
    frame = topics.frame(source, {"startingOffsets": "earliest", **options}, streams=True)
    return frame.writeStream.format("noop").trigger(processingTime="100 milliseconds").start()


def sizes_of(query: Any) -> list[int]:
    """The rows of each micro-batch so far that had any."""
    if query.exception() is not None:
        raise query.exception()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def latest_seen(query: Any) -> int:
    """How many offsets there were when Spark last asked without making a batch."""
    idle = [progress for progress in query.recentProgress if not progress["numInputRows"]]
    if not idle or idle[-1]["sources"][0]["latestOffset"] is None:
        return -1
    latest = idle[-1]["sources"][0]["latestOffset"]
    by_topic = json.loads(latest) if isinstance(latest, str) else latest
    return sum(offset for partitions in by_topic.values() for offset in partitions.values())


@on_kompakt
def test_a_running_pattern_gets_a_topic(topics: Topics) -> None:
    first = create_topic(topics.bootstrap)
    produce(topics.bootstrap, first, 30)
    query = start(topics, "kompakt", subscribePattern=f"{first}.*")
    wait_for(lambda: sizes_of(query) == [30], "the first topic")
    second = create_topic(topics.bootstrap, name=f"{first}-second")
    produce(topics.bootstrap, second, 60)
    wait_for(lambda: sum(sizes_of(query)) == 90, "the second topic")


@pytest.fixture
def idle_progress(spark: Any) -> Iterator[None]:
    """Spark tells of triggers without a batch, often, but not so often that it forgets the others."""
    name = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(name, "300ms")
    yield
    spark.conf.unset(name)


@on_kompakt
@by_both
@pytest.mark.usefixtures("idle_progress")
def test_a_trigger_waits_for_enough(topics: Topics, source: str) -> None:
    """minOffsetsPerTrigger: Spark sees that there is news, and makes no batch before there is enough."""
    topic = create_topic(topics.bootstrap)
    produce(topics.bootstrap, topic, 3)
    query = start(topics, source, subscribe=topic, minOffsetsPerTrigger="6", maxTriggerDelay="1h")
    wait_for(lambda: sizes_of(query) == [3], "the first batch, for which nothing waits")
    produce(topics.bootstrap, topic, 5, first=3)
    wait_for(lambda: latest_seen(query) == 8, "a trigger that sees five more")
    assert sizes_of(query) == [3]
    produce(topics.bootstrap, topic, 1, first=8)
    wait_for(lambda: sizes_of(query) == [3, 6], "a batch of all six")


@on_kompakt
@by_both
def test_a_trigger_waits_no_longer_than_it_may(topics: Topics, source: str) -> None:
    """maxTriggerDelay: too little, but late; beside it maxOffsetsPerTrigger holds."""
    topic = create_topic(topics.bootstrap)
    produce(topics.bootstrap, topic, 9)
    limits = {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "6", "maxTriggerDelay": "1s"}
    query = start(topics, source, subscribe=topic, **limits)
    wait_for(lambda: sizes_of(query) == [6, 3], "the rest, of which there is too little")


@on_kompakt
@by_both
@pytest.mark.parametrize(
    "limits",
    [
        {"minOffsetsPerTrigger": "0"},
        {"minOffsetsPerTrigger": "-1"},
        {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "-1"},
    ],
    ids=["none", "below none", "no delay"],
)
def test_a_trigger_that_waits_for_nothing(topics: Topics, source: str, limits: dict[str, str]) -> None:
    topic = create_topic(topics.bootstrap)
    produce(topics.bootstrap, topic, 3)
    query = start(topics, source, subscribe=topic, **limits)
    wait_for(lambda: sizes_of(query) == [3], "the first batch")
    produce(topics.bootstrap, topic, 1, first=3)
    wait_for(lambda: sizes_of(query) == [3, 1], "a batch of one offset")


@on_kompakt
def test_batches_of_so_many_bytes(topics: Topics, tmp_path: Path) -> None:
    """Record batches of one record each, so that bytes can be told from offsets."""
    topic = create_topic(topics.bootstrap)
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.bootstrap, "batch.num.messages": 1})
    for number in range(90):
        producer.produce(topic, b"x" * 1000, partition=number % 3)
    assert producer.flush(60) == 0
    query = run_stream(topics.spark, topics.bootstrap, topic, tmp_path, maxBytesPerTrigger="30000")
    sizes = sizes_of(query)
    assert sum(sizes) == 90
    assert max(sizes) <= 30
    assert all(size >= 20 for size in sizes[:-1]), "far below the limit"


@on_kompakt
@pytest.mark.parametrize(
    ("option", "value", "theirs"),
    [
        ("endingOffsets", "latest", "ending offset not valid in streaming"),
        ("endingOffsetsByTimestamp", '{"t":{"0":1,"1":1,"2":1}}', "ending timestamp not valid in streaming"),
        ("endingTimestamp", "1800000000000", ""),  # which Spark's own passes over
    ],
)
def test_a_stream_has_no_end(topics: Topics, tmp_path: Path, option: str, value: str, theirs: str) -> None:
    options = {"subscribe": topics.empty, option: value}
    for source, said in (
        (topics.peer, theirs),
        ("kompakt", f"ConnectorError: {option}: a stream has no end"),
    ):
        if said:
            with pytest.raises(Exception, match=said):
                topics.run(source, tmp_path / source, "availableNow", options)


@on_kompakt
def test_the_progress_of_a_stream(topics: Topics) -> None:
    """Offsets and counts are those of Spark's own source; the name and the lag Spark gives to that alone."""
    topic = create_topic(topics.bootstrap)
    produce(topics.bootstrap, topic, 30)
    found = {}
    for source in (topics.peer, "kompakt"):
        query = start(topics, source, subscribe=topic, maxOffsetsPerTrigger="12")
        wait_for(lambda query=query: sizes_of(query) == [12, 12, 6], "all batches")  # type: ignore[misc]
        found[source] = [each["sources"][0] for each in query.recentProgress if each["numInputRows"]]
        query.stop()
    theirs, ours = found[topics.peer], found["kompakt"]
    for name in ("startOffset", "endOffset", "latestOffset", "numInputRows"):
        assert [each[name] for each in ours] == [each[name] for each in theirs], name
    assert {each["description"] for each in theirs} == {f"KafkaV2[Subscribe[{topic}]]"}
    assert all("python.PythonMicroBatchStream" in each["description"] for each in ours)
    assert all("maxOffsetsBehindLatest" in each["metrics"] for each in theirs)
    assert not any(each["metrics"] for each in ours)


@on_kompakt
@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"continuous": "1 second"}, "kompakt does not support continuous processing"),
        ({"realTime": "5 seconds"}, "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED"),
    ],
    ids=["continuous", "real time"],
)
def test_triggers_that_a_source_in_python_has_not(
    topics: Topics, tmp_path: Path, trigger: dict[str, str], said: str
) -> None:
    frame = topics.frame("kompakt", {"subscribe": topics.empty}, streams=True)
    writer = frame.writeStream.format("console").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match=said):
        writer.outputMode("update").trigger(**trigger).start().awaitTermination(60)


@on_kompakt
@by_both
def test_a_micro_batch_that_is_read_several_times(topics: Topics, source: str) -> None:
    """As `foreachBatch` does with each action: the same rows, whatever has come meanwhile."""
    topic = create_topic(topics.bootstrap)
    produce(topics.bootstrap, topic, 30)
    found = []

    def look(rows: Any, batch: int) -> None:
        first = sorted((row.partition, row.offset) for row in rows.collect())
        produce(topics.bootstrap, topic, 6, first=30 + 6 * batch)
        second = sorted((row.partition, row.offset) for row in rows.collect())
        found.append((first == second, rows.count(), rows.filter("partition = 0").count()))

    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "18"}
    writer = topics.frame(source, options, streams=True).writeStream.foreachBatch(look)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert found == [(True, 18, 6), (True, 12, 4)]
