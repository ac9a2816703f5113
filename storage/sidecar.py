"""The file of a segment's statistics: its format (FORMAT.md tells every byte), and reading it.

Nothing rests on this file. It is told from one of other batches by the size and the ends of the `.log` it was
made of. A key filter never denies a key that is there: blocks of 64 bytes have a checksum each, so that a
look-up can trust one. What it knows of the bytes that no batch checksum covers is a witness of the batches.
"""

from __future__ import annotations

import logging
import os
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from struct import Struct, error
from typing import TYPE_CHECKING, Any

import crc32c
import numpy

from protocol.batch import HEADER_BYTES, parse_header
from storage import layout
from storage.batch_table import as_chunk
from storage.file import Disk
from storage.prefixes import STRETCH_BYTES, Witness, stretches_in
from storage.small_files import read_whole
from storage.statistics_kernels import (
    BLOCK_BYTES,
    CHECKED_BYTES,
    HASHES,
    SKETCH_BITS,
    SKETCH_REGISTERS,
    block_of,
    is_in_block,
)

if TYPE_CHECKING:
    from storage.stored_batches import StoredBatches

logger = logging.getLogger(__name__)

MAGIC = b"KSTA"
VERSION = 3
_HEAD = Struct(">4sHBBI")  # magic, version, hashes a key, bits of the sketch's index, checksum of the rest
_BODY = Struct(">qqqqIIqqqqqqqqqIIIIII")
_HORIZON = Struct(">qq")
MOST_HORIZONS = 64
MOST_SKETCH_BYTES = SKETCH_REGISTERS + 1024  # packed; what cannot be packed grows by a few bytes
FIRST_READ_BYTES = 8192
CHECKSUMS_A_BLOCK = CHECKED_BYTES // 4


