"""Kernels of the third step: which records of a batch survive, and copying them.

Mirrors `Cleaner.shouldRetainRecord`. Behind the mapped part nobody may judge: all records stay. Before it, a
record stays as the last of its key, and a tombstone only until the delete horizon of its batch, which the
first cleaning that meets it sets. (Where versions decide, the mapped record is its key's winner, and earlier
and later ones go; a tombstone that is outlived by later ones stays until they have gone.)

A record of the mapped part survives when the bit of its offset says that it is its key's last
(`OffsetMap.last_offset_bits`), so only the clean part needs the map itself. A batch without a surviving bit
is passed over unread.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from cleaner.map_kernels import BROKEN_OFF, skim_record
from cleaner.offset_map import ENTRY_LONGS, U64, Bytes, Longs, find_hashed, find_slot
from protocol.batch import NO_TIMESTAMP
from protocol.kernel import kernel
from protocol.record_kernels import (
    INT_BITS,
    LONG_BITS,
    OK,
    TRUNCATED,
    copy_bytes,
    read_varint,
    varint_bytes,
    write_varint,
)
from protocol.siphash import siphash

# What is decided about a batch before its records are looked at.
DISCARD = 1  # the records go, whatever their keys
KEEP_SHELL = 2  # the header stays even when no record does
ARM = 4  # a marker of which the transaction is gone: it gets a delete horizon

# Why a call ended.
DONE = 0
OUTPUT_FULL = 1
COMPRESSED = 2
BROKEN = 3
DAMAGED = 4

# The rows of a batch's records.
START = 0
SIZE = 1
REST = 2  # position of the offset delta, from which on the bytes never change
TIMESTAMP_DELTA = 3
OFFSET_DELTA = 4
KEY_POSITION = 5
KEY_BYTES = 6
HAS_VALUE = 7
KEEP = 8
RECORD_ROWS = 9

# What is counted.
READ = 0
KEPT = 1
SUPERSEDED = 2
TOMBSTONE = 3
KEYLESS = 4
ABORTED = 5
MARKER = 6
UNMARKED = 7  # of the mapped part: superseded or keyless, the mapping knows how many of each
TOMBSTONES_KEPT = 8
LIVE = 9  # of the mapped part: records with a value that are the winners of their keys
NEWEST_HORIZON = 10  # ms, of the tombstones that a later cleaning may remove; 0 where there are none
TALLY_NUMBERS = 11

GROWTH_BYTES = 12  # by which a record may grow when its timestamp delta is written anew


class Knowledge(NamedTuple):
    """What one rewriting knows; times in ms.

    With `is_versioned` the map holds the winner of each key, which need not be its last record, and
    `outlived` has a bit for each slot of the map whose key has a record behind its winner.
    """

    table: Any
    secret: Any
    bits: Any
    bits_start: int
    latest_offset: int
    now_ms: int
    new_horizon_ms: int
    is_versioned: bool
    outlived: Any


@kernel
def no_bit(bits: Bytes, first: int, last: int) -> bool:
    """Whether none of the bits first ... last is set."""
    first_byte = first >> 3
    last_byte = last >> 3
    for index in range(first_byte, last_byte + 1):
        byte = numpy.int64(bits[index])
        if index == first_byte:
            byte &= 0xFF << (first & 7)
        if index == last_byte:
            byte &= 0xFF >> (7 - (last & 7))
        if byte & 0xFF:
            return False
    return True


@kernel
def list_record(data: Bytes, position: int, end: int, index: int, rows: Longs) -> int:
    """Fill one column of `rows`; the position behind the record, or -1."""
    size, position = read_varint(data, position, end, INT_BITS)
    if position < 0 or size < 1 or size > end - position:
        return BROKEN_OFF
    record_end = position + size
    delta, position = read_varint(data, position + 1, record_end, LONG_BITS)
    if position < 0:
        return BROKEN_OFF
    rows[TIMESTAMP_DELTA, index] = delta
    rows[REST, index] = position
    delta, position = read_varint(data, position, record_end, INT_BITS)
    if position < 0:
        return BROKEN_OFF
    rows[OFFSET_DELTA, index] = delta
    size, position = read_varint(data, position, record_end, INT_BITS)
    if position < 0 or size < -1 or size > record_end - position:
        return BROKEN_OFF
    rows[KEY_POSITION, index] = position
    rows[KEY_BYTES, index] = size
    size, position = read_varint(data, position + max(size, 0), record_end, INT_BITS)
    if position < 0:
        return BROKEN_OFF
    rows[HAS_VALUE, index] = 1 if size >= 0 else 0
    return record_end


@kernel
def list_records(data: Bytes, position: int, end: int, count: int, rows: Longs) -> int:
    """Fill the first `count` columns of `rows`; OK when data[position:end] is just so many records."""
    if count > rows.shape[1]:
        return TRUNCATED
    for index in range(count):
        rows[START, index] = position
        following, delta, rest, offset_delta, key_position, key_bytes = skim_record(data, position, end)
        value_at = key_position + max(key_bytes, 0)
        if following >= 0 and value_at < following and data[value_at] < 128:
            rows[TIMESTAMP_DELTA, index] = delta
            rows[REST, index] = rest
            rows[OFFSET_DELTA, index] = offset_delta
            rows[KEY_POSITION, index] = key_position
            rows[KEY_BYTES, index] = key_bytes
            rows[HAS_VALUE, index] = 1 - (data[value_at] & 1)  # negative lengths are odd
        else:
            following = list_record(data, position, end, index, rows)
            if following < 0:
                return TRUNCATED
        rows[SIZE, index] = following - position
        position = following
    return OK if position == end else TRUNCATED


@kernel
def look_up_all(
    data: Bytes, rows: Longs, count: int, base_offset: int, hashes: Any, known: Knowledge
) -> None:
    """KEEP of every record by key alone: 1 unless a later record of the key is known, or one of a higher
    version. Hashes come first.
    """
    limit = known.bits_start if known.bits.size else known.latest_offset + 1
    for index in range(count):
        if rows[KEY_BYTES, index] >= 0 and base_offset + rows[OFFSET_DELTA, index] < limit:
            low, high = siphash(
                data, rows[KEY_POSITION, index], rows[KEY_BYTES, index], known.secret[0], known.secret[1]
            )
            hashes[0, index] = low
            hashes[1, index] = high
    for index in range(count):
        offset = base_offset + rows[OFFSET_DELTA, index]
        if offset >= limit:
            relative = offset - known.bits_start
            keep = offset > known.latest_offset or (known.bits[relative >> 3] >> (relative & 7)) & 1
            rows[KEEP, index] = 1 if keep else 0
        elif rows[KEY_BYTES, index] >= 0:
            found = find_hashed(known.table, hashes[0, index], hashes[1, index])
            loses = offset < found or (known.is_versioned and offset > found >= 0)
            rows[KEEP, index] = 0 if loses else 1
        else:
            rows[KEEP, index] = 0


@kernel
def is_marked(known: Knowledge, offset: int) -> bool:
    """Whether a bit says that the record is its key's winner."""
    relative = offset - known.bits_start
    return 0 <= relative < 8 * known.bits.size and bool((known.bits[relative >> 3] >> (relative & 7)) & 1)


