"""A real broker in a process of its own, as a user starts it: on free ports, in a temporary directory.

The process is ended by the id that was started here, never by name; what a failed test left running ends with
the session.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.waiting import wait_for

READY_LIMIT_SECONDS = 60.0


# Below those that Linux gives to whoever connects: one of them could be taken before the broker has it. Each
# process begins elsewhere, and gives none out twice before all others.
PORTS = range(10_000, 32_000)
_numbers = itertools.count(os.getpid() * 7919)


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago, and that nobody gets by chance."""
    for number in _numbers:
        port = PORTS[number % len(PORTS)]
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            break
    return port


_started: list[subprocess.Popen[bytes]] = []


def remembered(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """To be ended with the session at the latest: a test that fails may close nothing."""
    _started.append(process)
    return process


def end_what_was_left() -> None:
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.kill()
            process.wait()


class BrokerProcess:
    """`kompakt serve` on `data`; may be killed and started again on the same ports."""

    def __init__(
        self,
        data: Path,
        settings: Mapping[str, str] | None = None,
        *,
        more_data: Sequence[Path] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.more_data = more_data
        self.prefix = prefix
        """a command that starts the broker in its turn, to bound what it may take"""
        self.port = free_port()
        self.http_port = free_port()
        self.settings = dict(settings or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.output = data.parent / f"{data.name}.output"
        self._started_at = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        command = [
            *self.prefix,
            str(Path(sys.executable).with_name("kompakt")),
            "serve",
            "--port",
            str(self.port),
        ]
        command += ["--http-port", str(self.http_port), "--data", str(self.data)]
        for data in self.more_data:
            command += ["--data", str(data)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def launch(self) -> subprocess.Popen[bytes]:
        """Begin to start, and wait for nothing."""
        self._started_at = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=dict(os.environ),
            )
        return remembered(process)

    def start(self) -> BrokerProcess:
        self.process = self.launch()
        wait_for(self._answers, f"the broker on {self.bootstrap}", READY_LIMIT_SECONDS)
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        status = self.process.poll()
        assert status is None, f"the broker ended with status {status}:\n{self.log()}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def wait_until_ready(self) -> None:
        """For its HTTP port, which opens last."""
        wait_for(self._is_ready, f"HTTP on port {self.http_port}", READY_LIMIT_SECONDS)

    def _is_ready(self) -> bool:
        with self.output.open("rb") as output:
            output.seek(self._started_at)
            return b"kompakt is ready" in output.read()

    def log(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def stop(self) -> int:
        """SIGTERM, and the exit status of the clean shutdown that must follow."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(READY_LIMIT_SECONDS)
        self.process = None
        if status:
            print(self.log())  # pytest shows it if the test expected something else
        return status

    def kill(self) -> None:
        """`kill -9`, and wait until the process is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def http(self, path: str) -> str:
        """The body of GET `path`."""
        if self.process is not None:
            self.wait_until_ready()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=30) as answer:
            body: bytes = answer.read()
            return body.decode()

    def compact(self, topic: str) -> None:
        """Compact all partitions to their ends, the active segments included."""
        self.wait_until_ready()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}/api/topics/{topic}/compact",
            json.dumps({"roll": True}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200

    def close(self) -> None:
        """End the process if it still runs, and remove its data."""
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
