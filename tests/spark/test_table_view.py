"""Goal: `view=latest` gives each key once, by its last record, and no key that ends in a tombstone.

Method: random logs on a fake broker (holes, codecs, batches of all sizes, aborted transactions) against a
dict; sets and chunks made so small that all ways are gone; then a topic that kompakt really compacts, read
by a Spark session.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql.datasource import InputPartition

from protocol.compression import Codec
from protocol.control import Marker, marker_batch
from protocol.records import encode_batch
from spark_connector import columns, key_set, table, unpacking
from spark_connector.client import connect
from spark_connector.errors import ConnectorError, DataLossError
from spark_connector.offsets import OffsetRange, TopicPartition
from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.shape import Shape
from spark_connector.stream import StreamReader
from spark_connector.table import TableReader
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of
from tests.spark.test_spark import CODECS, create_topic, reader
from tests.waiting import wait_for

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]
Rows = dict[bytes, tuple[int, bytes]]


def random_log(chosen: random.Random, records: int, keys: int) -> tuple[list[bytes], Rows]:
    """Batches with holes, and the table that they make."""
    batches = []
    rows: Rows = {}
    offset = 0
    while records > 0:
        deltas, entries = [], []
        delta = 0
        for _ in range(min(records, chosen.choice([1, 2, 5, 30]))):
            delta += chosen.choice([0, 0, 0, 1, 3])
            key = b"%d" % chosen.randrange(keys)
            value = (
                None if chosen.random() < 0.2 else b"%d of " % (offset + delta) + key * chosen.choice([1, 20])
            )
            rows.pop(key, None)
            if value is not None:
                rows[key] = offset + delta, value
            deltas.append(delta)
            entries.append((offset + delta, key, value, ()))
            delta += 1
            records -= 1
        codec = chosen.choice(list(Codec))
        made = encode_batch(
            entries, base_offset=offset, offset_deltas=deltas, last_offset_delta=delta, codec=codec
        )
        batches.append(made)
        offset += delta + 1 + chosen.choice([0, 0, 5])
    return batches, rows


def read(broker: FakeBroker, **options: str) -> list[tuple[bytes, int, bytes]]:
    """Key, offset and value of all rows, by offset."""
    parsed = parse_options(options_for(broker, view="latest", **options))
    chosen = BatchReader(parsed, Shape.of(["key", "offset", "value"]))
    found = []
    for partition in chosen.partitions():
        for made in chosen.read(partition):
            made.validate(full=True)
            found += list(zip(*(made.column(name).to_pylist() for name in made.schema.names), strict=True))
    return sorted(found, key=lambda row: (row[1], row[0]))


def as_rows(rows: Rows) -> list[tuple[bytes, int, bytes]]:
    return sorted(((key, *row) for key, row in rows.items()), key=lambda row: (row[1], row[0]))


@pytest.mark.parametrize("seed", range(12))
def test_a_view_is_the_dict_that_the_log_makes(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chosen = random.Random(seed)
    batches, rows = random_log(chosen, records=chosen.choice([1, 40, 600]), keys=chosen.choice([1, 20, 300]))
    broker = start_broker(logs_of(batches))
    assert read(broker) == as_rows(rows)
    monkeypatch.setattr(table, "CHUNK_BYTES", chosen.choice([100, 1000, 10_000]))
    monkeypatch.setattr(table, "FIRST_FETCH_BYTES", 100)
    monkeypatch.setattr(unpacking, "BACKWARD_ROWS", chosen.choice([1, 7, 50]))
    monkeypatch.setattr(columns, "MAX_ROWS", chosen.choice([1, 3, 20]))
    assert read(broker, kafka__max__partition__fetch__bytes=str(chosen.choice([1, 500]))) == as_rows(rows)


@pytest.mark.parametrize("seed", range(6))
def test_more_keys_than_the_memory_holds(start_broker: Start, seed: int) -> None:
    """Half of the keys wait for another pass, again and again; no row is lost and none comes twice."""
    chosen = random.Random(seed)
    batches, rows = random_log(chosen, records=800, keys=chosen.choice([13, 100, 500]))
    broker = start_broker(logs_of(batches))
    assert read(broker, viewMemoryBytes=str(chosen.choice([16, 300, 1600]))) == as_rows(rows)
    assert len(rows) * key_set.ENTRY_BYTES > 100


def test_all_partitions_each_with_its_keys(start_broker: Start) -> None:
    logs, expected = [], []
    for seed in range(5):
        batches, rows = random_log(random.Random(seed), 50, 10)
        logs.append(batches)
        expected += as_rows(rows)
    broker = start_broker(logs_of(*logs))
    assert read(broker, minPartitions="9") == sorted(expected, key=lambda row: (row[1], row[0]))


class CleanedLog(FakeLog):
    """An answer ends with its segment, here a batch; the cleaner is done once the first one was given."""

    left: Sequence[bytes] = ()

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = super().read(offset, 1)
        if found == self.batches[0]:
            self.batches = [*self.left]
        return found


@pytest.mark.parametrize("last", [None, b"2"])
def test_a_cleaner_between_two_answers_of_a_chunk(start_broker: Start, last: bytes | None) -> None:
    """The value of a key and what covers it lie in two segments and are cleaned away at once, the tombstone
    for its age or the younger value for one behind the end of the read."""
    old = encode_batch([(1, b"a", b"1", ()), (1, b"b", b"1", ())])
    young = encode_batch([(2, b"a", last, ()), (2, b"b", b"2", ())], base_offset=2)
    end = encode_batch([(3, b"c", b"3", ())], base_offset=4)
    log = CleanedLog([old, young, end])
    log.left = [encode_batch([(2, b"b", b"2", ())], base_offset=3), end]
    broker = start_broker({TopicPartition("t", 0): log})
    assert read(broker) == [(b"b", 3, b"2"), (b"c", 4, b"3")]


@pytest.mark.parametrize("made_of_nothing", [None, InputPartition(None)])
def test_a_view_of_an_empty_topic_has_no_rows(start_broker: Start, made_of_nothing: Any) -> None:
    """No partitions are planned. Spark makes one then: None (4.0, 4.1), or a partition of None (4.3)."""
    parsed = parse_options(options_for(start_broker(logs_of([])), view="latest"))
    chosen = BatchReader(parsed, Shape.of(["key"]))
    assert chosen.partitions() == []
    assert list(chosen.read(made_of_nothing)) == []


def test_the_end_is_that_of_the_plan(start_broker: Start) -> None:
    """What arrives between planning and reading is not in the table."""
    broker = start_broker(logs_of([encode_batch([(1, b"a", b"1", ()), (1, b"b", b"2", ())])]))
    parsed = parse_options(options_for(broker, view="latest"))
    chosen = BatchReader(parsed, Shape.of(["key", "value"]))
    (task,) = chosen.partitions()
    log = broker.logs[TopicPartition("t", 0)]
    log.batches.append(encode_batch([(2, b"a", None, ())], base_offset=2))
    assert [made.to_pydict() for made in chosen.read(task)] == [{"key": [b"a", b"b"], "value": [b"1", b"2"]}]
    assert [row[0] for row in read(broker)] == [b"b"]
    assert [row[0] for row in read(broker, endingOffsets='{"t":{"0":2}}')] == [b"a", b"b"]


def test_a_view_as_of_a_time(start_broker: Start) -> None:
    """Up to the first younger record; without one, what is there now and nothing that comes later."""
    batches = [encode_batch([(1000 + n, b"a", b"%d" % n, ())], base_offset=n) for n in range(5)]
    broker = start_broker(logs_of(batches))
    log = broker.logs[TopicPartition("t", 0)]
    log.times = {1003: 3}
    assert read(broker, asOf="1002") == [(b"a", 2, b"2")]
    assert read(broker, asOf="1970-01-01T01:00:01.0029+01:00") == [(b"a", 2, b"2")]
    parsed = parse_options(options_for(broker, asOf="1500"))
    chosen = BatchReader(parsed, Shape.of(["offset"]))
    (task,) = chosen.partitions()
    log.batches.append(encode_batch([(9999, b"a", b"9", ())], base_offset=5))
    assert [made.column(0).to_pylist() for made in chosen.read(task)] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "newest"}, "view must be latest"),
        (
            {"view": "latest", "startingOffsets": "latest"},
            "view=latest is made of whole logs; startingOffsets",
        ),
        ({"view": "latest", "startingTimestamp": "5"}, "startingTimestamp cannot go with it"),
        ({"asOf": "yesterday"}, "asOf must be ms or a time"),
        ({"asOf": "2026-02-01T12:00:00"}, "asOf needs a time zone: 2026-02-01T12:00:00Z"),
        ({"asOf": "5", "endingOffsets": "latest"}, "asOf and endingOffsets both say where to end"),
        ({"keylessRecords": "maybe"}, "keylessRecords must be error or absent"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], message: str) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options}
    with pytest.raises(ConnectorError, match=message):
        parse_options(given)


@pytest.mark.parametrize("option", [{"view": "latest"}, {"asOf": "5"}])
def test_a_stream_has_no_view(option: dict[str, str]) -> None:
    parsed = parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", **option})
    with pytest.raises(ConnectorError, match=f"{next(iter(option))}: a stream has no end"):
        StreamReader(parsed, Shape.of(parsed.columns))


def test_records_without_key(start_broker: Start) -> None:
    broker = start_broker(logs_of([encode_batch([(1, b"a", b"1", ()), (1, None, b"2", ())])]))
    with pytest.raises(ConnectorError, match="t-0: the record at offset 1 has no key"):
        read(broker)
    assert read(broker, keylessRecords="absent") == [(b"a", 0, b"1")]


def test_aborted_records_supersede_nothing(start_broker: Start) -> None:
    one = encode_batch([(1, b"a", b"1", ())])
    aborted = encode_batch(
        [(1, b"a", b"2", ())],
        base_offset=1,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    marker = marker_batch(Marker(False), producer_id=9, producer_epoch=0, now_ms=1, base_offset=2)
    broker = start_broker(logs_of([one, aborted, marker]))
    broker.logs[TopicPartition("t", 0)].aborted = [(9, 1)]
    assert read(broker) == [(b"a", 0, b"1")]
    assert read(broker, kafka__isolation__level="read_committed") == [(b"a", 0, b"1")]
    assert read(broker, kafka__isolation__level="read_uncommitted") == [(b"a", 1, b"2")]


def test_a_look_up_ends_where_its_keys_are_found(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few fetches for a key that was written lately, whatever the size of the log before it."""
    monkeypatch.setattr(table, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(table, "FIRST_FETCH_BYTES", 1000)
    batches = [
        encode_batch([(1, b"k%d" % ((n * 10 + i) % 900), b"v", ()) for i in range(10)], base_offset=n * 10)
        for n in range(100)
    ]
    broker = start_broker(logs_of(batches))
    parsed = parse_options(options_for(broker))
    wanted = OffsetRange(TopicPartition("t", 0), 0, 1000)

    def look_up(*keys: bytes) -> list[int]:
        broker.fetched.clear()
        found = TableReader(parsed, connect(parsed.client), wanted, Shape.of(["offset"]), keys)
        return sorted(offset for made in found.record_batches() for offset in made.column(0).to_pylist())

    assert look_up(b"k99", b"k95", b"k99") == [995, 999]
    assert min(broker.fetched) > 800
    assert look_up(b"k99", b"k500") == [500, 999]
    assert 300 < min(broker.fetched) <= 500
    assert look_up(b"nobody") == []


def test_what_retention_takes_is_lost_data(start_broker: Start) -> None:
    batches = [encode_batch([(1, b"%d" % n, b"v", ())], base_offset=n) for n in range(10)]
    broker = start_broker(logs_of(batches))
    log = broker.logs[TopicPartition("t", 0)]
    for fail in ("true", "false"):
        parsed = parse_options(options_for(broker, view="latest", failOnDataLoss=fail))
        chosen = BatchReader(parsed, Shape.of(["offset"]))
        log.log_start_offset = 0
        (task,) = chosen.partitions()
        log.log_start_offset = 4
        if fail == "true":
            with pytest.raises(DataLossError, match="the log starts at 4"):
                list(chosen.read(task))
        else:
            (made,) = chosen.read(task)
            assert sorted(made.column(0).to_pylist()) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("log_start", [9, 10, 15, None])
def test_all_that_a_view_was_to_read_is_gone(start_broker: Start, log_start: int | None) -> None:
    """Up to the end of a chunk, beyond it, or the topic (None): a division by zero ended the task."""
    broker = start_broker({})
    for fail in ("true", "false"):
        batches = [encode_batch([(1, b"%d" % n, b"v", ())], base_offset=n) for n in range(10)]
        broker.logs = logs_of(batches)
        parsed = parse_options(options_for(broker, view="latest", failOnDataLoss=fail))
        chosen = BatchReader(parsed, Shape.of(["offset"]))
        (task,) = chosen.partitions()
        if log_start is None:
            broker.logs = logs_of([], topic="another")
            connect(parsed.client).forget_leaders([TopicPartition("t", 0)])
        else:
            log = broker.logs[TopicPartition("t", 0)]
            log.log_start_offset, log.high_watermark = log_start, max(log_start, 10)
        if fail == "true":
            said = "UNKNOWN_TOPIC" if log_start is None else f"the log starts at {log_start}"
            with pytest.raises(DataLossError, match=said):
                list(chosen.read(task))
        else:
            offsets = [offset for made in chosen.read(task) for offset in made.column(0).to_pylist()]
            assert offsets == ([9] if log_start == 9 else [])


def test_a_corrupt_batch_is_named(start_broker: Start) -> None:
    batches = [encode_batch([(1, b"%d" % n, b"v", ())], base_offset=n) for n in range(3)]
    broken = bytearray(batches[1])
    broken[-1] ^= 1
    broker = start_broker(logs_of([batches[0], bytes(broken), batches[2]]))
    with pytest.raises(ConnectorError, match="t-0: the record batch at offset 1 is corrupt: its checksum"):
        read(broker)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_topics_that_are_really_compacted(spark: Any, kompakt_broker: Any) -> None:
    """One topic a codec: the table is the same before and after compaction, and as of an earlier time."""
    bootstrap = kompakt_broker.bootstrap
    config = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    topics = [create_topic(bootstrap, config) for _ in CODECS]
    tables: list[dict[bytes, bytes]] = [{}]
    for round_number in range(4):
        tables.append(dict(tables[-1]))
        for number in range(300):
            tables[-1][b"key %d" % number] = b"%d.%d" % (round_number, number)
            if number % 5 == round_number:
                del tables[-1][b"key %d" % number]
        for topic, codec in zip(topics, CODECS, strict=True):
            producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
            for number in range(300):
                key = b"key %d" % number
                stamp = 1_700_000_000_000 + round_number * 60_000
                producer.produce(topic, tables[-1].get(key), key, partition=number % 3, timestamp=stamp)
            assert producer.flush(30) == 0

    def rows(**options: str) -> list[dict[bytes, bytes]]:
        view = reader(spark, bootstrap, ",".join(topics), view="latest", **options).load()
        found: dict[str, dict[bytes, bytes]] = {topic: {} for topic in topics}
        for row in view.select("topic", "key", "value").collect():
            assert bytes(row.key) not in found[row.topic]
            found[row.topic][bytes(row.key)] = bytes(row.value)
        return list(found.values())

    assert rows() == [tables[4]] * 5
    plain = reader(spark, bootstrap, ",".join(topics))
    wait_for(lambda: plain.load().count() == 5 * 600, "two of four rounds to be compacted away")
    assert rows() == [tables[4]] * 5
    assert rows(asOf="2023-11-14T22:15:20Z") == [tables[3]] * 5
    # Compaction has taken what the table was a minute before; nothing younger may stand in for it.
    assert rows(asOf="2023-11-14T22:14:20Z") == [{}] * 5


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_as_of_the_middle_of_a_log(spark: Any, bootstrap: str) -> None:
    """Within a batch of records, each younger by a millisecond; keys that had their last record later have
    the one before it, and those that were deleted later are there."""
    topic = create_topic(bootstrap)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    begin_ms = 1_700_000_000_000
    for number in range(90):
        key, value = b"key %d" % (number % 12), None if number in (17, 70, 75) else b"%d" % number
        producer.produce(topic, value, key, partition=number % 3, timestamp=begin_ms + number)
    assert producer.flush(30) == 0
    for as_of in (str(begin_ms + 49), "2023-11-14T22:13:20.049Z", "2023-11-14T23:13:20.049+01:00"):
        plain = reader(spark, bootstrap, topic, asOf=as_of).load()
        assert {row.ms - begin_ms for row in plain.selectExpr("unix_millis(timestamp) AS ms").collect()} == {
            *range(50)
        }
        view = reader(spark, bootstrap, topic, asOf=as_of, view="latest").load().select("key", "value")
        last = {b"key %d" % (number % 12): b"%d" % number for number in range(38, 50)}
        assert {bytes(row.key): bytes(row.value) for row in view.collect()} == last
    assert reader(spark, bootstrap, topic, view="latest").load().count() == 12
    assert reader(spark, bootstrap, topic, view="latest", asOf=str(begin_ms + 75)).load().count() == 10


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_view_sends_no_rows_from_task_to_task(spark: Any, kompakt_broker: Any) -> None:
    """All records of a key are in one partition, so that its task knows the last; by hand it is a shuffle."""
    topic = create_topic(kompakt_broker.bootstrap)

    def plan(frame: Any) -> str:
        text: str = frame._jdf.queryExecution().executedPlan().toString()
        return text

    view = reader(spark, kompakt_broker.bootstrap, topic, view="latest").load()
    assert "BatchScan kompakt" in plan(view)
    assert "Exchange" not in plan(view)
    plain = reader(spark, kompakt_broker.bootstrap, topic).load()
    assert "Exchange" in plan(plain.groupBy("key").agg({"offset": "max"}))
