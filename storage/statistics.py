"""What a closed segment holds, in a file beside it: counts, times, a sketch of its keys, a key filter
(FORMAT.md tells every byte).

Nothing rests on this file: it is written some time after the segment was closed or cleaned, told from
one of other batches by the size and the ends of the `.log` it was made of, and made anew when it is missing,
damaged or of another time. Kafka and its tools do not know the suffix and leave it alone. A key filter never
denies a key that is there: each block has a checksum of its own, so that a look-up can trust 64 bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import threading
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from struct import Struct, error
from typing import Any

import crc32c
import numpy

from protocol.batch import DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME, parse_header
from protocol.errors import ErrorCode, KafkaError
from protocol.records import payload
from storage import batch_table, layout
from storage.batch_table import RECORD_COUNT, Longs, Table, as_chunk
from storage.file import Disk, read_whole, write_whole
from storage.segment import Segment
from storage.statistics_kernels import (
    BLOCK_BITS,
    BLOCK_BYTES,
    BROKEN,
    CHECKED_BYTES,
    CRC_TABLE,
    DONE,
    HASHES,
    KEYED,
    LATEST_TIMESTAMP,
    MARKERS,
    MIN_TIMESTAMP,
    NO_TIMESTAMP,
    SKETCH_BITS,
    SKETCH_REGISTERS,
    TALLY_NUMBERS,
    TOMBSTONES,
    block_of,
    count_batches,
    count_section,
    fold,
    hash_key,
    is_in_block,
    seal_blocks,
)

logger = logging.getLogger(__name__)

MAGIC = b"KSTA"
VERSION = 1
_HEAD = Struct(">4sHBBI")  # magic, version, hashes a key, bits of the sketch's index, checksum of the rest
_BODY = Struct(">qqqqIIqqqqqqqqIII")
_HORIZON = Struct(">qq")
MOST_HORIZONS = 64
MIN_BITS_PER_KEY = 10
BUILD_BITS_PER_KEY = 12
COUNTED_SPAN = 1 << 22
"""offsets of a segment from which on its records are counted first: a cleaned one has few in a wide span"""
FIRST_READ_BYTES = 8192
MAX_RANK = 64 - SKETCH_BITS + 1

_building = threading.Lock()  # one at a time: memory, and no two writers of one file


class DamagedStatistics(ValueError):
    """The bytes are no statistics."""


@dataclass(frozen=True)
class SegmentStatistics:
    """The counts of one segment, and where its key filter is. Times in ms; None where no record has one."""

    base_offset: int
    next_offset: int
    size_bytes: int
    last_position: int
    first_checksum: int
    last_checksum: int
    batches: int
    records: int
    keyed_records: int
    tombstones: int
    markers: int
    min_timestamp: int
    max_timestamp: int
    distinct_keys: int
    horizons: tuple[tuple[int, int], ...]
    """(delete horizon, tombstones that may go from then on), ascending; the others have none yet"""
    packed_sketch: bytes
    filter_blocks: int

    @cached_property
    def sketch(self) -> numpy.ndarray[Any, numpy.dtype[numpy.uint8]]:
        return numpy.frombuffer(zlib.decompress(self.packed_sketch), numpy.uint8)

    @property
    def holes(self) -> int:
        """Offsets that hold no record any more."""
        return max(0, self.next_offset - self.base_offset - self.records)

    @property
    def filter_position(self) -> int:
        size = _HEAD.size + _BODY.size + _HORIZON.size * len(self.horizons) + len(self.packed_sketch)
        return -(-size // BLOCK_BYTES) * BLOCK_BYTES

    @property
    def filter_level(self) -> int:
        return self.filter_blocks.bit_length() - 1

    def tombstones_at(self, now_ms: int) -> tuple[int, int, int]:
        """(fresh: not armed yet, armed: may go later, expired: may go now)."""
        armed = sum(count for horizon, count in self.horizons if horizon > now_ms)
        expired = sum(count for horizon, count in self.horizons if horizon <= now_ms)
        return self.tombstones - armed - expired, armed, expired

    def encode_head(self) -> bytes:
        """The file up to the key filter."""
        body = _BODY.pack(
            self.base_offset, self.next_offset, self.size_bytes, self.last_position, self.first_checksum,
            self.last_checksum, self.batches, self.records, self.keyed_records, self.tombstones, self.markers,
            self.min_timestamp, self.max_timestamp, self.distinct_keys,
            len(self.horizons), len(self.packed_sketch), self.filter_blocks,
        )  # fmt: skip
        body += b"".join(_HORIZON.pack(*one) for one in self.horizons) + self.packed_sketch
        body += bytes(self.filter_position - _HEAD.size - len(body))
        return _HEAD.pack(MAGIC, VERSION, HASHES, SKETCH_BITS, crc32c.crc32c(body)) + body


def decode_head(data: bytes) -> SegmentStatistics:
    """From the file's bytes up to the key filter or beyond; DamagedStatistics."""
    try:
        magic, version, hashes, sketch_bits, checksum = _HEAD.unpack_from(data)
        if (magic, version, hashes, sketch_bits) != (MAGIC, VERSION, HASHES, SKETCH_BITS):
            raise DamagedStatistics("not written in this format")
        *numbers, horizon_count, sketch_bytes, blocks = _BODY.unpack_from(data, _HEAD.size)
        at = _HEAD.size + _BODY.size
        if horizon_count > MOST_HORIZONS:
            raise DamagedStatistics(f"{horizon_count} delete horizons")
        horizons = tuple(_HORIZON.unpack_from(data, at + _HORIZON.size * n) for n in range(horizon_count))
        at += _HORIZON.size * horizon_count
        fields: list[Any] = [*numbers, horizons, data[at : at + sketch_bytes], blocks]
        found = SegmentStatistics(*fields)
    except error:
        raise DamagedStatistics("cut off") from None
    if blocks < 1 or blocks & (blocks - 1) or len(data) < found.filter_position:
        raise DamagedStatistics("cut off")
    if crc32c.crc32c(data[_HEAD.size : found.filter_position]) != checksum:
        raise DamagedStatistics("a wrong checksum")
    return found


