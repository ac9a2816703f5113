"""Goal: a stream plans its micro-batches as Spark's own Kafka source does.

Method: a `StreamReader` is asked in the order in which Spark asks, against a fake broker; the micro-batches
are read and compared. No Spark session, no JVM.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from protocol.records import encode_batch
from spark_connector.errors import ConnectorError, DataLossError
from spark_connector.offsets import TopicPartition
from spark_connector.options import parse_options
from spark_connector.shape import Shape
from spark_connector.stream import StreamReader
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]
ALL = ReadAllAvailable()


def batch(base_offset: int, count: int = 1) -> bytes:
    records = [(1, b"k", str(base_offset + index).encode(), ()) for index in range(count)]
    return encode_batch(records, base_offset=base_offset)


def stream(broker: FakeBroker, **options: str) -> StreamReader:
    parsed = parse_options(options_for(broker, **options))
    return StreamReader(parsed, Shape.of(parsed.columns))


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    """(partition, offset) of a micro-batch; tasks get pickled copies, as in Spark."""
    rows = []
    for task in reader.partitions(start, end):
        copy = pickle.loads(pickle.dumps(reader))
        for made in copy.read(pickle.loads(pickle.dumps(task))):
            rows += zip(made.column("partition").to_pylist(), made.column("offset").to_pylist(), strict=True)
    return rows


def test_a_stream_starts_at_the_end_and_goes_on(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 3)], [batch(0, 2)]))
    reader = stream(broker)
    start = reader.initialOffset()
    assert start == {"t": {"0": 3, "1": 2}}
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    broker.logs[TopicPartition("t", 1)].batches.append(batch(2, 2))
    end = reader.latestOffset(start, ALL)
    assert end == {"t": {"0": 3, "1": 4}}
    assert read(reader, start, end) == [(1, 2), (1, 3)]
    assert reader.reportLatestOffset() == end
    reader.commit(end)
    reader.stop()


def test_a_start_is_the_same_when_it_is_asked_for_again(start_broker: Start) -> None:
    """Spark asks for it twice, the second time behind the end of the first micro-batch."""
    broker = start_broker(logs_of([batch(0, 3)]))
    reader = stream(broker)
    log = broker.logs[TopicPartition("t", 0)]
    end = reader.latestOffset(reader.initialOffset(), ALL)
    log.batches.append(batch(3, 2))
    start = reader.initialOffset()
    assert start == {"t": {"0": 3}}
    assert read(reader, start, end) == []
    assert read(reader, end, reader.latestOffset(end, ALL)) == [(0, 3), (0, 4)]


def test_a_first_batch_leaves_out_what_comes_while_it_is_planned(start_broker: Start) -> None:
    """So that its end, which is all that a checkpoint has of it, says where the query began."""
    broker = start_broker(logs_of([batch(0, 3)], [batch(0, 2)]))
    reader = stream(broker, startingOffsets='{"t":{"0":-1,"1":-2}}')
    start = reader.initialOffset()
    broker.logs[TopicPartition("t", 0)].batches.append(batch(3, 2))
    broker.logs[TopicPartition("t", 2)] = FakeLog([batch(0)])
    first = reader.latestOffset(start, ALL)
    assert first == {"t": {"0": 3, "1": 2}}
    assert read(reader, start, first) == [(1, 0), (1, 1)]
    second = reader.latestOffset(first, ALL)
    assert second == {"t": {"0": 5, "1": 2, "2": 1}}
    assert read(reader, first, second) == [(0, 3), (0, 4), (2, 0)]


LATE_STARTS = {
    "by default": {},
    "its number": {"startingOffsets": '{"t":{"0":-1}}'},
    "no record was that young": {
        "startingTimestamp": "5000",
        "startingOffsetsByTimestampStrategy": "latest",
    },
}


@pytest.mark.parametrize("is_available_now", [False, True])
@pytest.mark.parametrize("how", LATE_STARTS)
def test_a_first_batch_that_failed_is_planned_by_a_later_run(
    start_broker: Start, how: str, is_available_now: bool
) -> None:
    """Spark has its end in the checkpoint, and asks the new run where it begins: at the latest offset that
    lay behind that end, and no run of the query came any further."""
    broker = start_broker(logs_of([batch(0, 3)]))
    earlier = stream(broker, **LATE_STARTS[how])
    end = earlier.latestOffset(earlier.initialOffset(), ALL)
    log = broker.logs[TopicPartition("t", 0)]
    log.batches.append(batch(3, 2))
    log.times = {5000: 4}
    reader = stream(broker, **LATE_STARTS[how])
    if is_available_now:
        reader.prepareForTriggerAvailableNow()
    for _ in range(2):  # a query that has its source twice plans a batch twice
        assert read(reader, reader.initialOffset(), end) == []
    assert read(reader, end, reader.latestOffset(end, ALL)) == [(0, 3), (0, 4)]


def test_what_came_after_a_first_batch_that_failed_is_for_the_next(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 3)]))
    how = {"subscribePattern": "t", "startingOffsets": "earliest"}
    earlier = stream(broker, **how)
    end = earlier.latestOffset(earlier.initialOffset(), ALL)
    broker.logs[TopicPartition("t", 1)] = FakeLog([batch(0, 2)])
    broker.logs[TopicPartition("two", 0)] = FakeLog([batch(0)])
    reader = stream(broker, **how)
    assert read(reader, reader.initialOffset(), end) == [(0, 0), (0, 1), (0, 2)]
    assert read(reader, end, reader.latestOffset(end, ALL)) == [(1, 0), (1, 1), (0, 0)]


def test_what_went_before_a_first_batch_is_planned_again(
    start_broker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it was there when the batch was planned first, nobody knows; but if nothing is left, it was."""
    broker = start_broker(logs_of([batch(0, 3), batch(3, 3)]))
    log = broker.logs[TopicPartition("t", 0)]
    end = {"t": {"0": 3}}
    log.log_start_offset = 2
    reader = stream(broker, startingOffsets="earliest")
    assert read(reader, reader.initialOffset(), end) == [(0, 2)]
    assert "t-0 is read from offset 2 on" in caplog.messages[-1]
    log.log_start_offset = 5
    reader = stream(broker, startingOffsets="earliest")
    with pytest.raises(DataLossError, match="t-0 begins at offset 5: what was to be read up to 3 is gone"):
        reader.partitions(reader.initialOffset(), end)
    reader = stream(broker, startingOffsets="earliest", failOnDataLoss="false")
    assert read(reader, reader.initialOffset(), end) == []


