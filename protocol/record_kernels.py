"""Kernels over a records section (decompressed): walk, validate, locate and encode records without the GIL.

A record is `length varint | attributes i8 | timestamp delta varlong | offset delta varint | key | value |
headers` (Kafka's `DefaultRecord`), every length a zigzag varint, -1 for null. Arbitrary bytes are expected:
each read is checked against the end of the section, the answer is a fault number and never an exception, and
every step consumes at least one byte, so that a walk is over after at most as many steps as there are bytes.

Payloads are read-only C-contiguous uint8 views (`records.as_array`), so that each kernel is compiled once.
"""

from __future__ import annotations

from typing import Any

import numpy

from protocol.kernel import allocating_kernel, early, kernel, unchecked_kernel

Bytes = numpy.ndarray[Any, numpy.dtype[numpy.uint8]]
Longs = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

OK = 0
TRUNCATED = 1
BAD_RECORD_LENGTH = 2
BAD_RECORD_COUNT = 3
BAD_OFFSET_DELTA = 4
BAD_KEY = 5
BAD_VALUE = 6
BAD_HEADERS = 7
KEYLESS = 8
BAD_VARINT = 9

FAULTS = {
    OK: "",
    TRUNCATED: "the records end within a record",
    BAD_RECORD_LENGTH: "a record is not as long as it says",
    BAD_RECORD_COUNT: "there are not as many records as the batch header says",
    BAD_OFFSET_DELTA: "the offset deltas are not 0, 1, 2 and so on",
    BAD_KEY: "a key is longer than its record",
    BAD_VALUE: "a value is longer than its record",
    BAD_HEADERS: "the headers of a record are broken",
    KEYLESS: "Compacted topic cannot accept message without key",
    BAD_VARINT: "a number in a record takes more bytes than any number may",
}

MIN_RECORD_BYTES = 7  # six one-byte varints and the attributes

# The rows of the table that `locate_records` fills; each row is one contiguous array over the records.
OFFSET_DELTA = 0
TIMESTAMP_DELTA = 1
KEY_POSITION = 2
KEY_BYTES = 3  # -1: null
VALUE_POSITION = 4
VALUE_BYTES = 5  # -1: null
HEADERS_POSITION = 6  # of the first header, behind their count
HEADER_COUNT = 7
RECORD_POSITION = 8  # of the record's own length
RECORD_BYTES = 9  # the length's bytes included
LOCATED_ROWS = 10

SKIMMED_BYTES = 16  # more than `skim_record` reads before it looks at the end again
SKIMMED_TAIL_BYTES = 4  # more than it reads between the key and the value
INT_BITS = 28  # a varint's fifth byte starts here
LONG_BITS = 63  # a varlong's tenth byte holds one bit
BROKEN = -1  # instead of the next position
U64 = numpy.uint64  # an index without a sign, which needs no look at its sign


@kernel
def read_varint(payload: Bytes, position: int, end: int, last_shift: int) -> tuple[int, int]:
    """The zigzag number at `position` and the position behind it, or (fault, -1).

    `last_shift` is INT_BITS or LONG_BITS. Most numbers in a record are below 64 and so one byte.
    """
    if position >= end:
        return TRUNCATED, BROKEN
    byte: Any = numpy.int64(payload[position])
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 127
    shift = 7
    while shift <= last_shift:
        position += 1
        if position >= end:
            return TRUNCATED, BROKEN
        byte = numpy.int64(payload[position])
        raw |= (byte & 127) << shift
        if byte < 128:
            if last_shift == INT_BITS:
                raw &= 0xFFFFFFFF
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), position + 1
        shift += 7
    return BAD_VARINT, BROKEN


@kernel
def skip_headers(payload: Bytes, position: int, end: int, count: int) -> int:
    """The position behind `count` headers, or -1. A header's key is never null, its value may be."""
    if count < 0 or count > end - position:
        return BROKEN
    for _ in range(count):
        size, position = read_varint(payload, position, end, INT_BITS)
        if position < 0 or size < 0 or size > end - position:
            return BROKEN
        position += size
        size, position = read_varint(payload, position, end, INT_BITS)
        if position < 0 or size < -1 or size > end - position:
            return BROKEN
        if size > 0:
            position += size
    return position


