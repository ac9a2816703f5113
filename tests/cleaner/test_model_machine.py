"""Goal: whatever is written, cleaned, waited for, broken off or broken, in whatever order: nothing
acknowledged is lost, the last value of each key stays, offsets and order never change, tombstones outlive
their delete horizon, who reads committed records from anywhere gets just those, look-ups by time find the
first, and what a start makes of the files satisfies every invariant (issue: it survives).

Method: a hypothesis state machine over one log and its cleaner manager on a disk that ends the process,
fails, or loses the power at its nth call; a ledger of all that was written says what may be missing. Short
in `make test`, more than 10 000 steps in `make test-slow`.
"""

from __future__ import annotations

import dataclasses
import errno
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cleaner.manager import CleanerManager, CleaningRefused
from cleaner.offset_map import ENTRY_BYTES
from config.broker import BrokerConfig
from protocol.control import Marker, marker_batch
from protocol.errors import ErrorCode, KafkaError
from protocol.records import encode_batch
from storage import statistics
from storage.checkpoint import OffsetCheckpoint
from storage.types import LogLimits, Origin
from tests.cleaner.survival import Crash, FragileDisk, Ledger, Written, assert_sound, read_log
from tests.storage.builders import HOUR_MS, LogBuilder

DAY_MS = 24 * HOUR_MS
RETENTION_MS = 72 * HOUR_MS
FORGOTTEN_AFTER_MS = LogLimits().producer_expiration_ms
TRANSACTIONAL = (8, 9)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"", b"a key of more than sixteen bytes"])
VALUES = st.none() | st.sampled_from([b"", b"1", b"2", b"v" * 150])
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=8)
CODECS = st.integers(0, 4)
STEPS_AT_LEAST = 10_000
PACKED_MORE_BYTES = 100
"""by so much a packed batch may be larger than a plain one"""
TRANSIT = (".cleaned", ".swap")


class Count:
    """Over all runs of the machine. Owned by: the test."""

    steps = 0
    crashes = 0
    power_cuts = 0
    errors = 0
    cleanings = 0


