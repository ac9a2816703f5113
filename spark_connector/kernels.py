"""Kernels from fetched bytes to column buffers: find the batches, walk their records, copy keys and values.

Two passes over the records: `locate_rows` checks every length against its batch and notes where things are,
then each column is copied into a buffer of exactly its size. The bytes are a peer's: `copy_block` is a bare
memcpy, so each call of it stands behind a check of its source and of its target, whatever the first pass has
found.
"""

from __future__ import annotations

from typing import Any

import numpy

from protocol.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, LOG_APPEND_TIME, MAGIC, MAGIC_POSITION
from protocol.kernel import allocating_kernel, kernel, load_numba, unchecked_kernel
from protocol.record_kernels import (
    BAD_HEADERS,
    BAD_RECORD_COUNT,
    HEADER_COUNT,
    HEADERS_POSITION,
    INT_BITS,
    KEY_BYTES,
    KEY_POSITION,
    LOCATED_ROWS,
    OFFSET_DELTA,
    OK,
    RECORD_BYTES,
    TIMESTAMP_DELTA,
    TRUNCATED,
    VALUE_BYTES,
    VALUE_POSITION,
    locate_record,
    read_varint,
    skip_headers,
)

Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]
Ints = numpy.ndarray[Any, numpy.dtype[numpy.int32]]
Longs = numpy.ndarray[Any, numpy.dtype[numpy.int64]]
U64 = numpy.uint64

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

SCANNED = 0
WRONG_MAGIC = 1
WRONG_LENGTH = 2

MICROSECONDS = 1000
LAST_MILLISECOND = (2**63 - 1) // MICROSECONDS  # later ones, and their like before 1970, become this one

# Where `locate_rows` stopped.
CURSOR_BATCH = 0
CURSOR_POSITION = 1  # of the next record in `data`, when the batch has been begun
CURSOR_LEFT = 2  # records of the batch not yet located, -1: not begun

SKIMMED_BYTES = 16  # more than the head of a record that `skim_record` reads in one go
NOT_SKIMMED = -1

numba = load_numba()  # for what follows, which is no Python
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
        if size < HEADER_BYTES:
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
        row[PAYLOAD_START] = position + HEADER_BYTES
        row[PAYLOAD_END] = position + size
        count += 1
        position += size
    return count, position, SCANNED


@unchecked_kernel
def skim_number(data: Bytes, at: Any) -> tuple[int, Any]:
    """The zigzag number of at most three bytes at `at` and the position behind it, 0 for a longer one.

    All three bytes must be there. Indices without a sign spare the compiler Python's negative ones.
    """
    raw: Any = numpy.int64(data[at])
    at += U64(1)
    if raw >= 128:
        byte: Any = numpy.int64(data[at])
        at += U64(1)
        raw = (raw & 127) | ((byte & 127) << 7)
        if byte >= 128:
            byte = numpy.int64(data[at])
            at += U64(1)
            if byte >= 128:
                return 0, U64(0)
            raw |= byte << 14
    return (raw >> 1) ^ -(raw & 1), at


@unchecked_kernel
def skim_record(data: Bytes, position: int, end: int) -> tuple[int, int, int, int, int, int, int]:
    """(position behind, timestamp delta, offset delta, position and size of the key, then of the value) of a
    record; its headers are left to the caller, at least one byte of them is there.

    The first is NOT_SKIMMED where a number takes more than three bytes, where the section is about to end,
    and for anything that does not fit: the checked reading then has the word. The caller has seen that
    0 <= position <= end <= data.size.
    """
    if end - position < SKIMMED_BYTES:
        return NOT_SKIMMED, 0, 0, 0, 0, 0, 0
    size, at = skim_number(data, U64(position))
    if at == 0 or size < 0 or size > end - numpy.int64(at):
        return NOT_SKIMMED, 0, 0, 0, 0, 0, 0
    record_end: Any = numpy.int64(at) + size
    timestamp_delta, at = skim_number(data, at + U64(1))
    if at == 0:
        return NOT_SKIMMED, 0, 0, 0, 0, 0, 0
    offset_delta, at = skim_number(data, at)
    if at == 0:
        return NOT_SKIMMED, 0, 0, 0, 0, 0, 0
    key_bytes, at = skim_number(data, at)
    key_position: Any = numpy.int64(at)
    if at == 0 or key_bytes < -1 or key_bytes > record_end - key_position:
        return NOT_SKIMMED, 0, 0, 0, 0, 0, 0
    key_end: Any = key_position + max(key_bytes, 0)
    if key_end > end - 3:
        return NOT_SKIMMED, 0, 0, 0, 0, 0, 0
    value_bytes, at = skim_number(data, U64(key_end))
    value_position: Any = numpy.int64(at)
    if at == 0 or value_bytes < -1 or value_position + max(value_bytes, 0) >= record_end:
        return NOT_SKIMMED, 0, 0, 0, 0, 0, 0
    return record_end, timestamp_delta, offset_delta, key_position, key_bytes, value_position, value_bytes


