"""How long a connection is not read because its client has done too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.clock import Timer
    from broker.node import Node


class Throttle:
    """Owned by: event loop."""

    __slots__ = ("_clock", "_counters", "_ends_ms", "_over", "_timer")

    def __init__(self, node: Node, over: Callable[[], None]) -> None:
        """`over()` is called when it ends by itself."""
        self._clock = node.clock
        self._counters = node.metrics_state
        self._counters.connections_throttled += 1
        self._over = over
        self._ends_ms = 0
        self._timer: Timer | None = None

    def extend(self, wait_ms: int) -> None:
        """It lasts for so long from now on, if not for longer."""
        ends_ms = self._clock.passed_ms() + wait_ms
        if ends_ms > self._ends_ms or self._timer is None:
            self._cancel()
            self._ends_ms = ends_ms
            self._timer = self._clock.call_later(wait_ms, self._end_in_time)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end_in_time(self) -> None:
        self.end()
        self._over()

    def end(self) -> None:
        """The connection is gone, or it is time."""
        self._cancel()
        self._counters.connections_throttled -= 1
