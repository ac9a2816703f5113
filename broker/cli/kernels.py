"""`kompakt kernels`: compile every kernel of the broker into its cache; no request waits for a compiler then.

Each room that has kernels knows how to call them once with the types that they are used with.
"""

from __future__ import annotations

import time

import click


@click.command()
def kernels() -> None:
    """Compile the kernels into their cache; run once after an installation."""
    from broker.warm_up import rooms_of_cleaning, rooms_of_serving
    from protocol.kernel import load_numba
    from storage import integrity

    started = time.monotonic()
    load_numba()
    for room in (*rooms_of_serving(), integrity, *rooms_of_cleaning()):
        room.compile_kernels()
    print(f"the kernels are compiled; that took {time.monotonic() - started:.1f} s")
