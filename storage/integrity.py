"""Whether the bytes of a segment are the batches that were written, and what to do where they are not.

A batch's checksum does not cover its first 17 bytes: base offset, length, leader epoch and magic. A flip
there is found by what stands around it: batches follow each other in bytes and in offsets, begin where the
index says, end before the next segment, and carry the leader epoch of their place. Where that does not
hold, `survey` walks the whole segment, finds the next good batch behind each damaged place, and says which
offsets are lost. Everything here reads; nothing repairs.

What no neighbour can tell (in a cleaned segment, a flip within a hole of its offsets), the checksums of
these bytes in the segment's statistics tell (`storage/prefixes.py`).

Batches that are good by their checksum but contradict each other are both taken for damaged unless the
offsets before or behind them leave no gap, which tells the good one: nothing that may be wrong is served.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from protocol.batch import HEADER_BYTES, MAGIC, checksum, parse_header
from protocol.kernel import kernel
from storage import batch_table
from storage.batch_table import (
    BASE_OFFSET,
    CUT,
    LAST_OFFSET,
    LEADER_EPOCH,
    NOT_FOUND,
    POSITION,
    SIZE_BYTES,
    Bytes,
    Longs,
    Table,
    as_chunk,
    batch_size,
    read_table,
    read_unsigned,
)
from storage.checksums import UNDAMAGED, crc32c, first_damaged
from storage.prefixes import Prefixes, Witness

if TYPE_CHECKING:
    from storage.leader_epochs import LeaderEpochs

WINDOW_BYTES = 1 << 20
LARGEST_BATCH_BYTES = 1 << 28
"""a batch that claims more is taken for damaged: no request could have brought it"""

MAX_SPAN = 2**31
MANY_CLASHES = 64

Read = Callable[[int, int], bytes]  # (position, size)


class Damage(NamedTuple):
    """Bytes [position, end) are no good batches; they may have held the offsets [first, next)."""

    position: int
    end: int
    first_offset: int
    next_offset: int


class Survey(NamedTuple):
    """All that is wrong with a segment, and where its last good batch ends."""

    damages: tuple[Damage, ...]
    end: int
    next_offset: int


class Place(NamedTuple):
    """What is known of a segment besides its bytes."""

    base_offset: int
    size_bytes: int
    limit_offset: int | None  # all its offsets are below; None: not known, it is the log's end
    epochs: LeaderEpochs | None
    start: int = 0  # where to begin
    start_offset: int = -1  # the least offset there, if it is more than the base offset
    witness: Witness | None = None  # of what no checksum of a batch covers

    @property
    def least_offset(self) -> int:
        return max(self.base_offset, self.start_offset)

    @property
    def end_offset(self) -> int:
        """All offsets are below."""
        return self.base_offset + MAX_SPAN if self.limit_offset is None else self.limit_offset


class Anchors(NamedTuple):
    """What an offset index says of a stretch of a file: batches that begin at `positions` end with `offsets`,
    which are relative, as in the index. The stretch lies between two of its entries.
    """

    start: int
    stop: int | None  # None: at the end of the file
    stop_offset: int  # what the batch at `stop` ends with
    positions: Longs
    offsets: Longs

    @classmethod
    def around(cls, offsets: Any, positions: Any, start: int, end: int) -> Anchors:
        """The smallest stretch between index entries that holds [start, end)."""
        count = len(offsets)  # of an entry that is being appended the position comes first
        first = bisect_right(positions, start, 0, count) - 1
        behind = bisect_left(positions, end, 0, count)
        has_end = behind < count
        inside = slice(max(first, 0), behind)
        return cls(
            positions[first] if first >= 0 else 0,
            positions[behind] if has_end else None,
            offsets[behind] if has_end else 0,
            numpy.array(positions[inside], numpy.int64),
            numpy.array(offsets[inside], numpy.int64),
        )

    def agree(self, table: Table, position: int, base_offset: int) -> bool:
        """Whether the entries are of batches of `table`, which begins at `position` of the file."""
        starts = table[POSITION] + position
        end = int(starts[-1] + table[SIZE_BYTES, -1])
        inside = slice(*numpy.searchsorted(self.positions, (position, end)))
        columns = numpy.searchsorted(starts, self.positions[inside], "right") - 1
        return bool(
            (starts[columns] == self.positions[inside]).all()
            and (table[LAST_OFFSET, columns] - base_offset == self.offsets[inside]).all()
        )


NO_ANCHORS = Anchors(0, None, 0, numpy.empty(0, numpy.int64), numpy.empty(0, numpy.int64))


# A stretch, quickly


class Walk(NamedTuple):
    """How a walk over a stretch went. `restart` is its last good chunk: what follows may contradict that."""

    is_intact: bool
    restart: int
    restart_offset: int  # the least offset there
    next_offset: int  # behind the last batch
    is_apart: bool  # the only gap among the offsets is before the last batch


def walk_stretch(
    read: Read, place: Place, start: int, end: int, behind: int | None, anchors: Anchors
) -> Walk:
    """Whether [start, end) is nothing but good batches in order, all below the offset `behind`, and those
    that the index says.
    """
    expected = place.base_offset
    position = start
    restart = (start, expected)
    gaps, is_apart = 0, False
    prefixes = Prefixes()
    wanted = WINDOW_BYTES
    while position < end:
        data = read(position, min(wanted, end - position))
        table, stopped, reason = read_table(data)
        if not table.shape[1]:
            if reason == CUT and len(data) == wanted < end - position and wanted < LARGEST_BATCH_BYTES:
                wanted *= 2
                continue
            break
        if not _chunk_is_good(data, table, expected, place.epochs):
            break
        if not anchors.agree(table, position, place.base_offset):
            break
        before = numpy.concatenate(([expected], table[LAST_OFFSET, :-1] + 1))
        new_gaps = int((table[BASE_OFFSET] != before).sum())
        is_apart = gaps + new_gaps == 1 and bool(table[BASE_OFFSET, -1] != before[-1])
        gaps += new_gaps
        restart = (position, expected)
        if place.witness is not None:
            prefixes.add(table, position)
        expected = int(table[LAST_OFFSET, -1]) + 1
        position += stopped
        wanted = WINDOW_BYTES
    is_intact = position == end and (behind is None or expected <= behind)
    witness = place.witness
    if is_intact and witness is not None and not witness.agrees(prefixes, start, end, place.size_bytes):
        return Walk(False, start, place.least_offset, expected, False)
    return Walk(is_intact, *restart, expected, is_apart)


def _chunk_is_good(data: bytes, table: Table, expected: int, epochs: LeaderEpochs | None) -> bool:
    bases, lasts = table[BASE_OFFSET], table[LAST_OFFSET]
    if bases[0] < expected or (bases[1:] <= lasts[:-1]).any():
        return False
    if epochs is not None and not epochs_fit(epochs, table).all():
        return False
    return _count_intact(data, table) == len(bases)


def epoch_columns(epochs: LeaderEpochs | None) -> tuple[Longs, Longs]:
    """Where each leader epoch starts, ascending, and the epochs, with -1 (not known) before the first."""
    entries = epochs.entries if epochs is not None else ()
    starts = numpy.array([start for _, start in entries], numpy.int64)
    return starts, numpy.array([-1, *(epoch for epoch, _ in entries)], numpy.int64)


def epochs_fit(epochs: LeaderEpochs, table: Table) -> Any:
    """Which batches have the leader epoch that is known for their offset, if any is."""
    starts, values = epoch_columns(epochs)
    known = values[numpy.searchsorted(starts, table[BASE_OFFSET], "right")]
    return (known < 0) | (known == table[LEADER_EPOCH])


def _count_intact(data: bytes, table: Table) -> int:
    """How many batches from the front have their checksum."""
    count = table.shape[1]
    damaged = int(first_damaged(as_chunk(data), table, count, crc32c()))
    return int(count) if damaged == UNDAMAGED else damaged


# A whole segment, thoroughly


def survey(read: Read, place: Place, *, doubts_last: bool = False) -> Survey:
    """Find every good batch of a segment, and the damaged places between them.

    `doubts_last`: when the one gap among the offsets is before the last batch, that one is wrong.
    """
    start = place.start
    batches = _intact_batches(read, place)
    if place.witness is not None:
        batches = batches[:, place.witness.right(batches, start, place.size_bytes)]
    batches = batches[:, _in_order(batches, place)]
    if doubts_last and _only_last_is_apart(batches, place):
        batches = batches[:, :-1]
    batches = batches[:, _of_right_epoch(batches, place.epochs)]
    damages: list[Damage] = []
    position, next_offset = start, place.least_offset
    ends = batches[POSITION] + batches[SIZE_BYTES]
    gaps = numpy.flatnonzero(batches[POSITION] != numpy.concatenate(([start], ends))[:-1])
    for column in gaps.tolist():
        if column:
            position, next_offset = int(ends[column - 1]), int(batches[LAST_OFFSET, column - 1]) + 1
        begin, base = int(batches[POSITION, column]), int(batches[BASE_OFFSET, column])
        damages.append(Damage(position, begin, next_offset, base))
    position, next_offset = start, place.least_offset
    if batches.shape[1]:
        position, next_offset = int(ends[-1]), int(batches[LAST_OFFSET, -1]) + 1
    if position < place.size_bytes:
        limit = next_offset if place.limit_offset is None else max(next_offset, place.limit_offset)
        damages.append(Damage(position, place.size_bytes, next_offset, limit))
    return Survey(tuple(damages), position, next_offset)


def _intact_batches(read: Read, place: Place) -> Table:
    """Columns of all batches that have their checksum, whatever their offsets are."""
    tables = [numpy.empty((batch_table.TABLE_ROWS, 0), numpy.int64)]
    position, wanted, size = place.start, WINDOW_BYTES, place.size_bytes
    while position < size:
        data = read(position, min(wanted, size - position))
        table, stopped, reason = read_table(data)
        count = table.shape[1]
        if not count and reason == CUT and len(data) == wanted < size - position:
            claimed = int(batch_size(as_chunk(data), 0))
            if claimed <= min(size - position, LARGEST_BATCH_BYTES):
                wanted = claimed
                continue
        wanted = WINDOW_BYTES
        good = _count_intact(data, table) if count else 0
        if good:
            found = table[:, :good].copy()
            found[POSITION] += position
            tables.append(found)
        if count and good == count:
            position += stopped
        else:
            broken = position + (int(table[POSITION, good]) if count else 0)
            position = _next_good(read, place, broken)
    return numpy.concatenate(tables, axis=1)


def _next_good(read: Read, place: Place, broken: int) -> int:
    """Where the first good batch behind the one at `broken` begins; the end of the file when none does."""
    size = place.size_bytes
    claimed = _claimed_end(read, broken, size)
    if claimed is not None and claimed != size and _good_end(read, claimed, size) is None:
        claimed = None
    position = broken + 1
    stop = size if claimed is None else claimed
    while position < stop:
        chunk = as_chunk(read(position, min(WINDOW_BYTES, stop - position)))
        found = int(find_candidate(chunk, place.least_offset, place.end_offset))
        if found == NOT_FOUND:
            if len(chunk) < WINDOW_BYTES:
                break
            position += len(chunk) - HEADER_BYTES + 1
            continue
        position += found
        if _leads_on(read, position, claimed, size):
            return position
        position += 1
    return stop


def _leads_on(read: Read, position: int, claimed: int | None, size: int) -> bool:
    """Whether a good batch is at `position` and others follow, up to `claimed`: else it is one that a record
    holds.
    """
    end = _good_end(read, position, size)
    if end is None:
        return False
    if claimed is None:
        return end == size or _claimed_end(read, end, size) is not None
    while end is not None and end < claimed:
        end = _claimed_end(read, end, size)
    return end == claimed


def _claimed_end(read: Read, position: int, size: int) -> int | None:
    """Where the batch at `position` says that it ends; None when no batch can be there."""
    head = read(position, min(HEADER_BYTES, size - position))
    claimed = int(batch_size(as_chunk(head), 0)) if len(head) == HEADER_BYTES else 0
    end = position + claimed
    return end if claimed and end <= size and claimed <= LARGEST_BATCH_BYTES else None


def _good_end(read: Read, position: int, size: int) -> int | None:
    """Where the batch at `position` ends; None unless it has its checksum."""
    end = _claimed_end(read, position, size)
    if end is None:
        return None
    data = read(position, end - position)
    return end if checksum(data, 0, len(data)) == parse_header(data).crc else None


@kernel
def find_candidate(chunk: Bytes, lower: int, upper: int) -> int:
    """The first place where a batch with a base offset of [lower, upper) may begin, or NOT_FOUND."""
    for position in range(chunk.size - HEADER_BYTES + 1):
        if chunk[position + 16] == MAGIC and batch_size(chunk, position) > 0:
            base_offset = read_unsigned(chunk, position, 8)
            if lower <= base_offset < upper:
                return position
    return NOT_FOUND


def _in_order(batches: Table, place: Place) -> Any:
    """Which columns are left when those are taken away whose base offset cannot be right."""
    bases, nexts = batches[BASE_OFFSET], batches[LAST_OFFSET] + 1
    good = (bases >= place.least_offset) & (nexts <= place.end_offset)
    columns = numpy.flatnonzero(good)
    while True:
        clashes = numpy.flatnonzero(bases[columns][1:] < nexts[columns][:-1])
        if not len(clashes):
            break
        if len(clashes) > MANY_CLASHES:  # no flipped bits, but another file's bytes
            good[columns[clashes]] = good[columns[clashes + 1]] = False
            columns = numpy.flatnonzero(good)
            continue
        good[_blamed(bases, nexts, columns, int(clashes[0]), place)] = False
        columns = numpy.flatnonzero(good)
    return good


def _blamed(bases: Longs, nexts: Longs, columns: Longs, at: int, place: Place) -> list[int]:
    """Of the two batches at `at` and behind it, whose offsets overlap, those that do not fit in without a
    gap; both when that decides nothing.
    """
    first, second = int(columns[at]), int(columns[at + 1])
    before = nexts[columns[at - 1]] if at else place.least_offset
    behind = bases[columns[at + 2]] if at + 2 < len(columns) else place.limit_offset
    size_of_first, size_of_second = nexts[first] - bases[first], nexts[second] - bases[second]
    first_fits = bases[first] == before or (behind is not None and nexts[first] + size_of_second == behind)
    second_fits = nexts[second] == behind or before + size_of_first == bases[second]
    if first_fits == second_fits:
        return [first, second]
    return [second] if first_fits else [first]


def _only_last_is_apart(batches: Table, place: Place) -> bool:
    """The one gap of the segment is before its last batch, and nothing behind it says that it is right."""
    bases = batches[BASE_OFFSET]
    if not len(bases):
        return False
    before = numpy.concatenate(([place.least_offset], batches[LAST_OFFSET, :-1] + 1))
    return bool(bases[-1] != before[-1]) and bool((bases[:-1] == before[:-1]).all())


def _of_right_epoch(batches: Table, epochs: LeaderEpochs | None) -> Any:
    """Which columns have the epoch that is known for their offset, or that of a neighbour: then not they are
    wrong, but what is known.
    """
    values = batches[LEADER_EPOCH]
    if epochs is None:
        return numpy.ones(len(values), bool)
    good = epochs_fit(epochs, batches)
    same = values[1:] == values[:-1]
    good[1:] |= same
    good[:-1] |= same
    return good


def compile_kernels() -> None:
    """Call each kernel once, so that its compiled form lies in the cache."""
    find_candidate(as_chunk(bytes(HEADER_BYTES)), 0, 1)
    table = numpy.zeros((batch_table.TABLE_ROWS, 1), numpy.int64)
    table[SIZE_BYTES] = HEADER_BYTES
    _count_intact(bytes(HEADER_BYTES), table)
