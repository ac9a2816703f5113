"""The main bench in words: Markdown in files, and the block of the README. Where and with what it ran."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.goals import GOALS, SIDES
from benchmarks.plot import svg
from benchmarks.results import RESULTS, Results
from benchmarks.tables import Rows, markdown_rows, shown, table
from tests.kafka.jars import NoKafkaError, java, kafka_version
from tests.kafka.jars import environment as java_environment

README = Path(__file__).resolve().parent.parent / "README.md"
OPENING = "<!-- benchmarks: written by `make bench` -->"
CLOSING = "<!-- /benchmarks -->"
NAME = "bench"
QUICK_NAME = "quick"


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


def conditions(results: Results) -> str:
    """When, where and with what: one line."""
    where = [section.environment for section in results.sections.values()]
    dates = sorted({one["date"] for one in where})
    last = where[-1]
    # Sections may be of several days and machines.
    processors = " or ".join(sorted({one["processor"] for one in where}))
    pythons = " or ".join(sorted({one["python"] for one in where}))
    return (
        f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {last['cores']} cores ({processors}), "
        f"{last['memory_gib']} GiB, {last['system']}; kompakt {last['kompakt']} on Python {pythons}, "
        f"Apache Kafka {last['kafka']} on Java {last['java']} (G1, 1 GiB heap)."
    )


EXPLAINED = (
    "Client and broker share the cores. Each line is kompakt's figure divided by Apache Kafka's of the same"
    " round, the runs in turn (ABAB...): the median and, in brackets, the spread, of the case of the line"
    " that is worst. *Relaxed* and *flushing* are topics with the other's `flush.messages`."
)


def readme_block(results: Results) -> str:
    """What stands in the README between the markers."""
    if not results.sections:
        return f"{OPENING}\nNot measured on a quiet machine yet: `make bench` writes this table.\n{CLOSING}"
    lines = [conditions(results), EXPLAINED, "", *markdown_rows(table(results, GOALS)), ""]
    lines.append("Every case with its figures: `benchmarks/results/`, as table, picture and JSON.")
    return "\n".join([OPENING, *lines, CLOSING])


def markdown(results: Results, name: str = NAME) -> str:
    """The whole report: the goals, then every case with the medians of each side."""
    lines = ["# kompakt beside Apache Kafka", ""]
    if not results.sections:
        return "\n".join([*lines, "Nothing was measured yet.", ""])
    lines += [conditions(results), "", EXPLAINED, "", f"![verdicts]({name}.svg)", ""]
    lines += [*markdown_rows(table(results, GOALS)), "", "## Every case", ""]
    cases: Rows = [("section", "line", "case", "unit", *SIDES, "rounds")]
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
    path = results.write(name, markdown(results, name), directory)
    path.with_suffix(".svg").write_text(svg(results.verdicts()))
    return path


def write_readme(results: Results) -> None:
    README.write_text(with_block(README.read_text(), readme_block(results)))
