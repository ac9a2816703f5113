"""Goal: what was acknowledged survives a power cut, and a disk that fails or fills up is a matter of its
log alone.

Method: logs on a disk that fails at chosen calls, has no room, or goes back to what was synced.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.errors import ErrorCode, KafkaError
from storage.file import SYSTEM_DISK
from storage.small_files import sync_file
from tests.storage.builders import NOW_MS, LogBuilder, batch
from tests.storage.conftest import MakeLog
from tests.storage.faults import Crash, FaultyDisk, PowerCutDisk

SIZE = len(batch())


def code_of_append(log: LogBuilder) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        log.append()
    return caught.value.code


def test_the_high_watermark_is_the_flushed_end(log: LogBuilder) -> None:
    log.fill(3)
    assert log.log.high_watermark == 0
    job = log.log.begin_flush()
    assert job is not None
    log.append()
    job.run()
    assert log.log.high_watermark == 0
    log.log.end_flush(job, None)
    assert (log.log.high_watermark, log.log.recovery_point, log.log.log_end_offset) == (3, 3, 4)
    log.log.flush()
    assert log.log.high_watermark == 4
    assert log.log.begin_flush() is None


def test_the_high_watermark_follows_the_end_where_flushes_do_not_matter(make_log: MakeLog) -> None:
    log = make_log(flush_messages=1000)
    log.fill(3)
    assert (log.log.high_watermark, log.log.recovery_point) == (3, 0)
    log.log.flush()
    assert log.log.recovery_point == 3


def test_after_a_restart_everything_that_is_there_is_safe(log: LogBuilder) -> None:
    log.fill(3)
    log.crash()
    assert (log.log.high_watermark, log.log.recovery_point) == (3, 3)


def test_a_failed_flush_takes_the_log_offline_for_good(make_log: MakeLog) -> None:
    disk = FaultyDisk()
    log = make_log(disk)
    log.fill(2)
    log.log.flush()
    log.append()
    disk.fail_on["fdatasync"] = errno.EIO
    job = log.log.begin_flush()
    assert job is not None
    with pytest.raises(OSError) as caught:
        job.run()
    log.log.end_flush(job, caught.value)
    disk.fail_on.clear()
    assert log.log.offline_reason is not None
    assert log.log.high_watermark == 2
    assert code_of_append(log) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        log.log.read(0, 1000, upper_offset=2)
    assert log.log.begin_flush() is None, "never tried again"
    log.crash()
    assert log.offsets() == [0, 1, 2]
    log.append()


def test_t124_a_full_disk_is_no_failure_of_the_log(make_log: MakeLog) -> None:
    disk = FaultyDisk()
    log = make_log(disk)
    log.fill(3)
    for room in (0, 1, SIZE - 1):
        disk.room_bytes = room
        assert code_of_append(log) is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.log.active_segment.file.size() == 3 * SIZE, "the partial write was cut off"
        assert log.offsets() == [0, 1, 2], "readers go on"
    disk.room_bytes = None
    assert log.append().base_offset == 3
    log.log.flush()
    assert log.offsets() == [0, 1, 2, 3]


@pytest.mark.parametrize("call", ["create", "write"])
def test_why_a_full_disk_refuses_is_told_now_and_then(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A quota, or a limit of file sizes, shows in no figure of the disk; producers showed nothing either."""
    disk = FaultyDisk()
    log = make_log(disk, segment_bytes=3 * SIZE)
    log.fill(3)
    for seconds in (10.0, 10.5, 11.0, 80.0):
        monkeypatch.setattr("storage.log.time", SimpleNamespace(monotonic=lambda now=seconds: now))
        disk.fail_on[call] = errno.EDQUOT
        assert code_of_append(log) is ErrorCode.KAFKA_STORAGE_ERROR
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(told) == 2
    assert all("takes no records: [Errno 122]" in line for line in told)
    disk.fail_on.clear()
    log.append()


def test_a_full_disk_at_a_roll(make_log: MakeLog) -> None:
    disk = FaultyDisk()
    log = make_log(disk, segment_bytes=3 * SIZE, index_interval_bytes=10)
    log.fill(3)
    for _ in range(3):
        disk.fail_on["create"] = errno.ENOSPC
        assert code_of_append(log) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail_on.clear()
    calls = len(disk.calls)
    for number in range(8):
        disk.error_at = {calls + number: errno.ENOSPC}
        before = len(log.log.segments)
        try:
            log.append()
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert len(log.log.segments) == before
        calls = len(disk.calls)
    disk.error_at.clear()
    log.append()
    log.log.flush()
    assert log.offsets() == list(range(log.log.log_end_offset))


