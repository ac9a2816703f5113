"""Goal: whoever reads the log, or does not, holds nobody up: the broker serves on, and the log says what it
left out.

Method: a pipe that nobody reads, in process and as the standard error of a real process.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import log_lines
from broker.log_lines import MOST_WAITING_BYTES, PatientHandler
from tests.broker.client import LIMIT_SECONDS, Client
from tests.process import free_port

FULL_BYTES = 4096


def _line(text: str) -> logging.LogRecord:
    return logging.LogRecord("test", logging.INFO, __file__, 1, text, (), None)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A small one: who reads, who writes."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, FULL_BYTES)
    yield reader, writer
    for descriptor in (reader, writer):
        os.close(descriptor)


def test_times_are_utc_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    record = _line("words")
    record.created, record.msecs = 1_700_000_000.5, 500.0
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        said = log_lines.OneLineFormatter(log_lines.LOG_FORMAT).format(record)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert said == "2023-11-14 22:13:20,500Z INFO test: words"


def _read_until(reader: int, end: str) -> list[str]:
    data = b""
    while not data.endswith(f"{end}\n".encode()):
        data += os.read(reader, 1 << 16)
    return data.decode().splitlines()


def test_lines_are_written_at_once_while_somebody_reads(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    handler = PatientHandler(writer, "ascii")
    for number in range(1000):
        handler.handle(_line(f"line {number} \N{SNOWMAN}"))
        assert os.read(reader, FULL_BYTES) == b"line %d \\u2603\n" % number


def test_what_nobody_reads_waits_and_keeps_its_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    handler = PatientHandler(writer, "utf-8")
    lines = [f"line {number} {'x' * 100}" for number in range(1000)]
    for line in lines:
        handler.handle(_line(line))
    assert _read_until(reader, lines[-1]) == lines
    handler.flush()
    handler.handle(_line("afterwards"))
    assert _read_until(reader, "afterwards") == ["afterwards"]


def test_what_is_too_much_is_left_out_and_that_is_told(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    handler = PatientHandler(writer, "utf-8")
    count = 2 * MOST_WAITING_BYTES // 1000
    for number in range(count):
        handler.handle(_line(f"{number} {'x' * 1000}"))
    left_out = " lines of the log are left out: nobody read them in time"
    *lines, said = _read_until(reader, left_out)
    assert len(lines) + int(said.removesuffix(left_out)) == count
    assert 0 < len(lines) < count
    assert [int(line.split()[0]) for line in lines] == list(range(len(lines)))


def test_nobody_waits_long_for_who_does_not_read(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends all the same."""
    monkeypatch.setattr(log_lines, "END_SECONDS", 0.01)
    handler = PatientHandler(pipe[1], "utf-8")
    handler.handle(_line("x" * 3 * FULL_BYTES))
    handler.flush()
    assert _read_until(pipe[0], "x") == ["x" * 3 * FULL_BYTES]


def test_a_reader_that_is_gone_is_no_damage() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    handler = PatientHandler(writer, "utf-8")
    handler.handle(_line("nobody sees this"))
    handler.flush()
    os.close(writer)


def test_without_a_thread_lines_are_lost_and_nobody_fails(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    handler = PatientHandler(pipe[1], "utf-8")
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        for number in range(1000):
            handler.handle(_line(f"{number} {'x' * 100}"))
    os.read(pipe[0], FULL_BYTES)
    handler.handle(_line("afterwards"))
    assert b"afterwards\n" in os.read(pipe[0], FULL_BYTES)


def test_a_broker_serves_while_nobody_reads_its_log(tmp_path: Path) -> None:
    """Docker's logging, `| less`: a broken client alone makes a line of log with each try."""
    port = free_port()
    command = [sys.executable, "-m", "broker", "--port", str(port), "--http-port", "-1", "--data"]
    command.append(str(tmp_path / "data"))
    reader, writer = os.pipe()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True)
    try:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        asyncio.run(_fill(port, writer))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(reader)
        os.close(writer)


async def _fill(port: int, writer: int) -> None:
    """Let the broker say more than the pipe takes, and be served nevertheless."""

    async def annoy() -> None:
        client = await Client.connect("127.0.0.1", port, "x" * 1000)
        client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        assert await asyncio.wait_for(client.reader.read(), LIMIT_SECONDS) == b""
        await client.close()

    for _ in range(20):
        await asyncio.gather(*(annoy() for _ in range(50)))
    assert not select.select([], [writer], [], 0)[1], "the pipe takes more"
    await annoy()
