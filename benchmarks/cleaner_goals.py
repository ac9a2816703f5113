"""What `make bench-cleaner` aims at, and its table. The bench of everything else is `goals.py`."""

from __future__ import annotations

from benchmarks import tables
from benchmarks.goals import KAFKA, KOMPAKT, Goal
from benchmarks.report import conditions
from benchmarks.results import Results

NAME = "cleaner"
SIDES = (KOMPAKT, KAFKA)
SPEED = "records/s over both phases"
OUTSIDE = "records/s, from the change of the ratio to the checkpoint"
P99 = "produce p99 while cleaning / quiet"
P50 = "produce p50 while cleaning / quiet"
PRODUCER = "full-speed producer while cleaning / quiet"
MEMORY = "memory beside the dedupe buffer"
MEMORY_BESIDE_TABLE = "memory beside what of the buffer the map takes"
WHOLE_MEMORY = "memory of a cleaning, the dedupe buffer with it"
DISK = "disk beside the log, in groups"
THREADS = "two logs: seconds of two threads / of one"
THROTTLE = "bytes/s / log.cleaner.io.max.bytes.per.second"


def _against(line: str, bound: float | None) -> Goal:
    return Goal(line, line, KOMPAKT, KAFKA, bound, at_least=True)


def _alone(line: str, bound: float | None, unit: str, *, at_least: bool = False) -> Goal:
    return Goal(line, line, KOMPAKT, None, bound, at_least, unit)


def speed_line(codec: str) -> str:
    return f"{SPEED}, {codec}"


GOALS = (
    _against(speed_line("none"), 4),
    _against(speed_line("lz4"), 2),
    _against(speed_line("zstd"), 2),
    _against(OUTSIDE, None),
    _alone(P99, 2, "x"),
    _alone(P50, None, "x"),
    _alone(PRODUCER, 0.8, "x", at_least=True),
    _alone(MEMORY, 64, "MiB"),
    _alone(DISK, 1, "groups"),
    _alone(THREADS, 0.65, "x"),
    _alone(THROTTLE, 1.1, "x"),
    _alone(THROTTLE, 0.9, "x", at_least=True),
)


def table(results: Results) -> tables.Rows:
    return tables.table(results, GOALS)


def terminal(results: Results) -> str:
    return tables.terminal(table(results))


EXPLAINED = (
    "One cleaner thread each, the same bytes for both, the brokers in turn; the median and, in"
    " brackets, the spread of the rounds. The log is of a compacted topic, written by this broker"
    " process while no dirty ratio was enough. *Over both phases* is what each broker's own log line"
    " says; *quiet* is the same producer just before (at full speed the better one of before and after)."
    " *Memory beside the dedupe buffer* takes the configured size off, whatever of it the keys fill."
    " *Disk beside the log* is what the partition's directory has at most beyond what it had before,"
    " without `.deleted` files, which wait for `file.delete.delay.ms` so that readers can end. The worst"
    " case of a line is shown."
)


def markdown(results: Results) -> str:
    """The verdicts, then every case with each side's median and spread."""
    preamble = [conditions(results), EXPLAINED]
    return tables.markdown("Compaction beside Apache Kafka's", preamble, table(results), results, SIDES)
