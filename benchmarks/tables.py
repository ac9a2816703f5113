"""Figures against the goals of a bench as rows of words, for a screen and for Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.goals import Goal
from benchmarks.results import Judged, Results, Verdict

Rows = list[tuple[str, ...]]
HEADER = ("what", "goal", "measured", "verdict")


def shown(value: float | None) -> str:
    """A number with the digits that mean something."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def measured(goal: Goal, case: Judged) -> str:
    """The median, and the spread of the rounds when there was more than one."""
    text = shown(case.middle)
    if case.low != case.high:
        text += f" ({shown(case.low)} to {shown(case.high)})"
    return f"{text} {goal.unit}".rstrip()


def row(verdict: Verdict) -> tuple[str, str, str, str]:
    goal = verdict.goal
    sides = goal.ours if goal.theirs is None else f"{goal.ours} / {goal.theirs}"
    return f"{goal.what}, {sides}", goal.aim, measured(goal, verdict.worst), verdict.words()


def table(results: Results, goals: Sequence[Goal]) -> Rows:
    """A row for each goal, those without figures last."""
    missing = [(goal.what, goal.aim, "-", "not measured") for goal in results.missing(goals)]
    return [HEADER, *map(row, results.verdicts(goals)), *missing]


def terminal(rows: Rows) -> str:
    """In columns, for a screen."""
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADER))]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows)


def markdown_rows(rows: Rows) -> list[str]:
    head, *body = rows
    return [
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *(f"| {' | '.join(one)} |" for one in body),
    ]


def markdown(title: str, preamble: Sequence[str], rows: Rows, results: Results, sides: Sequence[str]) -> str:
    """Of a bench beside the main one: verdicts, then every case with each side's median and spread."""
    lines = [f"# {title}", "", *preamble, "", *markdown_rows(rows), "", "## Every case", ""]
    cases: Rows = [("line", "case", "unit", *sides, "rounds")]
    for figure in results.figures:
        values = [spread(figure.values.get(side, [])) for side in sides]
        rounds = str(max(map(len, figure.values.values())))
        cases.append((figure.line, figure.case, figure.unit, *values, rounds))
    return "\n".join([*lines, *markdown_rows(cases)]) + "\n"


def spread(values: Sequence[float]) -> str:
    """Median (lowest to highest)."""
    if not values:
        return "-"
    middle = shown(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({shown(min(values))} to {shown(max(values))})"
