"""What a start does so that few requests have to: load the kernels, then give back the memory that only that
needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import threading
from collections.abc import Callable
from types import ModuleType

from protocol.kernel import Kernel, drop_loader, has_compiled

logger = logging.getLogger(__name__)

USUAL_SECONDS = 5.0
"""where loading takes longer than this, kernels may be being compiled, or the machine is busy"""
LOOK_AGAIN_SECONDS = 1.0


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
    """The kernels of cleaning. They are called on temporary files: without a place for these a broker serves
    all the same.
    """
    for room in rooms_of_cleaning():
        try:
            room.compile_kernels()
        except OSError as error:
            logger.warning("the first cleaning has to wait for its kernels: %s", error)


class Loading:
    """Kernels on their way, on a thread for which who ends the process need not wait: a compiler cannot be
    interrupted. Owned by: event loop.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._saying: asyncio.TimerHandle | None = None
        self._loaded: asyncio.Future[None] | None = None
        self._is_given_up = False
        self._is_said = False
        self._is_told_of_no_place = False

    @property
    def is_going_on(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def give_up(self) -> None:
        """Who waits for kernels, now or later, gets a CancelledError."""
        self._is_given_up = True
        if self._loaded is not None:
            self._loaded.cancel()

    async def run(self, load: Callable[[], None]) -> None:
        """Return when `load` has; say so if that takes long, and if the next start has to do it again."""
        loop = asyncio.get_running_loop()
        loaded = self._loaded = loop.create_future()
        if self._is_given_up:
            loaded.cancel()
        else:
            self._thread = threading.Thread(
                target=_report, args=(load, loop, loaded), name="kernels", daemon=True
            )
            self._thread.start()
        self._saying = loop.call_later(USUAL_SECONDS, self._say, loop)
        try:
            await loaded
        finally:
            self._saying.cancel()
        if not Kernel.is_kept and not self._is_told_of_no_place:
            self._is_told_of_no_place = True
            logger.warning("%s; until then each start compiles them again", Kernel.why_not_kept)

    def _say(self, loop: asyncio.AbstractEventLoop) -> None:
        """That kernels are compiled, if they are: on a busy machine it takes as long to load them, and who
        has compiled them beforehand would look for what is wrong.
        """
        if self._is_said:
            return
        if not has_compiled():
            self._saying = loop.call_later(LOOK_AGAIN_SECONDS, self._say, loop)
            return
        self._is_said = True
        logger.info(
            "kernels are being compiled for this processor, once, which takes a minute or two; "
            "`kompakt kernels` does it beforehand"
        )


def _report(load: Callable[[], None], loop: asyncio.AbstractEventLoop, loaded: asyncio.Future[None]) -> None:
    """On the thread: load, and tell the loop how it went, if that is still there."""
    problem: BaseException | None = None
    try:
        load()
    except BaseException as error:
        problem = error

    def tell() -> None:
        if loaded.done():
            return
        if problem is None:
            loaded.set_result(None)
        else:
            loaded.set_exception(problem)

    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(tell)


def settle() -> None:
    """Nothing is loaded any more: free what only loading needed, and let the collector skip what stays."""
    gc.collect()
    gc.freeze()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    drop_loader()
