"""The segments of a partition: what each holds, from the statistics beside it, and what the cleaner makes of
it.

Of closed segments no record is read, but for those whose statistics are missing and made now; the active one
is counted. Blocking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from cleaner.selection import Assessment, Reason, segments_from
from cleaner.work import view_of
from protocol.errors import KafkaError
from storage import statistics
from storage.sidecar import SegmentStatistics
from storage.statistics_kernels import SKETCH_REGISTERS

if TYPE_CHECKING:
    from storage.log import Log
    from storage.segment import Segment

ACTIVE = "active"
CLEAN = "clean"
DIRTY = "dirty"
LAGGING = "lagging"
UNSTABLE = "unstable"
CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Tombstones:
    """By what holds them: not cleaned yet, until their delete horizon, nothing. `armed_until_ms` is when the
    last of the armed may go.
    """

    fresh: int
    armed: int
    armed_until_ms: int | None
    expired: int


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One segment. `end_offset` is the offset behind its last record, `holes` how many offsets in it are
    gone, `live_keys` an estimate of how many keys have their latest record here, `empty_values` those of
    keyed records that are empty, which is no tombstone. Times are None where no
    record has one. `problem` says why it could not be counted.
    """

    file: str
    base_offset: int
    end_offset: int
    size_bytes: int
    state: str
    batches: int = 0
    records: int = 0
    keyed_records: int = 0
    keys: int = 0
    live_keys: int = 0
    holes: int = 0
    tombstones: Tombstones | None = None
    empty_values: int = 0
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    problem: str | None = None


def segment_rows(log: Log, found: Assessment, now_ms: int) -> list[SegmentRow]:
    """The segments of a log at this moment, ascending; `found` is the cleaner's view of it."""
    segments = log.segments
    dirty = {one.base_offset for one in segments_from(view_of(log), found.first_dirty_offset)}
    rows = []
    later = numpy.zeros(SKETCH_REGISTERS, numpy.uint8)
    keys_later = 0
    for segment in reversed(segments):
        state = _state(segment, segment is segments[-1], found, dirty)
        try:
            counted = statistics.ensure(segment)
        except (KafkaError, OSError) as error:
            rows.append(_uncounted(segment, state, error))
            continue
        later = numpy.maximum(later, counted.sketch)
        keys_now = statistics.estimate(later)
        live = min(counted.distinct_keys, max(0, keys_now - keys_later))
        keys_later = keys_now
        rows.append(_row(segment, state, counted, live, now_ms))
    return rows[::-1]


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


def _uncounted(segment: Segment, state: str, error: Exception) -> SegmentRow:
    return SegmentRow(
        file=segment.file.path.name,
        base_offset=segment.base_offset,
        end_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        state=state,
        problem=error.message if isinstance(error, KafkaError) else str(error),
    )


def _row(segment: Segment, state: str, counted: SegmentStatistics, live: int, now_ms: int) -> SegmentRow:
    fresh, armed, expired = counted.tombstones_at(now_ms)
    return SegmentRow(
        file=segment.file.path.name,
        base_offset=segment.base_offset,
        end_offset=counted.next_offset,
        size_bytes=counted.size_bytes,
        state=state,
        batches=counted.batches,
        records=counted.records,
        keyed_records=counted.keyed_records,
        keys=counted.distinct_keys,
        live_keys=live,
        holes=counted.holes,
        tombstones=Tombstones(fresh, armed, counted.horizons[-1][0] if armed else None, expired),
        empty_values=counted.empty_values,
        min_timestamp=counted.min_timestamp if counted.min_timestamp >= 0 else None,
        max_timestamp=counted.max_timestamp if counted.max_timestamp >= 0 else None,
    )
