"""Goal: clients that are beyond their quota are told so, wait, and lose nothing; quotas survive `kill -9`.

Method: unmodified clients with small quotas, who say themselves how long they had to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
import kafka
import pytest

from tests.clients.conftest import MINUTE_MS
from tests.kafka.fixtures import kafka_tools
from tests.kafka.quota_player import QuotaPlayer
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.waiting import wait_for

__all__ = ["kafka_tools"]

VALUE = bytes(50_000)
COUNT = 12


def set_quota(broker: BrokerProcess, client_id: str, key: str, value: float) -> None:
    player = QuotaPlayer(broker.port)
    assert player.alter(([("client-id", client_id)], [(key, value)]))[0][1] == 0
    player.close()


def test_librdkafka_is_told_and_loses_nothing(broker: BrokerProcess, topic: str) -> None:
    set_quota(broker, topic, "producer_byte_rate", 50_000)
    set_quota(broker, topic, "consumer_byte_rate", 50_000)
    waits: list[float] = []
    common: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": topic,
        "throttle_cb": lambda event: waits.append(event.throttle_time),
    }
    delivered: list[Any] = []
    producer = confluent_kafka.Producer({**common, "linger.ms": 0, "batch.size": 60_000})
    for number in range(COUNT):
        producer.produce(topic, VALUE, key=b"%d" % number, on_delivery=lambda *told: delivered.append(told))
    assert producer.flush(60) == 0
    assert [error for error, _ in delivered] == [None] * COUNT
    producer.poll(0)
    assert max(waits) > 0
    waits.clear()
    consumer = confluent_kafka.Consumer(
        {**common, "group.id": topic, "auto.offset.reset": "earliest", "fetch.message.max.bytes": 60_000}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []

    def is_all_read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.key())
        return len(found) == COUNT

    wait_for(is_all_read, "the records")
    assert sorted(found) == sorted(b"%d" % number for number in range(COUNT))
    wait_for(lambda: consumer.poll(0.1) or waits, "the word that it had to wait")
    assert max(waits) > 0
    consumer.close()
    assert 'kompakt_throttled_total{quota="consumer_byte_rate"} 0.0' not in broker.http("/metrics")


def test_kafka_python_is_told_and_loses_nothing(
    broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    set_quota(broker, topic, "producer_byte_rate", 50_000)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap, client_id=topic, request_timeout_ms=MINUTE_MS
    )
    sent = [producer.send(topic, VALUE) for _ in range(COUNT)]
    assert sorted(one.get(60).offset for one in sent) == list(range(COUNT))
    producer.close()
    assert "ProduceResponse throttled by broker" in caplog.text


@pytest.mark.java
def test_kafkas_tools_set_them_and_are_told(
    kafka_tools: Tools, own_broker: Callable[..., BrokerProcess]
) -> None:
    broker = own_broker()

    def configs(*arguments: str) -> str:
        return kafka_tools.run("kafka-configs", "--bootstrap-server", broker.bootstrap, *arguments).strip()

    slow = ("--entity-type", "clients", "--entity-name", "slow")
    assert "Completed" in configs(
        "--alter", *slow, "--add-config", "producer_byte_rate=200000,consumer_byte_rate=300000"
    )
    default = ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default")
    assert "Completed" in configs("--alter", *default, "--add-config", "controller_mutation_rate=0.5")
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.7")
    assert "Completed" in configs("--alter", *address, "--add-config", "connection_creation_rate=5")
    told = (
        "Quota configs for client-id 'slow' are consumer_byte_rate=300000.0, producer_byte_rate=200000.0",
        "Quota configs for the default user-principal, the default client-id are "
        "controller_mutation_rate=0.5",
        "Quota configs for ip '10.0.0.7' are connection_creation_rate=5.0",
    )
    broker.kill()
    broker.start()
    assert configs("--describe", *slow) == told[0]
    assert configs("--describe", *default) == told[1]
    assert configs("--describe", "--entity-type", "ips") == told[2]

    def measured(tool: str, metric: str, client_id: str, *arguments: object) -> float:
        said = kafka_tools.run(tool, *arguments, "--print-metrics")
        (line,) = (line for line in said.splitlines() if f"{metric}:{{client-id={client_id}}}" in line)
        return float(line.rpartition(":")[2])

    for client_id in ("slow", "fast"):
        wait = measured(
            "kafka-producer-perf-test", "produce-throttle-time-max", client_id,
            "--topic", "perf", "--num-records", 3000, "--record-size", 1000, "--throughput", -1,
            "--producer-props", f"bootstrap.servers={broker.bootstrap}", f"client.id={client_id}",
        )  # fmt: skip
        assert (wait > 0) == (client_id == "slow")
    wait = measured(
        "kafka-consumer-perf-test", "fetch-throttle-time-max", "slow", "--topic", "perf", "--messages", 6000,
        "--bootstrap-server", broker.bootstrap, "--command-property", "client.id=slow",
        "--command-property", "max.partition.fetch.bytes=500000", "--timeout", MINUTE_MS,
    )  # fmt: skip
    assert wait > 0
    assert "Completed" in configs(
        "--alter", *slow, "--delete-config", "producer_byte_rate,consumer_byte_rate"
    )
    assert configs("--describe", *slow) == ""
