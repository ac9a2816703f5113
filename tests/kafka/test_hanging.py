"""Goal: transactions that were open when an Apache Kafka stopped end in kompakt as they would there, and
Kafka's own tool and a client's admin find and abort what nobody else ends.

Method: librdkafka's producers begin transactions of short and long timeouts on Apache Kafka, which is
stopped; its directory is copied, once with `__transaction_state` and once without.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import AbortTransactionSpec, KafkaAdminClient

from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.waiting import wait_for

Start = Callable[..., KafkaBroker]
SHORT_MS, LONG_MS = 20_000, 900_000
COMPACT = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
pytestmark = pytest.mark.java


def begun(bootstrap: str, topic: str, timeout_ms: int) -> confluent_kafka.Producer:
    """A transaction with one record of the key `k` in the topic."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "transaction.timeout.ms": timeout_ms}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", b"k")
    assert producer.flush(60) == 0
    return producer


def put(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, b"k")
    assert producer.flush(60) == 0


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """What a reader of committed records has up to the last stable offset."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        values.append(message.value())
    assert message is not None
    consumer.close()
    return values


@pytest.fixture
def left(start_kafka: Start) -> Path:
    """The directory of a stopped Apache Kafka with an open transaction in `short` and in `long`."""
    broker = start_kafka()
    raw = Raw(broker.port)
    producers = []
    for topic, timeout_ms in (("short", SHORT_MS), ("long", LONG_MS)):
        raw.create(topic, COMPACT)
        put(broker.bootstrap, topic, b"before")
        producers.append(begun(broker.bootstrap, topic, timeout_ms))
        put(broker.bootstrap, topic, b"behind")
    raw.close()
    broker.stop()
    return broker.data


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Path, str], BrokerProcess]]:
    started: list[BrokerProcess] = []

    def start(source: Path, leave_out: str = "nothing") -> BrokerProcess:
        data = tmp_path / f"data{len(started)}"
        shutil.copytree(source, data, ignore=shutil.ignore_patterns(leave_out))
        settings = {
            "node.id": "1",
            "log.cleaner.enable": "false",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        }
        started.append(BrokerProcess(data, settings).start())
        return started[-1]

    yield start
    for process in started:
        log = process.log()
        process.close()
        assert "Traceback" not in log, log


def test_t104_what_was_going_on_ends_with_its_timeout(
    left: Path, start: Callable[..., BrokerProcess]
) -> None:
    """With the coordinator's topic there, as by an Apache Kafka that starts again; then it is cleaned."""
    own = start(left)
    wait_for(lambda: committed_values(own.bootstrap, "short") == [b"before", b"behind"], "the abort")
    assert "the transaction of 'short' (producer " in own.log()
    assert committed_values(own.bootstrap, "long") == [b"before"], "its time is not over"
    own.compact("short")
    assert committed_values(own.bootstrap, "short") == [b"behind"]


def test_t104_tools_and_clients_abort_what_nobody_knows_of(
    left: Path, start: Callable[..., BrokerProcess], kafka_tools: Tools
) -> None:
    own = start(left, "__transaction_state-*")
    at = ("--bootstrap-server", own.bootstrap)
    for topic in ("short", "long"):
        assert committed_values(own.bootstrap, topic) == [b"before"]
    place = ("--topic", "short", "--partition", 0)
    described = kafka_tools.run("kafka-transactions", *at, "describe-producers", *place).splitlines()
    rows = [dict(zip(described[0].split(), row.split(), strict=True)) for row in described[1:]]
    assert [row["CurrentTransactionStartOffset"] for row in rows] == ["1"]
    # Nothing is old enough for it: it waits for the largest timeout a coordinator gives.
    assert len(kafka_tools.run("kafka-transactions", *at, "find-hanging", "--broker-id", 1).splitlines()) <= 1
    kafka_tools.run("kafka-transactions", *at, "abort", *place, "--start-offset", 1)
    wait_for(lambda: committed_values(own.bootstrap, "short") == [b"before", b"behind"], "the abort")
    assert len(kafka_tools.run("kafka-transactions", *at, "list").splitlines()) == 1, "the heading alone"

    admin = KafkaAdminClient(bootstrap_servers=own.bootstrap)
    long = PythonTopicPartition("long", 0)
    states = admin.describe_producers([long])[long].active_producers
    (hanging,) = [one for one in states if one.current_transaction_start_offset >= 0]
    admin.abort_transaction(AbortTransactionSpec(long, hanging.producer_id, hanging.producer_epoch))
    admin.close()
    wait_for(lambda: committed_values(own.bootstrap, "long") == [b"before", b"behind"], "the abort")
    own.compact("long")
    assert committed_values(own.bootstrap, "long") == [b"behind"]


def test_kafka_configs_asks_for_users_and_quotas_of_which_there_are_none(
    kafka_tools: Tools, start: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    own = start(tmp_path / "empty")
    for kind in ("users", "clients", "ips"):
        said = kafka_tools.run(
            "kafka-configs", "--bootstrap-server", own.bootstrap, "--describe", "--entity-type", kind
        )
        assert said.strip() == ""
