"""Partitions that could not be cleaned: set aside with the reason, and tried again after growing pauses
(T178).

Kafka keeps such a partition aside until it restarts; here a repaired disk, or more room on it, is found out
by itself. A full disk (T124) is no fault of the partition: it waits the shortest pause and counts as
cleanable.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.layout import TopicPartition
from storage.small_files import NO_ROOM

FIRST_RETRY_MS = 60_000
LONGEST_RETRY_MS = 3_600_000
FULL_DISK_RETRY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Uncleanable:
    """Why a partition is left alone, and until when."""

    error: str
    since_ms: int
    failures: int
    retry_ms: int
    is_damaged: bool


class Quarantine:
    """Owned by: any thread, under the manager's lock."""

    def __init__(self) -> None:
        self._set_aside: dict[TopicPartition, Uncleanable] = {}

    def get(self, topic_partition: TopicPartition) -> Uncleanable | None:
        return self._set_aside.get(topic_partition)

    def holds(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Whether it is not yet time to try again. A clock that was set back makes no pause longer."""
        found = self._set_aside.get(topic_partition)
        return found is not None and now_ms < found.retry_ms <= now_ms + LONGEST_RETRY_MS

    def add(self, topic_partition: TopicPartition, error: BaseException, now_ms: int) -> Uncleanable:
        """One more failure."""
        before = self._set_aside.get(topic_partition)
        failures = before.failures + 1 if before else 1
        is_full = isinstance(error, OSError) and error.errno in NO_ROOM
        pause_ms = min(LONGEST_RETRY_MS, FIRST_RETRY_MS << min(failures - 1, 16))
        added = Uncleanable(
            error=f"{type(error).__name__}: {error}",
            since_ms=before.since_ms if before else now_ms,
            failures=failures,
            retry_ms=now_ms + (FULL_DISK_RETRY_MS if is_full else pause_ms),
            is_damaged=not is_full,
        )
        self._set_aside[topic_partition] = added
        return added

    def release(self, topic_partition: TopicPartition) -> None:
        """It was cleaned, or is to be tried at once, or is gone."""
        self._set_aside.pop(topic_partition, None)
