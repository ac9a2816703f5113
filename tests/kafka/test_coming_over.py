"""Goal: whoever stops an Apache Kafka of one machine goes on with kompakt on the same directory, by the same
server.properties, and may go back.

Method: an unmodified client fills a compacted topic and commits on Apache Kafka; then on kompakt, which is
started by Kafka's own file; then on Apache Kafka again. Each must find what the one before left: records,
settings, the group's offsets.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from protocol.messages.metadata import MetadataRequest
from protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from storage.verify import verify_data_directory
from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.process import free_port
from tests.waiting import wait_for

Start = Callable[..., KafkaBroker]
TABLE = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
QUIET = {"log.cleaner.backoff.ms": "86400000"}
"""settings of both: nothing is cleaned unless somebody says so"""
KEYS = 10


@contextmanager
def serving(kafka: KafkaBroker) -> Iterator[int]:
    """kompakt in the place of a stopped Kafka: its file, its port, its directory. The HTTP port."""
    kompakt, http_port = str(Path(sys.executable).with_name("kompakt")), free_port()
    command = [kompakt, "serve", "--config", str(kafka.directory / "server.properties")]
    output = kafka.directory / "kompakt.log"
    with output.open("wb") as log:
        process = subprocess.Popen([*command, "--http-port", str(http_port)], stdout=log, stderr=log)
    try:

        def answers() -> bool:
            assert process.poll() is None, output.read_text()
            return "kompakt is ready" in output.read_text()  # the HTTP port, which opens last

        wait_for(answers, "kompakt")
        yield http_port
        process.terminate()
        assert process.wait(60) == 0
        assert "Traceback" not in output.read_text()
    finally:
        process.kill()
        process.wait()


def kompakt(http_port: int, *arguments: str) -> str:
    program = str(Path(sys.executable).with_name("kompakt"))
    command = [program, *arguments, "--http", f"127.0.0.1:{http_port}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def write(bootstrap: str, word: str) -> None:
    """Every key once, by an idempotent producer."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(KEYS):
        producer.produce("table", f"{word}-{number}".encode(), f"key-{number}".encode())
    assert producer.flush(60) == 0