@kernel
def locate_record(payload: Bytes, start: int, row: Longs) -> int:
    """Fill `row` (LOCATED_ROWS numbers) for the record at `start`; a fault number, OK when it is whole."""
    size, position = read_varint(payload, start, payload.size, INT_BITS)
    if position < 0:
        return size
    if size < MIN_RECORD_BYTES - 1:
        return BAD_RECORD_LENGTH
    if size > payload.size - position:
        return TRUNCATED
    end = position + size
    timestamp_delta, position = read_varint(payload, position + 1, end, LONG_BITS)
    if position < 0:
        return timestamp_delta
    offset_delta, position = read_varint(payload, position, end, INT_BITS)
    if position < 0:
        return offset_delta
    key_bytes, position = read_varint(payload, position, end, INT_BITS)
    if position < 0 or key_bytes < -1 or key_bytes > end - position:
        return BAD_KEY
    row[KEY_POSITION] = position
    position += max(key_bytes, 0)
    value_bytes, position = read_varint(payload, position, end, INT_BITS)
    if position < 0 or value_bytes < -1 or value_bytes > end - position:
        return BAD_VALUE
    row[VALUE_POSITION] = position
    position += max(value_bytes, 0)
    header_count, position = read_varint(payload, position, end, INT_BITS)
    if position < 0:
        return BAD_HEADERS
    row[HEADERS_POSITION] = position
    if header_count != 0:
        position = skip_headers(payload, position, end, header_count)
        if position < 0:
            return BAD_HEADERS
    if position != end:
        return BAD_RECORD_LENGTH
    row[OFFSET_DELTA] = offset_delta
    row[TIMESTAMP_DELTA] = timestamp_delta
    row[KEY_BYTES] = key_bytes
    row[VALUE_BYTES] = value_bytes
    row[HEADER_COUNT] = header_count
    row[RECORD_POSITION] = start
    row[RECORD_BYTES] = end - start
    return OK


@unchecked_kernel
def skim_record(payload: Bytes, position: int, index: int) -> tuple[int, int, bool]:
    """What a record at `position` mostly is, seen in few steps: (next record, timestamp delta, has a key).

    The next record is -1 for everything unusual: a number of more than two bytes, headers,
    the section's last bytes, any fault; then the checked reading says what it is. What is accepted here is
    whole. Every byte read lies before the last SKIMMED_BYTES or before the record's end, which is looked at
    first.
    """
    if payload.size - position < SKIMMED_BYTES:
        return BROKEN, 0, False
    at = U64(position)
    byte: Any = numpy.int64(payload[at])
    at += U64(1)
    if byte >= 128:
        more: Any = numpy.int64(payload[at])
        at += U64(1)
        if more >= 128:
            return BROKEN, 0, False
        byte = (byte & 127) | (more << 7)
    end: Any = numpy.int64(at) + (byte >> 1)
    if byte & 1 or end > payload.size:
        return BROKEN, 0, False
    at += U64(1)
    byte = numpy.int64(payload[at])
    at += U64(1)
    if byte >= 128:
        more = numpy.int64(payload[at])
        at += U64(1)
        if more >= 128:
            return BROKEN, 0, False
        byte = (byte & 127) | (more << 7)
    timestamp_delta: int = (byte >> 1) ^ -(byte & 1)
    byte = numpy.int64(payload[at])
    at += U64(1)
    if byte >= 128:
        more = numpy.int64(payload[at])
        at += U64(1)
        if more >= 128:
            return BROKEN, 0, False
        byte = (byte & 127) | (more << 7)
    if byte != index << 1:
        return BROKEN, 0, False
    byte = numpy.int64(payload[at])
    at += U64(1)
    has_key: bool = byte != 1
    if has_key:
        if byte >= 128 or byte & 1:
            return BROKEN, 0, False
        at += U64(byte >> 1)
        if payload.size - numpy.int64(at) < SKIMMED_TAIL_BYTES:
            return BROKEN, 0, False
    byte = numpy.int64(payload[at])
    at += U64(1)
    if byte >= 128:
        more = numpy.int64(payload[at])
        at += U64(1)
        if more >= 128:
            return BROKEN, 0, False
        byte = (byte & 127) | (more << 7)
    if byte != 1:
        if byte & 1:
            return BROKEN, 0, False
        at += U64(byte >> 1)
    # The count of headers is the record's last byte, and 0.
    if numpy.int64(at) + 1 != end or payload[at]:
        return BROKEN, 0, False
    return end, timestamp_delta, has_key


