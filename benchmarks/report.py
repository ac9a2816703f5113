"""The results in words: a table on the terminal, Markdown in files, and the block of the README."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.goals import SIDES, Goal
from benchmarks.plot import svg
from benchmarks.results import RESULTS, Judged, Results, Verdict
from tests.kafka.jars import NoKafkaError, java, kafka_version
from tests.kafka.jars import environment as java_environment

README = Path(__file__).resolve().parent.parent / "README.md"
OPENING = "<!-- benchmarks: written by `make bench` -->"
CLOSING = "<!-- /benchmarks -->"
NAME = "bench"
QUICK_NAME = "quick"
HEADER = ("what", "goal", "measured", "verdict")


def shown(value: float | None) -> str:
    """A number with the digits that mean something."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def environment() -> dict[str, Any]:
    """What a reader must know to judge the figures."""
    processor = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "processor": processor[1] if processor else platform.machine(),
        "memory_gib": round(int(memory[1]) / 2**20) if memory else 0,
        "system": f"Linux {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "java": _java_version(),
        "kompakt": version("kompakt"),
        "kafka": kafka_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def _java_version() -> str:
    try:
        asked = subprocess.run([java(), "-version"], capture_output=True, text=True, env=java_environment())
    except NoKafkaError:
        return "-"
    found = re.search(r'version "([^"]+)"', asked.stderr)
    return found[1] if found else "-"


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


def table(results: Results) -> list[tuple[str, str, str, str]]:
    rows = [row(verdict) for verdict in results.verdicts()]
    return [*rows, *((goal.what, goal.aim, "-", "not measured") for goal in results.missing())]


def terminal(results: Results) -> str:
    rows = [HEADER, *table(results)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(4)]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows)


def conditions(results: Results) -> str:
    """When, where and with what: one line."""
    where = [section.environment for section in results.sections.values()]
    dates = sorted({one["date"] for one in where})
    last = where[-1]
    return (
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {last['cores']} cores ({last['processor']}), "
        f"{last['memory_gib']} GiB, {last['system']}; kompakt {last['kompakt']} on Python {last['python']}, "
        f"Apache Kafka {last['kafka']} on Java {last['java']} (G1, 1 GiB heap)."
    )


EXPLAINED = (
    "Client and broker share the cores. Each line is kompakt's figure divided by Apache Kafka's of the same"
    " round, the runs in turn (ABAB...): the median and, in brackets, the spread, of the case of the line"
    " that is worst. *Relaxed* and *flushing* are topics with the other's `flush.messages`."
)


def markdown_rows(cells: list[tuple[str, ...]]) -> list[str]:
    head, *body = cells
    return [
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *(f"| {' | '.join(one)} |" for one in body),
    ]


def readme_block(results: Results) -> str:
    """What stands in the README between the markers."""
    if not results.sections:
        return f"{OPENING}\nNot measured on a quiet machine yet: `make bench` writes this table.\n{CLOSING}"
    lines = [conditions(results), EXPLAINED, "", *markdown_rows([HEADER, *table(results)]), ""]
    lines.append("Every case with its figures: `benchmarks/results/`, as table, picture and JSON.")
    return "\n".join([OPENING, *lines, CLOSING])


def markdown(results: Results, name: str = NAME) -> str:
    """The whole report: the goals, then every case with the medians of each side."""
    lines = ["# kompakt beside Apache Kafka", ""]
    if not results.sections:
        return "\n".join([*lines, "Nothing was measured yet.", ""])
    lines += [conditions(results), "", EXPLAINED, "", f"![verdicts]({name}.svg)", ""]
    lines += [*markdown_rows([HEADER, *table(results)]), "", "## Every case", ""]
    cases: list[tuple[str, ...]] = [("section", "line", "case", "unit", *SIDES, "rounds")]
    for section_name, section in results.sections.items():
        for figure in section.figures.values():
            medians = (shown(figure.median(side)) for side in SIDES)
            rounds = str(max(map(len, figure.values.values())))
            cases.append((section_name, figure.line, figure.case, figure.unit, *medians, rounds))
    lines += [*markdown_rows(cases), "", "## Sections", ""]
    runs = [
        (key, one.form, one.environment["date"], f"{one.seconds:.0f}", str(one.environment["load"]))
        for key, one in results.sections.items()
    ]
    lines += markdown_rows([("section", "form", "date", "seconds", "load when it began"), *runs])
    return "\n".join(lines) + "\n"


def with_block(readme: str, block: str, opening: str = OPENING, closing: str = CLOSING) -> str:
    """The README with another block between its markers."""
    start, end = readme.index(opening), readme.index(closing) + len(closing)
    return readme[:start] + block + readme[end:]


def write(results: Results, name: str, directory: Path = RESULTS) -> Path:
    """JSON, Markdown and picture; the path of the Markdown."""
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.json").write_text(results.to_json())
    (directory / f"{name}.svg").write_text(svg(results.verdicts()))
    path = directory / f"{name}.md"
    path.write_text(markdown(results, name))
    return path


def write_readme(results: Results) -> None:
    README.write_text(with_block(README.read_text(), readme_block(results)))
