"""How far each log is clean: `cleaner-offset-checkpoint` of each data directory.

Of a cleaning it is written only after its swaps (T126): a crash in between cleans the same part again, which
is harmless. A file that is damaged is put right from its witness or counts as empty (T180), as one does that
cannot be read; one that cannot be written is written again next time.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from storage.layout import TopicPartition
from storage.types import NO_DESCRIPTOR

if TYPE_CHECKING:
    from storage.log import Log

logger = logging.getLogger(__name__)


class CheckpointFile(Protocol):
    def read(self) -> dict[TopicPartition, int]: ...

    def write(self, offsets: Mapping[TopicPartition, int]) -> None: ...


class Directory(Protocol):
    """What is asked of a data directory (`storage.data_directory.DataDirectory`)."""

    @property
    def path(self) -> Path: ...

    @property
    def cleaner_checkpoint(self) -> CheckpointFile: ...


class Directories(Protocol):
    """What is asked of a `LogManager`."""

    @property
    def directories(self) -> Sequence[Directory]: ...

    def checkpoint(self, path: Path | None = None) -> None:
        """Write down where the logs of a directory begin."""


class CleanerCheckpoints:
    """Owned by: any thread, under lock."""

    def __init__(self, source: Directories) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._offsets: dict[Path, dict[TopicPartition, int]] = {}
        self.changes = 0
        """how often an offset became another; read by any thread, before the offset that it goes with"""

    def _of(self, path: Path) -> dict[TopicPartition, int]:
        """What is known of one directory; nothing where its file cannot be read: then all of its logs are
        dirty. OSError only for want of a descriptor, which may be there the next time.
        """
        for directory in self._source.directories:
            if directory.path == path and path not in self._offsets:
                try:
                    self._offsets[path] = directory.cleaner_checkpoint.read()
                except OSError as error:
                    if error.errno in NO_DESCRIPTOR:
                        raise
                    logger.error(
                        "the cleaner checkpoint of %s cannot be read: %s; its logs are cleaned from their "
                        "starts on",
                        path, error,
                    )  # fmt: skip
        return self._offsets.setdefault(path, {})

    def _all(self) -> dict[Path, dict[TopicPartition, int]]:
        """What is known of all directories whose file can be read: one that fails is no matter of others."""
        for directory in self._source.directories:
            with contextlib.suppress(OSError):
                self._of(directory.path)
        return self._offsets

    def offset_of(self, directory: Path, topic_partition: TopicPartition) -> int | None:
        """The first dirty offset as it was written down; None when the log was never cleaned. OSError."""
        with self._lock:
            return self._of(directory).get(topic_partition)

    def put(self, directory: Path, topic_partition: TopicPartition, offset: int) -> None:
        with self._lock:
            known = self._of(directory)
            if known.get(topic_partition) != offset:
                known[topic_partition] = offset
                self.changes += 1
                self._write(directory)

    def move(self, source: Path, target: Path, topic_partition: TopicPartition) -> None:
        """The partition has moved from one data directory to another. OSError."""
        with self._lock:
            known, offset = self._of(target), self._of(source).pop(topic_partition, None)
            if offset is not None:
                known[topic_partition] = offset
                self.changes += 1
                self._write(target)
                self._write(source)

    def keep_start(self, log: Log) -> None:
        """Before what is below the start of a log counts as clean, though files still hold it: if a crash
        took that start back, a tombstone down there could go before the value that it deletes. OSError.
        """
        if log.needs_written_start:
            self._source.checkpoint(log.directory.parent)

    def forget(self, gone: Iterable[TopicPartition]) -> None:
        """The partitions were deleted (T122)."""
        doomed = set(gone)
        with self._lock:
            for directory, known in self._all().items():
                if doomed & known.keys():
                    for topic_partition in doomed & known.keys():
                        del known[topic_partition]
                    self.changes += 1
                    self._write(directory)

    def known(self) -> set[TopicPartition]:
        with self._lock:
            return {one for known in self._all().values() for one in known}

    def _write(self, path: Path) -> None:
        for directory in self._source.directories:
            if directory.path == path:
                try:
                    directory.cleaner_checkpoint.write(self._offsets[path])
                except OSError as error:
                    logger.warning("the cleaner checkpoint of %s cannot be written: %s", path, error)
