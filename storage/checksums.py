"""CRC-32C of many batches in a chunk: compared where bytes are read, set where batches were written anew.

The library's checksum runs at memory speed but costs a Python call a batch, which matters when a batch is one
small record. Small batches are therefore done in a kernel, eight bytes a step.
"""

from __future__ import annotations

from typing import Any

import crc32c
import numpy

from protocol.batch import ATTRIBUTES_POSITION, CRC_POSITION
from protocol.kernel import early, kernel
from storage.batch_table import CHECKSUM, HEADER_BYTES, POSITION, SIZE_BYTES, Bytes, Longs

SMALL_BATCH_BYTES = 512
POLYNOMIAL = 0x82F63B78
UNDAMAGED = -1

_CRC_AT = 17
_COVERED_FROM = 21
assert (_CRC_AT, _COVERED_FROM) == (CRC_POSITION, ATTRIBUTES_POSITION)

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
def small_crc(data: Any, start: int, end: int, tables: Words) -> int:
    """CRC-32C of data[start:end]."""
    crc: Any = 0xFFFFFFFF
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
    sealed: int = crc ^ 0xFFFFFFFF
    return sealed


@early
@kernel
def damaged_small(chunk: Bytes, batches: Longs, indices: Longs, limit_bytes: int, tables: Words) -> int:
    """The first of the batches `indices` below `limit_bytes` that fails its checksum, or UNDAMAGED."""
    for index in indices:
        size: Any = batches[SIZE_BYTES, index]
        if size < limit_bytes:
            position = batches[POSITION, index]
            found = small_crc(chunk, position + _COVERED_FROM, position + size, tables)
            if found != batches[CHECKSUM, index]:
                return int(index)
    return UNDAMAGED


@kernel
def seal_small(output: Bytes, positions: Longs, sizes: Longs, limit_bytes: int, tables: Words) -> None:
    """Write the checksum of those batches of `output` that are below `limit_bytes`."""
    for index in range(positions.size):
        if sizes[index] < limit_bytes:
            position = positions[index]
            crc = small_crc(output, position + _COVERED_FROM, position + sizes[index], tables)
            for byte in range(4):
                output[position + _CRC_AT + byte] = (crc >> (24 - 8 * byte)) & 0xFF


def find_damaged(data: bytes, chunk: Bytes, batches: Longs, indices: Longs) -> int:
    """The first of the batches `indices` (columns of `batches`) that fails its checksum, or UNDAMAGED."""
    if not indices.size:
        return UNDAMAGED
    damaged = damaged_small(chunk, batches, indices, SMALL_BATCH_BYTES, _TABLES)
    if damaged != UNDAMAGED:
        return int(damaged)
    large = indices[batches[SIZE_BYTES, indices] >= SMALL_BATCH_BYTES]
    if not large.size:
        return UNDAMAGED
    view = memoryview(data)
    columns = batches[:, large]
    starts = (columns[POSITION] + ATTRIBUTES_POSITION).tolist()
    ends = (columns[POSITION] + columns[SIZE_BYTES]).tolist()
    checksum = crc32c.crc32c
    for index, start, end, expected in zip(
        large.tolist(), starts, ends, columns[CHECKSUM].tolist(), strict=True
    ):
        if checksum(view[start:end]) != expected:
            return int(index)
    return UNDAMAGED


def seal(output: Bytes, positions: Longs) -> None:
    """Write the checksums of the batches that begin at `positions` of `output`."""
    if not positions.size:
        return
    lengths = output[positions[:, None] + numpy.arange(8, 12)].astype(numpy.int64)
    sizes = (lengths << numpy.array([24, 16, 8, 0])).sum(axis=1) + 12
    seal_small(output, positions, sizes, SMALL_BATCH_BYTES, _TABLES)
    view = output.data
    for position, size in zip(positions.tolist(), sizes.tolist(), strict=True):
        if size >= SMALL_BATCH_BYTES:
            crc = crc32c.crc32c(view[position + ATTRIBUTES_POSITION : position + size])
            view[position + CRC_POSITION : position + CRC_POSITION + 4] = crc.to_bytes(4, "big")


assert HEADER_BYTES > _COVERED_FROM