def bytes_of_head(data: bytes) -> int:
    """How many bytes the head takes, judged by its first 120."""
    if len(data) < _HEAD.size + _BODY.size:
        raise DamagedStatistics("cut off")
    *_, horizon_count, sketch_bytes, _ = _BODY.unpack_from(data, _HEAD.size)
    size = _HEAD.size + _BODY.size + _HORIZON.size * int(horizon_count) + int(sketch_bytes)
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def decode(data: bytes) -> tuple[SegmentStatistics, bytes]:
    """A whole file: the statistics and the key filter; DamagedStatistics."""
    found = decode_head(data)
    blocks = data[found.filter_position :]
    if len(blocks) != found.filter_blocks * BLOCK_BYTES:
        raise DamagedStatistics(f"{len(blocks)} bytes are no {found.filter_blocks} blocks of the key filter")
    for number in range(found.filter_blocks):
        if not is_block_whole(blocks[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]):
            raise DamagedStatistics(f"block {number} of the key filter has a wrong checksum")
    return found, blocks


def is_block_whole(block: bytes) -> bool:
    return len(block) == BLOCK_BYTES and crc32c.crc32c(block[:CHECKED_BYTES]) == int.from_bytes(
        block[CHECKED_BYTES:], "big"
    )


# Estimates


def estimate(sketch: numpy.ndarray[Any, Any]) -> int:
    """How many distinct keys were added: Ertl's estimator, within 0.8 % (one standard deviation)."""
    counts = numpy.bincount(sketch, minlength=MAX_RANK + 1).tolist()
    if counts[0] == SKETCH_REGISTERS:
        return 0
    value = SKETCH_REGISTERS * _tau(1.0 - counts[MAX_RANK] / SKETCH_REGISTERS)
    for rank in range(MAX_RANK - 1, 0, -1):
        value = 0.5 * (value + counts[rank])
    value += SKETCH_REGISTERS * _sigma(counts[0] / SKETCH_REGISTERS)
    return round(SKETCH_REGISTERS * SKETCH_REGISTERS / (2 * math.log(2) * value))


def _sigma(x: float) -> float:
    y, value, before = 1.0, x, -1.0
    while value != before:
        x *= x
        before = value
        value += x * y
        y += y
    return value


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, value, before = 1.0, 1.0 - x, -1.0
    while value != before:
        x = math.sqrt(x)
        before = value
        y *= 0.5
        value -= (1.0 - x) ** 2 * y
    return value / 3


# Building


def build(segment: Segment) -> tuple[SegmentStatistics, bytes]:
    """Read the whole segment: its statistics and its key filter. KafkaError(CORRUPT_MESSAGE), OSError."""
    level = _level_for(_records_at_most(segment), BUILD_BITS_PER_KEY)
    count = _Count(segment, level)
    for table in segment.tables(0, segment.size_bytes):
        count.add(table)
    return count.finish()


def _records_at_most(segment: Segment) -> int:
    span = segment.next_offset - segment.base_offset
    if span <= COUNTED_SPAN:
        return span
    return sum(int(table[RECORD_COUNT].sum()) for table in segment.tables(0, segment.size_bytes))


