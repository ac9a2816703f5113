"""A partition as the broker sees it: a log, who waits for its high watermark, and its group commit.

Group commit: one flush is in flight per log; the next one covers everything that arrived meanwhile, so that
the cost of an fdatasync is shared by all who wait for it. A flush starts at once when somebody waits
(acks=all, a fetch at the end of the log), else after a short linger. Mirrors Kafka's `Partition` and
`UnifiedLog.flush`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from broker.counters import TopicCounters
from broker.flusher import Flusher
from broker.topic import INTERNAL_TOPICS
from protocol.control import Marker, marker_batch
from protocol.errors import ErrorCode, KafkaError
from storage.jobs import FlushJob
from storage.log import Log
from storage.types import Appended, Origin

if TYPE_CHECKING:
    from uuid import UUID

    from config.topic import TopicConfig
    from protocol.one_look import Seen
    from storage.layout import TopicPartition

logger = logging.getLogger(__name__)

NOT_DIRTY = -1


class HighWatermarkWaiter(Protocol):
    """Somebody in `Partition.high_watermark_waiters`."""

    def partition_moved(self, partition: Partition) -> None:
        """The high watermark (or last stable offset) moved, or the partition went offline or away."""


class Flushed(asyncio.Future[None]):
    """The end of one flush, shared by all who wait for it: a waiter that is cancelled must not cancel the
    others.
    """

    def cancel(self, msg: object = None) -> bool:
        return False


class Partition:
    """One log being served. Owned by: event loop."""

    __slots__ = (
        "_current",
        "_current_end",
        "_dirty_since_ms",
        "_flusher",
        "_next",
        "_roll_count",
        "counters",
        "high_watermark_waiters",
        "is_forgotten",
        "is_internal",
        "log",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, log: Log, flusher: Flusher, counters: TopicCounters) -> None:
        self.log = log
        self.counters = counters
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id: UUID = log.topic_id
        self.is_internal = log.topic_partition.topic in INTERNAL_TOPICS
        self.is_forgotten = False
        self.high_watermark_waiters: set[HighWatermarkWaiter] = set()
        self._flusher = flusher
        self._roll_count = log.roll_count
        self._current: Flushed | None = None
        self._current_end = 0
        self._dirty_since_ms = NOT_DIRTY
        self._next: Flushed | None = None

    def append(
        self,
        records: bytes | memoryview,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        seen: Seen | None = None,
    ) -> Appended:
        """`Log.append`, or `Log.append_usual` of what was `seen`; wake who waits for the high watermark, and
        see to it that a flush follows when due.
        """
        log = self.log
        before = log.high_watermark
        try:
            appended = None if seen is None else log.append_usual(records, seen)
            if appended is None:
                appended = log.append(records, now_ms=now_ms, origin=origin)
        except KafkaError:
            if log.offline_reason is not None:
                self.wake()  # nothing will come that they wait for
            raise
        if self.high_watermark_waiters and log.high_watermark != before:
            self.wake()
        if log.must_flush:
            if self._current is None:
                if self.high_watermark_waiters:
                    self.flush()
                else:
                    self._flusher.linger(self)
        elif (
            log.log_end_offset - log.recovery_point >= log.config.flush_messages
            or log.roll_count != self._roll_count
        ):
            self._roll_count = log.roll_count
            self.flush()
        return appended

    def end_transaction(
        self, marker: Marker, producer_id: int, producer_epoch: int, now_ms: int
    ) -> asyncio.Future[None] | None:
        """Append a marker, as a coordinator does. The flush that makes it durable, unless that is over;
        KafkaError: nothing was written, of an epoch that is older than the log's.
        """
        batch = marker_batch(marker, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms)
        return self.when_flushed(self.append(batch, now_ms, Origin.COORDINATOR).last_offset + 1)

    def end_open_transaction(
        self, producer_id: int, now_ms: int, *, is_commit: bool
    ) -> asyncio.Future[None] | None:
        """As `end_transaction`, of a producer that has one open, with the epochs that the log knows."""
        epoch = self.log.producers.producers[producer_id].epoch
        return self.end_transaction_of(producer_id, epoch, now_ms, is_commit=is_commit)

    def end_transaction_of(
        self, producer_id: int, producer_epoch: int, now_ms: int, *, is_commit: bool
    ) -> asyncio.Future[None] | None:
        """As `end_transaction`, by the coordinator that the log knows: here there is only one, but a log of
        Kafka's may have seen its epochs.
        """
        state = self.log.producers.producers.get(producer_id)
        coordinator_epoch = 0 if state is None else max(0, state.coordinator_epoch)
        marker = Marker(is_commit, coordinator_epoch)
        return self.end_transaction(marker, producer_id, producer_epoch, now_ms)

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is in flight."""
        return self._current is not None

    def update_config(self, config: TopicConfig) -> None:
        """New settings; what they promise of records that are there already is made true at once."""
        log = self.log
        before = log.high_watermark
        log.update_config(config)
        if log.high_watermark != before:
            self.wake()
        if log.must_flush and log.log_end_offset > log.recovery_point:
            self.flush()

    def when_flushed(self, offset_exclusive: int) -> asyncio.Future[None] | None:
        """None when every record below `offset_exclusive` is as safe as the topic promises, else a future
        of that.

        The future fails with KAFKA_STORAGE_ERROR when the flush did.
        """
        log = self.log
        if offset_exclusive <= (log.recovery_point if log.must_flush else log.high_watermark):
            return None
        if self._current is not None and offset_exclusive <= self._current_end:
            return self._current
        if self._next is None:
            self._next = Flushed()
        waited = self._next
        if self._current is None:
            self.flush()
        return waited

    async def all_flushed(self) -> None:
        """Return when all that was appended is on the disk; KafkaError when it cannot be."""
        while self._current is not None or self.log.log_end_offset > self.log.recovery_point:
            if self._current is None:
                self.flush()
            if self._current is None:  # it failed
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.log.offline_reason or "")
            await self._current

    def flush(self) -> None:
        """Start a flush of everything appended so far, unless one is in flight: then another follows it."""
        if self._current is not None:
            if self._next is None:
                self._next = Flushed()
            return
        waited, self._next = self._next, None
        if self.log.offline_reason is not None:
            self._fail(waited)
            return
        job = self.log.begin_flush()
        if job is None:
            if waited is not None:
                waited.set_result(None)
            return
        self._current = waited if waited is not None else Flushed()
        self._current_end = self.log.log_end_offset
        self._flusher.submit(job, self._flush_ended)

    def _flush_ended(self, job: FlushJob, error: OSError | None) -> None:
        log = self.log
        flushed, self._current = self._current, None
        before = log.high_watermark
        log.end_flush(job, error)
        assert flushed is not None
        if log.offline_reason is not None:
            if error is not None and not self.is_forgotten:  # files that go are not there to be flushed
                logger.error("%s is offline: %s", self.topic_partition, log.offline_reason)
            self._fail(flushed)
            waited, self._next = self._next, None
            self._fail(waited)
            self.wake()
            return
        flushed.set_result(None)
        if log.high_watermark != before:
            self.wake()
        if self._next is not None:
            self.flush()
        elif log.must_flush and log.log_end_offset > log.high_watermark:
            if self.high_watermark_waiters:
                self.flush()
            else:
                self._flusher.linger(self)

    def _fail(self, waited: Flushed | None) -> None:
        if waited is not None:
            waited.set_exception(
                KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.log.offline_reason or "the log is offline")
            )
            waited.exception()  # whoever waits sees it; that nobody waits is no news either

    def wake(self) -> None:
        """Tell everybody who waits for this partition that it moved."""
        if self.high_watermark_waiters:
            for waiter in tuple(self.high_watermark_waiters):
                waiter.partition_moved(self)

    def flush_for_reader(self) -> None:
        """A fetch begins to wait at the end of the log: what is written but not flushed shall not linger."""
        log = self.log
        if self._current is None and log.must_flush and log.log_end_offset > log.high_watermark:
            self.flush()

    def flush_when_older(self, passed_ms: int) -> None:
        """flush.ms of a topic that does not flush every message: flush when the oldest unflushed append is
        that old, by a clock that nobody sets.
        """
        log = self.log
        if log.log_end_offset <= log.recovery_point or log.offline_reason is not None:
            self._dirty_since_ms = NOT_DIRTY
        elif self._dirty_since_ms == NOT_DIRTY:
            self._dirty_since_ms = passed_ms
        elif passed_ms - self._dirty_since_ms >= log.config.flush_ms and self._current is None:
            self._dirty_since_ms = NOT_DIRTY
            self.flush()
