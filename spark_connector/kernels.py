"""Kernels from fetched bytes to column buffers: find the batches, walk their records, copy keys and values.

Two passes over the records: `locate_rows` checks every length against its batch and notes where things are,
then each column is copied into a buffer of exactly its size. The bytes are a peer's, so every copy is checked
too.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy

from protocol.kernel import kernel
from protocol.record_kernels import (
    BAD_RECORD_COUNT,
    HEADER_COUNT,
    HEADERS_POSITION,
    INT_BITS,
    KEY_BYTES,
    KEY_POSITION,
    OFFSET_DELTA,
    OK,
    RECORD_BYTES,
    TIMESTAMP_DELTA,
    VALUE_BYTES,
    VALUE_POSITION,
    locate_record,
    read_varint,
)

Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]
Ints = numpy.ndarray[Any, numpy.dtype[numpy.int32]]
Longs = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

# The fields of a row in a batch table: one batch as `scan_batches` finds it.
POSITION = 0  # of the batch in the scanned bytes
SIZE_BYTES = 1
BASE_OFFSET = 2
NEXT_OFFSET = 3
ATTRIBUTES = 4
BASE_TIMESTAMP = 5
MAX_TIMESTAMP = 6
PRODUCER_ID = 7
RECORD_COUNT = 8
CRC = 9
PAYLOAD_START = 10  # of the records, decompressed; set by whoever decompresses
PAYLOAD_END = 11
BATCH_FIELDS = 12

BATCH_HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
MAGIC_POSITION = 16
MAGIC = 2
LOG_APPEND_TIME = 0x08

SCANNED = 0
WRONG_MAGIC = 1
WRONG_LENGTH = 2

MICROSECONDS = 1000

if numba.config.DISABLE_JIT:

    def copy_block(output: Bytes, position: int, source: Bytes, start: int, size: int) -> None:
        """Copy source[start : start + size] to output[position:]; the caller has checked both ends."""
        output[position : position + size] = source[start : start + size]

else:
    from numba.core import cgutils
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def copy_block(typing: Any, output: Any, position: Any, source: Any, start: Any, size: Any) -> Any:
        """One memcpy: for values of 88 bytes ten times as fast as numba's own slice assignment."""
        signature = numba.types.void(output, numba.types.intp, source, numba.types.intp, numba.types.intp)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target = context.make_array(signature.args[0])(context, builder, arguments[0])
            origin = context.make_array(signature.args[2])(context, builder, arguments[2])
            to = builder.gep(target.data, [arguments[1]])
            at = builder.gep(origin.data, [arguments[3]])
            cgutils.raw_memcpy(builder, to, at, arguments[4], 1)
            return context.get_dummy_value()

        return signature, generate


@kernel
def read_big_endian(data: Bytes, position: int, size: int) -> int:
    """The signed big-endian integer of `size` bytes at `position`."""
    number = int(data[position])
    if number > 127:
        number -= 256
    for index in range(1, size):
        number = (number << 8) | int(data[position + index])
    return number


@kernel
def scan_batches(data: Bytes, position: int, table: Longs) -> tuple[int, int, int]:
    """Fill one row of `table` for each whole batch from `position` on: (batches, next position, fault).

    Ends at an incomplete tail, at a full table and at bytes that are no batch (WRONG_MAGIC or WRONG_LENGTH).
    """
    count = 0
    while count < table.shape[0] and data.size - position > MAGIC_POSITION:
        if data[position + MAGIC_POSITION] != MAGIC:
            return count, position, WRONG_MAGIC
        size = read_big_endian(data, position + 8, 4) + LENGTH_PREFIX_BYTES
        if size < BATCH_HEADER_BYTES:
            return count, position, WRONG_LENGTH
        if size > data.size - position:
            break
        row = table[count]
        row[POSITION] = position
        row[SIZE_BYTES] = size
        row[BASE_OFFSET] = read_big_endian(data, position, 8)
        row[CRC] = read_big_endian(data, position + 17, 4) & 0xFFFFFFFF
        row[ATTRIBUTES] = read_big_endian(data, position + 21, 2)
        row[NEXT_OFFSET] = row[BASE_OFFSET] + read_big_endian(data, position + 23, 4) + 1
        row[BASE_TIMESTAMP] = read_big_endian(data, position + 27, 8)
        row[MAX_TIMESTAMP] = read_big_endian(data, position + 35, 8)
        row[PRODUCER_ID] = read_big_endian(data, position + 43, 8)
        row[RECORD_COUNT] = read_big_endian(data, position + 57, 4)
        row[PAYLOAD_START] = position + BATCH_HEADER_BYTES
        row[PAYLOAD_END] = position + size
        count += 1
        position += size
    return count, position, SCANNED


