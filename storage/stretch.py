"""Whether a stretch of a `.log` is what was written, told by one call without the GIL.

The rules are those of `integrity.walk_stretch`; here a stretch is read a piece at a time into a buffer that
stays in the core's cache, while it comes from the disk, and each batch is judged where it lies. What is good
is good, and its batches can be told of at once; of all else nothing is said but that, and `walk_stretch`
finds out what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from protocol.batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_BYTES
from protocol.kernel import SMALL_BYTES, kernel, would_load_numba
from protocol.native import ALL_ONES, MISSING, crc32c_address, crc32c_call, libc_address, pread_call
from storage.batch_table import (
    TABLE_ROWS,
    Bytes,
    Longs,
    Table,
    batch_size,
    fill_column,
    read_int32,
    read_unsigned,
)
from storage.file import SYSTEM_DISK, DataFile
from storage.integrity import LARGEST_BATCH_BYTES, NO_ANCHORS, Anchors, Place, epoch_columns
from storage.layout import LARGEST_OFFSET
from storage.prefixes import PREFIX, STRETCH_BYTES, Witness

PIECE_BYTES = 64 * 1024
PREFIX_BYTES = PREFIX.itemsize
MOST_COLUMNS = 8192
"""batches that a table holds, 640 KiB of them"""

BAD = -1
# What `judge` carries from call to call:
AT = 0  # where the next batch begins
LAST = 1  # the last offset so far
ANCHOR = 2  # of the first of `Known.positions` that was not met
EPOCH = 3  # of the next of `Known.epoch_starts`
GAPS = 4  # among the offsets
IS_APART = 5  # whether one is before the last batch
STATE_ROWS = 6

NO_TABLE: Table = numpy.empty((TABLE_ROWS, 0), numpy.int64)


class File(NamedTuple):
    """What is needed to read a file and to check what was read."""

    descriptor: int
    pread: int
    crc32c: int
    buffer: Any
    """at least a batch's header"""
    window: Longs
    """where in the file the bytes of the buffer begin and end"""


class Known(NamedTuple):
    """What is known of a stretch, all of it from somewhere else than its bytes."""

    base_offset: int
    """of the segment"""
    limit_offset: int
    """all offsets are below"""
    positions: Longs
    """of batches that an index names, ascending"""
    offsets: Longs
    """what these end with, less `base_offset`"""
    epoch_starts: Longs
    epochs: Longs
    """the leader epoch before the first of `epoch_starts` (below 0: not known), and from each on"""
    first_prefixes: int
    prefixes: Longs
    """CRC-32C of the prefixes of the batches that begin in each STRETCH_BYTES from number `first_prefixes`
    on; below 0: not known
    """


def open_file(descriptor: int, start: int) -> File | None:
    """To be read from `start` on; None where functions of the system or of the library cannot be called from
    within a kernel.
    """
    pread, crc32c = libc_address("pread"), crc32c_address()
    if MISSING in (pread, crc32c):
        return None
    window = numpy.array([start, start], numpy.int64)
    return File(descriptor, pread, crc32c, numpy.empty(PIECE_BYTES, numpy.uint8), window)


@kernel
def read_into(descriptor: int, pread: int, buffer: Bytes, at: int, size: int, position: int) -> int:
    """Fill buffer[at : at + size] from a file: how many bytes there were, below 0 when a read failed."""
    if at < 0 or size < 0 or at + size > buffer.size:
        raise IndexError("more than its buffer holds")
    done = 0
    while done < size:
        got = pread_call(pread, descriptor, buffer.ctypes.data + at + done, size - done, position + done)
        if got < 0:
            return got
        if got == 0:
            break
        done += got
    return done


@kernel
def bring(file: File, position: int, least: int, end: int) -> int:
    """Where in the buffer the byte at `position` of the file is, with `least` bytes from there on; as many as
    it holds before `end` are read where they are not. -1: they are not in the file.
    """
    if file.window[1] - position < least:
        size = min(file.buffer.size, end - position)
        got = read_into(file.descriptor, file.pread, file.buffer, 0, size, position)
        file.window[0] = position
        file.window[1] = position + max(got, 0)
        if got < least:
            return -1
    at: int = position - file.window[0]
    return at


@kernel
def crc_of(file: File, position: int, stop: int, end: int, before: int) -> int:
    """CRC-32C of [position, stop) of the file behind bytes that have `before`; -1: they are not there."""
    state: Any = numpy.int64(before ^ ALL_ONES)
    while position < stop:
        at = bring(file, position, 1, end)
        if at < 0:
            return -1
        size = min(stop, file.window[1]) - position
        state = numpy.int64(crc32c_call(file.crc32c, state, file.buffer.ctypes.data + at, size))
        position += size
    sealed: int = state ^ ALL_ONES
    return sealed


