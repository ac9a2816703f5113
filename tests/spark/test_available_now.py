"""Goal: a query with Trigger.AvailableNow reads all that it fixed at its start, or fails.

Method: a `StreamReader` that has fixed its end, and a fake broker that loses partitions, records and topics
before the micro-batch is planned. Spark's own source fails then, whatever failOnDataLoss says; so do we.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from protocol.messages.metadata import MetadataRequest
from protocol.messages.offsets import ListOffsetsRequest
from spark_connector.errors import DataLossError
from spark_connector.offsets import TopicPartition
from spark_connector.stream import StreamReader
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of
from tests.spark.test_stream import ALL, Start, batch, read, stream

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WHOLE = {"t": {"0": 5, "1": 3}}
FAIL = pytest.mark.parametrize("fail", ["true", "false"])


def prepared(broker: FakeBroker, **options: str) -> tuple[StreamReader, dict[str, Any], dict[str, Any]]:
    """A reader whose end is fixed, and its first micro-batch."""
    reader = stream(broker, startingOffsets="earliest", **options)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    return reader, start, reader.latestOffset(start, ALL)


def give_ids(broker: FakeBroker, ids: dict[str, UUID]) -> None:
    """Let metadata say which topic is meant by a name, as brokers since 2.8 do."""
    plain = broker._metadata

    def metadata(request: Any) -> Any:
        answer = plain(request)
        for topic in answer.topics:
            topic.topic_id = ids.get(topic.name or "", UUID(int=0))
        return answer

    broker._metadata = metadata  # type: ignore[method-assign]


@FAIL
def test_what_is_all_there_is_read(start_broker: Start, fail: str) -> None:
    """What came meanwhile, a partition among it, is for the next run."""
    broker = start_broker(logs_of([batch(0, 5)], [batch(0, 3)]))
    give_ids(broker, {"t": UUID(int=1)})
    reader, start, end = prepared(broker, failOnDataLoss=fail)
    broker.logs[T0].batches.append(batch(5, 5))
    broker.logs[TopicPartition("t", 2)] = FakeLog([batch(0)])
    assert end == WHOLE
    assert len(read(reader, start, end)) == 8
    assert reader.latestOffset(end, ALL) == end


@FAIL
def test_a_partition_that_vanishes(start_broker: Start, fail: str) -> None:
    broker = start_broker(logs_of([batch(0, 5)], [batch(0, 3)]))
    reader, start, end = prepared(broker, failOnDataLoss=fail)
    del broker.logs[T1]
    with pytest.raises(DataLossError, match=r"t-1 are gone, after Trigger.AvailableNow had fixed the end"):
        reader.partitions(start, end)


@FAIL
@pytest.mark.parametrize("how", [{"subscribe": "t,u"}, {"assign": '{"t":[0],"u":[0]}'}])
def test_a_topic_that_vanishes(start_broker: Start, fail: str, how: dict[str, str]) -> None:
    broker = start_broker({T0: FakeLog([batch(0, 5)]), TopicPartition("u", 0): FakeLog([batch(0, 2)])})
    reader, start, end = prepared(broker, failOnDataLoss=fail, **how)
    del broker.logs[TopicPartition("u", 0)]
    with pytest.raises(DataLossError, match=r"u-0 are gone, after Trigger.AvailableNow"):
        reader.partitions(start, end)


@FAIL
def test_an_end_that_shrinks(start_broker: Start, fail: str) -> None:
    broker = start_broker(logs_of([batch(0, 5)], [batch(0, 3)]))
    reader, start, end = prepared(broker, failOnDataLoss=fail)
    broker.logs[T0].batches = [batch(0, 2)]
    with pytest.raises(DataLossError, match=r"t-0 went back from offset 5 to 2, after Trigger.AvailableNow"):
        reader.partitions(start, end)


@FAIL
def test_a_topic_deleted_and_made_anew(start_broker: Start, fail: str) -> None:
    """With as many records as before: only its id tells."""
    broker = start_broker(logs_of([batch(0, 5)], [batch(0, 3)]))
    ids = {"t": UUID(int=1)}
    give_ids(broker, ids)
    reader, start, end = prepared(broker, failOnDataLoss=fail)
    ids["t"] = UUID(int=2)
    for _ in range(2):  # asked again, it is the same loss
        with pytest.raises(DataLossError, match=r"topic t was deleted and made again, after Trigger.Avail"):
            reader.partitions(start, end)


LATEST_STARTS = {
    "by default": {},
    "the word": {"startingOffsets": "latest"},
    "its number": {"startingOffsets": '{"t":{"0":-1,"1":-2}}'},
    "no record is that young": {
        "startingTimestamp": "5000",
        "startingOffsetsByTimestampStrategy": "latest",
    },
}


@pytest.mark.parametrize("how", LATEST_STARTS)
def test_records_that_come_before_the_start_is_looked_up(start_broker: Start, how: str) -> None:
    """Spark fixes the end first: a start at the latest offset, looked up later, would lie behind it."""
    broker = start_broker(logs_of([batch(0, 5)], [batch(0, 3)]))
    reader = stream(broker, **LATEST_STARTS[how])
    reader.prepareForTriggerAvailableNow()
    broker.logs[T0].batches.append(batch(5, 2))
    broker.logs[TopicPartition("t", 2)] = FakeLog([batch(0)])
    if how == "its number":
        del broker.logs[TopicPartition("t", 2)]  # it would have to be named
    start = reader.initialOffset()
    assert start["t"]["0"] == 5
    assert start["t"]["1"] == (0 if how == "its number" else 3)
    end = reader.latestOffset(start, ALL)
    assert end == WHOLE
    rows = read(reader, start, end)
    assert rows == ([(1, 0), (1, 1), (1, 2)] if how == "its number" else [])


def test_a_start_by_time_that_only_a_later_record_fits(start_broker: Start) -> None:
    """Nothing is read before that record, and it is for the next run, as all that came later."""
    broker = start_broker(logs_of([batch(0, 5)], [batch(0, 3)]))
    reader = stream(broker, startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    reader.prepareForTriggerAvailableNow()
    broker.logs[T0].batches.append(batch(5, 4))
    broker.logs[T0].times = {5000: 7}
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert start == end == {"t": {"0": 7, "1": 3}}
    assert read(reader, start, end) == []


def test_a_leader_that_lags_for_a_moment_is_asked_again(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 5)], [batch(0, 3)]))
    reader, start, end = prepared(broker)
    log = broker.logs[T0]
    log.high_watermark = 3
    plain = broker._list_offsets

    def heal(request: Any) -> Any:
        answer = plain(request)
        log.high_watermark = None
        return answer

    broker._list_offsets = heal  # type: ignore[method-assign]
    assert len(read(reader, start, end)) == 8


def test_other_triggers_look_no_further(start_broker: Start) -> None:
    """A micro-batch of another trigger has just been looked up."""
    broker = start_broker(logs_of([batch(0, 5)], [batch(0, 3)]))
    reader = stream(broker, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    before = len(broker.requests)
    reader.partitions(start, end)
    looks = (MetadataRequest, ListOffsetsRequest)
    assert not [request for request in broker.requests[before:] if isinstance(request, looks)]
