"""What a start does so that few requests have to: load the kernels, then give back the memory that only that
needed.
"""

from __future__ import annotations

import ctypes
import gc

from protocol.kernel import drop_loader


def load_kernels() -> None:
    """The kernels of produce, fetch and recovery; behind them the collector works again (`serve`)."""
    from protocol import lz4_frames, one_look, records
    from protocol.kernel import load_numba
    from storage import batch_table, key_hashes, stretch

    load_numba()
    records.compile_kernels()
    lz4_frames.compile_kernels()
    one_look.compile_kernels()
    batch_table.compile_kernels()
    key_hashes.compile_kernels()
    stretch.compile_kernels()
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
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    drop_loader()