def _size_of_head(horizons: int, sketch_bytes: int) -> int:
    """In bytes, which are whole blocks."""
    size = _HEAD.size + _BODY.size + _HORIZON.size * horizons + sketch_bytes
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


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
    empty_values: int
    """of records with a key: they look like tombstones to some clients, and are none (W10)"""
    markers: int
    min_timestamp: int
    max_timestamp: int
    distinct_keys: int
    horizons: tuple[tuple[int, int], ...]
    """(delete horizon, tombstones that may go from then on), ascending; the others have none yet"""
    packed_sketch: bytes
    filter_blocks: int
    aborted_bytes: int
    aborted_checksum: int
    """of the `.txnindex`: its size, 0 when there was none, and its CRC-32C"""

    @cached_property
    def sketch(self) -> numpy.ndarray[Any, numpy.dtype[numpy.uint8]]:
        return numpy.frombuffer(zlib.decompress(self.packed_sketch), numpy.uint8)

    @property
    def holes(self) -> int:
        """Offsets that hold no record any more."""
        return max(0, self.next_offset - self.base_offset - self.records)

    @property
    def filter_position(self) -> int:
        return _size_of_head(len(self.horizons), len(self.packed_sketch))

    @property
    def filter_level(self) -> int:
        return self.filter_blocks.bit_length() - 1

    @property
    def prefix_blocks(self) -> int:
        """How many blocks hold the checksums of prefixes, behind the key filter."""
        return -(-stretches_in(self.size_bytes) // CHECKSUMS_A_BLOCK)

    @property
    def blocks(self) -> int:
        return self.filter_blocks + self.prefix_blocks

    def tombstones_at(self, now_ms: int) -> tuple[int, int, int]:
        """(fresh: not armed yet, armed: may go later, expired: may go now)."""
        armed = sum(count for horizon, count in self.horizons if horizon > now_ms)
        expired = sum(count for horizon, count in self.horizons if horizon <= now_ms)
        return self.tombstones - armed - expired, armed, expired

    def encode_head(self) -> bytes:
        """The file up to the key filter."""
        body = _BODY.pack(
            self.base_offset, self.next_offset, self.size_bytes, self.last_position, self.first_checksum,
            self.last_checksum, self.batches, self.records, self.keyed_records, self.tombstones,
            self.empty_values, self.markers, self.min_timestamp, self.max_timestamp, self.distinct_keys,
            len(self.horizons), len(self.packed_sketch), self.filter_blocks, self.prefix_blocks,
            self.aborted_bytes, self.aborted_checksum,
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
        fields: list[Any] = list(_BODY.unpack_from(data, _HEAD.size))
        *numbers, horizon_count, sketch_bytes, blocks, prefix_blocks, size, aborted = fields
        at = _HEAD.size + _BODY.size
        if horizon_count > MOST_HORIZONS:
            raise DamagedStatistics(f"{horizon_count} delete horizons")
        horizons = tuple(_HORIZON.unpack_from(data, at + _HORIZON.size * n) for n in range(horizon_count))
        at += _HORIZON.size * horizon_count
        fields = [*numbers, horizons, data[at : at + sketch_bytes], blocks, size, aborted]
        found = SegmentStatistics(*fields)
    except error:
        raise DamagedStatistics("cut off") from None
    if blocks < 1 or blocks & (blocks - 1) or len(data) < found.filter_position:
        raise DamagedStatistics("cut off")
    if crc32c.crc32c(data[_HEAD.size : found.filter_position]) != checksum:
        raise DamagedStatistics("a wrong checksum")
    if prefix_blocks != found.prefix_blocks:
        raise DamagedStatistics(f"{prefix_blocks} blocks of prefixes")
    return found


def bytes_of_head(data: bytes) -> int:
    """How many bytes the head takes, judged by its first 148, of which no checksum was looked at yet."""
    if len(data) < _HEAD.size + _BODY.size:
        raise DamagedStatistics("cut off")
    *_, horizon_count, sketch_bytes, _, _, _, _ = _BODY.unpack_from(data, _HEAD.size)
    if horizon_count > MOST_HORIZONS or sketch_bytes > MOST_SKETCH_BYTES:
        raise DamagedStatistics(f"{horizon_count} delete horizons, a sketch of {sketch_bytes} bytes")
    return _size_of_head(horizon_count, sketch_bytes)


def decode(data: bytes) -> tuple[SegmentStatistics, bytes]:
    """A whole file: the statistics and the blocks behind them; DamagedStatistics."""
    found = decode_head(data)
    blocks = data[found.filter_position :]
    if len(blocks) != found.blocks * BLOCK_BYTES:
        raise DamagedStatistics(f"{len(blocks)} bytes are no {found.blocks} blocks")
    for number in range(found.blocks):
        if not is_block_whole(blocks[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]):
            raise DamagedStatistics(f"block {number} has a wrong checksum")
    return found, blocks


def is_block_whole(block: bytes) -> bool:
    return len(block) == BLOCK_BYTES and crc32c.crc32c(block[:CHECKED_BYTES]) == int.from_bytes(
        block[CHECKED_BYTES:], "big"
    )


def path_of(segment: StoredBatches) -> Path:
    name = layout.segment_file_name(segment.base_offset, layout.STATISTICS_SUFFIX)
    return segment.directory / name


def describes(statistics: SegmentStatistics, segment: StoredBatches) -> bool:
    """Whether the statistics were made of these very batches: same size, same ends."""
    if not _is_as_large(statistics, segment):
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


def _is_as_large(statistics: SegmentStatistics, segment: StoredBatches) -> bool:
    """What even a damaged segment has in common with its own statistics."""
    return (statistics.base_offset, statistics.size_bytes) == (segment.base_offset, segment.size_bytes)


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

    def checksums_of_prefixes(self, first: int, count: int) -> tuple[int, ...]:
        """Of so many stretches from number `first` on; DamagedStatistics."""
        if not count:
            return ()
        begin, end = first // CHECKSUMS_A_BLOCK, (first + count - 1) // CHECKSUMS_A_BLOCK + 1
        position = self.statistics.filter_position + BLOCK_BYTES * (self.statistics.filter_blocks + begin)
        data = self._disk.pread(self._descriptor, BLOCK_BYTES * (end - begin), position)
        found: list[int] = []
        for number in range(end - begin):
            block = data[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
            if not is_block_whole(block):
                raise DamagedStatistics("a block of prefixes has a wrong checksum")
            found += numpy.frombuffer(block[:CHECKED_BYTES], ">u4").tolist()
        skipped = first - begin * CHECKSUMS_A_BLOCK
        return tuple(found[skipped : skipped + count])

    def close(self) -> None:
        self._disk.close(self._descriptor)


def open_sidecar(segment: StoredBatches, *, must_match: bool = True) -> Sidecar | None:
    """The file of a segment; None when there is none that is whole and of these very batches, or at least
    of as many bytes.
    """
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
        if describes(statistics, segment) if must_match else _is_as_large(statistics, segment):
            return Sidecar(disk, descriptor, statistics)
    except DamagedStatistics as problem:
        logger.warning("%s is not used: %s", path_of(segment), problem)
    except BaseException:
        disk.close(descriptor)
        raise
    disk.close(descriptor)
    return None


def _opened(segment: StoredBatches) -> Sidecar | None:
    """The file, whether it describes the segment as it is or not; None when there is none to be had."""
    try:
        return open_sidecar(segment, must_match=False)
    except OSError as problem:
        logger.warning("%s cannot be read: %s", path_of(segment), problem)
        return None


def kept_statistics(segment: StoredBatches) -> SegmentStatistics | None:
    """The statistics as they were written, whether they describe the segment as it is or not; None when
    there are none to be had.
    """
    opened = _opened(segment)
    if opened is None:
        return None
    opened.close()
    return opened.statistics


def witness_of(segment: StoredBatches, start: int, end: int) -> Witness | None:
    """What is known of the stretches that touch [start, end) from when they were written, in memory or in the
    statistics; None when there is nothing.
    """
    if segment.is_active or start >= end:
        return None
    first, behind = start // STRETCH_BYTES, stretches_in(min(end, segment.size_bytes))
    prefixes = segment.prefixes  # once: they go when the statistics are there
    if prefixes is not None:
        return Witness(first, prefixes[first:behind].tolist(), is_certain=True)
    sidecar = _opened(segment)
    if sidecar is None:
        return None
    try:
        checksums = sidecar.checksums_of_prefixes(first, behind - first)
        return Witness(first, checksums, describes(sidecar.statistics, segment))
    except (DamagedStatistics, OSError) as problem:
        logger.warning("%s is not used: %s", path_of(segment), problem)
        return None
    finally:
        sidecar.close()


def read_file(disk: Disk, path: Path) -> tuple[SegmentStatistics, bytes]:
    """A statistics file by path; DamagedStatistics."""
    return decode(read_whole(disk, path))
