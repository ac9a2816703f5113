"""The cleaner's threads (`LogCleaner`): each takes the dirtiest log, cleans it, looks after retention,
sleeps.

A thread that fails by a bug of ours is started anew (T179). New settings end the threads at the next chunk
and begin others (T27, T28); what they were cleaning is cleaned again.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from cleaner.cleaner import Cleaner, CleaningAborted
from cleaner.manager import RETENTION_INTERVAL_MS, CleanerManager
from cleaner.offset_map import BufferTooSmall
from cleaner.priority import give_way
from config.together import check_threads

if TYPE_CHECKING:
    from config.broker import BrokerConfig
    from storage.log import Log

logger = logging.getLogger(__name__)

RESTART_SECONDS = 1.0
SHORTEST_PAUSE_MS = 10
"""with none a thread that finds nothing would look without end, and take the interpreter from the clients"""


class Worker:
    """One cleaner thread. Owned by: the pool; the thread itself runs `_run` only."""

    def __init__(self, manager: CleanerManager, number: int) -> None:
        self._manager = manager
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._current: Log | None = None
        self.thread = threading.Thread(target=self._run, name=f"cleaner-{number}", daemon=True)

    def request_stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def wake(self) -> None:
        """Look for work now instead of at the end of the sleep."""
        self._wake.set()

    def _run(self) -> None:
        give_way()
        while not self._stopping.is_set():
            try:
                self._work()
            except CleaningAborted:
                continue
            except BufferTooSmall as error:
                logger.error("nothing is cleaned: %s", error)
                self._sleep()
            except BaseException:
                logger.exception("%s died and is started anew", self.thread.name)
                self._die()

    def _die(self) -> None:
        """Count among the dead until the new life begins."""
        statistics = self._manager.statistics
        statistics.dead_threads += 1
        try:
            self._stopping.wait(RESTART_SECONDS)
        finally:
            statistics.dead_threads -= 1
            statistics.worker_restarts += 1

    def _work(self) -> None:
        """Clean log after log until asked to stop."""
        cleaner: Cleaner | None = None
        while not self._stopping.is_set():
            self._wake.clear()
            if cleaner is None:
                cleaner = self._make_cleaner()
            had_work = cleaner is not None and not self._manager.is_held and self._clean(cleaner)
            self._manager.expire()
            if not had_work:
                self._sleep()

    def _make_cleaner(self) -> Cleaner | None:
        try:
            return self._manager.make_cleaner(self._account)
        except BufferTooSmall:
            raise
        except ValueError as error:
            logger.warning("nothing is cleaned: %s", error)
            return None

    def _clean(self, cleaner: Cleaner) -> bool:
        """Whether there was work, whatever came of it: a log whose cleaning failed or was aborted is set
        aside, paused, or to be cleaned by another rule, and others may be as dirty.
        """
        work = self._manager.grab()
        if work is None:
            return False
        self._current = work.log
        self._manager.clean(cleaner, work)
        return True

    def _account(self, size: int) -> None:
        """Between two chunks: go no faster than allowed, and stop when asked to."""
        self._manager.throttle.take(size, self._check)

    def _check(self) -> None:
        if self._stopping.is_set():
            raise CleaningAborted("the cleaner stops")
        if self._current is not None:
            self._manager.check(self._current.topic_partition, self._current)
        # Of other logs: their retention must not wait for the end of a long cleaning.
        self._manager.expire(max(RETENTION_INTERVAL_MS, self._manager.config.log_cleaner_backoff_ms))

    def _sleep(self) -> None:
        self._wake.wait(max(SHORTEST_PAUSE_MS, self._manager.config.log_cleaner_backoff_ms) / 1000)


class CleanerPool:
    """Owned by: any thread that may wait, under lock; not the logs' owner, which the workers may be waiting
    for.
    """

    def __init__(self, manager: CleanerManager) -> None:
        self._manager = manager
        self._workers: list[Worker] = []
        self._lock = threading.Lock()  # a stop of the broker waits for new settings, or prevents them
        self._is_started = False

    @property
    def off_by(self) -> str | None:
        """The setting by which nothing cleans of itself; None where a thread does."""
        if not self._is_started:
            return "log.cleaner.enable=false"
        return None if self._manager.config.log_cleaner_threads else "log.cleaner.threads=0"

    @property
    def is_running(self) -> bool:
        """Whether there is a thread that cleans: Kafka takes 0 threads, too, and is silent about it."""
        return self.off_by is None

    def hold(self) -> None:
        """Clean nothing until `go_on`; retention is looked after. A cleaning that has to compile its kernels
        first can be aborted only when the compiler is done.
        """
        self._manager.is_held = True

    def go_on(self) -> None:
        self._manager.is_held = False
        self.wake()

    def start(self) -> None:
        """Begin cleaning; `BufferTooSmall` when the configured memory does not hold a single key (T30)."""
        self._manager.check_memory()
        self._manager.checkpoints.known()  # what is damaged is put right, though nothing is cleaned for now
        self._manager.statistics.started_ms = self._manager.now_ms()
        with self._lock:
            self._start_workers()

    def _start_workers(self) -> None:
        count = self._manager.config.log_cleaner_threads
        self._workers = [Worker(self._manager, number) for number in range(count)]
        self._is_started = True
        for worker in self._workers:
            worker.thread.start()

    def stop(self) -> None:
        """Return when no cleaning runs any more, nor will by new settings."""
        with self._lock:
            self._is_started = False
            self._stop_workers()

    def _stop_workers(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.request_stop()
        for worker in workers:
            worker.thread.join()

    def wake(self) -> None:
        """Look for work now."""
        for worker in self._workers:
            worker.wake()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Work by new settings from now on; ConfigError when the threads are more than doubled or halved
        (T27).

        A limit of I/O and a pause take effect at once; sizes need new threads.
        """
        with self._lock:
            old = self._manager.config
            if self._is_started:
                check_threads(old.log_cleaner_threads, config.log_cleaner_threads)
            self._manager.config = config
            self._manager.throttle.set_rate(config.log_cleaner_io_max_bytes_per_second)
            if not self._is_started:
                return
            if any(getattr(old, name) != getattr(config, name) for name in NEEDS_NEW_THREADS):
                self._stop_workers()
                self._start_workers()
            else:
                self.wake()


NEEDS_NEW_THREADS = (
    "log_cleaner_threads",
    "log_cleaner_dedupe_buffer_size",
    "log_cleaner_io_buffer_load_factor",
    "log_cleaner_io_buffer_size",
)
