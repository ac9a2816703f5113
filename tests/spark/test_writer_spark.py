"""Goal: a Spark job writes topics through `format("kompakt")`, to kompakt and to Apache Kafka alike.

Method: one Spark session writes in batch and as a stream (SQL: `test_sql.py`); confluent-kafka reads
everything back and compares it record by record; a proxy that cuts connections stands in the way once.
"""

from __future__ import annotations

import re
import socket
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.process import BrokerProcess, free_port
from tests.spark.test_spark import (
    create_topic,
    place_of,
    produce,
    reader,
    received,
    topic,
)
from tests.spark.timeless import produce_without_times

__all__ = ["topic"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PAIRS = "array<struct<key:string,value:binary>>"
Message = tuple[Any, ...]


def writer(frame: Any, bootstrap: str, **options: str) -> Any:
    chosen = frame.write.format("kompakt").option("kafka.bootstrap.servers", bootstrap).mode("append")
    return chosen.options(**options)


def read_back(bootstrap: str, topic: str, count: int) -> list[Message]:
    """(partition, key, value, headers, time in ms) of the `count` records there must be, by partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(3)])
    found: list[Message] = []
    ended: set[int] = set()
    while len(ended) < 3:
        for message in consumer.consume(1000, 0.2):  # which waits so long whenever there are fewer
            place, error = message.partition(), message.error()
            assert place is not None
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                ended.add(place)
                continue
            headers = tuple(message.headers() or ())
            found.append((place, message.key(), message.value(), headers, message.timestamp()[1]))
    consumer.close()
    assert len(found) == count
    return found


def test_every_column_arrives(spark: Any, bootstrap: str, topic: str) -> None:
    """Null and empty keys and values, chosen partitions, headers, timestamps; each codec in turn."""
    rows = []
    for number in range(500):
        key = None if number % 7 == 0 else b"key %d" % (number % 50)
        value = (None, b"")[number % 2] if number % 11 == 0 else b"value %d " % number * (number % 5)
        headers = [("h", b"%d" % number), ("none", None)] if number % 3 == 0 else None
        time = datetime.fromtimestamp(1_700_000_000 + number, UTC)
        rows.append((key, value, topic, number % 3, headers, time))
    schema = f"key binary, value binary, topic string, partition int, headers {PAIRS}, timestamp timestamp"
    frame = spark.createDataFrame(rows, schema).repartition(2)
    for codec in CODECS:
        writer(frame, bootstrap, **{"kafka.compression.type": codec}).save()
    expected = [
        (partition, key, value, tuple(headers or ()), round(time.timestamp() * 1000))
        for key, value, _, partition, headers, time in rows
    ]
    found = read_back(bootstrap, topic, len(CODECS) * len(rows))
    assert sorted(found, key=repr) == sorted(expected * len(CODECS), key=repr)


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_keys_go_where_other_producers_send_them(
    spark: Any, bootstrap: str, topic: str, partitioner: str
) -> None:
    """librdkafka has both: the Java producer's hash and its own."""
    frame = spark.range(300).selectExpr("concat('key ', id) AS key", "cast(id AS string) AS value")
    writer(frame, bootstrap, topic=topic, partitioner=partitioner).save()
    name = {"murmur2": "murmur2_random", "crc32": "consistent_random"}[partitioner]
    other = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": name})
    for number in range(300):
        other.produce(topic, str(number), f"key {number}")
    assert other.flush(60) == 0
    partitions: dict[bytes, set[int]] = {}
    for partition, key, _, _, _ in read_back(bootstrap, topic, 600):
        partitions.setdefault(key, set()).add(partition)
    assert len(partitions) == 300
    assert {len(found) for found in partitions.values()} == {1}


def test_a_topic_that_is_copied(spark: Any, bootstrap: str, topic: str) -> None:
    """A read goes straight into a write; keys, headers and times stay, no time too."""
    sent = produce(bootstrap, topic, 90)
    copy = create_topic(bootstrap)
    sent = sorted([*sent, *produce_without_times(bootstrap, topic)], key=place_of)
    frame = reader(spark, bootstrap, topic, columns="key,value,partition,headers,timestamp").load()
    writer(frame, bootstrap, topic=copy).save()
    copied = received(reader(spark, bootstrap, copy, includeHeaders="true").load())
    assert [record._replace(topic=copy) for record in sent] == copied


def test_a_stream_is_written_once(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> None:
    """From topic to topic, in two runs over one checkpoint."""
    copy = create_topic(bootstrap)
    for first in (0, 90):
        produce(bootstrap, topic, 90, first=first)
        source = spark.readStream.format("kompakt").option("kafka.bootstrap.servers", bootstrap)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest")
        frame = source.option("maxOffsetsPerTrigger", "60").load()
        sink = frame.select("key", "value").writeStream.format("kompakt").option("topic", copy)
        sink = sink.option("kafka.bootstrap.servers", bootstrap)
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert query.exception() is None
    everything = reader(spark, bootstrap, topic, includeHeaders="true").load()
    wanted = [(record.key, record.value) for record in received(everything)]
    found = [(key, value) for _, key, value, _, _ in read_back(bootstrap, copy, 180)]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_refusals_reach_the_user(spark: Any, bootstrap: str) -> None:
    """What is wrong with options and columns when planned, what is wrong with a row from its task."""
    compacted = create_topic(bootstrap, {"cleanup.policy": "compact"})
    frame = spark.range(5).selectExpr("if(id = 3, NULL, 'k') AS key", "'v' AS value", "0 AS partition")
    frame = frame.coalesce(1)
    cases: list[tuple[Any, dict[str, str], str]] = [
        (frame.selectExpr("value", "1L AS partition"), {}, "column partition must be int, not bigint"),
        (frame.selectExpr("key"), {}, "column value is needed"),
        (
            frame.selectExpr("value", "9 AS partition"),
            {},
            "row 0 of the task, column partition: 9, but topic",
        ),
        (frame, {"kafka.compression.type": "rar"}, "kafka.compression.type must be none, gzip"),
        (frame, {}, "INVALID_RECORD.* row 3 of the task"),
    ]
    for rows, options, message in cases:
        with pytest.raises(Exception, match=message):
            writer(rows, bootstrap, **{"topic": compacted, **options}).save()
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer(frame, bootstrap, topic=compacted).mode("overwrite").save()


@pytest.mark.parametrize("source", ["kafka", "kompakt"])
def test_a_topic_that_does_not_exist_is_made(spark: Any, peer: str, bootstrap: str, source: str) -> None:
    """By the option and by the column, as by Spark's own sink."""
    names = [f"new-{uuid.uuid4().hex}" for _ in range(2)]
    frame = spark.range(9).selectExpr("CAST(id AS STRING) AS value")
    for name, rows, options in (
        (names[0], frame, {"topic": names[0]}),
        (names[1], frame.selectExpr("value", f"'{names[1]}' AS topic"), {}),
    ):
        sink = rows.write.format(source).option("kafka.bootstrap.servers", bootstrap).mode("append")
        sink.options(**options).save()
        assert reader(spark, bootstrap, name).load().count() == 9


def test_a_topic_that_is_not_made_is_told(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(5).selectExpr("'v' AS value", "'absent' AS topic").coalesce(1)
    broker = BrokerProcess(tmp_path / "data", {"auto.create.topics.enable": "false"})
    try:
        broker.start()
        for options, message in (
            ({}, "row 0 of the task, column topic: .*absent: UNKNOWN_TOPIC_OR_PARTITION; create the topic"),
            ({"topic": "absent-topic"}, "option topic: .*absent-topic: UNKNOWN_TOPIC_OR_PARTITION; create"),
        ):
            with pytest.raises(Exception, match=message):
                writer(frame, broker.bootstrap, **options).save()
    finally:
        broker.close()


class CuttingProxy:
    """Forwards to a broker and cuts a connection after every so many bytes. Owned by: the test."""

    def __init__(self, broker_port: int, port: int, cut_after_bytes: int) -> None:
        self.cuts = 0
        self._broker_port = broker_port
        self._left = cut_after_bytes
        self._every = cut_after_bytes
        self._listener = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                return
            self._open += [client, broker]
            threading.Thread(target=self._forward, args=(client, broker, True), daemon=True).start()
            threading.Thread(target=self._forward, args=(broker, client, False), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_counted: bool) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
                if is_counted:
                    self._left -= len(data)
                    if self._left <= 0 and len(data) > 1000:  # in the middle of records
                        self._left = self._every
                        self.cuts += 1
                        break
        except OSError:
            pass
        for side in (source, target):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._listener.close()
        for connection in self._open:
            connection.close()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[BrokerProcess, CuttingProxy, str]]:
    """A broker that tells clients to come through the proxy."""
    port = free_port()
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    process = BrokerProcess(tmp_path / "data", settings)
    proxy = None
    try:
        process.start()
        proxy = CuttingProxy(process.port, port, 3_000_000)
        yield process, proxy, f"127.0.0.1:{port}"
    finally:
        if proxy is not None:
            proxy.close()
        process.close()


def test_cut_connections_leave_no_duplicates(
    spark: Any, proxied: tuple[BrokerProcess, CuttingProxy, str]
) -> None:
    """30 MB through connections that live for 3 MB each: no row twice, none missing, order kept."""
    process, proxy, bootstrap = proxied
    name = create_topic(process.bootstrap)
    frame = spark.range(0, 100_000, 1, 1).selectExpr(
        "cast(id AS string) AS key", "repeat('0123456789', 30) AS value", "cast(id % 3 AS int) AS partition"
    )
    writer(frame, bootstrap, topic=name, **{"kafka.retry.backoff.ms": "10"}).save()
    assert proxy.cuts >= 3
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for partition, key, _, _, _ in read_back(process.bootstrap, name, 100_000):
        found[partition].append(int(key))
    assert found == {number: list(range(number, 100_000, 3)) for number in range(3)}
    assert re.search("Traceback", process.log()) is None