@kernel
def locate_rows(
    data: Bytes,
    batches: Longs,
    start: int,
    end: int,
    rows: Longs,
    offsets: Longs,
    timestamps: Longs,
    timestamp_types: Ints,
) -> tuple[int, int, int]:
    """Walk the records of `batches` and keep those with start <= offset < end: (rows, fault, batch index).

    `rows` gets one row of `record_kernels` fields a record, positions counted from the start of `data`;
    `timestamps` are microseconds. There is room for as many rows as the batches announce.
    """
    count = 0
    for index in range(batches.shape[0]):
        batch = batches[index]
        origin = batch[PAYLOAD_START]
        payload = data[origin : batch[PAYLOAD_END]]
        is_append_time = (batch[ATTRIBUTES] & LOG_APPEND_TIME) != 0
        position = 0
        for _ in range(batch[RECORD_COUNT]):
            if position >= payload.size:
                return count, BAD_RECORD_COUNT, index
            row = rows[count]
            fault = locate_record(payload, position, row)
            if fault != OK:
                return count, fault, index
            position += row[RECORD_BYTES]
            offset = batch[BASE_OFFSET] + row[OFFSET_DELTA]
            if offset < start or offset >= end:
                continue
            row[KEY_POSITION] += origin
            row[VALUE_POSITION] += origin
            row[HEADERS_POSITION] += origin
            offsets[count] = offset
            timestamp_types[count] = 1 if is_append_time else 0
            if is_append_time:
                timestamps[count] = batch[MAX_TIMESTAMP] * MICROSECONDS
            else:
                timestamps[count] = (batch[BASE_TIMESTAMP] + row[TIMESTAMP_DELTA]) * MICROSECONDS
            count += 1
        if position != payload.size:
            return count, BAD_RECORD_COUNT, index
    return count, OK, 0


@kernel
def measure_column(rows: Longs, size_field: int) -> tuple[int, int]:
    """How many bytes a column of keys or values takes, and how many rows are null."""
    total = 0
    nulls = 0
    for index in range(rows.shape[0]):
        size = rows[index, size_field]
        if size < 0:
            nulls += 1
        else:
            total += size
    return total, nulls


@kernel
def copy_column(
    data: Bytes, rows: Longs, position_field: int, size_field: int, ends: Ints, validity: Bytes, output: Bytes
) -> bool:
    """Copy a column into Arrow's layout: `ends` n + 1 offsets, `validity` zeroed bits (empty: no nulls)."""
    written = 0
    ends[0] = 0
    for index in range(rows.shape[0]):
        start = rows[index, position_field]
        size = rows[index, size_field]
        if size >= 0:
            if start < 0 or start + size > data.size or written + size > output.size:
                return False
            copy_block(output, written, data, start, size)
            written += size
            if validity.size > 0:
                validity[index >> 3] |= 1 << (index & 7)
        ends[index + 1] = written
    return written == output.size


@kernel
def measure_headers(data: Bytes, rows: Longs) -> tuple[int, int, int]:
    """(headers, bytes of their keys, bytes of their values) of all rows; -1 headers when they are broken."""
    count = 0
    key_bytes = 0
    value_bytes = 0
    for index in range(rows.shape[0]):
        position = rows[index, HEADERS_POSITION]
        for _ in range(rows[index, HEADER_COUNT]):
            size, position = read_varint(data, position, data.size, INT_BITS)
            if position < 0 or size < 0 or size > data.size - position:
                return -1, 0, 0
            key_bytes += size
            position += size
            size, position = read_varint(data, position, data.size, INT_BITS)
            if position < 0 or size > data.size - position:
                return -1, 0, 0
            if size > 0:
                value_bytes += size
                position += size
            count += 1
    return count, key_bytes, value_bytes


@kernel
def copy_headers(
    data: Bytes,
    rows: Longs,
    list_ends: Ints,
    list_validity: Bytes,
    key_ends: Ints,
    keys: Bytes,
    value_ends: Ints,
    value_validity: Bytes,
    values: Bytes,
) -> None:
    """Fill the buffers of a `list<struct<key, value>>` column that `measure_headers` gave the sizes of.

    A record without headers is a null, as in Spark's own source; so is a header's absent value.
    """
    header = 0
    key_end = 0
    value_end = 0
    list_ends[0] = 0
    key_ends[0] = 0
    value_ends[0] = 0
    for index in range(rows.shape[0]):
        position = rows[index, HEADERS_POSITION]
        count = rows[index, HEADER_COUNT]
        if count > 0:
            list_validity[index >> 3] |= 1 << (index & 7)
        for _ in range(count):
            size, position = read_varint(data, position, data.size, INT_BITS)
            copy_block(keys, key_end, data, position, size)
            key_end += size
            position += size
            size, position = read_varint(data, position, data.size, INT_BITS)
            if size >= 0:
                copy_block(values, value_end, data, position, size)
                value_end += size
                position += size
                value_validity[header >> 3] |= 1 << (header & 7)
            header += 1
            key_ends[header] = key_end
            value_ends[header] = value_end
        list_ends[index + 1] = header


KEY_FIELDS = (KEY_POSITION, KEY_BYTES)
VALUE_FIELDS = (VALUE_POSITION, VALUE_BYTES)
