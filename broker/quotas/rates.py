"""How fast something goes on, and how long to wait until that is no more than is allowed. Pure.

A `Rate` is what was counted within the last windows, by the time that they are long; above the limit it says
after how much time it is down to that if nothing is added. A `TokenBucket` fills as fast as is allowed, up to
what the windows hold, and may be overdrawn once: who takes much at a time is let in, and waits behind it.
Mirror Kafka's `Rate` over a `SampledStat`, and `TokenBucket`. Times are ms of a clock that nobody sets.
"""

from __future__ import annotations

import math

LONGEST_MS = 2**31 - 1
"""what an answer has room for"""

ROUNDED_OFF = 0.999
"""what sums of broken numbers cannot be wrong by"""


def _rounded(ms: float) -> int:
    """To whole ms as Java rounds."""
    return LONGEST_MS if ms >= LONGEST_MS else max(0, math.floor(ms + 0.5))


class _Sample:
    """What was counted since `began_ms`, lastly at `last_ms`."""

    __slots__ = ("began_ms", "last_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        self.began_ms = self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """So much a second. Owned by: event loop."""

    __slots__ = ("_count", "_current", "_samples", "_total", "_window_ms")

    def __init__(self, count: int, window_ms: int, now_ms: int) -> None:
        """Over `count` windows of `window_ms`, and the one that goes on."""
        self._count = count
        self._window_ms = window_ms
        self._current = 0
        self._samples = [_Sample(now_ms)]
        self._total = 0.0  # of all samples, also of those that no longer count

    def add(self, amount: float, now_ms: int) -> None:
        """Below 0 it is taken back, in the same ms, so that no sample is below 0; of a connection that had to
        wait later, as in Kafka.
        """
        sample = self._samples[self._current]
        if now_ms - sample.began_ms >= self._window_ms:
            sample = self._next(now_ms)
        sample.total += amount
        sample.last_ms = now_ms
        self._total += amount

    def _next(self, now_ms: int) -> _Sample:
        samples = self._samples
        self._current = (self._current + 1) % (self._count + 1)
        if self._current == len(samples):
            samples.append(_Sample(now_ms))
        else:
            self._begin(samples[self._current], now_ms)
        return samples[self._current]

    def _begin(self, sample: _Sample, now_ms: int) -> None:
        self._total -= sample.total
        sample.begin(now_ms)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may be added until the rate is the limit; 0 where it is not above that."""
        least_seconds = max(1, (self._count - 1) * self._window_ms) / 1000
        if self._total <= ROUNDED_OFF * limit * least_seconds:  # as usual: it is less, or too old to count
            return 0
        rate, passed_ms = self._measure(now_ms)
        return _rounded((rate - limit) / limit * passed_ms) if rate > limit else 0

    def figures(self, limit: float, now_ms: int) -> dict[str, float]:
        return {"rate": self.per_second(now_ms)}

    def per_second(self, now_ms: int) -> float:
        """How fast it is."""
        return self._measure(now_ms)[0]

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """How much a second there was, over how many ms."""
        oldest_ms = self._leave_out_old(now_ms)
        passed_ms = now_ms - oldest_ms
        missing = self._count - 1 - passed_ms // self._window_ms
        if missing > 0:  # as if there had been nothing before the first
            passed_ms += missing * self._window_ms
        passed_ms = max(1, passed_ms)
        return sum(sample.total for sample in self._samples) / (passed_ms / 1000), passed_ms

    def _leave_out_old(self, now_ms: int) -> int:
        """When the oldest sample that counts began."""
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._count * self._window_ms:
                self._begin(sample, now_ms)
        return min(sample.began_ms for sample in self._samples)

    def is_over(self, limit: float, now_ms: int) -> bool:
        """Whether a new one would say the same."""
        longest_ms = self._count * self._window_ms
        return all(now_ms - sample.last_ms >= longest_ms for sample in self._samples)


class TokenBucket:
    """Tokens; `limit` is how many come each second. Owned by: event loop."""

    __slots__ = ("_filled_ms", "_seconds", "_tokens")

    def __init__(self, count: int, window_ms: int, now_ms: int) -> None:
        """It holds what comes in `count` windows of `window_ms`, and is full."""
        self._seconds = count * window_ms / 1000
        self._tokens = math.inf
        self._filled_ms = now_ms

    def add(self, amount: float, limit: float, now_ms: int) -> None:
        """Take so many out."""
        self._tokens = self._filled(limit, now_ms) - amount

    def _filled(self, limit: float, now_ms: int) -> float:
        passed_ms, self._filled_ms = now_ms - self._filled_ms, now_ms
        self._tokens = min(self._seconds * limit, self._tokens + limit * passed_ms / 1000)
        return self._tokens

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """How long until it is no longer overdrawn; 0 where it is not."""
        tokens = self._filled(limit, now_ms)
        return _rounded(-tokens / limit * 1000) if tokens < 0 else 0

    def figures(self, limit: float, now_ms: int) -> dict[str, float]:
        """How many tokens are left; below 0 it is overdrawn."""
        return {"tokens": self._filled(limit, now_ms)}

    def is_over(self, limit: float, now_ms: int) -> bool:
        """Whether a new one would say the same."""
        return self._filled(limit, now_ms) >= self._seconds * limit
