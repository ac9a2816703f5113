"""Goal: whenever the power goes, the files of a log are those that the log rests on.

Method: logs on a disk that goes back to what was synced, after a stop, a flush and a recovery; the files are
compared byte for byte. Calls that fail, where nothing else would show what they have left behind.
"""

from __future__ import annotations

import errno
import gc
import uuid
import weakref
from pathlib import Path

import pytest

from config.broker import BrokerConfig
from protocol.errors import KafkaError
from storage.file import SYSTEM_DISK, DataFile
from storage.layout import TopicPartition
from storage.manager import LogManager
from storage.removal import RETRY_MS
from storage.segments import MAX_PINNED
from tests.storage.builders import HOUR_MS, NOW_MS, LogBuilder, batch, topic_config
from tests.storage.conftest import MakeLog
from tests.storage.faults import FaultyDisk, PowerCutDisk

SIZE = len(batch())
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def fill_with_transactions(log: LogBuilder) -> None:
    """Several segments, aborted transactions in each."""
    for number in range(6):
        log.append(b"v", **PRODUCER, base_sequence=number, is_transactional=True)
        log.end_transaction(7, is_commit=number % 2 == 1)
        log.append()


def test_a_power_cut_behind_a_clean_stop_changes_no_file(tmp_path: Path) -> None:
    """The mark of the clean stop is on disk, and a start that finds it looks at nothing else."""
    disk, config = PowerCutDisk(tmp_path / "attic"), topic_config(segment_bytes=4 * SIZE)
    key = TopicPartition("orders", 0)
    manager = LogManager([tmp_path / "data"], BrokerConfig(), lambda: NOW_MS, disk)
    log = manager.create(key, uuid.uuid4(), config)
    for number in range(10):
        log.append(batch(**PRODUCER, base_sequence=number), now_ms=NOW_MS)
    log.flush()
    log.delete_records(2)
    manager.close()
    before = [contents(log.directory), contents(tmp_path / "data")]
    assert {".kafka_cleanshutdown", "log-start-offset-checkpoint", "meta.properties"} <= before[1].keys()
    disk.power_cut(tmp_path / "data")
    assert [contents(log.directory), contents(tmp_path / "data")] == before
    manager = LogManager([tmp_path / "data"], BrokerConfig(), lambda: NOW_MS)
    assert manager.was_clean
    manager.open_all(lambda topic: config, 1)
    again = manager.logs[key].append(batch(**PRODUCER, base_sequence=9), now_ms=NOW_MS)
    assert (again.base_offset, manager.logs[key].log_end_offset) == (9, 10)
    manager.abandon()