def _level_for(keys: int, bits_per_key: int) -> int:
    """The binary logarithm of how many blocks give each key so many bits."""
    return max(0, math.ceil(keys * bits_per_key / BLOCK_BITS) - 1).bit_length()


class _Count:
    """One pass over a segment. Owned by: the thread that builds."""

    def __init__(self, segment: Segment, level: int) -> None:
        self._segment = segment
        self._level = level
        self._blocks = numpy.zeros(BLOCK_BYTES << level, numpy.uint8)
        self._sketch = numpy.zeros(SKETCH_REGISTERS, numpy.uint8)
        self._tally = numpy.zeros(TALLY_NUMBERS, numpy.int64)
        self._tally[MIN_TIMESTAMP] = self._tally[LATEST_TIMESTAMP] = NO_TIMESTAMP
        self._horizons: dict[int, int] = {}
        self._ends: list[tuple[int, int]] = []  # position and checksum of the first and the latest batch
        self._batches = 0
        self._records = 0
        self._next_offset = segment.base_offset

    def add(self, table: Table) -> None:
        """Whole batches, positions in the file."""
        begin = int(table[batch_table.POSITION, 0])
        end = int(table[batch_table.POSITION, -1] + table[batch_table.SIZE_BYTES, -1])
        data = self._segment.read_at(begin, end - begin)
        table = table.copy()
        table[batch_table.POSITION] -= begin
        tombstones = numpy.zeros(table.shape[1], numpy.int64)
        index, reason = 0, BROKEN
        while reason != DONE:
            reason, index = count_batches(
                as_chunk(data), table, index, self._sketch, self._blocks, self._level, self._tally, tombstones
            )
            if reason == BROKEN:
                raise self._broken(int(table[batch_table.BASE_OFFSET, index]))
            if reason != DONE:
                tombstones[index] = self._add_compressed(data, int(table[batch_table.POSITION, index]))
                index += 1
        self._note_horizons(data, table, tombstones)
        first, last = table[:, 0], table[:, -1]
        self._ends = [
            self._ends[0] if self._ends else (0, int(first[batch_table.CHECKSUM])),
            (begin + int(last[batch_table.POSITION]), int(last[batch_table.CHECKSUM])),
        ]
        self._batches += table.shape[1]
        self._records += int(table[RECORD_COUNT].sum())
        self._next_offset = int(last[batch_table.LAST_OFFSET]) + 1

    def _broken(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at offset {offset} of {self._segment.file.path.name} is not made of whole records",
        )

    def _add_compressed(self, data: bytes, position: int) -> int:
        header = parse_header(data, position)
        records = payload(data, position, header)
        stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else NO_TIMESTAMP
        found = count_section(
            records, 0, records.size, header.record_count, header.base_timestamp, stamped,
            self._sketch, self._blocks, self._level, self._tally,
        )  # fmt: skip
        if found < 0:
            raise self._broken(header.base_offset)
        return int(found)

    def _note_horizons(self, data: bytes, table: Table, tombstones: Longs) -> None:
        armed = (table[batch_table.ATTRIBUTES] & DELETE_HORIZON != 0) & (tombstones > 0)
        for column in numpy.flatnonzero(armed):
            horizon = parse_header(data, int(table[batch_table.POSITION, column])).base_timestamp
            self._horizons[horizon] = self._horizons.get(horizon, 0) + int(tombstones[column])

    def finish(self) -> tuple[SegmentStatistics, bytes]:
        keys = min(estimate(self._sketch), int(self._tally[KEYED]))
        level = min(self._level, _level_for(keys, MIN_BITS_PER_KEY))
        blocks = fold(self._blocks, self._level - level)
        seal_blocks(blocks, CRC_TABLE)
        (_, first_checksum), (last_position, last_checksum) = self._ends or [(0, 0), (0, 0)]
        statistics = SegmentStatistics(
            self._segment.base_offset, self._next_offset, self._segment.size_bytes, last_position,
            first_checksum, last_checksum, self._batches, self._records, int(self._tally[KEYED]),
            int(self._tally[TOMBSTONES]), int(self._tally[MARKERS]), int(self._tally[MIN_TIMESTAMP]),
            int(self._tally[LATEST_TIMESTAMP]), keys, _few(self._horizons),
            zlib.compress(self._sketch.tobytes(), 1), 1 << level,
        )  # fmt: skip
        return statistics, blocks.tobytes()


