"""What a start does so that few requests have to: load the kernels, then give back the memory that only that
needed.
"""

from __future__ import annotations

import ctypes
import gc
from types import ModuleType

from protocol.kernel import drop_loader


def rooms_of_serving() -> list[ModuleType]:
    """Those with kernels of produce, fetch and recovery."""
    from protocol import lz4_frames, one_look, records
    from storage import batch_table, key_hashes, stretch

    return [records, lz4_frames, one_look, batch_table, key_hashes, stretch]


def rooms_of_cleaning() -> list[ModuleType]:
    """Those with kernels of the cleaner, and of the statistics that follow a roll."""
    from cleaner import warm_up
    from storage import statistics_kernels

    return [statistics_kernels, warm_up]


def load_kernels() -> None:
    """The kernels of serving; behind them the collector works again (`serve`)."""
    from protocol.kernel import load_numba

    load_numba()
    for room in rooms_of_serving():
        room.compile_kernels()
    gc.enable()


def load_cleaner_kernels() -> None:
    """The kernels of cleaning."""
    for room in rooms_of_cleaning():
        room.compile_kernels()


def settle() -> None:
    """Nothing is loaded any more: free what only loading needed, and let the collector skip what stays."""
    gc.collect()
    gc.freeze()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    drop_loader()