def test_a_flush_covers_all_files_of_what_was_closed(make_log: MakeLog, tmp_path: Path) -> None:
    """No recovery looks at a closed segment below the recovery point again."""
    disk = PowerCutDisk(tmp_path / "attic")
    log = make_log(disk, segment_bytes=4 * SIZE, index_interval_bytes=1)
    fill_with_transactions(log)
    log.log.flush()
    closed = {f"{segment.base_offset:020}" for segment in log.log.segments[:-1]}
    assert len(log.files(".txnindex")) > 1
    before = {name: data for name, data in contents(log.directory).items() if name[:20] in closed}
    log.log.abandon()
    disk.power_cut(log.directory)
    after = contents(log.directory)
    assert {name: after.get(name) for name in before} == before
    log.crash()


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_what_a_recovery_let_in_outlives_the_next_power_cut(
    make_log: MakeLog, tmp_path: Path, has_snapshots: bool
) -> None:
    """A kill takes nothing of the page cache: the records are found, counted as safe and read. A power cut
    behind that must not take them.
    """
    disk = PowerCutDisk(tmp_path / "attic")
    log = make_log(disk, segment_bytes=4 * SIZE, index_interval_bytes=1)
    fill_with_transactions(log)
    (log.directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    for name in () if has_snapshots else log.files(".snapshot"):
        (log.directory / name).unlink()
    disk.sync_directory(tmp_path)  # as a start does
    log.crash(disk=disk)
    end, before = log.log.high_watermark, contents(log.directory)
    assert end == 18
    log.log.abandon()
    disk.power_cut(tmp_path)
    after = contents(log.directory)
    del before["partition.metadata"], after["partition.metadata"]  # the topics know the id as well
    assert after == before
    log.recovery_point = end
    log.open()
    assert (log.log.log_end_offset, log.log.leader_epochs.entries) == (end, [(0, 0)])


def test_an_abort_that_the_index_does_not_take_ends_the_log(make_log: MakeLog) -> None:
    """Readers would take its records for committed; opened anew, the marker says what they are."""
    disk = FaultyDisk()
    log = make_log(disk)
    log.append(b"v", **PRODUCER, base_sequence=0, is_transactional=True)
    disk.error_at = {len(disk.calls) + 1: errno.ENOSPC}  # the marker is written, then the index made
    log.end_transaction(7, is_commit=False)
    with pytest.raises(KafkaError, match="the transaction index cannot be written"):
        log.log.read(0, 1000, upper_offset=2)
    log.crash()
    assert [one.first_offset for one in log.log.aborted_transactions(0, 2)] == [0]


def test_an_epoch_that_could_not_be_written_is_written_by_the_next_append(make_log: MakeLog) -> None:
    disk = FaultyDisk()
    log = make_log(disk)
    log.append()
    log.log.leader_epoch = 4
    disk.fail_on["rename"] = errno.ENOSPC
    with pytest.raises(KafkaError):
        log.append()
    disk.fail_on.clear()
    log.append()
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n4 1\n"


def test_a_log_that_expires_whole_on_a_full_disk_keeps_its_last_segment(make_log: MakeLog) -> None:
    """There is no room for a new one; that the others go makes it."""
    disk = FaultyDisk()
    log = make_log(disk, segment_bytes=2 * SIZE, retention_ms=HOUR_MS)
    log.fill(6)
    log.log.flush()
    disk.fail_on["create"] = errno.ENOSPC
    expired = log.log.expire(NOW_MS + 2 * HOUR_MS)
    expired.run()
    assert (expired.removed_segments, log.log.log_start_offset) == (2, 4)
    assert log.offsets() == [4, 5]
    disk.fail_on.clear()
    assert log.log.expire(NOW_MS + 2 * HOUR_MS).removed_segments == 1
    assert (log.log.log_start_offset, log.log.log_end_offset) == (6, 6)


class UnsyncedDirectories(FaultyDisk):
    """Directories cannot be synced."""

    def sync_directory(self, path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_expired_files_go_though_their_directory_could_not_be_synced(make_log: MakeLog) -> None:
    """Else they would take their place on the disk until the next start."""
    log = make_log(segment_bytes=2 * SIZE, retention_ms=HOUR_MS, file_delete_delay_ms=0)
    log.fill(6)
    log.log.flush()
    log.log.roll(NOW_MS)
    log.log.flush()
    log.log._list._disk = UnsyncedDirectories()
    with pytest.raises(OSError):
        log.log.expire(NOW_MS + 2 * HOUR_MS).run()
    log.log._list._removals.run(NOW_MS + 2 * HOUR_MS)
    assert log.files(".deleted") == []


def test_rolls_that_outrun_the_flushes_hold_few_files_open(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=SIZE)
    log.fill(3 * MAX_PINNED)
    held = [segment for segment in log.log.segments if segment.file.is_pinned]
    assert len(held) == MAX_PINNED + 1, "those that wait for their flush, and the active one"
    log.log.flush()
    assert [segment for segment in log.log.segments if segment.file.is_pinned] == [log.log.active_segment]


def test_files_that_cannot_be_removed_now_are_removed_later(make_log: MakeLog) -> None:
    disk = FaultyDisk()
    log = make_log(disk, segment_bytes=2 * SIZE, retention_ms=HOUR_MS, file_delete_delay_ms=0)
    log.fill(6)
    log.log.flush()
    log.log.expire(NOW_MS + 2 * HOUR_MS).run()
    removals = log.log._list._removals
    disk.fail_on["unlink"] = errno.EACCES
    removals.run(NOW_MS + 2 * HOUR_MS)
    assert log.files(".log.deleted") != []
    disk.fail_on.clear()
    removals.run(NOW_MS + 2 * HOUR_MS + RETRY_MS - 1)  # each try is a line in the log
    assert log.files(".log.deleted") != []
    removals.run(NOW_MS + 2 * HOUR_MS + RETRY_MS)
    assert log.files(".deleted") == []
    assert removals.run(NOW_MS + 2 * HOUR_MS + 2 * RETRY_MS) == 0


def test_removed_files_go_though_the_clock_was_set_back(make_log: MakeLog) -> None:
    """They wait for so long, not until a time that may be days away by then."""
    log = make_log(segment_bytes=2 * SIZE, retention_ms=HOUR_MS, file_delete_delay_ms=1000)
    log.fill(6)
    log.log.flush()
    removals, wrong_ms = log.log._list._removals, NOW_MS + 100 * HOUR_MS
    log.log.expire(wrong_ms).run()
    removals.run(wrong_ms)
    removals.run(NOW_MS)
    assert log.files(".deleted") != []
    removals.run(NOW_MS + 1000)
    assert log.files(".deleted") == []


def descriptors_of(directory: Path) -> list[str]:
    """What this process holds open of a directory."""
    held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [name for name in held if name.startswith(f"{directory}/")]


def test_a_log_that_goes_lets_go_of_what_it_had_removed(make_log: MakeLog) -> None:
    """A file that is held open takes its place on the disk after it was unlinked."""
    log = make_log(segment_bytes=2 * SIZE, retention_ms=HOUR_MS)
    log.fill(6)
    log.log.flush()
    assert log.offsets() == [0, 1, 2, 3, 4, 5]
    log.log.expire(NOW_MS + 2 * HOUR_MS).run()
    assert [name for name in descriptors_of(log.directory) if ".deleted" in name]
    log.log.abandon()
    assert descriptors_of(log.directory) == []


def test_a_deleted_log_that_was_never_flushed_is_freed_at_once(tmp_path: Path) -> None:
    """Not by a collection: that of a topic of 10,000 partitions kept the event loop for a second."""
    log = LogBuilder(tmp_path / "orders-2").log
    log.mark_deleted()
    log.abandon()
    is_there = weakref.ref(log)
    gc.disable()
    try:
        del log
        assert is_there() is None
    finally:
        gc.enable()


def test_an_open_that_fails_leaves_nobody_behind_who_uses_the_file(tmp_path: Path) -> None:
    """Else the pool could never close it again."""
    file = DataFile(SYSTEM_DISK, tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        file.read(1, 0)
    file.path.write_bytes(b"v")
    assert file.read(1, 0) == b"v"
    assert descriptors_of(tmp_path) != []
    assert file.try_close()
    assert descriptors_of(tmp_path) == []


def test_a_segment_that_ends_at_the_recovery_point_is_looked_at_again(
    make_log: MakeLog, tmp_path: Path
) -> None:
    """It was flushed before the roll that closed it: its transaction index was not."""
    disk = PowerCutDisk(tmp_path / "attic")
    log = make_log(disk)
    log.append(b"v", **PRODUCER, base_sequence=0, is_transactional=True)
    log.end_transaction(7, is_commit=False)
    log.log.flush()
    log.log.roll(NOW_MS)
    log.recovery_point = log.log.recovery_point
    disk.sync_directory(log.directory)
    log.log.abandon()
    disk.power_cut(tmp_path)
    log.crash()
    assert [one.first_offset for one in log.log.aborted_transactions(0, 2)] == [0]


def test_an_offline_log_keeps_what_is_past_its_retention(make_log: MakeLog) -> None:
    """Whoever opens it anew must find it as it was left."""
    log = make_log(segment_bytes=2 * SIZE, retention_ms=HOUR_MS)
    log.fill(6)
    log.log.flush()
    log.log.take_offline("as a test says")
    before = log.files()
    assert log.log.expire(NOW_MS + 2 * HOUR_MS).removed_segments == 0
    assert log.files() == before


def test_a_log_that_ends_before_its_start_forgets_its_producers(make_log: MakeLog) -> None:
    """A batch that went with it is no duplicate of anything."""
    log = make_log()
    log.append(**PRODUCER, base_sequence=0)
    log.log_start_offset = 100
    log.crash()
    again = log.append(**PRODUCER, base_sequence=0)
    assert (again.base_offset, log.log.log_end_offset) == (100, 101)
