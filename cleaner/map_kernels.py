"""Kernels of the first step: read records' keys into the offset map, a chunk of a segment at a time.

Records are first listed by the block, then their keys are hashed, then the map is asked: three short loops,
in which the processor overlaps what one long loop would wait for. Checksums have been compared before;
structure is still checked at every read, since a checksum only says that bytes are as somebody wrote them.
"""

from __future__ import annotations

from typing import Any

import numpy

from cleaner.offset_map import U64, Bytes, Longs, put_hashed
from cleaner.pauses import Pauses, work_done
from cleaner.unpacking import Lz4Scratch, lz4_room, new_scratch, unpack_lz4
from protocol.batch import CODEC_MASK, HEADER_BYTES
from protocol.kernel import kernel, unchecked_kernel
from protocol.record_kernels import INT_BITS, LONG_BITS, read_varint
from protocol.siphash import hash_keys
from storage.batch_table import ATTRIBUTES, BASE_OFFSET, POSITION, RECORD_COUNT, SIZE_BYTES

BLOCK_RECORDS = 1024
SKIMMED_BYTES = 16  # more than `skim_record` reads
BROKEN_OFF = -1

# The numbers carried from call to call.
ENTRIES = 0
LATEST = 1
READ = 2
KEYLESS = 3
FILLED = 4
CLASS_MASK = 5  # of a hash: only keys of one class are mapped; 0: all are
CLASS = 6
SPARED = 7  # by versions: the offset of the log's last record, which stays even without a key
STATE_NUMBERS = 8

# In place of where the hashes of a batch's keys begin.
UNKNOWN = -1  # they were not hashed when it was appended, or are forgotten
LEFT_OUT = -2  # its records are not to be mapped: aborted, control

# Why a call ended.
DONE = 0
FULL = 1
COMPRESSED = 2
BROKEN = 3

# The rows of a block.
KEY_POSITION = 0
KEY_BYTES = 1
OFFSET = 2
BLOCK_ROWS = 3


@kernel
def put_block(
    data: Bytes, block: Longs, hashes: Any, secret: Any, table: Any, capacity: int, state: Longs
) -> int:
    """Put the listed keys into the map in their order; FULL at the first one that has no room.

    Kafka's rule: a full map takes nothing more, not even a later offset of a key that it knows.
    """
    count = state[FILLED]
    state[FILLED] = 0
    mask = U64(state[CLASS_MASK])
    wanted = U64(state[CLASS])
    hash_keys(data, block[KEY_POSITION], block[KEY_BYTES], count, secret, hashes)
    for index in range(count):
        if block[KEY_BYTES, index] < 0:
            state[KEYLESS] += 1
            state[LATEST] = max(state[LATEST], block[OFFSET, index])
        elif hashes[1, index] & mask != wanted:
            state[LATEST] = max(state[LATEST], block[OFFSET, index])
        elif state[ENTRIES] >= capacity:
            return FULL
        else:
            offset = block[OFFSET, index]
            state[ENTRIES] += put_hashed(table, hashes[0, index], hashes[1, index], offset)
            state[LATEST] = max(state[LATEST], offset)
        state[READ] += 1
    return DONE


@kernel
def find_key(data: Bytes, position: int, end: int) -> tuple[int, int, int, int]:
    """(next record, offset delta, key position, key size or -1) of the record at `position`; next BROKEN_OFF
    is broken.
    """
    size, position = read_varint(data, position, end, INT_BITS)
    if position < 0 or size < 1 or size > end - position:
        return BROKEN_OFF, 0, 0, 0
    end = position + size
    _, position = read_varint(data, position + 1, end, LONG_BITS)
    if position < 0:
        return BROKEN_OFF, 0, 0, 0
    offset_delta, position = read_varint(data, position, end, INT_BITS)
    if position < 0:
        return BROKEN_OFF, 0, 0, 0
    key_bytes, position = read_varint(data, position, end, INT_BITS)
    if position < 0 or key_bytes < -1 or key_bytes > end - position:
        return BROKEN_OFF, 0, 0, 0
    return end, offset_delta, position, key_bytes


@unchecked_kernel
def skim_record(data: Bytes, position: int, end: int) -> tuple[int, int, int, int, int, int]:
    """The head of nearly every record there is: (next record, timestamp delta, position behind it, offset
    delta, key position, key size or -1).

    Where a number takes more than two bytes, or the section is about to end, the next record is -1 and the
    checked reading has to be done. At most eight bytes are read here, after one look at the end: a check of
    each would take longer than all the rest.
    """
    if end - position < SKIMMED_BYTES:
        return BROKEN_OFF, 0, 0, 0, 0, 0
    at = U64(position)
    byte: Any = numpy.int64(data[at])
    at += U64(1)
    if byte >= 128:
        more: Any = numpy.int64(data[at])
        at += U64(1)
        if more >= 128:
            return BROKEN_OFF, 0, 0, 0, 0, 0
        byte = (byte & 127) | (more << 7)
    size = (byte >> 1) ^ -(byte & 1)
    record_end: Any = numpy.int64(at) + size
    at += U64(1)
    byte = numpy.int64(data[at])
    at += U64(1)
    if byte >= 128:
        more = numpy.int64(data[at])
        at += U64(1)
        if more >= 128:
            return BROKEN_OFF, 0, 0, 0, 0, 0
        byte = (byte & 127) | (more << 7)
    timestamp_delta: int = (byte >> 1) ^ -(byte & 1)
    rest: Any = numpy.int64(at)
    byte = numpy.int64(data[at])
    at += U64(1)
    if byte >= 128:
        more = numpy.int64(data[at])
        at += U64(1)
        if more >= 128:
            return BROKEN_OFF, 0, 0, 0, 0, 0
        byte = (byte & 127) | (more << 7)
    offset_delta: int = (byte >> 1) ^ -(byte & 1)
    byte = numpy.int64(data[at])
    key_position: Any = numpy.int64(at) + 1
    key_bytes: int = (byte >> 1) ^ -(byte & 1)
    if byte >= 128 or size < 1 or record_end > end or key_bytes < -1 or key_position + key_bytes > record_end:
        return BROKEN_OFF, 0, 0, 0, 0, 0
    return record_end, timestamp_delta, rest, offset_delta, key_position, key_bytes


