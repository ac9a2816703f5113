"""What a broker takes before it does anything: time to start, memory, CPU; and with 2,000 of everything."""

from __future__ import annotations

import threading
import time

from benchmarks import wire
from benchmarks.bench import Bench, Side
from benchmarks.goals import KAFKA, KOMPAKT
from benchmarks.sections.latency import VALUE_BYTES, p50_p99

SETTLE_SECONDS = 3.0
PARTITIONS = 2000  # and as many connections
WINDOWS = 3


def startup(bench: Bench) -> None:
    """Fresh, after a clean stop; memory and CPU when idle, the other broker being stopped."""
    for _ in range(bench.size.rounds):
        with bench.fresh() as systems:

            def fresh(side: Side) -> None:
                bench.add("start-up", "fresh", "s", side, side.system.start())
                threading.Event().wait(SETTLE_SECONDS)
                used, began = side.system.cpu_meter(), time.monotonic()
                threading.Event().wait(bench.size.idle_seconds)
                percent = 100 * used() / (time.monotonic() - began)
                bench.add("idle CPU", "no client", "%", side, percent)
                bench.add("memory idle", "no client", "MiB", side, side.system.memory_mib())
                side.system.stop()

            def again(side: Side) -> None:
                bench.add("start-up", "after a clean stop", "s", side, side.system.start())
                side.system.stop()

            bench.rounds((KAFKA, KOMPAKT), fresh, 1, systems)
            bench.rounds((KAFKA, KOMPAKT), again, 1, systems)


def many(bench: Bench) -> None:
    """2,000 partitions and 2,000 connections that do nothing, beside one active producer."""
    count = max(PARTITIONS // 10, int(PARTITIONS * min(1.0, bench.size.heaviness)))
    with bench.fresh() as systems:

        def measure(side: Side) -> None:
            system = side.system
            system.start()
            side.create_topic("active")
            wire.round_trips(system.port, "active", 1, 0, bench.size.round_trips, VALUE_BYTES)

            def p99() -> float:
                times = wire.round_trips(system.port, "active", 1, 200, bench.size.probes, VALUE_BYTES)
                return p50_p99(times)[1]

            before = [p99() for _ in range(WINDOWS)]
            side.create_topic("wide", count)
            idle = [wire.Connection(system.port) for _ in range(count)]
            for connection in idle:
                connection.greet()
            threading.Event().wait(SETTLE_SECONDS)
            for quiet in before:
                bench.add("many p99", f"{count} of each", "x", side, p99() / quiet)
            bench.add("many memory", f"{count} of each", "MiB", side, system.memory_mib())
            for connection in idle:
                connection.close()
            system.stop()

        bench.rounds((KAFKA, KOMPAKT), measure, 1, systems)