def read(bootstrap: str) -> list[bytes]:
    """What the group has not read yet, which is committed."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.subscribe(["table"])
    values = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            break
        values.append(message.value())
    if values:
        consumer.commit(asynchronous=False)
    consumer.close()
    return values


def all_values(bootstrap: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "all", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition("table", 0, 0)])
    values = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        values.append(message.value())
    consumer.close()
    return values


def settings(bootstrap: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, "table")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in found.result(60).items() if name in TABLE}


def words(*of: str) -> list[bytes]:
    return [f"{word}-{number}".encode() for word in of for number in range(KEYS)]


@pytest.mark.java
def test_a_directory_goes_from_kafka_to_kompakt_and_back(start_kafka: Start) -> None:
    kafka = start_kafka(QUIET)
    at = kafka.bootstrap
    admin = AdminClient({"bootstrap.servers": at})
    admin.create_topics([NewTopic("table", 1, config=TABLE)])["table"].result(60)
    write(at, "kafka")
    assert read(at) == words("kafka")
    kafka.stop()
    with serving(kafka) as http_port:
        assert settings(at) == TABLE
        assert len(admin.list_topics("__consumer_offsets").topics["__consumer_offsets"].partitions) == 50
        write(at, "kompakt")
        assert read(at) == words("kompakt")
        kompakt(http_port, "topics", "compact", "table", "--roll")
        (answer,) = json.loads(kompakt(http_port, "topics", "explain", "table", "--json"))["partitions"]
        assert (answer["cleanup_policy"], answer["reason"]) == ("compact", "nothing_dirty")
        assert all_values(at) == words("kompakt")
        write(at, "last")
        admin.create_topics([NewTopic("new", 1)])["new"].result(60)
    assert verify_data_directory(kafka.data) == []
    kafka.start()
    assert settings(at) == TABLE
    assert read(at) == words("last")
    assert all_values(at) == words("kompakt", "last")
    assert [path.name.endswith("-stray") for path in kafka.data.glob("new-*")] == [True], (
        "it knows no such topic"
    )
    write(at, "again")
    assert read(at) == words("again")


def leader_epochs(port: int) -> dict[str, int]:
    """Of partition 0 of each topic that has a leader."""
    raw = Raw(port)
    for topic in ("table", "emptied"):
        raw.wait_for_leader(topic)
    topics = raw.ask(MetadataRequest(topics=None), 12).topics
    raw.close()
    return {topic.name: topic.partitions[0].leader_epoch for topic in topics}


@pytest.mark.java
def test_consumers_that_stay_read_on(start_kafka: Start) -> None:
    """Kafka's stop raises the leader epoch where clients see it: one that met an older one afterwards would
    take every word of the new broker for old news, and stop for good. Also of a partition without records.
    """
    kafka = start_kafka(QUIET)
    at = kafka.bootstrap
    admin = AdminClient({"bootstrap.servers": at})
    new = [NewTopic("table", 1, config=TABLE), NewTopic("emptied", 1)]
    for made in admin.create_topics(new).values():
        made.result(60)
    for _ in range(2):  # so that the epoch is no longer the first
        kafka.stop()
        kafka.start()
    write(at, "kafka")
    producer = confluent_kafka.Producer({"bootstrap.servers": at})
    producer.produce("emptied", b"gone")
    assert producer.flush(60) == 0
    end = confluent_kafka.TopicPartition("emptied", 0, confluent_kafka.OFFSET_END)
    admin.delete_records([end])[end].result(60)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": at, "group.id": "stays"})
    consumer.assign(
        [confluent_kafka.TopicPartition("table", 0, 0), confluent_kafka.TopicPartition("emptied", 0, 1)]
    )

    def reads(count: int) -> list[bytes]:
        values: list[bytes] = []

        def is_there() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value())
            return len(values) == count

        wait_for(is_there, f"{count} records", 120)
        return sorted(values)

    assert reads(KEYS) == sorted(words("kafka"))
    by_kafka = leader_epochs(kafka.port)
    kafka.stop()
    with serving(kafka):
        by_kompakt = leader_epochs(kafka.port)
        write(at, "kompakt")
        producer.produce("emptied", b"here")
        assert producer.flush(60) == 0
        assert reads(KEYS + 1) == sorted([*words("kompakt"), b"here"])
    kafka.start()
    again = leader_epochs(kafka.port)
    assert all(by_kafka[name] < by_kompakt[name] < again[name] for name in ("table", "emptied"))
    write(at, "again")
    producer.produce("emptied", b"there")
    assert producer.flush(60) == 0
    assert reads(KEYS + 1) == sorted([*words("again"), b"there"])
    consumer.close()


def put(producer: confluent_kafka.Producer, word: str) -> None:
    """A record of the transaction that goes on, in the log."""
    producer.produce("table", word.encode(), word.encode())
    assert producer.flush(60) == 0


@pytest.mark.java
def test_a_transaction_goes_on_from_kafka_to_kompakt_and_back(start_kafka: Start) -> None:
    """Begun on one, committed or aborted on the other, by a producer that sees its broker restart. (Each
    start of Kafka's has a leader epoch of its own, which kompakt told nobody: clients that name theirs were
    fenced.)
    """
    kafka = start_kafka(QUIET)
    at = kafka.bootstrap
    admin = AdminClient({"bootstrap.servers": at})
    admin.create_topics([NewTopic("table", 1, config=TABLE)])["table"].result(60)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": at, "transactional.id": "mover", "transaction.timeout.ms": 600_000,
            # Else librdkafka begins anew when its only broker is away, and leaves requests behind.
            "metadata.recovery.strategy": "none",
        }
    )  # fmt: skip
    producer.init_transactions(60)
    producer.begin_transaction()
    put(producer, "kafka's")
    kafka.stop()
    with serving(kafka):
        assert all_values(at) == []
        producer.commit_transaction(60)
        assert all_values(at) == [b"kafka's"]
        producer.begin_transaction()
        put(producer, "lost")
    assert verify_data_directory(kafka.data) == []
    kafka.start()
    assert all_values(at) == [b"kafka's"]
    producer.abort_transaction(60)
    producer.begin_transaction()
    put(producer, "kafka's again")
    kafka.stop()
    with serving(kafka):
        producer.commit_transaction(60)
        second = confluent_kafka.Producer({"bootstrap.servers": at, "transactional.id": "mover"})
        second.init_transactions(60)
        with pytest.raises(confluent_kafka.KafkaException, match="fenced"):
            producer.begin_transaction()
            put(producer, "a zombie's")
            producer.commit_transaction(60)
        assert all_values(at) == [b"kafka's", b"kafka's again"]


def producer_id(port: int) -> int:
    raw = Raw(port)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answers: list[InitProducerIdResponse] = []

    def has_one() -> bool:
        answers.append(raw.ask(request, 4))
        return answers[-1].error_code == 0

    wait_for(has_one, "a producer id", 30.0)
    raw.close()
    return answers[-1].producer_id


@pytest.mark.java
def test_no_producer_id_is_given_that_kafka_gave(start_kafka: Start) -> None:
    """Not even of a producer that has written nothing yet, of which no log knows."""
    kafka = start_kafka(QUIET)
    given = {producer_id(kafka.port) for _ in range(2)}
    kafka.stop()
    with serving(kafka):
        assert producer_id(kafka.port) > max(given)
