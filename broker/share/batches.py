"""How far the delivery of offsets is, by batches that were taken together. Pure.

A batch is of one piece as long as nobody treats its records differently. From then on it is runs of offsets
that fare alike, each as long as it can be, so that no question costs more than the runs that it concerns: a
producer may put a hundred thousand records into a batch. Mirrors Kafka's InFlightBatch and InFlightState.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.share.state_batches import DeliveryState

NOBODY = ""
AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


class Delivery(NamedTuple):
    """How far the delivery of an offset is."""

    state: DeliveryState = AVAILABLE
    sent: int = 0
    """how often it was sent"""
    member_id: str = NOBODY
    """who has it"""
    lock_until_ms: int = 0
    """so long its member has it, by `Clock.passed_ms`"""

    @property
    def is_over(self) -> bool:
        return self.state is ACKNOWLEDGED or self.state is ARCHIVED

    def acquired(self, member_id: str, lock_until_ms: int) -> Delivery:
        return Delivery(ACQUIRED, self.sent + 1, member_id, lock_until_ms)

    def renewed(self, lock_until_ms: int) -> Delivery:
        return Delivery(self.state, self.sent, self.member_id, lock_until_ms)

    def ended(self, state: DeliveryState, count_limit: int) -> Delivery:
        """Nobody has it any more; what was sent too often is given up."""
        is_given_up = state is AVAILABLE and self.sent >= count_limit
        return Delivery(ARCHIVED if is_given_up else state, self.sent)

    def archived(self) -> Delivery:
        return Delivery(ARCHIVED, self.sent)


NEW = Delivery()


class Change(NamedTuple):
    """What becomes of offsets `first` to `last`, which fared alike; the same as before: nothing."""

    first: int
    last: int
    before: Delivery
    after: Delivery

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class Batch:
    """Offsets that were taken together. `whole` is None once they may fare differently."""

    __slots__ = ("_deliveries", "_firsts", "first", "last", "whole")

    def __init__(self, first: int, last: int, whole: Delivery) -> None:
        self.first = first
        self.last = last
        self.whole: Delivery | None = whole
        self._firsts: list[int] = []
        """where each run begins; it ends before the next"""
        self._deliveries: list[Delivery] = []

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def split(self) -> None:
        if self.whole is not None:
            self._firsts, self._deliveries = [self.first], [self.whole]
            self.whole = None

    def parts(self, first: int, last: int) -> Iterator[tuple[int, int, Delivery]]:
        """What of it lies within `first` to `last`, in runs that fare alike."""
        first, last = max(first, self.first), min(last, self.last)
        if self.whole is not None:
            if first <= last:
                yield first, last, self.whole
            return
        firsts = self._firsts
        index = bisect_right(firsts, first)
        while first <= last:
            end = firsts[index] - 1 if index < len(firsts) else self.last
            yield first, min(end, last), self._deliveries[index - 1]
            first = end + 1
            index += 1

    def delivery_at(self, offset: int) -> Delivery:
        """Of an offset that is in it."""
        return self._deliveries[bisect_right(self._firsts, offset) - 1] if self.whole is None else self.whole

    def change(self, changes: Sequence[Change]) -> None:
        """Changes one behind the other, without a hole; of a batch that is of one piece: of all of it."""
        first, last = changes[0].first, changes[-1].last
        if self.whole is not None:
            assert len(changes) == 1, "a batch that is split"
            assert (first, last) == (self.first, self.last), "a batch that is split"
            self.whole = changes[0].after
            return
        old_firsts, old_deliveries = self._firsts, self._deliveries
        low, high = bisect_right(old_firsts, first) - 1, bisect_right(old_firsts, last)
        if low and old_firsts[low] == first:
            low -= 1  # that one may fare like what is new
        firsts = [old_firsts[low]] if old_firsts[low] < first else []
        deliveries = [old_deliveries[low]] if firsts else []
        new = [(one.first, one.after) for one in changes]
        end = old_firsts[high] - 1 if high < len(old_firsts) else self.last
        if last < end:
            new.append((last + 1, old_deliveries[high - 1]))
        elif high < len(old_firsts):
            new.append((old_firsts[high], old_deliveries[high]))
            high += 1
        for offset, delivery in new:
            if not deliveries or deliveries[-1] != delivery:
                firsts.append(offset)
                deliveries.append(delivery)
        old_firsts[low:high], old_deliveries[low:high] = firsts, deliveries
