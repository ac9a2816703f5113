"""Figures as they are measured, kept in one file over several runs, and judged against the goals.

A run replaces the sections that it measured and leaves the others, so that a long bench can be made in
pieces. Every figure keeps the value of each round; a ratio is taken round by round, between runs that
followed each other, and its median counts.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.goals import GOALS, Goal

RESULTS = Path(__file__).resolve().parent / "results"
TOLERANCE = 0.005  # what rounding to two digits hides is no shortfall


@dataclass
class Figure:
    """One case of one line: for each side a value a round."""

    line: str
    case: str
    unit: str
    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, side: str) -> float | None:
        values = self.values.get(side)
        return statistics.median(values) if values else None

    def against(self, ours: str, theirs: str | None) -> list[float]:
        """`ours` / `theirs` round by round; the values of `ours` when there is nobody to compare with."""
        mine = self.values.get(ours, [])
        if theirs is None:
            return mine
        others = self.values.get(theirs, [])
        if len(mine) == len(others):
            return [one / other for one, other in zip(mine, others, strict=True) if other]
        if not mine or not others:
            return []
        return [statistics.median(mine) / statistics.median(others)]


@dataclass(frozen=True)
class Judged:
    """One goal against one case."""

    figure: Figure
    middle: float
    low: float
    high: float
    shortfall: float | None
    """by which part the bound is missed, 0 when it is met; None: there is no bound"""


def judge(goal: Goal, figure: Figure) -> Judged | None:
    """None when this case was not measured for the sides of the goal."""
    ratios = figure.against(goal.ours, goal.theirs)
    if not ratios:
        return None
    middle = statistics.median(ratios)
    shortfall = None
    if goal.bound is not None:
        missing = 1 - middle / goal.bound if goal.at_least else middle / goal.bound - 1
        shortfall = missing if missing > TOLERANCE else 0.0
    return Judged(figure, middle, min(ratios), max(ratios), shortfall)


@dataclass(frozen=True)
class Verdict:
    """One goal against all cases of its line, the worst first."""

    goal: Goal
    cases: list[Judged]

    @property
    def worst(self) -> Judged:
        return self.cases[0]

    @property
    def met(self) -> int:
        return sum(not case.shortfall for case in self.cases)

    def words(self) -> str:
        """`ok`, or by how much it falls short."""
        if self.goal.bound is None:
            return "reported"
        if not self.worst.shortfall:
            return "ok"
        words = f"falls short by {self.worst.shortfall:.0%}"
        if len(self.cases) > 1:
            words += f" ({self.worst.figure.case}; {self.met} of {len(self.cases)} cases ok)"
        return words


@dataclass
class Section:
    """What one section of the bench measured, and where."""

    form: str
    environment: dict[str, Any]
    seconds: float = 0.0
    figures: dict[tuple[str, str], Figure] = field(default_factory=dict)

    def add(self, line: str, case: str, unit: str, side: str, value: float) -> None:
        figure = self.figures.setdefault((line, case), Figure(line, case, unit))
        figure.values.setdefault(side, []).append(value)


class Results:
    """All sections that were measured, by name."""

    def __init__(self, sections: dict[str, Section] | None = None) -> None:
        self.sections = sections or {}

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections.values() for figure in section.figures.values()]

    def verdicts(self, goals: Sequence[Goal] = GOALS) -> list[Verdict]:
        """The goals of which something was measured, in the order of the table."""
        found = []
        for goal in goals:
            judged = [judge(goal, figure) for figure in self.figures if figure.line == goal.line]
            cases = [case for case in judged if case is not None]
            cases.sort(key=lambda case: case.middle, reverse=not goal.at_least)
            if cases:
                found.append(Verdict(goal, cases))
        return found

    def missing(self, goals: Sequence[Goal] = GOALS) -> list[Goal]:
        """The goals of which nothing was measured yet."""
        measured = {id(verdict.goal) for verdict in self.verdicts(goals)}
        return [goal for goal in goals if id(goal) not in measured]

    def write(self, name: str, markdown: str, directory: Path = RESULTS) -> Path:
        """JSON, and beside it what shows it; the path of that."""
        directory.mkdir(exist_ok=True)
        (directory / f"{name}.json").write_text(self.to_json())
        path = directory / f"{name}.md"
        path.write_text(markdown)
        return path

    def to_json(self) -> str:
        content = {
            name: {
                "form": section.form,
                "environment": section.environment,
                "seconds": round(section.seconds, 1),
                "figures": [
                    {"line": one.line, "case": one.case, "unit": one.unit, "values": one.values}
                    for one in section.figures.values()
                ],
            }
            for name, section in self.sections.items()
        }
        return json.dumps(content, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Results:
        sections = {}
        for name, content in json.loads(text).items():
            figures = [Figure(**figure) for figure in content["figures"]]
            sections[name] = Section(
                content["form"],
                content["environment"],
                content["seconds"],
                {(figure.line, figure.case): figure for figure in figures},
            )
        return Results(sections)

    @staticmethod
    def read(path: Path) -> Results:
        return Results.from_json(path.read_text()) if path.exists() else Results()
