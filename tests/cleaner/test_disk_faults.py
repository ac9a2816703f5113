"""Goal: a disk that refuses one call of a cleaning costs that cleaning, nothing else: the others serve and
are cleaned, the failed partition is set aside with the reason, tried again later and on command, its
retention goes on, and no record is lost (T124, T135, T178).

Method: ENOSPC and EIO at every call of a cleaning in turn, under the manager as the broker runs it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cleaner.manager import RETENTION_INTERVAL_MS
from cleaner.quarantine import FIRST_RETRY_MS, FULL_DISK_RETRY_MS
from cleaner.states import Phase
from storage.layout import TopicPartition
from storage.log import Log
from storage.manager import LogManager
from storage.verify import verify_log
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.house import House
from tests.storage.faults import FaultyDisk, UnsyncedDisk
from tests.thoroughness import slow

T = TopicPartition("t", 0)
OTHER = TopicPartition("other", 0)
RETENTION_MS = 3_600_000
TABLE = {"a": "9", "b": "8", "c": "2"}


class FaultyHouse(House):
    """A house on a disk that can be made to fail, with a dirty log that expires and another."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        super().__init__(directory)
        self.logs.close()
        self.disk = FaultyDisk()
        self.logs = LogManager([directory], self.config, lambda: self.now_ms, self.disk)
        self.manager.checkpoints = type(self.manager.checkpoints)(self.logs)
        self.expiring = self.log(
            "t", cleanup_policy="compact,delete", retention_ms=RETENTION_MS, segment_bytes=200
        )
        for number, key in enumerate("abcabababa"):
            self.put("t", (key, str(number)))
        self.expiring.flush()
        self.manager.checkpoints.known()

    def grabbed(self) -> TopicPartition | None:
        """What a thread would clean now."""
        work = self.manager.grab()
        if work is None:
            return None
        cleaner = self.manager.make_cleaner(lambda size: None)
        self.manager.clean(cleaner, work)
        return work.log.topic_partition

    def serve_another(self) -> None:
        """The neighbour takes records, is cleaned and read."""
        self.put("other", ("x", "1"), ("x", "2"))
        assert self.grabbed() == OTHER
        assert self.table("other") == {"x": "2"}

    def end(self) -> None:
        self.disk.error_at = {}
        for log in self.logs.logs.values():
            assert verify_log(log.directory) == [] or log.offline_reason
            log.abandon()


def calls_of_a_cleaning(directory: Path) -> list[str]:
    house = FaultyHouse(directory)
    before = len(house.disk.calls)
    assert house.grabbed() == T
    calls = house.disk.calls[before:]
    house.end()
    return calls


@pytest.mark.parametrize("number", [errno.ENOSPC, slow(errno.EIO)])
def test_t124_one_refused_call_costs_one_cleaning(tmp_path: Path, number: int) -> None:
    calls = calls_of_a_cleaning(tmp_path / "count")
    kinds = {call.split()[0] for call in calls}
    assert {"create", "write", "rename", "fdatasync", "fsync"} <= kinds
    outcomes = {"set aside": 0, "offline": 0, "done": 0}
    for index in range(len(calls)):
        house = FaultyHouse(tmp_path / str(index))
        log = house.expiring
        house.disk.error_at = {len(house.disk.calls) + index: number}
        assert house.grabbed() == T, calls[index]
        held = house.manager.uncleanable(T)
        if log.offline_reason is not None:  # in the midst of a swap: only a start can tell what holds
            outcomes["offline"] += 1
            assert os.strerror(number) in log.offline_reason, calls[index]
            assert held is None
            house.serve_another()
        elif held is not None:
            outcomes["set aside"] += 1
            check_quarantine(house, log, number, calls[index])
        else:
            outcomes["done"] += 1  # what failed can be done again: a checkpoint, a removal
            assert house.table("t") == TABLE, calls[index]
            house.serve_another()
        house.end()
        check_restart(house, calls[index])
    assert outcomes["set aside"] > len(calls) // 2, outcomes
    assert outcomes["offline"], outcomes


