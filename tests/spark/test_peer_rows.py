"""Goal: `format("kompakt")` brings exactly the rows, columns and types of Spark's own Kafka source.

Method: one Spark session holds both sources. Topics of every kind (all codecs, headers, tombstones, no
timestamps of one's own, holes of compaction, aborted transactions, a deleted head, nothing at all) are read
by both with the same options, in batch and as a stream, from Apache Kafka and from kompakt, and every row is
compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from pyspark.sql.functions import struct, to_json

from tests.spark.test_spark import CODECS, create_topic, produce
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

Options = dict[str, str]


class Topics:
    """One topic of each kind on one broker, and how to read them by one source or the other."""

    def __init__(self, spark: Any, peer: str, bootstrap: str, has_transactions: bool) -> None:
        self.spark, self.peer, self.bootstrap = spark, peer, bootstrap
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        self.plain = create_topic(bootstrap)
        for number, codec in enumerate(CODECS):
            produce(bootstrap, self.plain, 60, codec, first=60 * number)
        self.stamped = create_topic(bootstrap, {"message.timestamp.type": "LogAppendTime"})
        produce(bootstrap, self.stamped, 30)
        self.empty = create_topic(bootstrap)
        self.beheaded = create_topic(bootstrap)
        produce(bootstrap, self.beheaded, 90)
        self.delete_head(self.beheaded, 10)
        self.compacted = self._compacted()
        self.transactional = self._transactional() if has_transactions else None

    def delete_head(self, topic: str, before: int) -> None:
        wanted = [confluent_kafka.TopicPartition(topic, number, before) for number in range(3)]
        for done in self.admin.delete_records(wanted).values():
            done.result(30)

    def _compacted(self) -> str:
        """Segments of a round each; whether and how far they are compacted, both sources see alike."""
        config = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
        topic = create_topic(self.bootstrap, config)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for round_number in range(4):
            for key in range(20):
                value = None if (round_number, key) == (1, 3) else b"%d" % round_number
                time_ms = 1_700_000_000_000 + round_number * 60_000
                producer.produce(topic, value, b"%d" % key, partition=0, timestamp=time_ms)
            assert producer.flush(60) == 0
        return topic

    def _transactional(self) -> str:
        topic = create_topic(self.bootstrap)
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": topic, "linger.ms": 0}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(60)
        for number in range(6):
            producer.begin_transaction()
            for index in range(5):
                producer.produce(topic, b"%d.%d" % (number, index), partition=index % 3)
            assert producer.flush(60) == 0
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(60)
        return topic

    @property
    def all(self) -> list[str]:
        return [self.plain, self.stamped, self.empty, self.beheaded, *filter(None, [self.transactional])]

    def frame(self, source: str, options: Options, *, streams: bool = False) -> Any:
        reader = (self.spark.readStream if streams else self.spark.read).format(source)
        return reader.option("kafka.bootstrap.servers", self.bootstrap).options(**options).load()


@pytest.fixture(scope="module", params=["kompakt", pytest.param("kafka", marks=pytest.mark.java)])
def topics(request: pytest.FixtureRequest, spark: Any, peer: str) -> Iterator[Topics]:
    broker = request.getfixturevalue(f"{request.param}_broker")
    yield Topics(spark, peer, broker.bootstrap, has_transactions=request.param == "kafka")


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


def test_every_row_of_every_topic(topics: Topics) -> None:
    """One read of all topics: keys, values, places, times, timestamp types, headers."""
    found = same(topics, subscribe=",".join(topics.all), includeHeaders="true")
    assert len(found) >= 300 + 30 + 60
    kinds = {json.loads(text)["timestampType"] for text in found}
    assert kinds == {0, 1}
    nulls = [row for row in map(json.loads, found) if row["topic"] == topics.plain and "value" not in row]
    assert nulls, "there are tombstones"


def test_holes_of_compaction(topics: Topics) -> None:
    """While the cleaner is at work the two reads may see different logs: read until it has come and gone."""
    options = {"subscribe": topics.compacted, "failOnDataLoss": "true"}
    if topics.transactional is None:  # Apache Kafka looks every 15 s, which is waited for elsewhere
        wait_for(lambda: topics.frame("kompakt", options).count() < 80, "the cleaner")
    wait_for(
        lambda: rows(topics.frame("kompakt", options)) == rows(topics.frame(topics.peer, options)),
        "both to see the same",
    )


def test_transactions(topics: Topics) -> None:
    """Of six transactions three were aborted; markers leave holes, the last one at the very end."""
    if topics.transactional is None:
        pytest.skip("this broker has no transactions")
    for level, count in (("read_committed", 15), ("read_uncommitted", 30)):
        found = same(topics, subscribe=topics.transactional, **{"kafka.isolation.level": level})
        assert len(found) == count
        ends = json.dumps({topics.transactional: {"0": 14, "1": 14, "2": 9}})
        cut = same(
            topics,
            subscribe=topics.transactional,
            endingOffsets=ends,
            minPartitions="7",
            **{"kafka.isolation.level": level},
        )
        assert 0 < len(cut) <= count


def everywhere(topic: str, value: int) -> str:
    return json.dumps({topic: {str(number): value for number in range(3)}})


def cases(plain: str) -> dict[str, Options]:
    """Options of table 2, as a user of Spark's own source writes them."""
    places = {"startingOffsets": json.dumps({plain: {"0": 10, "1": -2, "2": 50}})}
    places |= {"endingOffsets": json.dumps({plain: {"0": 20, "1": -1, "2": 50}})}
    return {
        "assign": {"assign": json.dumps({plain: [0, 2]})},
        "pattern": {"subscribePattern": plain[:-1] + "."},
        "offsets": {"subscribe": plain, **places},
        "offsets and minPartitions": {"subscribe": plain, **places, "minPartitions": "8"},
        "maxRecordsPerPartition": {"subscribe": plain, "maxRecordsPerPartition": "7"},
        "both": {"subscribe": plain, "maxRecordsPerPartition": "40", "minPartitions": "11"},
        "timestamps": {
            "subscribe": plain,
            "startingTimestamp": "1700000000050",
            "endingTimestamp": "1700000000200",
        },
        "timestamps by partition": {
            "subscribe": plain,
            "startingOffsetsByTimestamp": everywhere(plain, 1_700_000_000_100),
            "endingOffsetsByTimestamp": everywhere(plain, 1_800_000_000_000),
        },
        "too late a timestamp": {
            "subscribe": plain,
            "startingTimestamp": "1800000000000",
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "time beats places": {
            "subscribe": plain,
            "startingOffsets": places["startingOffsets"],
            "startingTimestamp": "1700000000290",
        },
        "limits of streams": {"subscribe": plain, "maxOffsetsPerTrigger": "5"},
        "names of the consumer": {"subscribe": plain, "kafka.group.id": "mine", "groupIdPrefix": "x"},
    }


@pytest.mark.parametrize("name", cases("t"))
def test_options_choose_the_same_rows(topics: Topics, name: str) -> None:
    found = same(topics, **cases(topics.plain)[name])
    assert found or name == "too late a timestamp"


@pytest.mark.parametrize("topics", ["kompakt"], indirect=True)  # what is refused, no broker decides
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": "t", "assign": '{"t":[0]}'},
        {"subscribe": "T", "startingOffsets": "latest"},
        {"subscribe": "T", "endingOffsets": "earliest"},
        {"subscribe": "T", "startingOffsets": '{"T":{"0":1}}'},
        {"subscribe": "T", "startingOffsets": '{"T":{"0":1,"1":1,"2":1,"3":1}}'},
        {"subscribe": "T", "endingOffsets": '{"T":{"0":1}}'},
        {
            "subscribe": "T",
            "startingOffsets": '{"T":{"0":9,"1":0,"2":0}}',
            "endingOffsets": '{"T":{"0":5,"1":9,"2":9}}',
        },
        {"subscribe": "T", "startingTimestamp": "1800000000000"},
        {"subscribe": "T", "kafka.auto.offset.reset": "latest"},
        {"subscribe": "T", "kafka.key.deserializer": "x"},
        {"subscribe": "T", "kafka.value.deserializer": "x"},
        {"subscribe": "T", "kafka.enable.auto.commit": "true"},
        {"subscribe": "T", "kafka.interceptor.classes": "x"},
        {"subscribe": "T", "minPartitions": "0"},
        {"subscribe": "T", "maxRecordsPerPartition": "0"},
    ],
    ids=str,
)
def test_both_refuse(topics: Topics, options: Options) -> None:
    """What Spark's own source does not take, ours does not either."""
    chosen = {name: value.replace("T", topics.plain) for name, value in options.items()}
    for source in (topics.peer, "kompakt"):
        with pytest.raises(Exception, match=r"."):
            topics.frame(source, chosen).count()


