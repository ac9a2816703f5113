"""A witness for the bytes that no batch checksum covers: base offset, length and leader epoch of each batch.

A closed segment's statistics keep a CRC-32C of these prefixes for each stretch of the `.log`, of all batches
that begin in it; of a cleaned segment they are in memory until its statistics are written. Where a stretch
has another one, and exactly one flipped bit of one prefix explains that, that batch is damaged and no other.
What no single bit explains is the whole stretch, if the statistics are beyond doubt of these batches;
otherwise they are taken for those of other batches, and say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import crc32c
import numpy

from protocol.batch import LENGTH_PREFIX_BYTES
from storage.batch_table import (
    BASE_OFFSET,
    LEADER_EPOCH,
    POSITION,
    SIZE_BYTES,
    Longs,
    Table,
)

Checksums = numpy.ndarray[Any, numpy.dtype[numpy.uint32]]

STRETCH_BYTES = 1 << 14
PREFIX = numpy.dtype([("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4")])

# The checksum is linear, so that those of single bytes give the table of its polynomial.
CRC_TABLE: Longs = numpy.array(
    [crc32c.crc32c(bytes([byte])) ^ crc32c.crc32c(bytes(1)) for byte in range(256)], numpy.int64
)


def stretches_in(size_bytes: int) -> int:
    """How many stretches a file of this size has."""
    return -(-size_bytes // STRETCH_BYTES)


def prefixes_of(batches: Table) -> bytes:
    """The first 16 bytes of each batch, as they are in the file."""
    made = numpy.empty(batches.shape[1], PREFIX)
    made["base_offset"] = batches[BASE_OFFSET]
    made["length"] = batches[SIZE_BYTES] - LENGTH_PREFIX_BYTES
    made["leader_epoch"] = batches[LEADER_EPOCH]
    return made.tobytes()


class Prefixes:
    """Checksums of the stretches of a file, from tables of its batches in order."""

    def __init__(self) -> None:
        self._checksums: dict[int, int] = {}

    def add(self, batches: Table, position: int = 0) -> None:
        """Batches whose positions are relative to `position` of the file."""
        data = prefixes_of(batches)
        numbers = (batches[POSITION] + position) // STRETCH_BYTES
        begins = [0, *(numpy.flatnonzero(numpy.diff(numbers)) + 1).tolist()]
        ends = [*begins[1:], len(numbers)]
        for begin, end, number in zip(begins, ends, numbers[begins].tolist(), strict=True):
            part = data[begin * PREFIX.itemsize : end * PREFIX.itemsize]
            self._checksums[number] = crc32c.crc32c(part, self.of(number))

    def of(self, stretch: int) -> int:
        """0 where no batch begins."""
        return self._checksums.get(stretch, 0)

    def packed(self, size_bytes: int) -> Checksums:
        """Of all stretches of a file of this size."""
        return numpy.fromiter(map(self.of, range(stretches_in(size_bytes))), numpy.uint32)


class Witness(NamedTuple):
    """What the statistics of a segment say of its stretches from number `first` on."""

    first: int
    checksums: Sequence[int]
    is_certain: bool  # they are of these very batches, and not only of as many bytes

    def within(self, start: int, end: int, size_bytes: int) -> list[int]:
        """The checksums, -1 in place of those of stretches that do not lie in [start, end) of a file of so
        many bytes.
        """
        begins = [number * STRETCH_BYTES for number in range(self.first, self.first + len(self.checksums))]
        return [
            checksum if start <= begin and min(begin + STRETCH_BYTES, size_bytes) <= end else -1
            for begin, checksum in zip(begins, self.checksums, strict=True)
        ]

    def agrees(self, found: Prefixes, start: int, end: int, size_bytes: int) -> bool:
        """Whether the stretches that lie in [start, end) of a file of so many bytes are as they were."""
        expected = self.within(start, end, size_bytes)
        return all(one < 0 or one == found.of(number) for number, one in enumerate(expected, self.first))

    def right(self, batches: Table, start: int, size_bytes: int) -> Any:
        """Which of `batches`, all good ones of a file behind `start`, are as they were; those of a stretch
        that has a damaged place anyway count as such.
        """
        starts = batches[POSITION]
        ends = starts + batches[SIZE_BYTES]
        good = numpy.ones(len(starts), bool)
        for number, expected in enumerate(self.checksums, self.first):
            begin = number * STRETCH_BYTES
            stop = min(begin + STRETCH_BYTES, size_bytes)
            low, high = numpy.searchsorted(starts, (begin, stop)).tolist()
            if low == high or begin < start:
                continue
            before = int(ends[low - 1]) if low else start
            is_whole = starts[low] == before and ends[high - 1] >= stop
            if not is_whole or (starts[low + 1 : high] != ends[low : high - 1]).any():
                continue
            data = prefixes_of(batches[:, low:high])
            if crc32c.crc32c(data) == expected:
                continue
            bit = flipped_bit(data, expected)
            if bit is not None:
                good[low + bit // (8 * PREFIX.itemsize)] = False
            elif self.is_certain:
                good[low:high] = False
        return good


def flipped_bit(data: bytes, expected: int) -> int | None:
    """The one bit of `data` (byte * 8 + bit) that has to be turned for its CRC-32C to be `expected`."""
    wanted = crc32c.crc32c(data) ^ expected
    effects = CRC_TABLE[1 << numpy.arange(8)]  # of the bits of the last byte
    for byte in range(len(data) - 1, -1, -1):
        found = numpy.flatnonzero(effects == wanted)
        if found.size:
            return 8 * byte + int(found[0])
        effects = (effects >> 8) ^ CRC_TABLE[effects & 0xFF]
    return None
