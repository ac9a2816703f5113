"""Which log is cleaned next, by whom, and how far each one is: the cleaner's memory (`LogCleanerManager`).

The threads of `pool.py`, and whoever asks for a cleaning by hand, come here for work. A log has one
cleaning at a time; others may abort it. Logs are only read here; what changes one is run by its
owner.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from cleaner.checkpoints import CleanerCheckpoints, Directories
from cleaner.cleaner import Cleaner, CleaningAborted, RunOnOwner, check_policy
from cleaner.last_look import LastLook, figures_of
from cleaner.offset_map import OffsetMap
from cleaner.quarantine import Quarantine, Uncleanable
from cleaner.results import CleanResult
from cleaner.selection import Assessment, Reason, assess, dirtiest
from cleaner.states import IDLE, CleaningState, Move, Phase, after
from cleaner.statistics import (
    CleanerStatistics,
    PartitionCleanStats,
    PartitionTotals,
    Remembered,
    partition_clean_stats,
)
from cleaner.throttle import Throttle
from cleaner.tombstones import TombstoneCounts
from cleaner.work import BY_HAND, Work, cause_of, rules_of, view_of, work_on
from protocol.errors import KafkaError
from storage.layout import TopicPartition
from storage.retention import MOST_AT_ONCE

if TYPE_CHECKING:
    from config.broker import BrokerConfig
    from config.topic import TopicConfig
    from storage.log import Log

logger = logging.getLogger(__name__)

RETENTION_INTERVAL_MS = 1000
OTHERS_WORK = (Reason.IN_PROGRESS, Reason.DRY_RUN, Reason.PAUSED, Reason.OFFLINE, Reason.NO_VERSION)
"""reasons for which a log is not cleaned by hand either"""
NOT_SEEN = (*OTHERS_WORK, Reason.UNCLEANABLE)
"""reasons for which a log does not count in how dirty logs are (as in Kafka)"""


class CleaningRefused(Exception):
    """A cleaning asked for by hand cannot be done now; the message says why, and names no partition."""


class CleanerManager:
    """Owned by: any thread, under lock."""

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        checkpoints: Directories,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        run_on_owner: RunOnOwner,
    ) -> None:
        self._logs = logs
        self.checkpoints = CleanerCheckpoints(checkpoints)
        self.config = config
        self.now_ms = now_ms
        self.run_on_owner = run_on_owner
        self.throttle = Throttle(config.log_cleaner_io_max_bytes_per_second)
        self.statistics = CleanerStatistics()
        self._changed = threading.Condition()
        self._states: dict[TopicPartition, CleaningState] = {}
        self._dry_runs: set[TopicPartition] = set()
        """of those whose cleaning is in progress, where it only counts"""
        self._quarantine = Quarantine()
        self._totals: dict[TopicPartition, PartitionTotals] = {}
        self._tombstones = TombstoneCounts()
        self._last_look = LastLook()
        self._last_retention_ms = -RETENTION_INTERVAL_MS
        self.is_held = False  # the threads look after retention only
        self.on_cleaned: Callable[[CleanResult], None] = lambda result: None
        """told of every cleaning that was finished, on the thread that did it, before the checkpoint moves:
        nobody looks for what it left for later behind that
        """
        self.on_set_aside: Callable[[TopicPartition, Uncleanable], None] = lambda topic_partition, why: None
        """told of every cleaning that failed, likewise"""

    # States

    def state_of(self, topic_partition: TopicPartition) -> CleaningState:
        return self._states.get(topic_partition, IDLE)

    @property
    def is_cleaning(self) -> bool:
        """Whether a cleaning runs at this moment; any thread may ask."""
        return any(state.phase is Phase.IN_PROGRESS for state in tuple(self._states.values()))

    def is_being_cleaned(self, topic_partition: TopicPartition) -> bool:
        """Whether its segments must stay: what they become begins where the first did (T29). Any thread."""
        # Had the first gone meanwhile, no file would say any more where the log begins: a crash undid that.
        return self.state_of(topic_partition).phase in (Phase.IN_PROGRESS, Phase.ABORTED)

    def _move(self, topic_partition: TopicPartition, move: Move) -> None:
        state = after(self.state_of(topic_partition), move)
        if state == IDLE:
            self._states.pop(topic_partition, None)
        else:
            self._states[topic_partition] = state
        if move is Move.DONE:
            self._dry_runs.discard(topic_partition)
        self._changed.notify_all()

    def resume(self, topic_partition: TopicPartition) -> None:
        """Take one pause back; `IllegalMove` when there is none."""
        with self._changed:
            self._move(topic_partition, Move.RESUME)

    def abort_and_pause(self, topic_partition: TopicPartition) -> None:
        """Begin no cleaning of it until `resume` (T123), and return when none runs any more. Waits: not for
        the logs' owner to call.

        A partition that is no longer served was deleted: all that is known of it goes, its checkpoint too
        (T122).
        """
        with self._changed:
            self._move(topic_partition, Move.ABORT)
            self._changed.wait_for(lambda: not self.is_being_cleaned(topic_partition))
        if all(log.topic_partition != topic_partition for log in self._logs()):
            self.forget(topic_partition)

    def wait_until_cleaned(self, topic_partition: TopicPartition) -> None:
        """Return when no cleaning of it goes on, a dry run aside. Waits: for a thread that may."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self.is_being_cleaned(topic_partition) or topic_partition in self._dry_runs
            )

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition was deleted, and no cleaning of it runs."""
        with self._changed:
            self._states.pop(topic_partition, None)
            self._quarantine.release(topic_partition)
            self._totals.pop(topic_partition, None)
        self.checkpoints.forget([topic_partition])

    def check(self, topic_partition: TopicPartition, log: Log | None = None) -> None:
        """Called by a running cleaning at each chunk: `CleaningAborted` when somebody wants it to stop
        (T42). One that changes its `log` also stops when that is compacted no more.
        """
        if self.state_of(topic_partition).phase is Phase.ABORTED:
            raise CleaningAborted(str(topic_partition))
        if log is not None:
            check_policy(log)

    def remember(self, topic_partition: TopicPartition, run: Remembered) -> None:
        """What the last cleaning before the start left behind."""
        with self._changed:
            self._totals.setdefault(topic_partition, PartitionTotals()).remember(run)

    # Choosing

    def assess(self, log: Log, config: TopicConfig | None = None, rolled_at: int | None = None) -> Assessment:
        """Weigh one log now: what would be cleaned, or why nothing is. `config` stands in for its own."""
        now_ms = self.now_ms()
        checkpoint = self.checkpoints.offset_of(log.directory.parent, log.topic_partition)
        rules = rules_of(config or log.config)
        expire_ms = self._tombstones_expire_ms(log) if rules.cleans_expired_tombstones else None
        view, held = view_of(log, rolled_at), self._held(log, now_ms)
        found = assess(view, rules, checkpoint, now_ms, held, expire_ms)
        if expire_ms is None and found.cleanable_bytes and rules.cleans_expired_tombstones:
            kept, _ = self.tombstones_kept(log.topic_partition)
            if kept:  # their time was over, and still they had to stay: not behind what may be cleaned now
                expire_ms = self._tombstones.newest_horizon_ms(log)
                found = assess(view, rules, checkpoint, now_ms, held, expire_ms)
        return found

    def _tombstones_expire_ms(self, log: Log) -> int | None:
        """When all tombstones may go that cleanings have kept. The horizons are in the batches: where the
        last cleaning may not have told of all, the statistics beside the segments do.
        """
        totals = self._totals.get(log.topic_partition) or PartitionTotals()
        found = totals.newest_horizon_ms
        if not totals.is_certain:
            found = max(found, self._tombstones.newest_horizon_ms(log) or found)
        return found if found >= 0 else None

    def _held(self, log: Log, now_ms: int) -> Reason | None:
        if log.offline_reason is not None:
            return Reason.OFFLINE
        phase = self.state_of(log.topic_partition).phase
        if phase in (Phase.IN_PROGRESS, Phase.ABORTED):
            return Reason.DRY_RUN if log.topic_partition in self._dry_runs else Reason.IN_PROGRESS
        if phase is Phase.PAUSED:
            return Reason.PAUSED
        return Reason.UNCLEANABLE if self._quarantine.holds(log.topic_partition, now_ms) else None

    def grab(self) -> Work | None:
        """The dirtiest log that is worth a cleaning, now ours; None when there is none (T23, T24)."""
        now_ms = self.now_ms()
        self._prune({log.topic_partition for log in self._logs()})
        with self._changed:
            # Here: who deletes one takes it away, and then waits for this lock to abort its cleaning.
            logs = [log for log in self._logs() if log.config.is_compacted]
            self.statistics.last_run_ms = now_ms
            found = self._last_look.over(
                logs,
                now_ms,
                lambda log: (figures_of(log), self.checkpoints.changes, self._held(log, now_ms)),
                lambda log: self._assess_safely(log, now_ms),
            )
            seen = [one for _, one in found if one.total_bytes and one.reason not in NOT_SEEN]
            self.statistics.max_dirty_percent = 100.0 * max((one.dirty_ratio for one in seen), default=0.0)
            delays = (one.compaction_delay_ms for _, one in found)
            self.statistics.max_compaction_delay_secs = max(delays, default=0) / 1000
            chosen = dirtiest([one for _, one in found])
            if chosen is None:
                return None
            log, assessment = found[chosen]
            self._move(log.topic_partition, Move.BEGIN)
        return work_on(log, assessment, cause_of(assessment))

    def _assess_safely(self, log: Log, now_ms: int) -> Assessment | None:
        """As `assess`; a log whose figures cannot be had is set aside alone (T25)."""
        try:
            assessment = self.assess(log)
            self._mend_checkpoint(log, assessment)
        except Exception as error:
            if not self._quarantine.holds(log.topic_partition, now_ms):
                self._set_aside(log, error, now_ms)
            return None
        return assessment

    def _mend_checkpoint(self, log: Log, assessment: Assessment) -> None:
        """A checkpoint that cannot be right is replaced even if nothing is cleaned now (T3, T4)."""
        reset = assessment.checkpoint_reset
        if reset is None or assessment.reason is Reason.IN_PROGRESS:
            return
        if not log.config.is_deleted:
            logger.warning(
                "%s: %s; it counts as dirty from %d on", log.name, reset.value, assessment.first_dirty_offset
            )
        self.checkpoints.keep_start(log)
        self.checkpoints.put(log.directory.parent, log.topic_partition, assessment.first_dirty_offset)

    def _prune(self, served: set[TopicPartition]) -> None:
        """Forget partitions that are no longer served."""
        for gone in (self._states.keys() | self.checkpoints.known()) - served:
            if not self.is_being_cleaned(gone):
                self.forget(gone)

    # Cleaning

    def clean_now(
        self,
        topic_partition: TopicPartition,
        *,
        is_dry: bool = False,
        config: TopicConfig | None = None,
        rolled_at: int | None = None,
        account: Callable[[int], None] = lambda size: None,
    ) -> CleanResult:
        """Clean everything cleanable of one log, whatever the ratio; or only count, in a dry run, for which
        `config` may stand in for the topic's own, and the active segment count as closed at `rolled_at`.
        `account` is told of all bytes read and written.

        For a thread that may wait, also for a cleaning that goes on, if it is not dry; uses a map of its own.
        A partition that was set aside is tried. CleaningRefused, or the error that ended the cleaning.
        """
        assert is_dry or (config is None and rolled_at is None), "only a dry run may go by what is not"
        with self._changed:  # as in `grab`
            if not is_dry:
                self.wait_until_cleaned(topic_partition)
            log = next((one for one in self._logs() if one.topic_partition == topic_partition), None)
            if log is None:
                raise CleaningRefused("it is no partition of this broker")
            settings = config or log.config
            if not settings.is_compacted:
                policy = ",".join(sorted(settings.cleanup_policy)) or "none"
                raise CleaningRefused(f"its cleanup.policy is {policy}")
            if not is_dry:
                self._quarantine.release(topic_partition)
            assessment = self.assess(log, config, rolled_at)
            if assessment.reason in OTHERS_WORK:
                raise CleaningRefused(assessment.reason.value)
            self._move(topic_partition, Move.BEGIN)
            if is_dry:
                self._dry_runs.add(topic_partition)

        def accounted(size: int) -> None:
            account(size)
            self.throttle.take(size, lambda: self.check(topic_partition, None if is_dry else log))

        try:
            cleaner = self.make_cleaner(accounted)
        except ValueError as error:
            with self._changed:
                self._move(topic_partition, Move.DONE)
            raise CleaningRefused(str(error)) from error
        work = work_on(log, assessment, BY_HAND)
        result = self.clean(cleaner, work, is_dry=is_dry, must_succeed=True, config=config)
        assert result is not None
        return result

    def check_memory(self) -> None:
        """`BufferTooSmall` when a thread's share of the dedupe buffer does not hold a single key (T30)."""
        config = self.config
        share = config.log_cleaner_dedupe_buffer_size // max(1, config.log_cleaner_threads)
        OffsetMap(share, config.log_cleaner_io_buffer_load_factor)

    @property
    def problem(self) -> str | None:
        """Why no cleaning can begin with these settings; None when nothing keeps it."""
        try:
            read_bytes(self.config)
        except ValueError as error:
            return str(error)
        return None

    def make_cleaner(self, account: Callable[[int], None]) -> Cleaner:
        """A cleaner with one thread's share of the dedupe buffer (T31), and a read buffer of its own.
        ValueError when either is too little.
        """
        config = self.config
        threads = max(1, config.log_cleaner_threads)
        return Cleaner(
            map_bytes=config.log_cleaner_dedupe_buffer_size // threads,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            run_on_owner=self.run_on_owner,
            account=account,
            read_bytes=read_bytes(config),
        )

    def clean(
        self,
        cleaner: Cleaner,
        work: Work,
        *,
        is_dry: bool = False,
        must_succeed: bool = False,
        config: TopicConfig | None = None,
    ) -> CleanResult | None:
        """Do what was grabbed; None when it was not finished. The checkpoint moves after the swap (T126)."""
        log, topic_partition = work.log, work.log.topic_partition
        result: CleanResult | None = None
        try:
            if not is_dry:
                self.checkpoints.keep_start(log)
            result = cleaner.clean(log, work.range, self.now_ms(), is_dry=is_dry, config=config)
            result.cause = work.cause
        except CleaningAborted:
            logger.info("%s: its cleaning was aborted", log.name)
            self.statistics.aborted_runs += 1
            if must_succeed:
                raise
            return None
        except Exception as error:
            if not is_dry and log.offline_reason is None and log in self._logs():
                self._set_aside(log, error, self.now_ms())
            if must_succeed:
                raise
            return None
        else:
            if not is_dry:
                self._note(log, result)
            return result
        finally:
            with self._changed:
                if result is None and not is_dry and topic_partition in self._totals:
                    self._totals[topic_partition].is_certain = False  # some groups may have been swapped
                self._move(topic_partition, Move.DONE)

    def _note(self, log: Log, result: CleanResult) -> None:
        self.on_cleaned(result)
        self.checkpoints.put(log.directory.parent, log.topic_partition, result.end_offset)
        with self._changed:
            self._quarantine.release(log.topic_partition)
            self._totals.setdefault(log.topic_partition, PartitionTotals()).add(result, self.now_ms())
            self.statistics.add(result)
        logger.info(
            "%s: cleaned up to %d: %d of %d records, %d of %d bytes stay, %d segments became %d, %.2f s",
            log.name, result.end_offset, result.records_kept, result.records_read, result.bytes_written,
            result.bytes_read, result.segments_read, result.segments_written, result.seconds,
        )  # fmt: skip

    def _set_aside(self, log: Log, error: Exception, now_ms: int) -> None:
        with self._changed:
            added = self._quarantine.add(log.topic_partition, error, now_ms)
            self.statistics.failed_runs += 1
        logger.warning(
            "%s cannot be cleaned (%s); tried again in %d s",
            log.name, added.error, (added.retry_ms - now_ms) // 1000, exc_info=error,
        )  # fmt: skip
        self.on_set_aside(log.topic_partition, added)

    # Retention of compact,delete

    def expire(self, interval_ms: int = RETENTION_INTERVAL_MS) -> int:
        """Retention of the topics that are both compacted and deleted (T133), the uncleanable ones too
        (T135).

        Not again before `interval_ms` are over; how many segments went.
        """
        with self._changed:
            now_ms = self.now_ms()
            since_ms = now_ms - self._last_retention_ms
            if 0 <= since_ms < interval_ms:  # below: the clock went back
                return 0
            self._last_retention_ms = now_ms
        removed = 0
        for log in self._logs():
            is_ours = log.config.is_compacted and log.config.is_deleted and log.offline_reason is None
            if is_ours and self.state_of(log.topic_partition).phase is Phase.IDLE:
                while (some := self._expire(log, now_ms)) >= MOST_AT_ONCE:
                    removed += some
                removed += some
        return removed

    def _expire(self, log: Log, now_ms: int) -> int:
        key, is_held = log.topic_partition, self.is_being_cleaned  # another thread may have begun just now
        try:
            expired: Any = self.run_on_owner(lambda: None if is_held(key) else log.expire(now_ms))
            if expired is None or not expired.removed_segments:
                return 0
            expired.run()
        except (OSError, KafkaError) as error:
            logger.warning("%s: expired segments could not be removed: %s", log.name, error)
            return 0
        logger.info("%s: %d segments are past their retention", log.name, expired.removed_segments)
        return int(expired.removed_segments)

    # Figures

    def uncleanable(self, topic_partition: TopicPartition) -> Uncleanable | None:
        """Why it is set aside."""
        return self._quarantine.get(topic_partition)

    def empty_values(self, log: Log) -> int:
        """Records of closed segments whose value is empty, not null. Reads files: not on the event loop."""
        return self._tombstones.of(log, self.now_ms()).empty_values

    def tombstones_kept(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """How many the last cleaning kept, and when all of them may go: -1 where none waits for a time."""
        totals = self._totals.get(topic_partition) or PartitionTotals()
        return totals.tombstones_kept, totals.newest_horizon_ms

    def partition_stats(self) -> dict[TopicPartition, PartitionCleanStats]:
        """Every compacted partition now. May read the head of a new segment: not on the event loop."""
        now_ms = self.now_ms()
        found: dict[TopicPartition, PartitionCleanStats] = {}
        damaged: dict[str, int] = {}
        damaged_bytes: dict[str, int] = {}
        for log in self._logs():
            topic_partition = log.topic_partition
            if not log.config.is_compacted or log.offline_reason is not None:
                continue
            try:
                assessment = self.assess(log)
            except Exception as error:
                logger.warning("%s: no figures: %s", log.name, error)
                continue
            held = self._quarantine.get(topic_partition)
            found[topic_partition] = partition_clean_stats(
                assessment,
                self._totals.get(topic_partition) or PartitionTotals(),
                state=self.state_of(topic_partition).phase.value,
                held=held,
                now_ms=now_ms,
                counted=self._tombstones.of(log, now_ms),
            )
            path = str(log.directory.parent)
            damaged.setdefault(path, 0)
            damaged_bytes.setdefault(path, 0)
            if held and held.is_damaged:
                damaged[path] += 1
                damaged_bytes[path] += assessment.cleanable_bytes
        self.statistics.uncleanable_partitions = damaged
        self.statistics.uncleanable_bytes = damaged_bytes
        return found


LARGEST_READ_BYTES = 4 << 20
READ_FACTOR = 16


def read_bytes(config: BrokerConfig) -> int:
    """How much a thread reads at once: half of log.cleaner.io.buffer.size (the other half is to write from),
    times sixteen, whatever the number of threads.

    Kafka's default, half a MiB for all, is made for a loop over records. Kernels want a few MiB, so that
    what Python does for each chunk is not felt, and two threads seldom meet in it; what a thread needs beside
    the map stays below 64 MiB. A share of nothing means that nothing may be cleaned (T28).
    """
    half = config.log_cleaner_io_buffer_size // 2
    if half < max(1, config.log_cleaner_threads):
        raise ValueError("log.cleaner.io.buffer.size leaves no byte for each log.cleaner.threads")
    return min(LARGEST_READ_BYTES, half * READ_FACTOR)
