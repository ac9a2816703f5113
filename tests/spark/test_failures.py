"""Goal: what can go wrong with a broker under a stream or a batch is said so that a user can act on it.

Method: kompakt and Apache Kafka themselves; a `StreamReader` or `BatchReader` is asked as Spark asks it, and
in between topics are deleted, made anew, cut and widened. Corrupt batches, silence and half an answer need a
fake broker (`test_ranges.py`), refused passwords certificates (`test_security.py`).
"""

from __future__ import annotations

import json
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_connector.client import Cluster
from spark_connector.errors import ConnectorError, DataLossError, MissingTopicError
from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.shape import Shape
from spark_connector.stream import StreamReader
from tests.process import BrokerProcess
from tests.spark.test_spark import create_topic, produce
from tests.waiting import wait_for

ALL = ReadAllAvailable()


def settings(bootstrap: str, topic: str, **more: str) -> Any:
    base = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return parse_options({**base, **{name.replace("__", "."): value for name, value in more.items()}})


def stream(bootstrap: str, topic: str, **more: str) -> StreamReader:
    return StreamReader(settings(bootstrap, topic, **more), Shape.of(["partition", "offset"]))


def batch(bootstrap: str, topic: str, **more: str) -> BatchReader:
    return BatchReader(settings(bootstrap, topic, **more), Shape.of(["partition", "offset"]))


def read(reader: Any, tasks: Any) -> list[tuple[int, int]]:
    """(partition, offset) of every row."""
    found = []
    for task in tasks:
        for made in reader.read(task):
            found += zip(made.column("partition").to_pylist(), made.column("offset").to_pylist(), strict=True)
    return sorted(found)


def admin(bootstrap: str) -> Any:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})


def delete(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)  # its answers do not come when it is gone
    for done in client.delete_topics([topic]).values():
        done.result(30)
    cluster = Cluster(settings(bootstrap, topic).client)

    def is_gone() -> bool:
        return topic not in cluster.describe(None)

    wait_for(is_gone, f"{topic} to be gone")
    cluster.close()


def create(bootstrap: str, topic: str) -> None:
    """Made anew under its old name; Apache Kafka may still be busy with the old one."""

    client = admin(bootstrap)

    def made() -> bool:
        try:
            new = confluent_kafka.admin.NewTopic(topic, 3, 1, config={"retention.ms": "-1"})
            for done in client.create_topics([new]).values():
                done.result(30)
        except confluent_kafka.KafkaException:
            return False
        return True

    wait_for(made, f"{topic} to be made anew")


def test_a_topic_deleted_and_made_anew_under_a_stream(bootstrap: str) -> None:
    """With fewer records than before, which its offsets tell, and with as many, which only its id does."""
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 30)
    strict, patient = stream(bootstrap, topic), stream(bootstrap, topic, failOnDataLoss="false")
    start = strict.latestOffset(strict.initialOffset(), ALL)
    assert patient.latestOffset(patient.initialOffset(), ALL) == start == {topic: dict.fromkeys("012", 10)}
    delete(bootstrap, topic)
    with pytest.raises(
        DataLossError, match=f"topic {topic}: UNKNOWN_TOPIC_OR_PARTITION.*failOnDataLoss=false"
    ):
        strict.latestOffset(start, ALL)
    create(bootstrap, topic)
    produce(bootstrap, topic, 9)
    for _ in range(2):  # asked again, it is the same loss
        with pytest.raises(
            DataLossError, match=f"topic {topic} was deleted and made again; .*failOnDataLoss=false"
        ):
            strict.latestOffset(start, ALL)
    restarted = stream(bootstrap, topic)
    end = restarted.latestOffset(start, ALL)
    assert end == {topic: dict.fromkeys("012", 3)}
    with pytest.raises(
        DataLossError, match=f"{topic}-0 went back from offset 10 to 3; .*failOnDataLoss=false"
    ):
        restarted.partitions(start, end)
    assert patient.latestOffset(start, ALL) == {}
    assert read(patient, patient.partitions(start, {})) == []
    assert patient.latestOffset({}, ALL) == end
    everything = [(partition, offset) for partition in range(3) for offset in range(3)]
    assert read(patient, patient.partitions({}, end)) == everything
    produce(bootstrap, topic, 9, first=9)
    later = patient.latestOffset(end, ALL)
    found = read(patient, patient.partitions(end, later))
    assert found == [(partition, offset) for partition in range(3) for offset in (3, 4, 5)]


