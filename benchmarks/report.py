"""Measurements, their ratios, and how they are shown: a table on the terminal, Markdown and JSON in files."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.systems import KAFKA, KOMPAKT

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass
class Measurement:
    """One figure of both systems, a value for each round."""

    part: str
    case: str
    unit: str
    more_is_better: bool
    values: dict[str, list[float]] = field(default_factory=dict)

    def middle(self, system: str) -> float | None:
        values = self.values.get(system)
        return statistics.median(values) if values else None

    def ratio(self) -> float | None:
        """How many times better kompakt is; below 1 it is worse."""
        ours, theirs = self.middle(KOMPAKT), self.middle(KAFKA)
        if not ours or not theirs:
            return None
        return ours / theirs if self.more_is_better else theirs / ours


class Report:
    """All measurements of a run, in the order in which their first value came."""

    def __init__(self) -> None:
        self.measurements: dict[tuple[str, str], Measurement] = {}
        self.started = time.time()

    def add(
        self, part: str, case: str, unit: str, system: str, value: float, *, more_is_better: bool = False
    ) -> None:
        """Keep one value and show it at once."""
        measurement = self.measurements.setdefault(
            (part, case), Measurement(part, case, unit, more_is_better)
        )
        measurement.values.setdefault(system, []).append(value)
        print(f"  {part}: {case}: {system}: {shown(value)} {unit}", flush=True)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """part and case, unit, kompakt, Apache Kafka, ratio."""
        rows = []
        for measurement in self.measurements.values():
            ratio = measurement.ratio()
            rows.append(
                (
                    f"{measurement.part}: {measurement.case}",
                    measurement.unit,
                    shown(measurement.middle(KOMPAKT)),
                    shown(measurement.middle(KAFKA)),
                    "" if ratio is None else f"{ratio:.2f} x",
                )
            )
        return rows

    def markdown(self, form: str, rounds: int) -> str:
        where = environment()
        lines = [
            f"# kompakt beside Apache Kafka, {form} run",
            "",
            f"{where['date']}, {where['cpus']} cores ({where['processor']}), {where['memory_gib']} GiB, "
            f"{where['system']}, Python {where['python']}.",
            f"Both brokers on this machine in the same run, turn by turn, each with its own defaults; "
            f"median of {rounds} round(s). The ratio says how many times better kompakt is (below 1: worse).",
            "",
            "| what | unit | kompakt | Apache Kafka | ratio |",
            "| --- | --- | ---: | ---: | ---: |",
        ]
        lines += [f"| {' | '.join(row)} |" for row in self.rows()]
        return "\n".join(lines) + "\n"

    def write(self, form: str, rounds: int) -> Path:
        """Write both files; the path of the Markdown one."""
        RESULTS.mkdir(exist_ok=True)
        content = {
            "form": form,
            "rounds": rounds,
            "seconds": round(time.time() - self.started, 1),
            "environment": environment(),
            "measurements": [
                {
                    "part": one.part,
                    "case": one.case,
                    "unit": one.unit,
                    "more_is_better": one.more_is_better,
                    "values": one.values,
                    "ratio": one.ratio(),
                }
                for one in self.measurements.values()
            ],
        }
        (RESULTS / f"{form}.json").write_text(json.dumps(content, indent=1) + "\n")
        path = RESULTS / f"{form}.md"
        path.write_text(self.markdown(form, rounds))
        return path

    def table(self) -> str:
        rows = [("", "unit", KOMPAKT, KAFKA, "ratio"), *self.rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )


def shown(value: float | None) -> str:
    """A number with the digits that mean something."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def environment() -> dict[str, str | int | float]:
    """What a reader must know to judge the figures."""
    processor = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpus": len(os.sched_getaffinity(0)),
        "processor": processor[1] if processor else platform.machine(),
        "memory_gib": round(int(memory[1]) / 2**20) if memory else 0,
        "system": f"Linux {platform.release()}",
        "python": platform.python_version(),
    }
