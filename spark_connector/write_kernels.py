"""Kernels from Arrow columns to records sections: choose each row's partition and write its record there.

Every partition that is written to has a slot: a piece of one arena that takes records until it is full and
is then sealed into a record batch. `encode_rows` is the only pass over the rows; it stops at a slot that is
full and at a row that cannot be written, and is called again to go on. The columns are Spark's own, yet each
length is checked before a byte is copied: `copy_block` is a bare memcpy.
"""

from __future__ import annotations

from typing import Any

import numpy

from protocol.kernel import kernel, unchecked_kernel
from protocol.record_kernels import (
    OFFSET_DELTA,
    RECORD_BYTES,
    RECORD_POSITION,
    TIMESTAMP_DELTA,
    varint_bytes,
)
from spark_connector.kernels import MICROSECONDS, U64, Bytes, Ints, Longs, copy_block
from spark_connector.partitioners import partition_of

# The fields of a slot: where its records lie in the arena, and what the header of their batch will say.
START = 0
POSITION = 1  # behind the last record
END = 2
COUNT = 3
BASE_TIMESTAMP = 4
MAX_TIMESTAMP = 5
SLOT_FIELDS = 6

# The fields of a topic: where its slots are, and which partition records without a key go to now.
FIRST_SLOT = 0
PARTITIONS = 1
KEYLESS_PARTITION = 2
KEYLESS_LEFT = 3  # bytes until the next partition has its turn
TOPIC_FIELDS = 4
KEYLESS_BYTES = 16 * 1024  # as much as a batch of Java's producer takes before it turns to the next

# Why `encode_rows` stopped.
DONE = 0
FULL = 1
NO_TOPIC = 2
BAD_PARTITION = 3
BAD_TIMESTAMP = 4
BAD_COLUMN = 5


@unchecked_kernel
def position_at(at: Any) -> Any:
    """An index without a sign as the number that `copy_block` takes."""
    return numpy.int64(at)


@unchecked_kernel
def put_varint(output: Bytes, at: Any, number: int) -> Any:
    """Write the zigzag varint of `number`, for which there is room; the position behind it."""
    raw: Any = (number << 1) ^ (number >> 63)
    while raw < 0 or raw >= 128:
        output[at] = (raw & 127) | 128
        at += U64(1)
        raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
    output[at] = raw
    return at + U64(1)


@unchecked_kernel
def put_field(arena: Bytes, at: Any, field: tuple[Bytes, int, int]) -> Any:
    """Write a key or value, (data, start, size), with its size before it; the position behind it."""
    data, start, size = field
    at = put_varint(arena, at, size)
    if size > 0:
        copy_block(arena, position_at(at), data, start, size)
        at += U64(size)
    return at


@unchecked_kernel
def put_record(
    arena: Bytes,
    position: int,
    body_bytes: int,
    timestamp_delta: int,
    offset_delta: int,
    key: tuple[Bytes, int, int],
    value: tuple[Bytes, int, int],
    headers: tuple[Bytes, int, int],
) -> None:
    """Write one record at `position`. The caller has seen that all of it fits and where it comes from."""
    at = put_varint(arena, U64(position), body_bytes)
    arena[at] = 0
    at = put_varint(arena, at + U64(1), timestamp_delta)
    at = put_varint(arena, at, offset_delta)
    at = put_field(arena, at, key)
    at = put_field(arena, at, value)
    data, start, size = headers
    if size > 0:
        copy_block(arena, position_at(at), data, start, size)
    else:
        arena[at] = 0


@kernel
def field_of(ends: Ints, valid: Bytes, row: int) -> tuple[int, int]:
    """(start, size) of a row's bytes in its column, size -1 for null and for a column that is not there."""
    if ends.size == 0 or (valid.size > 0 and valid[row] == 0):
        return 0, -1
    start: Any = numpy.int64(ends[row])
    return start, numpy.int64(ends[row + 1]) - start


@kernel
def sized(size: int) -> int:
    """How many bytes a key or value takes with its length."""
    return varint_bytes(size) + max(size, 0)


