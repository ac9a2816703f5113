"""Files of removed segments: they wait out `file.delete.delay.ms` for readers that still hold them, and then
give their room back a piece at a time.

A file system that is mounted with `discard` tells the disk which blocks have become free, and does so while
it commits its journal, which every fsync waits for: a file of 32 MiB removed at once holds all of them up for
8 to 10 ms, a piece of 1 MiB for 0.3.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from storage import layout
from storage.file import Disk
from storage.page_cache import PAGE_BYTES

if TYPE_CHECKING:
    from storage.segment import Segment

logger = logging.getLogger(__name__)

RETRY_MS = 60_000
"""what cannot be removed is tried again after so long: each try is a line in the log"""

PIECE_BYTES = 1 << 20
PIECE_SECONDS = 0.004
NONE = -1
MOST_PIECES = 250
"""of one file, whose pieces are larger then: it is gone after a second, however long its segment was"""


class Pace:
    """How fast the room of large files is given back. Owned by: any thread."""

    def __init__(self) -> None:
        self._hurried = threading.Event()

    def hurry(self) -> None:
        """From now on no file takes its time: the broker stops."""
        self._hurried.set()

    def remove(self, disk: Disk, path: Path) -> None:
        """Remove a file, if it is there. OSError.

        Somebody may read it still, have been sent it and not have taken it yet, or have given it another name
        (a backup by hard links): then nothing is cut off, and the room is free when the last of them lets go.
        """
        descriptor = NONE
        with contextlib.suppress(OSError):  # it is not there, or no descriptor is left
            if (size := disk.size_of(path)) > PIECE_BYTES:
                descriptor = disk.open(path, os.O_WRONLY)
        try:
            disk.unlink(path)
            if descriptor != NONE and disk.is_last(descriptor) and disk.is_unsent(descriptor):
                self._shrink(disk, descriptor, size)
        finally:
            if descriptor != NONE:
                disk.close(descriptor)

    def _shrink(self, disk: Disk, descriptor: int, size: int) -> None:
        pages = -(-size // PAGE_BYTES)  # whole ones: of a part the disk would be asked for the rest
        size, piece = pages * PAGE_BYTES, max(PIECE_BYTES, -(-pages // MOST_PIECES) * PAGE_BYTES)
        while size > piece and not self._hurried.wait(PIECE_SECONDS):
            size -= piece
            disk.truncate(descriptor, size)

    def remove_tree(self, disk: Disk, directory: Path) -> None:
        """Remove a partition's directory. OSError."""
        if directory.is_symlink():
            self._remove_linked(disk, directory)
            return
        for path in directory.iterdir():
            if disk.size_of(path) > PIECE_BYTES:
                self.remove(disk, path)
        disk.remove_tree(directory)

    def _remove_linked(self, disk: Disk, link: Path) -> None:
        """Of what a link leads to our files go; the rest, and a mount point, are somebody else's."""
        target = link.resolve()
        if target.is_dir():
            for path in target.iterdir():
                if layout.is_log_file(path.name):
                    self.remove(disk, path)
            with contextlib.suppress(OSError):
                target.rmdir()
        disk.unlink(link)


class Removals:
    """Owned by: any thread, under lock. What is forgotten here is removed when the log is opened next."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, Segment]] = []
        self._last_run_ms = 0

    def add(self, due_ms: int, segments: Sequence[Segment]) -> None:
        with self._lock:
            self._waiting += [(due_ms, segment) for segment in segments]

    def run(self, now_ms: int) -> int:
        """Unlink what is due, on a thread; how many segments. A clock that was set back makes none wait
        longer: the disk might be full by then.
        """
        with self._lock:
            back_ms, self._last_run_ms = max(0, self._last_run_ms - now_ms), now_ms
            self._waiting = [(due_ms - back_ms, segment) for due_ms, segment in self._waiting]
            due = [segment for due_ms, segment in self._waiting if due_ms <= now_ms]
            self._waiting = [(due_ms, segment) for due_ms, segment in self._waiting if due_ms > now_ms]
        for segment in due:
            try:
                segment.unlink(self.pace.remove)
            except OSError as error:
                logger.warning("%s cannot be removed yet: %s", segment.file.path, error)
                self.add(now_ms + RETRY_MS, [segment])
        return len(due)

    def forget(self, directory: Path) -> None:
        """The directory closes or goes."""
        with self._lock:
            gone = [segment for _, segment in self._waiting if segment.directory == directory]
            self._waiting = [item for item in self._waiting if item[1].directory != directory]
        for segment in gone:
            segment.file.close()