def test_a_topic_made_anew_with_more_records_than_the_stream_had_read(bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 6)
    strict = stream(bootstrap, topic)
    patient = stream(bootstrap, topic, failOnDataLoss="false", maxOffsetsPerTrigger="3")
    start = strict.latestOffset(strict.initialOffset(), ALL)
    assert patient.initialOffset() == {topic: dict.fromkeys("012", 0)}
    delete(bootstrap, topic)
    create(bootstrap, topic)
    produce(bootstrap, topic, 12)
    with pytest.raises(DataLossError, match=f"topic {topic} was deleted and made again"):
        strict.latestOffset(start, ALL)
    # Spark plans it again after a kill: by a process that has not seen the topic before.
    later = stream(bootstrap, topic, failOnDataLoss="false", maxOffsetsPerTrigger="3")
    found = []
    for end in range(5):
        planned = patient.latestOffset(start, patient.getDefaultReadLimit())
        assert planned == ({topic: dict.fromkeys("012", end)} if end else {})
        found += read(later, later.partitions(start, planned))
        assert patient.partitions(start, planned) or not end
        start = planned
    assert sorted(found) == [(partition, offset) for partition in range(3) for offset in range(4)]


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "3"}])
def test_a_topic_made_anew_with_as_many_records(bootstrap: str, limit: dict[str, str]) -> None:
    """Spark compares offsets and would see no news: a batch in between says that the old one is gone."""
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 12)
    patient = stream(bootstrap, topic, failOnDataLoss="false", **limit)
    patient.initialOffset()
    start = {topic: dict.fromkeys("012", 4)}
    delete(bootstrap, topic)
    create(bootstrap, topic)
    produce(bootstrap, topic, 12)
    found = []
    for _ in range(6 if limit else 2):
        end = patient.latestOffset(start, patient.getDefaultReadLimit())
        if end == start:
            break
        found += read(patient, patient.partitions(start, end))
        start = end
    assert start == patient.latestOffset(start, ALL) == {topic: dict.fromkeys("012", 4)}
    assert sorted(found) == [(partition, offset) for partition in range(3) for offset in range(4)]


def test_offsets_that_are_gone_when_a_task_runs(bootstrap: str) -> None:
    """Planned, then deleted: an error that names them, or the rest of the plan, never what lies before it."""
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 60)
    strict, patient = batch(bootstrap, topic), batch(bootstrap, topic, failOnDataLoss="false")
    start, end = {topic: dict.fromkeys("012", 2)}, {topic: dict.fromkeys("012", 10)}
    strict_stream, patient_stream = (
        stream(bootstrap, topic, failOnDataLoss=fail) for fail in ("true", "false")
    )
    plans = [(reader, reader.partitions(start, end)) for reader in (strict_stream, patient_stream)]
    cut = [confluent_kafka.TopicPartition(topic, number, 5) for number in range(3)]
    client = admin(bootstrap)
    for done in client.delete_records(cut).values():
        done.result(30)
    with pytest.raises(
        DataLossError, match=r"offsets 2 to 4 are gone, the log starts at 5.*failOnDataLoss=false"
    ):
        read(*plans[0])
    rest = [(partition, offset) for partition in range(3) for offset in range(5, 10)]
    assert read(*plans[1]) == rest
    # A batch without offsets of its own starts where the log starts: nothing is lost.
    whole = [(partition, offset) for partition in range(3) for offset in range(5, 20)]
    for reader in (strict, patient):
        assert read(reader, reader.partitions()) == whole


def test_a_partition_that_is_added(bootstrap: str) -> None:
    """Read from its first record on, which is no loss."""
    topic = create_topic(bootstrap)
    produce(bootstrap, topic, 30)
    reader = stream(bootstrap, topic)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    wider = confluent_kafka.admin.NewPartitions(topic, 4)
    client = admin(bootstrap)
    for done in client.create_partitions([wider]).values():
        done.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"new", partition=3)
    assert producer.flush(60) == 0
    wait_for(lambda: reader.latestOffset(start, ALL)[topic].get("3") == 1, "the new partition")
    end = reader.latestOffset(start, ALL)
    assert read(reader, reader.partitions(start, end)) == [(3, 0)]


def test_a_broker_that_is_gone_for_good(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tried again for the time that was given, then one error with the place, the time and the option."""
    process = BrokerProcess(tmp_path_factory.mktemp("gone") / "data")
    try:
        bootstrap = process.start().bootstrap
        topic = create_topic(bootstrap)
        produce(bootstrap, topic, 30)
        short = {"kafka__default__api__timeout__ms": "300", "kafka__retry__backoff__ms": "10"}
        places = {  # a word would be looked up by the task first
            option: json.dumps({topic: dict.fromkeys("012", offset)})
            for option, offset in (("startingOffsets", 0), ("endingOffsets", 10))
        }
        reader = batch(bootstrap, topic, **short, **places, minPartitions="6")
        tasks = reader.partitions()
        process.kill()
        where = rf"reading {topic}-\d at offset 0"
        with pytest.raises(
            ConnectorError, match=rf"{where} failed for 0.3 s \(kafka.default.api.timeout.ms\)"
        ):
            read(reader, tasks)
        with pytest.raises(ConnectorError, match=r"looking up topics failed for 0.3 s .*Connection refused"):
            batch(bootstrap, topic, **short).partitions()
        process.start()
        assert len(read(reader, tasks)) == 30
    finally:
        process.close()


def test_a_topic_that_never_was(bootstrap: str) -> None:
    with pytest.raises(MissingTopicError, match="topic no-such-topic: UNKNOWN_TOPIC_OR_PARTITION"):
        batch(bootstrap, "no-such-topic").partitions()
