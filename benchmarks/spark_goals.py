"""What `make bench-spark` aims at, and its tables: Spark's time divided by ours, both in the same round.

Spark's own source is there twice: with its defaults, and with what makes it fastest here.
"""

from __future__ import annotations

from benchmarks import tables
from benchmarks.goals import Goal
from benchmarks.report import conditions
from benchmarks.results import Results

NAME = "spark"
OPENING = "<!-- Spark benchmarks: written by `make bench-spark` -->"
CLOSING = "<!-- /Spark benchmarks -->"

NOT_YET = "Not measured on a quiet machine yet: `make bench-spark` writes this table."

OWN = "Spark's own"
BEST = "Spark's own, tuned"
OURS = "kompakt"
SIDES = (OWN, BEST, OURS)

NONE, LZ4, ZSTD = "none", "lz4", "zstd"
ALL = "all columns"
VALUE = "value only"
TRIGGER = "a trigger of 20 records on 2 partitions"
MEMORY = "peak memory of a Python worker that reads"
WRITER_MEMORY = "peak memory of a Python worker that writes"
WRITE = "write 1 million rows of 100 B"


def batch_line(columns: str, codec: str) -> str:
    return f"batch count and sum, {columns}, {'uncompressed' if codec == NONE else codec}"


def stream_line(columns: str) -> str:
    return f"stream AvailableNow into noop, {columns}"


def _faster(line: str, than_own: float, than_best: float) -> tuple[Goal, Goal]:
    return (
        Goal(line, line, OWN, OURS, than_own, at_least=True),
        Goal(line, line, BEST, OURS, than_best, at_least=True),
    )


GOALS: tuple[Goal, ...] = (
    *_faster(batch_line(ALL, NONE), 2.5, 1.4),
    *_faster(batch_line(VALUE, NONE), 3.5, 2),
    *_faster(batch_line(ALL, LZ4), 2, 1.2),
    *_faster(batch_line(ALL, ZSTD), 2, 1.2),
    *_faster(batch_line(VALUE, LZ4), 2, 1.2),
    *_faster(batch_line(VALUE, ZSTD), 2, 1.2),
    *_faster(stream_line(ALL), 1.8, 1.1),
    *_faster(stream_line(VALUE), 2.2, 1.2),
    *_faster(WRITE, 3, 1.3),
    Goal(TRIGGER, TRIGGER, OURS, OWN, 1.5),
    Goal(MEMORY, MEMORY, OURS, None, 250, unit="MB"),
    Goal(WRITER_MEMORY, WRITER_MEMORY, OURS, None, 250, unit="MB"),
)

EXPLAINED = (
    "`local[2]`, 2 partitions, broker and Spark on the same cores, the sides in turn: each line is the time"
    " of Spark's own Kafka source divided by that of format `kompakt` in the same round (for the trigger the"
    " other way round), the median and, in brackets, the spread of the rounds; of several cases (kompakt and"
    " Apache Kafka as the broker, records of 100 B and 1 KiB) the worst. *Tuned* has `max.poll.records`"
    " 50,000, 8 MiB `max.partition.fetch.bytes`, 16 MiB `receive.buffer.bytes`, for writes `linger.ms` 5 and"
    " `batch.size` 128 KiB; format `kompakt` has its defaults."
)


def terminal(results: Results) -> str:
    return tables.terminal(tables.table(results, GOALS))


def markdown(results: Results) -> str:
    preamble = [conditions(results), "", EXPLAINED]
    return tables.markdown(
        "Beside Spark's own Kafka source", preamble, tables.table(results, GOALS), results, SIDES
    )


def readme_block(results: Results) -> str:
    """What stands in the README between the markers."""
    if not results.sections:
        return f"{OPENING}\n{NOT_YET}\n{CLOSING}"
    lines = [conditions(results), EXPLAINED, "", *tables.markdown_rows(tables.table(results, GOALS)), ""]
    lines.append("Every case with its seconds: `benchmarks/results/spark.md`.")
    return "\n".join([OPENING, *lines, CLOSING])
