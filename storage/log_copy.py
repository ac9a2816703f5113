"""A partition's files in another data directory, beside those that are being served (Kafka's future replica).

The `.log` files of a log only grow while no cleaner works on it: they are copied in rounds, oldest first, so
that what is there is always the begin of the log. What can be made anew from them comes last, when nothing is
appended any more. The directory bears Kafka's name for such a one until it is whole.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage import layout
from storage.file import Disk
from storage.layout import TopicPartition
from storage.small_files import read_whole, write_whole

if TYPE_CHECKING:
    from storage.log import Log

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
SYNCED_BYTES = 8 << 20
"""at once: the flushes of others wait behind them"""


class Extent(NamedTuple):
    """How far the `.log` file of one segment is written."""

    base_offset: int
    size_bytes: int


class Extents(NamedTuple):
    """A log at one moment: its segments, ascending, and where it ends. Taken on the event loop."""

    segments: tuple[Extent, ...]
    end_offset: int

    @classmethod
    def of(cls, log: Log) -> Extents:
        segments = (Extent(segment.base_offset, segment.size_bytes) for segment in log.segments)
        return cls(tuple(segments), log.log_end_offset)


class LogCopy:
    """Owned by: one thread at a time; `copied_bytes` and `next_offset` may be read by any."""

    def __init__(self, disk: Disk, source: Path, target: Path) -> None:
        """A copy of the log in `source`, to be made in `target`, which is there and empty."""
        self.directory = target
        self._source = source
        self._disk = disk
        self._sizes: dict[int, int] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """of files beside the `.log` ones: size and modification time of what was copied"""
        self.copied_bytes = 0
        self.next_offset = 0
        """in front of it all has come"""

    def catch_up(self, log: Extents, took: Callable[[int], None] = lambda size: None) -> None:
        """Copy what the log has that the copy has not, and make it durable. `took` is told how many bytes
        were copied, and may raise. OSError.
        """
        extents = log.segments
        self._drop({extent.base_offset for extent in extents})
        for number, (base_offset, size_bytes) in enumerate(extents):
            self.next_offset = base_offset
            if self._sizes.get(base_offset, -1) < size_bytes:
                self._copy_segment(base_offset, size_bytes, took)
            if number + 1 < len(extents):
                self._copy_beside(base_offset)
        self.next_offset = log.end_offset

    def _drop(self, kept: set[int]) -> None:
        """Take away what has left the log meanwhile."""
        for base_offset in self._sizes.keys() - kept:
            self.copied_bytes -= self._sizes.pop(base_offset)
            for kind in (*layout.SEGMENT_SUFFIXES, layout.STATISTICS_SUFFIX, layout.SNAPSHOT_SUFFIX):
                name = layout.segment_file_name(base_offset, kind)
                self._seen.pop(name, None)
                self._disk.unlink(self.directory / name)

    def _copy_segment(self, base_offset: int, size_bytes: int, took: Callable[[int], None]) -> None:
        name = layout.segment_file_name(base_offset, layout.LOG_SUFFIX)
        position = self._sizes.setdefault(base_offset, 0)
        disk = self._disk
        source = disk.open(self._source / name, os.O_RDONLY)
        try:
            target = disk.open(self.directory / name, os.O_WRONLY | os.O_CREAT)
            try:
                unsynced = 0
                while position < size_bytes:
                    if unsynced >= SYNCED_BYTES:
                        disk.fdatasync(target)
                        unsynced = 0
                    data = disk.pread(source, min(CHUNK_BYTES, size_bytes - position), position)
                    if not data:
                        raise OSError(f"{self._source / name} ends at {position}, not at {size_bytes}")
                    written = disk.pwritev(target, [data], position)
                    position += written
                    self._sizes[base_offset] = position
                    self.copied_bytes += written
                    unsynced += written
                    took(written)
                disk.fdatasync(target)
            finally:
                disk.close(target)
        finally:
            disk.close(source)

    def _copy_beside(self, base_offset: int) -> None:
        """The other files of a closed segment, which soon have no more reason to change."""
        for kind in layout.INDEX_SUFFIXES:
            self._copy_small(layout.segment_file_name(base_offset, kind))

    def _copy_small(self, name: str) -> None:
        path = self._source / name
        try:
            status = path.stat()
            fingerprint = status.st_size, status.st_mtime_ns
            if self._seen.get(name) != fingerprint:
                write_whole(self._disk, self.directory / name, read_whole(self._disk, path), is_durable=True)
                self._seen[name] = fingerprint
        except FileNotFoundError:  # an index that was never needed, or of a segment that is gone
            self._seen.pop(name, None)
            self._disk.unlink(self.directory / name)

    def finish(self, log: Log) -> None:
        """The last round: nothing is appended any more, and all that lies beside the `.log` files is written.
        OSError.
        """
        extents = Extents.of(log)
        self.catch_up(extents)
        bases = {segment.base_offset for segment in extents.segments}
        names = {path.name for path in self._source.iterdir()}
        for name in sorted(names | self._seen.keys()):
            if _belongs(name, bases):
                self._copy_small(name)
        for base_offset, _ in extents.segments[:-1]:  # the age of records without timestamps
            name = layout.segment_file_name(base_offset, layout.LOG_SUFFIX)
            modified_ms = (self._source / name).stat().st_mtime_ns // 1_000_000
            self._disk.set_modified_ms(self.directory / name, modified_ms)
        self._disk.sync_directory(self.directory)


def _belongs(name: str, bases: set[int]) -> bool:
    """Whether a file has to come along, whose `.log` file was copied already."""
    file = layout.parse_segment_file(name)
    if file is None:
        return name in (layout.LEADER_EPOCH_CHECKPOINT, layout.PARTITION_METADATA, layout.COMPACTED_TO)
    if file.state or file.kind == layout.LOG_SUFFIX:
        return False
    return file.kind == layout.SNAPSHOT_SUFFIX or file.base_offset in bases


# A crash between the two renames that end a move leaves the partition in both directories.


def mark_moved(disk: Disk, directory: Path, other: Path, last_base_offset: int) -> None:
    """Write down, durably, that this is all of `other`, a directory of the same partition, whose last segment
    begins there. OSError.
    """
    size_bytes = _size_of(disk, other, last_base_offset)
    data = b"%d %d\n" % (last_base_offset, size_bytes)
    write_whole(disk, directory / layout.MOVED_HERE, data, is_durable=True)
    disk.sync_directory(directory)


def unmark_moved(disk: Disk, directory: Path) -> None:
    """The other one is gone. OSError."""
    disk.unlink(directory / layout.MOVED_HERE)


def settle_move(disk: Disk, topic_partition: TopicPartition, here: Path, others: Sequence[Path]) -> bool:
    """A partition is in the data directory `here` and in another one: whether a move between the two was at
    its end, and nothing was written since where it came from. Those files are renamed for their removal then.
    """
    name = layout.partition_directory_name(topic_partition)
    for other in others:
        for kept, left in ((here / name, other / name), (other / name, here / name)):
            if left.is_dir() and _is_all_of(disk, kept, left):
                logger.warning("%s has moved to %s", topic_partition, kept.parent)
                disk.rename(left, left.with_name(layout.deleted_directory_name(topic_partition)))
                disk.sync_directory(left.parent)
                return True
    return False


def _is_all_of(disk: Disk, directory: Path, other: Path) -> bool:
    """A start without `directory`, whose disk was away, may have served `other` again."""
    try:
        base_offset, size_bytes = map(int, read_whole(disk, directory / layout.MOVED_HERE).split())
        last = max(_log_files(other), default=None)
        return last == base_offset and _size_of(disk, other, base_offset) == size_bytes
    except (OSError, ValueError):
        return False


def _size_of(disk: Disk, directory: Path, base_offset: int) -> int:
    return disk.size_of(directory / layout.segment_file_name(base_offset, layout.LOG_SUFFIX))


def _log_files(directory: Path) -> Iterable[int]:
    """The base offsets of the segments in use."""
    for path in directory.iterdir():
        file = layout.parse_segment_file(path.name)
        if file is not None and file.kind == layout.LOG_SUFFIX and not file.state:
            yield file.base_offset
