"""A segment without batches that others follow: whether it lost them.

A cleaning leaves such a segment, here and in Kafka, where no record survived; the indexes that it leaves are
empty as well. So an index with an entry, or statistics of batches, tell that the `.log` was emptied by
something else: a file system that forgot a file's size, a copy that broke off, a person.
"""

from __future__ import annotations

from pathlib import Path

from storage import layout, sidecar
from storage.file import Disk
from storage.integrity import MAX_SPAN
from storage.small_files import read_whole


def had_batches(disk: Disk, directory: Path, base_offset: int) -> bool:
    """Whether what lies beside an empty `.log` speaks of batches. Where it cannot be read it says nothing."""
    if any(_has_entry(disk, _path(directory, base_offset, kind)) for kind in layout.INDEX_SUFFIXES):
        return True
    return _counts_batches(disk, _path(directory, base_offset, layout.STATISTICS_SUFFIX))


def is_too_far(base_offset: int, behind: int) -> bool:
    """Whether no segment from `base_offset` on could have reached to the next one's begin."""
    return behind - base_offset > MAX_SPAN


def _path(directory: Path, base_offset: int, kind: str) -> Path:
    return directory / layout.segment_file_name(base_offset, kind)


def _has_entry(disk: Disk, path: Path) -> bool:
    """Zeros are room that Kafka has made for entries."""
    try:
        return any(read_whole(disk, path))
    except OSError:
        return False


def _counts_batches(disk: Disk, path: Path) -> bool:
    try:
        found, _ = sidecar.read_file(disk, path)
    except (OSError, sidecar.DamagedStatistics):
        return False
    return found.size_bytes > 0
