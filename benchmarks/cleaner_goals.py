"""What `make bench-cleaner` aims at, and its table. The bench of everything else is `goals.py`."""

from __future__ import annotations

from benchmarks.goals import KAFKA, KOMPAKT, Goal
from benchmarks.report import HEADER, conditions, markdown_rows, row, shown
from benchmarks.results import Results, Verdict, judge

NAME = "cleaner"
SIDES = (KOMPAKT, KAFKA)
SPEED = "records/s over both phases"
OUTSIDE = "records/s, from the change of the policy to the checkpoint"
P99 = "produce p99 while cleaning / quiet"
P50 = "produce p50 while cleaning / quiet"
PRODUCER = "full-speed producer while cleaning / quiet"
MEMORY = "memory beside the dedupe buffer"
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


def verdicts(results: Results) -> list[Verdict]:
    """The goals of which something was measured; of each the worst case first."""
    found = []
    for goal in GOALS:
        judged = [judge(goal, figure) for figure in results.figures if figure.line == goal.line]
        cases = sorted(
            (case for case in judged if case is not None),
            key=lambda case: case.middle,
            reverse=not goal.at_least,
        )
        if cases:
            found.append(Verdict(goal, cases))
    return found


def table(results: Results) -> list[tuple[str, ...]]:
    found = verdicts(results)
    measured = {id(verdict.goal) for verdict in found}
    missing = [(goal.what, goal.aim, "-", "not measured") for goal in GOALS if id(goal) not in measured]
    return [HEADER, *(row(verdict) for verdict in found), *missing]


def terminal(results: Results) -> str:
    rows = table(results)
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADER))]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows)


EXPLAINED = (
    "One cleaner thread each, the same bytes for both, the brokers in turn; the median and, in brackets, the"
    " spread of the rounds. *Over both phases* is what each broker's own log line says; *quiet* is the same"
    " producer just before. The worst case of a line is shown."
)


def markdown(results: Results) -> str:
    """The verdicts, then every case with each side's median and spread."""
    lines = ["# Compaction beside Apache Kafka's", "", conditions(results), EXPLAINED, ""]
    lines += [*markdown_rows(table(results)), "", "## Every case", ""]
    cases: list[tuple[str, ...]] = [("line", "case", "unit", *SIDES, "rounds")]
    for figure in results.figures:
        sides = [spread(figure.values.get(side, [])) for side in SIDES]
        rounds = str(max(map(len, figure.values.values())))
        cases.append((figure.line, figure.case, figure.unit, *sides, rounds))
    return "\n".join([*lines, *markdown_rows(cases)]) + "\n"


def spread(values: list[float]) -> str:
    """Median (lowest to highest)."""
    if not values:
        return "-"
    middle = shown(sorted(values)[len(values) // 2])
    return middle if len(values) == 1 else f"{middle} ({shown(min(values))} to {shown(max(values))})"
