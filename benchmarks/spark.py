"""`python -m benchmarks.spark [--quick] [--only PART ...]`: both Spark sources on the same topics of both
brokers, in turn. `make bench-spark`; takes 9 minutes on two quiet cores. Writes `results/spark.*` and
the README.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from benchmarks import command, report
from benchmarks import spark_goals as goals
from benchmarks.cleaning import Spool, keyed_batches
from benchmarks.results import RESULTS, Results, Section
from benchmarks.spark_goals import ALL, LZ4, NONE, OURS, OWN, SIDES, VALUE, ZSTD
from benchmarks.spark_sides import Work, check
from benchmarks.systems import System, make_systems
from benchmarks.warm import kept_warm
from benchmarks.wire import send_batches
from protocol.compression import CODEC_NAMES
from tests.kafka.jars import NoKafkaError
from tests.kafka.tools import Tools
from tests.waiting import wait_for

PARTITIONS = 2
SMALL_BYTES, LARGE_BYTES = 100, 1024
PRODUCER_BATCH_BYTES = 125_000  # a producer's batch.size of 128 KiB
MANY_KEYS = 10**12
WARM_ROUNDS = 2


@dataclass(frozen=True)
class Size:
    """How much work a form of the run does."""

    rounds: int
    fewer_rounds: int
    """of what is compressed, and of streams"""
    trigger_rounds: int
    """more, for they are short, and one query's median differs from the next one's by a quarter"""
    small_records: int
    large_records: int
    warm_records: int
    written_rows: int
    triggers: int


QUICK = Size(1, 1, 1, 500_000, 100_000, 100_000, 100_000, 8)
FULL = Size(3, 2, 9, 5_000_000, 1_000_000, 1_000_000, 1_000_000, 12)


@dataclass(frozen=True)
class Topic:
    """The same records on every broker."""

    name: str
    case: str
    codec: str
    records: int


class Run:
    """Owned by: the thread that measures."""

    def __init__(self, systems: list[System], directory: Path, size: Size, work: Work) -> None:
        self.systems = systems
        self.size = size
        self.section = Section("", {})
        self.work = work
        self._directory = directory
        self._numbers = itertools.count(1)
        self._small: Topic | None = None
        self._held: dict[str, ExitStack] = {}

    def add(self, line: str, case: str, unit: str, side: str, value: float) -> None:
        self.section.add(line, case, unit, side, value)
        print(f"  {line}: {case}: {side}: {value:,.4g} {unit}", flush=True)

    def turns(self, rounds: int, sides: Sequence[str] = SIDES) -> Iterator[tuple[System, list[str]]]:
        """Every broker in every round, with the sides in another order each time."""
        for number in range(rounds):
            for system in self.systems:
                shift = number % len(sides)
                yield system, [*sides[shift:], *sides[:shift]]

    # Topics

    def filled(self, records: int, record_bytes: int, codec: str) -> Topic:
        """A new topic, in batches as large as a producer makes at best; in memory until it is dropped."""
        name = f"read-{next(self._numbers)}"
        batches = keyed_batches(
            records, MANY_KEYS, record_bytes, int(CODEC_NAMES[codec]), PRODUCER_BATCH_BYTES // record_bytes
        )
        print(f"  filling {name}: {records:,} records of {record_bytes} B, {codec}", flush=True)
        spool = Spool(self._directory / name, batches)
        for system in self.systems:
            system.create_topic(name, PARTITIONS, {"retention.ms": "-1"})
            send_batches(system.port, name, spool, indexes=range(PARTITIONS))
            wait_for(lambda: written(system, name) >= records, f"{records} records in {name}")  # noqa: B023
        spool.path.unlink()
        self._held[name] = held = ExitStack()
        parts = [f"{name}-{index}" for index in range(PARTITIONS)]
        held.enter_context(kept_warm(system.data / part for system in self.systems for part in parts))
        size = "1 KiB" if record_bytes == LARGE_BYTES else f"{record_bytes} B"
        return Topic(name, size, codec, written(self.systems[0], name))

    def small(self) -> Topic:
        """The records that most lines read."""
        if self._small is None:
            self._small = self.filled(self.size.small_records, SMALL_BYTES, NONE)
        return self._small

    def drop(self, name: str) -> None:
        self._held.pop(name).close()
        for system in self.systems:
            system.delete_topic(name)

    def close(self) -> None:
        for held in self._held.values():
            held.close()

    @contextmanager
    def temporary(self, records: int, record_bytes: int, codec: str) -> Iterator[Topic]:
        topic = self.filled(records, record_bytes, codec)
        yield topic
        self.drop(topic.name)

    # Parts

    def warm_up(self) -> None:
        """Reads that do not count: a JVM is fast only once it has compiled what it does."""
        with self.temporary(self.size.warm_records, SMALL_BYTES, NONE) as topic:
            for system, sides in self.turns(WARM_ROUNDS):
                print(f"  warming up with broker {system.name}", flush=True)
                for side, columns in itertools.product(sides, (ALL, VALUE)):
                    self.work.batch(side, system.bootstrap, topic.name, columns, topic.records)
                for side in sides:
                    self.work.stream(side, system.bootstrap, topic.name, ALL, topic.records)

    def batch(self) -> None:
        """Every codec and size; Spark's own source makes all columns whatever is wanted, so it is measured
        once for both lines."""
        self._batch(self.small(), self.size.rounds)
        with self.temporary(self.size.large_records, LARGE_BYTES, NONE) as topic:
            self._batch(topic, self.size.rounds)
        for codec in (LZ4, ZSTD):
            with self.temporary(self.size.small_records, SMALL_BYTES, codec) as topic:
                self._batch(topic, self.size.fewer_rounds)
            with self.temporary(self.size.large_records, LARGE_BYTES, codec) as topic:
                self._batch(topic, self.size.fewer_rounds)

    def _batch(self, topic: Topic, rounds: int) -> None:
        for system, sides in self.turns(rounds):
            case = f"{topic.case}, broker {system.name}"
            for side in sides:
                for columns in (ALL, VALUE) if side == OURS else (ALL,):
                    with self.watched(side, f"batch {columns}, {topic.case} {topic.codec}"):
                        seconds = self.work.batch(side, system.bootstrap, topic.name, columns, topic.records)
                    for line in (ALL, VALUE) if side != OURS else (columns,):
                        self.add(goals.batch_line(line, topic.codec), case, "s", side, seconds)

    def stream(self) -> None:
        topic = self.small()
        for system, sides in self.turns(self.size.fewer_rounds):
            for side, columns in itertools.product(sides, (ALL, VALUE)):
                with self.watched(side, f"stream {columns}, {topic.case}"):
                    seconds = self.work.stream(side, system.bootstrap, topic.name, columns, topic.records)
                case = f"{topic.case}, broker {system.name}"
                self.add(goals.stream_line(columns), case, "s", side, seconds)

    def trigger(self) -> None:
        topic = self.small()
        for system, sides in self.turns(self.size.trigger_rounds, (OWN, OURS)):
            for side in sides:
                taken = self.work.trigger(side, system.bootstrap, topic.name, self.size.triggers)
                self.add(goals.TRIGGER, f"broker {system.name}", "ms", side, taken)

    def write(self) -> None:
        """Last: PySpark loads pandas in a worker that writes, which no reading worker shall be blamed for."""
        count = self.size.written_rows
        rows = self.work.rows(count, SMALL_BYTES)
        for system, sides in self.turns(WARM_ROUNDS):
            for side in sides:
                self._write(system, side, rows, count)
        for system, sides in self.turns(self.size.rounds):
            for side in sides:
                with self.watched(side, "rows", goals.WRITER_MEMORY):
                    seconds = self._write(system, side, rows, count)
                self.add(goals.WRITE, f"broker {system.name}", "s", side, seconds)
        rows.unpersist()

    def _write(self, system: System, side: str, rows: object, count: int) -> float:
        topic = f"written-{next(self._numbers)}"
        system.create_topic(topic, PARTITIONS)
        seconds = self.work.write(side, system.bootstrap, topic, rows)
        check(written(system, topic), count, side, topic)
        system.delete_topic(topic)
        return seconds

    @contextmanager
    def watched(self, side: str, case: str, line: str = goals.MEMORY) -> Iterator[None]:
        """Note the peak of our workers; Spark's own source has none."""
        if side == OURS:
            self.work.forget_peaks()
        yield
        if side == OURS:
            self.add(line, case, "MB", side, self.work.peak_mb())


