"""A JVM that stays and runs Apache Kafka's tools one after the other, each unmodified from its own `main`.

A tool that does little spends a second of CPU to start a JVM, load its classes and interpret them, and the
tests run hundreds. `Resident.java` runs them in a JVM that has done so before. Threads of tests that run
tools side by side get a JVM each.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.classes import ClassArchive
from tests.kafka.jars import environment

PROGRAM = Path(__file__).with_name("Resident.java")
_LENGTH = struct.Struct(">i")
_WITH_THE_JVM = -(2**31)
_END_LIMIT_SECONDS = 60.0


class Resident:
    """One such JVM, which runs one tool at a time; `command` is the one that runs `Resident.java`."""

    def __init__(self, command: Sequence[str], archive: ClassArchive) -> None:
        self._archive = archive
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (it is closed with the JVM)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment()
        )
        atexit.register(self.close)

    @property
    def has_ended(self) -> bool:
        """A tool has ended it; or it did not end in time, or not by itself."""
        return self._process.poll() is not None

    @property
    def makes_archive(self) -> bool:
        """Its end leaves the archive that the next ones start from."""
        return self._archive.is_made

    def run(
        self, class_name: str, arguments: Sequence[str], stdin: str, limit_s: float
    ) -> tuple[int, str, str]:
        """The exit status of a program and what it printed on both its streams.

        Raises subprocess.TimeoutExpired; then, and whenever this does not return, the JVM is ended.
        """
        try:
            return self._run(class_name, arguments, stdin, time.monotonic() + limit_s)
        except TimeoutError:
            self.kill()
            raise subprocess.TimeoutExpired([class_name, *arguments], limit_s) from None
        except BaseException:
            self.kill()
            raise

    def _run(
        self, class_name: str, arguments: Sequence[str], stdin: str, until: float
    ) -> tuple[int, str, str]:
        fields = [class_name, *arguments, stdin]
        parts = [_LENGTH.pack(len(arguments))]
        for field in map(str.encode, fields):
            parts += [_LENGTH.pack(len(field)), field]
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(parts))
        self._process.stdin.flush()
        (status,) = _LENGTH.unpack(self._read(_LENGTH.size, until))
        printed = [self._read(*_LENGTH.unpack(self._read(_LENGTH.size, until)), until) for _ in range(2)]
        if status == _WITH_THE_JVM:
            self.close()
            status = self._process.returncode
        return status, printed[0].decode(), printed[1].decode()

    def _read(self, size: int, until: float) -> bytes:
        assert self._process.stdout is not None
        answer = bytearray()
        descriptor = self._process.stdout.fileno()
        while len(answer) < size:
            if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(descriptor, size - len(answer))
            assert part, f"the JVM of the tools has ended: {self._said()}"
            answer += part
        return bytes(answer)

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode(errors="replace")

    def close(self) -> None:
        """End it; what it leaves is what the next one starts from."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self._archive.keep()
            self._release()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        self._archive.drop()
        self._release()

    def _release(self) -> None:
        atexit.unregister(self.close)
        self._errors.close()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
