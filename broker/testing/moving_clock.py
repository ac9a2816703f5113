"""A clock that goes by itself, and jumps when it is told to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from broker.clock import Clock, Timer

_numbers = itertools.count()


class MovingTimer:
    """One timer of a `MovingClock`. Owned by: event loop."""

    def __init__(self, clock: MovingClock, due_ms: float, call: Callable[[], None]) -> None:
        self._clock = clock
        self._call = call
        self._handle: asyncio.TimerHandle | None = None
        self.order = (due_ms, next(_numbers))

    @property
    def due_ms(self) -> float:
        """When it falls due by its clock."""
        return self.order[0]

    def arm(self, delay_ms: float) -> None:
        """Let the loop call it after so long."""
        self._disarm()
        self._handle = asyncio.get_running_loop().call_later(max(0.0, delay_ms) / 1000, self.fire)

    def fire(self) -> None:
        """Call it now, unless it was called or cancelled."""
        if self in self._clock.timers:
            self.cancel()
            self._call()

    def cancel(self) -> None:
        self._disarm()
        self._clock.timers.discard(self)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class MovingClock(Clock):
    """Wall clock and event-loop timers, ahead of them by what it was moved. Owned by: any thread (`now_ms`),
    event loop (the rest).
    """

    def __init__(self) -> None:
        self._ahead_ms = 0
        self.timers: set[MovingTimer] = set()

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def passed_ms(self) -> int:
        return super().passed_ms() + self._ahead_ms

    def call_later(self, delay_ms: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        timer = MovingTimer(self, self.now_ms() + max(0.0, delay_ms), lambda: callback(*arguments))
        self.timers.add(timer)
        timer.arm(delay_ms)
        return timer

    def advance(self, ms: int) -> None:
        """Jump ahead, and call what falls due by that, each once, in order. ValueError: time does not go
        back.
        """
        if ms < 0:
            raise ValueError("time does not go back")
        self._ahead_ms += ms
        now_ms = self.now_ms()
        for timer in sorted(self.timers, key=lambda one: one.order):
            if timer.due_ms <= now_ms:
                timer.fire()
            elif timer in self.timers:
                timer.arm(timer.due_ms - now_ms)
