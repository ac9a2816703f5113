"""Goal: what a crash, a full disk or a failing call leaves behind takes back nothing acknowledged, and blocks
nothing for good.

Method: managers and logs on disks that fail at chosen calls; crashes at the moment between two writes that
nobody thinks of.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from cleaner.checkpoints import CleanerCheckpoints
from config.broker import BrokerConfig
from protocol.errors import KafkaError
from storage.file import SYSTEM_DISK, Disk
from storage.layout import TopicPartition
from storage.log import Log
from storage.manager import LogManager
from tests.storage.builders import NOW_MS, batch, topic_config
from tests.storage.conftest import MakeLog
from tests.storage.faults import FaultyDisk, PowerCutDisk, UnsyncedDisk

ORDERS = TopicPartition("orders", 0)
SIZE = len(batch())
Start = Callable[..., LogManager]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Makes managers on one directory; the one before ends as in a crash."""
    made: list[LogManager] = []

    def start(disk: Disk = SYSTEM_DISK) -> LogManager:
        for before in made:
            before.abandon()
        manager = LogManager([tmp_path / "data"], BrokerConfig(), lambda: NOW_MS, disk)
        made.append(manager)
        manager.open_all(lambda topic: topic_config(), 1)
        return manager

    yield start
    for manager in made:
        manager.abandon()


def create(manager: LogManager, records: int) -> Log:
    log = manager.create(ORDERS, uuid.uuid4(), topic_config())
    for _ in range(records):
        log.append(batch(), now_ms=NOW_MS)
    log.flush()
    return log


@pytest.mark.parametrize("is_checkpointed_again", [False, True])
def test_a_log_does_not_inherit_the_start_of_a_deleted_one(start: Start, is_checkpointed_again: bool) -> None:
    """Else a crash drops the new log as one that ends before its start."""
    manager = start()
    create(manager, 10).delete_records(10)
    manager.checkpoint()
    manager.delete(ORDERS)
    log = create(manager, 3)
    if is_checkpointed_again:
        manager.checkpoint()
    assert log.high_watermark == 3
    log = start().logs[ORDERS]
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)


@pytest.mark.parametrize("call", ["create", "write"])
def test_a_log_that_could_not_be_made_can_be_made_later(start: Start, call: str, tmp_path: Path) -> None:
    """A full disk leaves no directory that stands in the way."""
    disk = FaultyDisk()
    manager = start(disk)
    disk.fail_on[call] = errno.ENOSPC
    with pytest.raises(OSError):
        create(manager, 1)
    assert ORDERS not in manager.logs
    held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [name for name in held if name.startswith(f"{tmp_path}/") and "orders-0" in name], (
        "no descriptor is left behind"
    )
    disk.fail_on.clear()
    assert create(manager, 1).high_watermark == 1


def test_a_start_is_kept_until_the_removal_below_it_is_on_disk(tmp_path: Path) -> None:
    """A checkpoint between the renames of expired segments and the sync of their directory: a power cut takes
    the renames back, and with them, were it not for the checkpoint, the records that were deleted.
    """
    disk = PowerCutDisk(tmp_path / "attic")
    config = topic_config(segment_bytes=2 * SIZE, cleanup_policy="compact,delete")

    def started(disk: Disk) -> LogManager:
        manager = LogManager([tmp_path / "data"], BrokerConfig(), lambda: NOW_MS, disk)
        manager.open_all(lambda topic: config, 1)
        return manager

    manager = started(disk)
    log = manager.create(ORDERS, uuid.uuid4(), config)
    for _ in range(6):
        log.append(batch(), now_ms=NOW_MS)
    log.flush()
    log.delete_records(4)
    manager.checkpoint()
    expired = log.expire(NOW_MS)
    assert expired.removed_segments == 2
    CleanerCheckpoints(manager).keep_start(log)
    manager.checkpoint()
    manager.abandon()
    disk.power_cut(tmp_path / "data")
    manager = started(SYSTEM_DISK)
    log = manager.logs[ORDERS]
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
    log.expire(NOW_MS).run()
    manager.checkpoint()
    assert not manager.directories[0].log_starts, "the first file's name says it now"
    manager.abandon()