@pytest.fixture
def queries(spark: Any) -> Iterator[None]:
    """Stops what a test leaves running."""
    yield
    for query in spark.streams.active:
        query.stop()


@pytest.mark.parametrize(("trigger", "has_many_batches"), [("availableNow", True), ("once", False)])
@pytest.mark.usefixtures("queries")
def test_a_stream_brings_the_same_rows_in_the_same_batches(
    topics: Topics, tmp_path: Path, trigger: str, has_many_batches: bool
) -> None:
    """With a limit, which Trigger.Once passes over: batches end at the same offsets, and the rows are the
    same.
    """
    limits = {"subscribe": ",".join(topics.all), "startingOffsets": "earliest", "maxOffsetsPerTrigger": "170"}
    ends, found = [], []
    for source in (topics.peer, "kompakt"):
        frame = topics.frame(source, {**limits, "includeHeaders": "true"}, streams=True)
        writer = frame.writeStream.format("parquet").trigger(**{trigger: True})
        writer = writer.option("checkpointLocation", str(tmp_path / source / "checkpoint"))
        query = writer.start(str(tmp_path / source / "rows"))
        assert query.awaitTermination(120)
        assert query.exception() is None
        offsets = (tmp_path / source / "checkpoint" / "offsets").iterdir()
        ends.append(
            {path.name: path.read_text().splitlines()[-1] for path in offsets if path.name.isdecimal()}
        )
        found.append(rows(topics.spark.read.parquet(str(tmp_path / source / "rows"))))
    assert ends[0] == ends[1]
    assert (len(ends[0]) > 1) == has_many_batches
    assert found[0] == found[1]
