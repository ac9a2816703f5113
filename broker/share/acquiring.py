"""What a member gets of records that were read for it.

Whole batches where they are available as such, single offsets where some are not; of what was read no more
than may be on its way, and about as many records as were asked for: up to the end of the batch in which that
number is reached, or exactly so many if they are a limit (KIP-1206). What was often delivered in vain is
delivered in smaller portions, the last time each record alone (KIP-1223). Mirrors `acquire` of Kafka's
SharePartition. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from broker.share.batches import AVAILABLE, NEW, Batch, Change
from broker.share.delivery import InFlight

THROTTLED_FROM = 2
"""where every other delivery may be the last nothing is throttled earlier"""


class Wish(NamedTuple):
    """Who wants how many records, and what the group allows."""

    member_id: str
    max_records: int
    batch_size: int
    """about so many records are acknowledged together"""
    is_limit: bool
    """whether `max_records` is one"""
    record_limit: int
    """so many may be on their way to the group"""
    count_limit: int
    """so often a record is delivered"""
    lock_until_ms: int


class Run(NamedTuple):
    """Offsets `first` to `last`: of a batch that was read, or the first and last of what was acquired."""

    first: int
    last: int
    deliveries: int = 1
    """how often they were delivered, this time included"""

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def acquire(in_flight: InFlight, wish: Wish, read: Sequence[Run], fetch_offset: int) -> list[Run]:
    """What the member has now of the batches that were `read` from `fetch_offset` on."""
    if not read or wish.max_records <= 0 or read[-1].last < in_flight.start_offset:
        return []
    room, last = _room(in_flight, wish, fetch_offset, read[-1].last)
    return _Acquisition(in_flight, wish, read, room, last).run(fetch_offset) if room > 0 else []


def _room(in_flight: InFlight, wish: Wish, fetch_offset: int, last: int) -> tuple[int, int]:
    """How many records may be acquired, and up to which offset: with as many on their way as may be, only
    what was on its way before.
    """
    room = min(wish.max_records, wish.record_limit - in_flight.record_count)
    if room <= 0 and fetch_offset <= in_flight.end_offset:
        last = min(last, in_flight.end_offset)
        room = min(wish.max_records, in_flight.end_offset - fetch_offset + 1)
    return room, last


class _Acquisition:
    """One `acquire` under way."""

    def __init__(self, in_flight: InFlight, wish: Wish, read: Sequence[Run], room: int, last: int) -> None:
        self._in_flight = in_flight
        self._wish = wish
        self._read = read
        self._room = room
        self._last = last
        self._taken: list[Run] = []
        self._throttled_from = max(THROTTLED_FROM, math.ceil(wish.count_limit / 2))

    def run(self, fetch_offset: int) -> list[Run]:
        in_flight = self._in_flight
        read_from = base = self._read[0].first
        if in_flight.batches and fetch_offset < base:
            # There is nothing in the log: it was compacted away, or deleted.
            in_flight.archive(fetch_offset, base - 1, AVAILABLE)
        floor = in_flight.floor(base)
        if floor is None:
            base = max(base, in_flight.start_offset)
        elif floor.last >= base:
            base = floor.first
        known = in_flight.between(min(read_from, base), self._last)
        if not known:
            self._take_new(base, self._last)
            return self._taken
        unknown_from = base
        for batch in known:
            if in_flight.has_gap and unknown_from < batch.first and self._room > 0:
                self._take_new(unknown_from, batch.first - 1)
            unknown_from = batch.last + 1
            if self._room <= 0 or not self._take_again(batch, read_from):
                break
        if self._room > 0 and known[-1].last < self._last:
            self._take_new(known[-1].last + 1, self._last)
        if self._taken:
            in_flight.note_read_to(self._taken[-1].last + 1)
        return self._taken

    # what was on its way before

    def _take_again(self, batch: Batch, read_from: int) -> bool:
        """Take what is available of a batch; whether more may be taken behind it."""
        whole, available = batch.whole, self._in_flight.first_available()
        if available is None or (whole is not None and whole.state is not AVAILABLE):
            return True
        begin = max(read_from, available)  # not over what is before
        is_throttled = self._is_throttled(batch, begin)
        if is_throttled and self._taken:
            self._room = 0
            return False
        is_whole = read_from <= batch.first and batch.last <= self._last
        is_too_large = self._wish.is_limit and batch.size > self._room
        if whole is not None and is_whole and not is_too_large and not is_throttled:
            acquired = whole.acquired(self._wish.member_id, self._wish.lock_until_ms)
            self._in_flight.change(batch, [Change(batch.first, batch.last, whole, acquired)])
            self._add([Run(batch.first, batch.last, acquired.sent)])
            return True
        batch.split()
        runs = self._take_each(batch, begin)
        self._add(runs)
        if is_throttled and runs:
            self._room = 0
            return False
        return True

    def _is_throttled(self, batch: Batch, begin: int) -> bool:
        if self._in_flight.most_sent < self._throttled_from:
            return False
        counts = (
            delivery.sent for _, _, delivery in batch.parts(begin, self._last) if delivery.state is AVAILABLE
        )
        return max(counts, default=0) >= self._throttled_from

    def _take_each(self, batch: Batch, begin: int) -> list[Run]:
        wish, limit = self._wish, self._wish.count_limit
        stops_at = [self._room] if wish.is_limit else []
        is_throttled = False
        taken = 0
        changes: list[Change] = []
        runs: list[Run] = []
        before = acquired = None
        for first, last, delivery in batch.parts(begin, self._last):
            if delivery.state is not AVAILABLE:
                changes.append(Change(first, last, delivery, delivery))
                continue
            is_last_time = limit > THROTTLED_FROM and delivery.sent == limit - 1
            if is_last_time and runs:
                break
            if delivery.sent >= self._throttled_from and not is_throttled:
                is_throttled = True
                halvings = delivery.sent - self._throttled_from + 1
                stops_at.append(max(1, batch.size >> halvings))
            stops = [first + stop - taken - 1 for stop in stops_at if stop > taken]
            end = first if is_last_time else min([last, *stops])
            if acquired is None or delivery is not before:
                before, acquired = delivery, delivery.acquired(wish.member_id, wish.lock_until_ms)
            changes.append(Change(first, end, delivery, acquired))
            runs.append(Run(first, end, delivery.sent + 1))
            taken += end - first + 1
            if is_last_time or taken in stops_at:
                break
        if runs:
            self._in_flight.change(batch, changes)
        return _joined(runs)

    # what comes new

    def _take_new(self, first: int, last: int) -> None:
        """Take records that were never on their way, `first` to about `last`."""
        in_flight, wish, room = self._in_flight, self._wish, self._room
        if not in_flight.batches:
            first = max(first, in_flight.end_offset)
        if first > last:  # no more may be on their way, and where something was the log has nothing
            return
        if room < last - first + 1:
            end = self._end_of_batch_at(first + room - 1)
            last = min(last, end) if in_flight.has_gap else end
        if wish.is_limit and last - first + 1 > room:
            runs = [Run(first, first + room - 1)]
            self._put_limited(first, last, runs[0].last)
            in_flight.looks_back = True
        else:
            runs = [Run(first, last)] if wish.is_limit else self._portions(first, last)
            for run in runs:
                acquired = NEW.acquired(wish.member_id, wish.lock_until_ms)
                in_flight.put(Batch(run.first, run.last, acquired))
        if in_flight.batches[0].first == first:
            in_flight.move_start(first)
        in_flight.end_offset = max(in_flight.end_offset, last)
        in_flight.note_read_to(runs[-1].last + 1)
        self._add(runs)

    def _end_of_batch_at(self, offset: int) -> int:
        """The last offset of the batch that holds `offset`."""
        return next((one.last for one in self._read if one.first <= offset <= one.last), offset)

    def _portions(self, first: int, last: int) -> list[Run]:
        """At batches' boundaries, of at least as many records as are acknowledged together."""
        runs = []
        if last - first + 1 > self._wish.batch_size:
            for one in self._read:
                if one.first > last:
                    break
                if one.first - first >= self._wish.batch_size:
                    runs.append(Run(first, one.first - 1))
                    first = one.first
        return [*runs, Run(first, last)]

    def _put_limited(self, first: int, last: int, acquired_to: int) -> None:
        """A batch of which the member gets the beginning, and the rest is available."""
        batch = Batch(first, last, NEW)
        self._in_flight.put(batch)
        batch.split()
        acquired = NEW.acquired(self._wish.member_id, self._wish.lock_until_ms)
        self._in_flight.change(batch, [Change(first, acquired_to, NEW, acquired)])

    def _add(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._taken.append(run)
            self._room -= run.size


def without(acquired: Iterable[Run], gone: Sequence[Run]) -> list[Run]:
    """What is left of what was acquired without the batches that are `gone`, in order."""
    result = []
    for first, last, deliveries in acquired:
        for one in islice(gone, bisect_left(gone, first, key=_last_of), None):
            if one.first > last:
                break
            if one.first > first:
                result.append(Run(first, one.first - 1, deliveries))
            first = one.last + 1
        if first <= last:
            result.append(Run(first, last, deliveries))
    return result


def _last_of(run: Run) -> int:
    return run.last


def _joined(runs: Iterable[Run]) -> list[Run]:
    result: list[Run] = []
    for run in runs:
        if result and result[-1].last + 1 == run.first and result[-1].deliveries == run.deliveries:
            result[-1] = result[-1]._replace(last=run.last)
        else:
            result.append(run)
    return result
