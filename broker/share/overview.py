"""What must be known of all deliveries of a partition, without walking them.

How many offsets are in each state, which is the first that is available, who has any, and when the first of
their locks ends: kept up to date change by change, so that a request costs what it changes, and not what else
is on its way. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TypeVar

from broker.share.batches import ACQUIRED, AVAILABLE, Change, Delivery
from broker.share.state_batches import DeliveryState

Key = TypeVar("Key")
SPARE = 64
"""so many ends of locks that are no more are kept before they are looked for"""


class Overview:
    """Owned by: event loop."""

    def __init__(self) -> None:
        self.counts = [0] * (max(DeliveryState) + 1)
        """how many offsets from the start offset on are in each state"""
        self.held: dict[str, int] = {}
        """how many offsets each member has"""
        self._sent: dict[int, int] = {}
        """how many offsets that are available were sent how often"""
        self._locks: dict[int, int] = {}
        """of how many offsets the lock ends when"""
        self._lock_ends: list[int] = []
        """a heap of all of these times, and of some that are no more"""
        self._available: list[int] = []
        """a heap: wherever offsets that are available begin, and some places where none are any more"""

    def add(self, first: int, last: int, delivery: Delivery, start_offset: int) -> None:
        """Offsets of which nothing was known."""
        self.counts[delivery.state] += max(0, last - max(first, start_offset) + 1)
        self._count(delivery, last - first + 1)
        if delivery.state is AVAILABLE:
            heappush(self._available, first)

    def change(self, changes: Sequence[Change], start_offset: int, batch_last: int) -> None:
        """What `Batch.change` changes in a batch that ends with `batch_last`."""
        alike: dict[tuple[int, int], list[int]] = {}
        for place, (first, last, before, after) in enumerate(changes):
            if after is before:
                continue
            sizes = alike.setdefault((id(before), id(after)), [place, 0, 0])
            sizes[1] += last - first + 1
            if last >= start_offset:
                sizes[2] += last - max(first, start_offset) + 1
            if after.state is AVAILABLE:
                heappush(self._available, first)
        for place, size, counted in alike.values():
            _, _, before, after = changes[place]
            self.counts[before.state] -= counted
            self.counts[after.state] += counted
            self._count(before, -size)
            self._count(after, size)
        _, last, before, _ = changes[-1]
        if before.state is AVAILABLE and last < batch_last:
            heappush(self._available, last + 1)  # where what is left of it may begin

    def _count(self, delivery: Delivery, size: int) -> None:
        """`size` is negative if they fare like this no more."""
        if delivery.state is AVAILABLE:
            _count(self._sent, delivery.sent, size)
        elif delivery.state is ACQUIRED:
            _count(self.held, delivery.member_id, size)
            self._count_lock(delivery.lock_until_ms, size)

    def _count_lock(self, until_ms: int, size: int) -> None:
        if until_ms not in self._locks:
            heappush(self._lock_ends, until_ms)
        if not _count(self._locks, until_ms, size) and len(self._lock_ends) > 2 * len(self._locks) + SPARE:
            self._lock_ends = list(self._locks)
            heapify(self._lock_ends)

    @property
    def most_sent(self) -> int:
        """How often of all that is available that was sent which was sent most."""
        return max(self._sent, default=0)

    @property
    def first_lock_end_ms(self) -> int | None:
        while self._lock_ends and self._lock_ends[0] not in self._locks:
            heappop(self._lock_ends)
        return self._lock_ends[0] if self._lock_ends else None

    @property
    def first_candidate(self) -> int | None:
        """Nothing before it is available; None: nothing is at all."""
        return self._available[0] if self._available else None

    def drop_candidate(self) -> None:
        """The first is not available."""
        heappop(self._available)


def _count(counts: dict[Key, int], key: Key, size: int) -> int:
    """How many there are with these; of what there is none nothing is kept."""
    count = counts.get(key, 0) + size
    if count:
        counts[key] = count
    else:
        del counts[key]
    return count
