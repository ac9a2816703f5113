"""Frames that the buffer of all connections cannot hold, and the memory that they take together.

Beyond `queued.max.request.bytes` only the frame that began first grows; the others are read on when one ends.
So clients that send much wait for each other, and many that send half a request cost no more than the limit
and one frame. While somebody waits, a frame that was read and had not ended after `PATIENCE_MS` is given up:
half a request would else keep all others waiting. Mirrors Kafka's `SimpleMemoryPool`, where half a request
does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.clock import Clock, Timer
from broker.receiving import RECEIVE_BYTES
from config.definition import LONG_MAX

LARGE_BYTES = RECEIVE_BYTES // 2
PATIENCE_MS = 30_000
"""no client waits longer for an answer than that, by its defaults"""


class LargeFrames:
    """Those of all connections. Owned by: event loop."""

    def __init__(self, limit_bytes: int, clock: Clock) -> None:
        """No limit where it is not positive."""
        self.clock = clock
        self._limit_bytes = limit_bytes if limit_bytes > 0 else LONG_MAX
        self.used_bytes = 0
        self._frames: dict[LargeFrame, None] = {}  # that which began first is the first
        self._waiting: dict[LargeFrame, None] = {}
        self._timer: Timer | None = None

    def begin(self, frame: LargeFrame) -> None:
        self._frames[frame] = None

    def take(self, frame: LargeFrame, size_bytes: int, *, is_there: bool = False) -> bool:
        """So much more for a frame: False if it has to wait until that can be had. What `is_there` only
        counts.
        """
        if not is_there:
            is_first = next(iter(self._frames)) is frame
            if not is_first and self.used_bytes + size_bytes > self._limit_bytes:
                self._waiting[frame] = None
                self._watch()
                return False
            self._waiting.pop(frame, None)
        self.used_bytes += size_bytes
        return True

    def end(self, frame: LargeFrame, size_bytes: int) -> None:
        """A frame is handled, or its client gone."""
        if frame not in self._frames:
            return
        del self._frames[frame]
        self._waiting.pop(frame, None)
        self.used_bytes -= size_bytes
        first = next(iter(self._frames), None)
        for other in sorted(self._waiting, key=lambda one: one is not first):
            if not other.go_on():
                break

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self.clock.call_later(PATIENCE_MS, self._give_up_slow)

    def _give_up_slow(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        latest_ms = self.clock.passed_ms() - PATIENCE_MS
        for frame in tuple(self._frames):
            if frame not in self._waiting and frame.since_ms <= latest_ms:
                frame.give_up()
        if self._waiting:
            self._watch()


class LargeFrame:
    """In a buffer sized by what has come of it. Owned by: event loop."""

    def __init__(
        self,
        frames: LargeFrames,
        received: memoryview,
        size_bytes: int,
        read_on: Callable[[], None],
        end: Callable[[str], None],
    ) -> None:
        """It will be `size_bytes` long; `received` is its begin. `read_on()` when it waited for memory, and
        has it; `end(reason)` when it is given up.
        """
        self._frames = frames
        self._size_bytes = size_bytes
        self._filled = len(received)
        self._read_on = read_on
        self._end = end
        self.is_waiting = False
        self.since_ms = frames.clock.passed_ms()
        """when it was read on last"""
        frames.begin(self)
        first_bytes = min(size_bytes, max(RECEIVE_BYTES, 4 * len(received)))
        if not frames.take(self, first_bytes):
            self.is_waiting = True
            first_bytes = len(received)
            frames.take(self, first_bytes, is_there=True)
        self.data = bytearray(first_bytes)
        self.data[: len(received)] = received

    @property
    def is_whole(self) -> bool:
        return self._filled == self._size_bytes

    @property
    def received(self) -> bytearray:
        return self.data[: self._filled]

    def room(self) -> memoryview:
        """Where to put what comes next. There is some even if it waits: who reads may not stop at once."""
        if self._filled == len(self.data):
            more_bytes = min(RECEIVE_BYTES, self._size_bytes - self._filled)
            self._frames.take(self, more_bytes, is_there=True)
            self._add_room(more_bytes)
        return memoryview(self.data)[self._filled :]

    def add(self, size_bytes: int) -> None:
        """So many bytes were put into the room; from then on it may be waiting for more of that."""
        self._filled += size_bytes
        if self._filled == len(self.data) and not self.is_whole:
            self.is_waiting = not self._grow()

    def _grow(self) -> bool:
        more_bytes = min(self._size_bytes, max(2 * len(self.data), RECEIVE_BYTES)) - len(self.data)
        if not self._frames.take(self, more_bytes):
            return False
        self._add_room(more_bytes)
        return True

    def _add_room(self, size_bytes: int) -> None:
        grown = bytearray(len(self.data) + size_bytes)
        grown[: self._filled] = self.data[: self._filled]
        self.data = grown

    def go_on(self) -> bool:
        """Whether there is memory for it now."""
        if not self._grow():
            return False
        self.is_waiting = False
        self.since_ms = self._frames.clock.passed_ms()
        asyncio.get_running_loop().call_soon(self._read_on)
        return True

    def give_up(self) -> None:
        self.close()
        self._end(
            f"{self._filled} of {self._size_bytes} bytes came in {PATIENCE_MS // 1000} s, while others "
            "waited for the memory (queued.max.request.bytes)"
        )

    def close(self) -> None:
        """It is about to be handled, or its client gone."""
        self._frames.end(self, len(self.data))
