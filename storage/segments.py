"""The segments of one log: the list, its active end, and every change of it (roll, removal, swap).

Each change replaces the list in one step, so that a reader on another thread sees the old one or the new
one, both of which are whole. The renames that a crash must be able to tell apart are made here, in Kafka's
order (T111).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from storage import layout
from storage.file import Disk
from storage.removal import Removals
from storage.segment import Segment

if TYPE_CHECKING:
    from config.topic import TopicConfig
    from storage.cleaned_segment import CleanedSegment
    from storage.recovery import LoadedLog

SegmentTuple = tuple[Segment, ...]

MAX_PINNED = 8
"""closed segments that wait for their flush with their file held open; more than these are opened again"""


def floor_segment(segments: SegmentTuple, offset: int) -> int:
    """The number of the last segment whose base offset is at or below `offset`; 0 when there is none."""
    if segments[-1].base_offset <= offset:
        return len(segments) - 1
    return max(0, bisect_right(segments, offset, key=_base_offset) - 1)


def _may_have_aborted(segment: Segment) -> bool:
    try:
        return segment.txn_index.exists()
    except (OSError, ValueError):  # told to who reads as far as this segment
        return True


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


class SegmentList:
    """Owned by: event loop; `all` may be read by any thread."""

    __slots__ = (
        "_aborted_in",
        "_disk",
        "_removals",
        "active",
        "all",
        "closed_bytes",
        "directory",
        "health",
        "rolled",
        "settled_base_offset",
    )

    def __init__(self, disk: Disk, directory: Path, loaded: LoadedLog, removals: Removals) -> None:
        segments = loaded.segments
        self._disk = disk
        self._removals = removals
        self.directory = directory
        self.all = segments
        self._aborted_in: tuple[SegmentTuple, SegmentTuple] = ((), ())
        self.active = segments[-1]
        self.closed_bytes = sum(segment.size_bytes for segment in segments[:-1])
        self.health = loaded.health
        self.rolled: list[Segment] = list(loaded.unflushed)  # closed, but not yet known to be on disk
        self.settled_base_offset = segments[0].base_offset
        """where the first file begins, and will after a power cut as well: what was removed before is gone"""

    def with_aborted(self) -> SegmentTuple:
        """The closed segments that have aborted transactions, and the active one: of the others a closed one
        gets none any more. Looked for when the list has changed, for there may be ten thousand of them.
        """
        segments = self.all
        looked_at, found = self._aborted_in
        if looked_at is not segments:
            found = tuple(filter(_may_have_aborted, segments[:-1]))
            self._aborted_in = segments, found
        return (*found, segments[-1])

    def roll(self, base_offset: int, config: TopicConfig, jitter_ms: int, now_ms: int) -> None:
        """Close the active segment and begin one at `base_offset`. After an OSError nothing has changed."""
        closed = self.active
        fresh = Segment.create(self._disk, self.directory, base_offset, config, now_ms)
        try:
            closed.close_for_appends(now_ms)
        except OSError:
            closed.is_active = True
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        fresh.roll_jitter_ms = jitter_ms
        fresh.health = self.health
        self.rolled.append(closed)
        if len(self.rolled) > MAX_PINNED:  # rolls outrun the flushes: descriptors must not run out
            self.rolled[-1 - MAX_PINNED].file.unpin()
        self.closed_bytes += closed.size_bytes
        self.all = (*self.all, fresh)
        self.active = fresh

    def drop_front(self, count: int, due_ms: int) -> Callable[[], None]:
        """Take the first `count` segments out; what a thread has to do about their files."""
        gone = self.all[:count]
        self.all = self.all[count:]
        self.closed_bytes -= _total(gone)
        return self._remove(gone, due_ms)

    def replace(
        self, sources: Sequence[Segment], cleaned: Sequence[CleanedSegment], due_ms: int
    ) -> Callable[[], None]:
        """Put `cleaned` in the place of those `sources` that are still there; what a thread has to do
        then.
        """
        present = [segment for segment in sources if segment in self.all]
        if not present:
            return lambda: _abandon(cleaned)
        if any(segment.is_active for segment in present):
            raise ValueError("the active segment is never replaced")
        fresh = [one.to_segment() for one in cleaned]
        for segment in reversed(fresh):
            segment.health = self.health
            segment.rename(layout.SWAP_SUFFIX)
        first = self.all.index(present[0])
        self.closed_bytes += _total(fresh) - _total(present)
        self.all = (*self.all[:first], *fresh, *self.all[first + len(present) :])
        work = self._remove(present, due_ms)
        for segment in fresh:
            segment.rename("")
        return work

    def _remove(self, gone: Sequence[Segment], due_ms: int) -> Callable[[], None]:
        leaving = set(gone)
        for segment in self.rolled:
            if segment in leaving:
                segment.file.unpin()
        self.rolled = [segment for segment in self.rolled if segment not in leaving]
        kept = {segment.base_offset for segment in self.all}
        for segment in gone:
            segment.leave()
            # At once: beside a cleaned segment of the same size they would speak of bytes that it has not.
            self._disk.unlink(self._path(segment, layout.STATISTICS_SUFFIX))
        stale = [
            self._path(segment, layout.SNAPSHOT_SUFFIX) for segment in gone if segment.base_offset not in kept
        ]
        first = self.all[0].base_offset

        def work() -> None:
            try:
                self._disk.sync_directory(self.directory)
                self.settled_base_offset = max(self.settled_base_offset, first)
                for path in stale:
                    self._disk.unlink(path)
            finally:  # else nobody would remove them before the next start
                self._removals.add(due_ms, gone)

        return work

    def _path(self, segment: Segment, kind: str) -> Path:
        return self.directory / layout.segment_file_name(segment.base_offset, kind)

    def save_indexes(self) -> None:
        """On a clean shutdown: everything that a start need not find out again."""
        for segment in self.all[:-1]:
            segment.save_refused_indexes()
        self.active.save_indexes()

    def moved(self, directory: Path) -> None:
        """The directory was renamed, to go with all that is in it."""
        self._removals.forget(self.directory)
        self.directory = directory
        for segment in self.all:
            segment.moved(directory)
            segment.file.unpin()

    def close(self) -> None:
        """Let go of all files."""
        for segment in self.all:
            segment.let_go()
        self._removals.forget(self.directory)


def _total(segments: Sequence[Segment]) -> int:
    return sum(segment.size_bytes for segment in segments)


def _abandon(cleaned: Sequence[CleanedSegment]) -> None:
    for one in cleaned:
        one.abandon()
