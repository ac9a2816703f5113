"""Kernels of a segment's statistics: hash every key, count, fill the sketch of distinct keys and the key
filter.

The hash is XXH64 with seed 0, so that any library can check what FORMAT.md says. The sketch is a HyperLogLog.
The filter is a Bloom filter of blocks that fit a cache line: one hash names the block and its bits, so that a
look-up reads 64 bytes. Twice as many blocks split each block in two; folding a filter to half its blocks is
an OR of neighbours, by which it is made for all records and kept for the distinct keys.
"""

from __future__ import annotations

from typing import Any

import numpy

from protocol.batch import CODEC_MASK, CONTROL, HEADER_BYTES, LOG_APPEND_TIME, NO_TIMESTAMP
from protocol.kernel import allocating_kernel, kernel
from protocol.record_kernels import INT_BITS, LONG_BITS, read_varint
from storage.batch_table import (
    ATTRIBUTES,
    MAX_TIMESTAMP,
    POSITION,
    RECORD_COUNT,
    SIZE_BYTES,
    TABLE_ROWS,
    Bytes,
    Longs,
    Table,
    as_chunk,
    read_unsigned,
)
from storage.prefixes import CRC_TABLE

U64 = numpy.uint64
PRIME_1 = numpy.uint64(0x9E3779B185EBCA87)
PRIME_2 = numpy.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3 = numpy.uint64(0x165667B19E3779F9)
PRIME_4 = numpy.uint64(0x85EBCA77C2B2AE63)
PRIME_5 = numpy.uint64(0x27D4EB2F165667C5)
SPREAD = numpy.uint64(0x9E3779B97F4A7C15)
LOW_HALF = numpy.uint64(0xFFFFFFFF)

SKETCH_BITS = 14
SKETCH_REGISTERS = 1 << SKETCH_BITS
BLOCK_BYTES = 64
BLOCK_BITS = 480
"""of a block; its last four bytes are their checksum"""
CHECKED_BYTES = BLOCK_BYTES - 4
HASHES = 7

# What is counted.
KEYED = 0
TOMBSTONES = 1
MARKERS = 2
MIN_TIMESTAMP = 3
LATEST_TIMESTAMP = 4
EMPTY_VALUES = 5
TALLY_NUMBERS = 6

# Why a call ended.
DONE = 0
COMPRESSED = 1
BROKEN = 2


@kernel
def rotate(value: Any, count: int) -> Any:
    return (value << U64(count)) | (value >> U64(64 - count))


@kernel
def little(data: Bytes, position: int, size: int) -> Any:
    """`size` little-endian bytes."""
    value = U64(0)
    for index in range(size):
        value |= U64(data[position + index]) << U64(8 * index)
    return value


@kernel
def one_round(accumulator: Any, lane: Any) -> Any:
    return rotate(accumulator + lane * PRIME_2, 31) * PRIME_1


@kernel
def hash_key(data: Bytes, position: int, size: int) -> Any:
    """XXH64 of data[position:position + size], seed 0."""
    end = position + size
    if size >= 32:
        first, second, third, fourth = PRIME_1 + PRIME_2, PRIME_2, U64(0), U64(0) - PRIME_1
        while position + 32 <= end:
            first = one_round(first, little(data, position, 8))
            second = one_round(second, little(data, position + 8, 8))
            third = one_round(third, little(data, position + 16, 8))
            fourth = one_round(fourth, little(data, position + 24, 8))
            position += 32
        value = rotate(first, 1) + rotate(second, 7) + rotate(third, 12) + rotate(fourth, 18)
        for lane in (first, second, third, fourth):
            value = (value ^ one_round(U64(0), lane)) * PRIME_1 + PRIME_4
    else:
        value = PRIME_5
    value += U64(size)
    while position + 8 <= end:
        value = rotate(value ^ one_round(U64(0), little(data, position, 8)), 27) * PRIME_1 + PRIME_4
        position += 8
    if position + 4 <= end:
        value = rotate(value ^ (little(data, position, 4) * PRIME_1), 23) * PRIME_2 + PRIME_3
        position += 4
    while position < end:
        value = rotate(value ^ (U64(data[position]) * PRIME_5), 11) * PRIME_1
        position += 1
    value = (value ^ (value >> U64(33))) * PRIME_2
    value = (value ^ (value >> U64(29))) * PRIME_3
    return value ^ (value >> U64(32))