NO_LOSSES = {
    "an empty partition": ({"startingOffsets": "earliest"}, [(0, 0), (0, 1), (0, 2)]),
    "at a time": (
        {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"},
        [(0, 1), (0, 2)],
    ),
}


@pytest.mark.parametrize("how", NO_LOSSES)
def test_a_first_batch_of_which_nothing_went_is_planned_again_in_silence(
    start_broker: Start, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    options, rows = NO_LOSSES[how]
    broker = start_broker(logs_of([batch(0, 3)], []))
    broker.logs[TopicPartition("t", 0)].times = {1: 1}
    earlier = stream(broker, **options)
    end = earlier.latestOffset(earlier.initialOffset(), ALL)
    assert end == {"t": {"0": 3, "1": 0}}
    caplog.clear()
    reader = stream(broker, **options)
    assert read(reader, reader.initialOffset(), end) == rows
    assert caplog.messages == []


def test_a_first_batch_of_this_run_misses_what_vanishes(start_broker: Start) -> None:
    """Only what a later run finds anew may be left out of its first micro-batch."""
    broker = start_broker(logs_of([batch(0, 3)], [batch(0, 2)]))
    reader = stream(broker, startingOffsets="earliest")
    start = reader.initialOffset()
    del broker.logs[TopicPartition("t", 1)]
    with pytest.raises(DataLossError, match="t-1 are gone"):
        reader.partitions(start, reader.latestOffset(start, ALL))


def test_earliest_and_json_starts(start_broker: Start) -> None:
    logs = logs_of([batch(0, 3)], [batch(0, 2)])
    logs[TopicPartition("t", 0)].log_start_offset = 1
    broker = start_broker(logs)
    assert stream(broker, startingOffsets="earliest").initialOffset() == {"t": {"0": 1, "1": 0}}
    start = '{"t":{"1":-1,"0":-2}}'
    assert json.dumps(stream(broker, startingOffsets=start).initialOffset()) == '{"t": {"0": 1, "1": 2}}'


def test_a_trigger_is_limited(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 30)], [batch(0, 10)]))
    reader = stream(broker, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(8)
    start = reader.initialOffset()
    seen: list[tuple[int, int]] = []
    triggers = 0
    while (end := reader.latestOffset(start, limit)) != start:
        seen += read(reader, start, end)
        start = end
        triggers += 1
    assert sorted(seen) == [(0, offset) for offset in range(30)] + [(1, offset) for offset in range(10)]
    assert triggers == 5
    assert reader.reportLatestOffset() == {"t": {"0": 30, "1": 10}}
    assert reader.latestOffset(reader.initialOffset(), ALL) == {"t": {"0": 30, "1": 10}}


def test_a_trigger_waits_for_enough(start_broker: Start) -> None:
    """The first trigger of a run does not wait, be there anything or nothing, as in Spark's own source."""
    broker = start_broker(logs_of([batch(0, 3)]))
    start = {"t": {"0": 0}}
    reader = stream(broker, minOffsetsPerTrigger="4", maxTriggerDelay="1h")
    assert reader.getDefaultReadLimit() == ReadMinRows(4)
    first = reader.latestOffset(start, ReadMinRows(4))
    assert first == {"t": {"0": 3}}
    broker.logs[TopicPartition("t", 0)].batches.append(batch(3, 3))
    assert reader.latestOffset(first, ReadMinRows(4)) == first
    broker.logs[TopicPartition("t", 0)].batches.append(batch(6))
    assert reader.latestOffset(first, ReadMinRows(4)) == {"t": {"0": 7}}
    impatient = stream(broker, minOffsetsPerTrigger="40", maxTriggerDelay="0")
    for begin in (start, first):
        assert impatient.latestOffset(begin, ReadMinRows(40)) == {"t": {"0": 7}}
    late = stream(broker, minOffsetsPerTrigger="4", maxTriggerDelay="1h")
    end = {"t": {"0": 7}}
    assert late.latestOffset(end, ReadMinRows(4)) == end
    broker.logs[TopicPartition("t", 0)].batches.append(batch(7))
    assert late.latestOffset(end, ReadMinRows(4)) == end


def test_available_now_has_a_fixed_end(start_broker: Start) -> None:
    """What arrives after the preparation, new partitions among it, waits for the next run."""
    broker = start_broker(logs_of([batch(0, 5)]))
    reader = stream(broker, startingOffsets="earliest", maxOffsetsPerTrigger="3", minOffsetsPerTrigger="3")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    broker.logs[TopicPartition("t", 0)].batches.append(batch(5, 5))
    broker.logs[TopicPartition("t", 1)] = FakeLog([batch(0)])
    limit = reader.getDefaultReadLimit()
    ends = []
    while (end := reader.latestOffset(start, limit)) != start:
        ends.append(end)
        start = end
    assert ends == [{"t": {"0": 3}}, {"t": {"0": 5}}]


def test_new_partitions_start_at_their_beginning(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 2)]))
    for fail in ("true", "false"):
        reader = stream(broker, failOnDataLoss=fail, maxOffsetsPerTrigger="100")
        start = {"t": {"0": 2}}
        log = broker.logs[TopicPartition("t", 1)] = FakeLog([batch(0, 2)])
        end = reader.latestOffset(start, ReadMaxRows(100))
        assert end == {"t": {"0": 2, "1": 2}}
        assert read(reader, start, end) == [(1, 0), (1, 1)]
        log.log_start_offset = 1
        if fail == "true":
            with pytest.raises(DataLossError, match="the new t-1 starts at offset 1, not at 0"):
                reader.partitions(start, end)
        else:
            assert read(reader, start, end) == [(1, 1)]


