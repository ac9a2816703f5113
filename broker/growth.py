"""How fast each log is written: what the forecast of a disk rests on (`questions/forecast.py`, W16).

Once a minute every log's end is looked at, so that appends pay nothing for it: the offsets that were added,
times the bytes that a record takes in the active segment, which no cleaning has touched. Older minutes count
less and less, so that an import of last week does not look like a habit, and a quiet hour not like an end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.partition import Partition
    from storage.layout import TopicPartition
    from storage.log import Log
    from storage.segment import Segment

LOOK_MS = 60_000
MEMORY_MS = 86_400_000
"""a minute of so long ago counts 1/e of the last one"""
SECOND_MS = 1000


@dataclass(slots=True)
class Seen:
    """A log at the last look. `bytes_written` and `elapsed_ms` are weighted, the last minute by one."""

    log: Log
    log_end_offset: int
    bytes_per_offset: float
    bytes_written: float = 0.0
    elapsed_ms: float = 0.0


class Growth:
    """Owned by: event loop; `bytes_per_second` and `observed_ms` may be asked by any thread."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, Seen] = {}
        self._began_ms: int | None = None
        self._looked_ms = 0

    def look(self, partitions: Iterable[Partition], passed_ms: int) -> None:
        """What was written since the last look, by a clock that nobody sets; logs that are new, or were
        offline, count from now on.
        """
        if self._began_ms is None:
            self._began_ms = self._looked_ms = passed_ms
        since_ms = passed_ms - self._looked_ms
        self._looked_ms = passed_ms
        weight = exp(-since_ms / MEMORY_MS)
        seen: dict[TopicPartition, Seen] = {}
        for partition in partitions:
            log = partition.log
            if log.offline_reason is not None:
                continue
            before = self._seen.get(log.topic_partition)
            if before is None or before.log is not log:
                before = Seen(log, log.log_end_offset, 0.0)
            elif since_ms:
                _add(before, since_ms, weight)
            seen[log.topic_partition] = before
        self._seen = seen

    def bytes_per_second(self, log: Log) -> float | None:
        """What is written to this log, on the mean; None while it was not watched for a minute."""
        seen = self._seen.get(log.topic_partition)
        if seen is None or seen.log is not log or not seen.elapsed_ms:
            return None
        return seen.bytes_written * SECOND_MS / seen.elapsed_ms

    def observed_ms(self, passed_ms: int) -> int:
        """For how long there has been an observation."""
        return 0 if self._began_ms is None else max(0, passed_ms - self._began_ms)


def _add(seen: Seen, passed_ms: int, weight: float) -> None:
    log = seen.log
    active, end = log.segments[-1], log.log_end_offset
    added = max(0, end - seen.log_end_offset)
    seen.bytes_per_offset = _bytes_per_offset(active, end) or seen.bytes_per_offset
    seen.bytes_written = seen.bytes_written * weight + added * seen.bytes_per_offset
    seen.elapsed_ms = seen.elapsed_ms * weight + passed_ms
    seen.log_end_offset = end


def _bytes_per_offset(active: Segment, end: int) -> float:
    """0 when the active segment holds nothing."""
    offsets = end - active.base_offset
    return active.size_bytes / offsets if offsets > 0 else 0.0