PARTS: dict[str, Callable[[Run], None]] = {
    "batch": Run.batch,
    "stream": Run.stream,
    "trigger": Run.trigger,
    "write": Run.write,
}


def written(system: System, topic: str) -> int:
    """How many records can be read."""
    admin = system.admin()
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = dict.fromkeys((TopicPartition(topic, index) for index in range(PARTITIONS)), latest)
    return sum(future.result(60).offset for future in admin.list_offsets(wanted).values())


def arguments(given: list[str]) -> argparse.Namespace:
    parser = command.parser("benchmarks.spark", __doc__, PARTS, "one round of little; writes nothing")
    return parser.parse_args(given)


def publish(results: Results) -> None:
    """Write the files and the README's table."""
    block = goals.readme_block(results)
    report.README.write_text(
        report.with_block(report.README.read_text(), block, goals.OPENING, goals.CLOSING)
    )
    results.write(goals.NAME, goals.markdown(results))


def main(given: list[str]) -> int:
    options = arguments(given)
    size = QUICK if options.quick else FULL
    if options.rounds:
        rounds = options.rounds
        size = replace(size, rounds=rounds, fewer_rounds=rounds, trigger_rounds=rounds)
    form = "quick" if options.quick else "full"
    is_published = not options.quick and not options.system
    results = Results.read(RESULTS / f"{goals.NAME}.json") if is_published else Results()
    with command.data_directory(options) as directory:
        systems: list[System] = []
        work = run = None
        try:
            systems = make_systems(directory, Tools(), options.system)
            for system in systems:
                system.start()
            work = Work(directory)
            run = Run(systems, directory, size, work)
            run.warm_up()
            for part in options.only or PARTS:
                results.sections[part] = command.measured(run, part, PARTS, form)
                if is_published:
                    publish(results)
        except NoKafkaError as problem:
            print(f"cannot measure: {problem}", file=sys.stderr)
            return 2
        finally:
            if run is not None:
                run.close()
            if work is not None:
                work.close()
            for system in systems:
                system.close()
    print("\n" + goals.terminal(results))
    return 0


if __name__ == "__main__":
    command.end_when_told()
    sys.exit(main(sys.argv[1:]))
