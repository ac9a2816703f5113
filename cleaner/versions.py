"""The first step of a cleaning where a version decides (`compaction.strategy` timestamp or header, KIP-280).

The winner of a key is the record with the highest version; among equals, or where none has one, the last.
So a record of the clean part may win over a dirty one, which the usual mapping of the dirty part alone would
not see. Hence two passes: the dirty part goes into the map as far as there is room, then the clean part is
read for keys that are in it. What the map says afterwards is the offset of each key's winner, and the
rewriting keeps just that record of a key that the map knows.

- A tombstone is a record like others: it wins or loses by its version, and once it has won, it goes after
its delete horizon, but not in a cleaning that finds records behind it which lost to it: those may be swapped
later. A record of a lower version that is cleaned only after it has gone is the key's value again.
- What is beyond the cleanable part is not weighed: readers see it until it is cleaned.
- The last record of the log stays, whatever its version, as KIP-280 promises; the next cleaning weighs it,
also where the topic is back to the offset by then. What versions have removed until then stays removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from cleaner.map_kernels import (
    BROKEN,
    CLASS,
    CLASS_MASK,
    ENTRIES,
    FULL,
    KEYLESS,
    LATEST,
    READ,
    SPARED,
    STATE_NUMBERS,
)
from cleaner.mapping import decompressed, special_batches, tell_transactions
from cleaner.offset_map import ENTRY_BYTES, ENTRY_LONGS, OffsetMap
from cleaner.reading import Chunk, ChunkReader
from cleaner.transactions import CleanedTransactions
from cleaner.version_kernels import weigh_records
from config.topic import HEADER, OFFSET, TopicConfig
from protocol.batch import CODEC_MASK, CONTROL, HEADER_BYTES, LOG_APPEND_TIME, NO_TIMESTAMP, parse_header
from storage.batch_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    RECORD_COUNT,
    SIZE_BYTES,
)
from storage.layout import LARGEST_OFFSET
from storage.segment import Segment
from storage.types import AbortedTransaction

VERSION_BYTES = 8


def goes_by_version(config: TopicConfig) -> bool:
    """Whether anything but the offset decides which record of a key stays."""
    return config.compaction_strategy != OFFSET


class VersionMap(OffsetMap):
    """An offset map with a version beside each entry, in the same memory: it holds three keys for four.

    It has its full size from the start; the system gives memory to the pages that are used. `outlived` has a
    bit for each slot (not counted, a 256th): whether records of the key stand behind its winner.
    """

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        super().__init__(memory_bytes * ENTRY_BYTES // (ENTRY_BYTES + VERSION_BYTES), load_factor)

    def clear(self) -> None:
        super().clear()
        self.table = numpy.zeros(ENTRY_LONGS * self.slots, numpy.uint64)
        self.versions = numpy.zeros(self.slots, numpy.int64)
        self.outlived = numpy.zeros((self.slots + 7) // 8, numpy.uint8)


class VersionMapper:
    """One mapping by versions, of all keys or of class `number` of `classes` (a power of two). The record at
    `spared_offset`, the log's last, stays whatever it is. Owned by: one cleaner thread.
    """

    def __init__(
        self,
        versions: VersionMap,
        reader: ChunkReader,
        config: TopicConfig,
        spared_offset: int,
        *,
        classes: int = 1,
        number: int = 0,
    ) -> None:
        assert not config.lacks_version, "without a name the timestamps would decide"
        self._map = versions
        self._class_mask = classes - 1
        self._class = number
        self._reader = reader
        name = config.compaction_strategy_header if config.compaction_strategy == HEADER else ""
        self._name = numpy.array(list(name.encode()), numpy.uint8)
        self._spared_offset = spared_offset
        self._state = numpy.zeros(STATE_NUMBERS, numpy.int64)
        self.bytes_read = 0

    @property
    def records_read(self) -> int:
        return int(self._state[READ])

    @property
    def keyless(self) -> int:
        return int(self._state[KEYLESS])

    def start_of(self, first_dirty_offset: int, log_start_offset: int) -> int:
        """Where mapping begins: at the record before the dirty part too, which may have stayed only because
        it was the log's last.
        """
        has_room = self._map.capacity > 1
        return max(log_start_offset, first_dirty_offset - 1) if has_room else first_dirty_offset

    def run(
        self, segments: Sequence[Segment], start: int, end: int, aborted: Sequence[AbortedTransaction]
    ) -> None:
        """Map the winners of [start, end) as far as there is room; `segments` hold that range, ascending."""
        self._map.clear()
        self._map.update_latest_offset(start - 1)
        state = self._state
        state[:] = 0
        state[LATEST] = -1
        state[CLASS_MASK], state[CLASS] = self._class_mask, self._class
        state[SPARED] = self._spared_offset
        self.bytes_read = 0
        transactions = CleanedTransactions(aborted)
        ends = [*(segment.base_offset for segment in segments), end][1:]
        for segment, segment_end in zip(segments, ends, strict=True):
            position = segment.position_behind(start) if segment.base_offset < start else 0
            for chunk in self._chunks(segment, position):
                if not self._weigh(chunk, transactions, start, LARGEST_OFFSET, may_add=True):
                    self._map.update_latest_offset(int(self._state[LATEST]))
                    return
                self._map.update_latest_offset(int(chunk.batches[LAST_OFFSET, chunk.count - 1]))
            self._map.update_latest_offset(segment_end - 1)

    def challenge(
        self,
        segments: Sequence[Segment],
        start: int,
        end: int,
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        """Let the clean part, from the log's `start` to `end`, win back keys that the map knows; `segments`
        begin with the log's first. What was deleted before `start` wins nothing.
        """
        transactions = CleanedTransactions(aborted)
        for segment in segments:
            if segment.base_offset < end:
                for chunk in self._chunks(segment, 0):
                    self._weigh(chunk, transactions, start, end - 1, may_add=False)

    def _chunks(self, segment: Segment, position: int) -> Iterator[Chunk]:
        for chunk in self._reader.chunks(segment, position):
            self.bytes_read += len(chunk.data)
            yield chunk

    def _weigh(
        self, chunk: Chunk, transactions: CleanedTransactions, first: int, last: int, *, may_add: bool
    ) -> bool:
        """False when the map is full."""
        special = set(special_batches(chunk))
        for index in range(chunk.count):
            attributes = int(chunk.batches[ATTRIBUTES, index])
            is_obsolete = index in special and tell_transactions(chunk, index, transactions)
            count = int(chunk.batches[RECORD_COUNT, index])
            if attributes & CONTROL or is_obsolete or count == 0:
                continue
            position = int(chunk.batches[POSITION, index])
            header = parse_header(chunk.data, position)
            if attributes & CODEC_MASK:
                records, at = decompressed(chunk, index), 0
            else:
                records = chunk.array[: position + int(chunk.batches[SIZE_BYTES, index])]
                at = position + HEADER_BYTES
            stamped = (
                int(chunk.batches[MAX_TIMESTAMP, index]) if attributes & LOG_APPEND_TIME else NO_TIMESTAMP
            )
            reason = weigh_records(
                records, at, count, int(chunk.batches[BASE_OFFSET, index]), first, last,
                header.base_timestamp, stamped, self._name, may_add, self._map.secret, self._map.table,
                self._map.versions, self._map.outlived, self._map.capacity, self._state,
            )  # fmt: skip
            self._map.entries = int(self._state[ENTRIES])
            if reason == BROKEN:
                raise chunk.corrupt(index, "is not made of whole records")
            if reason == FULL:
                return False
        return True
