"""CRC-32C of many batches in a chunk: compared where bytes are read, set where batches were written anew.

The library's checksum runs at memory speed but costs a Python call a batch, and of a large one the GIL. So it
is called from within a kernel that does all batches at once; where it has no such function, a table does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from protocol.batch import ATTRIBUTES_POSITION, CRC_POSITION
from protocol.kernel import early, kernel
from protocol.native import ALL_ONES, MISSING, crc32c_address, crc32c_call
from storage.batch_table import CHECKSUM, POSITION, SIZE_BYTES, Bytes, Longs

POLYNOMIAL = 0x82F63B78
UNDAMAGED = -1

Words = numpy.ndarray[Any, numpy.dtype[numpy.uint32]]


def _make_tables() -> Words:
    """Eight tables of 256: what a byte contributes when 0 ... 7 bytes follow it."""
    tables = numpy.zeros((8, 256), numpy.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for byte in range(256):
        for row in range(1, 8):
            before = int(tables[row - 1, byte])
            tables[row, byte] = (before >> 8) ^ int(tables[0, before & 0xFF])
    tables.flags.writeable = False
    return tables


_TABLES = _make_tables()


@kernel
def crc_by_table(data: Any, start: int, end: int, tables: Words) -> int:
    """CRC-32C of data[start:end]."""
    crc: Any = ALL_ONES
    position = start
    while position + 8 <= end:
        low: Any = 0
        for index in range(4):
            low |= numpy.int64(data[position + index]) << (8 * index)
        low ^= crc
        crc = numpy.int64(tables[7, low & 0xFF]) ^ numpy.int64(tables[6, (low >> 8) & 0xFF])
        crc ^= numpy.int64(tables[5, (low >> 16) & 0xFF]) ^ numpy.int64(tables[4, low >> 24])
        for index in range(4):
            crc ^= numpy.int64(tables[3 - index, data[position + 4 + index]])
        position += 8
    while position < end:
        crc = (crc >> 8) ^ numpy.int64(tables[0, (crc ^ numpy.int64(data[position])) & 0xFF])
        position += 1
    sealed: int = crc ^ ALL_ONES
    return sealed


class Crc32c(NamedTuple):
    """What a kernel needs for a checksum: the tables, and the address of the library's function."""

    tables: Any
    address: int


def crc32c() -> Crc32c:
    return Crc32c(_TABLES, crc32c_address())


@kernel
def checksum(data: Any, start: int, end: int, crc32c: Crc32c) -> int:
    """CRC-32C of data[start:end], by the library's function where there is one."""
    if not 0 <= start <= end <= data.size:
        raise IndexError("a checksum of bytes that are not there")
    if crc32c.address == MISSING:
        return crc_by_table(data, start, end, crc32c.tables)
    crc: Any = crc32c_call(crc32c.address, ALL_ONES, data.ctypes.data + start, end - start)
    return numpy.int64(crc) ^ ALL_ONES  # type: ignore[return-value]


@kernel
def is_damaged(chunk: Bytes, batches: Longs, index: int, crc32c: Crc32c) -> bool:
    """Whether a batch fails its checksum."""
    position = batches[POSITION, index]
    end = position + batches[SIZE_BYTES, index]
    return bool(checksum(chunk, position + ATTRIBUTES_POSITION, end, crc32c) != batches[CHECKSUM, index])


@early
@kernel
def first_damaged(chunk: Bytes, batches: Longs, count: int, crc32c: Crc32c) -> int:
    """The first of `count` batches that fails its checksum, or UNDAMAGED."""
    for index in range(count):
        if is_damaged(chunk, batches, index, crc32c):
            return index
    return UNDAMAGED


@kernel
def seal(output: Bytes, at: int, end: int, crc32c: Crc32c) -> None:
    """Write the checksum of the batch output[at:end]."""
    crc = checksum(output, at + ATTRIBUTES_POSITION, end, crc32c)
    for byte in range(4):
        output[at + CRC_POSITION + byte] = (crc >> (24 - 8 * byte)) & 0xFF
