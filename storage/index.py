"""Offset index and time index of a segment, in Kafka's files (`OffsetIndex`, `TimeIndex`).

`.index`: 8-byte entries, relative offset i32 and position i32: the last offset of the batch that starts
there. `.timeindex`: 12-byte entries, timestamp i64 and relative offset i32: the largest timestamp up to
that offset. Both are sparse (an entry when more than `index.interval.bytes` were written since the last
one) and ascending.

Kafka maps preallocated files into memory. Here a full disk would then kill the process (SIGBUS) and every
map would hold a descriptor, so entries live in arrays, are appended to the file when the segment rolls or its
log is settled, and those of closed segments are loaded when they are asked for, within one budget for the
process.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections import OrderedDict
from pathlib import Path
from typing import Any, ClassVar

import numpy

from protocol.batch import NO_TIMESTAMP
from storage import batch_table
from storage.batch_table import Longs, choose_entries
from storage.file import Buffer, Disk
from storage.layout import TEMPORARY_SUFFIX
from storage.small_files import read_whole, write_whole
from storage.types import NO_DESCRIPTOR

logger = logging.getLogger(__name__)

OFFSET_ENTRY = numpy.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = numpy.dtype([("timestamp", ">i8"), ("offset", ">i4")])
OFFSET_ENTRY_BYTES = OFFSET_ENTRY.itemsize
TIME_ENTRY_BYTES = TIME_ENTRY.itemsize

LOADED_BYTES = 64 * 1024 * 1024

_naming = threading.Lock()
"""held while the name of a file is read and used: a swap gives the old name to another segment's index"""

Columns = tuple["array[int]", "array[int]"]


class WouldBlock(Exception):
    """What was asked needs the disk, and the caller must not wait for it: ask again on another thread."""


class BrokenIndex(Exception):
    """An index file that cannot be right; the segment rebuilds it from its batches."""


