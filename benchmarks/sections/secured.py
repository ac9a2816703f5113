"""What TLS and a password leave of the throughput, beside Apache Kafka's, and what they cost the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bench import SETTINGS, Bench, Side
from benchmarks.goals import KAFKA, KOMPAKT, RELAXED
from benchmarks.sections.throughput import confluent_rates
from benchmarks.systems import ARCHIVE_HEAP, System
from tests.certificates import make_certificates
from tests.kafka.broker import AS_RELEASED
from tests.secured import PASSWORD, USER, SecuredBroker, SecuredKafka

LISTENER = "SASLTLS"


def secured(bench: Bench) -> None:
    """confluent-kafka by SASL_SSL, acks=all; the client is in this process."""
    count = int(150_000 * bench.size.produce_seconds)

    def make(directory: Path) -> list[System]:
        for name in ("certificates", "kafka", "kompakt"):
            (directory / name).mkdir(parents=True)
        certificates = make_certificates(directory / "certificates")
        options = (*ARCHIVE_HEAP, *AS_RELEASED)
        kafka = SecuredKafka(directory / "kafka", bench.tools, certificates, SETTINGS, measured=options)
        data = directory / "kompakt" / "data"
        own = SecuredBroker(data, certificates, SETTINGS)
        return [System(own, KOMPAKT, data), System(kafka, KAFKA, kafka.data)]

    def server(system: System) -> dict[str, Any]:
        broker = system.broker
        assert isinstance(broker, SecuredKafka | SecuredBroker)
        return {
            "bootstrap.servers": broker.address[LISTENER],
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(broker.settings["ssl.truststore.location"]),
        }

    def measure(side: Side) -> None:
        topic = bench.topic("secured")
        side.create_topic(topic)
        before = side.system.cpu_seconds()
        produced, consumed = confluent_rates(topic, server(side.system), count)
        cpu_us = 1e6 * (side.system.cpu_seconds() - before) / count
        bench.add("secured produce", "SASL_SSL, 100 B", "records/s", side, produced)
        bench.add("secured consume", "SASL_SSL, 100 B", "records/s", side, consumed)
        bench.add("secured CPU", "SASL_SSL, 100 B, in and out", "us/record", side, cpu_us)
        side.system.delete_topic(topic)

    with bench.own(make) as systems:
        for system in systems:
            system.start()
            topic = bench.topic("warm")
            system.create_topic(topic)
            confluent_rates(topic, server(system), count)
        bench.rounds((KAFKA, KOMPAKT, RELAXED), measure, bench.size.rounds + 1, systems)
