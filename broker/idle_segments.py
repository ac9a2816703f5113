"""Segments that nobody writes to any more, and when each is closed, for topics with `segment.idle.ms` (W12).

Kafka closes a segment only by an append, so that the last records of a topic that fell silent are never
compacted. Here a log whose end has not moved for so long gets a new segment. Whoever looks once a second
sees that by the log's end alone: appends pay nothing for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.partition import Partition
    from storage.layout import TopicPartition
    from storage.log import Log


@dataclass(slots=True)
class Seen:
    """Where a log ended when it was last seen to move, and when that was."""

    log: Log
    log_end_offset: int
    since_ms: int


class IdleSegments:
    """Owned by: event loop; `due_ms` may be asked by any thread."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, Seen] = {}

    def look(self, partition: Partition, now_ms: int) -> bool:
        """Whether the active segment of this partition is to be closed now."""
        log = partition.log
        idle_ms = log.config.segment_idle_ms
        if idle_ms < 0 or partition.is_forgotten or log.offline_reason is not None:
            self._seen.pop(log.topic_partition, None)
            return False
        seen = self._seen.get(log.topic_partition)
        if seen is None or seen.log is not log:
            seen = Seen(log, log.log_end_offset, last_write_ms(log, now_ms))
            self._seen[log.topic_partition] = seen
        elif seen.log_end_offset != log.log_end_offset:
            seen.log_end_offset, seen.since_ms = log.log_end_offset, now_ms
        elif seen.since_ms > now_ms:  # the clock was set back
            seen.since_ms = now_ms
        return now_ms >= seen.since_ms + idle_ms and log.segments[-1].size_bytes > 0

    def forget_others(self, served: set[TopicPartition]) -> None:
        for gone in self._seen.keys() - served:
            del self._seen[gone]

    def due_ms(self, log: Log) -> int | None:
        """When the active segment will be closed if nobody writes; None: it will not be."""
        seen = self._seen.get(log.topic_partition)
        idle_ms = log.config.segment_idle_ms
        if seen is None or idle_ms < 0 or not log.segments[-1].size_bytes:
            return None
        return seen.since_ms + idle_ms


def last_write_ms(log: Log, now_ms: int) -> int:
    """When a log that is seen for the first time was written last: what its file says."""
    try:
        modified_ms = log.segments[-1].file.path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return now_ms
    return min(now_ms, modified_ms)
