"""Kernels of the third step: the batch that is left of what survives, written anew, a chunk at a time.

Batches whose records cannot be reached from a kernel (see `unpacking.py`) are left to `rewriting.py`.
"""

from __future__ import annotations

from typing import Any

from cleaner.filter_kernels import (
    ABORTED,
    ARM,
    BROKEN,
    COMPRESSED,
    DAMAGED,
    DISCARD,
    DONE,
    GROWTH_BYTES,
    KEEP,
    KEEP_SHELL,
    KEPT,
    MARKER,
    OUTPUT_FULL,
    READ,
    UNMARKED,
    Knowledge,
    copy_kept,
    decide,
    list_records,
    no_bit,
)  # fmt: skip
from cleaner.offset_map import Bytes, Longs
from cleaner.pauses import Pauses, work_done
from cleaner.unpacking import Lz4Scratch, lz4_room, unpack_lz4
from protocol.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
)
from protocol.kernel import kernel
from protocol.lz4_frames import pack, packed_room
from protocol.record_kernels import OK, copy_bytes
from storage.batch_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    POSITION,
    RECORD_COUNT,
    SIZE_BYTES,
    read_unsigned,
)
from storage.checksums import Crc32c, is_damaged, seal


@kernel
def write_number(output: Bytes, at: int, size: int, number: int) -> None:
    """`size` big-endian bytes."""
    for index in range(size):
        output[at + index] = (number >> (8 * (size - 1 - index))) & 0xFF


@kernel
def write_shell(chunk: Bytes, position: int, output: Bytes, at: int, crc32c: Crc32c) -> int:
    """The empty batch that keeps a producer's last sequence, or the end offset (T50)."""
    end = copy_bytes(chunk, position, position + HEADER_BYTES, output, at)
    attributes = read_unsigned(chunk, position + 21, 2) & ~(CODEC_MASK | DELETE_HORIZON)
    write_number(output, at + 8, 4, HEADER_BYTES - LENGTH_PREFIX_BYTES)
    write_number(output, at + 21, 2, attributes)
    write_number(output, at + 27, 8, NO_TIMESTAMP)
    write_number(output, at + 57, 4, 0)
    seal(output, at, end, crc32c)
    return end


@kernel
def rebuild_batch(
    chunk: Bytes, position: int, attributes: int, rows: Longs, count: int, kept: int, horizon_ms: int,
    lz4: Lz4Scratch, output: Bytes, at: int, crc32c: Crc32c,
) -> int:  # fmt: skip
    """A batch of the kept records; everything but length, times, count and checksum is the old one's. Of lz4
    the records are those in `lz4.unpacked`.
    """
    stamped = read_unsigned(chunk, position + 35, 8) if attributes & LOG_APPEND_TIME else NO_TIMESTAMP
    old_base = read_unsigned(chunk, position + 27, 8)
    body = copy_bytes(chunk, position, position + HEADER_BYTES, output, at)
    if attributes & CODEC_MASK:
        size, new_base, largest = copy_kept(
            lz4.unpacked, rows, count, old_base, stamped, horizon_ms, lz4.rewritten, 0
        )
        end = pack(lz4.rewritten, size, output, body, lz4.compress)
    else:
        end, new_base, largest = copy_kept(chunk, rows, count, old_base, stamped, horizon_ms, output, body)
    if horizon_ms != NO_TIMESTAMP:
        attributes |= DELETE_HORIZON
    write_number(output, at + 8, 4, end - at - LENGTH_PREFIX_BYTES)
    write_number(output, at + 21, 2, attributes)
    write_number(output, at + 27, 8, new_base)
    if stamped == NO_TIMESTAMP:
        write_number(output, at + 35, 8, largest)
    write_number(output, at + 57, 4, kept)
    seal(output, at, end, crc32c)
    return end


@kernel
def horizon_of(chunk: Bytes, position: int, attributes: int) -> int:
    return read_unsigned(chunk, position + 27, 8) if attributes & DELETE_HORIZON else NO_TIMESTAMP


@kernel
def is_superseded_whole(batches: Longs, index: int, known: Knowledge) -> bool:
    """Whether the bits alone tell that no record of this batch is its key's last."""
    first = batches[BASE_OFFSET, index]
    last = batches[LAST_OFFSET, index]
    if not known.bits.size or first < known.bits_start or last > known.latest_offset or last < first:
        return False
    return no_bit(known.bits, first - known.bits_start, last - known.bits_start)


