"""What the broker does on its own: retention, checkpoints, flushes by time, rolls of idle segments, removal
of deleted files, offset expiry, ends of transactions whose time is over, finding logs whose files somebody
removed, opening those that went offline, looking how fast logs grow.

Every job is a task that sleeps by the broker's clock; a job that fails is logged, counted and tried again
at its next turn. Mirrors the scheduled tasks of Kafka's `LogManager` and `GroupCoordinatorService`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from broker import reopening
from broker.growth import LOOK_MS as GROWTH_LOOK_MS
from broker.questions import keeping
from broker.vanished import LOOK_MS as VANISHED_CHECK_MS
from broker.vanished import Vanished
from protocol.errors import KafkaError
from storage.retention import MOST_AT_ONCE

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.partition import Partition
    from storage.log import Log

logger = logging.getLogger(__name__)

FLUSH_CHECK_MS = 1_000
IDLE_CHECK_MS = 1_000
REMOVAL_CHECK_MS = 1_000
HOSTS_LOOK_MS = 60_000
REMOVAL_TURNS_SKIPPED = 60
"""after a failure: a disk that takes no removal would fill the log with words about it"""
MAX_SLEEP_MS = 2**31 - 1
MIN_SLEEP_MS = 50
"""a job whose interval is set to less, even to 0, runs so often: it may have thousands of logs to look at"""


class Background:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._vanished = Vanished(broker)
        self._statistics = keeping.StatisticsKeeper(broker)
        self._tasks: list[asyncio.Task[None]] = []
        self._jobs: list[Callable[[], Awaitable[None]]] = []
        self._removal_turns_to_skip = 0

    def start(self) -> None:
        config = self._broker.config
        self._statistics.start()
        self._every("retention", config.log_retention_check_interval_ms, self.expire_segments)
        self._every(
            "checkpoints",
            min(
                config.log_flush_offset_checkpoint_interval_ms,
                config.log_flush_start_offset_checkpoint_interval_ms,
            ),
            self.checkpoint,
        )
        self._every("flushes by time", FLUSH_CHECK_MS, self.flush_by_time)
        self._every("rolls of idle segments", IDLE_CHECK_MS, self.roll_idle)
        self._every("growth of logs", GROWTH_LOOK_MS, self.look_at_growth)
        self._every("offset expiry", config.offsets_retention_check_interval_ms, self.expire_offsets)
        self._every(
            "producer expiry",
            config.producer_id_expiration_check_interval_ms,
            self.expire_producers,
            is_soon=False,  # as in Kafka: old by its records' times is also who writes old ones just now
        )
        self._every("segment statistics", keeping.LOOK_MS, self._statistics.run)
        self._every("offline logs", reopening.LOOK_MS, self._broker.reopening.run)
        self._every("addresses of hosts", HOSTS_LOOK_MS, self.look_up_hosts)
        transactions = self._broker.transactions
        self._every(
            "ends of transactions",
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            transactions.end_due,
        )
        self._every(
            "expiry of transactional ids",
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            transactions.expire,
        )
        self._every(
            "state of share groups",
            config.share_coordinator_state_topic_prune_interval_ms,
            self._broker.shares.prune,
        )
        self._every("vanished logs", VANISHED_CHECK_MS, self._vanished.run)
        # The delay of a topic, or what a client sets for all, may be far shorter than that of the start.
        removal_ms = min(config.log_segment_delete_delay_ms, REMOVAL_CHECK_MS)
        self._every("removal of deleted files", removal_ms, self.remove_deleted)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def run_all(self) -> None:
        """Every job once, now; one that is at work already ends first."""
        for job in self._jobs:
            await job()

    def _every(
        self, name: str, interval_ms: int, job: Callable[[], Awaitable[None]], *, is_soon: bool = True
    ) -> None:
        """From `log.initial.task.delay.ms` on, or else from the first interval on."""
        at_work = asyncio.Lock()

        async def alone() -> None:
            async with at_work:
                await job()

        self._jobs.append(alone)
        self._tasks.append(
            asyncio.get_running_loop().create_task(
                self._repeat(name, interval_ms, alone, is_soon=is_soon), name=name
            )
        )

    async def _repeat(
        self, name: str, interval_ms: int, job: Callable[[], Awaitable[None]], *, is_soon: bool
    ) -> None:
        interval_ms = max(MIN_SLEEP_MS, min(interval_ms, MAX_SLEEP_MS))
        delay_ms = self._broker.config.log_initial_task_delay_ms if is_soon else interval_ms
        await self._broker.clock.sleep(min(interval_ms, delay_ms))
        told = ""
        while True:
            try:
                await job()
                told = ""
            except OSError as error:  # of the disk, and no bug: once in the same words, until it goes well
                self._broker.metrics_state.internal_errors += 1
                if str(error) != told:
                    told = str(error)
                    logger.error("%s failed, and is tried again: %s", name, told)
            except Exception:
                self._broker.metrics_state.internal_errors += 1
                logger.exception("%s failed; it is tried again", name)
            await self._broker.clock.sleep(interval_ms)

    async def expire_segments(self) -> None:
        """Retention by size, time and log start offset (T127-T132); compact,delete belongs to the cleaner
        (T133), and so does what is still being cleaned (T29).
        """
        partitions = tuple(self._broker.partitions.values())
        now_ms = self._broker.clock.now_ms()
        await self._broker.run_blocking(_look_up_ages, [partition.log for partition in partitions], now_ms)
        for partition in partitions:
            try:
                await self._expire(partition)
            except (OSError, KafkaError) as error:
                logger.error("%s keeps what is past its retention: %s", partition.topic_partition, error)

    async def _expire(self, partition: Partition) -> None:
        while await self._expire_some(partition) >= MOST_AT_ONCE:  # others are served at each await
            continue

    async def _expire_some(self, partition: Partition) -> int:
        """How many segments went."""
        broker, log = self._broker, partition.log
        if partition.is_forgotten or log.offline_reason is not None:
            return 0
        if log.config.is_compacted and log.config.is_deleted:
            return 0
        if broker.cleaner.is_being_cleaned(log.topic_partition):  # its policy has changed
            return 0
        expired = log.expire(broker.clock.now_ms())
        if expired.removed_segments:
            logger.info(
                "%s: %d segments (%d bytes) are past their retention",
                log.topic_partition, expired.removed_segments, expired.removed_bytes,
            )  # fmt: skip
            partition.wake()
            await broker.run_blocking(expired.run)
        return expired.removed_segments

    async def checkpoint(self) -> None:
        await self._broker.run_blocking(self._broker.logs.checkpoint)

    async def flush_by_time(self) -> None:
        """flush.ms, for topics that do not flush every message."""
        passed_ms = self._broker.clock.passed_ms()
        for partition in tuple(self._broker.partitions.values()):
            partition.flush_when_older(passed_ms)

    async def roll_idle(self) -> None:
        """segment.idle.ms: close segments that nobody writes to any more (W12)."""
        now_ms = self._broker.clock.now_ms()
        self._broker.idle_segments.forget_others(set(self._broker.partitions))
        for partition in tuple(self._broker.partitions.values()):
            if not self._broker.idle_segments.look(partition, now_ms):
                continue
            try:
                partition.log.roll(now_ms)
            except KafkaError as error:
                logger.error("%s keeps its idle segment open: %s", partition.topic_partition, error)
            else:
                logger.info("%s: nobody writes: its segment was closed", partition.topic_partition)
                partition.flush()

    async def look_up_hosts(self) -> None:
        """That have limits of their own, and had no address so far."""
        await self._broker.run_blocking(self._broker.headcount.resolve)
        await self._broker.quotas.look_up_again()

    async def look_at_growth(self) -> None:
        self._broker.growth.look(tuple(self._broker.partitions.values()), self._broker.clock.passed_ms())

    async def expire_offsets(self) -> None:
        for _ in self._broker.groups.expire_offsets(self._broker.clock.now_ms()):
            await asyncio.sleep(0)

    async def expire_producers(self) -> None:
        now_ms = self._broker.clock.now_ms()
        for partition in tuple(self._broker.partitions.values()):
            if not partition.log.is_held:  # a thread is reading them
                partition.log.producers.expire(now_ms)

    async def remove_deleted(self) -> None:
        if self._removal_turns_to_skip:
            self._removal_turns_to_skip -= 1
            return
        try:
            await self._broker.run_blocking(self._broker.logs.deleted.remove)
        except OSError:
            self._removal_turns_to_skip = REMOVAL_TURNS_SKIPPED
            raise


def _look_up_ages(logs: Sequence[Log], now_ms: int) -> None:
    """On a thread: what retention by time will ask of closed segments, which may be on disk only."""
    for log in logs:
        if not log.config.is_deleted or log.config.retention_ms < 0 or log.offline_reason is not None:
            continue
        with contextlib.suppress(OSError, KafkaError):  # retention meets it again, and says so
            for segment in log.segments:
                if segment.largest_timestamp >= now_ms - log.config.retention_ms:
                    break
