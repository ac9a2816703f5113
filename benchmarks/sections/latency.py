"""How long one record takes, and how many small requests a second go through: sockets, the Java client."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import perf_tools, wire
from benchmarks.bench import Bench, Side
from benchmarks.goals import FLUSHING, KAFKA, KOMPAKT, RELAXED

VALUE_BYTES = 100
FSYNCS = 300


def p50_p99(times: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(times, n=100)
    return cuts[49], cuts[98]


def raw(bench: Bench) -> None:
    """One-record requests a second: pipelined on one connection, and 64 connections each waiting for its
    answer.
    """
    size = bench.size

    def one(side: Side) -> None:
        topic = bench.topic("pipelined")
        side.create_topic(topic)
        for count in (size.pipelined // 4, size.pipelined):
            rate = wire.pipelined(side.system.port, topic, 1, count, VALUE_BYTES, 50, 4)
        bench.add("pipelined", "acks=1", "requests/s", side, rate)
        side.system.delete_topic(topic)

    def many(side: Side) -> None:
        topic = bench.topic("many")
        side.create_topic(topic)
        for count in (size.pipelined // 4, size.pipelined):
            rate = wire.many_connections(side.system.port, topic, 1, 64, count, VALUE_BYTES)
        bench.add("64 connections", "acks=1", "requests/s", side, rate)
        side.system.delete_topic(topic)

    bench.rounds((KAFKA, KOMPAKT), one, size.rounds + 1)
    bench.rounds((KAFKA, KOMPAKT), many, size.rounds + 1)


def one_at_a_time(bench: Bench) -> None:
    """Round trips on one connection; warm."""
    size = bench.size

    def measure(side: Side, line: str, acks: int, count: int) -> tuple[float, float]:
        topic = bench.topic("latency")
        side.create_topic(topic)
        times = wire.round_trips(side.system.port, topic, acks, count // 3, count, VALUE_BYTES)
        p50, p99 = p50_p99(times)
        bench.add(f"latency {line} p50", "raw socket, 100 B", "us", side, p50)
        bench.add(f"latency {line} p99", "raw socket, 100 B", "us", side, p99)
        side.system.delete_topic(topic)
        return p50, p99

    def acks_one(side: Side) -> None:
        measure(side, "acks=1", 1, size.round_trips)

    def both_flush(side: Side) -> None:
        measure(side, "flushed", wire.ACKS_ALL, size.round_trips // 4)

    medians: dict[str, float] = {}

    def price(side: Side) -> None:
        medians[side.name] = measure(side, "unflushed", wire.ACKS_ALL, size.round_trips // 4)[0]
        if len(medians) == 2:
            more = medians[KOMPAKT] - medians[KAFKA]
            ours = bench.sides((KOMPAKT,), bench.shared())[0]
            bench.add(
                "price of durability", "acks=all", "fdatasync", ours, more / fdatasync_us(bench.directory)
            )
            medians.clear()

    bench.rounds((KAFKA, KOMPAKT), acks_one, size.rounds + 1)
    bench.rounds((FLUSHING, KOMPAKT), both_flush, size.rounds + 1)
    bench.rounds((KAFKA, KOMPAKT), price, size.rounds + 1)


def fdatasync_us(directory: Path) -> float:
    """The median of writing 200 bytes to the end of a file there and waiting for the disk."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(FSYNCS):
            os.write(file.fileno(), b"x" * 200)
            began = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter_ns() - began) / 1000)
    return statistics.median(times)


def end_to_end(bench: Bench) -> None:
    """From `send` to the record's arrival at a consumer, through the Java client."""
    count = bench.size.round_trips // 3
    for acks in ("1",) if bench.form == "quick" else ("1", "all"):

        def measure(side: Side, acks: str = acks) -> None:
            topic = bench.topic("end-to-end")
            side.create_topic(topic)
            times = perf_tools.end_to_end(bench.tools, side.system, topic, acks, count, count)
            p50, p99 = p50_p99(times)
            bench.add("end to end p50", f"acks={acks}", "us", side, p50)
            bench.add("end to end p99", f"acks={acks}", "us", side, p99)
            side.system.delete_topic(topic)

        bench.rounds((KAFKA, KOMPAKT, RELAXED), measure)
