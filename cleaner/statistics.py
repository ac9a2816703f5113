"""What the cleaner counts, as plain numbers: `broker/metric_tables.py` says how they are read.

`CleanerStatistics` has Kafka's names; where that takes the maximum over its threads' last cleanings, here it
is the last cleaning of any. `PartitionCleanStats` is what Kafka lacks, the same for each partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cleaner.distribution import BYTES, RATIOS, RECORDS, SECONDS, Distribution
from cleaner.quarantine import Uncleanable
from cleaner.results import REASONS, CleanResult
from cleaner.selection import Assessment, Reason
from cleaner.tombstones import ARMED, EXPIRED, FRESH, Counted

LEFT_OUT_NAMES = {
    Reason.ACTIVE_SEGMENT: "active",
    Reason.COMPACTION_LAG: "lag",
    Reason.LAST_STABLE_OFFSET: "lso",
}


class Remembered(NamedTuple):
    """What of a cleaning still holds after a restart."""

    finished_ms: int
    live_keys: int | None
    tombstones_kept: int
    newest_horizon_ms: int


@dataclass(slots=True)
class PartitionTotals:
    """What cleanings of one partition have done since the broker started. Owned by: any thread, under the
    manager's lock.
    """

    runs: int = 0
    seconds: Distribution = field(default_factory=lambda: Distribution(SECONDS))
    bytes_read: Distribution = field(default_factory=lambda: Distribution(BYTES))
    records_read: Distribution = field(default_factory=lambda: Distribution(RECORDS))
    kept_ratio: Distribution = field(default_factory=lambda: Distribution(RATIOS))
    bytes_reclaimed: int = 0
    bytes_recopied: int = 0
    last_clean_ms: int = 0
    live_keys: int | None = 0
    tombstones_kept: int = 0
    newest_horizon_ms: int = -1
    is_certain: bool = False
    """whether the tombstones of the last cleaning are all there are: of one before the start nobody knows
    whether it was the last, and one that did not finish may have given horizons to some
    """
    removed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def remember(self, run: Remembered) -> None:
        """A cleaning of before the start; what this process cleaned itself is newer."""
        if not self.runs:
            self.last_clean_ms = run.finished_ms
            self.live_keys = run.live_keys
            self.tombstones_kept = run.tombstones_kept
            self.newest_horizon_ms = run.newest_horizon_ms

    def add(self, result: CleanResult, finished_ms: int) -> None:
        self.runs += 1
        self.seconds.add(result.seconds)
        self.bytes_read.add(result.bytes_read)
        self.records_read.add(result.records_read)
        if result.bytes_read:
            self.kept_ratio.add(result.bytes_written / result.bytes_read)
        self.bytes_reclaimed += result.bytes_reclaimed
        self.bytes_recopied += result.bytes_written
        self.last_clean_ms = finished_ms
        self.live_keys = result.keys
        self.tombstones_kept = result.tombstones_kept
        self.newest_horizon_ms = result.newest_horizon_ms
        self.is_certain = True
        for reason, count in result.removed.items():
            self.removed[reason] += count


@dataclass(frozen=True, slots=True)
class PartitionCleanStats:
    """One compacted partition now. Times are ms since the epoch, 0 or None for never; `why_not` is None
    when it may be cleaned now, `live_keys` when nobody knows.
    """

    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: Mapping[str, int]
    dirty_ratio: float
    first_dirty_offset: int
    first_uncleanable_offset: int
    next_eligible_ms: int | None
    compaction_delay_ms: int
    why_not: str | None
    state: str
    records_removed: Mapping[str, int]
    bytes_reclaimed: int
    recopied_bytes: int
    tombstones: Mapping[str, int]
    empty_values: int
    live_keys: int | None
    runs: int
    seconds: Distribution
    bytes_read: Distribution
    records_read: Distribution
    kept_ratio: Distribution
    last_clean_ms: int
    uncleanable_error: str | None


def partition_clean_stats(
    found: Assessment,
    totals: PartitionTotals,
    *,
    state: str,
    held: Uncleanable | None,
    now_ms: int,
    counted: Counted,
) -> PartitionCleanStats:
    """The figures of one partition. `counted` is what the segments' statistics say; where some were not
    asked, what the last cleaning kept speaks for armed and expired tombstones. Then the newest horizon speaks
    for all, so that none is called expired too early. What is set aside is eligible when it is tried again.
    """
    tombstones = counted.tombstones
    if not counted.is_complete:
        is_expired = totals.newest_horizon_ms <= now_ms
        tombstones = {
            FRESH: tombstones[FRESH],
            ARMED: 0 if is_expired else totals.tombstones_kept,
            EXPIRED: totals.tombstones_kept if is_expired else 0,
        }
    return PartitionCleanStats(
        clean_bytes=found.clean_bytes,
        cleanable_bytes=found.cleanable_bytes,
        uncleanable_bytes={name: found.uncleanable_bytes[reason] for reason, name in LEFT_OUT_NAMES.items()},
        dirty_ratio=found.dirty_ratio,
        first_dirty_offset=found.first_dirty_offset,
        first_uncleanable_offset=found.first_uncleanable_offset,
        next_eligible_ms=held.retry_ms
        if held and found.reason is Reason.UNCLEANABLE
        else found.next_eligible_ms,
        compaction_delay_ms=found.compaction_delay_ms,
        why_not=None if found.reason is None else found.reason.value,
        state=state,
        records_removed=dict(totals.removed),
        bytes_reclaimed=totals.bytes_reclaimed,
        recopied_bytes=totals.bytes_recopied,
        tombstones=tombstones,
        empty_values=counted.empty_values,
        live_keys=totals.live_keys,
        runs=totals.runs,
        seconds=totals.seconds,
        bytes_read=totals.bytes_read,
        records_read=totals.records_read,
        kept_ratio=totals.kept_ratio,
        last_clean_ms=totals.last_clean_ms,
        uncleanable_error=held.error if held else None,
    )


@dataclass(slots=True)
class CleanerStatistics:
    """The cleaner as a whole. Owned by: any thread, under the manager's lock."""

    runs: int = 0
    aborted_runs: int = 0
    failed_runs: int = 0
    started_ms: int = 0
    """when the threads began, though they may be none; 0: cleaning is off"""
    last_run_ms: int = 0
    max_buffer_utilization_percent: float = 0.0
    cleaner_recopy_percent: float = 0.0
    max_clean_time_secs: float = 0.0
    max_compaction_delay_secs: float = 0.0
    max_dirty_percent: float = 0.0
    dead_threads: int = 0
    worker_restarts: int = 0
    uncleanable_partitions: dict[str, int] = field(default_factory=dict)
    uncleanable_bytes: dict[str, int] = field(default_factory=dict)

    def add(self, result: CleanResult) -> None:
        self.runs += 1
        self.max_buffer_utilization_percent = 100.0 * result.map_utilization
        self.cleaner_recopy_percent = result.recopy_percent
        self.max_clean_time_secs = result.seconds

    def time_since_last_run_ms(self, now_ms: int) -> int:
        """How long no thread has looked for work (Kafka's time-since-last-run-ms, which counts from the
        start where none has); 0 where cleaning is off.
        """
        since_ms = self.last_run_ms or self.started_ms
        return max(0, now_ms - since_ms) if since_ms else 0
