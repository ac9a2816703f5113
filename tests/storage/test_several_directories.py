"""Goal: with several data directories, one whose disk fails is no matter of the logs in the others.

Method: two directories, of which one takes no more; what the other holds is made, written down, cleaned and
opened again.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.checkpoints import CleanerCheckpoints
from config.broker import BrokerConfig
from storage.layout import TopicPartition, partition_directory_name
from storage.log import Log
from storage.manager import LogManager
from tests.storage.builders import NOW_MS, batch, topic_config
from tests.storage.faults import UnsyncedDisk

CONFIG = topic_config(cleanup_policy="compact,delete")
ORDERS = [TopicPartition("orders", number) for number in range(4)]


class HalfFull(UnsyncedDisk):
    """Below `full` no file or directory can be made."""

    full: Path | None = None

    def _check(self, path: Path) -> None:
        if self.full is not None and path.is_relative_to(self.full):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT:
            self._check(path)
        return super().open(path, flags)

    def make_directory(self, path: Path) -> None:
        self._check(path)
        super().make_directory(path)


class Pair:
    """A manager of two directories, on disks of their own."""

    def __init__(self, root: Path) -> None:
        self.paths = [root / "a", root / "b"]
        self.disk = HalfFull()
        self.now_ms = NOW_MS
        self.manager = self.start()

    def start(self) -> LogManager:
        self.manager = LogManager(self.paths, BrokerConfig(), lambda: self.now_ms, self.disk)
        self.manager.open_all(lambda topic: CONFIG, 1)
        return self.manager

    def create(self, topic_partition: TopicPartition) -> Log:
        log = self.manager.create(topic_partition, uuid.uuid4(), CONFIG)
        for _ in range(4):
            log.append(batch(), now_ms=NOW_MS)
        log.flush()
        return log

    def log_in(self, path: Path) -> Log:
        return next(log for log in self.manager.logs.values() if log.directory.parent == path)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    made.create(ORDERS[0])
    made.create(ORDERS[1])
    yield made
    made.manager.abandon()


@pytest.mark.parametrize("full", [0, 1])
def test_the_starts_of_logs_on_a_good_disk_are_kept(pair: Pair, full: int) -> None:
    """Else DeleteRecords is undone by a crash, though its own disk is well."""
    pair.disk.full = pair.paths[full]
    for path in pair.paths:
        pair.log_in(path).delete_records(3)
    with pytest.raises(OSError):
        pair.manager.checkpoint()
    pair.manager.abandon()
    pair.disk.full = None
    pair.start()
    assert pair.log_in(pair.paths[1 - full]).log_start_offset == 3


@pytest.mark.parametrize("full", [0, 1])
def test_a_good_disk_is_left_in_order(pair: Pair, full: int) -> None:
    pair.disk.full = pair.paths[full]
    pair.manager.close()
    pair.disk.full = None
    pair.start()
    assert [one.was_clean for one in pair.manager.directories] == [full == 1, full == 0]


@pytest.mark.parametrize("full", [0, 1])
def test_a_cleaning_asks_its_own_disk_alone(pair: Pair, full: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the log starts is written, and how far it is clean read, of one directory."""
    good = pair.log_in(pair.paths[1 - full])
    pair.disk.full = pair.paths[full]
    for path in pair.paths:
        pair.log_in(path).delete_records(2)
    broken = pair.manager.directories[full].cleaner_checkpoint

    def unreadable() -> dict[TopicPartition, int]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(broken, "read", unreadable)
    checkpoints = CleanerCheckpoints(pair.manager)
    checkpoints.keep_start(good)
    checkpoints.put(good.directory.parent, good.topic_partition, 3)
    assert checkpoints.offset_of(good.directory.parent, good.topic_partition) == 3
    assert checkpoints.known() == {good.topic_partition}
    checkpoints.forget([good.topic_partition])
    assert checkpoints.known() == set()
    assert checkpoints.offset_of(pair.paths[full], ORDERS[0]) is None, "it begins anew"