@early
@allocating_kernel
def validate_records(payload: Bytes, record_count: int, require_keys: bool) -> tuple[int, int, int]:
    """Whether a client's records are what their batch header says: (fault, record index, max timestamp
    delta).

    Offset deltas must be 0, 1, 2 ...; lengths, count and headers must fit exactly. A fault of structure wins
    over KEYLESS, whose other indices `keyless_records` tells. Record attributes are unused and, as in Kafka,
    free.
    """
    row = numpy.empty(LOCATED_ROWS, numpy.int64)
    position = 0
    first_keyless = -1
    max_timestamp_delta = 0
    if record_count < 0 or record_count > payload.size // MIN_RECORD_BYTES:
        return BAD_RECORD_COUNT, 0, 0
    for index in range(record_count):
        if position >= payload.size:
            return BAD_RECORD_COUNT, index, 0
        following, timestamp_delta, has_key = skim_record(payload, position, index)
        if following < 0:
            fault = locate_record(payload, position, row)
            if fault != OK:
                return fault, index, 0
            if row[OFFSET_DELTA] != index:
                return BAD_OFFSET_DELTA, index, 0
            timestamp_delta = row[TIMESTAMP_DELTA]
            has_key = row[KEY_BYTES] >= 0
            following = position + row[RECORD_BYTES]
        if index == 0 or timestamp_delta > max_timestamp_delta:
            max_timestamp_delta = timestamp_delta
        if not has_key and first_keyless < 0:
            first_keyless = index
        position = following
    if position != payload.size:
        return BAD_RECORD_COUNT, record_count, 0
    if require_keys and first_keyless >= 0:
        return KEYLESS, first_keyless, max_timestamp_delta
    return OK, -1, max_timestamp_delta


