"""What the three benches share as programs: options, how they end, a part measured with its time."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Protocol, TypeVar

from benchmarks.goals import KAFKA, KOMPAKT
from benchmarks.report import environment
from benchmarks.results import Section


class Measures(Protocol):
    """Whoever measures keeps the figures in the section at hand."""

    section: Section


M = TypeVar("M", bound=Measures)


def end_when_told() -> None:
    """Who is told to end (`kill`, `timeout`, a terminal that closes) ends as by Ctrl-C: its brokers end with
    it and its directory goes, which may hold 40 GB.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # under `nohup` it is not
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


@contextlib.contextmanager
def data_directory(options: argparse.Namespace) -> Iterator[Path]:
    """Where the data goes, until the end of the run. What was started meanwhile and still runs ends first: a
    signal may come while a broker is being started, and nobody knows of that one.
    """
    before = _children()
    with tempfile.TemporaryDirectory(prefix="kompakt-bench-", dir=options.directory) as name:
        try:
            yield Path(name)
        finally:
            for pid in _children() - before:
                # Another thread may have waited for it.
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


def _children() -> set[int]:
    found = set[int]()
    for one in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(map(int, one.read_text().split()))
    return found


def rounds(text: str) -> int:
    """At least one: none would put nothing in the place of what was measured before."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} rounds measure nothing")
    return number


def directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no directory")
    return Path(text)


def parser(
    program: str, description: str | None, parts: Iterable[str], quick: str
) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    made.add_argument("--quick", action="store_true", help=quick)
    made.add_argument("--only", nargs="+", choices=list(parts), help="these parts alone")
    made.add_argument("--system", choices=[KOMPAKT, KAFKA], help="one broker alone; writes nothing")
    made.add_argument("--rounds", type=rounds, help="how often each case is measured")
    made.add_argument(
        "--directory", type=directory, help="where the data goes; that of temporary files otherwise"
    )
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
