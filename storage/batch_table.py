"""Kernels over stored batches: walk many headers without a Python step a batch.

A chunk of a `.log` file becomes a table of int64 rows, one column a batch. Nothing is believed: the walk
stops at the first bytes that cannot be a whole batch of magic 2, and says where. Checksums are compared by
the caller.
"""

from __future__ import annotations

from typing import Any

import numpy

from protocol.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC
from protocol.kernel import early, kernel

Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]
Longs = numpy.ndarray[Any, numpy.dtype[numpy.int64]]
Table = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

POSITION = 0
SIZE_BYTES = 1
BASE_OFFSET = 2
LAST_OFFSET = 3
LEADER_EPOCH = 4
CHECKSUM = 5
ATTRIBUTES = 6
MAX_TIMESTAMP = 7
PRODUCER_ID = 8
RECORD_COUNT = 9
TABLE_ROWS = 10

COMPLETE = 0  # the walk ended exactly at the end of the chunk
CUT = 1  # the chunk ends within a batch
BROKEN = 2  # no batch can begin here

NOT_FOUND = -1


@kernel
def read_unsigned(chunk: Bytes, position: int, size: int) -> int:
    """`size` big-endian bytes; of 8 bytes the sign is right, of fewer it is the caller's."""
    value: Any = numpy.int64(0)
    for index in range(position, position + size):
        value = (value << 8) | numpy.int64(chunk[index])
    return value  # type: ignore[no-any-return]


@kernel
def read_int32(chunk: Bytes, position: int) -> int:
    value: int = read_unsigned(chunk, position, 4)
    if value >= 0x80000000:
        value -= 0x100000000
    return value


@kernel
def batch_size(chunk: Bytes, position: int) -> int:
    """Bytes of the batch at `position`, 0 when no batch begins there; 61 bytes must be there."""
    size_bytes = read_int32(chunk, position + 8) + LENGTH_PREFIX_BYTES
    if size_bytes < HEADER_BYTES or chunk[position + 16] != MAGIC or read_int32(chunk, position + 23) < 0:
        return 0
    return size_bytes


@kernel
def fill_column(table: Table, column: int, chunk: Bytes, at: int, size_bytes: int, position: int) -> None:
    """What the header at `at` of `chunk` says of a batch; for who reads the table it is at `position`."""
    base_offset = read_unsigned(chunk, at, 8)
    table[POSITION, column] = position
    table[SIZE_BYTES, column] = size_bytes
    table[BASE_OFFSET, column] = base_offset
    table[LAST_OFFSET, column] = base_offset + read_int32(chunk, at + 23)
    table[LEADER_EPOCH, column] = read_int32(chunk, at + 12)
    table[CHECKSUM, column] = read_unsigned(chunk, at + 17, 4)
    table[ATTRIBUTES, column] = read_unsigned(chunk, at + 21, 2)
    table[MAX_TIMESTAMP, column] = read_unsigned(chunk, at + 35, 8)
    table[PRODUCER_ID, column] = read_unsigned(chunk, at + 43, 8)
    table[RECORD_COUNT, column] = read_int32(chunk, at + 57)


@early
@kernel
def walk_batches(chunk: Bytes, table: Table) -> tuple[int, int, int]:
    """Fill a column for each whole batch: (how many, where the walk stopped, why).

    A full table stops the walk too, with CUT.
    """
    position = 0
    count = 0
    while position < chunk.size:
        if chunk.size - position < HEADER_BYTES or count == table.shape[1]:
            return count, position, CUT
        size_bytes = batch_size(chunk, position)
        if size_bytes == 0:
            return count, position, BROKEN
        if size_bytes > chunk.size - position:
            return count, position, CUT
        fill_column(table, count, chunk, position, size_bytes, position)
        position += size_bytes
        count += 1
    return count, position, COMPLETE


@early
@kernel
def find_batch(chunk: Bytes, offset: int) -> tuple[int, int, int]:
    """(where the first batch begins whose last offset is at least `offset`, or NOT_FOUND; where the walk
    stopped; why). The batch itself may be cut off.
    """
    position = 0
    while position < chunk.size:
        if chunk.size - position < HEADER_BYTES:
            return NOT_FOUND, position, CUT
        size_bytes = batch_size(chunk, position)
        if size_bytes == 0:
            return NOT_FOUND, position, BROKEN
        if read_unsigned(chunk, position, 8) + read_int32(chunk, position + 23) >= offset:
            return position, position, COMPLETE
        position += size_bytes
    return NOT_FOUND, position, COMPLETE if position == chunk.size else CUT


@early
@kernel
def whole_batches(chunk: Bytes, start: int) -> tuple[int, int]:
    """The end of the last whole batch at or behind `start`, and the offset behind it (-1: there is none)."""
    position = start
    next_offset = -1
    while chunk.size - position >= HEADER_BYTES:
        size_bytes = batch_size(chunk, position)
        if size_bytes == 0 or size_bytes > chunk.size - position:
            break
        next_offset = read_unsigned(chunk, position, 8) + read_int32(chunk, position + 23) + 1
        position += size_bytes
    return position, next_offset


@early
@kernel
def choose_entries(table: Table, state: Longs, interval_bytes: int, entries: Table) -> int:
    """The index entries that appending these batches one by one makes (Kafka's `LogSegment.append`).

    `state` (bytes since the last entry, largest timestamp, its offset, next position) is carried from call to
    call. Columns of `entries`: last offset, position, largest timestamp so far, its offset.
    """
    count = 0
    for column in range(table.shape[1]):
        last_offset = table[LAST_OFFSET, column]
        if table[MAX_TIMESTAMP, column] > state[1]:
            state[1] = table[MAX_TIMESTAMP, column]
            state[2] = last_offset
        if state[0] > interval_bytes:
            entries[0, count] = last_offset
            entries[1, count] = state[3]
            entries[2, count] = state[1]
            entries[3, count] = state[2]
            count += 1
            state[0] = 0
        state[0] += table[SIZE_BYTES, column]
        state[3] += table[SIZE_BYTES, column]
    return count


def as_chunk(data: bytes | bytearray | memoryview) -> Bytes:
    """A read-only view: the one type that the kernels are compiled for."""
    view = numpy.frombuffer(data, numpy.uint8)
    if view.flags.writeable:
        view.flags.writeable = False
    return view


def read_table(data: bytes | bytearray | memoryview) -> tuple[Table, int, int]:
    """The table of the whole batches in `data`, where the walk stopped and why."""
    chunk = as_chunk(data)
    table = numpy.empty((TABLE_ROWS, len(data) // HEADER_BYTES + 1), numpy.int64)
    count, end, reason = walk_batches(chunk, table)
    return numpy.ascontiguousarray(table[:, :count]), end, reason


def compile_kernels() -> None:
    """Call each kernel once, so that its compiled form lies in the cache."""
    table, _, _ = read_table(bytes(HEADER_BYTES))
    chunk = as_chunk(bytes(HEADER_BYTES))
    find_batch(chunk, 0)
    whole_batches(chunk, 0)
    choose_entries(table, numpy.zeros(4, numpy.int64), 0, numpy.empty((4, 1), numpy.int64))
