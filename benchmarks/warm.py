"""Files that are in memory, and stay there, while something is measured that is said to be warm.

A system may give pages back that nobody needs the memory of (Linux with DAMON and its action `pageout` does
so half a minute after the last look at them): what was written just before is then read from the disk, by
one broker more than by the other.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy

_mlock = ctypes.CDLL(None, use_errno=True).mlock
_mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@contextmanager
def kept_warm(directories: Iterable[Path]) -> Iterator[None]:
    """Hold what the segments below `directories` have now in memory (`mlock`).

    Raises OSError, with what to do, where this process may not hold as much.
    """
    with ExitStack() as held:
        for directory in directories:
            for path in sorted(directory.glob("*.log")):
                if path.stat().st_size:
                    held.enter_context(_locked(path))
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapped = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
    pages = numpy.frombuffer(mapped, numpy.uint8)
    try:
        if _mlock(pages.ctypes.data, size):
            code = ctypes.get_errno()
            advice = "raise `ulimit -l`, or measure as root"
            raise OSError(
                code, f"cannot hold {size} bytes of {path} in memory: {os.strerror(code)}; {advice}"
            )
        yield
    finally:
        del pages
        mapped.close()  # and with it the lock