@pytest.mark.parametrize("broken", [0, 1])
def test_what_is_deleted_on_a_good_disk_goes(
    pair: Pair, broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names, the directories, and the files of removed segments."""
    bad, good = pair.log_in(pair.paths[broken]), pair.log_in(pair.paths[1 - broken])
    good.roll(NOW_MS)
    good.delete_records(4)
    good.expire(NOW_MS).run()
    sync = HalfFull.sync_directory

    def fail(disk: HalfFull, path: Path) -> None:
        if path == pair.paths[broken]:
            raise OSError(errno.EIO, "Input/output error")
        sync(disk, path)

    monkeypatch.setattr(HalfFull, "sync_directory", fail)
    pair.manager.delete(bad.topic_partition)
    assert list(good.directory.glob("*.deleted"))
    pair.now_ms += CONFIG.file_delete_delay_ms
    with pytest.raises(OSError):
        pair.manager.deleted.remove()
    assert not list(good.directory.glob("*.deleted"))
    pair.manager.deleted.sync([pair.manager.delete(good.topic_partition)])


def written(pair: Pair) -> list[dict[TopicPartition, int]]:
    """What the cleaner checkpoint of each directory says, for a cleaner that was just started."""
    return [directory.cleaner_checkpoint.read() for directory in pair.manager.directories]


def test_each_directory_has_its_own_cleaner_checkpoint(pair: Pair) -> None:
    checkpoints = CleanerCheckpoints(pair.manager)
    for path, one in zip(pair.paths, ORDERS, strict=False):
        checkpoints.put(path, one, 3)
    checkpoints.put(pair.paths[1], ORDERS[0], 2)  # as a move that did not end may leave it
    assert written(pair) == [{ORDERS[0]: 3}, {ORDERS[0]: 2, ORDERS[1]: 3}]
    later = CleanerCheckpoints(pair.manager)
    assert [later.offset_of(path, ORDERS[0]) for path in pair.paths] == [3, 2]
    assert CleanerCheckpoints(pair.manager).known() == set(ORDERS[:2])


def test_a_cleaner_checkpoint_moves_with_its_log(pair: Pair) -> None:
    """What stayed behind would be believed of the log if it moved back, whatever was written meanwhile."""
    checkpoints = CleanerCheckpoints(pair.manager)
    checkpoints.put(pair.paths[0], ORDERS[0], 3)
    checkpoints.put(pair.paths[0], ORDERS[2], 4)
    before = checkpoints.changes
    checkpoints.move(pair.paths[0], pair.paths[1], ORDERS[0])
    assert written(pair) == [{ORDERS[2]: 4}, {ORDERS[0]: 3}]
    assert [checkpoints.offset_of(path, ORDERS[0]) for path in pair.paths] == [None, 3]
    assert checkpoints.changes > before
    checkpoints.move(pair.paths[0], pair.paths[1], ORDERS[1])
    assert written(pair) == [{ORDERS[2]: 4}, {ORDERS[0]: 3}], "a log that was never cleaned has none to move"


def test_a_deleted_partition_is_in_no_cleaner_checkpoint(pair: Pair) -> None:
    checkpoints = CleanerCheckpoints(pair.manager)
    for path in pair.paths:
        checkpoints.put(path, ORDERS[0], 3)
        checkpoints.put(path, ORDERS[2], 4)
    before = checkpoints.changes
    checkpoints.forget(ORDERS[:2])
    assert written(pair) == [{ORDERS[2]: 4}] * 2
    assert checkpoints.changes > before, "a look at the log, should it be made again, finds other figures"


def test_a_new_log_goes_where_there_is_room(pair: Pair) -> None:
    """As in Kafka, which takes the next directory; and never into two."""
    pair.disk.full = pair.paths[0]
    for topic_partition in ORDERS[2:]:
        assert pair.create(topic_partition).directory.parent == pair.paths[1]
    pair.disk.full = pair.paths[0].parent
    gone = TopicPartition("gone", 0)
    with pytest.raises(OSError, match="No space"):
        pair.create(gone)
    pair.disk.full = None
    (pair.paths[1] / partition_directory_name(gone)).mkdir()
    with pytest.raises(FileExistsError):
        pair.create(gone)


@pytest.mark.parametrize("dead", [0, 1])
def test_a_disk_that_answers_nothing_is_passed_over(
    pair: Pair, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = Path.exists

    def ask(path: Path) -> bool:
        if path.is_relative_to(pair.paths[dead]):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", ask)
    pair.disk.full = pair.paths[dead]
    for topic_partition in ORDERS[2:]:
        assert pair.create(topic_partition).directory.parent == pair.paths[1 - dead]
