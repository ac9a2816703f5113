"""Goal: a Spark job reads topics through `format("kompakt")`, from kompakt and from Apache Kafka alike.

Method: confluent-kafka produces; one Spark session reads in batch, as SQL and as a stream; what arrives is
compared record by record with what was produced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.spark.conftest import LOOPBACK
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record as it was produced, in the order of Spark's columns."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of three partitions that no other test uses."""
    return create_topic(bootstrap)


def create_topic(bootstrap: str, config: dict[str, str] | None = None, name: str = "") -> str:
    name = name or f"spark-{uuid.uuid4().hex[:12]}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    forever = {"retention.ms": "-1"}  # the records of the tests are from 2023
    new = confluent_kafka.admin.NewTopic(name, 3, 1, config={**forever, **(config or {})})
    for done in admin.create_topics([new]).values():
        done.result(30)
    return name


def produce(bootstrap: str, topic: str, count: int, codec: str = "none", first: int = 0) -> list[Sent]:
    """`count` records over three partitions: keys, tombstones, empty values, headers."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5}
    )
    sent = []
    for number in range(first, first + count):
        key = None if number % 7 == 0 else b"key %d" % (number % 50)
        value = (None, b"")[number % 2] if number % 11 == 0 else b"value %d " % number * (number % 5 + 1)
        headers = (("h", b"%d" % number), ("none", None)) if number % 3 == 0 else ()
        timestamp_ms = 1_700_000_000_000 + number

        def note(error: Any, message: Any, fields: Any = (key, value, timestamp_ms, headers)) -> None:
            assert error is None, error
            key, value, timestamp_ms, headers = fields
            place = (message.topic(), message.partition(), message.offset())
            sent.append(Sent(key, value, *place, timestamp_ms, headers))

        producer.produce(
            topic,
            value,
            key,
            partition=number % 3,
            timestamp=timestamp_ms,
            headers=list(headers),
            on_delivery=note,
        )
    assert producer.flush(60) == 0
    return sorted(sent, key=place_of)


def place_of(record: Sent) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


def reader(spark: Any, bootstrap: str, topic: str, **options: str) -> Any:
    chosen = spark.read.format("kompakt").option("kafka.bootstrap.servers", bootstrap)
    return chosen.option("subscribe", topic).options(**options)


def received(frame: Any) -> list[Sent]:
    """Rows with headers as records, in order."""
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    return sorted(
        (
            Sent(
                None if row.key is None else bytes(row.key),
                None if row.value is None else bytes(row.value),
                row.topic,
                row.partition,
                row.offset,
                row.ms,
                tuple(
                    (pair.key, None if pair.value is None else bytes(pair.value))
                    for pair in row.headers or ()
                ),
            )
            for row in rows
        ),
        key=place_of,
    )


def test_a_batch_read_is_what_was_produced(spark: Any, bootstrap: str, topic: str) -> None:
    """All codecs, null keys, tombstones, empty values, headers, timestamps; found without `register`."""
    sent: list[Sent] = []
    for number, codec in enumerate(CODECS):
        sent += produce(bootstrap, topic, 300, codec, first=number * 300)
    frame = reader(spark, bootstrap, topic, includeHeaders="true").load()
    assert frame.rdd.getNumPartitions() == 1  # small partitions share a task
    apart = reader(spark, bootstrap, topic, includeHeaders="true", packOffsets="0").load()
    assert apart.rdd.getNumPartitions() == 3
    assert received(apart) == sorted(sent, key=place_of)
    assert received(frame) == sorted(sent, key=place_of)
    assert {row.timestampType for row in frame.select("timestampType").distinct().collect()} == {0}


def test_ranges_splits_and_projections(spark: Any, bootstrap: str, topic: str) -> None:
    sent = produce(bootstrap, topic, 300)
    starts = json.dumps({topic: {"0": 10, "1": -2, "2": 50}})
    ends = json.dumps({topic: {"0": 20, "1": -1, "2": 60}})
    options = {"startingOffsets": starts, "endingOffsets": ends, "includeHeaders": "true"}
    inside = [
        record
        for record in sent
        if record.partition == 1
        or {0: 10, 2: 50}[record.partition] <= record.offset < {0: 20, 2: 60}[record.partition]
    ]
    assert received(reader(spark, bootstrap, topic, **options).load()) == inside
    split = reader(spark, bootstrap, topic, **options, minPartitions="8").load()
    assert split.rdd.getNumPartitions() >= 6
    assert received(split) == inside
    values = reader(spark, bootstrap, topic).schema("offset bigint, value binary").load()
    assert values.columns == ["offset", "value"]
    assert values.count() == 300
    named = reader(spark, bootstrap, topic, columns="value").load()
    total = named.selectExpr("sum(length(value)) AS bytes").collect()[0].bytes
    assert total == sum(len(record.value or b"") for record in sent)


def test_sql_reads_a_topic(spark: Any, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 30)
    view = f"view_{uuid.uuid4().hex}"
    spark.sql(
        f"CREATE TEMPORARY VIEW {view} USING kompakt "
        f"OPTIONS (`kafka.bootstrap.servers` '{bootstrap}', subscribe '{topic}')"
    )
    rows = spark.sql(f"SELECT partition, count(*) AS n FROM {view} GROUP BY partition").collect()
    assert {row.partition: row.n for row in rows} == {0: 10, 1: 10, 2: 10}


def run_stream(spark: Any, bootstrap: str, topic: str, directory: Path, **options: str) -> Any:
    """Everything there is into Parquet files, from the checkpoint on; the finished query."""
    source = spark.readStream.format("kompakt").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    sink = source.options(includeHeaders="true", **options).load().writeStream.format("parquet")
    sink = sink.option("checkpointLocation", str(directory / "checkpoint"))
    query = sink.trigger(availableNow=True).start(str(directory / "rows"))
    assert query.awaitTermination(120)
    assert query.exception() is None
    return query


@pytest.mark.usefixtures("queries")
def test_a_stream_goes_on_where_it_stopped(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Two runs over one checkpoint; every record once, in triggers of a limited size."""
    sent = produce(bootstrap, topic, 300, "lz4")
    first = run_stream(spark, bootstrap, topic, tmp_path, maxOffsetsPerTrigger="90")
    sizes = [progress["numInputRows"] for progress in first.recentProgress if progress["numInputRows"]]
    assert sizes == [90, 90, 90, 30]
    sent += produce(bootstrap, topic, 60, first=300)
    run_stream(spark, bootstrap, topic, tmp_path)
    assert received(spark.read.parquet(str(tmp_path / "rows"))) == sorted(sent, key=place_of)
    logged = (tmp_path / "checkpoint" / "offsets" / "4").read_text().splitlines()[-1]
    assert json.loads(logged) == {topic: {"0": 120, "1": 120, "2": 120}}
    assert list(json.loads(logged)[topic]) == ["0", "1", "2"]