class CleanedLog(RuleBasedStateMachine):
    """One compacted log, as the broker uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.ledger = Ledger()
        self.promised = 0
        self.loses_power = False
        self.refusal: ErrorCode | None = None  # that the batch on its way may meet

    # What a broker is made of

    @initialize(
        policy=st.sampled_from(["compact", "compact,delete"]),
        segment_bytes=st.sampled_from([900, 4000, 1 << 20]),
        slots=st.sampled_from([3, 5, 1000]),
        read_bytes=st.sampled_from([1, 40, 4096]),
        flush_messages=st.sampled_from([1, 1, 1000]),
        compression=st.sampled_from(["producer", "producer", "zstd", "uncompressed"]),
        timestamps=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    )
    def begin(
        self,
        policy: str,
        segment_bytes: int,
        slots: int,
        read_bytes: int,
        flush_messages: int,
        compression: str,
        timestamps: str,
    ) -> None:
        self.data = self.root / "data"
        self.data.mkdir()
        self.disk = FragileDisk(self.root / "attic")
        self.policy = policy
        self.settings = BrokerConfig(
            log_cleaner_dedupe_buffer_size=slots * ENTRY_BYTES,
            log_cleaner_io_buffer_load_factor=0.9,
            log_cleaner_io_buffer_size=2 * read_bytes,
        )
        self.builder = LogBuilder(
            self.data / "orders-2",
            self.disk,
            cleanup_policy=policy,
            segment_bytes=segment_bytes,
            index_interval_bytes=200,
            retention_ms=RETENTION_MS,
            flush_messages=flush_messages,
            file_delete_delay_ms=0,
            compression_type=compression,
            message_timestamp_type=timestamps,
        )
        self.manager = self.new_manager()
        self.flush()
        self.remember_offsets()

    def new_disk(self) -> FragileDisk:
        """Of the next process: what the last one did not sync is still not synced."""
        self.disk.bury()
        return FragileDisk(self.root / "attic", self.disk)

    def new_manager(self) -> CleanerManager:
        checkpoint = OffsetCheckpoint(self.data / "cleaner-offset-checkpoint", self.disk)

        class Directory:
            path = self.data
            cleaner_checkpoint = checkpoint

        class Directories:
            directories = (Directory(),)
            checkpoint = staticmethod(self.write_checkpoints)

        return CleanerManager(
            lambda: [self.builder.log], Directories(), self.settings, lambda: self.now_ms, lambda run: run()
        )

    @property
    def log(self) -> Any:
        return self.builder.log

    @property
    def now_ms(self) -> int:
        return self.builder.now_ms

    @property
    def is_stamped(self) -> bool:
        """Whether records have the time of their append."""
        return self.builder.config.message_timestamp_type == "LogAppendTime"

    # Faults

    def attempt(self, action: Callable[[], None]) -> None:
        """Do it; the process may end in the midst of it, or the log go offline, which a restart mends."""
        Count.steps += 1
        try:
            action()
        except Crash:
            self.restart_after_crash()
        except KafkaError as error:
            assert error.code in (ErrorCode.KAFKA_STORAGE_ERROR, self.refusal), error
            Count.errors += error.code == ErrorCode.KAFKA_STORAGE_ERROR
        self.refusal = None
        if self.log.offline_reason is not None:
            self.restart_after_crash()

    def restart_after_crash(self, again: int | None = None) -> None:
        Count.crashes += 1
        self.builder.log.abandon()
        promised = self.ledger.end
        if self.loses_power:
            Count.power_cuts += 1
            self.disk.power_cut(self.data)
            promised = self.promised
        self.loses_power = False
        self.disk = self.new_disk()
        if again is not None:
            self.disk.crash_at = again
            try:
                self.reopen()
            except Crash:
                self.disk = self.new_disk()
                self.reopen()
            self.disk.crash_at = None
        else:
            self.reopen()
        self.ledger.survived(self.log.log_end_offset, promised)
        assert self.builder.config.flush_messages > 1 or self.log.recovery_point == self.log.log_end_offset
        self.promised = max(self.promised, self.log.recovery_point)
        self.check_all()

    def reopen(self) -> None:
        self.builder.open(disk=self.disk)
        self.manager = self.new_manager()

    def check_all(self) -> None:
        assert not [name for name in self.builder.files() if name.endswith(TRANSIT)]
        assert_sound(self.log)
        self.check()

    def check(self) -> None:
        self.ledger.check(self.log, self.builder.config.delete_retention_ms, self.now_ms)

    @rule(calls=st.integers(0, 60), kind=st.sampled_from(["kill", "power", "ENOSPC", "EIO"]))
    def something_will_break(self, calls: int, kind: str) -> None:
        Count.steps += 1
        number = len(self.disk.calls) + calls
        if kind in ("kill", "power"):
            self.disk.crash_at = number
            self.loses_power = kind == "power"
        else:
            self.disk.error_at = {number: getattr(errno, kind)}

    @rule(loses_power=st.booleans(), again=st.none() | st.integers(0, 30))
    def crash(self, loses_power: bool, again: int | None) -> None:
        Count.steps += 1
        self.loses_power = loses_power
        self.restart_after_crash(again)

    @rule(is_checkpointed=st.booleans(), is_backed_out=st.booleans())
    def stop_and_start(self, is_checkpointed: bool, is_backed_out: bool) -> None:
        """`is_checkpointed`: the recovery point is that of the stop, as it should be; else the start looks
        through the last segment. `is_backed_out`: where the log cannot be opened, the broker does not start,
        and the next one finds the mark of the clean stop again; else the log is offline, and the next stop
        is not called clean.
        """

        def stop() -> None:
            try:
                self.log.close()
            except OSError:
                return  # it went offline
            self.promised = self.ledger.end
            if is_checkpointed:
                self.write_checkpoints()
            try:
                self.builder.open(is_clean=True, disk=self.disk)
            except OSError as error:
                Count.errors += 1
                if not is_backed_out:
                    self.log.take_offline(f"it could not be opened: {error}")
                    return
                self.disk = self.new_disk()
                self.builder.open(is_clean=True, disk=self.disk)
            self.manager = self.new_manager()
            self.check_all()

        self.attempt(stop)

    # Writing

    def append(self, entry: Written, batch: bytes, origin: Origin = Origin.CLIENT) -> None:
        self.ledger.pending = entry
        plain = self.batch_of(dataclasses.replace(entry, codec=0)) if entry.pairs else batch
        if len(plain) + PACKED_MORE_BYTES > self.builder.config.segment_bytes:
            self.refusal = ErrorCode.RECORD_LIST_TOO_LARGE
        try:
            appended = self.log.append(batch, now_ms=self.now_ms, origin=origin)
        except KafkaError:
            if self.log.offline_reason is None:
                self.ledger.pending = None
            raise
        assert (appended.base_offset, appended.last_offset) == (entry.base_offset, entry.end - 1)
        assert self.log.log_end_offset == entry.end
        self.ledger.pending = None
        self.ledger.entries.append(entry)

    def batch_of(self, entry: Written) -> bytes:
        items = [(entry.timestamp, key, value, ()) for key, value in entry.pairs]
        return encode_batch(
            items,
            codec=entry.codec,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            base_sequence=entry.base_sequence,
            is_transactional=entry.is_transactional,
        )

    def produce(
        self,
        pairs: list[Any],
        codec: int,
        producer_id: int,
        *,
        is_flushed: bool,
        is_anew: bool = False,
        age_ms: int = 0,
    ) -> None:
        """`is_anew`: the producer goes on under the next epoch, as after InitProducerId. It has to where it
        was forgotten and only a marker came since: Kafka's `ProducerAppendInfo.checkSequence` refuses all but
        sequence 0 then.
        """
        # The broker looks for silent producers every ten minutes. Until then, like Kafka's, it refuses one
        # of which a cleaning has left nothing but a marker, if it had to recover in between.
        self.log.producers.expire(self.now_ms)
        last, state = self.ledger.last_of(producer_id), self.log.producers.producers.get(producer_id)
        if last is not None and self.now_ms - last.timestamp >= FORGOTTEN_AFTER_MS:
            is_anew = is_anew or (state is not None and not state.batches)
        is_known = producer_id >= 0
        epoch = self.ledger.epoch_of(producer_id) + is_anew if is_known else -1
        entry = Written(
            self.ledger.end,
            len(pairs),
            pairs,
            self.now_ms if self.is_stamped else max(self.now_ms - age_ms, -1),
            producer_id,
            self.ledger.next_sequence(producer_id, epoch) if is_known else -1,
            codec,
            producer_id in TRANSACTIONAL,
            producer_epoch=epoch,
        )
        self.append(entry, self.batch_of(entry))
        if is_flushed:
            self.flush()

    def flush(self) -> None:
        """As the broker does it: acknowledged when the job has run."""
        job = self.log.begin_flush()
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            self.log.end_flush(job, error)
            return
        self.log.end_flush(job, None)
        self.promised = max(self.promised, self.log.recovery_point)

    @rule(
        pairs=PAIRS,
        codec=CODECS,
        producer_id=st.sampled_from([-1, 1, 2]),
        is_flushed=st.booleans(),
        is_anew=st.booleans(),
    )
    def write(self, pairs: list[Any], codec: int, producer_id: int, is_flushed: bool, is_anew: bool) -> None:
        self.attempt(lambda: self.produce(pairs, codec, producer_id, is_flushed=is_flushed, is_anew=is_anew))

    @rule(pairs=PAIRS, codec=CODECS, age_ms=st.sampled_from([0, 1, 90 * HOUR_MS, -HOUR_MS, 1 << 60]))
    def write_more(self, pairs: list[Any], codec: int, age_ms: int) -> None:
        """Records come in no order of time, and some have none (-1)."""
        self.attempt(lambda: self.produce(pairs, codec, -1, is_flushed=True, age_ms=age_ms))

    @rule(key=KEYS)
    def delete_key(self, key: bytes) -> None:
        self.attempt(lambda: self.produce([(key, None)], 0, -1, is_flushed=True))

    @rule(values=st.lists(VALUES, min_size=1, max_size=4))
    def write_without_keys(self, values: list[bytes | None]) -> None:
        """The topic was an ordinary one for a moment."""

        def write() -> None:
            compacted = self.builder.config
            self.log.update_config(dataclasses.replace(compacted, cleanup_policy=frozenset({"delete"})))
            try:
                self.produce([(None, value) for value in values], 0, -1, is_flushed=True)
            finally:
                self.log.update_config(compacted)

        self.attempt(write)

    @rule(pairs=PAIRS, codec=CODECS, producer_id=st.sampled_from(TRANSACTIONAL))
    def write_in_a_transaction(self, pairs: list[Any], codec: int, producer_id: int) -> None:
        self.attempt(lambda: self.produce(pairs, codec, producer_id, is_flushed=True))

    @rule(is_commit=st.booleans(), producer_id=st.sampled_from(TRANSACTIONAL), is_anew=st.booleans())
    def end_the_transaction(self, is_commit: bool, producer_id: int, is_anew: bool) -> None:
        """One without data here too. `is_anew`: with the next epoch, as coordinators do since KIP-890."""
        epoch = self.ledger.epoch_of(producer_id) + is_anew
        marker = marker_batch(
            Marker(is_commit), producer_id=producer_id, producer_epoch=epoch, now_ms=self.now_ms
        )
        entry = Written(
            self.ledger.end, 1, (), self.now_ms, producer_id, is_commit=is_commit, producer_epoch=epoch
        )

        def end() -> None:
            self.append(entry, marker, Origin.COORDINATOR)
            self.flush()
            if self.log.offline_reason is None:
                self.check()  # here, as the next cleaning takes what was aborted away

        self.attempt(end)

    @rule(producer_id=st.sampled_from([1, 2]))
    def write_again(self, producer_id: int) -> None:
        """A producer that got no answer sends its last batch once more."""
        last = self.ledger.last_of(producer_id)
        if last is None or last.base_offset < self.log.log_start_offset:
            return
        if self.now_ms - last.timestamp > HOUR_MS:
            return  # the producer may have been forgotten

        def write() -> None:
            end = self.log.log_end_offset
            appended = self.log.append(self.batch_of(last), now_ms=self.now_ms)
            assert self.log.log_end_offset == end
            assert (appended.base_offset, appended.last_offset) == (last.base_offset, last.end - 1)

        self.attempt(write)

    # What happens to a log

    @rule()
    def roll(self) -> None:
        self.attempt(lambda: self.log.roll(self.now_ms))

    @rule()
    def flush_now(self) -> None:
        self.attempt(self.flush)

    def clean_once(self) -> None:
        self.log.roll(self.now_ms)
        self.flush()
        if self.log.offline_reason is not None:
            return
        assessment = self.manager.assess(self.log)
        self.ledger.note_cleaning(assessment.end, self.now_ms)
        topic_partition = self.log.topic_partition
        try:
            result = self.manager.clean_now(topic_partition)
        except CleaningRefused as refusal:
            raise AssertionError(f"nothing may be refused: {refusal}") from refusal
        except OSError as error:
            Count.errors += 1
            set_aside = self.manager.uncleanable(topic_partition)
            assert self.log.offline_reason or (set_aside and str(error) in set_aside.error)
            if self.log.offline_reason is None:
                assert_sound(self.log)
                self.check()
            return
        Count.cleanings += 1
        assert assessment.first_dirty_offset <= result.end_offset <= max(assessment.end, result.end_offset)
        assert self.manager.uncleanable(topic_partition) is None
        self.check_all()

    @rule()
    def clean(self) -> None:
        self.attempt(self.clean_once)

    @rule()
    def clean_more(self) -> None:
        self.attempt(self.clean_once)

    @rule()
    def keep_statistics(self) -> None:
        """As a thread does some time after a roll or a cleaning."""
        self.attempt(lambda: deque(map(statistics.ensure, self.log.segments[:-1]), 0))

    @rule(hours=st.sampled_from([1, 25, 80]))
    def wait(self, hours: int) -> None:
        Count.steps += 1
        self.builder.now_ms += hours * HOUR_MS

    @rule()
    def remove_files(self) -> None:
        """What `file.delete.delay.ms` put off."""
        self.attempt(lambda: self.log._list._removals.run(self.now_ms))

    @rule()
    def expire(self) -> None:
        def expire() -> None:
            start = self.log.log_start_offset
            before = read_log(self.log)
            expired = self.log.expire(self.now_ms)
            try:
                expired.run()
            except OSError:
                Count.errors += 1
            if "delete" not in self.policy:
                assert self.log.log_start_offset == start
            for _, record in before:
                is_gone = record.offset < self.log.log_start_offset
                assert not is_gone or record.timestamp < self.now_ms - RETENTION_MS, "too young to go"

        self.attempt(expire)

    @precondition(lambda self: "delete" in self.policy)
    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        span = self.log.high_watermark - self.log.log_start_offset
        before = self.log.log_start_offset + int(share * span)
        self.attempt(lambda: self.log.delete_records(before))

    @rule()
    def remember_offsets(self) -> None:
        """The checkpoints that the broker writes now and then."""
        Count.steps += 1
        self.write_checkpoints()

    def write_checkpoints(self, path: Path | None = None) -> None:
        self.builder.recovery_point = self.log.recovery_point
        self.builder.log_start_offset = self.log.log_start_offset

    def teardown(self) -> None:
        """At last everything is well, and cleaned: what may go is gone."""
        try:
            if hasattr(self, "builder"):
                self.settle()
        finally:
            shutil.rmtree(self.root)

    def settle(self) -> None:
        self.disk.crash_at, self.disk.error_at = None, {}
        self.check()
        for producer_id in self.ledger.undecided():
            self.end_the_transaction(False, producer_id, False)
        for _ in range(40):
            self.clean_once()
        self.builder.now_ms += 2 * DAY_MS
        self.clean_once()
        self.builder.log.close()
        assert_sound(self.log)
        self.disk.bury()


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        CleanedLog,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_log_survives_whatever_comes() -> None:
    run(examples=12, steps=40)


@pytest.mark.slow
def test_a_log_survives_ten_thousand_steps() -> None:
    before = Count.steps
    rounds = 0
    while Count.steps - before < STEPS_AT_LEAST:
        run(examples=60, steps=60)
        rounds += 1
        assert rounds < 20, "the machine does not get far"
    print(
        f"{Count.steps - before} steps: {Count.cleanings} cleanings, {Count.crashes} crashes, "
        f"{Count.power_cuts} of them power cuts, {Count.errors} errors of the disk"
    )