@kernel
def note_record(slots: Longs, number: int, size: int, timestamp: int) -> None:
    """Count a record of `size` bytes that was written to a slot."""
    slots[number, POSITION] += size
    slots[number, COUNT] += 1
    if slots[number, COUNT] == 1:
        slots[number, BASE_TIMESTAMP] = timestamp
        slots[number, MAX_TIMESTAMP] = timestamp
    elif timestamp > slots[number, MAX_TIMESTAMP]:
        slots[number, MAX_TIMESTAMP] = timestamp


@kernel
def note_keyless(topics: Longs, topic: int, size: int) -> None:
    """Count a record without key; the next partition has its turn when this one has had enough."""
    topics[topic, KEYLESS_LEFT] -= size
    if topics[topic, KEYLESS_LEFT] <= 0:
        topics[topic, KEYLESS_PARTITION] = (topics[topic, KEYLESS_PARTITION] + 1) % topics[topic, PARTITIONS]
        topics[topic, KEYLESS_LEFT] = KEYLESS_BYTES


@kernel
def encode_rows(
    first: int,
    count: int,
    partitioner: int,
    now_ms: int,
    keys: tuple[Bytes, Ints, Bytes],
    values: tuple[Bytes, Ints, Bytes],
    headers: tuple[Bytes, Longs],
    timestamps: tuple[Longs, Bytes],
    chosen: tuple[Ints, Bytes],
    row_topics: Ints,
    topics: Longs,
    slots: Longs,
    arena: Bytes,
    numbers: Longs,
    first_number: int,
) -> tuple[int, int, int, int]:
    """Write rows first ... count - 1: (row where it stopped, why, slot or partition, bytes of the record).

    Columns as Arrow has them, with a byte a row for validity, none at all without nulls. Empty arrays stand
    for columns that are not there: no key, no headers, `now_ms`, a partition by key, the first topic for all.
    `numbers` (a row for each slot) keeps which row became which record of the batch.
    """
    for row in range(first, count):
        topic: Any = numpy.int64(row_topics[row]) if row_topics.size > 0 else 0
        if topic < 0:
            return row, NO_TOPIC, 0, 0
        key, key_bytes = field_of(keys[1], keys[2], row)
        value, value_bytes = field_of(values[1], values[2], row)
        header, header_bytes = 0, 0
        if headers[1].size > 0:
            header, header_bytes = headers[1][row], headers[1][row + 1] - headers[1][row]
        if min(key, value, header) < 0 or key_bytes > keys[0].size - key:
            return row, BAD_COLUMN, 0, 0
        if value_bytes > values[0].size - value or header_bytes > headers[0].size - header:
            return row, BAD_COLUMN, 0, 0
        timestamp = now_ms
        if timestamps[0].size > 0 and (timestamps[1].size == 0 or timestamps[1][row] != 0):
            timestamp = timestamps[0][row] // MICROSECONDS
            if timestamp < 0:
                return row, BAD_TIMESTAMP, 0, 0
        partitions = topics[topic, PARTITIONS]
        if chosen[0].size > 0 and (chosen[1].size == 0 or chosen[1][row] != 0):
            partition: Any = numpy.int64(chosen[0][row])
            if partition < 0 or partition >= partitions:
                return row, BAD_PARTITION, partition, partitions
        else:
            partition = partition_of(partitioner, keys[0], key, key_bytes, partitions)
        keyless = partition < 0
        number = topics[topic, FIRST_SLOT] + (topics[topic, KEYLESS_PARTITION] if keyless else partition)
        records, position = slots[number, COUNT], slots[number, POSITION]
        delta = timestamp - slots[number, BASE_TIMESTAMP] if records > 0 else 0
        body = 1 + varint_bytes(delta) + varint_bytes(records) + sized(key_bytes) + sized(value_bytes)
        body += max(header_bytes, 1)
        size = body + varint_bytes(body)
        if size > slots[number, END] - position or records >= numbers.shape[1]:
            return row, FULL, number, size
        if position < 0 or slots[number, END] > arena.size:
            return row, BAD_COLUMN, 0, 0
        from_key, from_value = (keys[0], key, key_bytes), (values[0], value, value_bytes)
        put_record(
            arena, position, body, delta, records, from_key, from_value, (headers[0], header, header_bytes)
        )
        numbers[number, records] = first_number + row
        note_record(slots, number, size, timestamp)
        if keyless:
            note_keyless(topics, topic, size)
    return count, DONE, 0, 0