@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", ""])
def test_a_new_partition_is_noted_though_it_is_empty(start_broker: Start, limit: str) -> None:
    """As Spark's own source does; with a limit it was not, before it had records."""
    broker = start_broker(logs_of([batch(0, 2)]))
    broker.logs[TopicPartition("t", 1)] = FakeLog([])
    reader = stream(broker, **({limit: "100", "maxTriggerDelay": "0"} if limit else {}))
    start, end = {"t": {"0": 2}}, {"t": {"0": 2, "1": 0}}
    for begin in (start, end):
        assert reader.latestOffset(begin, reader.getDefaultReadLimit()) == end
    assert read(reader, start, end) == []


def test_partitions_that_vanish_or_go_back_are_lost_data(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 5)]))
    for fail in ("true", "false"):
        reader = stream(broker, failOnDataLoss=fail)
        for start, message in (
            ({"t": {"0": 5, "1": 3}}, "t-1 are gone"),
            ({"t": {"0": 7}}, "t-0 went back from offset 7 to 5"),
        ):
            end = reader.latestOffset(start, ALL)
            assert end == {"t": {"0": 5}}
            if fail == "true":
                with pytest.raises(DataLossError, match=message):
                    reader.partitions(start, end)
            else:
                assert read(reader, start, end) == []


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_who_began_to_read_committed_records_is_told_of_open_transactions(
    start_broker: Start, isolation: str
) -> None:
    """In one that was read before, its log goes back; nothing is lost, and to go on would read it twice."""
    broker = start_broker(logs_of([batch(0, 5)]))
    reader = stream(broker, **{"kafka.isolation.level": isolation})
    start = {"t": {"0": 7}}
    with pytest.raises(DataLossError) as refused:
        reader.partitions(start, reader.latestOffset(start, ALL))
    assert ("a transaction is open" in str(refused.value)) == (isolation == "read_committed")


