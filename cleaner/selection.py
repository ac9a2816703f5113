"""What of a log may be cleaned, whether that is worth it now, and if not, why not.

Mirrors `LogCleanerManager.cleanableOffsets`, `calculateCleanableBytes` and `maxCompactionDelay`. Pure: a
`LogView`, a checkpoint and the time go in, an `Assessment` comes out, whose numbers are the gauges of
/metrics and whose reason is the answer to "why is this topic not compacted?".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

MAX_TIME_MS = 2**63 - 1


class Reason(Enum):
    """Why a log is not cleaned now."""

    NOT_COMPACTED = "the topic is not compacted"
    IN_PROGRESS = "it is being cleaned"
    DRY_RUN = "a dry run looks at it"
    PAUSED = "its cleaning is paused while it moves to another directory"
    UNCLEANABLE = "it cannot be cleaned"
    OFFLINE = "the log is offline"
    NO_VERSION = "compaction.strategy is header, and no header is named"
    EMPTY = "the log holds no record"
    ACTIVE_SEGMENT = "all that is dirty is in the active segment"
    LAST_STABLE_OFFSET = "an undecided transaction holds the last stable offset back"
    COMPACTION_LAG = "the first dirty segment holds a record younger than min.compaction.lag.ms"
    NOTHING_DIRTY = "nothing was written since the last cleaning"
    RATIO = "the dirty ratio is not above min.cleanable.dirty.ratio"


WAITS_FOR_MORE = (
    Reason.ACTIVE_SEGMENT,
    Reason.LAST_STABLE_OFFSET,
    Reason.COMPACTION_LAG,
    Reason.NOTHING_DIRTY,
    Reason.RATIO,
)
"""reasons for which expired tombstones do not have to wait"""


class Trigger(Enum):
    """What makes a log due for a cleaning."""

    RATIO = "the dirty ratio is above min.cleanable.dirty.ratio"
    MAX_LAG = "max.compaction.lag.ms is over"
    EXPIRED_TOMBSTONES = "its tombstones are past delete.retention.ms"


class CheckpointReset(Enum):
    """Why a checkpoint cannot be right, so that the log counts as dirty from its start (T3, T4)."""

    BELOW_LOG_START = "the checkpoint lies below the log start offset"
    BEYOND_LOG_END = "the checkpoint lies beyond the log end offset"


@dataclass(frozen=True, slots=True)
class SegmentView:
    """What selection asks about a closed segment."""

    base_offset: int
    size_bytes: int
    first_batch_timestamp: int
    largest_timestamp: int


@dataclass(frozen=True, slots=True)
class LogView:
    """A log at one moment. `segments` are the closed ones, ascending."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    active_base_offset: int
    active_bytes: int
    segments: Sequence[SegmentView]


@dataclass(frozen=True, slots=True)
class Rules:
    """The topic's settings that matter here."""

    is_compacted: bool
    is_deleted: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    cleans_expired_tombstones: bool = False
    lacks_version: bool = False


@dataclass(frozen=True, slots=True)
class Assessment:
    """One log, weighed. `reason` is None when it may be cleaned now.

    `first_uncleanable_offset` is the bound as the reasons give it, `end` the base offset of the segment
    that holds it: a segment is cleaned whole or not at all (T13). Bytes left out of the ratio are given by
    what keeps them out.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    end: int
    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: dict[Reason, int]
    threshold: float
    compaction_delay_ms: int
    checkpoint_reset: CheckpointReset | None
    next_eligible_ms: int | None
    reason: Reason | None
    tombstones_expire_ms: int | None = None
    """when all tombstones that earlier cleanings kept may go, if the topic wants to be cleaned for that"""
    now_ms: int = 0
    lag_ends_ms: int | None = None
    """when min.compaction.lag.ms will let go of the first dirty segment that it keeps; None: it keeps none"""
    max_lag_ends_ms: int | None = None
    """when the oldest dirty record will be over max.compaction.lag.ms, or was; None: never"""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        """Cleanable bytes among clean and cleanable ones; active and lagging bytes are in neither (T14)."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def must_clean_now(self) -> bool:
        """Whether max.compaction.lag.ms asks for it, whatever the ratio (T18)."""
        return self.compaction_delay_ms > 0 and self.cleanable_bytes > 0

    @property
    def trigger(self) -> Trigger | None:
        """What makes it due, whether or not something keeps it; None when nothing does."""
        if self.cleanable_bytes and self.dirty_ratio > self.threshold:
            return Trigger.RATIO
        if self.must_clean_now:
            return Trigger.MAX_LAG
        if self.tombstones_expire_ms is not None and self.tombstones_expire_ms <= self.now_ms:
            return Trigger.EXPIRED_TOMBSTONES
        return None

    @property
    def is_cleanable(self) -> bool:
        return self.reason is None


