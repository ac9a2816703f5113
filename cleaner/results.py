"""What a cleaning was asked to do and what came of it: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.layout import TopicPartition

SUPERSEDED = "superseded"
TOMBSTONE = "tombstone"
ABORTED = "aborted"
KEYLESS = "keyless"
MARKER = "marker"
REASONS = (SUPERSEDED, TOMBSTONE, ABORTED, KEYLESS, MARKER)


@dataclass(frozen=True, slots=True)
class Range:
    """What one cleaning covers: the dirty part to map. `end` is the first uncleanable offset."""

    first_dirty_offset: int
    end: int


@dataclass(slots=True)
class CleanResult:
    """One run of the cleaner over one log; `end_offset` is the next first dirty offset.

    Records and bytes count what was read and written in the rewriting, the whole log up to `end_offset`.
    `cause` says what brought it about. `reached_below_start` is true when records below the log start lay in
    the first segment: they are not mapped, so a key may be there often.
    """

    topic_partition: TopicPartition
    first_dirty_offset: int
    end_offset: int
    started_ms: int
    map_records: int = 0
    map_bytes: int = 0
    map_seconds: float = 0.0
    map_utilization: float = 0.0
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    segments_read: int = 0
    segments_written: int = 0
    rewrite_seconds: float = 0.0
    removed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    live_keys: int = 0
    tombstones_kept: int = 0
    newest_horizon_ms: int = -1
    cause: str = ""
    reached_below_start: bool = False

    @property
    def keys(self) -> int | None:
        """How many keys have a value in what was cleaned; None when it is not known."""
        return None if self.reached_below_start else self.live_keys

    @property
    def seconds(self) -> float:
        return self.map_seconds + self.rewrite_seconds

    @property
    def bytes_reclaimed(self) -> int:
        return max(0, self.bytes_shrunk)

    @property
    def bytes_shrunk(self) -> int:
        """By how much the log is smaller now; below zero where horizons made batches larger."""
        return self.bytes_read - self.bytes_written

    @property
    def recopy_percent(self) -> float:
        """Bytes written for a hundred read, over both phases (Kafka's cleaner-recopy-percent)."""
        total = self.map_bytes + self.bytes_read
        return 100.0 * self.bytes_written / total if total else 0.0
