"""Goal: the Spark bench compares what it says, fills both brokers alike, and is wrong about no process.

Method: figures judged by hand, sources with their options written down instead of loaded, batches counted,
child processes of this one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report, tables
from benchmarks import spark_goals as goals
from benchmarks.cleaning import keyed_batches
from benchmarks.results import RESULTS, Results, Section
from benchmarks.spark import LARGE_BYTES, PRODUCER_BATCH_BYTES, SMALL_BYTES, Run, Size
from benchmarks.spark_goals import ALL, BEST, LZ4, NONE, OURS, OWN, VALUE, ZSTD
from benchmarks.spark_sides import Work, check, descendants, resident_peak
from protocol.batch import parse_header


def test_sparks_time_is_divided_by_ours_round_by_round() -> None:
    section = Section("full", {})
    line = goals.batch_line(ALL, NONE)
    for own, best, ours in ((4.0, 2.0, 1.0), (9.0, 3.0, 3.0), (6.0, 3.0, 2.0)):
        for side, seconds in ((OWN, own), (BEST, best), (OURS, ours)):
            section.add(line, "100 B", "s", side, seconds)
    section.add(goals.TRIGGER, "broker kompakt", "ms", OWN, 100.0)
    section.add(goals.TRIGGER, "broker kompakt", "ms", OURS, 180.0)
    rows = {cells[0]: cells for cells in tables.table(Results({"batch": section}), goals.GOALS)}
    assert rows[f"{line}, {OWN} / {OURS}"][1:] == ("≥ 2.5", "3.00 (3.00 to 4.00)", "ok")
    assert rows[f"{line}, {BEST} / {OURS}"][1:] == ("≥ 1.4", "1.50 (1.00 to 2.00)", "ok")
    assert rows[f"{goals.TRIGGER}, {OURS} / {OWN}"][3] == "falls short by 20%"
    assert rows[goals.MEMORY][3] == "not measured"


def test_every_line_of_the_issue_has_its_bounds() -> None:
    bounds = {(goal.line, goal.ours): goal.bound for goal in goals.GOALS}
    assert (bounds[goals.batch_line(ALL, NONE), OWN], bounds[goals.batch_line(ALL, NONE), BEST]) == (2.5, 1.4)
    assert (bounds[goals.batch_line(VALUE, NONE), OWN], bounds[goals.batch_line(VALUE, NONE), BEST]) == (
        3.5,
        2,
    )
    for codec in (LZ4, ZSTD):
        assert (bounds[goals.batch_line(ALL, codec), OWN], bounds[goals.batch_line(ALL, codec), BEST]) == (
            2,
            1.2,
        )
    assert (bounds[goals.stream_line(ALL), OWN], bounds[goals.stream_line(ALL), BEST]) == (1.8, 1.1)
    assert (bounds[goals.stream_line(VALUE), OWN], bounds[goals.stream_line(VALUE), BEST]) == (2.2, 1.2)
    assert (bounds[goals.WRITE, OWN], bounds[goals.WRITE, BEST]) == (3, 1.3)
    assert bounds[goals.TRIGGER, OURS] == 1.5
    assert bounds[goals.MEMORY, OURS] == 250


@pytest.mark.parametrize("record_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_topics_are_filled_with_batches_of_a_busy_producer(record_bytes: int) -> None:
    batch_records = PRODUCER_BATCH_BYTES // record_bytes
    for batch in keyed_batches(3 * batch_records, 10**12, record_bytes, 0, batch_records):
        header = parse_header(batch)
        assert header.record_count == batch_records
        assert 100 * 1024 < header.size_bytes <= 128 * 1024
        assert abs(header.size_bytes / batch_records - record_bytes) < record_bytes / 10


class Recorder:
    """Takes the place of a DataFrameReader; what it is told stands in `told`."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def format(self, name: str) -> Recorder:
        self.told["format"] = name
        return self

    def options(self, **options: str) -> Recorder:
        self.told["options"] = options
        return self

    def schema(self, schema: str) -> Recorder:
        self.told["schema"] = schema
        return self

    def load(self) -> Recorder:
        return self

    def select(self, *columns: str) -> Recorder:
        self.told["select"] = columns
        return self


@pytest.mark.parametrize(("side", "tuned"), [(OWN, False), (BEST, True), (OURS, False)])
def test_only_one_side_is_tuned_and_only_ours_takes_a_schema(side: str, tuned: bool) -> None:
    work = Work.__new__(Work)
    recorder = Recorder()
    work._load(recorder, side, VALUE, work._options(side, "here:9092", "t"))
    assert recorder.told["format"] == ("kompakt" if side == OURS else "kafka")
    assert ("kafka.max.poll.records" in recorder.told["options"]) is tuned
    assert (recorder.told.get("schema") == "value binary") is (side == OURS)
    assert (recorder.told.get("select") == ("value",)) is (side != OURS)


def test_a_round_visits_every_broker_with_another_side_first() -> None:
    systems: list[Any] = ["a", "b"]
    nobody: Any = None
    turns: list[Any] = list(Run(systems, Path(), Size(3, 2, 1, 1, 1, 1, 1, 1), nobody).turns(3))
    assert [system for system, _ in turns] == ["a", "b"] * 3
    assert [sides[0] for _, sides in turns[::2]] == [OWN, BEST, OURS]
    assert all(sorted(sides) == sorted(goals.SIDES) for _, sides in turns)


def test_a_source_that_loses_records_is_an_error() -> None:
    check(5, 5, OWN, "t")
    with pytest.raises(AssertionError, match="gave 4 records of t, not 5"):
        check(4, 5, OWN, "t")


def test_the_peak_of_a_grandchild_is_seen() -> None:
    sleeper = "import sys; sys.stdin.read()"
    parent = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', "
        f"{sleeper!r}], stdin=sys.stdin); print(child.pid, flush=True); child.wait()"
    )
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        grandchild = int(process.stdout.readline())
        assert list(descendants(process.pid)) == [grandchild]
        assert 1 << 20 < resident_peak(grandchild) < 1 << 30
        process.stdin.close()
    assert list(descendants(process.pid)) == []
    assert resident_peak(grandchild) == 0


def test_the_readme_shows_the_figures_that_are_kept() -> None:
    results = Results.read(RESULTS / f"{goals.NAME}.json")
    assert report.README.read_text().count(goals.readme_block(results)) == 1
    assert (RESULTS / f"{goals.NAME}.md").read_text() == goals.markdown(results)


def test_the_readme_has_a_place_for_the_table() -> None:
    block = goals.readme_block(Results())
    readme = report.README.read_text()
    assert report.with_block(readme, block, goals.OPENING, goals.CLOSING).count(block) == 1