class LoadedIndexes:
    """Which closed indexes are in memory; the longest unused go when the budget is spent.

    Owned by: any thread, under lock.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._lock = threading.Lock()
        self._sizes: OrderedDict[int, tuple[IndexFile, int]] = OrderedDict()

    def loaded(self, index: IndexFile, size_bytes: int) -> None:
        with self._lock:
            self._forget(index)
            self._sizes[id(index)] = (index, size_bytes)
            self.used_bytes += size_bytes
            while self.used_bytes > self.budget_bytes and len(self._sizes) > 1:
                _, (oldest, oldest_bytes) = self._sizes.popitem(last=False)
                self.used_bytes -= oldest_bytes
                oldest.unload()

    def forget(self, index: IndexFile) -> None:
        with self._lock:
            self._forget(index)

    def _forget(self, index: IndexFile) -> None:
        known = self._sizes.pop(id(index), None)
        if known is not None:
            self.used_bytes -= known[1]


LOADED = LoadedIndexes(LOADED_BYTES)


class IndexFile(ABC):
    """What both indexes share: two columns in memory, and how they come from and go to the file.

    Owned by: the log's owner for appending; any thread for looking up (columns only grow, and are replaced as
    one tuple).
    """

    __slots__ = ("_columns", "_saved_entries", "base_offset", "disk", "is_writable", "path")
    entry: ClassVar[Any]

    def __init__(self, disk: Disk, path: Path, base_offset: int) -> None:
        self.disk = disk
        self.path = path
        self.base_offset = base_offset
        self._columns: Columns | None = None
        self.is_writable = False  # of a closed segment, when they are made anew: until the file is written
        self._saved_entries = 0

    @abstractmethod
    def _empty(self) -> Columns:
        """Columns without entries."""

    @abstractmethod
    def _check(self, entries: numpy.ndarray[Any, Any]) -> bool:
        """Whether entries of a file, one at least, can be right."""

    def create(self) -> None:
        """Begin an empty index, and its file."""
        descriptor = self.disk.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.disk.close(descriptor)
        self.reset()

    def reset(self) -> None:
        """Forget all entries; what the file holds is overwritten by the next `save`."""
        LOADED.forget(self)
        self._columns = self._empty()
        self.is_writable = True
        self._saved_entries = 0

    def make_writable(self) -> None:
        """The segment becomes active: its index stays in memory from now on."""
        columns = self.columns()
        LOADED.forget(self)
        self._columns = columns
        if not self.is_writable:  # else a full disk kept it from being saved
            self._saved_entries = len(columns[0])
        self.is_writable = True

    def make_read_only(self) -> None:
        """The segment was closed: `save` was called, and the entries may leave memory."""
        self.is_writable = False
        if self._columns is not None:
            LOADED.loaded(self, len(self._columns[0]) * self.entry.itemsize)

    def unload(self) -> None:
        if not self.is_writable:
            self._columns = None

    def columns(self, may_wait: bool = True) -> Columns:
        """Both columns; WouldBlock when they are on disk and `may_wait` is false; BrokenIndex,
        FileNotFoundError, OSError where there is no memory or no descriptor for it.
        """
        columns = self._columns
        if columns is not None:
            return columns
        data = self._read(may_wait)
        columns = self._parse(data)
        self._columns = columns
        LOADED.loaded(self, len(data))
        return columns

    def _read(self, may_wait: bool) -> Buffer:
        """The bytes of the file. One that cannot be read (a bad sector, wrong rights, a directory of its
        name) is as good as broken.
        """
        try:
            return read_whole(self.disk, self.path) if may_wait else self._read_cached()
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in (*NO_DESCRIPTOR, errno.ENOMEM):
                raise
            if may_wait:
                logger.warning("%s cannot be read (%s) and is made anew", self.path, error.strerror)
            raise BrokenIndex(f"{self.path.name} cannot be read: {error.strerror}") from error

    def _read_cached(self) -> Buffer:
        size = self.disk.size_of(self.path)
        descriptor = self.disk.open(self.path, os.O_RDONLY)
        try:
            data = self.disk.pread_cached(descriptor, size, 0) if size else b""
        finally:
            self.disk.close(descriptor)
        if data is None or len(data) != size:
            raise WouldBlock
        return data

    def _parse(self, data: Buffer) -> Columns:
        if len(data) % self.entry.itemsize:
            raise BrokenIndex(f"{self.path.name} has {len(data)} bytes")
        entries = numpy.frombuffer(data, self.entry)
        if len(entries) and not self._check(entries):
            raise BrokenIndex(f"{self.path.name} is not ascending")
        columns = self._empty()
        for column, name in zip(columns, self.entry.names, strict=True):
            column.frombytes(entries[name].astype(f"i{column.itemsize}").tobytes())
        return columns

    def entry_count(self) -> int:
        return len(self.columns()[0])

    def size_bytes(self) -> int:
        """Bytes of all entries, of which the file may still lack the newest."""
        columns = self._columns
        if columns is not None:
            return len(columns[0]) * int(self.entry.itemsize)
        try:
            return self.disk.size_of(self.path)
        except FileNotFoundError:
            return 0

    def save(self, *, is_durable: bool = False) -> None:
        """Append to the file the entries it lacks, and cut off what does not belong to it."""
        columns = self._columns
        if columns is None or not self.is_writable:
            return
        count = min(len(columns[0]), len(columns[1]))
        data = self._encode(columns, self._saved_entries, count)
        position = self._saved_entries * self.entry.itemsize
        descriptor = self.disk.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            if data:
                # So that a write that fails leaves nothing of another index behind it.
                self.disk.truncate(descriptor, position)
                if self.disk.pwritev(descriptor, [data], position) != len(data):
                    raise OSError(errno.ENOSPC, "a short write", str(self.path))
            self.disk.truncate(descriptor, count * self.entry.itemsize)
            if is_durable:
                self.disk.fsync(descriptor)
        finally:
            self.disk.close(descriptor)
        self._saved_entries = count

    def replace(self, *, is_durable: bool) -> None:
        """Put a file of all entries in the place of what is there, in one step: the front part of a time
        index, which a kill or a power cut may leave of one written in place, looks like a whole one. Where
        that fails an empty file is left, which does not.
        """
        columns = self._columns
        assert columns is not None
        count = min(len(columns[0]), len(columns[1]))
        name, kind = self.path.name.split(".")[:2]  # without the state of a segment that is being removed
        temporary = self.path.with_name(f"{name}.{kind}{TEMPORARY_SUFFIX}")
        try:
            write_whole(self.disk, temporary, self._encode(columns, 0, count), is_durable=is_durable)
            with _naming:
                if self.path.is_dir() and not self.path.is_symlink():
                    self.path.rmdir()  # nothing is lost with an empty one
                self.disk.rename(temporary, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                self.disk.unlink(temporary)
            with contextlib.suppress(OSError):
                self._empty_file()
            raise
        self._saved_entries = count

    def _empty_file(self) -> None:
        with _naming:
            descriptor = self.disk.open(self.path, os.O_WRONLY)
        try:
            self.disk.truncate(descriptor, 0)
        finally:
            self.disk.close(descriptor)

    def _encode(self, columns: Columns, start: int, end: int) -> bytes:
        entries = numpy.empty(end - start, self.entry)
        for column, name in zip(columns, self.entry.names, strict=True):
            entries[name] = column[start:end]
        return entries.tobytes()

    def take(self, other: IndexFile) -> None:
        """Have the entries of `other`, none of which are in the file. An entry that is appended meanwhile is
        lost, which a sparse index can bear.
        """
        self._saved_entries = 0
        self._columns = other._columns

    def rename(self, target: Path) -> None:
        with _naming:
            self.disk.rename(self.path, target)
            self.path = target

    def forget(self) -> None:
        """The segment is gone."""
        LOADED.forget(self)
        self.is_writable = False


class OffsetIndex(IndexFile):
    """Relative offset -> position."""

    __slots__ = ()
    entry = OFFSET_ENTRY

    def _empty(self) -> Columns:
        return array("i"), array("i")

    def _check(self, entries: numpy.ndarray[Any, Any]) -> bool:
        offsets, positions = entries["offset"], entries["position"]
        ascending = numpy.all(offsets[1:] > offsets[:-1]) and numpy.all(positions[1:] > positions[:-1])
        return bool(ascending and offsets[0] >= 0 and positions[0] >= 0)

    def append(self, last_offset: int, position: int) -> None:
        columns = self._columns
        assert columns is not None
        columns[1].append(position)  # a reader looks for the offset first
        columns[0].append(last_offset - self.base_offset)

    def extend(self, last_offsets: Longs, positions: Longs) -> None:
        """`append` for each of them. OverflowError, and nothing was added, where one does not fit."""
        columns = self._columns
        assert columns is not None
        offsets = _packed(last_offsets - self.base_offset)
        columns[1].frombytes(_packed(positions))
        columns[0].frombytes(offsets)

    def floor(self, offset: int, may_wait: bool = True) -> tuple[int, int]:
        """The last entry at or below `offset` as (offset, position); (base offset, 0) before the first."""
        offsets, positions = self.columns(may_wait)
        found = bisect_right(offsets, offset - self.base_offset) - 1
        if found < 0:
            return self.base_offset, 0
        return self.base_offset + offsets[found], positions[found]

    def floor_position(self, position: int, may_wait: bool = True) -> int:
        """The last batch start known at or below `position`; 0 before the first entry."""
        positions = self.columns(may_wait)[1]
        found = bisect_right(positions, position) - 1
        return positions[found] if found >= 0 else 0

    def last(self) -> tuple[int, int]:
        """The last entry as (offset, position); (base offset, 0) when there is none."""
        offsets, positions = self.columns()
        found = len(offsets) - 1  # asked once: another one may be appended meanwhile
        if found < 0:
            return self.base_offset, 0
        return self.base_offset + offsets[found], positions[found]


class TimeIndex(IndexFile):
    """Timestamp -> relative offset of the batch that carries it."""

    __slots__ = ()
    entry = TIME_ENTRY

    def _empty(self) -> Columns:
        return array("q"), array("i")

    def _check(self, entries: numpy.ndarray[Any, Any]) -> bool:
        timestamps, offsets = entries["timestamp"], entries["offset"]
        return bool(numpy.all(timestamps[1:] > timestamps[:-1]) and numpy.all(offsets[1:] >= offsets[:-1]))

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless a timestamp as large is already there."""
        columns = self._columns
        assert columns is not None
        timestamps = columns[0]
        if timestamp > (timestamps[-1] if timestamps else NO_TIMESTAMP):
            columns[1].append(offset - self.base_offset)
            timestamps.append(timestamp)

    def extend(self, timestamps: Longs, offsets: Longs) -> None:
        """`maybe_append` for each of them; the timestamps ascend, some the same as the one before."""
        columns = self._columns
        assert columns is not None
        before = numpy.full_like(timestamps, columns[0][-1] if columns[0] else NO_TIMESTAMP)
        before[1:] = numpy.maximum(before[1:], timestamps[:-1])
        is_new = timestamps > before
        columns[1].frombytes(_packed(offsets[is_new] - self.base_offset))
        columns[0].frombytes(timestamps[is_new].tobytes())

    def floor(self, timestamp: int) -> tuple[int, int]:
        """The last entry at or below `timestamp` as (timestamp, offset)."""
        timestamps, offsets = self.columns()
        found = bisect_right(timestamps, timestamp) - 1
        if found < 0:
            return NO_TIMESTAMP, self.base_offset
        return timestamps[found], self.base_offset + offsets[found]

    def last(self) -> tuple[int, int]:
        timestamps, offsets = self.columns()
        found = len(timestamps) - 1
        if found < 0:
            return NO_TIMESTAMP, self.base_offset
        return timestamps[found], self.base_offset + offsets[found]


def _packed(numbers: Longs) -> bytes:
    """As the 32 bits of a column; OverflowError where one does not fit."""
    packed = numbers.astype(numpy.int32)
    if (packed != numbers).any():
        raise OverflowError(f"no 32 bits: {numbers[packed != numbers][0]}")
    return packed.tobytes()


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
    last_offsets, positions, timestamps, offsets = entries[:, :count]
    offset_index.extend(last_offsets, positions)
    time_index.extend(timestamps, offsets)
