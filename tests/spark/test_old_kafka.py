"""Goal: `format("kompakt")` reads and writes Apache Kafka from 3.0 on, as it is promised.

Method: real brokers of the oldest and the newest 3.x (`tests/kafka/pom-3.xml`); confluent-kafka produces and
reads back, one Spark session does the work: in batch, as a stream with commits, as a table, and writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.kafka.broker import OldKafkaBroker
from tests.kafka.fixtures import tools_or_skip
from tests.kafka.jars import old_versions
from tests.spark.test_spark import CODECS, Sent, create_topic, place_of, produce, reader, received, run_stream
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
BEGIN_MS = 1_700_000_000_000  # of the records that `produce` makes, a millisecond each


@pytest.fixture(scope="module", params=old_versions())
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker of the version listens, once it has found itself in its cluster."""
    tools = tools_or_skip(request.param)
    settings = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "0"}
    broker = OldKafkaBroker(tmp_path_factory.mktemp("kafka-3"), settings, tools=tools)
    try:
        broker.start()
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        wait_for(lambda: admin.list_topics(timeout=30).brokers, "a broker that takes topics")
        yield broker.bootstrap
    finally:
        broker.close()


@pytest.fixture
def topic(bootstrap: str) -> str:
    return create_topic(bootstrap)


def test_a_batch_of_every_codec(spark: Any, bootstrap: str, topic: str) -> None:
    """Keys, tombstones, headers, times; parts of it by time and by place, cut into tasks."""
    sent: list[Sent] = []
    for number, codec in enumerate(CODECS):
        sent += produce(bootstrap, topic, 60, codec, first=number * 60)
    sent = sorted(sent, key=place_of)
    options = {"includeHeaders": "true"}
    assert received(reader(spark, bootstrap, topic, **options).load()) == sent
    options |= {"startingTimestamp": str(BEGIN_MS + 50), "endingTimestamp": str(BEGIN_MS + 200)}
    between = [record for record in sent if 50 <= record.timestamp_ms - BEGIN_MS < 200]
    assert received(reader(spark, bootstrap, topic, **options, minPartitions="8").load()) == between
    found = spark.read.format("kompakt").options(includeHeaders="true", subscribePattern=f"^{topic}$")
    assert received(found.option("kafka.bootstrap.servers", bootstrap).load()) == sent


def test_a_deleted_head(spark: Any, bootstrap: str, topic: str) -> None:
    sent = produce(bootstrap, topic, 60)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 10)]).values():
        done.result(30)
    left = [record for record in sent if record.partition or record.offset >= 10]
    options = {"includeHeaders": "true", "startingOffsets": f'{{"{topic}":{{"0":3,"1":-2,"2":0}}}}'}
    assert received(reader(spark, bootstrap, topic, **options, failOnDataLoss="false").load()) == left
    with pytest.raises(Exception, match=f"{topic}-0: offsets 3 to 9 are gone, the log starts at 10"):
        reader(spark, bootstrap, topic, **options).load().count()


def test_committed_transactions(spark: Any, bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        for index in range(5):
            producer.produce(topic, b"%d.%d" % (number, index), partition=index % 3)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(60)
    committed = reader(spark, bootstrap, topic, **{"kafka.isolation.level": "read_committed"}).load()
    values = {row.v for row in committed.selectExpr("cast(value AS string) AS v").collect()}
    assert values == {f"{number}.{index}" for number in (0, 2) for index in range(5)}
    assert committed.count() == 10


@pytest.mark.usefixtures("queries")
def test_a_stream_that_commits(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Two runs over one checkpoint, and the group is where the query is."""
    options = {"maxOffsetsPerTrigger": "90", "groupId": topic, "commitOffsets": "true"}
    sent = produce(bootstrap, topic, 150, "lz4")
    run_stream(spark, bootstrap, topic, tmp_path, **options)
    sent += produce(bootstrap, topic, 60, "zstd", first=150)
    run_stream(spark, bootstrap, topic, tmp_path, **options)
    assert received(spark.read.parquet(str(tmp_path / "rows"))) == sorted(sent, key=place_of)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    places = [confluent_kafka.TopicPartition(topic, number) for number in range(3)]
    assert [place.offset for place in consumer.committed(places, 30)] == [70, 70, 70]
    consumer.close()


def test_a_compacted_topic_as_a_table(spark: Any, bootstrap: str) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    topic = create_topic(bootstrap, config)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd"})
    for round_number in range(3):
        for key in range(30):
            value = None if (round_number, key % 5) == (2, 1) else b"%d" % round_number
            stamp = BEGIN_MS + round_number * 60_000
            producer.produce(topic, value, b"%d" % key, partition=key % 3, timestamp=stamp)
        assert producer.flush(30) == 0
    table = {b"%d" % key: b"2" for key in range(30) if key % 5 != 1}
    plain = reader(spark, bootstrap, topic)
    wait_for(lambda: plain.load().count() == 60, "one of three rounds to be compacted away")
    rows = reader(spark, bootstrap, topic, view="latest").load().select("key", "value").collect()
    assert {bytes(row.key): bytes(row.value) for row in rows} == table
    as_of = reader(spark, bootstrap, topic, view="latest", asOf=str(BEGIN_MS + 60_000)).load()
    assert {bytes(row.value) for row in as_of.select("value").collect()} == {b"1"}
    assert as_of.count() == 30


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_what_is_written(spark: Any, bootstrap: str, topic: str, codec: str) -> None:
    """By an idempotent producer; a consumer of another library gets every row, with headers and times."""
    sent = produce(bootstrap, topic, 90)
    copy = create_topic(bootstrap)
    frame = reader(spark, bootstrap, topic, columns="key,value,partition,headers,timestamp").load()
    target = frame.write.format("kompakt").mode("append").option("kafka.bootstrap.servers", bootstrap)
    target.options(topic=copy, **{"kafka.compression.type": codec}).save()
    assert consumed(bootstrap, copy, len(sent)) == [record._replace(topic=copy) for record in sent]


def consumed(bootstrap: str, topic: str, count: int) -> list[Sent]:
    """The records of the topic as librdkafka reads them, `count` of them and no more, in order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(3)]
    assert sum(consumer.get_watermark_offsets(place, 30)[1] for place in places) == count
    consumer.assign(places)
    messages = consumer.consume(count, 60)
    found = [
        Sent(
            message.key(),
            message.value(),
            message.topic(),
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            tuple(message.headers() or ()),
        )
        for message in messages
    ]
    consumer.close()
    return sorted(found, key=place_of)
