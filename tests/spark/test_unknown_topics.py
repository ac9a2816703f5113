"""Goal: a leader that says for a moment that it knows no such partition ends no read, write or stream and
loses no rows; a topic that is deleted does, and soon.

Method: a fake broker whose fetches, looks for offsets and writes are answered with UNKNOWN_TOPIC_OR_PARTITION
now and then, or from some point on, while its metadata goes on naming the topic, or does not.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from protocol.errors import ErrorCode
from spark_connector.client import Backoff, Cluster, TopicMissing
from spark_connector.errors import ConnectorError, DataLossError, MissingTopicError
from spark_connector.offsets import TopicPartition
from spark_connector.options import parse_options
from spark_connector.shape import Shape
from spark_connector.stream import StreamReader
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, logs_of
from tests.spark.fake_leader import FakeLeader
from tests.spark.test_ranges import Start, batch, read
from tests.spark.test_writer import check_written, rows, write

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
VIEWS: list[dict[str, str]] = [{}, {"view": "latest"}]
SMALL = {"kafka__max__partition__fetch__bytes": "1"}


def batches(*offsets: int) -> list[bytes]:
    return [batch(offset) for offset in offsets]


def answer_fetches(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, unknown: range, step: Any) -> None:
    """Those whose number is in `unknown` with UNKNOWN_TOPIC_OR_PARTITION, after `step`."""
    whole, count = broker._fetch, 0

    def fetch(request: Any) -> Any:
        nonlocal count
        count += 1
        if count in unknown:
            step()
            broker.fetch_errors.append(UNKNOWN)
        return whole(request)

    monkeypatch.setattr(broker, "_fetch", fetch)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_trouble_that_was_over_each_time_does_not_add_up(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    """Four such answers within a range, however long ago the last one was, ended it, or lost the rest."""
    broker = start_broker(logs_of(batches(*range(12))))
    told = "each is over after one retry"
    monkeypatch.setattr(Cluster, "is_missing", lambda *_: pytest.fail(told), raising=False)
    answer_fetches(broker, monkeypatch, range(2, 18, 3), lambda: None)
    assert read(broker, **SMALL, failOnDataLoss=fail) == list(range(12))


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_leader_that_does_not_know_what_the_metadata_names_is_asked_again(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, fail: str, view: dict[str, str]
) -> None:
    broker = start_broker(logs_of(batches(3)))
    answer_fetches(broker, monkeypatch, range(1, 9), lambda: None)
    assert read(broker, failOnDataLoss=fail, **view) == [3]
    answer_fetches(broker, monkeypatch, range(1, 10_000), lambda: None)
    with pytest.raises(ConnectorError, match=r"reading t-0 at offset \d failed for 0.2 s .*UNKNOWN") as told:
        read(broker, failOnDataLoss=fail, kafka__default__api__timeout__ms="200", **view)
    assert not isinstance(told.value, DataLossError)


@pytest.mark.parametrize("view", VIEWS)
def test_a_topic_that_is_deleted_during_a_read(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, view: dict[str, str]
) -> None:
    """Its metadata may name it for some tries more."""
    patient = {**view, "kafka__default__api__timeout__ms": "60000"}
    for fail in ("true", "false"):
        broker = start_broker(logs_of(batches(0)))
        tries = iter(range(10_000))

        def delete(broker: FakeBroker = broker, tries: Any = tries) -> None:
            if next(tries) == 5:
                broker.topic_errors["t"] = UNKNOWN

        answer_fetches(broker, monkeypatch, range(1, 10_000), delete)
        if fail == "true":
            with pytest.raises(DataLossError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                read(broker, **patient)
        else:
            assert read(broker, failOnDataLoss="false", **patient) == []


def answer_look_ups(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, place: TopicPartition) -> deque[int]:
    """Those for `place` with UNKNOWN_TOPIC_OR_PARTITION, once for each element of what is returned."""
    whole = broker._list_offsets
    left: deque[int] = deque()

    def list_offsets(request: Any) -> Any:
        answered = whole(request)
        for topic in answered.topics:
            for partition in topic.partitions:
                if TopicPartition(topic.name, partition.partition_index) == place and left:
                    left.pop()
                    partition.error_code, partition.offset = UNKNOWN, -1
        return answered

    monkeypatch.setattr(broker, "_list_offsets", list_offsets)
    return left


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_stream_whose_leader_does_not_know_what_the_metadata_names(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    """It ended as if data were lost; without failOnDataLoss what a new partition had was passed over."""
    broker = start_broker(logs_of(batches(0, 1)))
    parsed = parse_options(options_for(broker, startingOffsets="earliest", failOnDataLoss=fail))
    reader = StreamReader(parsed, Shape.of(parsed.columns))
    start = reader.initialOffset()
    lagging = answer_look_ups(broker, monkeypatch, T0)
    lagging.extend(range(7))
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {"t": {"0": 2}}
    broker.logs |= {T1: logs_of([], batches(0, 1, 2))[T1]}
    lagging = answer_look_ups(broker, monkeypatch, T1)
    lagging.extend(range(7))
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert later == {"t": {"0": 2, "1": 3}}
    lagging.extend(range(7))
    found = [made.num_rows for task in reader.partitions(end, later) for made in reader.read(task)]
    assert sum(found) == 3
    assert not lagging


def test_offsets_of_which_one_topic_is_gone(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told soon, whichever of many it is."""
    broker = start_broker(logs_of(batches(0)) | logs_of(batches(0), topic="u"))
    cluster = Cluster(parse_options(options_for(broker, kafka__default__api__timeout__ms="60000")).client)
    cluster.describe(["t", "u"])
    answer_look_ups(broker, monkeypatch, TopicPartition("u", 0)).extend(range(10_000))
    broker.topic_errors["u"] = UNKNOWN
    with pytest.raises(MissingTopicError, match="topic u: UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.latest_offsets([T0, TopicPartition("u", 0)])
    cluster.close()


def test_a_write_whose_leader_does_not_know_what_the_metadata_names(leader: FakeLeader) -> None:
    """The rows arrive once, in order; a topic that is deleted is told long before the delivery timeout."""
    leader.faults.extend([UNKNOWN] * 8)
    assert write(leader, rows(100)).rows == 100
    check_written(leader, 100)
    leader.faults.extend([UNKNOWN] * 10_000)
    with pytest.raises(ConnectorError, match=r"writing to t failed for 0.2 s .*UNKNOWN") as told:
        write(leader, rows(4), kafka__delivery__timeout__ms="200")
    assert not isinstance(told.value, MissingTopicError)
    described = leader._metadata

    def describe_once(request: Any) -> Any:
        answered = described(request)
        leader.topic_errors["t"] = UNKNOWN
        return answered

    leader._metadata = describe_once  # type: ignore[method-assign]
    with pytest.raises(MissingTopicError, match=r"writing to t: .*UNKNOWN_TOPIC_OR_PARTITION"):
        write(leader, rows(4), kafka__delivery__timeout__ms="600000")


def test_what_the_metadata_says(start_broker: Start) -> None:
    broker = start_broker(logs_of(batches(0)))
    settings = parse_options(options_for(broker)).client
    cluster = Cluster(settings)
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)]
    assert [cluster.is_missing(partition) for partition in partitions] == [False, True, True]
    broker.closes = 100
    assert not cluster.is_missing(partitions[2])
    cluster.close()
    backoff = Backoff(settings, missing_tries=2)
    missing = TopicMissing("t")
    for _ in range(3):
        backoff.wait(missing, "reading")
        backoff.restart()
    backoff.wait(missing, "reading")
    with pytest.raises(MissingTopicError, match="reading: t"):
        backoff.wait(missing, "reading")
