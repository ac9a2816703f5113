"""Goal: a stream of Spark 4.0 and 4.1, which tell a source less, misses and repeats nothing.

Method: a `WholeStreamReader` is asked in the order in which those versions ask (where the log ends before
where a new query begins; that alone after a restart), against a fake broker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from uuid import UUID

import pytest
from pyspark.sql import datasource
from pyspark.sql.types import BinaryType, StructType

from spark_connector.errors import ConnectorError, DataLossError
from spark_connector.offsets import TopicPartition
from spark_connector.options import parse_options
from spark_connector.shape import Shape
from spark_connector.source import KompaktDataSource
from spark_connector.whole_stream import LIMITS, WholeStreamReader
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of
from tests.spark.test_stream import batch, read

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]
PLACE = TopicPartition("t", 0)


def stream(broker: FakeBroker, **options: str) -> WholeStreamReader:
    parsed = parse_options(options_for(broker, **options))
    return WholeStreamReader(parsed, Shape.of(parsed.columns))


def test_a_new_query_begins_where_its_first_end_lies(start_broker: Start) -> None:
    """Spark asks where to begin behind the end: what came in between is for the second batch."""
    broker = start_broker(logs_of([batch(0, 3)]))
    reader = stream(broker)
    first = reader.latestOffset()
    broker.logs[PLACE].batches.append(batch(3, 2))
    broker.logs[TopicPartition("t", 1)] = FakeLog([batch(0)])
    start = reader.initialOffset()
    assert start == first == {"t": {"0": 3}}
    assert read(reader, start, first) == []
    second = reader.latestOffset()
    assert read(reader, first, second) == [(0, 3), (0, 4), (1, 0)]
    assert reader.latestOffset() == second  # nothing came: Spark plans no batch


@pytest.mark.parametrize(("starting", "rows"), [("earliest", [(0, 0), (0, 1)]), ("latest", [])])
def test_a_start_goes_on_after_a_restart(start_broker: Start, starting: str, rows: list[object]) -> None:
    broker = start_broker(logs_of([batch(0, 2)]))
    reader = stream(broker, startingOffsets=starting)
    end = reader.latestOffset()
    assert read(reader, reader.initialOffset(), end) == rows
    broker.logs[PLACE].batches.append(batch(2, 2))
    again = stream(broker, startingOffsets=starting)
    assert read(again, end, again.latestOffset()) == [(0, 2), (0, 3)]


def test_a_first_batch_that_failed_is_planned_by_a_later_run(start_broker: Start) -> None:
    """Which asks where the query begins, and not where the log ends."""
    broker = start_broker(logs_of([batch(0, 3)]))
    end = stream(broker).latestOffset()
    broker.logs[PLACE].batches.append(batch(3, 2))
    reader = stream(broker)
    assert read(reader, reader.initialOffset(), end) == []
    assert read(reader, end, reader.latestOffset()) == [(0, 3), (0, 4)]


def test_a_start_by_a_time_that_comes_between_is_where_the_first_batch_ends(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 3)]))
    reader = stream(broker, startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    end = reader.latestOffset()
    broker.logs[PLACE].batches.append(batch(3, 2))
    broker.logs[PLACE].times = {5000: 4}
    assert read(reader, reader.initialOffset(), end) == []


def test_a_start_by_time_has_all_that_is_as_young(start_broker: Start) -> None:
    """It is looked up behind the end, and lies before it: nothing of what is between is passed over."""
    broker = start_broker(logs_of([batch(0, 5)]))
    broker.logs[PLACE].times = {5000: 2}
    reader = stream(broker, startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    end = reader.latestOffset()
    assert read(reader, reader.initialOffset(), end) == [(0, 2), (0, 3), (0, 4)]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_topic_that_was_made_again_is_read_from_its_start(start_broker: Start, is_restarted: bool) -> None:
    """Whatever its offsets: a micro-batch of its own says in the checkpoint that the old one is gone."""
    broker = start_broker(logs_of([batch(0, 3)]))
    broker.topic_ids["t"] = UUID(int=1)
    options = {"failOnDataLoss": "false", "startingOffsets": "earliest"}
    reader = stream(broker, **options)
    end = reader.latestOffset()
    assert len(read(reader, reader.initialOffset(), end)) == 3
    broker.topic_ids["t"] = UUID(int=2)
    second = reader.latestOffset()
    assert second == {}
    reader = stream(broker, **options) if is_restarted else reader
    assert read(reader, end, second) == []
    third = reader.latestOffset()
    assert third == {"t": {"0": 3}}
    reader = stream(broker, **options) if is_restarted else reader
    assert read(reader, second, third) == [(0, 0), (0, 1), (0, 2)]
    assert reader.latestOffset() == third


def test_a_topic_that_was_made_again_is_lost_data(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 3)]))
    broker.topic_ids["t"] = UUID(int=1)
    reader = stream(broker)
    reader.latestOffset()
    broker.topic_ids["t"] = UUID(int=2)
    with pytest.raises(DataLossError, match="topic t was deleted and made again"):
        reader.latestOffset()


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_refused(start_broker: Start, name: str) -> None:
    broker = start_broker(logs_of([batch(0)]))
    with pytest.raises(ConnectorError, match=rf"option {name} needs Spark 4\.2"):
        stream(broker, **{name: "100"})


def test_a_group_sees_what_is_finished(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = start_broker(logs_of([batch(0, 3)]))
    reader = stream(broker, groupId="g", commitOffsets="true")
    told: list[object] = []
    monkeypatch.setattr(reader._group, "commit", told.append)
    reader.commit(reader.latestOffset())
    assert told == [{PLACE: 3}]


def test_what_an_older_spark_has_not_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delattr(datasource, "Filter")
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter")
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
    schema = StructType().add("value", BinaryType())
    source = KompaktDataSource({**options, "subscribe": "t", "pushdown": "true"})
    assert isinstance(source.streamReader(schema), WholeStreamReader)
    with pytest.raises(ConnectorError, match=r"pushdown needs Spark 4\.1"):
        source.reader(schema)
    with pytest.raises(ConnectorError, match=r"needs Spark 4\.1 or later; write inside foreachBatch"):
        KompaktDataSource({**options, "topic": "t"}).streamWriter(schema, overwrite=False)
