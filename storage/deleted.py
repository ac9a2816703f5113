"""Directories of deleted partitions: renamed, so that a start knows them, and removed piece by piece."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from storage.file import Disk
from storage.removal import Removals


class DeletedDirectories:
    """Owned by: any thread."""

    def __init__(self, disk: Disk, removals: Removals, now_ms: Callable[[], int]) -> None:
        """`removals`: the files of segments that have left their logs go by the same turns."""
        self._disk = disk
        self._removals = removals
        self._now_ms = now_ms
        self._removing = threading.Lock()
        self._waiting: list[Path] = []

    def add(self, path: Path) -> None:
        """To be removed with the next turn."""
        self._waiting.append(path)

    def sync(self, directories: Iterable[Path]) -> None:
        """What was deleted in these stays deleted, whatever another disk forgets of it. Also what `remove` is
        at work on in this moment, or has removed without having come to its own sync.
        """
        for directory in directories:
            self._disk.sync_directory(directory)

    def remove(self) -> int:
        """Unlink what was deleted and whose time has come; how many directories and segments. It takes its
        time, and whatever comes meanwhile waits for the next turn, so as to keep one thread only.
        """
        if not self._removing.acquire(blocking=False):
            return 0
        try:
            return self._remove()
        finally:
            self._removing.release()

    def _remove(self) -> int:
        gone, self._waiting = self._waiting, []
        failures = [error for path in gone if (error := self._remove_one(path)) is not None]
        for parent in {path.parent for path in gone}:
            try:
                self._disk.sync_directory(parent)
            except OSError as error:  # the other directories, and files of removed segments, go all the same
                failures.append(error)
        removed = self._removals.run(self._now_ms())
        if failures:
            raise failures[0]
        return len(gone) + removed

    def _remove_one(self, path: Path) -> OSError | None:
        """Why it could not be removed; the next turn tries again."""
        for is_last in (False, False, True):
            try:
                if path.is_symlink() or path.exists():
                    self._removals.pace.remove_tree(self._disk, path)
                return None
            except OSError as error:
                # The statistics of a segment may come into the directory, or leave it, while it is emptied.
                if is_last or error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                    self.add(path)
                    return error
        return None
