"""Looking out for the next request for a moment before the loop sleeps, as long as that keeps paying.

To wake a thread on a core that went idle takes 20 to 60 us, on virtual machines as long as all else about a
small request. While requests follow each other within that time, the loop therefore asks the sockets again
and again instead of sleeping. Whether they do is learnt from the gaps between an answer and the next
request; one look-out in vain ends it for many requests. Known from the kernel as busy polling of sockets and
as halt polling.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from time import perf_counter_ns

SMALL_BYTES = 16 * 1024
"""read or sent at once: with more, the copying decides, and the core is better left to the client"""
ENOUGH_GAPS = 4
"""short ones in a row before the loop stays awake"""
GAPS_AFTER_VAIN = 32
"""as many before it does again when nothing came"""
ASLEEP = 0


class BusyPoll:
    """Owned by: event loop. `poll_us` is how long it may stay awake for a request; 0 is never."""

    def __init__(self, poll_us: int, now_ns: Callable[[], int] = perf_counter_ns) -> None:
        is_alone = len(os.sched_getaffinity(0)) == 1  # the client needs the core to send anything
        self._poll_ns = 0 if is_alone else poll_us * 1000
        self._now_ns = now_ns
        self._loop = asyncio.get_running_loop()
        self._answered_ns = 0
        self._until_ns = ASLEEP
        self._is_due = False  # `_look_again`, in the loop's next turn
        self._gaps_missing = ENOUGH_GAPS

    @property
    def is_awake(self) -> bool:
        return self._until_ns != ASLEEP

    def received(self, size_bytes: int) -> None:
        """A socket had something to read."""
        if size_bytes > SMALL_BYTES:
            self._stop(ENOUGH_GAPS)
        elif self._until_ns == ASLEEP:
            # Without a look-out both sides have to be woken, so that a gap is twice as long as with it.
            if self._now_ns() - self._answered_ns < 2 * self._poll_ns:
                self._gaps_missing -= 1
            else:
                self._stop(ENOUGH_GAPS)

    def sent(self, size_bytes: int) -> None:
        """An answer was handed to a socket."""
        if size_bytes > SMALL_BYTES:
            self._stop(ENOUGH_GAPS)
            return
        self._answered_ns = self._now_ns()
        if self._gaps_missing <= 0:
            self._until_ns = self._answered_ns + self._poll_ns
            self._keep_awake()

    def _keep_awake(self) -> None:
        """While something is due at once, the loop looks at its sockets without waiting for them."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._is_due = False
        if self._until_ns == ASLEEP:
            return
        if self._now_ns() < self._until_ns:
            self._keep_awake()
        else:
            self._stop(GAPS_AFTER_VAIN)

    def _stop(self, gaps: int) -> None:
        """Sleep again, until so many short gaps came in a row, or as many more as are missing anyway."""
        self._until_ns = ASLEEP
        self._gaps_missing = max(self._gaps_missing, gaps)
