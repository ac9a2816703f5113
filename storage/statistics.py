"""What a closed segment holds, in a file beside it (`storage/sidecar.py`): counts, times, a sketch of its
keys, a key filter, and a witness of what its batches' checksums do not cover.

It is written some time after the segment was closed or cleaned, while its bytes are those that this process
has written, and made anew when it is missing, damaged or of another time. Kafka and its tools do not know the
suffix and leave it alone.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import threading
import zlib
from typing import Any

import crc32c
import numpy

from protocol.batch import DELETE_HORIZON, LOG_APPEND_TIME, NO_TIMESTAMP, parse_header
from protocol.errors import ErrorCode, KafkaError
from protocol.records import payload
from storage import batch_table, layout
from storage.batch_table import RECORD_COUNT, Longs, Table, as_chunk
from storage.prefixes import CRC_TABLE, Prefixes
from storage.segment import Segment
from storage.sidecar import CHECKSUMS_A_BLOCK, MOST_HORIZONS, SegmentStatistics, open_sidecar, path_of
from storage.small_files import write_whole
from storage.statistics_kernels import (
    BLOCK_BITS,
    BLOCK_BYTES,
    BROKEN,
    CHECKED_BYTES,
    DONE,
    EMPTY_VALUES,
    KEYED,
    LATEST_TIMESTAMP,
    MARKERS,
    MIN_TIMESTAMP,
    SKETCH_BITS,
    SKETCH_REGISTERS,
    TALLY_NUMBERS,
    TOMBSTONES,
    count_batches,
    count_section,
    fold,
    hash_key,
    seal_blocks,
)

logger = logging.getLogger(__name__)

MIN_BITS_PER_KEY = 10
BUILD_BITS_PER_KEY = 12
COUNTED_SPAN = 1 << 22
"""offsets of a segment from which on its records are counted first: a cleaned one has few in a wide span"""
MAX_RANK = 64 - SKETCH_BITS + 1

_building = threading.Lock()  # one at a time: memory, and no two writers of one file


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
    """Read the segment: its statistics, the blocks of the file. KafkaError(CORRUPT_MESSAGE), OSError."""
    return _counted(segment).finish()


def _counted(segment: Segment) -> _Count:
    count = _Count(segment, _level_for(_records_at_most(segment), BUILD_BITS_PER_KEY))
    for table in segment.tables(0, count.size_bytes):
        count.add(table)
    return count


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
        self.size_bytes = segment.size_bytes
        """so much of it is counted: the active one grows meanwhile"""
        self._level = level
        self._blocks = numpy.zeros(BLOCK_BYTES << level, numpy.uint8)
        self._sketch = numpy.zeros(SKETCH_REGISTERS, numpy.uint8)
        self._tally = numpy.zeros(TALLY_NUMBERS, numpy.int64)
        self._tally[MIN_TIMESTAMP] = self._tally[LATEST_TIMESTAMP] = NO_TIMESTAMP
        self._horizons: dict[int, int] = {}
        self._ends: list[tuple[int, int]] = []  # position and checksum of the first and the latest batch
        self._prefixes = Prefixes()
        self._batches = 0
        self._records = 0
        self._next_offset = segment.base_offset

    def add(self, table: Table) -> None:
        """Whole batches, positions in the file."""
        begin = int(table[batch_table.POSITION, 0])
        end = int(table[batch_table.POSITION, -1] + table[batch_table.SIZE_BYTES, -1])
        data = self._segment.read_at(begin, end - begin)
        self._prefixes.add(table)
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

    @property
    def is_as_written(self) -> bool:
        """Whether nothing says that what no batch checksum covers was otherwise when it was written."""
        written = self._segment.prefixes
        return written is None or numpy.array_equal(written, self._prefixes.packed(self.size_bytes))

    def finish(self) -> tuple[SegmentStatistics, bytes]:
        keys = min(estimate(self._sketch), int(self._tally[KEYED]))
        level = min(self._level, _level_for(keys, MIN_BITS_PER_KEY))
        blocks = fold(self._blocks, self._level - level)
        seal_blocks(blocks, CRC_TABLE)
        (_, first_checksum), (last_position, last_checksum) = self._ends or [(0, 0), (0, 0)]
        aborted = self._segment.txn_index.content()
        statistics = SegmentStatistics(
            self._segment.base_offset, self._next_offset, self.size_bytes, last_position,
            first_checksum, last_checksum, self._batches, self._records, int(self._tally[KEYED]),
            int(self._tally[TOMBSTONES]), int(self._tally[EMPTY_VALUES]), int(self._tally[MARKERS]),
            int(self._tally[MIN_TIMESTAMP]), int(self._tally[LATEST_TIMESTAMP]), keys, _few(self._horizons),
            zlib.compress(self._sketch.tobytes(), 1), 1 << level, len(aborted), crc32c.crc32c(aborted),
        )  # fmt: skip
        return statistics, blocks.tobytes() + self._pack_prefixes(statistics.prefix_blocks)

    def _pack_prefixes(self, blocks: int) -> bytes:
        packed = numpy.zeros((blocks, BLOCK_BYTES), numpy.uint8)
        checksums = numpy.zeros(blocks * CHECKSUMS_A_BLOCK, ">u4")
        found = self._prefixes.packed(self.size_bytes)
        checksums[: len(found)] = found
        packed[:, :CHECKED_BYTES] = checksums.view(numpy.uint8).reshape(blocks, CHECKED_BYTES)
        sealed = packed.reshape(-1)
        seal_blocks(sealed, CRC_TABLE)
        return sealed.tobytes()


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


def write(segment: Segment, statistics: SegmentStatistics, blocks: bytes) -> bool:
    """Put the file in place in one step, whole even after a power cut. Where that fails there is none, and
    the answer is False: it is no reason to refuse one to a question.
    """
    path = path_of(segment)
    temporary = path.with_name(path.name + layout.TEMPORARY_SUFFIX)
    disk = segment.file.disk
    if not is_in_use(segment):
        return False
    try:
        write_whole(disk, temporary, statistics.encode_head() + blocks, is_durable=True)
        disk.rename(temporary, path)
        if not is_in_use(segment):  # it has just left the log: its successor may be as large
            disk.unlink(path)
            return False
        return True
    except OSError as problem:
        with contextlib.suppress(OSError):
            disk.unlink(temporary)
        logger.warning("%s is not written: %s", path, problem)
        return False


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
    segment.check(0, segment.size_bytes)  # or what is damaged would be held for right from then on
    try:
        count = _counted(segment)
        is_as_written = count.is_as_written
    except KafkaError:
        if segment.prefixes is None:
            raise
        is_as_written = False
    if not is_as_written:
        segment.check_again(0, segment.size_bytes)
        count = _counted(segment)
    statistics, blocks = count.finish()
    if not segment.damages and write(segment, statistics, blocks):
        segment.prefixes = None
    return statistics


def hash_of(key: bytes) -> int:
    """What the filter knows a key by."""
    return int(hash_key(as_chunk(key or bytes(1)), 0, len(key)))
