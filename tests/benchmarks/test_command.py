"""Goal: a run of a benchmark that is told to end leaves nothing behind, and one that cannot measure says so
before it has touched a figure.

Method: the program in a process of its own, ended while its broker runs; its options by themselves.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import command
from benchmarks.sections.growth import REPOSITORY
from tests.kafka.fixtures import tools_or_skip
from tests.waiting import wait_for


def brokers_of(directory: Path) -> list[int]:
    """The processes that were started with data in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:  # it has just ended
            continue
        if f"{directory}/kompakt-bench-".encode() in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.java
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_ends_a_run_ends_its_brokers_and_gets_the_disk_back(
    number: signal.Signals, tmp_path: Path
) -> None:
    tools_or_skip()
    words = ["-m", "benchmarks", "--quick", "--system", "kompakt", "--only", "startup"]
    with (tmp_path / "output").open("wb") as output:
        run = subprocess.Popen(
            # Tests may run under `nohup`, which has what it starts ignore the one.
            ["env", "--default-signal", sys.executable, *words, "--directory", tmp_path],
            cwd=REPOSITORY,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: brokers_of(tmp_path), "a broker")
        run.send_signal(number)
        assert run.wait(60) == 128 + number
        assert not brokers_of(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["output"]
    finally:
        run.kill()
        run.wait()
        for pid in brokers_of(tmp_path):
            os.kill(pid, signal.SIGKILL)


def test_a_process_that_nobody_knows_of_ends_before_its_data_goes(tmp_path: Path) -> None:
    """As where the signal comes while it is started. What ran before goes on."""
    writing = "import pathlib, sys\nwhile True: pathlib.Path(sys.argv[1], 'log').open('ab').write(b'.')"
    options = argparse.Namespace(directory=tmp_path)
    another = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with pytest.raises(SystemExit), command.data_directory(options) as directory:
        process = subprocess.Popen([sys.executable, "-c", writing, directory])
        wait_for(lambda: (directory / "log").exists())
        sys.exit(128 + signal.SIGTERM)
    assert process.wait(60) is not None
    assert not Path(f"/proc/{process.pid}").exists()
    assert not list(tmp_path.iterdir())
    assert another.poll() is None
    another.communicate(b"\n")
    assert another.returncode == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--rounds", "0"], "argument --rounds: 0 rounds measure nothing"),
        (["--rounds", "-1"], "argument --rounds: -1 rounds measure nothing"),
        (["--directory", "/none/such"], "argument --directory: /none/such is no directory"),
    ],
)
def test_what_measures_nothing_is_refused(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would leave its section of the table empty."""
    parser = command.parser("benchmarks", None, ["startup"], "little")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(words)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_usual_options(tmp_path: Path) -> None:
    parser = command.parser("benchmarks", None, ["startup"], "little")
    options = parser.parse_args(["--rounds", "2", "--directory", str(tmp_path)])
    assert (options.rounds, options.directory) == (2, tmp_path)
    assert parser.parse_args([]).rounds is None
