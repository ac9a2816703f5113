"""`kompakt kernels`: compile every kernel of the broker into its cache; no request waits for a compiler then.

Each room that has kernels knows how to call them once with the types that they are used with. Exit status 1
when there is no place to keep them: the next start would compile them again.
"""

from __future__ import annotations

import time

import click

from broker.cli.asking import fail


@click.command()
def kernels() -> None:
    """Compile the kernels into their cache; run once after an installation."""
    from broker.warm_up import rooms_of_cleaning, rooms_of_serving
    from protocol.kernel import Kernel, load_numba
    from storage import integrity

    started = time.monotonic()
    load_numba()
    try:
        for room in (*rooms_of_serving(), integrity, *rooms_of_cleaning()):
            room.compile_kernels()
    except OSError as error:  # of a full disk for temporary files
        raise fail(f"the kernels cannot be kept: {error.strerror}", 1) from None
    if not Kernel.is_kept:
        raise fail(Kernel.why_not_kept, 1)
    print(f"the kernels are compiled; that took {time.monotonic() - started:.1f} s")