def test_a_write_error_takes_the_log_offline(make_log: MakeLog) -> None:
    disk = FaultyDisk()
    log = make_log(disk)
    log.append()
    disk.fail_on["write"] = errno.EIO
    assert code_of_append(log) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log.offline_reason is not None


def test_a_write_that_cannot_be_cut_off_takes_the_log_offline(make_log: MakeLog) -> None:
    disk = FaultyDisk()
    log = make_log(disk)
    log.append()
    disk.room_bytes = 10
    disk.fail_on["truncate"] = errno.EIO
    assert code_of_append(log) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log.offline_reason is not None
    log.crash()
    assert log.offsets() == [0]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 61, SIZE - 1, SIZE])
def test_a_torn_write(make_log: MakeLog, size: int) -> None:
    disk = FaultyDisk()
    log = make_log(disk)
    log.fill(2)
    disk.tear_bytes = size
    with pytest.raises(Crash):
        log.append()
    log.crash()
    assert log.offsets() == ([0, 1, 2] if size == SIZE else [0, 1])


def test_a_power_cut_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """At many moments: whatever was below the high watermark is there afterwards, rolls and all."""
    for moment in range(1, 40):
        root = tmp_path / f"{moment}"
        root.mkdir()
        disk = PowerCutDisk(tmp_path / f"attic-{moment}")
        log = LogBuilder(root / "orders-2", disk, segment_bytes=4 * SIZE, index_interval_bytes=SIZE)
        for number in range(moment):
            log.append()
            if number % 3 == 1:
                log.log.flush()
        acknowledged = log.log.high_watermark
        log.log.abandon()
        disk.power_cut(root)
        if not log.directory.exists():
            assert acknowledged == 0
            continue
        log.disk = SYSTEM_DISK
        log.open(disk=SYSTEM_DISK)
        assert log.offsets()[:acknowledged] == list(range(acknowledged))
        log.log.close()


def test_a_power_cut_during_retention_loses_no_offset(tmp_path: Path) -> None:
    for with_job in (False, True):
        root = tmp_path / f"{with_job}"
        root.mkdir()
        disk = PowerCutDisk(tmp_path / f"attic-{with_job}")
        log = LogBuilder(
            root / "orders-2", disk, segment_bytes=4 * SIZE, retention_ms=1000, file_delete_delay_ms=0
        )
        log.fill(10)
        log.log.flush()
        expired = log.log.expire(NOW_MS + 2000)
        assert expired.removed_segments == 3
        if with_job:
            expired.run()
            log.log._list._removals.run(NOW_MS + 2000)
        log.log.abandon()
        disk.power_cut(root)
        log.open(disk=SYSTEM_DISK)
        assert log.log.log_end_offset == 10
        assert log.append().base_offset == 10
        log.log.close()


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("survives", ["no snapshot", "snapshot"])
def test_a_segment_whose_name_alone_survived_holds_no_place(
    tmp_path: Path, survives: str, preallocate: bool
) -> None:
    """Retention syncs the directory behind a roll, before the flush: at the start the file of the new segment
    is there, the records that stood before it are not. A producer that sends them again, having heard
    nothing, is not told that they are stored; no reader waits for them.
    """
    (tmp_path / "data").mkdir()
    disk = PowerCutDisk(tmp_path / "attic")
    log = LogBuilder(tmp_path / "data" / "orders-2", disk, preallocate=preallocate, segment_bytes=1000)
    log.fill(3)
    log.log.roll(NOW_MS)
    log.fill(3)
    log.log.flush()
    log.log.delete_records(3)
    log.recovery_point, log.log_start_offset = log.log.recovery_point, 3
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    log.append(**fields)
    log.log.roll(NOW_MS)
    if survives == "snapshot":
        sync_file(disk, log.directory / f"{7:020d}.snapshot")
    log.log.expire(NOW_MS).run()
    log.log.abandon()
    disk.power_cut(tmp_path / "data")
    assert log.files(".log") == [f"{3:020d}.log", f"{7:020d}.log"]
    os.truncate(log.directory / f"{3:020d}.log", 3 * SIZE)  # the disk knows sizes alone, and not of room made
    log.open(disk=SYSTEM_DISK)
    assert log.log.log_end_offset == log.log.high_watermark == 6
    assert log.files(".log") == [f"{3:020d}.log"]
    assert log.offsets() == [3, 4, 5]
    again = log.append(**fields)
    assert again.base_offset == 6
    assert log.restart().log_end_offset == 7
    assert log.offsets() == [3, 4, 5, 6]
    log.log.close()