@kernel
def judge(file: File, end: int, known: Known, prefixes: Longs, state: Longs, table: Table) -> int:
    """Go on from the batch at `state[AT]` as long as all is good and `table`, one column a batch, has room:
    how many columns were filled, or BAD. All of it is good when `state[AT]` is `end` then.

    A table without columns is not filled, and the walk goes to the end. `state` begins as `first_state`;
    `prefixes` takes the checksums of the prefixes, one for each of `known.prefixes`, zeros before.
    """
    buffer, position, last_offset, count = file.buffer, state[AT], state[LAST], 0
    anchor, epoch = state[ANCHOR], state[EPOCH]
    while position < end and (count < table.shape[1] or table.shape[1] == 0):
        at = bring(file, position, HEADER_BYTES, end)
        if at < 0:
            return BAD
        size = batch_size(buffer, at)
        base_offset = read_unsigned(buffer, at, 8)
        if size == 0 or size > min(end - position, LARGEST_BATCH_BYTES) or base_offset <= last_offset:
            return BAD
        state[IS_APART] = base_offset != last_offset + 1
        state[GAPS] += state[IS_APART]
        last_offset = base_offset + read_int32(buffer, at + 23)
        if last_offset < base_offset:
            return BAD
        while epoch < known.epoch_starts.size and known.epoch_starts[epoch] <= base_offset:
            epoch += 1
        if known.epochs[epoch] >= 0 and known.epochs[epoch] != read_int32(buffer, at + 12):
            return BAD
        if anchor < known.positions.size and known.positions[anchor] < position + size:
            is_there = known.positions[anchor] == position
            if not is_there or known.offsets[anchor] != last_offset - known.base_offset:
                return BAD
            anchor += 1
        if table.shape[1]:
            fill_column(table, count, buffer, at, size, position)
            count += 1
        number = position // STRETCH_BYTES - known.first_prefixes
        if 0 <= number < prefixes.size:
            prefixes[number] = crc_of(file, position, position + PREFIX_BYTES, end, prefixes[number])
        expected = read_unsigned(buffer, at + CRC_POSITION, 4)
        if crc_of(file, position + ATTRIBUTES_POSITION, position + size, end, 0) != expected:
            return BAD
        position += size
    state[AT], state[LAST], state[ANCHOR], state[EPOCH] = position, last_offset, anchor, epoch
    if position == end and not _ends_well(known, prefixes, anchor, last_offset):
        return BAD
    return count


@kernel
def _ends_well(known: Known, prefixes: Longs, anchor: int, last_offset: int) -> bool:
    """Whether nothing is missing that was known, now that all batches were seen."""
    if anchor < known.positions.size or last_offset >= known.limit_offset:
        return False
    for number in range(prefixes.size):
        if known.prefixes[number] >= 0 and known.prefixes[number] != prefixes[number]:
            return False
    return True


def first_state(start: int, base_offset: int) -> Longs:
    """Of `judge`, for a stretch that begins at `start` and has no offset below `base_offset`."""
    state = numpy.zeros(STATE_ROWS, numpy.int64)
    state[AT], state[LAST] = start, base_offset - 1
    return state


def is_good(file: DataFile, place: Place, start: int, end: int, behind: int | None, anchors: Anchors) -> bool:
    """Whether `walk_stretch` would call [start, end) intact; False also where that has to be asked."""
    if would_load_numba() or file.disk is not SYSTEM_DISK:
        return False
    known = _known(place, start, end, behind, anchors)
    with file.descriptor() as descriptor:
        opened = open_file(descriptor, start)
        if opened is None:
            return False
        prefixes, state = numpy.zeros_like(known.prefixes), first_state(start, place.base_offset)
        return bool(judge(opened, end, known, prefixes, state, NO_TABLE) != BAD)


class WholeFile:
    """All batches of a file, each judged before it is told of. Owned by: the thread that walks.

    `is_intact`, when the walk has ended: nothing was wrong, so that `walk_stretch` would say the same of the
    file; `next_offset` and `is_apart` are as there. False also where that has to be asked.
    """

    def __init__(self, file: DataFile, place: Place) -> None:
        self._file = file
        self._place = place
        self._state = first_state(0, place.base_offset)
        self.is_intact = False

    def tables(self) -> Iterator[Table]:
        """Up to MOST_COLUMNS batches at a time, positions in the file. A table is valid until the next."""
        place = self._place
        is_small = would_load_numba() and place.size_bytes <= SMALL_BYTES  # Python is faster then
        if is_small or self._file.disk is not SYSTEM_DISK:
            return
        end, state = place.size_bytes, self._state
        known = _known(place, 0, end, place.end_offset, NO_ANCHORS)
        prefixes = numpy.zeros_like(known.prefixes)
        table = numpy.empty((TABLE_ROWS, min(end // HEADER_BYTES + 1, MOST_COLUMNS)), numpy.int64)
        with self._file.descriptor() as descriptor:
            opened = open_file(descriptor, 0)
            while opened is not None and not self.is_intact:
                count = judge(opened, end, known, prefixes, state, table)
                if count == BAD:
                    break
                self.is_intact = bool(state[AT] == end)
                if count:
                    yield numpy.ascontiguousarray(table[:, :count])

    @property
    def next_offset(self) -> int:
        """Behind the last batch."""
        return int(self._state[LAST]) + 1

    @property
    def is_apart(self) -> bool:
        """The only gap among the offsets is before the last batch."""
        return bool(self._state[GAPS] == 1 and self._state[IS_APART])


def _known(place: Place, start: int, end: int, behind: int | None, anchors: Anchors) -> Known:
    witness = place.witness or Witness(0, (), is_certain=True)
    return Known(
        place.base_offset,
        LARGEST_OFFSET if behind is None else behind,
        anchors.positions,
        anchors.offsets,
        *epoch_columns(place.epochs),
        witness.first,
        numpy.array(witness.within(start, end, place.size_bytes), numpy.int64),
    )


def compile_kernels() -> None:
    """Call each kernel once, so that its compiled form lies in the cache."""
    with Path(os.devnull).open("rb") as empty:  # no directory for temporary files is needed
        opened = open_file(empty.fileno(), 0)
        if opened is not None:
            known = _known(Place(0, 0, None, None), 0, 1, None, NO_ANCHORS)
            judge(opened, 1, known, numpy.zeros(0, numpy.int64), first_state(0, 0), NO_TABLE)
