"""Writes the files of a segment that will take the place of others: what a cleaning, or a split, puts out.

The files carry the state `.cleaned` until the log swaps them in (`Log.replace_segments`, T111); a start
removes those of a cleaning that did not come so far.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from protocol.batch import NO_TIMESTAMP
from protocol.errors import ErrorCode, KafkaError
from storage import batch_table, layout
from storage.batch_table import COMPLETE, read_table
from storage.file import DataFile, Disk
from storage.index import OffsetIndex, TimeIndex, add_entries
from storage.prefixes import Checksums, Prefixes
from storage.segment import MAX_RELATIVE_OFFSET, Segment
from storage.txn_index import TransactionIndex
from storage.types import AbortedTransaction

if TYPE_CHECKING:
    from config.topic import TopicConfig

Buffer = bytes | bytearray | memoryview


class CleanedSegment:
    """Writes the `.cleaned` files of a segment that will replace others (or one of a log being split).

    Owned by: the thread that makes it, until `finish`; then by the log that takes it over.
    """

    def __init__(self, disk: Disk, directory: Path, base_offset: int, config: TopicConfig) -> None:
        def path(kind: str) -> Path:
            return directory / layout.segment_file_name(base_offset, kind, layout.CLEANED_SUFFIX)

        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = 0
        self.last_offset = base_offset - 1
        self._disk = disk
        self._interval_bytes = config.index_interval_bytes
        self._state = numpy.array([0, NO_TIMESTAMP, base_offset, 0], numpy.int64)
        self._prefixes = Prefixes()
        self._packed_prefixes: Checksums | None = None
        self.txn_index = TransactionIndex(disk, path(layout.TXN_INDEX_SUFFIX))
        self.txn_index.reset()
        self.offset_index = OffsetIndex(disk, path(layout.INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(disk, path(layout.TIME_INDEX_SUFFIX), base_offset)
        self.file = DataFile.create(disk, path(layout.LOG_SUFFIX))
        try:
            self.offset_index.create()
            self.time_index.create()
        except BaseException:
            self.file.close()  # it is held open until it is finished
            raise
        self._last_modified_ms = 0

    def append(self, batches: Buffer) -> None:
        """Write whole batches with their final offsets. KafkaError when they are none."""
        table, end, reason = read_table(batches)
        if reason != COMPLETE or not table.shape[1]:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"no whole batch at {end} of {len(batches)} cleaned bytes"
            )
        last = int(table[batch_table.LAST_OFFSET, -1])
        if last - self.base_offset > MAX_RELATIVE_OFFSET:
            raise ValueError(f"offset {last} does not fit into a segment that begins at {self.base_offset}")
        self.file.write((batches,), self.size_bytes, len(batches))
        add_entries(self.offset_index, self.time_index, table, self._state, self._interval_bytes)
        self._prefixes.add(table, self.size_bytes)
        self.size_bytes += len(batches)
        self.last_offset = last

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Entries of the transaction index that go on to be true."""
        self.txn_index.append(transactions)

    def finish(self, last_modified_ms: int) -> None:
        """Make the files complete and durable; `last_modified_ms` is that of the last source."""
        self.time_index.maybe_append(int(self._state[1]), int(self._state[2]))
        self.offset_index.save(is_durable=True)
        self.time_index.save(is_durable=True)
        self.txn_index.sync()
        self.file.truncate(self.size_bytes)
        self._disk.set_modified_ms(self.file.path, last_modified_ms)
        self.file.flush_data()
        self._last_modified_ms = last_modified_ms
        self._packed_prefixes = self._prefixes.packed(self.size_bytes)

    def abandon(self) -> None:
        """Remove the files: the cleaning was aborted."""
        self.file.close()
        for part in (self.file, self.offset_index, self.time_index, self.txn_index):
            with contextlib.suppress(OSError):
                self._disk.unlink(part.path)
        self.offset_index.forget()
        self.time_index.forget()

    def to_segment(self) -> Segment:
        """The finished segment, still under its `.cleaned` names."""
        segment = Segment(
            self.directory, self.base_offset, self.file, self.offset_index, self.time_index, self.txn_index
        )
        segment.size_bytes = self.size_bytes
        segment.last_modified_ms = segment.created_ms = self._last_modified_ms
        segment._largest = (int(self._state[1]), int(self._state[2]))
        segment._next_offset = self.last_offset + 1
        segment.prefixes = self._packed_prefixes
        self.offset_index.make_read_only()
        self.time_index.make_read_only()
        self.file.unpin()
        return segment


def share_out(aborted: Iterable[AbortedTransaction], parts: Sequence[CleanedSegment]) -> None:
    """Put each entry of a transaction index into that of the part which holds its marker; a damaged one may
    speak of none.
    """
    for entry in aborted:
        holder = next((part for part in reversed(parts) if part.base_offset <= entry.last_offset), None)
        if holder is not None:
            holder.add_aborted((entry,))