def test_a_new_topic_deleted_before_its_batch_is_planned_again(start_broker: Start) -> None:
    """By a later run, as the batch was not finished: a query that may lose data could not be started."""
    broker = start_broker(logs_of([batch(0, 5)]))
    broker.logs[TopicPartition("two", 0)] = FakeLog([batch(0, 2)])
    start, end = {"t": {"0": 3}}, {"t": {"0": 5}, "two": {"0": 2}, "gone": {"0": 4, "1": 4}}
    how = {"subscribePattern": "."}
    with pytest.raises(DataLossError, match="topic gone: UNKNOWN_TOPIC_OR_PARTITION"):
        stream(broker, **how).partitions(start, end)
    for more in ({}, {"minPartitions": "9"}):
        reader = stream(broker, **how, failOnDataLoss="false", **more)
        assert sorted(read(reader, start, end)) == [(0, 0), (0, 1), (0, 3), (0, 4)]


@pytest.mark.parametrize("how", [{"subscribe": "t,gone"}, {"assign": '{"t":[0],"gone":[0]}'}])
def test_a_deleted_topic_is_lost_data(start_broker: Start, how: dict[str, str]) -> None:
    broker = start_broker(logs_of([batch(0, 5)]))
    gone = TopicPartition("gone", 0)
    log = broker.logs[gone] = FakeLog([batch(0, 3)])
    strict, patient = stream(broker, **how), stream(broker, **how, failOnDataLoss="false")
    start = patient.initialOffset()
    del broker.logs[gone]
    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        strict.latestOffset(start, ALL)
    for _ in range(2):
        end = patient.latestOffset(start, ALL)
        assert end == {"t": {"0": 5}}
        assert read(patient, start, end) == []
        start = end
    broker.logs[gone] = log
    end = patient.latestOffset(start, ALL)
    assert end == {"gone": {"0": 3}, "t": {"0": 5}}
    assert read(patient, start, end) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("how", [{"subscribe": "t,gone"}, {"assign": '{"t":[0],"gone":[0]}'}])
@pytest.mark.parametrize("stays", [{"t"}, set()])
def test_a_topic_that_stays_away_is_asked_for_once(
    start_broker: Start, how: dict[str, str], stays: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    """At each trigger, and not for as long as it may take until a new one is known everywhere; told once."""
    logs = {TopicPartition("t", 0): FakeLog([batch(0, 5)]), TopicPartition("gone", 0): FakeLog([batch(0, 3)])}
    broker = start_broker(dict(logs))
    reader = stream(broker, **how, failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    broker.logs = {place: log for place, log in logs.items() if place.topic in stays}
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 5} for topic in stays}
    assert read(reader, start, end) == []
    caplog.clear()
    broker.requests.clear()
    for _ in range(3):
        assert reader.latestOffset(end, ALL) == end
    asked = [name.name for request in broker.requests if hasattr(request, "allow_auto_topic_creation")
             for name in request.topics or ()]  # fmt: skip
    assert (asked.count("gone"), caplog.messages) == (3, [])
    broker.logs = dict(logs)
    later = reader.latestOffset(end, ALL)
    assert later == {"gone": {"0": 3}, "t": {"0": 5}}
    assert len(read(reader, end, later)) == (3 if stays else 8)


