"""The broker's only source of time.

`Clock` is the wall clock and the event loop's timers. `ManualClock` is what tests put in its place: its
time stands still until `advance` moves it, and timers fire inside that call, in order, so that no test
waits for time to pass. Mirrors Kafka's `Time` and `MockTime`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None: ...


class Clock:
    """Wall clock and event-loop timers. Owned by: any thread (`now_ms`, `passed_ms`), event loop (timers)."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def passed_ms(self) -> int:
        """Milliseconds since some moment, which nobody changes by setting the time."""
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        """Call `callback(*arguments)` on the event loop after `delay_ms`, unless it is cancelled before."""
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback, *arguments)

    async def sleep(self, delay_ms: float) -> None:
        """Return after `delay_ms` of this clock's time."""
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(delay_ms, _wake, awake)
        try:
            await awake
        finally:
            timer.cancel()


def _wake(awake: asyncio.Future[None]) -> None:
    if not awake.done():
        awake.set_result(None)


class ManualTimer:
    """One timer of a `ManualClock`. Owned by: event loop."""

    __slots__ = ("arguments", "callback", "is_cancelled")

    def __init__(self, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.callback = callback
        self.arguments = arguments
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualClock(Clock):
    """A clock that only `advance` moves, and `set_by` sets. Owned by: event loop."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._passed_ms = start_ms
        self._set_by_ms = 0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, ManualTimer]] = []

    def now_ms(self) -> int:
        return self._passed_ms + self._set_by_ms

    def passed_ms(self) -> int:
        return self._passed_ms

    def set_by(self, ms: int) -> None:
        """Somebody sets the wall clock forward, or back: no time passes."""
        self._set_by_ms += ms

    def call_later(self, delay_ms: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        timer = ManualTimer(callback, arguments)
        heapq.heappush(self._timers, (self._passed_ms + max(0.0, delay_ms), next(self._order), timer))
        return timer

    def advance(self, ms: int) -> None:
        """Move the time forward and run every timer that falls due on the way, each at its own time."""
        target = self._passed_ms + ms
        while self._timers and self._timers[0][0] <= target:
            due, _, timer = heapq.heappop(self._timers)
            self._passed_ms = max(self._passed_ms, int(due))
            if not timer.is_cancelled:
                timer.callback(*timer.arguments)
        self._passed_ms = target
