"""What the batches of a log still say about each aborted transaction, and what an index may say of it.

A cleaner removes aborted data and keeps the marker and its index entry for a while: then nobody can tell
from the batches where the transaction began or how far the log was stable. But all bounds are there: a
transaction begins behind its producer's previous marker and not behind the first batch of it that is left,
and a batch that is gone left a hole. Where a log has no holes, only one answer is possible. Any two answers
that are possible differ by no batch that a reader could see. Pure: bytes and tables in, no files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy

from protocol.batch import TRANSACTIONAL, BatchHeader, parse_header
from protocol.control import decode_marker
from protocol.records import decode_batch
from storage import batch_table
from storage.types import AbortedTransaction


class Ongoing(NamedTuple):
    """A transaction that a snapshot knows or of which a batch was seen."""

    known: int | None  # where it began, as a snapshot says
    left: int | None  # the first of its batches that is left
    is_certain: bool  # what is known cannot be of an older transaction whose marker was cleaned away

    @property
    def latest(self) -> int | None:
        """It began here or before; None: there may be none at all."""
        return self.known if self.is_certain else self.left

    @property
    def earliest(self) -> int | None:
        """Where it began as far as there is any trace; None without one."""
        return self.left if self.known is None else self.known


NOTHING = Ongoing(None, None, False)


class Ended(NamedTuple):
    """An abort marker that is in the log."""

    producer_id: int
    offset: int
    behind: int  # its transaction began at this offset or later, unless its start is known
    transaction: Ongoing
    others: Collection[Ongoing]

    def _possible_starts(self) -> set[int | None]:
        known, left, is_certain = self.transaction
        return {known} if is_certain else {known, left}

    def admits_first(self, offset: int, holes: Holes) -> bool:
        if offset in self._possible_starts():
            return True
        latest = self.transaction.latest
        limit = self.offset if latest is None else min(latest, self.offset)
        return self.behind <= offset < limit and offset in holes

    def admits_stable(self, offset: int, holes: Holes) -> bool:
        latest = min((one.latest for one in self.others if one.latest is not None), default=self.offset + 1)
        if offset >= latest:
            return offset == latest
        return offset in holes or any(offset == one.known for one in self.others)

    def recomputed(self) -> AbortedTransaction | None:
        """Its entry, if there is any trace of where it began: rather too long than too short."""
        first = self.transaction.earliest
        if first is None:
            return None
        return AbortedTransaction(self.producer_id, first, self.offset, self._stable())

    def _stable(self) -> int:
        starts = [one.earliest for one in self.others if one.earliest is not None]
        return min(starts, default=self.offset + 1)

    def corrected(self, entry: AbortedTransaction, holes: Holes) -> AbortedTransaction | None:
        """What is to be believed of an entry with this marker; None: nothing."""
        if entry.producer_id != self.producer_id or not self.admits_first(entry.first_offset, holes):
            return None
        if self.admits_stable(entry.last_stable_offset, holes):
            return entry
        return entry._replace(last_stable_offset=self._stable())


class Holes:
    """The offsets from `start` on that no batch covers. Owned by: the thread that fills it."""

    def __init__(self, start: int) -> None:
        self._end = start
        self._begins: list[int] = []
        self._ends: list[int] = []

    def batch(self, base_offset: int, last_offset: int) -> None:
        if base_offset > self._end:
            self._begins.append(self._end)
            self._ends.append(base_offset)
        self._end = max(self._end, last_offset + 1)

    def __contains__(self, offset: int) -> bool:
        number = bisect_right(self._begins, offset) - 1
        return number >= 0 and offset < self._ends[number]


class Observer:
    """Walks a log from a snapshot on. Owned by: the thread that opens the log."""

    def __init__(self, start: int, known: Mapping[int, int], left: Mapping[int, int]) -> None:
        """`known`: where the transactions began that were open at `start`; `left`: their first batches that
        are left before it.
        """
        self._start = start
        self._behind: dict[int, int] = {}  # producer id -> the offset after its last marker
        self._ongoing = {one: Ongoing(known[one], left.get(one), one in left) for one in known}
        self.holes = Holes(start)

    def walk(self, data: bytes, table: batch_table.Table) -> Iterator[Ended]:
        """Take note of these batches (positions in `data`); the abort markers among them."""
        holes, bases, lasts = self.holes, table[batch_table.BASE_OFFSET], table[batch_table.LAST_OFFSET]
        for base, last in zip(bases.tolist(), lasts.tolist(), strict=True):
            holes.batch(base, last)
        for column in transactional(table):
            position = int(table[batch_table.POSITION, column])
            header = parse_header(data, position)
            if header.base_offset < self._start:
                continue
            if header.is_control:
                yield from self._end(header, data, position)
            else:
                found = self._ongoing.get(header.producer_id, NOTHING)
                if found.left is None:
                    self._ongoing[header.producer_id] = found._replace(left=header.base_offset)

    def _end(self, header: BatchHeader, data: bytes, position: int) -> Iterable[Ended]:
        """A marker, or what a cleaner left of one: nothing of its transaction is there then."""
        is_abort = False
        if header.record_count:
            record = decode_batch(data, position)[0]
            marker = decode_marker(record.key, record.value)
            if marker is None:
                return
            is_abort = not marker.is_commit
        producer_id, offset = header.producer_id, header.base_offset
        behind = self._behind.get(producer_id, self._start)
        transaction = self._ongoing.pop(producer_id, NOTHING)
        self._behind[producer_id] = offset + 1
        if is_abort:
            yield Ended(producer_id, offset, behind, transaction, tuple(self._ongoing.values()))


def transactional(table: batch_table.Table) -> list[int]:
    """The columns of the batches of transactions, markers among them."""
    is_one = (table[batch_table.ATTRIBUTES] & TRANSACTIONAL != 0) & (table[batch_table.PRODUCER_ID] >= 0)
    columns: list[int] = numpy.flatnonzero(is_one).tolist()
    return columns
