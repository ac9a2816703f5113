"""Flush threads: run `FlushJob`s off the event loop and come back to it.

Few threads share one `queue.SimpleQueue` and answer through `call_soon_threadsafe`: measured to be the
shortest way from a write to its fdatasync and back. Which log flushes when is `Partition`'s business.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.counters import Counters

if TYPE_CHECKING:
    from broker.partition import Partition
    from storage.types import FlushJob

logger = logging.getLogger(__name__)

Done = Callable[["FlushJob", OSError | None], None]
THREADS = 4
# An append that meets an fdatasync of its file waits for it: at 2 ms acks=1 had 1.7 times the p99. Whoever
# waits for a flush does not wait for this.
LINGER_SECONDS = 0.025


class Flusher:
    """Owned by: event loop; its threads only run jobs and hand the outcome back."""

    def __init__(self, counters: Counters, threads: int = THREADS) -> None:
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[FlushJob, Done] | None] = queue.SimpleQueue()
        self._lingering: set[Partition] = set()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads = [
            threading.Thread(target=self._run, name=f"flush-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: FlushJob, done: Done) -> None:
        """Run `job` on a flush thread, then `done(job, error)` on the event loop."""
        self._in_flight += 1
        self._idle.clear()
        self._jobs.put((job, done))

    def linger(self, partition: Partition) -> None:
        """Flush `partition` shortly: nobody waits for it yet, and one flush shall cover what still comes."""
        if not self._lingering:
            self._loop.call_later(LINGER_SECONDS, self._flush_lingering)
        self._lingering.add(partition)

    def _flush_lingering(self) -> None:
        lingering, self._lingering = self._lingering, set()
        for partition in lingering:
            partition.flush()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            error: OSError | None = None
            started = time.perf_counter_ns()
            try:
                job.run()
            except OSError as caught:
                error = caught
            except Exception as caught:  # our own bug: whether anything is on disk, nobody knows
                logger.exception("a flush failed by a bug")
                error = OSError(errno.EIO, f"{type(caught).__name__}: {caught}")
            try:
                self._loop.call_soon_threadsafe(
                    self._finished, job, done, error, time.perf_counter_ns() - started
                )
            except RuntimeError:
                return  # the loop is closed: nobody is left to tell

    def _finished(self, job: FlushJob, done: Done, error: OSError | None, nanoseconds: int) -> None:
        self._counters.flushes += 1
        self._counters.flush_nanoseconds += nanoseconds
        if error is not None:
            self._counters.flush_errors += 1
        self._in_flight -= 1
        try:
            done(job, error)
        finally:
            if not self._in_flight:
                self._idle.set()

    async def drain(self) -> None:
        """Return when every flush that was asked for has come back."""
        while self._lingering or self._in_flight:
            self._flush_lingering()
            await self._idle.wait()

    def stop(self) -> None:
        """End the threads after the jobs that are queued."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