@kernel
def enter_batch(data_bytes: int, batch: Longs, cursor: Longs) -> int:
    """Put the cursor on the batch's first record unless it is within; a fault where the bytes cannot be."""
    section, section_end = batch[PAYLOAD_START], batch[PAYLOAD_END]
    if section < 0 or section > section_end or section_end > data_bytes:
        return TRUNCATED
    if cursor[CURSOR_LEFT] < 0:
        cursor[CURSOR_POSITION] = section
        cursor[CURSOR_LEFT] = batch[RECORD_COUNT]
    position = cursor[CURSOR_POSITION]
    if cursor[CURSOR_LEFT] < 0 or position < section or position > section_end:
        return BAD_RECORD_COUNT
    return OK


@allocating_kernel
def locate_rows(
    data: Bytes, batches: Longs, cursor: Longs, limit_bytes: int, start: int, end: int,
    rows: Longs, offsets: Longs, timestamps: Longs, timestamp_types: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Walk the records of `batches` from `cursor` on: (rows, fault). Kept are start <= offset < end.

    `rows` gets one row of `record_kernels` fields a record, positions counted from the start of `data`;
    `timestamps` are microseconds. Stops when the arrays are full, when the records take `limit_bytes` or
    more, and at a fault; `cursor` then tells where. At the end its CURSOR_BATCH is the number of batches.
    """
    count = 0
    taken = 0
    row = numpy.empty(LOCATED_ROWS, numpy.int64)
    while cursor[CURSOR_BATCH] < batches.shape[0]:
        batch = batches[cursor[CURSOR_BATCH]]
        fault = enter_batch(data.size, batch, cursor)
        if fault != OK:
            return count, fault
        section, section_end = batch[PAYLOAD_START], batch[PAYLOAD_END]
        position, left = cursor[CURSOR_POSITION], cursor[CURSOR_LEFT]
        base_offset = batch[BASE_OFFSET]
        timestamp_type = 1 if batch[ATTRIBUTES] & LOG_APPEND_TIME else 0
        payload = data[section:section_end]
        while left > 0 and count < rows.shape[0] and taken < limit_bytes:
            if position >= section_end:
                return count, BAD_RECORD_COUNT
            following, timestamp_delta, offset_delta, key, key_bytes, value, value_bytes = skim_record(
                data, position, section_end
            )
            headers, header_count = value + max(value_bytes, 0), 0
            if following < 0:
                fault = locate_record(payload, position - section, row)
                if fault != OK:
                    return count, fault
                following = position + row[RECORD_BYTES]
                timestamp_delta, offset_delta = row[TIMESTAMP_DELTA], row[OFFSET_DELTA]
                key, key_bytes = section + row[KEY_POSITION], row[KEY_BYTES]
                value, value_bytes = section + row[VALUE_POSITION], row[VALUE_BYTES]
                headers, header_count = section + row[HEADERS_POSITION], row[HEADER_COUNT]
            elif following - headers != 1 or data[headers] != 0:
                header_count, headers = read_varint(data, headers, following, INT_BITS)
                if headers < 0 or skip_headers(data, headers, following, header_count) != following:
                    return count, BAD_HEADERS
            taken += following - position
            position = following
            left -= 1
            offset = base_offset + offset_delta
            if offset < start or offset >= end:
                continue
            rows[count, KEY_POSITION], rows[count, KEY_BYTES] = key, key_bytes
            rows[count, VALUE_POSITION], rows[count, VALUE_BYTES] = value, value_bytes
            rows[count, HEADERS_POSITION], rows[count, HEADER_COUNT] = headers, header_count
            offsets[count] = offset
            timestamp = batch[MAX_TIMESTAMP] if timestamp_type else batch[BASE_TIMESTAMP] + timestamp_delta
            timestamps[count] = min(max(timestamp, -LAST_MILLISECOND), LAST_MILLISECOND) * MICROSECONDS
            timestamp_types[count] = timestamp_type
            count += 1
        cursor[CURSOR_POSITION], cursor[CURSOR_LEFT] = position, left
        if left > 0:
            return count, OK
        if position != section_end:
            return count, BAD_RECORD_COUNT
        cursor[CURSOR_BATCH] += 1
        cursor[CURSOR_LEFT] = -1
    return count, OK


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
            if start < 0 or size > data.size - start or size > output.size - written:
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
) -> bool:
    """Fill the buffers of a `list<struct<key, value>>` column that `measure_headers` gave the sizes of.

    A record without headers is a null, as in Spark's own source; so is a header's absent value. False when
    the bytes are not those that were measured.
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
            if position < 0 or size < 0 or size > data.size - position or size > keys.size - key_end:
                return False
            copy_block(keys, key_end, data, position, size)
            key_end += size
            position += size
            size, position = read_varint(data, position, data.size, INT_BITS)
            if position < 0 or size > data.size - position or size > values.size - value_end:
                return False
            if size >= 0:
                copy_block(values, value_end, data, position, size)
                value_end += size
                position += size
                value_validity[header >> 3] |= 1 << (header & 7)
            header += 1
            key_ends[header] = key_end
            value_ends[header] = value_end
        list_ends[index + 1] = header
    return key_end == keys.size and value_end == values.size


KEY_FIELDS = (KEY_POSITION, KEY_BYTES)
VALUE_FIELDS = (VALUE_POSITION, VALUE_BYTES)