@kernel
def is_outlived(data: Bytes, rows: Longs, index: int, known: Knowledge) -> bool:
    """Whether records that lost to this one stand behind it. They may be in a segment that is swapped later:
    if the cleaning ended before that, without this one they would be there again.
    """
    low, high = siphash(
        data, rows[KEY_POSITION, index], rows[KEY_BYTES, index], known.secret[0], known.secret[1]
    )
    at = find_slot(known.table, low, high)
    slot = numpy.int64(at // U64(ENTRY_LONGS))
    is_known = known.table[at + U64(2)] != U64(0)
    return bool(is_known and (known.outlived[slot >> 3] >> (slot & 7)) & 1)


@kernel
def decide(
    data: Bytes,
    rows: Longs,
    count: int,
    base_offset: int,
    horizon_ms: int,
    hashes: Any,
    known: Knowledge,
    tally: Longs,
) -> tuple[int, int]:
    """Set KEEP of every record of a data batch: (how many stay, how many tombstones are among them).

    `horizon_ms` is the batch's delete horizon, -1 when it has none yet.
    """
    look_up_all(data, rows, count, base_offset, hashes, known)
    kept = 0
    tombstones = 0
    live = 0
    for index in range(count):
        offset = base_offset + rows[OFFSET_DELTA, index]
        if not rows[KEEP, index]:
            if known.bits.size and offset >= known.bits_start:
                tally[UNMARKED] += 1
            elif rows[KEY_BYTES, index] < 0:
                tally[KEYLESS] += 1
            else:
                tally[SUPERSEDED] += 1
            continue
        if not rows[HAS_VALUE, index]:
            is_expired = 0 <= horizon_ms <= known.now_ms and offset <= known.latest_offset
            if is_expired and not (known.is_versioned and is_outlived(data, rows, index, known)):
                rows[KEEP, index] = 0
                tally[TOMBSTONE] += 1
                continue
            tombstones += 1
            if horizon_ms == NO_TIMESTAMP:
                tally[NEWEST_HORIZON] = max(tally[NEWEST_HORIZON], known.new_horizon_ms)
            elif horizon_ms > known.now_ms:  # else it may go as soon as it is mapped, whatever the time
                tally[NEWEST_HORIZON] = max(tally[NEWEST_HORIZON], horizon_ms)
        elif offset <= known.latest_offset or is_marked(known, offset):
            live += 1
        kept += 1
    tally[READ] += count
    tally[KEPT] += kept
    tally[LIVE] += live
    tally[TOMBSTONES_KEPT] += tombstones
    return kept, tombstones


@kernel
def write_record(data: Bytes, rows: Longs, index: int, delta: int, output: Bytes, at: int) -> int:
    """Write one record with a new timestamp delta; the position behind it."""
    rest = rows[REST, index]
    end = rows[START, index] + rows[SIZE, index]
    at = write_varint(output, at, 1 + varint_bytes(delta) + end - rest)
    output[at] = 0
    at = write_varint(output, at + 1, delta)
    return copy_bytes(data, rest, end, output, at)


@kernel
def copy_kept(
    data: Bytes,
    rows: Longs,
    count: int,
    base_timestamp: int,
    stamped: int,
    horizon_ms: int,
    output: Bytes,
    at: int,
) -> tuple[int, int, int]:
    """Write the records with KEEP: (position behind them, new base timestamp, their largest timestamp).

    The base is the horizon, if there is one, else the first record's time. `stamped` is the time of a
    LogAppendTime batch, which every record takes, else -1.
    """
    new_base = horizon_ms
    has_base = horizon_ms != NO_TIMESTAMP  # not by the base itself: a record without a time is a base, too
    largest = NO_TIMESTAMP
    run_start = 0  # of the kept records that go on as they are, still to be copied in one go
    run_end = 0
    for index in range(count):
        if not rows[KEEP, index]:
            continue
        timestamp = stamped if stamped != NO_TIMESTAMP else base_timestamp + rows[TIMESTAMP_DELTA, index]
        if not has_base:
            new_base = timestamp
            has_base = True
        largest = max(largest, timestamp)
        delta = timestamp - new_base
        start = rows[START, index]
        if delta == rows[TIMESTAMP_DELTA, index] and start == run_end:
            run_end = start + rows[SIZE, index]
            continue
        at = copy_bytes(data, run_start, run_end, output, at)
        if delta == rows[TIMESTAMP_DELTA, index]:
            run_start = start
            run_end = start + rows[SIZE, index]
        else:
            at = write_record(data, rows, index, delta, output, at)
            run_start = run_end = start + rows[SIZE, index]
    return copy_bytes(data, run_start, run_end, output, at), new_base, largest