@early
@allocating_kernel
def keyless_records(payload: Bytes, record_count: int) -> Longs:
    """The indices of all records without a key, in a section that `validate_records` found whole."""
    found = numpy.empty(min(record_count, payload.size // MIN_RECORD_BYTES), numpy.int64)
    row = numpy.empty(LOCATED_ROWS, numpy.int64)
    position = 0
    count = 0
    for index in range(found.size):
        if locate_record(payload, position, row) != OK:
            break
        if row[KEY_BYTES] < 0:
            found[count] = index
            count += 1
        position += row[RECORD_BYTES]
    return found[:count]


@early
@allocating_kernel
def locate_records(payload: Bytes, record_count: int) -> Longs:
    """Where everything is: an int64 table of LOCATED_ROWS rows (OFFSET_DELTA ... RECORD_BYTES) by
    record_count.

    `table[KEY_POSITION]` is one contiguous array over the records. Offset deltas may have holes, as cleaning
    makes them. Bytes that are not `record_count` whole records and nothing more give a table of no rows
    (`size` 0).
    """
    if record_count < 0 or record_count > payload.size // MIN_RECORD_BYTES:
        return numpy.empty((0, 0), numpy.int64)
    table = numpy.empty((LOCATED_ROWS, record_count), numpy.int64)
    row = numpy.empty(LOCATED_ROWS, numpy.int64)
    position = 0
    for index in range(record_count):
        if locate_record(payload, position, row) != OK:
            return numpy.empty((0, 0), numpy.int64)
        for field in range(LOCATED_ROWS):
            table[field, index] = row[field]
        position += row[RECORD_BYTES]
    if position != payload.size:
        return numpy.empty((0, 0), numpy.int64)
    return table


@kernel
def varint_bytes(number: int) -> int:
    """How many bytes the zigzag varint of `number` takes."""
    raw = (number << 1) ^ (number >> 63)
    size = 1
    raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
    while raw != 0:
        raw >>= 7
        size += 1
    return size


@kernel
def write_varint(output: Bytes, position: int, number: int) -> int:
    """Write the zigzag varint of `number`; the position behind it."""
    raw = (number << 1) ^ (number >> 63)
    if 0 <= raw < 128:
        output[position] = raw
        return position + 1
    output[position] = (raw & 127) | 128
    position += 1
    raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
    while raw >= 128:
        output[position] = (raw & 127) | 128
        raw >>= 7
        position += 1
    output[position] = raw
    return position + 1


@unchecked_kernel
def _copy(source: Bytes, start: int, size: int, output: Bytes, position: int) -> None:
    """A plain loop without checks, of which the compiler makes one copy of a block of memory."""
    for index in range(size):
        output[U64(position + index)] = source[U64(start + index)]


@kernel
def copy_bytes(source: Bytes, start: int, end: int, output: Bytes, position: int) -> int:
    """Copy source[start:end] to output[position:]; the position behind it."""
    if not 0 <= start <= end <= source.size or not 0 <= position <= output.size - (end - start):
        raise IndexError("a copy outside its buffers")
    _copy(source, start, end - start, output, position)
    return position + end - start


@kernel
def body_bytes(
    index: int,
    key_offsets: Longs,
    key_nulls: Bytes,
    value_offsets: Longs,
    value_nulls: Bytes,
    header_offsets: Longs,
    timestamp_deltas: Longs,
    offset_delta: int,
) -> int:
    """How long the record of row `index` is, its own length not included."""
    size = 1 + varint_bytes(timestamp_deltas[index]) + varint_bytes(offset_delta)
    if key_nulls[index]:
        size += 1
    else:
        length = key_offsets[index + 1] - key_offsets[index]
        size += varint_bytes(length) + length
    if value_nulls[index]:
        size += 1
    else:
        length = value_offsets[index + 1] - value_offsets[index]
        size += varint_bytes(length) + length
    length = header_offsets[index + 1] - header_offsets[index]
    return size + (length if length > 0 else 1)


@allocating_kernel
def record_sizes_columns(
    key_offsets: Longs,
    key_nulls: Bytes,
    value_offsets: Longs,
    value_nulls: Bytes,
    header_offsets: Longs,
    timestamp_deltas: Longs,
) -> Longs:
    """An upper bound of each row's encoded bytes, whatever batch it falls into: what to cut batches by."""
    sizes = numpy.empty(timestamp_deltas.size, numpy.int64)
    for index in range(sizes.size):
        size = body_bytes(
            index, key_offsets, key_nulls, value_offsets, value_nulls, header_offsets, timestamp_deltas, 0
        )
        sizes[index] = size + 4 + varint_bytes(size + 4)
    return sizes


@allocating_kernel
def encode_records_columns(
    keys: Bytes,
    key_offsets: Longs,
    key_nulls: Bytes,
    values: Bytes,
    value_offsets: Longs,
    value_nulls: Bytes,
    headers: Bytes,
    header_offsets: Longs,
    timestamp_deltas: Longs,
) -> Bytes:
    """The records section of columns laid out as Arrow does: one buffer and n + 1 offsets each.

    `key_nulls`, `value_nulls`: n bytes, 1 for null. `headers` holds each row's headers as encoded (their
    count first, see `records.encode_headers`), an empty slice for none. Offset deltas are 0 ... n - 1. A
    slice of rows is encoded by slicing the small arrays; the buffers stay whole.
    """
    count = timestamp_deltas.size
    total = 0
    for index in range(count):
        size = body_bytes(
            index, key_offsets, key_nulls, value_offsets, value_nulls, header_offsets, timestamp_deltas, index
        )
        total += size + varint_bytes(size)
    output = numpy.empty(total, numpy.uint8)
    position = 0
    for index in range(count):
        size = body_bytes(
            index, key_offsets, key_nulls, value_offsets, value_nulls, header_offsets, timestamp_deltas, index
        )
        position = write_varint(output, position, size)
        output[position] = 0
        position = write_varint(output, position + 1, timestamp_deltas[index])
        position = write_varint(output, position, index)
        if key_nulls[index]:
            position = write_varint(output, position, -1)
        else:
            position = write_varint(output, position, key_offsets[index + 1] - key_offsets[index])
            position = copy_bytes(keys, key_offsets[index], key_offsets[index + 1], output, position)
        if value_nulls[index]:
            position = write_varint(output, position, -1)
        else:
            position = write_varint(output, position, value_offsets[index + 1] - value_offsets[index])
            position = copy_bytes(values, value_offsets[index], value_offsets[index + 1], output, position)
        if header_offsets[index + 1] > header_offsets[index]:
            position = copy_bytes(headers, header_offsets[index], header_offsets[index + 1], output, position)
        else:
            output[position] = 0
            position += 1
    return output