def first_dirty(view: LogView, checkpoint: int | None) -> tuple[int, CheckpointReset | None]:
    """Where the dirty part begins, and whether the checkpoint had to be given up (T1-T4)."""
    if checkpoint is None:
        return view.log_start_offset, None
    if checkpoint < view.log_start_offset:
        return view.log_start_offset, CheckpointReset.BELOW_LOG_START
    if checkpoint > view.log_end_offset:
        return view.log_start_offset, CheckpointReset.BEYOND_LOG_END
    return checkpoint, None


def segments_from(view: LogView, offset: int) -> Sequence[SegmentView]:
    """The closed segments from the one that holds `offset` on; none when it lies in the active one."""
    if offset >= view.active_base_offset:
        return ()
    start = 0
    for index, segment in enumerate(view.segments):
        if segment.base_offset <= offset:
            start = index
    return view.segments[start:]


def uncleanable_from(
    view: LogView, rules: Rules, dirty: Sequence[SegmentView], now_ms: int
) -> tuple[int, Reason]:
    """The first offset that may not be cleaned, and what keeps it (T7-T12); the lowest bound wins.

    1. An undecided transaction may be aborted: nothing from the last stable offset on.
    2. The active segment is still written.
    3. Readers are promised min.compaction.lag.ms of full history: nothing from the first dirty segment on
       that holds anything younger.
    """
    bounds = [
        (view.last_stable_offset, Reason.LAST_STABLE_OFFSET),
        (view.active_base_offset, Reason.ACTIVE_SEGMENT),
    ]
    lag_ms = max(rules.min_compaction_lag_ms, 0)
    if lag_ms > 0:
        young = [one.base_offset for one in dirty if one.largest_timestamp > now_ms - lag_ms]
        bounds += [(base_offset, Reason.COMPACTION_LAG) for base_offset in young[:1]]
    offset = min(offset for offset, _ in bounds)
    # At the same offset the active segment is the plainer answer: with no transaction open, the last stable
    # offset is the log end, which is the active segment's base while that is empty.
    return offset, next(reason for bound, reason in reversed(bounds) if bound == offset)


def compaction_delay(dirty: Sequence[SegmentView], rules: Rules, now_ms: int) -> tuple[int, int | None]:
    """How long max.compaction.lag.ms is overdue (0: it is not), and when it will be due (T18, T19)."""
    firsts = [one.first_batch_timestamp for one in dirty if one.first_batch_timestamp > 0]
    if not firsts:
        return 0, None
    lag_ms = max(rules.max_compaction_lag_ms, 0)
    due_ms = min(firsts) + lag_ms + 1
    return max(0, now_ms - lag_ms - min(firsts)), due_ms if due_ms < MAX_TIME_MS else None


def assess(
    view: LogView,
    rules: Rules,
    checkpoint: int | None,
    now_ms: int,
    held: Reason | None = None,
    tombstones_expire_ms: int | None = None,
) -> Assessment:
    """Weigh one log; `held` is a reason that lies outside of it (paused, in progress, uncleanable...).

    `tombstones_expire_ms` is when the last tombstone that cleanings have kept may go; None: there is none.
    """
    dirty_offset, reset = first_dirty(view, checkpoint)
    dirty = segments_from(view, dirty_offset)
    bound, kept_by = uncleanable_from(view, rules, dirty, now_ms)
    first_uncleanable = max(dirty_offset, bound)
    beyond = segments_from(view, first_uncleanable)
    end = beyond[0].base_offset if beyond else view.active_base_offset
    clean = sum(one.size_bytes for one in view.segments if one.base_offset < dirty_offset)
    cleanable = sum(one.size_bytes for one in dirty if one.base_offset < end)
    delay_ms, due_ms = compaction_delay(dirty, rules, now_ms)
    left = _left_out(view, [one for one in dirty if one.base_offset >= end], kept_by)
    weighed = Assessment(
        first_dirty_offset=dirty_offset,
        first_uncleanable_offset=first_uncleanable,
        end=end,
        clean_bytes=clean,
        cleanable_bytes=cleanable,
        uncleanable_bytes=left,
        threshold=rules.min_cleanable_dirty_ratio,
        compaction_delay_ms=delay_ms,
        checkpoint_reset=reset,
        next_eligible_ms=None,
        reason=None,
        tombstones_expire_ms=tombstones_expire_ms if rules.cleans_expired_tombstones else None,
        now_ms=now_ms,
        lag_ends_ms=beyond[0].largest_timestamp + rules.min_compaction_lag_ms
        if beyond and kept_by is Reason.COMPACTION_LAG
        else None,
        max_lag_ends_ms=due_ms,
    )
    if not rules.is_compacted and held in (Reason.PAUSED, Reason.UNCLEANABLE, Reason.DRY_RUN):
        held = None  # of the time when it was compacted, or of one who asks what if it were
    reason = held or _why_not(view, rules, weighed, kept_by, beyond)
    eligible_ms = now_ms if reason is None else None
    if reason in WAITS_FOR_MORE:
        eligible_ms = _next_eligible(view, rules, weighed, dirty)
    return replace(weighed, next_eligible_ms=eligible_ms, reason=reason)