@kernel
def add_to_sketch(sketch: Any, value: Any) -> None:
    """The register named by the first bits keeps the most leading zeros, plus one, of the others."""
    rest = value << U64(SKETCH_BITS)
    rank = 1
    while rank <= 64 - SKETCH_BITS and not rest >> U64(63):
        rest <<= U64(1)
        rank += 1
    register = value >> U64(64 - SKETCH_BITS)
    if rank > sketch[register]:
        sketch[register] = rank


@kernel
def block_of(value: Any, level: int) -> int:
    """The number of the hash's block among 2 ** `level`: its first bits."""
    number: Any = numpy.int64(value >> U64(64 - level)) if level else numpy.int64(0)
    return number  # type: ignore[no-any-return]


@kernel
def add_to_filter(blocks: Any, level: int, value: Any) -> None:
    start = block_of(value, level) * BLOCK_BYTES
    spread = value * SPREAD
    bit = spread & LOW_HALF
    step = (spread >> U64(32)) | U64(1)
    for _ in range(HASHES):
        number = numpy.int64((bit * U64(BLOCK_BITS)) >> U64(32))
        blocks[start + (number >> 3)] |= numpy.uint8(1 << (number & 7))
        bit = (bit + step) & LOW_HALF


@kernel
def is_in_block(block: Bytes, value: Any) -> bool:
    """Whether a key with this hash may have been added; False is certain."""
    spread = value * SPREAD
    bit = spread & LOW_HALF
    step = (spread >> U64(32)) | U64(1)
    for _ in range(HASHES):
        number = numpy.int64((bit * U64(BLOCK_BITS)) >> U64(32))
        if not block[number >> 3] & (1 << (number & 7)):
            return False
        bit = (bit + step) & LOW_HALF
    return True


@kernel
def head_of(data: Bytes, position: int, end: int) -> tuple[int, int, int, int, int]:
    """(next record, timestamp delta, key position, key bytes or -1, value bytes or -1); next -1 is broken."""
    size, position = read_varint(data, position, end, INT_BITS)
    if position < 0 or size < 1 or size > end - position:
        return -1, 0, 0, 0, 0
    record_end = position + size
    delta, position = read_varint(data, position + 1, record_end, LONG_BITS)
    if position < 0:
        return -1, 0, 0, 0, 0
    _, position = read_varint(data, position, record_end, INT_BITS)
    if position < 0:
        return -1, 0, 0, 0, 0
    key_bytes, position = read_varint(data, position, record_end, INT_BITS)
    if position < 0 or key_bytes < -1 or key_bytes > record_end - position:
        return -1, 0, 0, 0, 0
    key_position = position
    value_bytes, position = read_varint(data, position + max(key_bytes, 0), record_end, INT_BITS)
    if position < 0:
        return -1, 0, 0, 0, 0
    return record_end, delta, key_position, key_bytes, value_bytes


@kernel
def count_section(
    data: Bytes, position: int, end: int, count: int, base_timestamp: int, stamped: int,
    sketch: Any, blocks: Any, level: int, tally: Longs,
) -> int:  # fmt: skip
    """Take the records of a data batch into account; its tombstones, or -1 when it is broken."""
    tombstones = 0
    for _ in range(count):
        position, delta, key_position, key_bytes, value_bytes = head_of(data, position, end)
        if position < 0:
            return -1
        timestamp = stamped if stamped != NO_TIMESTAMP else base_timestamp + delta
        if timestamp >= 0:
            if tally[MIN_TIMESTAMP] < 0 or timestamp < tally[MIN_TIMESTAMP]:
                tally[MIN_TIMESTAMP] = timestamp
            tally[LATEST_TIMESTAMP] = max(tally[LATEST_TIMESTAMP], timestamp)
        if key_bytes >= 0:
            value = hash_key(data, key_position, key_bytes)
            add_to_sketch(sketch, value)
            add_to_filter(blocks, level, value)
            tally[KEYED] += 1
            if value_bytes < 0:
                tombstones += 1
            elif value_bytes == 0:
                tally[EMPTY_VALUES] += 1
    tally[TOMBSTONES] += tombstones
    return tombstones if position == end else -1


