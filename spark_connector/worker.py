"""What is done in each of Spark's Python workers, of planning and of tasks, to be quick."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

DAEMON = "pyspark.daemon"
SPARKS_PROCESSES = "pyspark."
DESCRIPTORS = Path("/proc/self/fd")
_settled = False


def settle() -> None:
    """After the imports of a worker's first job: take what is there out of the collector's sight.

    Spark's daemon collects garbage after every job, and looks at some 80,000 objects of loaded modules each
    time: longer than a small task takes. They are never garbage. In any other process nothing is done.
    """
    global _settled
    if _settled or _process() != DAEMON:
        return
    _settled = True
    gc.collect()
    gc.freeze()


class SentToTasks:
    """A reader, which Spark sends to each task in pickled form: that it has come is acknowledged at once.

    Spark's JVM sends a task in two pieces and leaves Nagle's algorithm on: the second, which says what to
    read, waits until the first, with the reader, has been acknowledged. Left alone, the kernel of a worker
    that has nothing to say yet does that 40 ms later. A task that writes gets more at once and never waits.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if _process().startswith(SPARKS_PROCESSES):
            acknowledge_at_once()


def acknowledge_at_once() -> None:
    """Acknowledge what has come on any of this process's TCP connections; Linux only, elsewhere nothing.

    PySpark keeps the connection of a worker to itself, so that all are told: the others are ours to brokers.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not DESCRIPTORS.is_dir():
        return
    for path in DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is gone by now
            if stat.S_ISSOCK(os.fstat(int(path.name)).st_mode):
                _tell(int(path.name), option)


def _tell(descriptor: int, option: int) -> None:
    found = socket.socket(fileno=descriptor)
    try:
        if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
            found.setsockopt(socket.IPPROTO_TCP, option, 1)
    finally:
        found.detach()


def _process() -> str:
    """The module that this process was started with, as `python -m` names it; empty if it was none."""
    return getattr(sys.modules["__main__"].__spec__, "name", "")
