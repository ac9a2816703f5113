"""Kernels of a mapping that goes by versions: which record of each key has the highest, and where it stands.

They serve `compaction.strategy` timestamp and header only. The version of each entry stands in a column of
its own beside the offset map, so that the usual strategy neither stores nor looks at one.
"""

from __future__ import annotations

from typing import Any

import numpy

from cleaner.map_kernels import (
    BROKEN,
    CLASS,
    CLASS_MASK,
    DONE,
    ENTRIES,
    FULL,
    KEYLESS,
    LATEST,
    READ,
    SPARED,
)
from cleaner.offset_map import ENTRY_LONGS, U64, Bytes, Longs, find_slot
from protocol.kernel import kernel
from protocol.record_kernels import INT_BITS, LONG_BITS, read_varint
from protocol.siphash import siphash
from storage.batch_table import read_unsigned

NO_VERSION = -1
"""of a record that has none: any other wins over it"""
VERSION_BYTES = 8


@kernel
def header_version(data: Bytes, position: int, end: int, name: Bytes) -> tuple[int, int]:
    """(fault, version) by the last header of that name; `position` is where the count of headers stands."""
    version = NO_VERSION
    count, position = read_varint(data, position, end, INT_BITS)
    if position < 0 or count < 0:
        return BROKEN, version
    for _ in range(count):
        size, position = read_varint(data, position, end, INT_BITS)
        if position < 0 or size < 0 or size > end - position:
            return BROKEN, version
        is_it = size == name.size
        if is_it:
            for index in range(size):
                is_it = is_it and data[position + index] == name[index]
        position += size
        size, position = read_varint(data, position, end, INT_BITS)
        if position < 0 or size < -1 or size > end - position:
            return BROKEN, version
        if is_it:
            version = NO_VERSION
            if size == VERSION_BYTES:
                version = max(NO_VERSION, read_unsigned(data, position, VERSION_BYTES))
        position += max(size, 0)
    return (DONE if position == end else BROKEN), version


@kernel
def beats(table: Any, versions: Longs, at: Any, version: int, offset: int) -> bool:
    """Whether a record wins over the one of its key that is known: by its version, then by its offset."""
    known = versions[at // U64(ENTRY_LONGS)]
    return bool(version > known or (version == known and U64(offset + 1) > table[at + U64(2)]))


@kernel
def note_outlived(outlived: Bytes, slot: Any, is_outlived: bool) -> None:
    """Whether the winner in a slot of the map has records of its key behind it."""
    bit = 1 << (slot & 7)
    byte = numpy.int64(outlived[slot >> 3])
    outlived[slot >> 3] = numpy.uint8(byte | bit if is_outlived else byte & ~bit)


@kernel
def weigh_records(
    data: Bytes, position: int, count: int, base_offset: int, first: int, last: int, base_timestamp: int,
    stamped: int, name: Bytes, may_add: bool, secret: Any, table: Any, versions: Longs, outlived: Bytes,
    capacity: int, state: Longs,
) -> int:  # fmt: skip
    """Weigh the `count` records from `position` to the end of `data` against those known of their keys.

    Only offsets from `first` to `last` count, and keys of the class in `state`. An empty `name` means that
    the timestamp is the version; `stamped` is the time of a LogAppendTime batch, else -1. With `may_add` new
    keys go in, and FULL is the answer at the first that has no room; without it only known keys are looked
    at.
    """
    end = data.size
    for _ in range(count):
        size, position = read_varint(data, position, end, INT_BITS)
        if position < 0 or size < 1 or size > end - position:
            return BROKEN
        record_end = position + size
        delta, position = read_varint(data, position + 1, record_end, LONG_BITS)
        if position < 0:
            return BROKEN
        offset, position = read_varint(data, position, record_end, INT_BITS)
        if position < 0:
            return BROKEN
        offset += base_offset
        key_bytes, key_at = read_varint(data, position, record_end, INT_BITS)
        if key_at < 0 or key_bytes < -1 or key_bytes > record_end - key_at:
            return BROKEN
        value_bytes, position = read_varint(data, key_at + max(key_bytes, 0), record_end, INT_BITS)
        if position < 0 or value_bytes < -1 or value_bytes > record_end - position:
            return BROKEN
        version = stamped if stamped >= 0 else base_timestamp + delta
        if name.size:
            fault, version = header_version(data, position + max(value_bytes, 0), record_end, name)
            if fault != DONE:
                return BROKEN
        position = record_end
        if offset < first or offset > last:
            continue
        if key_bytes < 0:
            if may_add:
                state[KEYLESS] += offset != state[SPARED]
                state[LATEST] = max(state[LATEST], offset)
                state[READ] += 1
            continue
        low, high = siphash(data, key_at, key_bytes, secret[0], secret[1])
        if high & U64(state[CLASS_MASK]) != U64(state[CLASS]):
            if may_add:
                state[LATEST] = max(state[LATEST], offset)
                state[READ] += 1
            continue
        at = find_slot(table, low, high)
        is_new = table[at + U64(2)] == U64(0)
        if may_add and state[ENTRIES] >= capacity:
            return FULL
        if is_new and not may_add:
            continue
        wins = is_new or beats(table, versions, at, version, offset)
        if may_add or wins:  # records that may add come in their order, the others from before all of them
            note_outlived(outlived, numpy.int64(at // U64(ENTRY_LONGS)), not (may_add and wins))
        if wins:
            table[at] = low
            table[at + U64(1)] = high
            table[at + U64(2)] = U64(offset + 1)
            versions[at // U64(ENTRY_LONGS)] = version
        if may_add:
            state[ENTRIES] += is_new
            state[LATEST] = max(state[LATEST], offset)
            state[READ] += 1
    return DONE if position == end else BROKEN