def _next_eligible(
    view: LogView, rules: Rules, weighed: Assessment, dirty: Sequence[SegmentView]
) -> int | None:
    """When time alone will have made the log due; None: never, or not before somebody writes or ends a
    transaction.

    Time lets go of one dirty segment after the other, in their order (min.compaction.lag.ms): each makes the
    ratio higher. The oldest dirty record gets over max.compaction.lag.ms, which counts as soon as there is
    anything to clean. And tombstones expire.
    """
    last = segments_from(view, max(weighed.first_dirty_offset, view.last_stable_offset))
    stable = [one for one in dirty if not last or one.base_offset < last[0].base_offset]
    lag_ms = max(rules.min_compaction_lag_ms, 0)
    times = [] if weighed.tombstones_expire_ms is None else [weighed.tombstones_expire_ms]
    ripe_ms, cleanable = 0, 0
    for segment in stable:
        ripe_ms = max(ripe_ms, segment.largest_timestamp + lag_ms if lag_ms else 0)
        cleanable += segment.size_bytes
        if cleanable and weighed.max_lag_ends_ms is not None:
            times.append(max(ripe_ms, weighed.max_lag_ends_ms))
        if cleanable and cleanable / (weighed.clean_bytes + cleanable) > weighed.threshold:
            times.append(ripe_ms)
            break
    return min((time for time in times if time < MAX_TIME_MS), default=None)


def _left_out(view: LogView, beyond: Sequence[SegmentView], kept_by: Reason) -> dict[Reason, int]:
    """Dirty bytes that are in neither side of the ratio, by what keeps them there."""
    left = {Reason.ACTIVE_SEGMENT: view.active_bytes, Reason.COMPACTION_LAG: 0, Reason.LAST_STABLE_OFFSET: 0}
    closed = sum(one.size_bytes for one in beyond)
    if kept_by is not Reason.ACTIVE_SEGMENT:
        left[kept_by] += closed
    return left


def _why_not(
    view: LogView, rules: Rules, weighed: Assessment, kept_by: Reason, beyond: Sequence[SegmentView]
) -> Reason | None:
    if not rules.is_compacted:
        return Reason.NOT_COMPACTED
    if rules.lacks_version:
        return Reason.NO_VERSION
    if view.log_end_offset == view.log_start_offset:
        return Reason.EMPTY
    if weighed.trigger is Trigger.EXPIRED_TOMBSTONES:
        return None
    if weighed.cleanable_bytes == 0:
        if kept_by is not Reason.ACTIVE_SEGMENT and beyond:
            return kept_by
        is_active_dirty = view.active_bytes and weighed.first_dirty_offset < view.log_end_offset
        return Reason.ACTIVE_SEGMENT if is_active_dirty else Reason.NOTHING_DIRTY
    return Reason.RATIO if weighed.trigger is None else None


def dirtiest(assessments: Sequence[Assessment]) -> int | None:
    """Which one is cleaned next: the highest ratio among those that may be; None when there is none (T23,
    T24).
    """
    able = [index for index, one in enumerate(assessments) if one.is_cleanable]
    return max(able, key=lambda index: assessments[index].dirty_ratio, default=None)
