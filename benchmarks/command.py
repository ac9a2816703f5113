"""What the three benches share as programs: their options, and a part measured with its time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks.goals import KAFKA, KOMPAKT
from benchmarks.report import environment
from benchmarks.results import Section


class Measures(Protocol):
    """Whoever measures keeps the figures in the section at hand."""

    section: Section


M = TypeVar("M", bound=Measures)


def parser(
    program: str, description: str | None, parts: Iterable[str], quick: str
) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    made.add_argument("--quick", action="store_true", help=quick)
    made.add_argument("--only", nargs="+", choices=list(parts), help="these parts alone")
    made.add_argument("--system", choices=[KOMPAKT, KAFKA], help="one broker alone; writes nothing")
    made.add_argument("--rounds", type=int, help="how often each case is measured")
    made.add_argument("--directory", type=Path, help="where the data goes; a temporary directory otherwise")
    return made


def measured(bench: M, name: str, parts: Mapping[str, Callable[[M], None]], form: str) -> Section:
    """One part, with its time."""
    print(f"{name}:", flush=True)
    section = bench.section = Section(form, environment())
    began = time.monotonic()
    parts[name](bench)
    section.seconds = time.monotonic() - began
    print(f"  ({name}: {section.seconds:.0f} s)", flush=True)
    return section