@pytest.mark.usefixtures("queries")
def test_a_first_micro_batch_that_failed_is_made_up_for(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """From the latest offset: what arrives before the query is started again is read, and no loss."""
    produce(bootstrap, topic, 30)
    source = spark.readStream.format("kompakt").option("kafka.bootstrap.servers", bootstrap)
    writer = source.option("subscribe", topic).load().writeStream
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    found: list[int] = []

    def fail(rows: Any, batch: int) -> None:
        raise RuntimeError("the sink is down")

    with pytest.raises(Exception, match="the sink is down"):
        writer.foreachBatch(fail).start().awaitTermination(120)
    produce(bootstrap, topic, 9, first=30)
    query = writer.foreachBatch(lambda rows, batch: found.append(rows.count())).start()
    wait_for(lambda: query.exception() or sum(found) == 9, "the records that came meanwhile")
    assert query.exception() is None
    query.stop()


@pytest.mark.usefixtures("queries")
def test_no_micro_batch_without_news(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Nothing arrived: a query that is started again over its checkpoint writes no further batch."""
    produce(bootstrap, topic, 30)
    offsets = tmp_path / "checkpoint" / "offsets"
    for _ in range(3):
        run_stream(spark, bootstrap, topic, tmp_path)
        assert [path.name for path in offsets.iterdir() if path.name.isdecimal()] == ["0"]


def test_the_format_is_found_from_anywhere(kompakt_broker: Any, tmp_path: Path) -> None:
    """A program in another directory, without PYTHONPATH and `register`: what an installed package gives."""
    bootstrap = kompakt_broker.bootstrap
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 30)
    program = tmp_path / "program.py"
    settings = "".join(f".config({key!r}, {value!r})" for key, value in LOOPBACK.items())
    program.write_text(
        "from pyspark.sql import SparkSession\n"
        f"spark = SparkSession.builder.master('local[1]'){settings}.getOrCreate()\n"
        "source = spark.read.format('kompakt').option('kafka.bootstrap.servers', "
        f"{bootstrap!r}).option('subscribe', {topic!r})\n"
        "print('rows', source.load().count())\n"
        "spark.stop()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={**environment, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "rows 30" in done.stdout.splitlines(), done.stdout + done.stderr


@pytest.mark.usefixtures("queries")
def test_a_running_stream_sees_what_arrives(spark: Any, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 30)
    name = f"rows_{uuid.uuid4().hex}"
    source = spark.readStream.format("kompakt").option("kafka.bootstrap.servers", bootstrap)
    query = source.option("subscribe", topic).load().writeStream.format("memory").queryName(name).start()
    # The stream starts at the latest offsets: nothing produced before it knows them may be missing or extra.
    wait_for(lambda: query.lastProgress, "the first trigger")
    produce(bootstrap, topic, 9, first=30)
    wait_for(lambda: spark.table(name).count() == 9, "the new records")
    query.stop()


def test_a_compacted_topic_has_holes_and_no_loss(spark: Any, bootstrap: str) -> None:
    """Offsets that compaction removed are no data loss, failOnDataLoss being true."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = create_topic(bootstrap, config)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for round_number in range(4):
        for key in range(10):
            producer.produce(
                topic,
                b"%d" % round_number,
                b"%d" % key,
                partition=0,
                timestamp=1_700_000_000_000 + round_number * 60_000,
            )
        assert producer.flush(30) == 0
    query = reader(spark, bootstrap, topic, failOnDataLoss="true")
    wait_for(lambda: query.load().count() == 20, "two of four rounds to be compacted away")
    rows = query.load().selectExpr("offset", "cast(value AS string) AS value").orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(20, 40))
    assert {row.value for row in rows} == {"2", "3"}


def test_a_limit_of_none_that_spark_takes_from_others(spark: Any, bootstrap: str, topic: str) -> None:
    """What means no limit elsewhere ends every read of a source in Python, and no write."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, "0")
    try:
        with pytest.raises(Exception, match="maximum arrow batch size should be greater than 0"):
            reader(spark, bootstrap, topic).load().count()
        rows = spark.range(3).selectExpr("cast(id AS string) AS value").write.format("kompakt")
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
        rows.mode("append").options(**options).save()
    finally:
        spark.conf.unset(name)
    assert reader(spark, bootstrap, topic).load().count() == 3


def test_errors_say_what_to_do(spark: Any, bootstrap: str) -> None:
    absent = reader(spark, bootstrap, "absent-topic").load()
    with pytest.raises(Exception, match="topic absent-topic: UNKNOWN_TOPIC_OR_PARTITION"):
        absent.count()
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        reader(spark, bootstrap, "t", startingOffset="earliest").load()


@pytest.mark.java
def test_aborted_transactions_are_invisible_when_asked(spark: Any, kafka_broker: Any) -> None:
    bootstrap = kafka_broker.bootstrap
    topic = create_topic(bootstrap)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for index in range(5):
            producer.produce(topic, b"%d.%d" % (number, index), partition=0)
        assert producer.flush(60) == 0
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)

    def rounds(**options: str) -> set[str]:
        rows = (
            reader(spark, bootstrap, topic, **options)
            .load()
            .selectExpr("cast(value AS string) AS v")
            .collect()
        )
        found = [row.v for row in rows]
        assert len(found) == len(set(found)) == 5 * len({value.split(".")[0] for value in found})
        return {value.split(".")[0] for value in found}

    assert rounds(**{"kafka.isolation.level": "read_committed"}) == {"0", "2", "4"}
    assert rounds() == {"0", "1", "2", "3", "4", "5"}