@pytest.mark.parametrize(
    "limit", [{}, {"maxOffsetsPerTrigger": "100"}, {"minOffsetsPerTrigger": "100", "maxTriggerDelay": "1h"}]
)
def test_a_topic_that_was_made_again_is_new_to_whatever_run(
    start_broker: Start, limit: dict[str, str]
) -> None:
    """Its id is seen by the process that plans, which may be killed behind any note of the checkpoint: each
    micro-batch is read by another run here. Of the others nothing is left out, and no limit puts that off."""
    broker = start_broker(logs_of([batch(0, 5)]))
    two = TopicPartition("two", 0)
    broker.logs[two] = FakeLog([batch(0, 3)])
    broker.topic_ids |= {"t": UUID(int=1), "two": UUID(int=2)}
    how = {"subscribe": "t,two", "failOnDataLoss": "false", "startingOffsets": "earliest", **limit}
    reader = stream(broker, **how)
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert first == {"t": {"0": 5}, "two": {"0": 3}}
    assert len(read(reader, reader.initialOffset(), first)) == 8
    broker.topic_ids["two"] = UUID(int=3)
    broker.logs[two].batches = [batch(0, 4)]
    broker.logs[TopicPartition("t", 0)].batches.append(batch(5))
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert second == {"t": {"0": 5}}
    assert read(stream(broker, **how), first, second) == read(reader, first, second) == []
    third = stream(broker, **how).latestOffset(second, reader.getDefaultReadLimit())
    assert third == {"t": {"0": 6}, "two": {"0": 4}}
    rows = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 5)]
    assert sorted(read(stream(broker, **how), second, third)) == rows


def test_a_new_topic_made_again_before_it_is_planned(start_broker: Start) -> None:
    """There is nothing to be told of it, and the micro-batch is like any other, limits included."""
    broker = start_broker(logs_of([batch(0, 9)]))
    broker.topic_ids |= {"t": UUID(int=1), "two": UUID(int=2)}
    reader = stream(
        broker, subscribePattern=".", failOnDataLoss="false", minOffsetsPerTrigger="4", maxTriggerDelay="1h"
    )
    end = {"t": {"0": 9}}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    for topic_id in (2, 3):
        broker.logs[TopicPartition("two", 0)] = FakeLog([batch(0, 2)])
        broker.topic_ids["two"] = UUID(int=topic_id)
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    broker.logs[TopicPartition("t", 0)].batches.append(batch(9, 2))
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert later == {"t": {"0": 11}, "two": {"0": 2}}
    assert sorted(read(reader, end, later)) == [(0, 0), (0, 1), (0, 9), (0, 10)]


def test_a_topic_that_never_was_is_an_error_even_for_the_careless(start_broker: Start) -> None:
    broker = start_broker(logs_of([]))
    with pytest.raises(ConnectorError, match="topic misspelt: UNKNOWN_TOPIC_OR_PARTITION"):
        stream(broker, subscribe="misspelt", failOnDataLoss="false").initialOffset()


def test_a_topic_deleted_before_its_task_runs(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 5)]))
    start, end = {"t": {"0": 0}}, {"t": {"0": 5}}
    strict, patient = stream(broker), stream(broker, failOnDataLoss="false")
    (task,) = strict.partitions(start, end)
    broker.logs.clear()
    with pytest.raises(DataLossError, match="t-0"):
        list(strict.read(task))
    assert list(patient.read(task)) == []


def test_a_log_end_that_lags_for_a_moment_is_asked_again(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 5)]))
    log = broker.logs[TopicPartition("t", 0)]
    log.high_watermark = 3
    asked = broker._list_offsets

    def heal(request: Any) -> Any:
        answer = asked(request)
        log.high_watermark = None
        return answer

    broker._list_offsets = heal  # type: ignore[method-assign]
    assert stream(broker).latestOffset({"t": {"0": 5}}, ALL) == {"t": {"0": 5}}


def test_splits_of_a_micro_batch(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 30)], []))
    reader = stream(broker, minPartitions="3")
    start, end = {"t": {"0": 0, "1": 0}}, {"t": {"0": 30, "1": 0}}
    assert len(reader.partitions(start, end)) == 3
    assert read(reader, start, end) == [(0, offset) for offset in range(30)]


def test_a_checkpoint_that_is_not_one(start_broker: Start) -> None:
    with pytest.raises(ConnectorError, match="offset must look like"):
        stream(start_broker(logs_of([]))).latestOffset({"t": 5}, ALL)