@kernel
def filter_records(
    data: Bytes, start: int, end: int, count: int, base_offset: int, horizon_ms: int,
    rows: Longs, hashes: Any, known: Knowledge, tally: Longs,
) -> tuple[int, int, int]:  # fmt: skip
    """Decide about data[start:end], the records of a data batch: (why it ended, how many stay, how many
    tombstones are among them).
    """
    if list_records(data, start, end, count, rows) != OK:
        return BROKEN, 0, 0
    kept, tombstones = decide(data, rows, count, base_offset, horizon_ms, hashes, known, tally)
    return DONE, kept, tombstones


@kernel
def keep_all(data: Bytes, start: int, end: int, count: int, rows: Longs, tally: Longs) -> int:
    """As `filter_records`, of a control batch: why it ended."""
    if list_records(data, start, end, count, rows) != OK:
        return BROKEN
    rows[KEEP, :count] = 1
    tally[READ] += count
    tally[KEPT] += count
    return DONE


@kernel
def filter_batch(
    chunk: Bytes, batches: Longs, index: int, verdict: int, rows: Longs, hashes: Any, known: Knowledge,
    lz4: Lz4Scratch, pauses: Pauses, output: Bytes, at: int, tally: Longs,
) -> tuple[int, int, int]:  # fmt: skip
    """Decide about one batch: (why it ended, records that stay, tombstones among them)."""
    records = batches[RECORD_COUNT, index]
    attributes = batches[ATTRIBUTES, index]
    base_offset = batches[BASE_OFFSET, index]
    if verdict & DISCARD:
        tally[READ] += records
        tally[MARKER if attributes & CONTROL else ABORTED] += records
        return DONE, 0, 0
    if records == 0:
        return DONE, 0, 0
    if attributes & CONTROL == 0 and is_superseded_whole(batches, index, known):
        tally[READ] += records
        tally[UNMARKED] += records
        return DONE, 0, 0
    start = batches[POSITION, index] + HEADER_BYTES
    end = batches[POSITION, index] + batches[SIZE_BYTES, index]
    horizon = horizon_of(chunk, batches[POSITION, index], attributes)
    if attributes & CODEC_MASK:
        room = lz4_room(chunk, batches, index, lz4)
        grown = room + records * GROWTH_BYTES
        written = HEADER_BYTES + packed_room(grown)
        if room < 0 or records > rows.shape[1] or grown > lz4.rewritten.size or written > output.size:
            return COMPRESSED, 0, 0
        if written > output.size - at:
            return OUTPUT_FULL, 0, 0
        size = unpack_lz4(chunk, batches, index, lz4)
        if size < 0:
            return COMPRESSED, 0, 0
        work_done(size, pauses)
        return filter_records(
            lz4.unpacked, 0, size, records, base_offset, horizon, rows, hashes, known, tally
        )
    if attributes & CONTROL:
        return keep_all(chunk, start, end, records, rows, tally), records, 0
    return filter_records(chunk, start, end, records, base_offset, horizon, rows, hashes, known, tally)


@kernel
def filter_batches(
    chunk: Bytes, batches: Longs, verdicts: Bytes, first: int, count: int, rows: Longs, hashes: Any,
    known: Knowledge, lz4: Lz4Scratch, pauses: Pauses, output: Bytes, at: int, crc32c: Crc32c, tally: Longs,
) -> tuple[int, int, int]:  # fmt: skip
    """Write what survives of the batches [first, count): (why it ended, at which batch, end of the output).

    What is written anew gets a new checksum, so that its source is checked first.
    """
    for index in range(first, count):
        position = batches[POSITION, index]
        records = batches[RECORD_COUNT, index]
        attributes = batches[ATTRIBUTES, index]
        size = batches[SIZE_BYTES, index]
        growth = 0 if attributes & CODEC_MASK else records * GROWTH_BYTES  # else `filter_batch` sees to it
        if output.size - at < size + growth:
            return OUTPUT_FULL, index, at
        if records < 0:
            return BROKEN, index, at
        reason, kept, tombstones = filter_batch(
            chunk, batches, index, verdicts[index], rows, hashes, known, lz4, pauses, output, at, tally
        )
        if reason != DONE:
            return reason, index, at
        work_done(size, pauses)
        if kept == 0 and verdicts[index] & KEEP_SHELL == 0:
            continue
        horizon = horizon_of(chunk, position, attributes)
        is_armed_now = horizon == NO_TIMESTAMP and (tombstones > 0 or verdicts[index] & ARM)
        if 0 < kept == records and not is_armed_now:
            at = copy_bytes(chunk, position, position + size, output, at)
            continue
        if is_damaged(chunk, batches, index, crc32c):
            return DAMAGED, index, at
        if kept == 0:
            at = write_shell(chunk, position, output, at, crc32c)
            continue
        horizon = known.new_horizon_ms if is_armed_now else horizon
        at = rebuild_batch(chunk, position, attributes, rows, records, kept, horizon, lz4, output, at, crc32c)
    return DONE, count, at
