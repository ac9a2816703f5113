"""A partition as a table: each key once, by its last record; keys that end in a tombstone are absent.

The log is read backwards, a chunk at a time, so one pass and a set of key hashes do: the first record of a
key that turns up is its last. Reading backwards is also safe while a cleaner is at work: whatever a
tombstone covers has gone before the tombstone goes, and is met after it. So a chunk is what one answer holds:
of two the older records would have been read first. A look-up of few keys ends where the last of them is
found.

Memory does not grow with the partition: where there are more keys than the set holds, it keeps half of
them, and the other half is read in a pass of its own, from the end again, giving only rows not yet given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy
import pyarrow

from protocol.record_kernels import KEY_BYTES, VALUE_BYTES
from spark_connector import kernels
from spark_connector.client import Backoff, Cluster
from spark_connector.columns import ColumnBuilder, Located
from spark_connector.connection import Unavailable
from spark_connector.errors import ConnectorError, MissingTopicError
from spark_connector.fetching import Fetcher
from spark_connector.kernels import Bytes, Longs
from spark_connector.key_set import SECRET, Hashes, KeySet, Part, forget_others, hash_rows, hashes_of
from spark_connector.offsets import OffsetRange
from spark_connector.options import Options
from spark_connector.shape import Shape
from spark_connector.unpacking import Piece, Unpacker

CHUNK_BYTES = 512 * 1024
FIRST_FETCH_BYTES = 64 * 1024
GROWTH = 256  # of a chunk in offsets, at most, from one to the next
LEAST_ROWS = 10_000
LEAST_BYTES = 1024 * 1024


class Chunk(NamedTuple):
    """The batches of [begin, end), all of one answer; `begin` is where the first one starts."""

    pieces: list[Piece]
    begin: int
    offsets_per_byte: float
    largest_bytes: int
    """of its batches"""


class TableReader:
    """One read of one partition as a table. Owned by: the task that reads it."""

    def __init__(
        self,
        options: Options,
        cluster: Cluster,
        wanted: OffsetRange,
        shape: Shape,
        keys: tuple[bytes, ...] | None = None,
    ) -> None:
        self.topic_partition = wanted.topic_partition
        self._start, self._end = wanted.start, wanted.end
        self._options = options
        self._cluster = cluster
        self._wanted: Hashes | None = None if keys is None else hashes_of(keys)
        self._builder = ColumnBuilder(shape, wanted.topic_partition)
        self._unpacker = Unpacker(wanted.topic_partition)
        self._pending: list[pyarrow.RecordBatch] = []
        self._left: list[Part] = []

    def record_batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows of the table, in no promised order."""
        self._left = [Part(0, 0, self._end)]
        while self._left:
            yield from self._read_part(KeySet(self._options.view_memory_bytes, self._left.pop()))
        yield from self._flush(0, 0)

    def _read_part(self, keys: KeySet) -> Iterator[pyarrow.RecordBatch]:
        at_most = self._options.client.fetch_bytes
        end, span, fetch_bytes = self._end, 1, min(FIRST_FETCH_BYTES, at_most)
        while end > self._start and not self._has_all(keys):
            chunk = self._fetch(max(end - span, self._start), end, fetch_bytes)
            if chunk is None:
                span, fetch_bytes = max(span // 8, 1), min(2 * CHUNK_BYTES, at_most)
                continue
            for data, batches in reversed(chunk.pieces):
                for piece in self._unpacker.backwards(data, batches):
                    yield from self._add(keys, piece, end)
            if chunk.begin == end:
                return  # the log begins behind it, or is gone: nothing is left of the part
            span = max(min(int(min(CHUNK_BYTES, at_most) * chunk.offsets_per_byte), GROWTH * span), 1)
            room = FIRST_FETCH_BYTES + chunk.largest_bytes  # the first batch may begin long before `span`
            fetch_bytes = min(int(span / chunk.offsets_per_byte * 1.1) + room, at_most)
            end = chunk.begin

    def _has_all(self, keys: KeySet) -> bool:
        return self._wanted is not None and keys.count == len(self._wanted)

    # --- fetching

    def _fetch(self, start: int, end: int, fetch_bytes: int) -> Chunk | None:
        """The chunk, after as many tries as it takes; None when it is too large for one answer."""
        backoff = Backoff(
            self._options.client, is_missing=lambda: self._cluster.is_missing(self.topic_partition)
        )
        while True:
            try:
                try:
                    return self._fetch_once(start, end, fetch_bytes)
                except Unavailable as problem:
                    self._cluster.forget_leaders([self.topic_partition])
                    backoff.wait(problem, f"reading {self.topic_partition} at offset {start}")
            except MissingTopicError as missing:  # of the wait, or of a look for where the log begins
                Fetcher(self._options, self._cluster, self.topic_partition, start, end).lose(str(missing))
                self._start = end
                return Chunk([], end, 1, 0)

    def _fetch_once(self, start: int, end: int, fetch_bytes: int) -> Chunk | None:
        fetcher = Fetcher(self._options, self._cluster, self.topic_partition, start, end, fetch_bytes)
        pieces: list[Piece] = []
        first = begin = start
        size = largest = 0
        with self._cluster.connection(self._cluster.leader_of(self.topic_partition)) as connection:
            while fetcher.next < end:
                fetcher.request(connection)
                # Of an answer that ended before `end` (a segment does) nothing counts: it is older than what
                # is read now, and is read again with the next chunk.
                begin, pieces = fetcher.next, []
                for data, batches in fetcher.take(connection.receive()):
                    if len(batches):
                        pieces.append((data, batches))
                        sizes = batches[:, kernels.SIZE_BYTES]
                        size += int(sizes.sum())
                        largest = max(largest, int(sizes.max()))
                if pieces:
                    # The first batch may begin before the chunk: its earlier records are taken with it.
                    begin = min(begin, int(pieces[0][1][0, kernels.BASE_OFFSET]))
                    first = min(begin, first)
                if fetcher.next < end and size > 2 * CHUNK_BYTES and end - start > 1:
                    return None
        if fetcher.start > start:
            self._start = fetcher.start
        return Chunk(pieces, max(begin, self._start), (end - first) / max(size, 1), largest)

    # --- choosing rows

    def _add(self, keys: KeySet, piece: Piece, end: int) -> Iterator[pyarrow.RecordBatch]:
        """Add the keys of a piece to the set, and make rows of the records that are their key's last."""
        data, batches = piece
        walk = self._builder.locate(data, batches, self._start, end)
        hashes, offsets, has_value, located = [], [], [], None
        for located in walk:
            hashes.append(self._hash(data, located))
            offsets.append(located.offsets)
            has_value.append(located.rows[:, VALUE_BYTES] >= 0)
        if located is None:
            return
        below = keys.part.below
        fresh = self._judge(keys, numpy.concatenate(hashes), numpy.concatenate(offsets))
        chosen = (fresh != 0) & numpy.concatenate(has_value) & (numpy.concatenate(offsets) < below)
        if not chosen.any():
            return
        walk = iter([located]) if len(offsets) == 1 else self._builder.locate(data, batches, self._start, end)
        position = 0
        for located in walk:
            here = chosen[position : position + len(located.rows)]
            position += len(located.rows)
            if here.any():
                self._pending.append(self._builder.record_batch(data, located.choose(here)))
                yield from self._flush(LEAST_ROWS, LEAST_BYTES)

    def _hash(self, data: Bytes, located: Located) -> Hashes:
        is_keyless = located.rows[:, KEY_BYTES] < 0
        if self._options.fail_on_keyless and is_keyless.any():
            offset = int(located.offsets[is_keyless.argmax()])
            raise ConnectorError(
                f"{self.topic_partition}: the record at offset {offset} has no key, and view=latest makes "
                f"one row of each key; keylessRecords=absent leaves such records out"
            )
        hashes = numpy.empty((len(located.rows), 2), numpy.uint64)
        hash_rows(data, located.rows, SECRET, hashes)
        if self._wanted is not None:
            forget_others(hashes, self._wanted)
        return hashes

    def _judge(self, keys: KeySet, hashes: Hashes, offsets: Longs) -> Bytes:
        """1 for the last record of each key, from the end on; a full set goes on with half of the keys."""
        fresh = numpy.zeros(len(hashes), numpy.uint8)
        end = len(hashes)
        while end > 0:
            first = max(end - keys.block, 0)
            while keys.is_too_full_for(end - first):
                reached = int(offsets[end]) if end < len(offsets) else int(offsets[-1]) + 1
                self._left.append(keys.halve(reached))
            fresh[first:end] = keys.add(hashes[first:end])
            end = first
        return fresh

    def _flush(self, rows: int, size_bytes: int) -> Iterator[pyarrow.RecordBatch]:
        """What has gathered as one record batch, once it is worth one."""
        gathered = sum(made.num_rows for made in self._pending)
        if not gathered or (gathered < rows and sum(made.nbytes for made in self._pending) < size_bytes):
            return
        pending, self._pending = self._pending, []
        yield from pyarrow.Table.from_batches(pending).combine_chunks().to_batches()
