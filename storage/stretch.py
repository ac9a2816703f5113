"""Whether a stretch of a `.log` is what was written, told by one call without the GIL.

The rules are those of `integrity.walk_stretch`; here a stretch is read a piece at a time into a buffer that
stays in the core's cache, while it comes from the disk, and each batch is judged where it lies. What is good
is good; of all else nothing is said but that, and `walk_stretch` finds out what is wrong.
"""

from __future__ import annotations

import tempfile
from typing import Any, NamedTuple

import numpy

from protocol.batch import ATTRIBUTES_POSITION, CRC_POSITION
from protocol.kernel import kernel, would_load_numba
from protocol.native import ALL_ONES, MISSING, crc32c_address, crc32c_call, libc_address, pread_call
from storage.batch_table import HEADER_BYTES, Bytes, Longs, batch_size, read_int32, read_unsigned
from storage.file import SYSTEM_DISK, DataFile
from storage.integrity import LARGEST_BATCH_BYTES, NO_ANCHORS, Anchors, Place, epoch_columns
from storage.layout import LARGEST_OFFSET
from storage.prefixes import PREFIX, STRETCH_BYTES, Witness

PIECE_BYTES = 64 * 1024
PREFIX_BYTES = PREFIX.itemsize


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
def is_intact(file: File, start: int, end: int, known: Known, found: Longs) -> bool:
    """Whether [start, end) is nothing but good batches in order that contradict nothing that is known.

    `found` takes the checksums of the prefixes, one for each of `known.prefixes`; zeros before.
    """
    buffer, position, last_offset = file.buffer, start, known.base_offset - 1
    anchor = epoch = 0
    while position < end:
        at = bring(file, position, HEADER_BYTES, end)
        if at < 0:
            return False
        size = batch_size(buffer, at)
        base_offset = read_unsigned(buffer, at, 8)
        if size == 0 or size > min(end - position, LARGEST_BATCH_BYTES) or base_offset <= last_offset:
            return False
        last_offset = base_offset + read_int32(buffer, at + 23)
        if last_offset < base_offset:
            return False
        while epoch < known.epoch_starts.size and known.epoch_starts[epoch] <= base_offset:
            epoch += 1
        if known.epochs[epoch] >= 0 and known.epochs[epoch] != read_int32(buffer, at + 12):
            return False
        if anchor < known.positions.size and known.positions[anchor] < position + size:
            is_there = known.positions[anchor] == position
            if not is_there or known.offsets[anchor] != last_offset - known.base_offset:
                return False
            anchor += 1
        number = position // STRETCH_BYTES - known.first_prefixes
        if 0 <= number < found.size:
            found[number] = crc_of(file, position, position + PREFIX_BYTES, end, found[number])
        expected = read_unsigned(buffer, at + CRC_POSITION, 4)
        if crc_of(file, position + ATTRIBUTES_POSITION, position + size, end, 0) != expected:
            return False
        position += size
    if anchor < known.positions.size or last_offset >= known.limit_offset:
        return False
    for number in range(found.size):
        if known.prefixes[number] >= 0 and known.prefixes[number] != found[number]:
            return False
    return True


def is_good(file: DataFile, place: Place, start: int, end: int, behind: int | None, anchors: Anchors) -> bool:
    """Whether `walk_stretch` would call [start, end) intact; False also where that has to be asked."""
    if would_load_numba() or file.disk is not SYSTEM_DISK:
        return False
    known = _known(place, start, end, behind, anchors)
    with file.descriptor() as descriptor:
        opened = open_file(descriptor, start)
        return opened is not None and bool(
            is_intact(opened, start, end, known, numpy.zeros(known.prefixes.size, numpy.int64))
        )


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
    with tempfile.TemporaryFile() as empty:
        opened = open_file(empty.fileno(), 0)
        if opened is not None:
            is_intact(
                opened,
                0,
                1,
                _known(Place(0, 0, None, None), 0, 1, None, NO_ANCHORS),
                numpy.zeros(0, numpy.int64),
            )
