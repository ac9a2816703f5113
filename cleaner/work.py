"""A log as selection sees it, and the work that is made of an assessment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleaner.results import Range
from cleaner.selection import Assessment, LogView, Rules, SegmentView, Trigger

if TYPE_CHECKING:
    from config.topic import TopicConfig
    from storage.log import Log


BY_HAND = "asked for"
"""the cause of a cleaning that a person wanted"""


@dataclass(frozen=True, slots=True)
class Work:
    """A log, what of it is to be cleaned, and what brought that about."""

    log: Log
    range: Range
    cause: str


def work_on(log: Log, assessment: Assessment, cause: str) -> Work:
    return Work(log, Range(assessment.first_dirty_offset, assessment.end), cause)


def cause_of(assessment: Assessment) -> str:
    """Why a log that may be cleaned is."""
    if assessment.trigger is Trigger.RATIO:
        return f"dirty ratio {assessment.dirty_ratio:.2f} above {assessment.threshold:g}"
    is_by_tombstones = assessment.trigger is Trigger.EXPIRED_TOMBSTONES
    return "expired tombstones" if is_by_tombstones else "max.compaction.lag.ms"


def view_of(log: Log, rolled_at: int | None = None) -> LogView:
    """A log as selection sees it; any thread. With `rolled_at`, an offset, as if its active segment had been
    rolled there: all segments that begin below count as closed.
    """
    segments = log.segments
    active = segments[-1]
    closed = segments[:-1] if rolled_at is None else [one for one in segments if one.base_offset < rolled_at]
    return LogView(
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        active.base_offset if rolled_at is None else rolled_at,
        active.size_bytes if rolled_at is None else 0,
        [
            SegmentView(one.base_offset, one.size_bytes, one.first_batch_timestamp, one.largest_timestamp)
            for one in closed
        ],
    )


def rules_of(config: TopicConfig) -> Rules:
    """The settings of a topic that selection goes by."""
    return Rules(
        config.is_compacted,
        config.is_deleted,
        config.min_cleanable_dirty_ratio,
        config.min_compaction_lag_ms,
        config.max_compaction_lag_ms,
        config.compaction_expired_tombstones_enable,
        config.lacks_version,
    )
