"""What clients were denied, in the log: each once until rules change, and so many a second that nobody is
held up by who asks for a hundred thousand things at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.security.acls import Asker, Operation, Resource

logger = logging.getLogger(__name__)

MOST_A_SECOND = 1000
"""lines of the log; what is left out of them is told when it is asked for again"""
MOST_REMEMBERED = 100_000
"""denials; then they are told anew"""
LONGEST_TOLD = 249
"""letters of a name, as many as a topic's may have: who has no right at all may write longer ones"""


class Denials:
    """Owned by: event loop."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._told: set[tuple[Asker, Operation, Resource, str]] = set()
        self._since_ms = now_ms()
        self._count = 0
        """lines since then"""

    def tell(self, asker: Asker, operation: Operation, resource: Resource, name: str) -> None:
        name = name[:LONGEST_TOLD]
        denial = (asker, operation, resource, name)
        if denial in self._told or not self._has_room():
            return
        if len(self._told) >= MOST_REMEMBERED:
            self._told.clear()
        self._told.add(denial)
        where = f"{resource.name.lower().replace('_', ' ')} {name}"
        logger.info("denied %s from %s: %s of %s", asker.principal, asker.host, operation.name, where)

    def forget(self) -> None:
        """Rules have changed."""
        self._told.clear()

    def _has_room(self) -> bool:
        now_ms = self._now_ms()
        if now_ms - self._since_ms >= 1000:
            self._since_ms, self._count = now_ms, 0
        self._count += 1
        if self._count == MOST_A_SECOND + 1:
            logger.info("more was denied in this second than the %d that are told", MOST_A_SECOND)
        return self._count <= MOST_A_SECOND
