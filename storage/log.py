"""One partition: a directory of segments, appended at its end, read anywhere, flushed in groups
(`UnifiedLog`).

The event loop is the only writer: a kernel's look at a batch and one `pwritev`; what waits for the disk is
handed out as jobs. Any thread may read `segments` (a tuple that is replaced, never changed) and the offsets.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.batch import LENGTH_PREFIX_BYTES, LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, encode_prefix
from protocol.control import Marker
from protocol.errors import ErrorCode, KafkaError
from protocol.one_look import Seen
from storage import layout, recovery, search
from storage.append import AppendRules, check_from_client, check_trusted, marker_of
from storage.checkpoint import write_leader_epochs
from storage.compaction_reach import write_reach
from storage.file import Buffer, Disk
from storage.jobs import Expired, FlushJob, SwapJob
from storage.key_hashes import LogKeyHashes
from storage.layout import TopicPartition
from storage.removal import Removals
from storage.replay import take_snapshot
from storage.retention import RetentionRules, expired_segments, facts_of
from storage.roll import RollLimits
from storage.segment import NO_ROOM_KNOWN, Segment
from storage.segments import SegmentList, SegmentTuple
from storage.slice import Slice
from storage.small_files import NO_ROOM, sync_file
from storage.types import NO_DESCRIPTOR, AbortedTransaction, Appended, LogLimits, Origin, TimestampOffset

if TYPE_CHECKING:
    from config.topic import TopicConfig
    from storage.cleaned_segment import CleanedSegment
    from storage.producer_state import BatchMetadata

logger = logging.getLogger(__name__)

PREFIX_BYTES = 16  # of a batch: what the log writes anew
REFUSAL_TOLD_AGAIN_SECONDS = 60.0
_new_tuple = tuple.__new__  # of a named one, without its Python


class Log:
    """Owned by: event loop. `segments` and the offsets may be read from any thread."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        directory: Path,
        config: TopicConfig,
        loaded: recovery.LoadedLog,
        disk: Disk,
        removals: Removals,
        limits: LogLimits,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory, self.disk = directory, disk
        self.name = str(topic_partition)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.next_offset
        self.high_watermark = loaded.next_offset
        self.compacted_to = 0
        """what the cleanings have known that swapped segments; their checkpoint moves later"""
        self.recovery_point = loaded.recovery_point
        self.producers = loaded.producers
        self.leader_epochs = loaded.leader_epochs
        self.leader_epoch = max(0, loaded.leader_epochs.latest)
        self.offline_reason: str | None = None
        self.is_closed = False
        self.roll_count = 0
        self._is_held = False
        self._silent_until = 0.0  # by the monotonic clock: what could not be written is not told again before
        self._limits = limits
        self._random = random.Random(self.name)
        self._unsynced: list[Callable[[], None]] = []
        self.health = loaded.health
        self.key_hashes = LogKeyHashes(limits.key_hashes)
        self._list = SegmentList(disk, directory, loaded, removals)
        self.update_config(config)
        if not self._list.active.is_active:
            self._list.active.make_active()
        self._list.active.roll_jitter_ms = self._roll_limits.draw_jitter_ms(self._random)
        self.producers.high_watermark_moved(self.high_watermark)

    def update_config(self, config: TopicConfig) -> None:
        """From the next append on."""
        self.config, self._roll_limits, self._room = config, RollLimits(config), NO_ROOM_KNOWN
        self._rules = AppendRules(config, self.name, self._limits.max_decompressed_bytes)
        self.usual = self._rules.usual
        self._interval_bytes = config.index_interval_bytes
        self.must_flush = config.flush_messages == 1
        if not config.is_compacted:
            self.key_hashes.forget()
        if not self.must_flush and self.offline_reason is None:
            self._advance_high_watermark(self.log_end_offset)

    # Figures

    @property
    def segments(self) -> SegmentTuple:
        """Ascending; the last one is active; never empty."""
        return self._list.all

    @property
    def active_segment(self) -> Segment:
        return self._list.active

    @property
    def size_bytes(self) -> int:
        return self._list.closed_bytes + self._list.active.size_bytes

    @property
    def needs_written_start(self) -> bool:
        """Whether no file's name says where the log starts, or would after a power cut. Any thread."""
        return self.log_start_offset > self._list.settled_base_offset

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed reader stops: the first record of an undecided transaction."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    # Appending

    def append(self, records: Buffer, *, now_ms: int, origin: Origin = Origin.CLIENT) -> Appended:
        """Write one batch at the end of the log. KafkaError (nothing was written) or the offsets it got."""
        if self.offline_reason is not None or self._is_held:
            raise self._refusal()
        marker, section = None, None
        if origin is Origin.CLIENT:
            records, header, section = check_from_client(records, self._rules, now_ms)
            if header.producer_id >= 0:
                duplicate = self.producers.check(header, self.name)
                if duplicate is not None:
                    return self._answer_duplicate(duplicate)
        else:
            header = check_trusted(records, self._rules)
            marker = marker_of(records, header)
            if marker is not None:  # what a coordinator writes besides has no sequence (as in Kafka)
                self.producers.check_marker(header, marker, self.name)
        base_offset, max_timestamp = self.log_end_offset, header.max_timestamp
        last_offset, active = base_offset + header.last_offset_delta, self._list.active
        if active.must_roll(len(records), last_offset, max_timestamp, now_ms, self._roll_limits):
            self._roll(now_ms)
            active = self._list.active
        if self.leader_epoch != self.leader_epochs.latest:
            self.begin_epoch(self.leader_epoch)
        position = active.size_bytes
        self._put(records, active, last_offset, max_timestamp)
        if max_timestamp < 0:  # its age is that of the last write then, as of the file
            active.last_modified_ms = now_ms
        self._room = active.room(self._roll_limits, self._interval_bytes)
        if section is not None:
            self.key_hashes.add(base_offset, header.crc, section, header.record_count)
        if marker is not None:
            self._note_marker(header, marker, base_offset)
        elif header.producer_id >= 0 and self.producers.update(header, base_offset):
            active.remember(base_offset, position)
        if not self.must_flush:
            self._advance_high_watermark(last_offset + 1)
        stamp = max_timestamp if header.attributes & LOG_APPEND_TIME else NO_TIMESTAMP
        return _new_tuple(Appended, (base_offset, last_offset, stamp, self.log_start_offset))

    def append_usual(self, records: Buffer, seen: Seen) -> Appended | None:
        """As `append`, of a batch that is usual by `self.usual`. None, and nothing was done, where that must
        think of more: a producer that is new or does not go on where it was, a segment that may be full.
        """
        _, _, _, _, delta, max_timestamp, producer_id, producer_epoch, base_sequence = seen
        base_offset, active = self.log_end_offset, self._list.active
        last_offset = base_offset + delta
        room_bytes, room_offset, room_timestamp = self._room
        if (
            self.offline_reason is not None
            or active.size_bytes + len(records) > room_bytes
            or last_offset > room_offset
            or not 0 <= max_timestamp <= room_timestamp
        ):
            return None
        producer = None
        if producer_id >= 0:
            producer = self.producers.next_in_line(producer_id, producer_epoch, base_sequence)
            if producer is None:
                return None
        self._put(records, active, last_offset, max_timestamp)
        if producer is not None:
            producer.add(base_sequence, last_offset, delta, max_timestamp)
        if not self.must_flush:
            self._advance_high_watermark(last_offset + 1)
        return _new_tuple(Appended, (base_offset, last_offset, NO_TIMESTAMP, self.log_start_offset))

    def _put(self, records: Buffer, active: Segment, last_offset: int, max_timestamp: int) -> None:
        """Write a batch behind the last one, with what the broker assigns."""
        position, size = active.size_bytes, len(records)
        prefix = encode_prefix(self.log_end_offset, size - LENGTH_PREFIX_BYTES, self.leader_epoch)
        try:
            active.file.write((prefix, memoryview(records)[PREFIX_BYTES:]), position, size)
        except OSError as error:
            raise self._not_written(active, position, error) from error
        active.appended(last_offset, max_timestamp, size, self._interval_bytes)
        self.log_end_offset = last_offset + 1

    def _answer_duplicate(self, batch: BatchMetadata) -> Appended:
        """The batch is in the log already: the offsets it got then."""
        stamp = batch.timestamp if self._rules.stamps_append_time else NO_TIMESTAMP
        return Appended(batch.first_offset, batch.last_offset, stamp, self.log_start_offset)

    def _note_marker(self, header: BatchHeader, marker: Marker, base_offset: int) -> None:
        aborted = self.producers.update_marker(header, marker, base_offset)
        if aborted is not None:
            try:
                self._list.active.txn_index.append([aborted])
            except OSError as error:  # readers would miss it: better to recover it from the marker
                self.take_offline(f"the transaction index cannot be written: {error}")

    def begin_epoch(self, epoch: int) -> None:
        """What is appended from now on is of this leader epoch. KafkaError: it cannot be written down."""
        before = self.leader_epochs.entries
        if self.leader_epochs.assign(epoch, self.log_end_offset):
            try:
                path = write_leader_epochs(self.disk, self.directory, self.leader_epochs.entries)
            except OSError as error:
                self.leader_epochs.restore(before)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error}") from error
            self.sync_later(lambda: sync_file(self.disk, path), self.sync_directory)
        self.leader_epoch = epoch

    def sync_directory(self) -> None:
        self.disk.sync_directory(self.directory)

    def sync_later(self, *jobs: Callable[[], None]) -> None:
        """What the next flush has to make durable besides."""
        self._unsynced += jobs

    def _advance_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers.first_unstable_offset is not None:
                self.producers.high_watermark_moved(offset)

    # Failing

    def _refusal(self) -> KafkaError:
        if self.offline_reason is not None:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline: {self.offline_reason}")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is being moved: try again")

    def take_offline(self, reason: str) -> None:
        """Nothing more of this log is acknowledged; who opens it anew recovers it."""
        if self.offline_reason is None:
            logger.error("%s goes offline: %s", self.name, reason)
            self.offline_reason = reason

    def _not_written(self, active: Segment, position: int, error: OSError) -> KafkaError:
        """Cut off what a failed write left; a full disk is no failure of the log, anything else is."""
        try:
            active.file.truncate(position)
        except OSError as second:
            self.take_offline(f"a failed write could not be cut off: {second}")
        if error.errno not in (*NO_ROOM, *NO_DESCRIPTOR):  # after these the next append may well succeed
            self.take_offline(f"a write failed: {error}")
        else:
            self._tell_refusal(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error}")

    def _tell_refusal(self, error: OSError) -> None:
        """Producers try again many times a second, and may not show their people why."""
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + REFUSAL_TOLD_AGAIN_SECONDS
            logger.error("%s takes no records: %s", self.name, error)

    # Rolling

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin a new one at the log's end; an empty one stays."""
        if self.offline_reason is not None or self._is_held:
            raise self._refusal()
        if self._list.active.base_offset != self.log_end_offset:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        """On an OSError the old active segment stays active; everything here can be done again."""
        base_offset = self.log_end_offset
        try:
            snapshot = take_snapshot(self.disk, self.directory, self.producers, base_offset)
            self._list.roll(base_offset, self.config, self._roll_limits.draw_jitter_ms(self._random), now_ms)
        except OSError as error:
            self._tell_refusal(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} cannot roll: {error}") from error
        self.roll_count += 1
        self._room = NO_ROOM_KNOWN
        self.sync_later(lambda: sync_file(self.disk, snapshot), self.sync_directory)

    # Flushing

    def begin_flush(self) -> FlushJob | None:
        """A job that makes all appended so far durable; None when there is nothing. One at a time."""
        rolled, unsynced, active = self._list.rolled, self._unsynced, self._list.active
        is_durable = self.recovery_point >= self.log_end_offset and not rolled and not unsynced
        if is_durable or self.is_closed or self.offline_reason is not None:
            return None
        self._list.rolled, self._unsynced = [], []
        return FlushJob(rolled, active, unsynced, self.log_end_offset)

    def end_flush(self, job: FlushJob, error: OSError | None) -> None:
        """The job ran: what it covered is safe. A failed one is not repeated: the page cache lies from then
        on.
        """
        for segment in job.rolled:
            segment.file.unpin()
        if error is not None:
            self.take_offline(f"a flush failed: {error}")
        elif self.offline_reason is None and job.end_offset > self.recovery_point:
            self.recovery_point = job.end_offset
            job.end_segment.remember(job.end_offset, job.end_position)
            if self.must_flush:
                self._advance_high_watermark(job.end_offset)

    def flush(self) -> None:
        """Flush now, waiting for the disk: for shutdown and tests. OSError takes the log offline."""
        if (job := self.begin_flush()) is None:
            return
        try:
            job.run()
        except OSError as error:
            self.end_flush(job, error)
            raise
        self.end_flush(job, None)

    # Reading

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, at_least_one: bool = True) -> Slice:
        """Whole batches from the one with `offset` (or the next) on, none at or above `upper_offset`."""
        if self.offline_reason is not None:
            raise self._refusal()
        end = self.log_end_offset
        if offset < self.log_start_offset or offset > end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} is outside of {self.log_start_offset} to {end}",
            )
        return Slice.of(self._list.all, end, offset, max_bytes, upper_offset, at_least_one)

    def scan(self, start: int, end: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch that reaches into [start, end), in order. May wait for the disk."""
        return search.batches(self.segments, start, self.log_end_offset if end is None else end)

    def aborted_transactions(self, start: int, upper_offset: int) -> list[AbortedTransaction]:
        """Those that touch [start, upper); their markers may lie behind it."""
        return search.aborted_transactions(self._list.with_aborted(), start, upper_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at least so new. May wait for the disk."""
        return search.first_at_or_after(self.segments, timestamp_ms, self.log_start_offset)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp. May wait for the disk."""
        return search.with_largest_timestamp(self.segments, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch not above `epoch`, the offset behind its last record); (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset, self.leader_epoch)

    # Removing and replacing

    def delete_records(self, before_offset: int) -> int:
        """Let the log start at `before_offset`; the new start. The segments go with the next `expire`."""
        if self.config.is_compacted and not self.config.is_deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{self.name} is of a topic that is compacted and nothing else"
            )
        if self._is_held:
            raise self._refusal()
        if not 0 <= before_offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{before_offset} is beyond the high watermark {self.high_watermark} of {self.name}",
            )
        self._advance_log_start(before_offset)
        return self.log_start_offset

    def _advance_log_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.key_hashes.forget(offset)
            self.leader_epochs.truncate_from_start(offset)

    def expire(self, now_ms: int) -> Expired:
        """Take expired segments out of the log. The job makes that durable; the files go some time later."""
        count = expired_segments(
            facts_of(self.segments, self.log_end_offset),
            RetentionRules.of(self.config),
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        if not count or self.offline_reason is not None or self._is_held:
            return Expired(0, 0, lambda: None)
        if count == len(self.segments):
            try:
                self.roll(now_ms)
            except KafkaError as error:  # the disk is full: all the more must the others go
                logger.warning("the last segment of %s stays: %s", self.name, error.message)
                count -= 1
        before = self.size_bytes
        try:
            work = self._list.drop_front(count, now_ms + self.config.file_delete_delay_ms)
        except OSError as error:
            self.take_offline(f"expired segments cannot be renamed: {error}")
            return Expired(0, 0, lambda: None)
        self._advance_log_start(self.segments[0].base_offset)
        return Expired(count, before - self.size_bytes, work)

    def replace_segments(
        self, sources: Sequence[Segment], cleaned: Sequence[CleanedSegment], now_ms: int = 0
    ) -> SwapJob:
        """Put finished cleaned segments in the place of `sources`; those that are gone are skipped (T120).

        When all of them are gone, the job removes the cleaned files instead. KafkaError when the log is
        offline: a cleaning that changed nothing must not count as one.
        """
        if self.offline_reason is not None:
            raise self._refusal()
        before = self.segments
        self.key_hashes.forget(sources[-1].next_offset)  # the map of this cleaning knows them
        try:
            return SwapJob(self._list.replace(sources, cleaned, now_ms + self.config.file_delete_delay_ms))
        except OSError as error:
            if self.segments is not before:  # neither the old names nor the new ones: a restart sorts it out
                self.take_offline(f"a swap was left half done: {error}")
            raise

    def keep_compacted_to(self, end_offset: int) -> None:
        """On the cleaner's thread, before the segments of a cleaning that knows all records before
        `end_offset` are put in place: durably, for who asks for the log as it was earlier. OSError.
        """
        if end_offset > self.compacted_to:
            write_reach(self.disk, self.directory, end_offset)
            self.compacted_to = end_offset

    # Moving, and the end

    def hold(self, is_held: bool = True) -> None:
        """Take nothing and change nothing for a moment, but answer readers: the files are being moved."""
        self._is_held = is_held
        self._room = NO_ROOM_KNOWN

    @property
    def is_held(self) -> bool:
        return self._is_held

    def settle(self) -> None:
        """Flush, write the producers' state and whole indexes, so that who opens the files has nothing to
        find out. May take long.
        """
        self.flush()
        self._list.save_indexes()
        end = self.log_end_offset
        sync_file(self.disk, take_snapshot(self.disk, self.directory, self.producers, end))
        self.disk.sync_directory(self.directory)

    def move_to(self, target: Path) -> None:
        """Rename the directory; who holds slices of it may go on reading them."""
        self.disk.rename(self.directory, target)
        self.directory = target
        self._list.moved(target)

    def mark_deleted(self) -> Path:
        """Rename the directory for its removal."""
        self.move_to(self.directory.with_name(layout.deleted_directory_name(self.topic_partition)))
        self.offline_reason = self.offline_reason or "the partition was deleted"
        return self.directory

    def close(self) -> None:
        """Settle, and let go of the files. May take long."""
        if not self.is_closed and self.offline_reason is None:
            self.settle()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are, as a crash would."""
        self.is_closed = True
        self._unsynced = []  # these hold the log: many would be one long collection
        self._list.close()
        self.key_hashes.forget()