@pytest.mark.parametrize("torn", [1, SIZE // 2, SIZE - 1])
def test_a_torn_batch_behind_what_a_power_cut_took_holds_no_place(log: LogBuilder, torn: int) -> None:
    """As a segment whose name alone survived: there is nothing in it that counts, once it is looked at."""
    log.fill(3)
    log.log.flush()
    log.recovery_point = 3
    log.append()
    log.log.roll(NOW_MS)
    log.append()
    log.log.abandon()
    os.truncate(log.directory / f"{0:020d}.log", 3 * SIZE)
    os.truncate(log.directory / f"{4:020d}.log", torn)
    log.open()
    assert log.log.log_end_offset == log.log.high_watermark == 3
    assert log.files(".log") == [f"{0:020d}.log"]
    assert log.offsets() == [0, 1, 2]
    assert log.append().base_offset == 3


def test_a_producer_whose_records_a_power_cut_took_is_not_told_that_they_are_stored(tmp_path: Path) -> None:
    """The next segment and its snapshot came to the disk by themselves, the end of the one before it did not.
    What is there stays, as in Kafka; the producer that sends again what is not there has it stored.
    """
    (tmp_path / "data").mkdir()
    disk = PowerCutDisk(tmp_path / "attic")
    log = LogBuilder(tmp_path / "data" / "orders-2", disk)
    log.fill(3)
    log.log.flush()
    log.recovery_point = log.log.recovery_point
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    log.append(**fields)
    log.log.roll(NOW_MS)
    log.append(producer_id=8, producer_epoch=0, base_sequence=0)
    for suffix in (".log", ".snapshot"):
        sync_file(disk, log.directory / f"{4:020d}{suffix}")
    disk.sync_directory(log.directory)
    log.log.abandon()
    disk.power_cut(tmp_path / "data")
    log.open(disk=SYSTEM_DISK)
    assert log.offsets() == [0, 1, 2, 4]
    for _ in range(2):
        assert sorted(log.log.producers.producers) == [8]
        log.crash()
    again = log.append(**fields)
    assert again.base_offset == 5
    log.log.close()


def test_the_directory_is_synced_with_the_first_flush_and_after_each_roll(make_log: MakeLog) -> None:
    synced: list[Path] = []

    class NotingDisk(FaultyDisk):
        def sync_directory(self, path: Path) -> None:
            synced.append(path)
            super().sync_directory(path)

    log = make_log(NotingDisk(), segment_bytes=2 * SIZE)
    log.append()
    log.log.flush()
    assert set(synced) == {log.directory, log.directory.parent}
    synced.clear()
    log.append()
    log.log.flush()
    assert synced == []
    log.append()
    log.log.flush()
    assert synced == [log.directory]


def test_everything_can_fail_once(make_log: MakeLog) -> None:
    """Any single call fails with EIO: the log answers with its own error, and what was flushed is there
    after a start.
    """
    for number in range(0, 80, 3):
        disk = FaultyDisk()
        log = make_log(disk, name=f"orders-{number}", segment_bytes=3 * SIZE, index_interval_bytes=SIZE)
        disk.error_at = {len(disk.calls) + number: errno.EIO}
        for _ in range(12):
            try:
                log.append()
                log.log.flush()
            except KafkaError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            except OSError as error:
                assert error.errno == errno.EIO
                assert log.log.offline_reason is not None
        safe = log.log.high_watermark
        log.crash()
        assert log.offsets()[:safe] == list(range(safe))


@pytest.mark.parametrize("is_rolled_before", [True, False])
def test_a_segment_that_retention_took_during_its_flush_fails_no_flush(
    make_log: MakeLog, is_rolled_before: bool
) -> None:
    """With `file.delete.delay.ms=0` its files are gone before the flush comes to them."""
    builder = make_log(flush_messages=1000, retention_bytes=1, file_delete_delay_ms=0)
    log = builder.log
    builder.fill(3)
    if is_rolled_before:
        log.roll(builder.now_ms)
        builder.append()
    job = log.begin_flush()
    assert job is not None
    if not is_rolled_before:
        log.roll(builder.now_ms)
        builder.append()
    expired = log.expire(builder.now_ms)
    expired.run()
    assert expired.removed_segments == 1
    assert log._list._removals.run(builder.now_ms) == 1
    job.run()
    log.end_flush(job, None)
    assert log.offline_reason is None
    log.close()


def test_a_file_that_is_missing_in_the_log_fails_the_flush(make_log: MakeLog) -> None:
    builder = make_log(flush_messages=1000)
    builder.append()
    segment = builder.log.segments[0]
    builder.log.roll(builder.now_ms)
    segment.file.close()
    path = segment.file.path
    path.rename(path.with_suffix(".gone"))
    with pytest.raises(FileNotFoundError):
        segment.flush_closed()
    path.with_suffix(".gone").rename(path)
