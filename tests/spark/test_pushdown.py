"""Goal: filters that the source applies give what Spark would have left, and less is read for it.

Method: every filter class on random logs, the source's rows filtered once more by what it gave back, against
the filter applied to all rows; then a Spark session whose plan shows what it still filters.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from protocol.records import encode_batch
from spark_connector.offsets import TopicPartition
from spark_connector.options import parse_options
from spark_connector.pushdown import FilteringReader
from spark_connector.reader import BatchReader
from spark_connector.shape import shape_of
from spark_connector.source import KompaktDataSource
from tests.spark.conftest import options_for
from tests.spark.ddl import schema_of
from tests.spark.fake_broker import FakeBroker, FakeLog
from tests.spark.test_spark import create_topic, reader

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]
Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"

MEANINGS: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: lambda found, wanted: found is not None and found == wanted,
    EqualNullSafe: lambda found, wanted: found == wanted,
    GreaterThan: lambda found, wanted: found is not None and found > wanted,
    GreaterThanOrEqual: lambda found, wanted: found is not None and found >= wanted,
    LessThan: lambda found, wanted: found is not None and found < wanted,
    LessThanOrEqual: lambda found, wanted: found is not None and found <= wanted,
    In: lambda found, wanted: found is not None and found in wanted,
    StringStartsWith: lambda found, wanted: found.startswith(wanted),
    StringEndsWith: lambda found, wanted: found.endswith(wanted),
    StringContains: lambda found, wanted: wanted in found,
}


def holds(wanted: Any, row: Row) -> bool:
    if isinstance(wanted, Not):
        return not holds(wanted.child, row)
    found = row[wanted.attribute[0]]
    if isinstance(wanted, IsNotNull | IsNull):
        return (found is None) == isinstance(wanted, IsNull)
    return bool(MEANINGS[type(wanted)](found, wanted.value))


def moment(timestamp_ms: float) -> datetime:
    return EPOCH + timedelta(milliseconds=timestamp_ms)


class TimedLog(FakeLog):
    """Answers look-ups by time as brokers do: the first record that is as young."""

    stamps: list[int]

    def fill(self) -> None:
        self.times = {
            asked: next((offset for offset, stamp in enumerate(self.stamps) if stamp >= asked), -1)
            for asked in range(-2, 300)
        }


def random_broker(start_broker: Start, chosen: random.Random) -> FakeBroker:
    logs: dict[TopicPartition, FakeLog] = {}
    for topic in ("t", "u"):
        for partition in range(3):
            log = TimedLog()
            log.stamps = [max(0, offset * 2 + chosen.randrange(-20, 20)) for offset in range(60)]
            for base in range(0, 60, 10):
                entries = [
                    (stamp, b"%d" % chosen.randrange(8), chosen.choice([None, b"v"]), ())
                    for stamp in log.stamps[base : base + 10]
                ]
                log.batches.append(encode_batch(entries, base_offset=base))
            log.fill()
            logs[TopicPartition(topic, partition)] = log
    return start_broker(logs)


def random_filter(chosen: random.Random) -> Filter:
    name = chosen.choice(["topic", "partition", "offset", "offset", "timestamp", "timestamp", "key", "value"])
    comparisons = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    values: dict[str, Callable[[], Any]] = {
        "topic": lambda: chosen.choice(["t", "u", "nobody"]),
        "partition": lambda: chosen.randrange(-1, 4),
        "offset": lambda: chosen.randrange(-5, 70),
        "timestamp": lambda: moment(chosen.choice([0, 0.001, 0.5, 0.999]) + chosen.randrange(0, 130)),
        "key": lambda: b"%d" % chosen.randrange(10),
        "value": lambda: chosen.choice([b"v", b""]),
    }
    place = (name,)
    kind = chosen.randrange(10)
    if kind == 0:
        return chosen.choice([IsNotNull, IsNull])(place)
    if kind == 1:
        return In(place, tuple(values[name]() for _ in range(3)))
    if kind == 2 and name == "topic":
        return chosen.choice([StringStartsWith, StringEndsWith, StringContains])(place, "t")
    wanted: Filter = chosen.choice(comparisons)(place, values[name]())
    if name in ("key", "value"):
        wanted = chosen.choice([EqualTo, EqualNullSafe])(place, values[name]())
    return Not(wanted) if kind == 3 else wanted


def rows_of(chosen: BatchReader) -> list[Row]:
    rows: list[Row] = []
    for partition in chosen.partitions():
        for made in chosen.read(partition):
            rows += made.to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.mark.parametrize("view", ["", "latest"])
@pytest.mark.parametrize("seed", range(6))
def test_filters_leave_what_spark_would(start_broker: Start, seed: int, view: str) -> None:
    chosen = random.Random(seed)
    broker = random_broker(start_broker, chosen)
    options = parse_options(options_for(broker, subscribe="t,u", pushdown="true", view=view))
    shape = shape_of(schema_of(SCHEMA), options)
    everything = rows_of(BatchReader(options, shape))
    applied = 0
    for _ in range(60):
        filters = [random_filter(chosen) for _ in range(chosen.randrange(1, 4))]
        pushing = FilteringReader(options, shape)
        left = list(pushing.pushFilters(filters))
        assert all(any(one is given for given in filters) for one in left)
        applied += len(filters) - len(left)
        found = [row for row in rows_of(pushing) if all(holds(one, row) for one in left)]
        assert found == [row for row in everything if all(holds(one, row) for one in filters)], filters
    assert applied > 30


def reading(broker: FakeBroker, *filters: Filter, **options: str) -> tuple[list[int], list[Filter]]:
    """The offsets that are fetched for filters, and the filters that are given back."""
    parsed = parse_options(options_for(broker, pushdown="true", **options))
    pushing = FilteringReader(parsed, shape_of(schema_of(SCHEMA), parsed))
    left = list(pushing.pushFilters(list(filters)))
    broker.fetched.clear()
    rows_of(pushing)
    return broker.fetched, left


def test_less_is_read(start_broker: Start) -> None:
    broker = random_broker(start_broker, random.Random(1))
    options = {"kafka__max__partition__fetch__bytes": "1", "packOffsets": "0"}
    assert len(reading(broker, **options)[0]) >= 18
    fetched, left = reading(broker, EqualTo(("partition",), 1), **options)
    assert (len(fetched), left) == (6, [])
    fetched, left = reading(broker, GreaterThan(("offset",), 49), EqualTo(("partition",), 0), **options)
    assert (fetched, left) == ([50], [])
    young = GreaterThanOrEqual(("timestamp",), moment(110))
    fetched, left = reading(broker, young, **options)
    assert min(fetched) >= 40
    assert left == [young]
    assert reading(broker, GreaterThan(("timestamp",), moment(200)), **options)[0] == []


@pytest.mark.parametrize(("least", "first"), [(4, 7), (9, 9)])
def test_a_filter_reads_nothing_before_the_starting_offset(
    start_broker: Start, least: int, first: int
) -> None:
    broker = start_broker({TopicPartition("t", 0): FakeLog([encode_batch([(1, b"k", b"v", ())] * 12)])})
    starting = '{"t": {"0": 7}}'
    options = parse_options(options_for(broker, subscribe="t", pushdown="true", startingOffsets=starting))
    pushing = FilteringReader(options, shape_of(schema_of(SCHEMA), options))
    assert list(pushing.pushFilters([GreaterThanOrEqual(("offset",), least)])) == []
    assert [row["offset"] for row in rows_of(pushing)] == list(range(first, 12))


@pytest.mark.parametrize("split", [{}, {"minPartitions": "3"}, {"maxRecordsPerPartition": "4"}])
def test_what_comes_after_planning(start_broker: Start, split: dict[str, str]) -> None:
    """An upper bound holds though the log ended just there; without one, what came is read as ever."""
    entries = [(1000 + offset, b"k", b"v", ()) for offset in range(15)]
    cases: list[tuple[list[Filter], range]] = [
        ([], range(15)),
        ([LessThanOrEqual(("offset",), 9)], range(10)),
        ([LessThan(("offset",), 12)], range(10)),
        ([LessThanOrEqual(("offset",), 4)], range(5)),
        ([GreaterThanOrEqual(("offset",), 3)], range(3, 15)),
        ([GreaterThanOrEqual(("offset",), 3), LessThanOrEqual(("offset",), 9)], range(3, 10)),
        ([EqualTo(("offset",), 9)], range(9, 10)),
    ]
    for filters, expected in cases:
        log = FakeLog([encode_batch(entries[:10])])
        broker = start_broker({TopicPartition("t", 0): log})
        parsed = parse_options(options_for(broker, pushdown="true", **split))
        pushing = FilteringReader(parsed, shape_of(schema_of(SCHEMA), parsed))
        assert list(pushing.pushFilters(filters)) == []
        tasks = pushing.partitions()
        log.batches.append(encode_batch(entries[10:], base_offset=10))
        found = [row["offset"] for task in tasks for made in pushing.read(task) for row in made.to_pylist()]
        assert found == list(expected), filters


@pytest.mark.parametrize("low_ms", [-1_000_000, -1, 0])
def test_records_without_a_timestamp_are_as_old_as_they_read(start_broker: Start, low_ms: int) -> None:
    """They are at -1 ms; a look-up by time passes them over."""
    stamps = [-1, 5, -1]
    log = FakeLog([encode_batch([(stamp, b"k", b"v", ()) for stamp in stamps])], times={0: 1})
    broker = start_broker({TopicPartition("t", 0): log})
    parsed = parse_options(options_for(broker, pushdown="true"))
    shape = shape_of(schema_of(SCHEMA), parsed)
    for filter_type in (EqualTo, GreaterThan, GreaterThanOrEqual):
        wanted = filter_type(("timestamp",), moment(low_ms))
        pushing = FilteringReader(parsed, shape)
        assert list(pushing.pushFilters([wanted])) == [wanted]
        expected = [row for row in rows_of(BatchReader(parsed, shape)) if holds(wanted, row)]
        assert [row for row in rows_of(pushing) if holds(wanted, row)] == expected
        assert bool(expected) == (filter_type is not EqualTo or low_ms == -1)


def test_nothing_is_pushed_unless_asked(start_broker: Start) -> None:
    """Spark fails every read of a reader with `pushFilters` while its switch is off."""
    broker = random_broker(start_broker, random.Random(2))
    for asked in ("true", "false"):
        source = KompaktDataSource(options_for(broker, pushdown=asked))
        made = source.reader(schema_of("value binary"))
        assert isinstance(made, FilteringReader) == (asked == "true")
        # The base class has the method too; Spark looks whether it was overridden.
        overridden = type(made).pushFilters is not DataSourceReader.pushFilters
        assert overridden == (asked == "true")


def test_fields_of_the_value_are_spark_s_affair(start_broker: Start) -> None:
    broker = random_broker(start_broker, random.Random(3))
    parsed = parse_options(options_for(broker, pushdown="true", valueFormat="json"))
    pushing = FilteringReader(parsed, shape_of(schema_of("offset int, partition int"), parsed))
    mine, other = EqualTo(("partition",), 1), EqualTo(("offset",), 5)
    assert list(pushing.pushFilters([mine, other])) == [other]
    nested = EqualTo(("offset", "inner"), 5)
    assert list(pushing.pushFilters([nested])) == [nested]


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_filters_in_spark(spark: Any, kompakt_broker: Any) -> None:
    bootstrap = kompakt_broker.bootstrap
    topic = create_topic(bootstrap)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(300):
        stamp, key = 1_700_000_000_000 + number, b"key %d" % (number % 50)
        producer.produce(topic, b"%d" % number, key, partition=number % 3, timestamp=stamp)
    assert producer.flush(30) == 0
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        frame = reader(spark, bootstrap, topic, pushdown="true").load()
        young = "timestamp >= timestamp_millis(1700000000280)"
        chosen = frame.where(f"partition = 1 AND offset >= 90 AND {young}")
        assert sorted(row.offset for row in chosen.collect()) == list(range(93, 100))
        plan = chosen._jdf.queryExecution().executedPlan().toString()
        (filtered,) = [line for line in plan.splitlines() if "Filter (" in line]
        assert "timestamp" in filtered
        assert "partition" not in filtered
        view = reader(spark, bootstrap, topic, view="latest", pushdown="true").load()
        found = view.where("key = cast('key 7' AS BINARY)").collect()
        assert sorted(bytes(row.value) for row in found) == [b"157", b"207", b"257"]
    finally:
        spark.conf.unset(name)
