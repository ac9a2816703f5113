"""`python -m benchmarks.cleaner [--quick] [--only PART ...]`: the cleaner beside Apache Kafka's, and what it
costs everybody else. `make bench-cleaner`; takes 10 minutes on two quiet cores. Writes `results/cleaner.*`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import cleaner_goals as goals
from benchmarks import command
from benchmarks.cleaning import Cleaning, Spool, alter_broker, fill, keyed_batches
from benchmarks.goals import KAFKA, KOMPAKT
from benchmarks.results import RESULTS, Results, Section
from benchmarks.systems import System, make_systems
from benchmarks.wire import ACKS_ALL, Connection, base_offset_of, one_record_batch, produce_frame
from cleaner.offset_map import OffsetMap
from protocol.compression import Codec
from tests.kafka.jars import NoKafkaError
from tests.kafka.tools import Tools
from tests.waiting import wait_for

DEFAULT_BUFFER_BYTES = 128 << 20
SMALL_BUFFER_BYTES = 8 << 20  # holds the keys of any form
THROTTLED_TO = 200_000_000
QUIET_SECONDS = 3.0
SETTLE_SECONDS = 5.0  # a disk that was written to as fast as it goes
READY = "kompakt is ready"
BATCHES_AT_ONCE = 4


@dataclass(frozen=True)
class Size:
    """How much work a form of the run does."""

    rounds: int
    small_records: int
    large_records: int
    warm_records: int
    keys: int


QUICK = Size(1, 1_000_000, 300_000, 500_000, 30_000)
FULL = Size(3, 5_000_000, 2_000_000, 1_000_000, 200_000)


class Run:
    """Owned by: the thread that measures."""

    def __init__(self, systems: list[System], directory: Path, size: Size) -> None:
        self.systems = {system.name: system for system in systems}
        self.size = size
        self.section = Section("", {})
        self._directory = directory
        self._numbers = itertools.count(1)
        self._spools: dict[tuple[int, int, int, int], Spool] = {}

    def add(self, line: str, case: str, unit: str, system: System, value: float) -> None:
        self.section.add(line, case, unit, system.name, value)
        print(f"  {line}: {case}: {system.name}: {value:,.4g} {unit}", flush=True)

    def each(self, number: int) -> list[System]:
        """Both, the other one first the next time."""
        return list(self.systems.values())[:: -1 if number % 2 else 1]

    def spool(self, records: int, record_bytes: int, codec: Codec, keys: int = 0) -> Spool:
        keys = keys or self.size.keys
        known = (records, record_bytes, codec, keys)
        if known not in self._spools:
            path = self._directory / f"spool-{len(self._spools)}"
            self._spools[known] = Spool(path, keyed_batches(records, keys, record_bytes, codec))
        return self._spools[known]

    def small(self) -> Spool:
        return self.spool(self.size.small_records, 100, Codec.NONE)

    def large(self, codec: Codec) -> Spool:
        return self.spool(self.size.large_records, 1024, codec)

    def filled(self, system: System, spool: Spool, count: int = 1) -> list[str]:
        """New topics with these batches. kompakt counts what is in closed segments: that is work of the
        filling, and must be over before anything is measured.
        """
        topics = [f"cleaned-{next(self._numbers)}" for _ in range(count)]
        for topic in topics:
            fill(system, topic, spool)
        for topic in topics if system.name == KOMPAKT else ():
            wait_for(functools.partial(has_statistics, system.data / f"{topic}-0"), f"statistics of {topic}")
        return topics

    @staticmethod
    def drop(system: System, topics: list[str]) -> None:
        for topic in topics:
            system.delete_topic(topic)

    # Speed

    def warm_up(self) -> None:
        """Cleanings that do not count: a JVM is fast only once it has compiled what it does."""
        for codec, record_bytes in ((Codec.NONE, 100), (Codec.LZ4, 1024)):
            spool = self.spool(self.size.warm_records, record_bytes, codec)
            for system in self.systems.values():
                topics = self.filled(system, spool)
                Cleaning(system, topics).wait()
                self.drop(system, topics)

    def speed(self) -> None:
        self.warm_up()
        cases = [("100 B", Codec.NONE), ("1 KiB", Codec.LZ4), ("1 KiB", Codec.ZSTD)]
        for name, codec in cases:
            for number in range(self.size.rounds):
                for system in self.each(number):
                    topics = self.filled(system, self.large(codec) if codec else self.small())
                    cleaning = Cleaning(system, topics)
                    seconds = cleaning.wait()
                    case = f"{name}, {codec.name.lower()}"
                    own = cleaning.records / cleaning.own_seconds()
                    self.add(goals.speed_line(codec.name.lower()), case, "records/s", system, own)
                    self.add(goals.OUTSIDE, case, "records/s", system, cleaning.records / seconds)
                    self.drop(system, topics)

    # What it costs the others

    def latency(self) -> None:
        """Round trips of one-record produces, quiet and while topics are cleaned, in turn."""
        system = self.systems[KOMPAKT]
        for name, spool, count in (("100 B none", self.small(), 4), ("1 KiB lz4", self.large(Codec.LZ4), 1)):
            for acks in (1, ACKS_ALL):
                for _ in range(self.size.rounds):
                    topics = self.filled(system, spool, count)
                    target = self.target(system)
                    round_trips(system.port, target, acks, for_seconds(0.5))
                    quiet = cuts(round_trips(system.port, target, acks, for_seconds(QUIET_SECONDS)))
                    busy = cuts(round_trips(system.port, target, acks, Cleaning(system, topics).is_over))
                    case = f"acks={'all' if acks == ACKS_ALL else acks}, cleaning {name}"
                    self.add(goals.P50, case, "x", system, busy[0] / quiet[0])
                    self.add(goals.P99, case, "x", system, busy[1] / quiet[1])
                    for when, found in (("quiet", quiet), ("cleaning", busy)):
                        self.add(f"produce p99, {when}", case, "us", system, found[1])
                    self.drop(system, [*topics, target])

    def target(self, system: System) -> str:
        topic = f"target-{next(self._numbers)}"
        system.create_topic(topic)
        return topic

    def producer(self) -> None:
        """Bytes a second of a producer that goes as fast as it can.

        A disk takes much for some seconds, and less behind that: all are measured for as long and after a
        pause, and quiet is the better one of before and after, since the first comes behind the filling.
        """
        system = self.systems[KOMPAKT]
        batches = list(itertools.islice(self.small(), 200))
        for name, spool, count in (("100 B none", self.small(), 4), ("1 KiB lz4", self.large(Codec.LZ4), 1)):
            for _ in range(self.size.rounds):
                topics = self.filled(system, spool, count)
                before = self.pressed(system, batches)
                busy = self.pressed(system, batches, topics)
                quiet = max(before, self.pressed(system, batches))
                self.add(goals.PRODUCER, f"acks=1, cleaning {name}", "x", system, busy / quiet)
                self.drop(system, topics)

    def pressed(self, system: System, batches: list[bytes], cleaned: list[str] | None = None) -> float:
        """Bytes a second that a new topic takes, while these are cleaned."""
        target = self.target(system)
        os.sync()
        time.sleep(SETTLE_SECONDS)  # for what the disk itself still has to write, of which nobody tells
        full_speed(system.port, target, batches, for_seconds(0.5))
        cleaning = Cleaning(system, cleaned) if cleaned else None
        is_long_enough = for_seconds(QUIET_SECONDS)
        found = full_speed(
            system.port,
            target,
            batches,
            lambda: is_long_enough() or (cleaning is not None and cleaning.is_over()),
        )
        if cleaning is not None:
            cleaning.wait()
        self.drop(system, [target])
        return found

    def footprint(self) -> None:
        """Memory and disk of a cleaning, at two sizes of the log and with as many keys as records.

        Each by a process that has done nothing yet: heap that an earlier cleaning, or the filling, has left
        behind would be used again and hide what this one takes.
        """
        system = self.systems[KOMPAKT]
        keys, small = self.size.keys, self.size.small_records
        cases = [
            ("100 B", self.small(), SMALL_BUFFER_BYTES, keys),
            ("100 B, half of it", self.spool(small // 2, 100, Codec.NONE), SMALL_BUFFER_BYTES, keys),
            ("1 KiB lz4", self.large(Codec.LZ4), SMALL_BUFFER_BYTES, keys),
            (
                "100 B, every key once",
                self.spool(small, 100, Codec.NONE, 10**15),
                DEFAULT_BUFFER_BYTES,
                small,
            ),
        ]
        for name, spool, buffer_bytes, entries in cases:
            alter_broker(system, "log.cleaner.dedupe.buffer.size", str(buffer_bytes))
            topics = self.filled(system, spool)
            directory = system.data / f"{topics[0]}-0"
            restart(system)
            reset_peak(system)
            memory_before = system.memory_mib()
            sizes = [used(directory)]
            group = largest_segment(directory)
            Cleaning(system, topics).wait(functools.partial(note_size, directory, sizes))
            grown = peak_mib(system) - memory_before
            self.add(goals.MEMORY, name, "MiB", system, grown - buffer_bytes / 2**20)
            table = table_bytes(buffer_bytes, entries)
            self.add(goals.MEMORY_BESIDE_TABLE, name, "MiB", system, grown - table / 2**20)
            self.add(goals.WHOLE_MEMORY, name, "MiB", system, grown)
            self.add(goals.DISK, name, "groups", system, (max(sizes) - sizes[0]) / group)
            self.drop(system, topics)
        alter_broker(system, "log.cleaner.dedupe.buffer.size", str(DEFAULT_BUFFER_BYTES))

    def threads(self) -> None:
        """Two logs, by one thread and by two."""
        system = self.systems[KOMPAKT]
        for name, spool in (("100 B none", self.small()), ("1 KiB lz4", self.large(Codec.LZ4))):
            for _ in range(self.size.rounds):
                seconds = []
                for count in (1, 2):
                    alter_broker(system, "log.cleaner.threads", str(count))
                    topics = self.filled(system, spool, 2)
                    seconds.append(Cleaning(system, topics).wait())
                    self.drop(system, topics)
                self.add(goals.THREADS, name, "x", system, seconds[1] / seconds[0])
        alter_broker(system, "log.cleaner.threads", "1")

    def throttle(self) -> None:
        """Bytes read and written a second, beside what is allowed."""
        system = self.systems[KOMPAKT]
        alter_broker(system, "log.cleaner.io.max.bytes.per.second", str(THROTTLED_TO))
        for name, spool in (("100 B none", self.small()), ("1 KiB lz4", self.large(Codec.LZ4))):
            topics = self.filled(system, spool)
            cleaning = Cleaning(system, topics)
            cleaning.wait()
            done = sum(2 * int(one["read"]) + int(one["written"]) for one in cleaning.passes())
            rate = done / cleaning.own_seconds()
            self.add(goals.THROTTLE, name, "x", system, rate / THROTTLED_TO)
            self.drop(system, topics)
        alter_broker(system, "log.cleaner.io.max.bytes.per.second", str(float(2**60)))


PARTS: dict[str, Callable[[Run], None]] = {
    "speed": Run.speed,
    "latency": Run.latency,
    "producer": Run.producer,
    "footprint": Run.footprint,
    "threads": Run.threads,
    "throttle": Run.throttle,
}


def for_seconds(seconds: float) -> Callable[[], bool]:
    """A condition that becomes true after some time."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def round_trips(port: int, topic: str, acks: int, is_over: Callable[[], bool]) -> list[float]:
    """Microseconds of one-record produces, one at a time, until it is over."""
    frame = produce_frame(topic, one_record_batch(100, int(time.time() * 1000)), acks)
    connection = Connection(port)
    times = []
    try:
        while not is_over():
            for _ in range(20):
                began = time.perf_counter_ns()
                connection.socket.sendall(frame)
                answer = connection.receive()
                times.append((time.perf_counter_ns() - began) / 1000)
            base_offset_of(answer)
    finally:
        connection.close()
    return times


