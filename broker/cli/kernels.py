"""`kompakt kernels`: compile every kernel of the broker into its cache; no request waits for a compiler then.

Each room that has kernels knows how to call them once with the types that they are used with.
"""

from __future__ import annotations

import time

import click


@click.command()
def kernels() -> None:
    """Compile the kernels into their cache; run once after an installation."""
    from cleaner import warm_up as cleaner_kernels
    from protocol import lz4_frames
    from protocol import records as record_kernels
    from protocol.kernel import load_numba
    from storage import batch_table as storage_kernels
    from storage import integrity, key_hashes, statistics_kernels, stretch

    started = time.monotonic()
    load_numba()
    rooms = (record_kernels, lz4_frames, storage_kernels, key_hashes, integrity, stretch)
    for room in (*rooms, statistics_kernels, cleaner_kernels):
        room.compile_kernels()
    print(f"the kernels are compiled; that took {time.monotonic() - started:.1f} s")
