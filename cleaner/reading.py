"""Closed segments as chunks of whole batches, several MiB at a time, for the kernels.

A batch larger than the buffer makes the buffer grow for that one batch (T41, T60); what is no batch, or
claims to be longer than the file, is damage (T62, T63) and never grows anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy

from cleaner.offset_map import Bytes, Longs
from cleaner.pauses import new_pauses
from cleaner.read_kernels import IS_THERE, read_batches
from protocol.batch import HEADER_BYTES
from protocol.native import MISSING, libc_address
from storage.batch_table import BASE_OFFSET, TABLE_ROWS, batch_size
from storage.batch_table import BROKEN as NO_BATCH
from storage.checksums import UNDAMAGED, crc32c
from storage.file import SYSTEM_DISK
from storage.layout import LARGEST_OFFSET
from storage.segment import Segment

FAILS_CHECKSUM = "fails its checksum"


class CorruptSegment(Exception):
    """Bytes that cannot be right. The partition is set aside, its files are untouched."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of a segment: their bytes, and a column of `batches` for each."""

    segment: Segment
    data: memoryview
    array: Bytes
    batches: Longs
    count: int

    @property
    def columns(self) -> Longs:
        return self.batches[:, : self.count]

    def corrupt(self, index: int, problem: str) -> CorruptSegment:
        offset = int(self.batches[BASE_OFFSET, index])
        return CorruptSegment(f"the batch at offset {offset} of {self.segment.file.path.name} {problem}")


class ChunkReader:
    """Owned by: one cleaner thread. `account` is told of all bytes read, and may hold the reader up or
    raise. `ends` are positions that count as the end of a segment which is still written.
    """

    def __init__(
        self, read_bytes: int, account: Callable[[int], None], ends: Mapping[Segment, int] | None = None
    ) -> None:
        self.read_bytes = max(read_bytes, HEADER_BYTES)
        self.pauses = new_pauses()
        """of all kernels that this thread calls"""
        self._account = account
        self._ends = ends or {}
        self._crc32c = crc32c()
        self._pread = libc_address("pread")
        self._buffer = numpy.empty(self.read_bytes, numpy.uint8)
        self._batches = numpy.empty((TABLE_ROWS, self.read_bytes // HEADER_BYTES + 1), numpy.int64)

    def chunks(
        self, segment: Segment, position: int = 0, checked_to: int = LARGEST_OFFSET
    ) -> Iterator[Chunk]:
        """All batches from `position`, which is where one begins. A chunk is valid until the next is asked
        for. CorruptSegment where a batch up to the offset `checked_to` fails its checksum.
        """
        end = self._ends.get(segment, segment.size_bytes)
        segment.check(position, end)  # what is rewritten gets a new file, in which no flip could be told
        if segment.damages:
            first = segment.damages[0]
            raise CorruptSegment(f"{segment.file.path.name} is damaged at offset {first.first_offset}")
        wanted = self.read_bytes
        while position < end:
            asked = min(wanted, end - position)
            if self._buffer.size < asked or asked <= self.read_bytes < self._buffer.size:
                self._buffer = numpy.empty(max(asked, self.read_bytes), numpy.uint8)
            got, count, stopped, reason, damaged = self._read(segment, position, asked, checked_to)
            self._account(got)
            if got < asked:
                raise CorruptSegment(f"{segment.file.path.name} is shorter than {end} bytes")
            array = self._buffer[:asked]
            if count == 0:
                wanted = self._larger(segment, position, array, reason, end)
                continue
            wanted = self.read_bytes
            chunk = Chunk(segment, array.data, array, self._batches, count)
            if damaged != UNDAMAGED:
                raise chunk.corrupt(damaged, FAILS_CHECKSUM)
            yield chunk
            position += stopped

    def _read(self, segment: Segment, position: int, size: int, checked_to: int) -> Sequence[int]:
        """What `read_batches` says of these bytes, which are in the buffer then."""
        more = (size, self._buffer, self._pread, self._batches, checked_to, self._crc32c, self.pauses)
        file = segment.file
        if self._pread != MISSING and file.disk is SYSTEM_DISK:
            with file.descriptor() as descriptor:
                if not file.has_readahead:  # or each piece would wait for the disk by itself
                    file.disk.prefetch(descriptor, size, position)
                found = [int(number) for number in read_batches(descriptor, position, *more)]
            if found[0] >= 0:
                return found
        data = segment.read_at(position, size)  # raises what is wrong
        self._buffer[: len(data)] = numpy.frombuffer(data, numpy.uint8)
        if len(data) < size:
            return len(data), 0, 0, 0, UNDAMAGED
        return [int(number) for number in read_batches(IS_THERE, position, *more)]

    def _larger(self, segment: Segment, position: int, array: Bytes, reason: int, end: int) -> int:
        """How many bytes the batch at `position` takes, of which `array` holds too few; not beyond `end`."""
        name = segment.file.path.name
        left = end - position
        if reason == NO_BATCH or left < HEADER_BYTES:
            raise CorruptSegment(f"no batch begins at position {position} of {name}")
        size = int(batch_size(array, 0))
        if size > left:
            raise CorruptSegment(
                f"the batch at position {position} of {name} claims {size} bytes where {left} are left"
            )
        return size
