"""One directory of `log.dirs`: its lock, its checkpoints, the partitions in it.

It is taken with a lock. Whether the last broker left it in order is read once, at the start; from then on it
counts as in disorder until `mark_clean` says otherwise.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from storage import layout
from storage.checkpoint import (
    CheckpointWitness,
    OffsetCheckpoint,
    judged,
    judged_kafkas,
    judged_lower,
)
from storage.file import Disk
from storage.layout import TopicPartition
from storage.small_files import read_whole, replace_whole

if TYPE_CHECKING:
    from storage.log import Log

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
CLUSTER_METADATA = TopicPartition("__cluster_metadata", 0)  # of Kafka's own quorum: not a topic
LOST_AND_FOUND = "lost+found"
"""the file system's own, where a data directory is the top of a volume"""


class DataDirectoryError(Exception):
    """A data directory cannot be used; the message says which and why."""


class DataDirectory:
    """One directory of `log.dirs`, locked. Owned by: the log manager."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.log_count = 0
        self._disk = disk
        self._told: set[Path] = set()
        try:
            missing = [one for one in (path, *path.parents) if not one.exists()]
            for one in filter(Path.is_symlink, missing):
                raise FileNotFoundError(
                    f"{one} leads to {one.readlink()}, which is not there: mount it, or make it"
                )
            path.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
            for made in missing:
                disk.sync_directory(made.parent)
        except OSError as error:
            unusable = f"{path} cannot be used as a data directory: {error}"
            if isinstance(error, PermissionError):  # most often a volume that belongs to root, in a container
                unusable += f"; user {os.geteuid()} of group {os.getegid()}, who runs this, has to own it"
            raise DataDirectoryError(unusable) from error
        marker = path / layout.CLEAN_SHUTDOWN
        self.was_clean = marker.exists()
        self.was_kafkas = self.was_clean and _is_kafkas(disk, marker)
        """whether an Apache Kafka left it so: it gives its broker's epoch, or (before 3.7) writes nothing"""
        self.cleaner_checkpoint = self._witnessed(
            layout.CLEANER_CHECKPOINT, judged if self.was_clean else judged_lower
        )
        self.recovery_checkpoint = OffsetCheckpoint(path / layout.RECOVERY_POINT_CHECKPOINT, disk)
        self.log_start_checkpoint = self._witnessed(layout.LOG_START_CHECKPOINT, judged)
        self.recovery_points = self.recovery_checkpoint.read()
        self.log_starts = self.log_start_checkpoint.read()
        if self.was_clean:
            disk.unlink(marker)
        disk.sync_directory(path)  # the mark is gone, and partitions made just before a crash are there

    def _witnessed(self, name: str, judge: Callable[[bytes, bytes], bytes]) -> OffsetCheckpoint:
        witness = CheckpointWitness(self.path / layout.WITNESS_OF[name], self._disk)
        return OffsetCheckpoint(
            self.path / name, self._disk, witness, judged_kafkas if self.was_kafkas else judge
        )

    def _take_lock(self) -> int:
        """Both kinds of lock: flock against us (in this process too), a record lock against Kafka."""
        descriptor = os.open(self.path / layout.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise  # not held by anybody: a file system without locks
            raise DataDirectoryError(
                f"{self.path} is in use by another broker: {layout.LOCK} is locked"
            ) from error
        return descriptor

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def partitions(self) -> list[TopicPartition]:
        """Every partition directory; others are left alone, those of deleted partitions belong to
        `deleted`.
        """
        found = []
        for path in sorted(self.path.iterdir()):
            is_directory = path.is_dir()
            if layout.is_deleted_directory(path.name) and (is_directory or not path.is_file()):
                continue  # a thread may be removing it
            if not is_directory:
                # What a kill has left of one that was being replaced is replaced the next time.
                name = path.name.removesuffix(layout.TEMPORARY_SUFFIX)
                if name not in layout.DATA_DIRECTORY_FILES:
                    self._tell(path, "is unknown and left alone")
                continue
            topic_partition = layout.parse_partition_directory(path.name)
            if topic_partition == CLUSTER_METADATA:
                continue
            if topic_partition is not None:
                found.append(topic_partition)
            elif path.name != LOST_AND_FOUND and layout.parse_future_directory(path.name) is None:
                self._tell(path, "is no partition and left alone")
        return found

    def _tell(self, path: Path, what: str) -> None:
        """Warn of what does not belong here, once however often one looks."""
        if path not in self._told:
            self._told.add(path)
            logger.warning("%s %s", path, what)

    def deleted(self) -> list[Path]:
        """Directories of deleted partitions whose removal a stop interrupted."""
        return [
            path
            for path in self.path.iterdir()
            if layout.is_deleted_directory(path.name) and not path.is_file()  # a link may lead to nothing
        ]

    def futures(self) -> list[tuple[TopicPartition, Path]]:
        """Partitions that were on their way here when the last broker stopped, and their directories."""
        found = ((layout.parse_future_directory(path.name), path) for path in sorted(self.path.iterdir()))
        return [(topic_partition, path) for topic_partition, path in found if topic_partition is not None]

    def write_checkpoints(self, logs: Sequence[Log], unopened: Set[TopicPartition]) -> None:
        """Recovery points and log start offsets, where they changed; those of unopened logs stay."""
        self._write_recovery_points(
            _only(self.recovery_points, unopened) | {log.topic_partition: log.recovery_point for log in logs}
        )
        self._write_log_starts(
            _only(self.log_starts, unopened)
            | {  # without what the first file's name says anyway, as in Kafka
                log.topic_partition: log.log_start_offset for log in logs if log.needs_written_start
            }
        )

    def expect(self, log: Log) -> None:
        """Write down what the checkpoints have to say of a log that comes here from another directory."""
        self.forget(log.topic_partition)
        self._write_recovery_points({**self.recovery_points, log.topic_partition: log.recovery_point})
        if log.log_start_offset:
            self._write_log_starts({**self.log_starts, log.topic_partition: log.log_start_offset})

    def forget(self, topic_partition: TopicPartition) -> None:
        """Take what the checkpoints say of a deleted log out of them, before one of its name is made."""
        if topic_partition in self.recovery_points:
            self._write_recovery_points(_without(self.recovery_points, topic_partition))
        if topic_partition in self.log_starts:
            self._write_log_starts(_without(self.log_starts, topic_partition))

    def _write_recovery_points(self, offsets: dict[TopicPartition, int]) -> None:
        if offsets != self.recovery_points:
            self.recovery_checkpoint.write(offsets)
            self.recovery_points = offsets

    def _write_log_starts(self, offsets: dict[TopicPartition, int]) -> None:
        if offsets != self.log_starts:
            self.log_start_checkpoint.write(offsets)
            self.log_starts = offsets

    def mark_clean(self) -> None:
        replace_whole(self._disk, self.path / layout.CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_CONTENT)


def _is_kafkas(disk: Disk, marker: Path) -> bool:
    try:
        return read_whole(disk, marker) != CLEAN_SHUTDOWN_CONTENT
    except OSError:  # whatever it is, no broker writes such
        return False


def _only(offsets: Mapping[TopicPartition, int], wanted: Set[TopicPartition]) -> dict[TopicPartition, int]:
    return {key: offset for key, offset in offsets.items() if key in wanted}


def _without(offsets: Mapping[TopicPartition, int], one: TopicPartition) -> dict[TopicPartition, int]:
    return {key: offset for key, offset in offsets.items() if key != one}
