"""The first step of a cleaning: read the dirty part once and remember each key's last offset.

Mirrors `Cleaner.buildOffsetMap`. Aborted batches never enter the map: a newer value that was taken back
must not shadow the older one that counts (T86). Everything that is mapped is checked first, since what the
map believes decides what is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy

from cleaner.map_kernels import (
    BROKEN,
    CLASS,
    CLASS_MASK,
    COMPRESSED,
    ENTRIES,
    FULL,
    KEYLESS,
    LATEST,
    LEFT_OUT,
    READ,
    UNKNOWN,
    MapScratch,
    map_batches,
    map_payload,
)
from cleaner.offset_map import Bytes, Longs, OffsetMap
from cleaner.reading import Chunk, ChunkReader
from cleaner.transactions import CleanedTransactions
from cleaner.unpacking import LZ4_BEST_RATIO
from protocol.batch import CODEC_MASK, CONTROL, TRANSACTIONAL, parse_header
from protocol.control import control_type
from protocol.errors import KafkaError
from protocol.record_kernels import MIN_RECORD_BYTES
from protocol.records import decode_batch, payload
from storage.batch_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    CHECKSUM,
    LAST_OFFSET,
    POSITION,
    PRODUCER_ID,
    RECORD_COUNT,
    SIZE_BYTES,
)
from storage.key_hashes import Hashes, LogKeyHashes
from storage.segment import Segment
from storage.types import AbortedTransaction

NO_HASHES: Hashes = numpy.empty((2, 0), numpy.uint64)


class Mapper:
    """One mapping, of all keys or of class `number` of `classes` (a power of two). Owned by: one cleaner
    thread.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        reader: ChunkReader,
        key_hashes: LogKeyHashes,
        *,
        classes: int = 1,
        number: int = 0,
    ) -> None:
        self._map = offset_map
        self._class_mask = classes - 1
        self._class = number
        self._reader = reader
        self._key_hashes = key_hashes
        self._scratch = MapScratch()
        self.bytes_read = 0

    @property
    def records_read(self) -> int:
        return int(self._scratch.state[READ])

    @property
    def keyless(self) -> int:
        """Records without a key in the mapped part: all of them will go."""
        return int(self._scratch.state[KEYLESS])

    def run(
        self, segments: Sequence[Segment], start: int, end: int, aborted: Iterable[AbortedTransaction]
    ) -> None:
        """Map the records of [start, end) as far as there is room; `latest_offset` of the map says how far.

        `segments` hold that range, ascending.
        """
        self._map.clear()
        self._map.update_latest_offset(start - 1)  # the clean part counts as mapped, only without any key
        state = self._scratch.state
        state[:] = 0
        state[LATEST] = -1
        state[CLASS_MASK], state[CLASS] = self._class_mask, self._class
        self.bytes_read = 0
        transactions = CleanedTransactions(aborted)
        ends = [*(segment.base_offset for segment in segments), end][1:]
        for segment, segment_end in zip(segments, ends, strict=True):
            position = segment.position_behind(start) if segment.base_offset < start else 0
            for chunk in self._reader.chunks(segment, position):
                self.bytes_read += len(chunk.data)
                if not self._map_chunk(chunk, start, transactions):
                    return
            # Offsets may be missing at the end of a segment: the checkpoint has to pass the hole (T37).
            self._map.update_latest_offset(segment_end - 1)

    def _map_chunk(self, chunk: Chunk, start: int, transactions: CleanedTransactions) -> bool:
        """False when the map is full."""
        starts = self._left_out(chunk, transactions)
        known = self._remembered(chunk, starts)
        self._reserve(chunk.columns[:, starts == UNKNOWN], known.shape[1])
        scratch = self._scratch
        index = 0
        while index < chunk.count:
            reason, stopped = map_batches(
                chunk.array, chunk.batches, starts, known, index, chunk.count, start, scratch.lz4,
                self._reader.pauses, scratch.block, scratch.hashes, self._map.secret, self._map.table,
                self._map.capacity, scratch.state,
            )  # fmt: skip
            index = int(stopped)
            if reason == COMPRESSED:
                self._map.entries = int(scratch.state[ENTRIES])  # of which it depends whether the map grows
                reason = self._map_compressed(chunk, index, start)
                index += 1
            self._map.entries = int(scratch.state[ENTRIES])
            if reason == BROKEN:
                raise chunk.corrupt(int(stopped), "is not made of whole records")
            if reason == FULL:
                self._map.update_latest_offset(int(scratch.state[LATEST]))
                return False
            if index:
                self._map.update_latest_offset(int(chunk.batches[LAST_OFFSET, index - 1]))
        return True

    def _reserve(self, columns: Longs, remembered: int) -> None:
        """Room for all keys of these batches, and for so many that are known; a count of records that a
        batch's bytes cannot hold is seen later.
        """
        ratio = numpy.where(columns[ATTRIBUTES] & CODEC_MASK, LZ4_BEST_RATIO, 1)
        most = columns[SIZE_BYTES] * ratio // MIN_RECORD_BYTES
        self._map.reserve(remembered + int(numpy.clip(columns[RECORD_COUNT], 0, most).sum()))

    def _remembered(self, chunk: Chunk, starts: Longs) -> Hashes:
        """The keys' hashes of those batches of which they are known, one behind the other; `starts` gets
        where each batch has its own.
        """
        found = [NO_HASHES]
        columns = chunk.columns
        at = 0
        packed = numpy.flatnonzero(columns[ATTRIBUTES] & CODEC_MASK)
        for index in packed[starts[packed] == UNKNOWN].tolist():
            base_offset, checksum, count = columns[[BASE_OFFSET, CHECKSUM, RECORD_COUNT], index].tolist()
            hashes = self._key_hashes.find(base_offset, checksum, count)
            if hashes is not None:
                found.append(hashes)
                starts[index] = at
                at += count
        return numpy.concatenate(found, axis=1) if at else NO_HASHES

    def _map_compressed(self, chunk: Chunk, index: int, start: int) -> int:
        scratch = self._scratch
        count, base_offset = chunk.batches[[RECORD_COUNT, BASE_OFFSET], index].tolist()
        records = decompressed(chunk, index)
        self._map.reserve(min(count, records.size // MIN_RECORD_BYTES))
        return int(
            map_payload(
                records, records.size, count, base_offset, start, scratch.block, scratch.hashes,
                self._map.secret, self._map.table, self._map.capacity, scratch.state,
            )
        )  # fmt: skip

    @staticmethod
    def _left_out(chunk: Chunk, transactions: CleanedTransactions) -> Longs:
        """`LEFT_OUT` for each batch whose records are not to be mapped, else `UNKNOWN`."""
        left_out = numpy.full(chunk.count, UNKNOWN, numpy.int64)
        for index in special_batches(chunk):
            is_control = bool(chunk.batches[ATTRIBUTES, index] & CONTROL)
            is_obsolete = tell_transactions(chunk, index, transactions)
            left_out[index] = LEFT_OUT if is_control or is_obsolete else UNKNOWN
        return left_out


def special_batches(chunk: Chunk) -> list[int]:
    """The batches that have to do with transactions; everything else never costs a Python step a batch."""
    found: Longs = numpy.flatnonzero(chunk.columns[ATTRIBUTES] & (TRANSACTIONAL | CONTROL))
    return [int(index) for index in found]


def tell_transactions(chunk: Chunk, index: int, transactions: CleanedTransactions) -> bool:
    """Report one batch; whether it is obsolete (see `CleanedTransactions`)."""
    batches = chunk.batches
    producer_id = int(batches[PRODUCER_ID, index])
    last_offset = int(batches[LAST_OFFSET, index])
    if not batches[ATTRIBUTES, index] & CONTROL:
        return transactions.on_batch(producer_id, last_offset)
    if batches[RECORD_COUNT, index] == 0:
        return transactions.on_marker(producer_id, last_offset, None, is_empty=True)
    try:
        record = decode_batch(chunk.data, int(batches[POSITION, index]), check_crc=False)[0]
        kind = control_type(record.key)
    except KafkaError as error:
        raise chunk.corrupt(index, f"is no control batch: {error}") from None
    return transactions.on_marker(producer_id, last_offset, kind, is_empty=False)


def decompressed(chunk: Chunk, index: int) -> Bytes:
    """The records section of one batch. Whoever let it in has seen to its size, so only a bomb meets the
    limit.
    """
    position = int(chunk.batches[POSITION, index])
    try:
        return payload(chunk.data, position, parse_header(chunk.data, position))
    except KafkaError as error:
        raise chunk.corrupt(index, f"cannot be decompressed: {error}") from None
