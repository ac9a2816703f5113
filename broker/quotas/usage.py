"""What one request takes, as quotas count it: its bytes, and the time that it keeps the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from time import perf_counter_ns
from typing import Any


class Usage:
    """What a request takes: the bytes it has, and how long the event loop was at work for it so far. Owned
    by: event loop.
    """

    __slots__ = ("_since_ns", "_worked_ns", "size_bytes")

    def __init__(self, size_bytes: int, since_ns: int) -> None:
        self.size_bytes = size_bytes
        self._since_ns = since_ns
        self._worked_ns = 0

    def pause(self) -> None:
        """It waits for something."""
        self._worked_ns = self.worked_ns()
        self._since_ns = 0

    def go_on(self) -> None:
        self._since_ns = perf_counter_ns()

    def worked_ns(self) -> int:
        return self._worked_ns + (perf_counter_ns() - self._since_ns if self._since_ns else 0)


class Timed:
    """An answer that is waited for, whose work is counted: that of its own task, not that of others which it
    begins. Owned by: event loop.
    """

    def __init__(self, answer: Awaitable[Any], usage: Usage) -> None:
        self._answer = answer
        self._usage = usage

    def __await__(self) -> Generator[Any, None, Any]:
        steps = self._answer.__await__()
        thrown: BaseException | None = None
        while True:
            self._usage.go_on()
            try:
                waits_for = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as over:
                return over.value
            finally:
                self._usage.pause()
            thrown = None
            try:
                yield waits_for
            except BaseException as error:
                thrown = error
