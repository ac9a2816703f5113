"""`log.cleaner.io.max.bytes.per.second`: one limit for what all cleaner threads read and write together.

Mirrors Kafka's `Throttler`. Each batch of bytes takes its time on a common line; whoever is early waits.
Time that nobody used is not saved up, beyond what one chunk takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BURST_SECONDS = 0.1
CHECK_SECONDS = 0.1


class Throttle:
    """Owned by: any thread, under lock."""

    def __init__(self, bytes_per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._free_at = clock()
        self.bytes_per_second = bytes_per_second

    def take(self, size: int, check: Callable[[], None]) -> None:
        """Account for `size` bytes and wait for their turn; `check` is called meanwhile and may raise."""
        rate = self.bytes_per_second
        end = self._clock() + self.reserve(size)
        check()
        while (left := end - self._clock()) > 0 and self.bytes_per_second == rate:
            time.sleep(min(left, CHECK_SECONDS))  # a cleaner's thread, which is to do nothing meanwhile
            check()

    def reserve(self, size: int) -> float:
        """Account for `size` bytes; for how many seconds the caller has to wait before it goes on."""
        with self._lock:
            now = self._clock()
            if self.bytes_per_second <= 0:
                return 0.0
            self._free_at = max(self._free_at, now - BURST_SECONDS) + size / self.bytes_per_second
            return max(0.0, self._free_at - now)

    def set_rate(self, bytes_per_second: float) -> None:
        """From the next call on; debts at the old rate are forgiven."""
        with self._lock:
            self.bytes_per_second = bytes_per_second
            self._free_at = self._clock()
