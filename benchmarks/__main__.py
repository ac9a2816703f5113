"""`python -m benchmarks [--quick] [--only PART ...]`: measure both brokers, print and write the ratios."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import cleaning, perf_tools, wire
from benchmarks.report import Report
from benchmarks.systems import KAFKA, KOMPAKT, System, make_systems
from protocol.compression import Codec
from tests.kafka.jars import NoKafkaError
from tests.kafka.tools import Tools

IDLE_SECONDS = 5.0
LATENCY_VALUE_BYTES = 100
BATCHING = ("linger.ms=5", "batch.size=131072")
FLUSHED = {"flush.messages": "1"}
UNFLUSHED = {"flush.messages": str(2**63 - 1)}


@dataclass(frozen=True)
class Size:
    """How much work a form of the run does."""

    rounds: int
    small_records: int
    large_records: int
    round_trips: int
    warm_round_trips: int
    flushed_round_trips: int
    pipelined_requests: int
    cleaned_records: int
    cleaned_large_records: int
    cleaned_keys: int


QUICK = Size(1, 1_000_000, 200_000, 5_000, 5_000, 1_000, 60_000, 3_000_000, 0, 100_000)
FULL = Size(3, 3_000_000, 600_000, 20_000, 20_000, 3_000, 200_000, 5_000_000, 2_000_000, 200_000)


class Run:
    """One run over both systems: each case is measured on one and at once on the other, in changing order."""

    def __init__(self, systems: list[System], tools: Tools, size: Size, report: Report) -> None:
        self.systems = systems
        self.tools = tools
        self.size = size
        self.report = report
        self.turns = 0

    def each(self, measure: Callable[[System, str], None]) -> None:
        """`measure(system, tag)` on every system, the other one first the next time."""
        self.turns += 1
        order = self.systems if self.turns % 2 else self.systems[::-1]
        for system in order:
            measure(system, f"t{self.turns}")

    def startup(self) -> None:
        """Start-up of a fresh directory, memory when idle; leaves both running."""

        def measure(system: System, tag: str) -> None:
            seconds = system.start()
            self.report.add("start-up", "to the first answer, fresh data", "s", system.name, seconds)

        self.each(measure)
        threading.Event().wait(IDLE_SECONDS)
        self.each(lambda system, _: self.memory(system, "idle after start"))

    def restart(self) -> None:
        """Start-up over the data of all other parts, after a clean stop."""

        def measure(system: System, tag: str) -> None:
            system.stop()
            seconds = system.start()
            self.report.add("start-up", "after a clean stop, data of this run", "s", system.name, seconds)

        self.each(measure)

    def memory(self, system: System, when: str) -> None:
        self.report.add("resident memory", when, "MiB", system.name, system.memory_mib())

    def throughput(self) -> None:
        """Kafka's own perf tools: produce, then consume what was produced."""
        self.each(self.warm_up)
        for record_bytes, count in ((100, self.size.small_records), (1024, self.size.large_records)):
            for acks in ("1", "all"):
                self.each(
                    lambda system, tag, n=count, b=record_bytes, a=acks: self.one_throughput(
                        system, tag, n, b, a
                    )  # type: ignore[misc]
                )

    def warm_up(self, system: System, tag: str) -> None:
        """A produce that does not count: a JVM is fast only once it has compiled what it does."""
        topic = f"warm-{tag}"
        system.create_topic(topic)
        perf_tools.produce(self.tools, system, topic, self.size.small_records // 2, 100, "1", BATCHING)
        system.delete_topic(topic)

    def one_throughput(self, system: System, tag: str, count: int, record_bytes: int, acks: str) -> None:
        topic = f"throughput-{tag}"
        system.create_topic(topic)
        rate = perf_tools.produce(self.tools, system, topic, count, record_bytes, acks, BATCHING)
        case = f"{record_bytes} B, acks={acks}"
        self.report.add("produce", case, "records/s", system.name, rate, more_is_better=True)
        if acks == "1":
            fetching, whole = perf_tools.consume(self.tools, system, topic, count)
            case = f"{record_bytes} B"
            self.report.add(
                "consume", f"{case}, fetching", "records/s", system.name, fetching, more_is_better=True
            )
            self.report.add(
                "consume", f"{case}, with joining", "records/s", system.name, whole, more_is_better=True
            )
        system.delete_topic(topic)

    def latency(self) -> None:
        """Round trips of one-record produces on a bare socket."""
        size = self.size
        cases: tuple[tuple[str, int, dict[str, str], int, int], ...] = (
            ("acks=1", 1, {}, size.warm_round_trips, size.round_trips),
            ("acks=all, own defaults", wire.ACKS_ALL, {}, size.flushed_round_trips, size.flushed_round_trips),
            ("acks=all, both unflushed", wire.ACKS_ALL, UNFLUSHED, size.warm_round_trips, size.round_trips),
            ("acks=all, both flushed", wire.ACKS_ALL, FLUSHED, 200, size.flushed_round_trips),
        )
        for case, acks, settings, warm, count in cases:

            def measure(
                system: System,
                tag: str,
                case: str = case,
                acks: int = acks,
                settings: dict[str, str] = settings,
                warm: int = warm,
                count: int = count,
            ) -> None:
                topic = f"latency-{tag}"
                system.create_topic(topic, settings=settings)
                times = wire.round_trips(system.port, topic, acks, warm, count, LATENCY_VALUE_BYTES)
                cuts = statistics.quantiles(times, n=100)
                self.report.add("round trip", f"{case}, p50", "us", system.name, cuts[49])
                self.report.add("round trip", f"{case}, p99", "us", system.name, cuts[98])
                system.delete_topic(topic)

            self.each(measure)

    def pipelined(self) -> None:
        """Small produce requests a second on one connection."""

        def measure(system: System, tag: str) -> None:
            topic = f"pipelined-{tag}"
            system.create_topic(topic)
            count = self.size.pipelined_requests
            wire.pipelined(system.port, topic, 1, count // 4, LATENCY_VALUE_BYTES, 50, 4)
            rate = wire.pipelined(system.port, topic, 1, count, LATENCY_VALUE_BYTES, 50, 4)
            name = "one-record requests, one connection, acks=1"
            self.report.add("pipelined", name, "requests/s", system.name, rate, more_is_better=True)
            system.delete_topic(topic)

        self.each(measure)

    def cleaner(self) -> None:
        """Records a second of one cleaner thread over both phases."""
        size = self.size
        self.each(lambda system, tag: self.one_cleaning(system, tag, size.cleaned_records, 100, Codec.NONE))
        if size.cleaned_large_records:
            count = size.cleaned_large_records
            self.each(lambda system, tag: self.one_cleaning(system, tag, count, 1024, Codec.LZ4))

    def one_cleaning(self, system: System, tag: str, count: int, record_bytes: int, codec: Codec) -> None:
        topic = f"cleaner-{tag}"
        batches = cleaning.keyed_batches(count, self.size.cleaned_keys, record_bytes, codec)
        cleaning.fill(system, topic, batches)
        outside, own = cleaning.clean(system, topic)
        case = f"{record_bytes} B, {codec.name.lower()}"
        self.report.add(
            "cleaner", f"{case}, from outside", "records/s", system.name, outside, more_is_better=True
        )
        if own is not None:
            self.report.add(
                "cleaner", f"{case}, own log line", "records/s", system.name, own, more_is_better=True
            )
        system.delete_topic(topic)


PARTS: dict[str, Callable[[Run], None]] = {
    "latency": Run.latency,
    "pipelined": Run.pipelined,
    "throughput": Run.throughput,
    "cleaner": Run.cleaner,
}


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, under three minutes")
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "startup"], help="these parts alone")
    parser.add_argument("--system", choices=[KOMPAKT, KAFKA], help="one of the two alone")
    parser.add_argument("--rounds", type=int, help="how often each case is measured")
    parser.add_argument("--directory", type=Path, help="where the data goes; a temporary directory otherwise")
    parser.add_argument("--no-results", action="store_true", help="write no files")
    return parser.parse_args(given)


def main(given: list[str]) -> int:
    options = arguments(given)
    size = QUICK if options.quick else FULL
    rounds = options.rounds or size.rounds
    try:
        tools = Tools()
    except NoKafkaError as problem:
        print(f"cannot measure: {problem}", file=sys.stderr)
        return 2
    report = Report()
    with tempfile.TemporaryDirectory(prefix="kompakt-bench-", dir=options.directory) as directory:
        systems = make_systems(Path(directory), tools, options.system)
        run = Run(systems, tools, size, report)
        try:
            run.startup()
            for _ in range(rounds):
                for name in options.only or PARTS:
                    if name in PARTS:
                        PARTS[name](run)
            run.each(lambda system, _: run.memory(system, "after the load"))
            run.restart()
        finally:
            for system in systems:
                system.close()
    print("\n" + report.table())
    if not options.no_results:
        print(f"\nwritten to {report.write('quick' if options.quick else 'full', rounds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
