"""Throughput by Kafka's own measuring tools, unmodified, and latency through its Java client.

The end-to-end tool of the archive prints whole milliseconds, too coarse here: `EndToEnd.java` does the same
work with the same client in microseconds. It is run from its source.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.systems import System
from tests.kafka.jars import environment
from tests.kafka.tools import Tools

BATCHING = ("linger.ms=5", "batch.size=131072")
END_TO_END = Path(__file__).resolve().parent / "EndToEnd.java"
LIMIT_SECONDS = 300.0
CONSUMER_PATIENCE_MS = 120_000
_PRODUCED = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)
_STEADY = re.compile(r"steady state records sent, ([\d.]+) records/sec")


@dataclass(frozen=True)
class Load:
    """One run of producer-perf-test."""

    records: int
    record_bytes: int
    partitions: int = 1
    codec: str = "none"
    acks: str = "all"
    properties: tuple[str, ...] = ()

    @property
    def case(self) -> str:
        where = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        size = f"{self.record_bytes} B" if self.record_bytes < 1000 else f"{self.record_bytes // 1024} KiB"
        return f"{where}, {size}, {self.codec}, acks={self.acks}"


def produce(tools: Tools, system: System, topic: str, load: Load) -> float:
    """Records a second once a quarter of them is through and the client is warm; RuntimeError unless all were
    acknowledged: the tool ends well when some, or all, were refused, and counts those that were not.
    """
    arguments: list[object] = ["--bootstrap-server", system.bootstrap, "--topic", topic]
    arguments += ["--num-records", load.records]
    arguments += [
        "--record-size",
        load.record_bytes,
        "--throughput",
        -1,
        "--warmup-records",
        load.records // 4,
    ]
    arguments += [
        "--command-property",
        f"acks={load.acks}",
        f"compression.type={load.codec}",
        *load.properties,
    ]
    output = tools.run("kafka-producer-perf-test", *arguments, limit_s=LIMIT_SECONDS)
    summaries = _PRODUCED.findall(output)  # the last one is of all; those before tell how far it is
    if not summaries:
        raise RuntimeError(f"kafka-producer-perf-test printed no summary:\n{output}")
    count, rate = summaries[-1]
    if int(count) < load.records:
        raise RuntimeError(f"kafka-producer-perf-test sent {count} of {load.records} records")
    steady = _STEADY.search(output)
    return float(steady[1] if steady is not None else rate)


def consume(tools: Tools, system: System, topic: str, count: int) -> float:
    """Records a second by kafka-consumer-perf-test, without the time of joining the group."""
    arguments: list[object] = ["--bootstrap-server", system.bootstrap, "--topic", topic]
    arguments += ["--num-records", count, "--hide-header", "--timeout", CONSUMER_PATIENCE_MS]
    output = tools.run("kafka-consumer-perf-test", *arguments, limit_s=LIMIT_SECONDS)
    fields = [field.strip() for field in output.strip().splitlines()[-1].split(",")]
    if int(fields[4]) < count:
        raise RuntimeError(f"kafka-consumer-perf-test read {fields[4]} of {count} records")
    return float(fields[9])


def end_to_end(tools: Tools, system: System, topic: str, acks: str, warm: int, count: int) -> list[float]:
    """Microseconds from `send` to the record's arrival at a consumer, one record at a time."""
    command = [tools.java, "-Xmx512m", "-XX:+UseG1GC", "-cp", f"{tools.libraries}/*", str(END_TO_END)]
    command += [system.bootstrap, topic, acks, str(warm), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment())
    if done.returncode != 0:
        raise RuntimeError(f"EndToEnd.java ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return [float(line) for line in done.stdout.split()]
