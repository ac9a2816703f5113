"""Throughput by Kafka's own measuring tools, unmodified."""

from __future__ import annotations

import re

from benchmarks.systems import System
from tests.kafka.tools import Tools

_PRODUCED = re.compile(
    r"records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\).* (\d+) ms 50th, .* (\d+) ms 99th"
)


def produce(
    tools: Tools,
    system: System,
    topic: str,
    count: int,
    record_bytes: int,
    acks: str,
    properties: tuple[str, ...],
) -> float:
    """Records a second by kafka-producer-perf-test."""
    arguments = ["--bootstrap-server", system.bootstrap, "--topic", topic, "--num-records", count]
    arguments += ["--record-size", record_bytes, "--throughput", -1]
    arguments += ["--command-property", f"acks={acks}", *properties]
    output = tools.run("kafka-producer-perf-test", *arguments)
    found = _PRODUCED.search(output.strip().splitlines()[-1])
    if found is None:
        raise RuntimeError(f"kafka-producer-perf-test printed no summary:\n{output}")
    return float(found[1])


def consume(tools: Tools, system: System, topic: str, count: int) -> tuple[float, float]:
    """Records a second by kafka-consumer-perf-test: (fetching alone, joining the group included)."""
    arguments = [
        "--bootstrap-server",
        system.bootstrap,
        "--topic",
        topic,
        "--num-records",
        count,
        "--hide-header",
    ]
    output = tools.run("kafka-consumer-perf-test", *arguments)
    fields = [field.strip() for field in output.strip().splitlines()[-1].split(",")]
    if int(fields[4]) < count:
        raise RuntimeError(f"kafka-consumer-perf-test read {fields[4]} of {count} records")
    return float(fields[9]), float(fields[5])
