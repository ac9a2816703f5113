"""How a read finds an offset: the five steps, with the real files, as values that a person can be shown.

It walks a partition's directory the way `Log.read` walks its segments (file names, binary search in the
sparse index, a short scan of batch headers), but reads the files afresh, so that it works beside a running
broker and without one. Source of the rules: Kafka's LogSegments.floorSegment and OffsetIndex.lookup.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, parse_header
from storage.checkpoint import written_log_start
from storage.layout import INDEX_SUFFIX, LOG_SUFFIX, parse_segment_file, segment_file_name

_INDEX_ENTRY = Struct(">ii")
MAX_SCANNED_SHOWN = 8


class OffsetNotThere(Exception):
    """The offset lies outside the log; the message says between which offsets it would have to be."""


class NoBatchThere(OffsetNotThere):
    """The walk came to a place where no batch begins."""

    def __init__(self, log_file: Path, position: int) -> None:
        super().__init__(
            f"no batch begins at byte {position} of {log_file}, to which its index or the batch before it "
            "leads: kompakt verify tells what is damaged"
        )


@dataclass(frozen=True)
class IndexEntry:
    """One entry of an offset index: relative offset and position in the log file (bytes)."""

    relative_offset: int
    position: int


@dataclass(frozen=True)
class ScannedBatch:
    """A batch met by the scan: where it lies and which offsets it spans."""

    log_file: Path
    position: int
    base_offset: int
    last_offset: int


@dataclass(frozen=True)
class ReadExplanation:
    """The five steps of a seek; `found` is the first batch that ends at or after the target, in a later file
    where compaction has emptied the end of the first.
    """

    target: int
    base_offsets: tuple[int, ...]
    base_offset: int
    log_file: Path
    index_file: Path
    relative_offset: int
    index_entry_count: int
    floor_entry: IndexEntry | None
    next_entry: IndexEntry | None
    scanned: tuple[ScannedBatch, ...]
    found: ScannedBatch

    @property
    def start_position(self) -> int:
        """Byte of the log file at which the scan begins."""
        return self.floor_entry.position if self.floor_entry else 0

    def steps(self) -> list[str]:
        """Five sentences, one a step; a sixth where the walk goes on into a later segment."""
        names = ", ".join(str(base) for base in self.base_offsets)
        later = [base for base in self.base_offsets if base > self.target]
        bound = f" < {later[0]}" if later else " (the last segment)"
        entry, after = self.floor_entry, self.next_entry
        if entry is None:
            first = (
                f"the first is {after.relative_offset} → {after.position}" if after else "there is none yet"
            )
            index = f"no entry at or below {self.relative_offset} ({first}): start at byte 0"
        else:
            index = f"{entry.relative_offset} → {entry.position} is the floor of {self.relative_offset}"
            index += f"; the next is {after.relative_offset} → {after.position}" if after else ""
        base = self.base_offset
        return [
            f"file names give the base offsets: {names}",
            f"segment {base}, because {base} ≤ {self.target}{bound}: {self.log_file.name}",
            f"relative offset {self.target} − {base} = {self.relative_offset}",
            f"{self.index_file.name}, {self.index_entry_count} entries: {index}",
            *self._scan_steps(),
        ]

    def _scan_steps(self) -> list[str]:
        """The scan: one step, and one for the file in which it ends, if that is a later one."""
        found, target = self.found, self.target
        hole = "" if found.base_offset <= target else f" ({target} itself was compacted away)"
        end = f"the batch at byte {found.position} holds {found.base_offset} to {found.last_offset}{hole}"
        scan = f"scan from byte {self.start_position}: {self._met(self.log_file)}"
        if found.log_file == self.log_file:
            return [f"{scan}: {end}"]
        return [
            f"{scan}: the segment ends below {target}, the scan goes on in the next that has batches",
            f"{found.log_file.name}, from byte 0: {self._met(found.log_file)}: {end}",
        ]

    def _met(self, log_file: Path) -> str:
        """The base offsets of the batches that the scan met in a file; few of many."""
        met = [str(batch.base_offset) for batch in self.scanned if batch.log_file == log_file]
        if len(met) > MAX_SCANNED_SHOWN:
            met = [*met[: MAX_SCANNED_SHOWN - 1], "…", met[-1]]
        return ", ".join(met) or "no batch"


def read_index(path: Path) -> list[IndexEntry]:
    """The entries of an offset index; the zeros that follow them while the segment is active are left out."""
    raw = path.read_bytes() if path.exists() else b""
    whole = len(raw) - len(raw) % _INDEX_ENTRY.size
    entries = [IndexEntry(*pair) for pair in _INDEX_ENTRY.iter_unpack(raw[:whole])]
    count = len(entries)
    while count > 1 and entries[count - 1] == IndexEntry(0, 0):
        count -= 1
    return (
        [] if count == 1 and entries[0] == IndexEntry(0, 0) and whole > _INDEX_ENTRY.size else entries[:count]
    )


def floor_entry(
    entries: list[IndexEntry], relative_offset: int
) -> tuple[IndexEntry | None, IndexEntry | None]:
    """The entry with the largest relative offset at or below `relative_offset`, and the one after it."""
    place = bisect.bisect_right(entries, relative_offset, key=lambda entry: entry.relative_offset)
    return entries[place - 1] if place else None, entries[place] if place < len(entries) else None


def base_offsets(directory: Path) -> list[int]:
    """Base offsets of the segments of a partition directory, ascending, from the file names alone."""
    names = (parse_segment_file(path.name) for path in directory.iterdir())
    return sorted(name.base_offset for name in names if name and name.kind == LOG_SUFFIX and not name.state)


def _scan(log_file: Path, position: int, target: int) -> list[ScannedBatch]:
    """Batches from `position` on, up to and with the first whose last offset is at or after `target`."""
    scanned: list[ScannedBatch] = []
    size = log_file.stat().st_size
    if not 0 <= position <= size:  # an entry of a damaged index
        raise NoBatchThere(log_file, position)
    with log_file.open("rb") as log:
        while position + HEADER_BYTES <= size:
            log.seek(position)
            head = log.read(HEADER_BYTES)
            if not any(head):  # room that was made for what is not written yet
                break
            header: BatchHeader = parse_header(head)
            if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
                raise NoBatchThere(log_file, position)
            scanned.append(ScannedBatch(log_file, position, header.base_offset, header.last_offset))
            if header.last_offset >= target:
                break
            position += header.size_bytes
    return scanned


def explain_read(directory: Path, target: int) -> ReadExplanation:
    """Find `target` in the partition in `directory`; OffsetNotThere when it is outside the log.

    An offset that compaction has removed is found as a reader finds it: the next batch, in a later segment
    if need be.
    """
    bases = base_offsets(directory)
    if not bases:
        raise OffsetNotThere(f"{directory} holds no segment")
    start = written_log_start(directory)
    if target < start:
        raise OffsetNotThere(f"offset {target} is gone: the log starts at {start}")
    place = bisect.bisect_right(bases, target) - 1
    if place < 0:
        raise OffsetNotThere(f"offset {target} is before the first segment, which begins at {bases[0]}")
    base = bases[place]
    index_file = directory / segment_file_name(base, INDEX_SUFFIX)
    entries = read_index(index_file)
    floor, after = floor_entry(entries, target - base)
    scanned = _scan(directory / segment_file_name(base, LOG_SUFFIX), floor.position if floor else 0, target)
    for later in bases[place + 1 :]:
        if scanned and scanned[-1].last_offset >= target:
            break
        scanned += _scan(directory / segment_file_name(later, LOG_SUFFIX), 0, target)
    if not scanned or scanned[-1].last_offset < target:
        end = scanned[-1].last_offset + 1 if scanned else base
        raise OffsetNotThere(f"offset {target} is not written yet: the log ends at {end}")
    return ReadExplanation(
        target,
        tuple(bases),
        base,
        directory / segment_file_name(base, LOG_SUFFIX),
        index_file,
        target - base,
        len(entries),
        floor,
        after,
        tuple(scanned),
        scanned[-1],
    )