def _few(horizons: dict[int, int]) -> tuple[tuple[int, int], ...]:
    """At most MOST_HORIZONS: the closest neighbours become one, at the later time."""
    found = sorted(horizons.items())
    while len(found) > MOST_HORIZONS:
        gaps = [after[0] - before[0] for before, after in itertools.pairwise(found)]
        place = gaps.index(min(gaps))
        (_, count), (later, more) = found[place : place + 2]
        found[place : place + 2] = [(later, count + more)]
    return tuple(found)


# The file


def path_of(segment: Segment) -> Path:
    name = layout.segment_file_name(segment.base_offset, layout.STATISTICS_SUFFIX)
    return segment.directory / name


def describes(statistics: SegmentStatistics, segment: Segment) -> bool:
    """Whether the statistics were made of these very batches: same size, same ends."""
    if (statistics.base_offset, statistics.size_bytes) != (segment.base_offset, segment.size_bytes):
        return False
    if not segment.size_bytes:
        return True
    first = segment.read_at(0, HEADER_BYTES)
    last = segment.read_at(statistics.last_position, HEADER_BYTES)
    if len(first) < HEADER_BYTES or len(last) < HEADER_BYTES:
        return False
    return (
        parse_header(first).crc == statistics.first_checksum
        and parse_header(last).crc == statistics.last_checksum
        and parse_header(last).next_offset == statistics.next_offset
    )


class Sidecar:
    """The statistics file of one segment, open for looking up keys. Owned by: the thread that opened it."""

    def __init__(self, disk: Disk, descriptor: int, statistics: SegmentStatistics) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self.statistics = statistics

    def may_hold(self, value: int) -> bool:
        """Whether a key with this hash may be in the segment; DamagedStatistics."""
        statistics = self.statistics
        position = statistics.filter_position
        position += int(block_of(numpy.uint64(value), statistics.filter_level)) * BLOCK_BYTES
        block = self._disk.pread(self._descriptor, BLOCK_BYTES, position)
        if not is_block_whole(block):
            raise DamagedStatistics("a block of the key filter has a wrong checksum")
        return bool(is_in_block(as_chunk(block), numpy.uint64(value)))

    def close(self) -> None:
        self._disk.close(self._descriptor)


def open_sidecar(segment: Segment) -> Sidecar | None:
    """The file of a segment; None when there is none that is whole and of these very batches."""
    disk = segment.file.disk
    try:
        descriptor = disk.open(path_of(segment), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        head = disk.pread(descriptor, FIRST_READ_BYTES, 0)
        size = bytes_of_head(head)
        if size > len(head):
            head = disk.pread(descriptor, size, 0)
        statistics = decode_head(head)
        if describes(statistics, segment):
            return Sidecar(disk, descriptor, statistics)
    except DamagedStatistics as problem:
        logger.warning("%s is damaged (%s) and made anew", path_of(segment), problem)
    except BaseException:
        disk.close(descriptor)
        raise
    disk.close(descriptor)
    return None


def write(segment: Segment, statistics: SegmentStatistics, blocks: bytes) -> None:
    """Put the file in place in one step, whole even after a power cut. Where that fails there is none: it is
    no reason to refuse an answer.
    """
    path = path_of(segment)
    temporary = path.with_name(path.name + layout.TEMPORARY_SUFFIX)
    disk = segment.file.disk
    if not is_in_use(segment):
        return
    try:
        write_whole(disk, temporary, statistics.encode_head() + blocks, is_durable=True)
        disk.rename(temporary, path)
    except OSError as problem:
        with contextlib.suppress(OSError):
            disk.unlink(temporary)
        logger.warning("%s is not written: %s", path, problem)


def is_in_use(segment: Segment) -> bool:
    """Whether its file still has its name, and so has not been taken out of the log."""
    return segment.file.path.suffix == layout.LOG_SUFFIX


def ensure(segment: Segment) -> SegmentStatistics:
    """The statistics of a segment, from its file or made now; that of the active one is not written."""
    if segment.is_active:
        return build(segment)[0]
    with _building:
        sidecar = open_sidecar(segment)
        if sidecar is not None:
            sidecar.close()
            return sidecar.statistics
        return _make(segment)


def remake(segment: Segment) -> SegmentStatistics:
    """Make the file of a closed segment, whatever is there."""
    with _building:
        return _make(segment)


def _make(segment: Segment) -> SegmentStatistics:
    statistics, blocks = build(segment)
    write(segment, statistics, blocks)
    return statistics


def read_file(disk: Disk, path: Path) -> tuple[SegmentStatistics, bytes]:
    """A statistics file by path; DamagedStatistics."""
    return decode(read_whole(disk, path))


def hash_of(key: bytes) -> int:
    """What the filter knows a key by."""
    return int(hash_key(as_chunk(key or bytes(1)), 0, len(key)))
