"""One segment of a log: a `.log` file and its indexes (Kafka's `LogSegment`).

Only the active segment is written. A closed one never changes; cleaning makes a new one that takes its
place.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from protocol.batch import HEADER_BYTES, NO_TIMESTAMP, parse_header
from storage import layout
from storage.file import DataFile, Disk, check_regular
from storage.index import BrokenIndex, OffsetIndex, TimeIndex
from storage.roll import RollLimits
from storage.small_files import sync_file
from storage.stored_batches import SCAN_BYTES, StoredBatches
from storage.txn_index import TransactionIndex

if TYPE_CHECKING:
    from config.topic import TopicConfig

MAX_RELATIVE_OFFSET = 2**31 - 1


class Room(NamedTuple):
    """A batch that keeps to these and tells its time need not go to a new segment."""

    size_bytes: int
    """of the segment behind it"""
    last_offset: int
    max_timestamp: int


NO_ROOM_KNOWN = Room(0, -1, NO_TIMESTAMP)


def _remove_at_once(disk: Disk, path: Path) -> None:
    disk.unlink(path)


class Segment(StoredBatches):
    """Batches from `base_offset` on, in one file.

    Owned by: event loop for appending, closing and renaming; any thread for reading.
    """

    __slots__ = (
        "__weakref__",
        "_first_batch_timestamp",
        "created_ms",
        "index_entries",
        "last_modified_ms",
        "roll_jitter_ms",
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
        super().__init__(directory, base_offset, file, offset_index, time_index)
        self.txn_index = txn_index
        self.index_entries = 0
        self.created_ms = 0
        self.last_modified_ms = 0
        self.roll_jitter_ms = 0
        self._first_batch_timestamp: int | None = None

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
        check_regular(segment.file.path, status.st_mode)
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

    def _largest_entry(self) -> tuple[int, int]:
        largest = self._largest
        if largest is None:
            self._largest = largest = self._read_largest()
        return largest

    def _read_largest(self) -> tuple[int, int]:
        with contextlib.suppress(BrokenIndex, FileNotFoundError):
            largest = self.time_index.last()
            # The last entry is always forced, but may be lost; a log without times has none to force.
            is_final = self.size_bytes > 0 if largest[0] >= 0 else self.first_batch_timestamp < 0
            if is_final and self.time_entry_holds(*largest):
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
        # A batch without a time never makes a segment old that has one.
        waited = now - self.created_ms if first is None or first < 0 else max_timestamp - first
        if waited > limits.segment_ms - self.roll_jitter_ms:
            return True
        return self.index_entries >= limits.index_entries

    def room(self, limits: RollLimits, interval_bytes: int) -> Room:
        """How far it is filled without asking `must_roll` for each batch; none as long as only the clock
        tells how old it is. `interval_bytes` lie between two index entries.
        """
        first = self._first_batch_timestamp
        if not self.size_bytes or first is None or first < 0:
            return NO_ROOM_KNOWN
        entries = max(0, limits.index_entries - self.index_entries - 1)
        return Room(
            min(limits.segment_bytes, self.size_bytes + entries * max(HEADER_BYTES, interval_bytes)),
            self.base_offset + MAX_RELATIVE_OFFSET,
            first + limits.segment_ms - self.roll_jitter_ms,
        )

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
        self._next_offset = last_offset + 1  # first: a thread that sees the bytes must know their offsets
        self.size_bytes = position + size

    def expect(self, offset: int) -> None:
        """Somebody waits for what is appended from `offset` on: spare the search for it then."""
        if offset == self._next_offset and offset not in self.hints:
            self.remember(offset, self.size_bytes)

    def close_for_appends(self, modified_ms: int) -> None:
        """It was the active segment: force the final time index entry, write the indexes, trim the files.

        Not durable yet; the next flush job sees to that, and `file` stays open until then. Safe to repeat
        after an OSError.
        """
        if self.size_bytes:
            self.time_index.maybe_append(*self._largest_entry())
        self.offset_index.save()
        self.time_index.save()
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
        """On a clean shutdown, of the active segment."""
        self.time_index.maybe_append(*self._largest_entry())
        self.offset_index.save(is_durable=True)
        self.time_index.save(is_durable=True)
        self.file.truncate(self.size_bytes)
        self.txn_index.sync()

    def write_again(self, offset: int) -> None:
        """Write what is at and behind `offset` once more. The page cache may call clean what a failed flush
        did not bring to the disk, and the next flush would leave it out.
        """
        position = self.position_behind(offset) if offset > self.base_offset else 0
        while position < self.size_bytes:
            data = self.read_at(position, min(SCAN_BYTES, self.size_bytes - position))
            self.file.write((data,), position, len(data))
            position += len(data)

    def flush_data(self) -> None:
        """Make its batches durable: on any thread; in vain if retention took it and its file meanwhile."""
        try:
            self.file.flush_data()
        except FileNotFoundError:
            if not self.has_left:
                raise

    def flush_closed(self) -> None:
        """Make the whole segment durable: on any thread, once it is closed."""
        self.flush_data()
        for index in (self.offset_index, self.time_index):
            sync_file(self.file.disk, index.path)  # it may be gone: retention renames and removes meanwhile
        self.txn_index.sync()

    # Removal

    def truncate(self, size: int, next_offset: int) -> None:
        """Cut the file; the caller sees to the indexes."""
        if size != self.size_bytes:
            self.file.truncate(size)
        self.size_bytes = size
        self.prefixes = None
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

    def leave(self) -> None:
        """Name the files as out of the log, and not as others that wait for their removal: who reads one
        may have to open it again.
        """
        states = map(layout.left_state, itertools.count())
        self.rename(next(state for state in states if not self._path(layout.LOG_SUFFIX, state).exists()))

    def _path(self, kind: str, suffix: str) -> Path:
        return self.directory / layout.segment_file_name(self.base_offset, kind, suffix)

    def unlink(self, remove: Callable[[Disk, Path], None] = _remove_at_once) -> None:
        """Remove the files, under whatever name they have now; the large one by `remove`."""
        self.let_go()
        # First: once the large one has no name, and while its room is given back, `leave` may give theirs to
        # another segment.
        for path in (self.offset_index.path, self.time_index.path, self.txn_index.path):
            self.file.disk.unlink(path)
        remove(self.file.disk, self.file.path)

    def let_go(self) -> None:
        """Give back the descriptor and what is in memory; who still reads may end."""
        self.file.close()
        self.offset_index.forget()
        self.time_index.forget()

    def moved(self, directory: Path) -> None:
        """The directory was renamed."""
        self.directory = directory
        for part in (self.file, self.offset_index, self.time_index, self.txn_index):
            part.path = directory / part.path.name

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, {self.size_bytes} bytes{', active' if self.is_active else ''})"
