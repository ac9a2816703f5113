"""`kompakt kernels`: compile every kernel of the broker into its cache; no request waits for a compiler then.

Each room that has kernels knows how to call them once with the types that they are used with. A compiler uses
one processor: where there are more, and memory for it, a second process begins at the other end, and each
finds in the cache what the other one has compiled. Exit status 1 when there is no place to keep them: the
next start would compile them again.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType

import click

from broker.cli.asking import fail

TWO_COMPILERS_BYTES = 2 << 30
"""the memory that there must be for two processes; each takes up to half a GiB"""
FROM_THE_END = "from broker.cli.kernels import compile_all; compile_all(from_the_end=True)"


@click.command()
def kernels() -> None:
    """Compile the kernels into their cache; run once after an installation."""
    from protocol.kernel import Kernel

    started = time.monotonic()
    try:
        with helped():
            compile_all()
    except OSError as error:  # of a full disk for temporary files
        raise fail(f"the kernels cannot be kept: {error.strerror}", 1) from None
    if not Kernel.is_kept:
        raise fail(Kernel.why_not_kept, 1)
    print(f"the kernels are compiled; that took {time.monotonic() - started:.1f} s")


@contextlib.contextmanager
def helped() -> Iterator[None]:
    """Meanwhile another process does the same from the end. How far it comes decides about the time alone:
    what it left undone is compiled here, and what troubles it is met here.
    """
    from broker.memory import memory_limit_bytes

    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if processors == 1 or memory_limit_bytes() < TWO_COMPILERS_BYTES:
        yield
        return
    command = [sys.executable, "-c", FROM_THE_END]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        yield


def compile_all(*, from_the_end: bool = False) -> None:
    """Call each kernel once. OSError where no temporary file can be made."""
    from protocol.kernel import load_numba

    load_numba()
    rooms = rooms_with_kernels()
    for room in reversed(rooms) if from_the_end else rooms:
        room.compile_kernels()


def rooms_with_kernels() -> list[ModuleType]:
    from broker.warm_up import rooms_of_cleaning, rooms_of_serving
    from storage import integrity

    return [*rooms_of_serving(), integrity, *rooms_of_cleaning()]
