"""How long a broker with much data is away: after a clean stop, and after `kill -9`."""

from __future__ import annotations

import time

from benchmarks import wire
from benchmarks.bench import Bench, Side
from benchmarks.goals import KAFKA, KOMPAKT, RELAXED
from benchmarks.sections.footprint import PARTITIONS
from benchmarks.sections.growth import GIB, LARGE_BATCH_BYTES, filler
from benchmarks.systems import System
from tests.waiting import wait_for

RESTARTED_GIB = 5
UNFLUSHED_GIB = 2
READY_LIMIT_SECONDS = 300.0


def ready_seconds(system: System, topic: str, index: int = 0) -> float:
    """Seconds from the start of the process until a record is taken."""
    began = time.monotonic()
    system.start()
    wait_for(
        lambda: wire.takes_records(system.port, topic, index), f"{topic} to take records", READY_LIMIT_SECONDS
    )
    return time.monotonic() - began


def restart(bench: Bench) -> None:
    """2,000 partitions with 5 GiB in all, stopped cleanly."""
    partitions = max(PARTITIONS // 10, int(PARTITIONS * min(1.0, bench.size.heaviness)))
    total = int(RESTARTED_GIB * bench.size.heaviness * GIB)
    batches = -(-total // partitions // LARGE_BATCH_BYTES)
    batch = filler(total // partitions // batches)
    case = f"{partitions} partitions, {total / GIB:.1f} GiB"
    with bench.fresh() as systems:
        for system in systems:
            system.start()
            system.create_topic("wide", partitions)
            everything = (batch for _ in range(batches * partitions))
            wire.send_batches(system.port, "wide", everything, indexes=range(partitions))
            system.stop()

        def measure(side: Side) -> None:
            bench.add("restart", case, "s", side, ready_seconds(side.system, "wide", partitions - 1))
            began = time.monotonic()
            side.system.stop()
            bench.add("clean stop", case, "s", side, time.monotonic() - began)

        bench.rounds((KAFKA, KOMPAKT), measure, systems=systems)


def kill(bench: Bench) -> None:
    """2 GiB in one active segment, killed as soon as the last batch is acknowledged."""
    size = int(UNFLUSHED_GIB * bench.size.heaviness * GIB) - LARGE_BATCH_BYTES
    batch = filler(LARGE_BATCH_BYTES)
    with bench.fresh() as systems:

        def measure(side: Side) -> None:
            system = side.system
            system.start()
            topic = bench.topic("active")
            side.create_topic(topic, settings={"segment.bytes": str(2**31 - 1)})
            wire.send_batches(system.port, topic, (batch for _ in range(size // len(batch))))
            system.kill()
            bench.add("kill", f"{size / GIB:.1f} GiB", "s", side, ready_seconds(system, topic))
            system.delete_topic(topic)
            system.stop()

        bench.rounds((KAFKA, KOMPAKT, RELAXED), measure, systems=systems)
