"""How far a log has been compacted: up to which offset the cleanings knew records that have removed others.

A log as it was at an earlier offset cannot be told any more. The cleaner's checkpoint says so only when the
last segment of a cleaning is in its place; of one that a stop broke off this file tells, which is written
before the first. Kafka neither reads nor writes it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from storage import layout
from storage.checkpoint import sealed, unsealed
from storage.file import Disk
from storage.small_files import read_whole, replace_whole

logger = logging.getLogger(__name__)


def read_reach(disk: Disk, directory: Path) -> int | None:
    """The offset, 0 where there is no file; None where it is damaged, which is logged."""
    path = directory / layout.COMPACTED_TO
    try:
        data = read_whole(disk, path)
    except FileNotFoundError:
        return 0
    try:
        return reach_in(data)
    except ValueError as problem:
        logger.warning("%s is damaged (%s): %s counts as compacted", path, problem, directory.name)
        return None


def write_reach(disk: Disk, directory: Path, offset: int) -> None:
    """Durably. OSError."""
    replace_whole(disk, directory / layout.COMPACTED_TO, sealed(b"%d\n" % offset))


def reach_in(data: bytes) -> int:
    """The offset in the bytes of such a file; ValueError when they are damaged."""
    text = unsealed(data)
    if text is None:
        raise ValueError("its checksum is wrong")
    return int(text)