@kernel
def measure_row_headers(
    list_ends: Ints,
    list_valid: Bytes,
    pair_valid: Bytes,
    key_ends: Ints,
    key_valid: Bytes,
    value_ends: Ints,
    value_valid: Bytes,
    ends: Longs,
) -> int:
    """Fill `ends` with where each row's encoded headers will end; -1, or a row that has a header or key that
    is null. A null list is no headers."""
    total = 0
    ends[0] = 0
    for row in range(ends.size - 1):
        if list_valid.size == 0 or list_valid[row] != 0:
            count: Any = numpy.int64(list_ends[row + 1]) - numpy.int64(list_ends[row])
            if count > 0:
                total += varint_bytes(count)
            for pair in range(list_ends[row], list_ends[row + 1]):
                if pair_valid.size > 0 and pair_valid[pair] == 0:
                    return row
                _, key_bytes = field_of(key_ends, key_valid, pair)
                if key_bytes < 0:
                    return row
                _, value_bytes = field_of(value_ends, value_valid, pair)
                total += sized(key_bytes) + sized(value_bytes)
        ends[row + 1] = total
    return -1


@kernel
def write_row_headers(
    list_ends: Ints,
    keys: Bytes,
    key_ends: Ints,
    key_valid: Bytes,
    values: Bytes,
    value_ends: Ints,
    value_valid: Bytes,
    ends: Longs,
    output: Bytes,
) -> bool:
    """Write what `measure_row_headers` measured; False when the columns point out of their bytes."""
    for row in range(ends.size - 1):
        if ends[row + 1] == ends[row]:
            continue
        if ends[row + 1] > output.size:
            return False
        count: Any = numpy.int64(list_ends[row + 1]) - numpy.int64(list_ends[row])
        at = put_varint(output, U64(ends[row]), count)
        for pair in range(list_ends[row], list_ends[row + 1]):
            key, key_bytes = field_of(key_ends, key_valid, pair)
            value, value_bytes = field_of(value_ends, value_valid, pair)
            if key < 0 or key_bytes > keys.size - key or value < 0 or value_bytes > values.size - value:
                return False
            at = put_field(output, at, (keys, key, key_bytes))
            at = put_field(output, at, (values, value, value_bytes))
    return True


@kernel
def renumber_records(section: Bytes, located: Longs, first: int, last: int, output: Bytes) -> int:
    """Copy records first ... last - 1 of a section, numbered from 0 on; how many bytes they take.

    `located` is the table that `locate_records` made of `section`. A number that becomes smaller never takes
    more bytes, so that `output` needs no more than the records have now.
    """
    at = 0
    for index in range(first, last):
        position = located[RECORD_POSITION, index]
        size = located[RECORD_BYTES, index]
        delta = located[TIMESTAMP_DELTA, index]
        old_offset = located[OFFSET_DELTA, index]
        offset = index - first
        body = size - 1
        while body + varint_bytes(body) > size:
            body -= 1
        head = size - body + 1 + varint_bytes(delta) + varint_bytes(old_offset)
        rest = size - head
        if position < 0 or rest < 0 or size > section.size - position:
            return -1
        new_body = 1 + varint_bytes(delta) + varint_bytes(offset) + rest
        if new_body + varint_bytes(new_body) > output.size - at:
            return -1
        to = put_varint(output, U64(at), new_body)
        output[to] = section[position + size - body]
        to = put_varint(output, to + U64(1), delta)
        to = put_varint(output, to, offset)
        copy_block(output, position_at(to), section, position + head, rest)
        at = numpy.int64(to) + rest
    return at
