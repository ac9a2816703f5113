"""What a start does so that few requests have to: load the kernels, then give back the memory of their
loader.

A kernel comes from numba's cache, and loading one maps tens of megabytes of LLVM's code that are not run
again afterwards. Dropping those pages is safe (they are the library's own file, unchanged) and brings them
back if something is compiled after all.
"""

from __future__ import annotations

import ctypes
import gc
import re
from pathlib import Path

MADV_DONTNEED = 4
_CODE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-xp \S+ \S+ \S+ +\S*libllvm\S*")


def load_kernels() -> None:
    """The kernels of produce, fetch and recovery; behind them the collector works again (`serve`)."""
    from protocol import records
    from protocol.kernel import load_numba
    from storage import batch_table

    load_numba()
    records.compile_kernels()
    batch_table.compile_kernels()
    gc.enable()


def load_cleaner_kernels() -> None:
    """Those of the cleaner and of the statistics that follow a roll."""
    from cleaner import warm_up
    from storage import statistics_kernels

    statistics_kernels.compile_kernels()
    warm_up.compile_kernels()


def settle() -> None:
    """Nothing is loaded any more: free what only loading needed, and let the collector skip what stays."""
    gc.collect()
    gc.freeze()
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for match in map(_CODE.match, _mappings()):
        if match is not None:
            start, end = int(match[1], 16), int(match[2], 16)
            libc.madvise(start, end - start, MADV_DONTNEED)


def _mappings() -> list[str]:
    try:
        return Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
