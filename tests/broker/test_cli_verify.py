"""Goal: `kompakt verify DIR` ends with status 1 and one line for each violation, and shows on a terminal how
far it is.

Method: a data directory with three different kinds of damage in two partitions; the command as a process of
its own, its standard error a terminal (a pty) or not.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

from storage.layout import LEADER_EPOCH_CHECKPOINT
from storage.verify import verify_data_directory
from tests.storage.builders import LogBuilder

FIRST = "00000000000000000000"


def data_directory(path: Path) -> Path:
    """Two partitions of one closed and one active segment."""
    path.mkdir()
    for name in ("one-0", "two-0"):
        log = LogBuilder(path / name, cleanup_policy="compact")
        log.fill(20)
        log.log.roll(log.now_ms)
        log.fill(3)
        log.log.close()
    return path


def damage(data: Path) -> list[str]:
    """Three violations; what the line of each must name, in the order of the report."""
    log = data / "one-0" / f"{FIRST}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    orphan = data / "one-0" / f"{7:020d}.timeindex"
    orphan.write_bytes(b"")
    epochs = data / "two-0" / LEADER_EPOCH_CHECKPOINT
    epochs.write_text("0\n7\n")
    return [orphan.name, log.name, epochs.name]


def run(data: Path, stderr: int) -> tuple[int, list[str]]:
    """Exit status and lines of `kompakt verify`."""
    command = [str(Path(sys.executable).with_name("kompakt")), "verify", str(data)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
    )
    return done.returncode, done.stdout.splitlines()


def run_on_terminal(data: Path) -> tuple[int, list[str], str]:
    """The same, and what the terminal got."""
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        try:
            while chunk := os.read(ours, 4096):
                shown.extend(chunk)
        except OSError:  # EIO: the other end is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        status, lines = run(data, theirs)
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    return status, lines, shown.decode()


def test_verify_prints_one_line_a_violation_and_ends_with_status_1(tmp_path: Path) -> None:
    data = data_directory(tmp_path / "data")
    names = damage(data)
    status, lines = run(data, subprocess.DEVNULL)
    assert status == 1
    assert lines == verify_data_directory(data)
    assert len(lines) == len(names) == 3
    for line, partition, name in zip(lines, ("one-0", "one-0", "two-0"), names, strict=True):
        assert line.startswith(f"{partition}: ")
        assert name in line


def test_verify_shows_a_bar_on_a_terminal_and_nothing_of_it_in_its_output(tmp_path: Path) -> None:
    data = data_directory(tmp_path / "data")
    total_bytes = sum(path.stat().st_size for path in data.rglob("*.log"))
    status, lines, shown = run_on_terminal(data)
    assert (status, lines) == (0, [f"{data} is in order"])
    assert "verifying" in shown
    assert "━" in shown
    size = f"{total_bytes / 1000:.1f}"
    assert f"{size}/{size} kB" in shown, "the bar must reach its end"
    damage(data)
    status, lines, shown = run_on_terminal(data)
    assert (status, len(lines)) == (1, 3)
    assert "verifying" in shown


def test_verify_draws_no_bar_where_there_is_no_terminal(tmp_path: Path) -> None:
    data = data_directory(tmp_path / "data")
    with (tmp_path / "errors").open("wb") as errors:
        status, lines = run(data, errors.fileno())
    assert (status, lines) == (0, [f"{data} is in order"])
    assert (tmp_path / "errors").read_bytes() == b""