def cuts(times: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    found = statistics.quantiles(times, n=100)
    return found[49], found[98]


def full_speed(port: int, topic: str, batches: list[bytes], is_over: Callable[[], bool]) -> float:
    """Bytes a second of whole batches with acks=1, four on the way, until it is over."""
    frames = [bytes(produce_frame(topic, batch, 1)) for batch in batches]
    connection = Connection(port)
    sent = unanswered = 0
    began = time.perf_counter()
    try:
        for number, frame in enumerate(itertools.cycle(frames)):
            if number % 20 == 0 and is_over():
                break
            connection.socket.sendall(frame)
            sent += len(frame)
            unanswered += 1
            if unanswered == BATCHES_AT_ONCE:
                base_offset_of(connection.receive())
                unanswered -= 1
        for _ in range(unanswered):
            base_offset_of(connection.receive())
        return sent / (time.perf_counter() - began)
    finally:
        connection.close()


def table_bytes(buffer_bytes: int, keys: int) -> int:
    """How much of the dedupe buffer the map takes for so many keys."""
    offsets = OffsetMap(buffer_bytes)
    offsets.reserve(keys)
    return int(offsets.table.nbytes)


def restart(system: System) -> None:
    """A fresh process with the same logs, all of its kernels loaded."""
    starts = system.log().count(READY)
    system.stop()
    system.start()
    wait_for(lambda: system.log().count(READY) > starts, "the broker to be ready")


def reset_peak(system: System) -> None:
    """Let the kernel forget how much memory the process ever had."""
    Path(f"/proc/{system.pid}/clear_refs").write_text("5")


def peak_mib(system: System) -> float:
    """The most memory that the process had since `reset_peak`."""
    status = Path(f"/proc/{system.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def used(directory: Path) -> int:
    """Bytes of a partition, without files that only wait for file.delete.delay.ms."""
    total = 0
    for path in directory.iterdir():
        try:
            total += 0 if path.name.endswith(".deleted") else path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def largest_segment(directory: Path) -> int:
    """Bytes of the largest closed segment with all of its files: no group is larger in a full log."""
    sizes: dict[str, int] = {}
    for path in directory.glob("0*"):
        sizes[path.stem] = sizes.get(path.stem, 0) + path.stat().st_size
    del sizes[max(sizes)]  # the active one, its indexes are not cut yet
    return max(sizes.values())


def has_statistics(directory: Path) -> bool:
    """Whether each closed segment has them; the active one has none."""
    return len(list(directory.glob("*.stats"))) == len(list(directory.glob("*.log"))) - 1


def note_size(directory: Path, sizes: list[int]) -> None:
    sizes.append(used(directory))


def arguments(given: list[str]) -> argparse.Namespace:
    parser = command.parser("benchmarks.cleaner", __doc__, PARTS, "one round of little; writes nothing")
    return parser.parse_args(given)


def main(given: list[str]) -> int:
    options = arguments(given)
    try:
        tools = Tools()
    except NoKafkaError as problem:
        print(f"cannot measure: {problem}", file=sys.stderr)
        return 2
    size = QUICK if options.quick else FULL
    if options.rounds:
        size = replace(size, rounds=options.rounds)
    form = "quick" if options.quick else "full"
    is_published = not options.quick and not options.system
    results = Results.read(RESULTS / f"{goals.NAME}.json") if is_published else Results()
    # What a cleaning costs the others is asked of kompakt alone.
    chosen = options.only or (["speed"] if options.system == KAFKA else PARTS)
    with command.data_directory(options) as directory:
        systems = make_systems(directory, tools, options.system)
        try:
            for system in systems:
                system.start()
            run = Run(systems, directory, size)
            for name in chosen:
                results.sections[name] = command.measured(run, name, PARTS, form)
                if is_published:
                    results.write(goals.NAME, goals.markdown(results))
        finally:
            for system in systems:
                system.close()
    print("\n" + goals.terminal(results))
    return 0


if __name__ == "__main__":
    command.end_when_told()
    sys.exit(main(sys.argv[1:]))
