"""How values are spread: counts by size, as a histogram of Prometheus wants them, without its library."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

SECONDS = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)
BYTES = (1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11)
RECORDS = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
RATIOS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


class Distribution:
    """Owned by: whoever adds; any thread may read, and sees each value at most a moment late."""

    __slots__ = ("_counts", "limits", "sum")

    def __init__(self, limits: Sequence[float]) -> None:
        self.limits = limits
        self.sum = 0.0
        self._counts = [0] * (len(limits) + 1)

    def add(self, value: float) -> None:
        self._counts[bisect_left(self.limits, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """(upper limit, how many values are not above it), the last one without a limit."""
        names = [*(f"{limit:g}" for limit in self.limits), "+Inf"]
        counts = tuple(self._counts)
        return [(name, sum(counts[: index + 1])) for index, name in enumerate(names)]
