"""Partitions whose files somebody removes under the running broker.

Linux lets a process go on with a file that has no name any more: produces would be answered, and their
records be gone with the next roll or stop. So a thread looks every few seconds whether the directories are
there, and the active segments of those logs that were written to since the last look. A log without its files
goes offline, with one line; who puts them back finds it opened anew (`reopening.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Set
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.broker import Broker
    from storage.log import Log

LOOK_MS = 5_000


class Vanished:
    """Owned by: event loop; `_suspects` runs on an I/O thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends: dict[Log, int] = {}
        """up to where each was written at the last look"""

    async def run(self) -> None:
        """One look at every partition."""
        broker = self._broker
        logs = [one.log for one in broker.partitions.values() if one.log.offline_reason is None]
        ends = {log: log.log_end_offset for log in logs}
        written = [log for log, end in ends.items() if self._ends.get(log) != end]
        self._ends = ends
        for log in await broker.run_blocking(_suspects, logs, written):
            partition = broker.partitions.get(log.topic_partition)
            if partition is None or partition.log is not log:  # deleted, or opened anew
                continue
            path = _missing(log)  # again: a roll, or the deletion of a topic, may have come between
            if path is not None:
                log.take_offline(f"{path} is gone: somebody has removed it under the running broker")
                partition.wake()


def _suspects(logs: Iterable[Log], written: Iterable[Log]) -> list[Log]:
    """On a thread: those whose directory, or, of those written to, whose active segment is not there."""
    names: dict[Path, Set[str] | None] = {}
    found: dict[Log, None] = {}
    for log in logs:
        parent = log.directory.parent
        if parent not in names:
            names[parent] = _names_in(parent)
        known = names[parent]
        if known is not None and log.directory.name not in known:
            found[log] = None
    found |= {log: None for log in written if _missing(log) is not None}
    return list(found)


def _names_in(directory: Path) -> Set[str] | None:
    """None when nobody can tell."""
    try:
        return set(os.listdir(directory))  # noqa: PTH208 - names alone: there may be thousands
    except FileNotFoundError:
        return set()
    except OSError:
        return None


def _missing(log: Log) -> Path | None:
    """Its directory or its active segment, if that has no name any more."""
    for path in (log.directory, log.active_segment.file.path):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return path
        except OSError:  # a disk that does not answer is found out by who needs it
            return None
    return None
