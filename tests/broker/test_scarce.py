"""Goal: where the system gives no threads, no place for temporary files, or none for compiled kernels, the
broker works with less, or says in one line what to do.

Method: processes in which the call that would be refused is; what Python does with threads in process; the
loading of kernels by itself.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from broker import warm_up
from broker.io_threads import IoThreads, ThreadsExhausted
from broker.warm_up import Loading
from protocol.kernel import Kernel
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]

FEW_THREADS = """
import sys, threading
import broker.cli
from broker.run import run
from config.load import load

left, start = [int(sys.argv[2])], threading._start_new_thread

def start_few(*arguments):
    if not left[0]:
        raise RuntimeError("can't start new thread")
    left[0] -= 1
    return start(*arguments)

config = load(data=[sys.argv[1]], port=0, http_port=-1)
threading._start_new_thread = start_few
sys.exit(run(config))
"""

NO_PLACE = """
import os, sys, tempfile
import broker.run, cleaner.warm_up
from config.load import load

def refuse():
    raise FileNotFoundError(2, "No usable temporary directory found")

tempfile._get_default_tempdir = refuse
cleaner.warm_up.MEMORY = "/nowhere"
sys.exit(broker.run.run(load(data=[sys.argv[1]], port=0, http_port=-1)))
"""


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)


@pytest.mark.parametrize("threads", range(5))
def test_too_few_threads_to_start_are_told_in_a_line(tmp_path: Path, threads: int) -> None:
    done = run(FEW_THREADS, tmp_path / "data", threads)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("kompakt cannot start: the system lets this process have no more threads: raise ")


def test_libraries_start_no_threads_of_their_own() -> None:
    """One a core for matrices; and libuv ends the process without a word if it does not get its four."""
    script = """
import asyncio, os
import broker.cli, numpy, uvloop
print(len(os.listdir("/proc/self/task")))
async def look_up():
    (await asyncio.get_running_loop().create_server(asyncio.Protocol, "localhost", 0)).close()
    print(len(os.listdir("/proc/self/task")))
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(look_up())
"""
    assert run(script).stdout.split() == ["1", "2"]


def test_work_waits_for_the_threads_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start
    go_on = threading.Event()
    pool = IoThreads(10, "few")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ThreadsExhausted, match="raise the limit of processes"):
        pool.submit(int)
    monkeypatch.setattr(threading.Thread, "start", start)
    first: Any = pool.submit(go_on.wait)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    others = [pool.submit(str, number) for number in range(3)]
    go_on.set()
    assert first.result(60)
    assert [other.result(60) for other in others] == ["0", "1", "2"]
    pool.shutdown()


def test_no_temporary_file_can_be_made(tmp_path: Path) -> None:
    """A container whose file system is read-only, but for the data."""
    data, log = tmp_path / "data", tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", NO_PLACE, str(data)], stdout=output, stderr=output, cwd=ROOT
        )
    try:
        wait_for(lambda: "wait for its kernels" in log.read_text() or process.poll() is not None)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    assert "kompakt is ready" in said
    assert "Traceback" not in said
    assert "the first cleaning has to wait for its kernels" in said
    assert (data / ".kafka_cleanshutdown").exists()


async def test_a_start_whose_kernels_are_kept_nowhere_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each start compiles them again then, for a minute or more, not "once"."""
    loading = Loading()
    await loading.run(lambda: None)
    assert caplog.messages == []
    monkeypatch.setattr(Kernel, "is_kept", True)
    await loading.run(lambda: setattr(Kernel, "is_kept", False))
    await loading.run(lambda: None)
    (said,) = caplog.messages
    assert "compiled, but not kept" in said
    assert "NUMBA_CACHE_DIR" in said
    assert said.endswith("; until then each start compiles them again")


@pytest.mark.parametrize("is_compiling", [True, False])
async def test_only_a_start_that_compiles_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_compiling: bool
) -> None:
    """On a busy machine kernels that are in the cache take long to be loaded, too: to look for why they were
    compiled again would be in vain. What is compiled may come late.
    """
    asked, is_enough = 0, threading.Event()

    def has_compiled() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            is_enough.set()
        return is_compiling and asked >= 3

    monkeypatch.setattr(warm_up, "has_compiled", has_compiled)
    monkeypatch.setattr(warm_up, "USUAL_SECONDS", 0.0)
    monkeypatch.setattr(warm_up, "LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(Kernel, "is_kept", True)
    caplog.set_level("INFO")
    await Loading().run(lambda: None if is_enough.wait(60) else pytest.fail("nobody asked"))
    said = [message for message in caplog.messages if "kernels are being compiled" in message]
    assert len(said) == is_compiling
    assert asked >= 3
