"""The log on standard error, by which nobody is held up: a reader that takes nothing (`| less`, a terminal
that was stopped, a collector that hangs) costs lines of the log, and no client its broker.

A line is written at once while the other end takes it. Else it waits, with as many more as
`MOST_WAITING_BYTES` are, for a thread that has nothing else to do; beyond that lines are left out, and how
many is told.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import time
from collections import deque

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LONGEST_MESSAGE = 2000
PIECE_BYTES = select.PIPE_BUF
"""of which a pipe that takes anything takes all"""
MOST_WAITING_BYTES = 1 << 20
END_SECONDS = 1.0
"""so long the end of the process waits for who reads"""


def one_line(text: str) -> str:
    """What may hold anything, without letters that are not to be seen, and of a length that can be read."""
    if len(text) > LONGEST_MESSAGE:
        text = f"{text[:LONGEST_MESSAGE]}..."
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class OneLineFormatter(logging.Formatter):
    """What clients call their things cannot begin a line of its own in the log, nor fill it. Times are UTC,
    as everywhere else, and say so: who compares them with the console's need not know the machine's zone.
    """

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s,%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = one_line(record.message)
        return super().formatMessage(record)


class PatientHandler(logging.Handler):
    """Owned by: any thread, under the lock of handlers; what waits by any thread, under its own."""

    def __init__(self, descriptor: int, encoding: str) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._encoding = encoding
        self._turn = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._left_out = 0
        self._all_written = threading.Event()
        self._all_written.set()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data = f"{self.format(record)}\n".encode(self._encoding, "backslashreplace")
        except Exception:
            self.handleError(record)
            return
        if self._all_written.is_set():
            data = self._write(data, is_patient=False)
        if data:
            self._put_off(data)

    def _write(self, data: bytes, *, is_patient: bool) -> bytes:
        """What is left, because the other end does not take it now; nothing is if we are patient."""
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        while data and ready.poll(None if is_patient else 0):
            try:
                data = data[os.write(self._descriptor, data[:PIECE_BYTES]) :]
            except BlockingIOError:  # another wrote in between
                continue
            except OSError:  # nobody reads any more, or its disk is full
                return b""
        return data

    def _put_off(self, data: bytes) -> None:
        with self._turn:
            if self._waiting_bytes + len(data) > MOST_WAITING_BYTES:
                self._left_out += 1
                return
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            if self._all_written.is_set():
                self._all_written.clear()
                try:
                    threading.Thread(target=self._write_rest, name="log", daemon=True).start()
                except RuntimeError:  # the system gives no thread: the next line is tried again
                    self._left_out += 1
                    self._waiting.clear()
                    self._waiting_bytes = 0
                    self._all_written.set()

    def _write_rest(self) -> None:
        """On the thread: write what waits, until nothing does."""
        while True:
            with self._turn:
                if not self._waiting and self._left_out:
                    words = f"{self._left_out} lines of the log are left out: nobody read them in time\n"
                    self._waiting.append(words.encode())
                    self._left_out = 0
                if not self._waiting:
                    self._waiting_bytes = 0
                    self._all_written.set()
                    return
                data = self._waiting.popleft()
            self._write(data, is_patient=True)
            with self._turn:
                self._waiting_bytes -= len(data)

    def flush(self) -> None:
        """At the end of the process: for a moment who reads is waited for."""
        self._all_written.wait(END_SECONDS)


def new_handler() -> logging.Handler:
    """One for standard error; tests put streams in its place that are no files."""
    try:
        handler: logging.Handler = PatientHandler(sys.stderr.fileno(), sys.stderr.encoding)
    except (OSError, AttributeError):
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(LOG_FORMAT))
    return handler
