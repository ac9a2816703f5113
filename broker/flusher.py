"""Flushes: `FlushJob`s done off the event loop, which learns of their end.

What is one fdatasync, nearly all of them, goes by `storage/ring.py` if the machine has io_uring for us. All
else, and everything where it has not, is run by few threads that share one `queue.SimpleQueue` and answer
through `call_soon_threadsafe`. Which log flushes when is `Partition`'s business.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.counters import Counters

if TYPE_CHECKING:
    from storage.jobs import FlushJob
    from storage.ring import Ring

logger = logging.getLogger(__name__)

Done = Callable[["FlushJob", OSError | None], None]
THREADS = 4
# An append that meets an fdatasync of its file waits for it: at 2 ms acks=1 had 1.7 times the p99, at 25 ms
# one in a hundred still met one. Whoever waits for a flush does not wait for this.
LINGER_SECONDS = 0.05
NOT_DONE = (errno.ECANCELED, errno.EAGAIN, errno.EINTR)
"""what the kernel answers for work that it has not done, which says nothing about the file"""


class Lingering(Protocol):
    """What may be flushed a little later: a `Partition`."""

    def flush(self) -> None: ...


class Flusher:
    """Owned by: event loop; its threads only run jobs and hand the outcome back."""

    def __init__(self, counters: Counters, ring: Ring | None) -> None:
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._by_ring: dict[int, tuple[FlushJob, Done, int]] = {}
        self._token = 0
        logger.debug("flushes go by %s", "threads" if ring is None else "io_uring")
        if ring is not None:
            self._loop.add_reader(ring.eventfd, self._ring_finished)
        self._jobs: queue.SimpleQueue[tuple[FlushJob, Done] | None] = queue.SimpleQueue()
        self._lingering: set[Lingering] = set()
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._threads = [
            threading.Thread(target=self._run, name=f"flush-{number}", daemon=True)
            for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: FlushJob, done: Done) -> None:
        """Do `job` off the event loop, then call `done(job, error)` on it."""
        self._in_flight += 1
        self._idle.clear()
        ring, file = self._ring, job.only_file
        if ring is not None and file is not None:
            token = self._token = self._token + 1
            if file.begin_flush_data(ring, token):
                self._by_ring[token] = (job, done, time.perf_counter_ns())
                return
        self._jobs.put((job, done))

    def _ring_finished(self) -> None:
        assert self._ring is not None
        for token, code in self._ring.finished():
            job, done, started = self._by_ring.pop(token)
            assert job.only_file is not None
            job.only_file.release()
            if code in NOT_DONE:
                self._jobs.put((job, done))
                continue
            error = OSError(code, os.strerror(code)) if code else None
            try:
                self._finished(job, done, error, time.perf_counter_ns() - started)
            except Exception:  # our own bug: the others have ended as well
                logger.exception("what follows a flush failed by a bug")

    def linger(self, partition: Lingering) -> None:
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
        if self._ring is not None:
            self._loop.remove_reader(self._ring.eventfd)
            self._ring.close()