def test_a_flush_that_finds_no_descriptor_is_no_failed_flush(make_log: MakeLog) -> None:
    """Nothing was lost yet: room is made, and the flush goes on."""
    disk = FewDescriptors()
    log = make_log(disk, segment_bytes=2 * SIZE)
    log.fill(3)
    disk.refusals = 1
    log.log.flush()
    assert disk.refusals == 0
    assert log.log.offline_reason is None
    assert log.log.high_watermark == 3


class FewDescriptors(FaultyDisk):
    """The next `refusals` calls that need a descriptor do not get one."""

    refusals = 0

    def _refuse(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")

    def open(self, path: Path, flags: int) -> int:
        self._refuse()
        return super().open(path, flags)

    def sync_directory(self, path: Path) -> None:
        self._refuse()
        super().sync_directory(path)


def test_a_roll_that_fails_leaves_no_segment_behind(make_log: MakeLog) -> None:
    """A start would take an empty one for the log's active one, whose offsets the one before it has."""
    disk = FaultyDisk()
    log = make_log(disk, index_interval_bytes=1)
    log.fill(3)
    for call in range(100):
        before = log.files(".log")
        disk.error_at = {len(disk.calls) + call: errno.ENOSPC}
        try:
            log.log.roll(NOW_MS)
        except KafkaError:
            assert log.files(".log") == before, f"call {call}"
            log.append()
        else:
            break
    assert len(log.log.segments) == 2
    disk.error_at = {}
    assert call > 5
    log.append()
    log.crash(disk=UnsyncedDisk())
    assert log.offsets() == list(range(3 + call + 1))


def test_one_directory_that_cannot_be_removed_does_not_keep_the_others(start: Start) -> None:
    disk = FaultyDisk()
    manager = start(disk)
    others = [TopicPartition("orders", number) for number in range(3)]
    for one in others:
        manager.create(one, uuid.uuid4(), topic_config())
    for one in others:
        manager.delete(one)
    removed: list[Path] = []

    def remove(path: Path) -> None:
        if not removed:
            removed.append(path)
            raise OSError(errno.EIO, "Input/output error")
        Disk.remove_tree(disk, path)

    disk.remove_tree = remove  # type: ignore[method-assign]
    with pytest.raises(OSError):
        manager.deleted.remove()
    data = manager.directories[0].path
    assert len([path for path in data.iterdir() if path.is_dir()]) == 1
    manager.deleted.remove()
    assert not [path for path in data.iterdir() if path.is_dir()]


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_start_on_a_full_disk_serves_what_is_there(make_log: MakeLog, is_clean: bool) -> None:
    """Indexes that cannot be written stay in memory; appends go on when there is room."""
    log = make_log(index_interval_bytes=1, segment_bytes=4 * SIZE)
    log.fill(10, producer_id=-1)
    log.log.flush()
    disk = FaultyDisk()
    disk.room_bytes = 0
    if is_clean:
        log.log.disk = disk
        log.log.active_segment.offset_index.disk = disk
        with contextlib.suppress(OSError):
            log.log.close()
    log.log.abandon()
    opened = log.open(disk=disk, is_clean=False)
    assert log.offsets() == list(range(10))
    assert [log.offsets(start)[0] for start in range(10)] == list(range(10))
    disk.room_bytes = None
    log.append()
    opened.flush()
    assert opened.high_watermark == 11
    log.restart()
    assert log.offsets() == list(range(11))


def test_a_deletion_is_synced_while_another_turn_removes_it(start: Start) -> None:
    """`remove` has taken the directory off the list but has synced nothing yet."""

    class Watched(FaultyDisk):
        synced: ClassVar[list[Path]] = []

        def remove_tree(self, path: Path) -> None:
            self.synced.clear()
            manager.deleted.sync([deleted_in])
            assert self.synced == [path.parent]
            super().remove_tree(path)

        def sync_directory(self, path: Path) -> None:
            self.synced.append(path)
            super().sync_directory(path)

    manager = start(Watched())
    create(manager, 1)
    deleted_in = manager.delete(next(iter(manager.logs)))
    assert manager.deleted.remove() == 1


def test_a_data_directory_that_was_removed_under_a_broker_is_no_traceback_at_the_end(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start()
    create(manager, 3)
    for directory in manager.directories:
        shutil.rmtree(directory.path)
    manager.close()
    assert "could not be" in caplog.text
    manager.directories[0].path.mkdir(exist_ok=True)  # for the fixture, which ends it again
