"""Whether a broker gets slower as its log grows, and whether a reader of old data disturbs a producer."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import wire
from benchmarks.bench import Bench, Side, shuffled
from benchmarks.goals import KAFKA, KOMPAKT
from benchmarks.sections.latency import VALUE_BYTES, p50_p99
from protocol.records import encode_batch

GIB = 1 << 30
BATCH_BYTES = 64_000
LARGE_BATCH_BYTES = 900_000
SMALL_LOG_BYTES = 10 << 20
LARGE_LOG_GIB = 20
REPLAYED_GIB = 2
FEW_SEGMENTS = 10
MANY_SEGMENTS = 10_000
SEGMENT_MS = 1000
FETCHED_OFFSETS = 200
KEPT = {"retention.ms": "-1"}
REPOSITORY = Path(__file__).resolve().parent.parent.parent


def filler(size_bytes: int) -> bytes:
    """A batch of one record of about so many bytes."""
    return encode_batch([(None, None, os.urandom(size_bytes), ())])


def drop_from_cache(directory: Path) -> None:
    """Write what is dirty, and give the pages of all files back."""
    for path in directory.glob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def fill(side: Side, topic: str, batches: Iterator[bytes]) -> int:
    """Send all; the offset of the last batch. One record more, with acks=all, makes them all readable."""
    last = wire.send_batches(side.system.port, topic, batches, 16)
    wire.round_trips(side.system.port, topic, wire.ACKS_ALL, 0, 1, VALUE_BYTES)
    return last


def replay(bench: Bench) -> None:
    """p99 of one-record produces while somebody reads 2 GiB from the disk, against the quiet before."""
    batch = filler(BATCH_BYTES)
    count = int(REPLAYED_GIB * bench.size.heaviness * GIB) // len(batch)
    topic = bench.topic("old")
    for system in bench.shared():
        system.create_topic(topic)
        wire.send_batches(system.port, topic, (batch for _ in range(count)))

    def measure(side: Side, acks: int, case: str) -> None:
        active = bench.topic("active")
        side.create_topic(active)
        port = side.system.port
        probes = bench.size.probes if acks == 1 else bench.size.probes // 4
        quiet = p50_p99(wire.round_trips(port, active, acks, probes // 4, probes, VALUE_BYTES))[1]
        drop_from_cache(side.system.data / f"{topic}-0")
        command = [sys.executable, "-m", "benchmarks.replay", str(port), topic, str(count)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as reader:
            times = wire.round_trips(port, active, acks, 0, 100, VALUE_BYTES, lambda: reader.poll() is None)
            assert reader.stdout is not None
            size = int(reader.stdout.read())
        if size < count * len(batch):
            raise RuntimeError(f"the replay got {size} of {count * len(batch)} bytes")
        busy = p50_p99(times)[1]
        bench.add("replay", case, "x", side, busy / quiet)
        bench.add("replay p99", f"{case}, quiet", "us", side, quiet)
        bench.add("replay p99", f"{case}, while replaying", "us", side, busy)
        side.system.delete_topic(active)

    bench.rounds((KAFKA, KOMPAKT), lambda side: measure(side, 1, "acks=1"))
    bench.rounds((KAFKA, KOMPAKT), lambda side: measure(side, wire.ACKS_ALL, "acks=all"))
    for system in bench.shared():
        system.delete_topic(topic)


def growth(bench: Bench) -> None:
    """A small log and a large one side by side, few segments and many."""
    with bench.fresh() as systems:

        def measure(side: Side) -> None:
            side.system.start()
            _by_bytes(bench, side)
            _by_segments(bench, side)
            side.system.close()  # the other one needs the disk

        bench.rounds((KAFKA, KOMPAKT), measure, 1, systems)


def _by_bytes(bench: Bench, side: Side) -> None:
    batch = filler(BATCH_BYTES)
    large = int(LARGE_LOG_GIB * bench.size.heaviness * GIB)
    ends = []
    for topic, size in (("small", SMALL_LOG_BYTES), ("large", large)):
        side.create_topic(topic, settings=KEPT)
        ends.append(fill(side, topic, (batch for _ in range(size // len(batch)))))
        drop_from_cache(side.system.data / f"{topic}-0")
    _compare(bench, side, f"{large / 1e9:.0f} GB against 10 MB", ("small", "large"), ends)


def _by_segments(bench: Bench, side: Side) -> None:
    """Segments by time: each batch is newer than segment.ms allows the segment before it."""
    many = int(max(MANY_SEGMENTS * min(1.0, bench.size.heaviness), FEW_SEGMENTS * 10))
    ends = []
    for topic, segments in (("few", FEW_SEGMENTS), ("many", many)):
        side.create_topic(topic, settings={**KEPT, "segment.ms": str(SEGMENT_MS)})
        ends.append(fill(side, topic, _ageing(segments)))
        found = len(list((side.system.data / f"{topic}-0").glob("*.log")))
        if found < segments:
            raise RuntimeError(f"{topic} has {found} segments, not {segments}")
        side.system.set_topic(topic, "segment.ms", str(10**12))
    _compare(bench, side, f"{many} segments against {FEW_SEGMENTS}", ("few", "many"), ends)


def _ageing(count: int) -> Iterator[bytes]:
    start = int(time.time() * 1000) - 2 * SEGMENT_MS * count
    for number in range(count):
        yield encode_batch([(start + 2 * SEGMENT_MS * number, None, b"x" * VALUE_BYTES, ())])


def _compare(bench: Bench, side: Side, case: str, topics: tuple[str, str], ends: list[int]) -> None:
    """The medians of the second topic over those of the first, in turn."""
    port = side.system.port
    offsets = [shuffled(range(end + 1), FETCHED_OFFSETS) for end in ends]
    for topic, chosen in zip(topics, offsets, strict=True):
        wire.fetch_times(port, topic, chosen, 1)  # into the page cache: the walk is measured, not the disk
    for number in range(bench.size.rounds + 1):
        found: dict[str, list[float]] = {"produce": [], "fetch": []}
        for topic, chosen in list(zip(topics, offsets, strict=True))[:: -1 if number % 2 else 1]:
            produced = wire.round_trips(
                port, topic, 1, bench.size.probes // 4, bench.size.probes, VALUE_BYTES
            )
            fetches = (bench.size.probes // len(chosen) + 1) * chosen
            found["produce"].append(statistics.median(produced))
            found["fetch"].append(statistics.median(wire.fetch_times(port, topic, fetches, 1)))
        for what, pair in found.items():
            first, second = pair[:: -1 if number % 2 else 1]
            bench.add("growth", f"{what} p50, {case}", "x", side, second / first)
