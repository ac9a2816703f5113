"""Figures against the goals of one bench as rows of words: what the benches beside the main one show."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.goals import Goal
from benchmarks.report import HEADER, markdown_rows, row, shown
from benchmarks.results import Results, Verdict, judge

Rows = list[tuple[str, ...]]


def verdicts(results: Results, goals: Sequence[Goal]) -> list[Verdict]:
    """The goals of which something was measured; of each the worst case first."""
    found = []
    for goal in goals:
        judged = [judge(goal, figure) for figure in results.figures if figure.line == goal.line]
        cases = sorted(
            (case for case in judged if case is not None),
            key=lambda case: case.middle,
            reverse=not goal.at_least,
        )
        if cases:
            found.append(Verdict(goal, cases))
    return found


def table(results: Results, goals: Sequence[Goal]) -> Rows:
    """A row for each goal, those without figures last."""
    found = verdicts(results, goals)
    measured = {id(verdict.goal) for verdict in found}
    missing = [(goal.what, goal.aim, "-", "not measured") for goal in goals if id(goal) not in measured]
    return [HEADER, *(row(verdict) for verdict in found), *missing]


def terminal(rows: Rows) -> str:
    """In columns, for a screen."""
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADER))]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows)


def markdown(title: str, preamble: Sequence[str], rows: Rows, results: Results, sides: Sequence[str]) -> str:
    """The verdicts, then every case with each side's median and spread."""
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
