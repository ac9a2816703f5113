"""Compact now, or find out what that would do: cleanings that somebody asked for, one after another.

A cleaning runs on an I/O thread while `Progress` tells how far it is. Stopping the broker aborts it: what
was not swapped yet is undone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker.cleaning_history import run_of
from cleaner.cleaner import CleaningAborted
from cleaner.manager import CleaningRefused
from config.topic import TopicConfig
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.topic import Topic
    from cleaner.results import CleanResult
    from cleaner.selection import Assessment

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of one compaction. `config` holds the settings of a what-if, for dry runs only."""

    roll: bool = False
    is_dry: bool = False
    config: TopicConfig | None = None


@dataclass(slots=True)
class Progress:
    """How far it is: bytes read and written, of at most so many. Owned by: the I/O thread; any may read."""

    partition: int
    bytes_done: int = 0
    bytes_at_most: int = 0

    def account(self, size_bytes: int) -> None:
        self.bytes_done += size_bytes
        self.bytes_at_most = max(self.bytes_at_most, self.bytes_done)  # a dry run in passes reads more


@dataclass(slots=True)
class Rounds:
    """Several cleanings of one log, as many as the map's memory asks for, seen as one."""

    results: list[CleanResult] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Before and after; the counts of all rounds together."""
        last, earlier = self.results[-1], self.results[:-1]
        removed = {
            reason: count + sum(one.removed[reason] for one in earlier)
            for reason, count in last.removed.items()
        }
        return {
            **run_of(last),
            "first_dirty_offset": self.results[0].first_dirty_offset,
            "started_ms": self.results[0].started_ms,
            "seconds": round(sum(one.seconds for one in self.results), 3),
            "records_before": last.records_read + sum(sum(one.removed.values()) for one in earlier),
            "bytes_before": last.bytes_read + sum(one.bytes_shrunk for one in earlier),
            "segments_before": last.segments_read
            + sum(one.segments_read - one.segments_written for one in earlier),
            "removed": removed,
            "dirty_records": sum(one.map_records for one in self.results),
            "rounds": len(self.results),
        }


def held_back_by(goal: Assessment) -> str | None:
    """Why nothing was cleanable, if so: by the settings that were asked for, not always the topic's own."""
    if goal.cleanable_bytes or goal.reason is None:
        return None
    return goal.reason.value


class Compactions:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._one_at_a_time = asyncio.Semaphore(1)
        self._running: TopicPartition | None = None
        self._is_stopping = False
        self.waiting = 0
        """how many wait for their turn or are being done"""

    def settings(self, topic: Topic, overrides: Mapping[str, str]) -> TopicConfig | None:
        """The topic's settings with `overrides` on top; ConfigError when they cannot hold."""
        if not overrides:
            return None
        return TopicConfig.resolve(
            {**topic.overrides, **overrides}, self._broker.config, is_internal=topic.is_internal
        )

    async def compact(
        self, topic_partition: TopicPartition, wish: Wish, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Clean one partition, or only count; what was found, or why not under "error"."""
        self.waiting += 1
        try:
            return await self._in_turn(topic_partition, wish, progress or Progress(topic_partition.partition))
        finally:
            self.waiting -= 1

    async def _in_turn(
        self, topic_partition: TopicPartition, wish: Wish, progress: Progress
    ) -> dict[str, Any]:
        async with self._one_at_a_time:
            if self._is_stopping:
                return {"error": "the broker stops"}
            self._running = topic_partition
            try:
                rolled_at = await self._roll(topic_partition, wish.is_dry) if wish.roll else None
                return await self._broker.run_blocking(
                    self._clean, topic_partition, wish, rolled_at if wish.is_dry else None, progress
                )
            except CleaningAborted:
                return {"error": "the cleaning was aborted"}
            except CleaningRefused as error:
                return {"error": str(error)}
            except Exception as error:
                logger.warning("%s could not be cleaned: %s", topic_partition, error)
                return {"error": f"{type(error).__name__}: {error}"}
            finally:
                self._running = None

    async def _roll(self, topic_partition: TopicPartition, is_dry: bool) -> int:
        """Close the active segment, in a dry run only in thought; what is in it may be cleaned once it is
        flushed. The offset behind it.
        """
        partition = self._broker.partitions.get(topic_partition)
        if partition is None:
            raise CleaningRefused("it is not served")
        if not is_dry:
            partition.log.roll(self._broker.clock.now_ms())
        partition.flush()
        end_offset = partition.log.log_end_offset
        waited = partition.when_flushed(end_offset)
        if waited is not None:
            await asyncio.shield(waited)
        return end_offset

    def _clean(
        self, topic_partition: TopicPartition, wish: Wish, rolled_at: int | None, progress: Progress
    ) -> dict[str, Any]:
        """On an I/O thread: round after round, until everything cleanable is."""
        manager = self._broker.cleaner
        partition = self._broker.partitions.get(topic_partition)
        if partition is None:
            raise CleaningRefused("it is not served")
        if not wish.is_dry:
            manager.wait_until_cleaned(topic_partition)
        log, rounds = partition.log, Rounds()
        log_bytes = log.size_bytes
        goal = manager.assess(log, wish.config, rolled_at)
        progress.bytes_at_most = 2 * goal.total_bytes + goal.cleanable_bytes
        while True:
            result = manager.clean_now(
                topic_partition,
                is_dry=wish.is_dry,
                config=wish.config,
                rolled_at=rolled_at,
                account=progress.account,
            )
            rounds.results.append(result)
            has_moved = result.end_offset > result.first_dirty_offset
            if wish.is_dry or not has_moved or result.end_offset >= goal.end:
                break
            progress.bytes_at_most += 2 * goal.total_bytes
        return {
            "is_dry": wish.is_dry,
            **rounds.summary(),
            "is_complete": result.end_offset >= goal.end,
            "held_back_by": held_back_by(goal),
            "log_bytes_before": log_bytes,
            "log_bytes_after": log_bytes - result.bytes_shrunk if wish.is_dry else log.size_bytes,
        }

    async def stop(self) -> None:
        """Abort what runs and return when it has ended."""
        self._is_stopping = True
        if self._running is not None:
            await self._broker.run_blocking(self._broker.cleaner.abort_and_pause, self._running)
        async with self._one_at_a_time:
            return
