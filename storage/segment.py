"""One segment of a log: a `.log` file and its indexes (Kafka's `LogSegment`), and the writer of a cleaned
one.

Only the active segment is written. A closed one never changes; cleaning makes a new one that takes its
place.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from protocol.batch import HEADER_BYTES, parse_header
from protocol.errors import ErrorCode, KafkaError
from storage import batch_table, layout
from storage.batch_table import COMPLETE, CUT, NOT_FOUND, as_chunk, choose_entries, find_batch, read_table
from storage.file import NO_ROOM, DataFile, Disk
from storage.index import (
    NO_TIMESTAMP,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    BrokenIndex,
    OffsetIndex,
    TimeIndex,
    WouldBlock,
)
from storage.txn_index import TransactionIndex
from storage.types import AbortedTransaction

if TYPE_CHECKING:
    from config.topic import TopicConfig

MAX_RELATIVE_OFFSET = 2**31 - 1
SCAN_BYTES = 1 << 20
LOCATE_BYTES = 8192
MAX_HINTS = 64

Buffer = bytes | bytearray | memoryview

_rebuilding = threading.Lock()  # several readers may find the same index damaged


class Segment:
    """Batches from `base_offset` on, in one file.

    Owned by: event loop for appending, closing and renaming; any thread for reading.
    """

    __slots__ = (
        "_first_batch_timestamp",
        "_largest",
        "_next_offset",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "directory",
        "file",
        "hints",
        "index_entries",
        "is_active",
        "last_modified_ms",
        "offset_index",
        "roll_jitter_ms",
        "size_bytes",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        file: DataFile,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        txn_index: TransactionIndex,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.offset_index = offset_index
        self.time_index = time_index
        self.txn_index = txn_index
        self.size_bytes = 0
        self.bytes_since_entry = 0
        self.index_entries = 0
        self.is_active = False
        self.created_ms = 0
        self.last_modified_ms = 0
        self.roll_jitter_ms = 0
        self.hints: dict[int, int] = {}  # offset -> where the first batch at or behind it begins
        self._first_batch_timestamp: int | None = None
        self._largest: tuple[int, int] | None = None
        self._next_offset: int | None = None

    @classmethod
    def _at(cls, disk: Disk, directory: Path, base_offset: int, file: DataFile | None = None) -> Segment:
        def path(kind: str) -> Path:
            return directory / layout.segment_file_name(base_offset, kind)

        return cls(
            directory,
            base_offset,
            file or DataFile(disk, path(layout.LOG_SUFFIX)),
            OffsetIndex(disk, path(layout.INDEX_SUFFIX), base_offset),
            TimeIndex(disk, path(layout.TIME_INDEX_SUFFIX), base_offset),
            TransactionIndex(disk, path(layout.TXN_INDEX_SUFFIX)),
        )

    @classmethod
    def create(
        cls, disk: Disk, directory: Path, base_offset: int, config: TopicConfig, created_ms: int
    ) -> Segment:
        """A new empty active segment with its files."""
        path = directory / layout.segment_file_name(base_offset, layout.LOG_SUFFIX)
        file = DataFile.create(disk, path)
        segment = cls._at(disk, directory, base_offset, file)
        try:
            if config.preallocate:
                file.allocate(config.segment_bytes)
            segment.offset_index.create()
            segment.time_index.create()
            segment.txn_index.reset()
        except OSError:
            file.close()
            for suffix in layout.SEGMENT_SUFFIXES:
                with contextlib.suppress(OSError):
                    disk.unlink(directory / layout.segment_file_name(base_offset, suffix))
            raise
        segment._note_empty()
        segment.created_ms = segment.last_modified_ms = created_ms
        return segment

    @classmethod
    def open(cls, disk: Disk, directory: Path, base_offset: int) -> Segment:
        """A segment that is on disk, closed for now; nothing but its size is read."""
        segment = cls._at(disk, directory, base_offset)
        status = segment.file.path.stat()
        segment.size_bytes = status.st_size
        segment.last_modified_ms = segment.created_ms = status.st_mtime_ns // 1_000_000
        return segment

    @classmethod
    def placeholder(cls, disk: Disk, directory: Path) -> Segment:
        """Stands for the segments of a log whose files cannot be read; touches none of them."""
        segment = cls._at(disk, directory, 0)
        segment.offset_index.reset()
        segment.time_index.reset()
        segment._note_empty()
        return segment

    def _note_empty(self) -> None:
        self.is_active = True
        self._next_offset = self.base_offset
        self._largest = (NO_TIMESTAMP, self.base_offset)
        self._first_batch_timestamp = NO_TIMESTAMP

    @classmethod
    def open_state(cls, disk: Disk, directory: Path, base_offset: int, state: str) -> Segment:
        """The `.log` file of a segment that is not (yet) in use, for looking into it."""
        path = directory / layout.segment_file_name(base_offset, layout.LOG_SUFFIX, state)
        segment = cls._at(disk, directory, base_offset, DataFile(disk, path))
        segment.size_bytes = segment.file.size()
        return segment

    # What it holds

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its batches, -1 when none has one."""
        return self._largest_entry()[0]

    @property
    def largest_timestamp(self) -> int:
        """Kafka's: the largest timestamp, else when the file was last written. Retention and lag go by
        this.
        """
        timestamp = self._largest_entry()[0]
        return timestamp if timestamp >= 0 else self.last_modified_ms

    @property
    def largest_timestamp_offset(self) -> int:
        """The last offset of the batch that has the largest timestamp."""
        return self._largest_entry()[1]

    def _largest_entry(self) -> tuple[int, int]:
        largest = self._largest
        if largest is None:
            self._largest = largest = self._read_largest()
        return largest

    def _read_largest(self) -> tuple[int, int]:
        with contextlib.suppress(BrokenIndex, FileNotFoundError):
            largest = self.time_index.last()
            if (largest[0] >= 0) == (self.size_bytes > 0):  # else the final entry, always forced, was lost
                return largest
        self.rebuild_indexes()
        return self.time_index.last()

    @property
    def first_batch_timestamp(self) -> int:
        """The max timestamp of its first batch (by which Kafka rolls), -1 when there is none."""
        timestamp = self._first_batch_timestamp
        if timestamp is None:
            head = self.file.read(HEADER_BYTES, 0)
            timestamp = parse_header(head).max_timestamp if len(head) == HEADER_BYTES else NO_TIMESTAMP
            self._first_batch_timestamp = timestamp
        return timestamp

    @property
    def next_offset(self) -> int:
        """One behind its last record; its base offset when it is empty. May read the file the first time."""
        if self._next_offset is None:
            self._next_offset = self._find_next_offset()
        return self._next_offset

    def _find_next_offset(self) -> int:
        try:
            _, position = self.offset_index.last()
        except (BrokenIndex, FileNotFoundError):
            self.rebuild_indexes()
            _, position = self.offset_index.last()
        next_offset = self.base_offset
        for table in self.tables(position):
            if table.shape[1]:
                next_offset = int(table[batch_table.LAST_OFFSET, -1]) + 1
        return next_offset

    # Appending: called by the log for the active segment only

    def must_roll(
        self, size: int, last_offset: int, max_timestamp: int, now: int, limits: RollLimits
    ) -> bool:
        """Whether a batch must go to a new segment (Kafka's `LogSegment.shouldRoll`)."""
        if size > limits.segment_bytes - self.size_bytes:
            return self.size_bytes > 0 or self.base_offset + MAX_RELATIVE_OFFSET < last_offset
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not self.size_bytes:
            return False
        first = self._first_batch_timestamp
        waited = (
            max_timestamp - first
            if first is not None and first >= 0 <= max_timestamp
            else now - self.created_ms
        )
        if waited > limits.segment_ms - self.roll_jitter_ms:
            return True
        return self.index_entries >= limits.index_entries

    def appended(self, last_offset: int, max_timestamp: int, size: int, interval_bytes: int) -> None:
        """Account for one batch that was written at the end of the file."""
        position = self.size_bytes
        if not position:
            self._first_batch_timestamp = max_timestamp
        largest = self._largest
        if largest is None or max_timestamp > largest[0]:
            self._largest = largest = (max_timestamp, last_offset)
        if self.bytes_since_entry > interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*largest)
            self.bytes_since_entry = 0
            self.index_entries += 1
        self.bytes_since_entry += size
        self.size_bytes = position + size
        self._next_offset = last_offset + 1

    def close_for_appends(self, modified_ms: int) -> None:
        """It was the active segment: force the final time index entry, write the indexes, trim the files.

        Not durable yet; the next flush job sees to that, and `file` stays open until then. Safe to repeat
        after an OSError.
        """
        if self.size_bytes:
            self.time_index.maybe_append(*self._largest_entry())
        self.offset_index.save(is_final=True)
        self.time_index.save(is_final=True)
        self.file.truncate(self.size_bytes)
        self.is_active = False
        self.last_modified_ms = modified_ms
        self.offset_index.make_read_only()
        self.time_index.make_read_only()

    def make_active(self) -> None:
        """It is the last segment of a log being opened: appends will follow."""
        self.next_offset  # noqa: B018 - found while waiting is allowed
        self.first_batch_timestamp  # noqa: B018
        self._largest_entry()
        self.offset_index.make_writable()
        self.time_index.make_writable()
        self.bytes_since_entry = self.size_bytes - self.offset_index.last()[1]
        self.index_entries = self.offset_index.entry_count()
        self.is_active = True
        self.file.pin()

    def save_indexes(self) -> None:
        """On a clean shutdown: everything that a start need not find out again."""
        if self.is_active:
            self.time_index.maybe_append(*self._largest_entry())
            self.offset_index.save(is_final=True, is_durable=True)
            self.time_index.save(is_final=True, is_durable=True)
            self.file.truncate(self.size_bytes)
        self.txn_index.sync()

    def flush_closed(self) -> None:
        """Make the whole segment durable: on any thread, once it is closed."""
        self.file.flush_data()
        disk = self.file.disk
        for index in (self.offset_index, self.time_index):
            with contextlib.suppress(FileNotFoundError):  # renamed or removed meanwhile, by retention
                descriptor = disk.open(index.path, os.O_RDWR)
                try:
                    disk.fsync(descriptor)
                finally:
                    disk.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            self.txn_index.sync()

    # Reading

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes of the file; may wait for the disk."""
        return self.file.read(size, position)

    def tables(self, position: int = 0, end: int | None = None) -> Iterable[batch_table.Table]:
        """Tables of all batches from `position` (a batch start) on, positions in the file.

        KafkaError(CORRUPT_MESSAGE) where no batch can begin or the last one is cut off.
        """
        limit = self.size_bytes if end is None else end
        wanted = SCAN_BYTES
        while position < limit:
            data = self.file.read(min(wanted, limit - position), position)
            table, stopped, reason = read_table(data)
            if not table.shape[1]:
                if reason == CUT and len(data) == wanted < limit - position:
                    wanted *= 2
                    continue
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"no batch at {position} of {self.file.path.name}"
                )
            wanted = SCAN_BYTES
            table[batch_table.POSITION] += position
            yield table
            position += stopped

    def locate(self, offset: int, may_wait: bool = True) -> int | None:
        """Where the first batch begins whose last offset is at least `offset`; None when there is none.

        WouldBlock instead of waiting; KafkaError(CORRUPT_MESSAGE) when the file is damaged there.
        """
        hint = self.hints.get(offset)
        if hint is not None:
            return hint if hint < self.size_bytes else None
        try:
            position = self.offset_index.floor(offset, may_wait)[1]
        except (BrokenIndex, FileNotFoundError):
            if not may_wait:
                raise WouldBlock from None
            self.rebuild_indexes()
            position = self.offset_index.floor(offset)[1]
        limit = self.size_bytes
        read = self.file.read if may_wait else self.file.read_cached
        while position < limit:
            wanted = min(LOCATE_BYTES, limit - position)
            data = read(wanted, position)
            if data is None or (len(data) < wanted and not may_wait):
                raise WouldBlock
            found, size, reason = find_batch(as_chunk(data), offset)
            if found != NOT_FOUND:
                self.remember(offset, position + found)
                return position + int(found)
            if (reason != COMPLETE and reason != CUT) or (size == 0 and reason == CUT):
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"no batch at {position + size} of {self.file.path.name}"
                )
            position += int(size)
        return None

    def remember(self, offset: int, position: int) -> None:
        """Where to go on for a reader that asks for `offset` next."""
        hints = self.hints
        if len(hints) >= MAX_HINTS:
            hints.clear()
        hints[offset] = position

    def position_of(self, offset: int) -> int:
        """As `locate`, the end of the file when there is no such batch."""
        position = self.locate(offset)
        return self.size_bytes if position is None else position

    def aborted_transactions(self) -> tuple[AbortedTransaction, ...]:
        return self.txn_index.entries()

    # Repair, removal

    def rebuild_indexes(self, interval_bytes: int = 4096) -> None:
        """Write both indexes anew from the batches; what cannot be read of a damaged file has no entries."""
        with _rebuilding:
            self.offset_index.reset()
            self.time_index.reset()
            state = numpy.array([0, NO_TIMESTAMP, self.base_offset, 0], numpy.int64)
            with contextlib.suppress(KafkaError):
                for table in self.tables():
                    add_entries(self.offset_index, self.time_index, table, state, interval_bytes)
            self.note_recovered(state)

    def note_recovered(self, state: batch_table.Longs) -> None:
        """The indexes were filled anew, with `state` of `choose_entries` at the end: write them."""
        self._largest = (int(state[1]), int(state[2]))
        self.bytes_since_entry = int(state[0])
        if self.size_bytes:
            self.time_index.maybe_append(*self._largest)
        try:
            self.offset_index.save(is_final=True)
            self.time_index.save(is_final=True)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return  # a full disk: they stay in memory, and what the files have of them is right
        if not self.is_active:
            self.offset_index.make_read_only()
            self.time_index.make_read_only()

    def truncate(self, size: int, next_offset: int) -> None:
        """Cut the file; the caller sees to the indexes."""
        if size != self.size_bytes:
            self.file.truncate(size)
        self.size_bytes = size
        self.hints.clear()
        self._next_offset = next_offset
        self._largest = None
        self._first_batch_timestamp = None

    def rename(self, suffix: str) -> None:
        """Give all files the state `suffix` ("" for in use)."""
        self.file.rename(self._path(layout.LOG_SUFFIX, suffix))
        for kind, index in (
            (layout.INDEX_SUFFIX, self.offset_index),
            (layout.TIME_INDEX_SUFFIX, self.time_index),
        ):
            with contextlib.suppress(FileNotFoundError):
                index.rename(self._path(kind, suffix))
        self.txn_index.rename(self._path(layout.TXN_INDEX_SUFFIX, suffix))

    def _path(self, kind: str, suffix: str) -> Path:
        return self.directory / layout.segment_file_name(self.base_offset, kind, suffix)

    def unlink(self) -> None:
        """Remove the files, under whatever name they have now."""
        self.file.close()
        self.offset_index.forget()
        self.time_index.forget()
        for path in (self.file.path, self.offset_index.path, self.time_index.path, self.txn_index.path):
            self.file.disk.unlink(path)

    def moved(self, directory: Path) -> None:
        """The directory was renamed."""
        self.directory = directory
        for part in (self.file, self.offset_index, self.time_index, self.txn_index):
            part.path = directory / part.path.name

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, {self.size_bytes} bytes{', active' if self.is_active else ''})"


class RollLimits:
    """When a segment is full, worked out once from the topic's settings."""

    __slots__ = ("index_entries", "jitter_ms", "segment_bytes", "segment_ms")

    def __init__(self, config: TopicConfig) -> None:
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.max_segment_ms
        # A jitter as large as the age itself would roll a segment for every batch.
        self.jitter_ms = max(0, min(config.segment_jitter_ms, self.segment_ms - 1))
        self.index_entries = max(1, config.segment_index_bytes // max(OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES))


def add_entries(
    offset_index: OffsetIndex,
    time_index: TimeIndex,
    table: batch_table.Table,
    state: batch_table.Longs,
    interval_bytes: int,
) -> None:
    """Append to both indexes what the batches of `table` call for."""
    entries = numpy.empty((4, table.shape[1]), numpy.int64)
    count = choose_entries(table, state, interval_bytes, entries)
    for last_offset, position, timestamp, timestamp_offset in entries[:, :count].T.tolist():
        offset_index.append(last_offset, position)
        time_index.maybe_append(timestamp, timestamp_offset)
