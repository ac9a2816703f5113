"""Files of removed segments, waiting out `file.delete.delay.ms` for readers that still hold them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.segment import Segment


logger = logging.getLogger(__name__)

RETRY_MS = 60_000
"""what cannot be removed is tried again after so long: each try is a line in the log"""


class Removals:
    """Owned by: any thread, under lock. What is forgotten here is removed when the log is opened next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, Segment]] = []
        self._last_run_ms = 0

    def add(self, due_ms: int, segments: Sequence[Segment]) -> None:
        with self._lock:
            self._waiting += [(due_ms, segment) for segment in segments]

    def __len__(self) -> int:
        return len(self._waiting)

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
                segment.unlink()
            except FileNotFoundError:
                continue
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