@kernel
def count_batches(
    chunk: Bytes, table: Table, first: int, sketch: Any, blocks: Any, level: int, tally: Longs,
    tombstones: Longs,
) -> tuple[int, int]:  # fmt: skip
    """Take the batches from number `first` on into account: (why it ended, at which batch).

    `tombstones` gets the tombstones of each batch. COMPRESSED: the caller goes on with the batch's payload.
    """
    for index in range(first, table.shape[1]):
        records = table[RECORD_COUNT, index]
        attributes = table[ATTRIBUTES, index]
        tombstones[index] = 0
        if records < 0:
            return BROKEN, index
        if attributes & CONTROL:
            tally[MARKERS] += records
        elif records > 0:
            if attributes & CODEC_MASK:
                return COMPRESSED, index
            position = table[POSITION, index]
            stamped = table[MAX_TIMESTAMP, index] if attributes & LOG_APPEND_TIME else NO_TIMESTAMP
            found = count_section(
                chunk, position + HEADER_BYTES, position + table[SIZE_BYTES, index], records,
                read_unsigned(chunk, position + 27, 8), stamped, sketch, blocks, level, tally,
            )  # fmt: skip
            if found < 0:
                return BROKEN, index
            tombstones[index] = found
    return DONE, table.shape[1]


@allocating_kernel
def fold(blocks: Any, folds: int) -> Any:
    """The filter with half as many blocks, `folds` times."""
    width = 1 << folds
    folded = numpy.zeros(blocks.size >> folds, numpy.uint8)
    for block in range(blocks.size // BLOCK_BYTES):
        start = block // width * BLOCK_BYTES
        for index in range(BLOCK_BYTES):
            folded[start + index] |= blocks[block * BLOCK_BYTES + index]
    return folded


@kernel
def seal_blocks(blocks: Any, crc_table: Longs) -> None:
    """Write the checksum (CRC-32C, big-endian) of each block's bits behind them."""
    for start in range(0, blocks.size, BLOCK_BYTES):
        checksum = 0xFFFFFFFF
        for index in range(start, start + CHECKED_BYTES):
            checksum = crc_table[(checksum ^ numpy.int64(blocks[index])) & 0xFF] ^ (checksum >> 8)
        checksum ^= 0xFFFFFFFF
        for index in range(4):
            blocks[start + CHECKED_BYTES + index] = (checksum >> (24 - 8 * index)) & 0xFF


@kernel
def same_key(data: Bytes, position: int, key: Bytes) -> bool:
    same = 0
    while same < key.size and data[position + same] == key[same]:
        same += 1
    return same == key.size


@kernel
def holds_key(data: Bytes, position: int, end: int, count: int, key: Bytes) -> int:
    """How many of these records have the key; -1 when they are broken."""
    found = 0
    for _ in range(count):
        position, _, key_position, key_bytes, _ = head_of(data, position, end)
        if position < 0:
            return -1
        if key_bytes == key.size and same_key(data, key_position, key):
            found += 1
    return found


@kernel
def batches_with_key(chunk: Bytes, table: Table, key: Bytes, marks: Bytes) -> None:
    """Mark each batch: 0 does not hold the key, 1 does, 2 is compressed or broken: look closer."""
    for index in range(table.shape[1]):
        attributes = table[ATTRIBUTES, index]
        records = table[RECORD_COUNT, index]
        marks[index] = 0
        if attributes & CONTROL or records <= 0:
            continue
        if attributes & CODEC_MASK:
            marks[index] = 2
            continue
        position = table[POSITION, index]
        found = holds_key(chunk, position + HEADER_BYTES, position + table[SIZE_BYTES, index], records, key)
        marks[index] = 2 if found < 0 else 1 if found else 0


def compile_kernels() -> None:
    """Call each kernel once, so that its compiled form lies in the cache."""
    section = as_chunk(bytes.fromhex("1000000201610276") + bytes(1))  # one record: key a, value v
    chunk = as_chunk(bytes(HEADER_BYTES) + section.tobytes())
    table = numpy.zeros((TABLE_ROWS, 1), numpy.int64)
    table[RECORD_COUNT], table[SIZE_BYTES] = 1, chunk.size
    sketch, blocks = numpy.zeros(SKETCH_REGISTERS, numpy.uint8), numpy.zeros(2 * BLOCK_BYTES, numpy.uint8)
    tally, counts = numpy.zeros(TALLY_NUMBERS, numpy.int64), numpy.zeros(1, numpy.int64)
    count_batches(chunk, table, 0, sketch, blocks, 1, tally, counts)
    count_section(section, 0, section.size, 1, 0, NO_TIMESTAMP, sketch, blocks, 1, tally)
    value = numpy.uint64(hash_key(section, 0, section.size))
    block_of(value, 1)
    folded = fold(blocks, 1)
    seal_blocks(folded, CRC_TABLE)
    is_in_block(as_chunk(folded.tobytes()), value)
    batches_with_key(chunk, table, section, numpy.zeros(1, numpy.uint8))
    holds_key(section, 0, section.size, 1, section)
