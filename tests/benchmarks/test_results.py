"""Goal: the benchmark's verdicts mean what they say, and the README shows those of the figures that are kept.

Method: ratios and shortfalls by hand; a file written and read again; the README's block made anew.
"""

from __future__ import annotations

import xml.etree.ElementTree
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.goals import GOALS, KAFKA, KOMPAKT, RELAXED, SIDES, Goal
from benchmarks.plot import bar_of, svg
from benchmarks.results import RESULTS, Figure, Results, Section, judge
from benchmarks.sections import LONG, SECTIONS, SHORT

HERE = {
    "date": "2026-01-02", "cores": 2, "processor": "P", "memory_gib": 8, "system": "Linux", "python": "3.11",
    "java": "17", "kompakt": "0.1", "kafka": "4", "load": 0.1,
}  # fmt: skip
FASTER = Goal("produce", "records/s", KOMPAKT, KAFKA, 1.15, at_least=True)
SOONER = Goal("latency", "p50", KOMPAKT, KAFKA, 0.8)
BELOW = Goal("start-up", "start-up", KOMPAKT, None, 0.8, unit="s")


def section(*values: tuple[str, str, str, float]) -> Results:
    one = Section("full", HERE, 12.0)
    for line, case, side, value in values:
        one.add(line, case, "unit", side, value)
    return Results({"some": one})


def test_a_ratio_is_taken_between_runs_that_followed_each_other() -> None:
    figure = Figure("produce", "c", "records/s", {KOMPAKT: [10, 40, 20], KAFKA: [5, 10, 20]})
    judged = judge(FASTER, figure)
    assert judged is not None
    assert (judged.middle, judged.low, judged.high, judged.shortfall) == (2, 1, 4, 0)


def test_sections_of_other_days_machines_and_pythons_are_told() -> None:
    other = {**HERE, "date": "2026-01-04", "processor": "Q", "python": "3.12"}
    told = report.conditions(Results({"a": Section("full", HERE, 1.0), "b": Section("full", other, 1.0)}))
    assert told.startswith("2026-01-02 to 2026-01-04, 2 cores (P or Q), ")
    assert "on Python 3.11 or 3.12, " in told


def test_sides_with_unequal_rounds_are_compared_by_their_medians() -> None:
    judged = judge(SOONER, Figure("latency", "c", "us", {KOMPAKT: [10, 30, 20], KAFKA: [10]}))
    assert judged is not None
    assert (judged.middle, judged.shortfall) == (2, pytest.approx(1.5))


def test_a_side_that_was_not_measured_is_not_judged() -> None:
    assert judge(SOONER, Figure("latency", "c", "us", {KAFKA: [10]})) is None


@pytest.mark.parametrize(
    ("goal", "value", "shortfall"),
    [
        (FASTER, 1.15, 0),
        (FASTER, 0.575, 0.5),
        (SOONER, 0.8, 0),
        (SOONER, 1.2, 0.5),
        (BELOW, 0.5, 0),
        (BELOW, 1.6, 1),
    ],
)
def test_a_shortfall_is_a_part_of_the_bound(goal: Goal, value: float, shortfall: float) -> None:
    judged = judge(goal, Figure(goal.line, "c", "", {KOMPAKT: [value], KAFKA: [1.0]}))
    assert judged is not None
    assert judged.shortfall == pytest.approx(shortfall)


def test_the_worst_case_speaks_for_its_line() -> None:
    results = section(
        ("produce", "good", KOMPAKT, 3), ("produce", "good", KAFKA, 1), ("produce", "bad", KOMPAKT, 0.92),
        ("produce", "bad", KAFKA, 1), ("start-up", "fresh", KOMPAKT, 0.5),
    )  # fmt: skip
    by_bound = {(one.goal.line, one.goal.bound): one for one in results.verdicts()}
    assert by_bound["produce", 1.15].words() == "falls short by 20% (bad; 1 of 2 cases ok)"
    assert by_bound["start-up", 0.8].words() == "ok"
    assert len(results.verdicts()) + len(results.missing()) == len(GOALS)
    assert "| start-up to the first answer, kompakt | ≤ 0.8 s | 0.50 s | ok |" in report.markdown(results)


def test_results_are_the_same_when_read_again(tmp_path: Path) -> None:
    results = section(
        ("produce", "a", KOMPAKT, 3), ("produce", "a", KAFKA, 1), ("produce", "a", RELAXED, 0.2)
    )
    path = report.write(results, "some", tmp_path)
    again = Results.read(tmp_path / "some.json")
    assert again.to_json() == results.to_json()
    assert report.markdown(again, "some") == path.read_text()
    assert "produce" in path.read_text()


def test_the_picture_has_a_bar_for_each_verdict_and_is_xml() -> None:
    results = section(("start-up", "a & <b>", KOMPAKT, 0.4), ("start-up", "a & <b>", KAFKA, 4.0))
    ratio, absolute = map(bar_of, results.verdicts())
    assert (ratio.middle, ratio.goal) == (10, 4)
    assert (absolute.middle, absolute.goal) == (2, 1)
    picture = xml.etree.ElementTree.fromstring(svg(results.verdicts()))
    assert len(picture.findall("{*}rect")) == 1 + 2
    assert xml.etree.ElementTree.fromstring(svg([])) is not None


def test_goals_name_sides_and_every_section_belongs_to_one_command() -> None:
    assert {goal.ours for goal in GOALS} | {goal.theirs for goal in GOALS if goal.theirs} == set(SIDES)
    assert sorted((*SHORT, *LONG)) == sorted(SECTIONS)


def test_the_readme_shows_the_figures_that_are_kept() -> None:
    """`python -m benchmarks --render` writes it anew."""
    results = Results.read(RESULTS / f"{report.NAME}.json")
    readme = report.README.read_text()
    assert report.readme_block(results) in readme
    assert report.with_block(readme, report.readme_block(results)) == readme
    if results.sections:
        assert (RESULTS / f"{report.NAME}.md").read_text() == report.markdown(results)
        assert (RESULTS / f"{report.NAME}.svg").read_text() == svg(results.verdicts())
