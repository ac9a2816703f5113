"""Who was told to wait because of a quota: how often, for how long, and until when. Pure.

Only the last ones are remembered: clients may take a new id for each connection. Times are ms: `now_ms` since
1970, `passed_ms` of a clock that nobody sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from broker.quotas.limits import Place

MOST_REMEMBERED = 100
"""of whom it is known that they had to wait"""


@dataclass(slots=True)
class Waited:
    """Those who are counted together for a quota. Owned by: event loop."""

    times: int = 0
    told_ms: int = 0
    """how long they were told to wait, all together"""
    last_ms: int = 0
    """when they were told so last"""
    ends_ms: int = 0
    """when the longest wait is over"""


class Waits:
    """Owned by: event loop."""

    def __init__(self) -> None:
        self._waited: dict[tuple[str, Place], Waited] = {}  # who was told last comes last

    def told(self, quota: str, place: Place, wait_ms: int, now_ms: int, passed_ms: int) -> None:
        """They have to wait for so long from now on."""
        known = self._waited.pop((quota, place), None) or Waited()
        known.times += 1
        known.told_ms += wait_ms
        known.last_ms = now_ms
        known.ends_ms = max(known.ends_ms, passed_ms + wait_ms)
        while len(self._waited) >= MOST_REMEMBERED:
            del self._waited[next(iter(self._waited))]
        self._waited[quota, place] = known

    def left_ms(self, quota: str, place: Place, passed_ms: int) -> int:
        """How long they still wait; 0 where they do not."""
        known = self._waited.get((quota, place))
        return 0 if known is None else max(0, known.ends_ms - passed_ms)

    def all(self) -> Iterator[tuple[str, Place, Waited]]:
        """Who was told last comes first."""
        for (quota, place), waited in reversed(self._waited.items()):
            yield quota, place, waited
