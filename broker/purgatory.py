"""Fetches that wait: until enough bytes can be read, until their time is up, until something happens to a
partition.

A delayed fetch registers with the partitions it asked for; a high watermark that moves wakes the fetches of
that partition and no others. Mirrors Kafka's `DelayedFetch` and `DelayedOperationPurgatory`, without a
timer wheel: the event loop's timer heap is one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.counters import Counters
from broker.partition import Partition

if TYPE_CHECKING:
    from broker.clock import Timer


logger = logging.getLogger(__name__)


class DelayedFetch:
    """One waiting fetch; `done` is set, never failed, when it is to be read. Owned by: event loop."""

    __slots__ = ("_is_satisfied", "_partitions", "_purgatory", "_timer", "done")

    def __init__(
        self,
        purgatory: Purgatory,
        partitions: Sequence[Partition],
        is_satisfied: Callable[[Partition], bool],
        max_wait_ms: int,
    ) -> None:
        self._purgatory = purgatory
        self._partitions = partitions
        self._is_satisfied = is_satisfied
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in partitions:
            partition.high_watermark_waiters.add(self)
        self._timer: Timer = purgatory.clock.call_later(max_wait_ms, self._expire)

    def partition_moved(self, partition: Partition) -> None:
        """Called by the partition; the fetch goes on when it has enough now."""
        try:
            is_over = self.done.cancelled() or self._is_satisfied(partition)
        except Exception:  # is not the affair of who wrote, and of others who wait
            logger.exception("%s: whether a fetch has enough cannot be told", partition.topic_partition)
            is_over = True
        if is_over:
            self.complete()

    def _expire(self) -> None:
        self._purgatory.counters.delayed_fetches_expired += 1
        self.complete()

    def complete(self) -> None:
        """Leave the purgatory; idempotent."""
        self._timer.cancel()
        for partition in self._partitions:
            partition.high_watermark_waiters.discard(self)
        self._purgatory.fetches.discard(self)
        if not self.done.done():
            self.done.set_result(None)


class Purgatory:
    """All delayed fetches. Owned by: event loop."""

    def __init__(self, clock: Clock, counters: Counters) -> None:
        self.clock = clock
        self.counters = counters
        self.fetches: set[DelayedFetch] = set()
        self.is_open = True

    def __len__(self) -> int:
        return len(self.fetches)

    def delay(
        self, partitions: Sequence[Partition], is_satisfied: Callable[[Partition], bool], max_wait_ms: int
    ) -> DelayedFetch:
        """A fetch that waits until `is_satisfied(partition that moved)` or for `max_wait_ms`."""
        fetch = DelayedFetch(self, partitions, is_satisfied, max_wait_ms)
        self.fetches.add(fetch)
        if not self.is_open:
            fetch.complete()
        else:
            for partition in partitions:
                partition.flush_for_reader()
        return fetch

    def close(self) -> None:
        """The broker stops: every delayed fetch is answered with what there is, and none waits any more."""
        self.is_open = False
        for fetch in tuple(self.fetches):
            fetch.complete()
