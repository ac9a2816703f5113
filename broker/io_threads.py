"""The threads for what waits for a disk: as many as are asked for, or as the system gives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

NO_MORE_THREADS = (
    "the system lets this process have no more threads: raise the limit of processes (ulimit -u, TasksMax of "
    "its service, or the pids limit of its container)"
)


class ThreadsExhausted(RuntimeError):
    """Not one thread could be started."""


class IoThreads(ThreadPoolExecutor):
    """Owned by: any thread."""

    def _adjust_thread_count(self) -> None:
        """Asked when something is to be done and no thread is idle: those that there are get to it."""
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise ThreadsExhausted(NO_MORE_THREADS) from None