@kernel
def map_section(
    data: Bytes, position: int, end: int, count: int, base_offset: int, start_offset: int,
    block: Longs, hashes: Any, secret: Any, table: Any, capacity: int, state: Longs,
) -> int:  # fmt: skip
    """Map the `count` records of data[position:end]. Keys may stay listed in `block` for the next call."""
    filled = state[FILLED]
    for _ in range(count):
        following, _, _, offset_delta, key_position, key_bytes = skim_record(data, position, end)
        if following < 0:
            following, offset_delta, key_position, key_bytes = find_key(data, position, end)
            if following < 0:
                return BROKEN
        position = following
        offset = base_offset + offset_delta
        if offset < start_offset:
            state[READ] += 1
            continue
        block[KEY_POSITION, filled] = key_position
        block[KEY_BYTES, filled] = key_bytes
        block[OFFSET, filled] = offset
        filled += 1
        if filled == BLOCK_RECORDS:
            state[FILLED] = filled
            fault = put_block(data, block, hashes, secret, table, capacity, state)
            if fault != DONE:
                return fault
            filled = 0
    state[FILLED] = filled
    return DONE if position == end else BROKEN


@kernel
def map_payload(
    payload: Bytes, size: int, count: int, base_offset: int, start_offset: int,
    block: Longs, hashes: Any, secret: Any, table: Any, capacity: int, state: Longs,
) -> int:  # fmt: skip
    """Map one decompressed batch, payload[:size]."""
    reason = map_section(
        payload, 0, size, count, base_offset, start_offset,
        block, hashes, secret, table, capacity, state,
    )  # fmt: skip
    if reason != DONE:
        return reason
    return put_block(payload, block, hashes, secret, table, capacity, state)


@kernel
def map_hashed(
    hashes: Any, first: int, count: int, base_offset: int, start_offset: int,
    table: Any, capacity: int, state: Longs,
) -> int:  # fmt: skip
    """Map the records of a batch whose keys were hashed when it was appended, to `count` columns of `hashes`:
    all have a key, and no offset is missing.
    """
    mask = U64(state[CLASS_MASK])
    wanted = U64(state[CLASS])
    for index in range(count):
        offset = base_offset + index
        if offset >= start_offset:
            low = hashes[0, first + index]
            high = hashes[1, first + index]
            if high & mask == wanted:
                if state[ENTRIES] >= capacity:
                    return FULL
                state[ENTRIES] += put_hashed(table, low, high, offset)
            state[LATEST] = max(state[LATEST], offset)
        state[READ] += 1
    return DONE


@kernel
def map_batches(
    chunk: Bytes, batches: Longs, starts: Longs, known: Any, first: int, count: int, start_offset: int,
    lz4: Lz4Scratch, pauses: Pauses, block: Longs, hashes: Any, secret: Any, table: Any, capacity: int,
    state: Longs,
) -> tuple[int, int]:  # fmt: skip
    """Map the batches [first, count) of a chunk: (why it ended, the batch at which).

    `starts` says for each where in `known` the hashes of its keys begin, or `UNKNOWN` or `LEFT_OUT`.
    COMPRESSED: all before that batch is in the map, and the caller goes on with its payload.
    """
    for index in range(first, count):
        records = batches[RECORD_COUNT, index]
        base_offset = batches[BASE_OFFSET, index]
        if starts[index] == LEFT_OUT:
            state[READ] += records
            continue
        if batches[ATTRIBUTES, index] & CODEC_MASK and records > 0:
            reason = put_block(chunk, block, hashes, secret, table, capacity, state)
            if reason != DONE:
                return reason, index
            if starts[index] >= 0:
                reason = map_hashed(
                    known, starts[index], records, base_offset, start_offset, table, capacity, state
                )
            else:
                room = lz4_room(chunk, batches, index, lz4)
                size = room if room < 0 else unpack_lz4(chunk, batches, index, lz4)
                if size < 0:
                    return COMPRESSED, index
                reason = map_payload(
                    lz4.unpacked, size, records, base_offset, start_offset,
                    block, hashes, secret, table, capacity, state,
                )  # fmt: skip
                work_done(size, pauses)
        else:
            position = batches[POSITION, index]
            reason = map_section(
                chunk, position + HEADER_BYTES, position + batches[SIZE_BYTES, index],
                records, base_offset, start_offset, block, hashes, secret, table, capacity, state,
            )  # fmt: skip
        if reason != DONE:
            return reason, index
        work_done(batches[SIZE_BYTES, index], pauses)
    return put_block(chunk, block, hashes, secret, table, capacity, state), count


class MapScratch:
    """The working memory of one mapping. Owned by: one cleaner thread."""

    def __init__(self) -> None:
        self.block = numpy.zeros((BLOCK_ROWS, BLOCK_RECORDS), numpy.int64)
        self.hashes = numpy.zeros((2, BLOCK_RECORDS), numpy.uint64)
        self.state = numpy.zeros(STATE_NUMBERS, numpy.int64)
        self.lz4 = new_scratch()
