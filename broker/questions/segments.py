"""The segments of a partition: what each holds, counted from its batch headers, and what the cleaner makes
of it.

Blocking: every batch header is read, by a kernel, and no record is decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from cleaner.manager import view_of
from cleaner.selection import Assessment, Reason, segments_from
from protocol.batch import DELETE_HORIZON, NO_TIMESTAMP
from protocol.errors import KafkaError
from storage.batch_table import ATTRIBUTES, MAX_TIMESTAMP, POSITION, RECORD_COUNT, SIZE_BYTES, Longs, Table

if TYPE_CHECKING:
    from storage.log import Log
    from storage.segment import Segment

BASE_TIMESTAMP_AT = numpy.arange(27, 35)

ACTIVE = "active"
CLEAN = "clean"
DIRTY = "dirty"
LAGGING = "lagging"
UNSTABLE = "unstable"
CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One segment. `end_offset` is the offset behind its last record, `holes` how many offsets in it are
    gone. `min_timestamp` is the least first timestamp of its batches; None where no batch has one.
    `problem` says why its batches could not be counted.
    """

    file: str
    base_offset: int
    end_offset: int
    size_bytes: int
    batches: int
    records: int
    holes: int
    min_timestamp: int | None
    max_timestamp: int | None
    state: str
    problem: str | None = None


def segment_rows(log: Log, found: Assessment) -> list[SegmentRow]:
    """The segments of a log at this moment, ascending; `found` is the cleaner's view of it."""
    segments = log.segments
    dirty = {one.base_offset for one in segments_from(view_of(log), found.first_dirty_offset)}
    return [_row(one, _state(one, one is segments[-1], found, dirty)) for one in segments]


def _state(segment: Segment, is_active: bool, found: Assessment, dirty: set[int]) -> str:
    if is_active:
        return ACTIVE
    if found.reason is Reason.NOT_COMPACTED:
        return CLOSED
    if segment.base_offset not in dirty:
        return CLEAN
    if segment.base_offset < found.end:
        return DIRTY
    return LAGGING if found.uncleanable_bytes[Reason.COMPACTION_LAG] else UNSTABLE


def _row(segment: Segment, state: str) -> SegmentRow:
    size_bytes, batches, records = segment.size_bytes, 0, 0
    earliest: list[int] = []
    latest = NO_TIMESTAMP
    problem = None
    try:
        for table in segment.tables(0, size_bytes):
            batches += table.shape[1]
            records += int(table[RECORD_COUNT].sum())
            latest = max(latest, int(table[MAX_TIMESTAMP].max()))
            firsts = _first_timestamps(segment, table)
            earliest += [int(firsts.min())] if firsts.size else []
        end_offset = segment.next_offset
    except (KafkaError, OSError) as error:
        problem, end_offset = str(error), segment.base_offset
    return SegmentRow(
        file=segment.file.path.name,
        base_offset=segment.base_offset,
        end_offset=end_offset,
        size_bytes=size_bytes,
        batches=batches,
        records=records,
        holes=max(0, end_offset - segment.base_offset - records) if problem is None else 0,
        min_timestamp=min(earliest, default=None),
        max_timestamp=latest if latest >= 0 else None,
        state=state,
        problem=problem,
    )


def _first_timestamps(segment: Segment, table: Table) -> Longs:
    """The first timestamp of each batch that has one; the cleaner has put a delete horizon in the place of
    some.
    """
    begin = int(table[POSITION, 0])
    data = segment.read_at(begin, int(table[POSITION, -1] + table[SIZE_BYTES, -1]) - begin)
    chunk = numpy.frombuffer(data, numpy.uint8)
    places = (table[POSITION] - begin)[:, None] + BASE_TIMESTAMP_AT
    firsts = numpy.ascontiguousarray(chunk[places]).view(">i8")[:, 0].astype(numpy.int64)
    is_horizon = table[ATTRIBUTES] & DELETE_HORIZON != 0
    firsts = numpy.where(is_horizon, table[MAX_TIMESTAMP], firsts)
    return firsts[firsts >= 0]
