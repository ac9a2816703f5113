"""What clients did of the one kind that a quota is about, each as far as it has one. Pure.

Who has no quota is not counted. What has been idle for so long that it would count for nothing is forgotten
when there is much of it: clients may take a new id for each connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from broker.quotas.limits import Entity, Found, Limits, Place
from broker.quotas.rates import LONGEST_MS, Rate, TokenBucket

M = TypeVar("M", Rate, TokenBucket)
FORGETFUL_FROM = 1000
"""clients whose quotas are looked up, or counted, before any of them is forgotten"""


class Held(Generic[M]):
    """Owned by: event loop."""

    def __init__(self, make: Callable[[int, int, int], M], count: int, window_ms: int) -> None:
        """Each is measured over so many windows by what `make(count, window_ms, now_ms)` returns."""
        self._make: Callable[[int, int, int], M] = make
        self._count, self._window_ms = count, window_ms
        self._limits = Limits()
        self._found: dict[tuple[str, str], Found | None] = {}
        self._measured: dict[Place, tuple[M, float]] = {}
        self._forgets_at = FORGETFUL_FROM
        self.is_active = False
        """whether there is any quota of the kind"""

    def set(self, entity: Entity, limit: float | None) -> None:
        """Another quota, or none; what was counted so far counts for it."""
        self._limits.set(entity, limit)
        self._found.clear()
        self.is_active = len(self._limits) > 0

    def limit(self, user: str, client_id: str) -> float | None:
        """How much the client may each second; None: as much as it likes."""
        found = self.find(user, client_id)
        return None if found is None else found.limit

    def most(self, user: str, client_id: str) -> float | None:
        """What the client may do at once after a time of rest without having to wait."""
        limit = self.limit(user, client_id)
        return None if limit is None else limit * (self._count - 1) * self._window_ms / 1000

    def of(self, user: str, client_id: str, now_ms: int) -> tuple[M, float] | None:
        """Where the client's doings are counted, and its limit; None where it has none."""
        found = self.find(user, client_id)
        if found is None:
            return None
        place, limit = found
        known = self._measured.get(place)
        if known is None or known[1] != limit:
            if len(self._measured) >= self._forgets_at:
                self._forget(now_ms)
            measured = self._make(self._count, self._window_ms, now_ms) if known is None else known[0]
            known = self._measured[place] = (measured, limit)
        return known

    def find(self, user: str, client_id: str) -> Found | None:
        """The quota that holds for the client."""
        found = self._found.get((user, client_id), ...)
        if found is ...:
            if len(self._found) >= FORGETFUL_FROM:
                self._found.clear()
            found = self._found[user, client_id] = self._limits.find(user, client_id)
        return found

    def figures(self, place: Place, limit: float, now_ms: int) -> dict[str, float]:
        """How fast those are who are counted there; nothing where nothing was counted lately."""
        known = self._measured.get(place)
        return {} if known is None else known[0].figures(limit, now_ms)

    def _forget(self, now_ms: int) -> None:
        for place, (measured, limit) in tuple(self._measured.items()):
            if measured.is_over(limit, now_ms):
                del self._measured[place]
        self._forgets_at = max(FORGETFUL_FROM, 2 * len(self._measured))


class HeldRates(Held[Rate]):
    """What is so much a second. Owned by: event loop."""

    def __init__(self, count: int, window_ms: int, longest_ms: int = LONGEST_MS) -> None:
        """Nobody waits longer than `longest_ms`."""
        super().__init__(Rate, count, window_ms)
        self._longest_ms = longest_ms

    def add(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count it; how long the client has to wait then, 0 where it is within its quota."""
        known = self.of(user, client_id, now_ms) if self.is_active else None
        if known is None:
            return 0
        rate, limit = known
        rate.add(amount, now_ms)
        return min(self._longest_ms, rate.wait_ms(limit, now_ms))

    def take_back(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """What was counted did not happen."""
        known = self.of(user, client_id, now_ms) if self.is_active else None
        if known is not None:
            known[0].add(-amount, now_ms)