def check_quarantine(house: FaultyHouse, log: Log, number: int, call: str) -> None:
    held = house.manager.uncleanable(T)
    assert held is not None
    assert os.strerror(number) in held.error, call
    assert held.is_damaged is (number == errno.EIO)
    pause_ms = FULL_DISK_RETRY_MS if number == errno.ENOSPC else FIRST_RETRY_MS
    assert held.retry_ms - house.now_ms == pause_ms
    assert house.table("t") == TABLE, call
    house.serve_another()
    assert house.grabbed() is None, "it is not yet time"
    house.manager.clean_now(T)
    assert house.manager.uncleanable(T) is None
    assert house.table("t") == TABLE
    assert log.offline_reason is None


def check_restart(house: FaultyHouse, call: str) -> None:
    """Whatever was on disk then, a start finds every key's last value."""
    house.logs.directories[0].unlock()
    house.logs = LogManager([house.path], house.config, lambda: house.now_ms, UnsyncedDisk())
    house.log("t", cleanup_policy="compact,delete", retention_ms=RETENTION_MS, segment_bytes=200)
    assert house.table("t") == TABLE, call
    house.close()


def test_t135_retention_goes_on_while_a_partition_is_set_aside(tmp_path: Path) -> None:
    house = FaultyHouse(tmp_path / "house")
    house.disk.error_at = {len(house.disk.calls): errno.EIO}
    assert house.grabbed() == T
    assert house.manager.uncleanable(T) is not None
    house.now_ms += RETENTION_MS + RETENTION_INTERVAL_MS
    assert house.manager.expire() > 0
    assert house.expiring.log_start_offset > 0
    assert house.manager.uncleanable(T) is not None
    house.end()


def test_t178_the_retry_comes_by_itself(tmp_path: Path) -> None:
    house = FaultyHouse(tmp_path / "house")
    house.disk.error_at = {len(house.disk.calls): errno.EIO}
    assert house.grabbed() == T
    assert house.grabbed() is None
    house.now_ms += FIRST_RETRY_MS
    assert house.grabbed() == T
    assert house.table("t") == TABLE
    house.end()


def test_a_log_that_goes_offline_during_its_cleaning_was_not_cleaned(tmp_path: Path) -> None:
    """Nothing was swapped: were it taken for cleaned, its tombstones would go some day, and the values that
    they delete would be back.
    """
    house = House(tmp_path)
    log = house.log("t", min_cleanable_dirty_ratio=0.0)
    house.put("t", ("a", "1"), ("b", "1"))
    house.put("t", ("a", None), ("c", "1"))
    house.put("t", ("d", "1"))
    log.flush()
    before = house.records("t")
    work = house.manager.grab()
    assert work is not None

    def fail(size: int) -> None:
        log.take_offline("a flush failed")

    assert house.manager.clean(house.manager.make_cleaner(fail), work) is None
    assert house.checkpoints().get(T, 0) == 0
    assert house.results == []
    assert house.manager.state_of(T).phase is Phase.IDLE
    log.abandon()
    house.logs.take(house.logs.reopen(log))
    assert house.records("t") == before
    assert not list((tmp_path / str(T)).glob("*.cleaned"))
    assert house.clean() is not None
    for number in range(2):
        house.now_ms += 2 * 24 * RETENTION_MS
        house.put("t", ("e", str(number)))
        house.manager.clean_now(T)
    assert house.table("t") == {"b": "1", "c": "1", "d": "1", "e": "1"}
    house.close()


def test_a_cleaning_that_cannot_begin_a_segment_keeps_no_file_open(make_world: MakeWorld) -> None:
    """It would never be closed: each try takes a descriptor more, and the room of a file that has no name."""

    class NoIndex(UnsyncedDisk):
        opened: set[int]
        refuses = False

        def open(self, path: Path, flags: int) -> int:
            if self.refuses and path.name.endswith(".index.cleaned"):
                raise OSError(errno.EMFILE, "too many open files", str(path))
            descriptor = super().open(path, flags)
            self.opened.add(descriptor)
            return descriptor

        def close(self, descriptor: int) -> None:
            super().close(descriptor)
            self.opened.discard(descriptor)

    disk = NoIndex()
    disk.opened = set()
    world = make_world(disk=disk)
    world.put_each("aab")
    world.roll()
    before = world.pairs()
    opened = set(disk.opened)
    disk.refuses = True
    with pytest.raises(OSError, match="too many open files"):
        world.clean()
    assert (disk.opened - opened, world.files(".cleaned"), world.pairs()) == (set(), [], before)
    disk.refuses = False
    world.clean()
    assert world.keys() == ["a", "b"]
