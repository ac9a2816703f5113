"""Goal: a partition that moves to another data directory has every record and everything that is known of
them, in one directory, wherever a crash, a power cut or an error meets the move.

Method: two data directories; a log with closed segments, transactions and a start behind its first offset is
copied in rounds while it grows, and its copy takes its place. Then the same with a disk that ends the
process, loses what was not synced, or fails, at each of its calls; what a start finds is compared.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.broker import BrokerConfig
from protocol.control import Marker, marker_batch
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record
from storage import layout
from storage.checkpoint import OffsetCheckpoint, read_topic_id
from storage.data_directory import DataDirectoryError
from storage.file import SYSTEM_DISK, Disk
from storage.layout import TopicPartition
from storage.log import Log
from storage.log_copy import Extents, LogCopy
from storage.manager import LogManager
from storage.moving import LogMover
from storage.producer_state import ProducerStateManager
from storage.types import Origin
from storage.verify import verify_data_directory
from tests.cleaner.survival import FragileDisk
from tests.storage.builders import NOW_MS, batch, read_all, topic_config
from tests.storage.faults import Crash

KEY = TopicPartition("orders", 3)
CONFIG = topic_config(segment_bytes=600, cleanup_policy="delete", retention_ms=-1, retention_bytes=-1)
FUTURE = "orders-3.0123456789abcdef0123456789abcdef-future"


class House:
    """A manager of two data directories; the log of orders-3 begins in the first."""

    def __init__(self, root: Path, disk: Disk = SYSTEM_DISK) -> None:
        self.paths = [root / "a", root / "b"]
        self.disk = disk
        self.start()

    def start(self) -> None:
        self.manager = LogManager(self.paths, BrokerConfig(), lambda: NOW_MS, self.disk)
        self.manager.open_all(lambda topic: CONFIG, 1)
        self.log = self.manager.open_log(KEY, CONFIG)
        self.mover = LogMover(self.manager)

    def places(self) -> list[Path]:
        return [path for path in self.paths if (path / str(KEY)).is_dir()]

    def write(self) -> None:
        """Aborted, committed and open transactions, records without, a start at offset 3, closed segments."""
        for number in range(4):
            self.append(b"a%d" % number, key=b"%d" % number)
        self.transaction(7, is_commit=False)
        self.transaction(8, is_commit=True)
        for number in range(8):
            self.append(b"b%d" % number, key=b"%d" % number)
        self.append(b"open", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
        self.log.flush()
        self.log.delete_records(3)

    def append(self, value: bytes, *, key: bytes = b"k", **fields: int) -> None:
        self.log.append(batch(value, key=key, **fields), now_ms=NOW_MS)

    def transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.append(
            b"t%d" % producer_id,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        marker = marker_batch(Marker(is_commit), producer_id=producer_id, producer_epoch=0, now_ms=NOW_MS)
        self.log.append(marker, now_ms=NOW_MS, origin=Origin.COORDINATOR)

    def copy(self) -> LogCopy:
        """In two rounds, between which the log grows."""
        target = self.paths[1] / FUTURE
        self.mover.prepare(self.log, target)
        copy = self.mover.begin(self.log, target)
        copy.catch_up(Extents.of(self.log))
        self.append(b"between")
        copy.catch_up(Extents.of(self.log))
        self.append(b"last")
        return copy

    def exchange(self, copy: LogCopy) -> None:
        old = self.log
        old.hold()
        try:
            self.log = self.mover.finish(old, copy)
        except OSError:
            old.hold(False)
            raise
        self.manager.take_away(old)
        self.mover.end(old, self.log)

    def move(self) -> None:
        self.exchange(self.copy())


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.manager.close()


def test_how_far_it_was_compacted_comes_along(house: House) -> None:
    house.write()
    house.log.keep_compacted_to(4)
    house.move()
    house.manager.close()
    house.start()
    assert (house.places(), house.log.compacted_to) == ([house.paths[1]], 4)


def test_a_move_that_fails_by_a_mistake_leaves_no_log_open(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.write()
    copy, abandoned, abandon = house.copy(), [], Log.abandon

    def noted(log: Log) -> None:
        abandoned.append(log)
        abandon(log)

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake")

    with monkeypatch.context() as patches:
        patches.setattr(Log, "abandon", noted)
        patches.setattr(ProducerStateManager, "restore", fail)
        house.log.hold()
        with pytest.raises(RuntimeError):
            house.mover.finish(house.log, copy)
    assert [log.directory for log in abandoned] == [copy.directory]
    house.log.hold(False)
    house.append(b"after")


def known_of(log: Log) -> tuple[object, ...]:
    """What clients can find out."""
    return (
        records_of(log),
        log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset,
        log.aborted_transactions(0, log.log_end_offset),
        log.producers.open_transactions(),
        sorted(log.producers.producers),
        log.leader_epochs.entries, log.leader_epoch, log.topic_id,
        [(one.base_offset, one.size_bytes, one.largest_timestamp) for one in log.segments],
        log.offset_for_timestamp(NOW_MS), log.max_timestamp_offset(),
    )  # fmt: skip


def records_of(log: Log) -> list[Record]:
    return list(read_all(log, log.log_start_offset))


def test_what_is_known_of_a_log_comes_along(house: House) -> None:
    house.write()
    copy = house.copy()
    house.log.flush()
    before = known_of(house.log)
    old = house.log
    house.exchange(copy)
    assert house.log is not old
    assert known_of(house.log) == before
    assert house.places() == [house.paths[1]]
    assert house.manager.logs[KEY] is house.log
    assert [directory.log_count for directory in house.manager.directories] == [0, 1]
    house.append(b"after")
    house.manager.close()
    assert OffsetCheckpoint(house.paths[1] / layout.LOG_START_CHECKPOINT).read() == {KEY: 3}
    assert OffsetCheckpoint(house.paths[0] / layout.RECOVERY_POINT_CHECKPOINT).read() == {}
    for path in house.paths:
        assert verify_data_directory(path) == []
    house.start()
    assert records_of(house.log)[-1].value == b"after"
    assert house.log.log_start_offset == 3


def test_retries_of_any_of_the_last_five_batches_are_known(house: House) -> None:
    """A snapshot has the last of each producer; what a producer has on its way may be five."""
    sent: list[dict[str, int]] = [
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": number} for number in range(5)
    ]
    for fields in sent[:3]:
        house.append(b"idempotent", **fields)
    copy = house.copy()
    for fields in sent[3:]:
        house.append(b"idempotent", **fields)
    house.exchange(copy)
    end = house.log.log_end_offset
    answers = [house.log.append(batch(b"idempotent", key=b"k", **fields), now_ms=NOW_MS) for fields in sent]
    assert [one.base_offset for one in answers] == [0, 1, 2, 5, 6]
    assert house.log.log_end_offset == end


def test_a_held_log_takes_nothing_and_answers_readers(house: House) -> None:
    house.write()
    house.log.flush()
    records = records_of(house.log)
    house.log.hold()
    for refused in (
        lambda: house.append(b"x"),
        lambda: house.log.roll(NOW_MS),
        lambda: house.log.delete_records(5),
    ):
        with pytest.raises(KafkaError) as raised:
            refused()
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert house.log.expire(NOW_MS).removed_segments == 0
    assert records_of(house.log) == records
    house.log.hold(False)
    house.append(b"x")


def test_who_reads_the_old_files_may_end(house: House) -> None:
    house.write()
    slice_ = house.log.read(3, 4096, upper_offset=house.log.log_end_offset)
    data = slice_.read()
    house.move()
    assert slice_.read() == data


def test_what_retention_takes_meanwhile_does_not_stay_in_the_copy(house: House) -> None:
    house.write()
    copy = house.copy()
    first, second, *_ = house.log.segments
    house.log.delete_records(second.next_offset)
    house.log.expire(NOW_MS).run()
    assert house.log.segments[0].base_offset > second.base_offset > first.base_offset
    house.exchange(copy)
    assert house.log.log_start_offset == second.next_offset
    names = sorted(path.name for path in house.log.directory.iterdir())
    assert not [name for name in names if name.startswith(f"{second.base_offset:020d}.log")]
    assert copy.copied_bytes == house.log.size_bytes


def test_preallocated_room_is_not_copied(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.log.update_config(topic_config(segment_bytes=1 << 20, preallocate=True))
    house.append(b"a")
    house.log.roll(NOW_MS)
    house.append(b"b")
    copy = house.copy()
    assert copy.copied_bytes < 1000
    house.exchange(copy)
    assert [one.value for one in records_of(house.log)] == [b"a", b"b", b"between", b"last"]
    house.manager.close()


def test_age_of_records_without_timestamps_comes_along(house: House) -> None:
    for number in range(2):
        house.append(b"%d" % number, timestamp=-1)
        house.log.roll(NOW_MS)
    old = house.log.segments[0]
    os.utime(old.file.path, ns=(5 * 10**9, 5 * 10**9))
    house.move()
    assert house.log.segments[0].last_modified_ms == 5_000


def test_an_unfinished_copy_is_begun_anew(house: House) -> None:
    house.write()
    copy = house.copy()
    (copy.directory / "00000000000000009999.log").write_bytes(b"of an earlier broker")
    again = house.mover.begin(house.log, copy.directory)
    assert [path.name for path in copy.directory.iterdir()] == [layout.PARTITION_METADATA]
    assert read_topic_id(SYSTEM_DISK, copy.directory) == house.log.topic_id
    again.catch_up(Extents.of(house.log))
    records = records_of(house.log)
    house.exchange(again)
    assert records_of(house.log) == records


def test_a_start_knows_of_copies_in_the_making(house: House, caplog: pytest.LogCaptureFixture) -> None:
    house.write()
    house.copy()
    house.manager.close()
    with caplog.at_level(logging.WARNING):
        house.start()
    assert not caplog.records
    assert house.places() == [house.paths[0]]
    assert house.manager.directories[1].futures() == [(KEY, house.paths[1] / FUTURE)]
    house.mover.discard(house.paths[1] / FUTURE)
    assert house.manager.directories[1].futures() == []


def _moving(root: Path) -> tuple[FragileDisk, House, list[Record]]:
    root.mkdir()
    disk = FragileDisk(root / "attic")
    house = House(root, disk)
    house.write()
    house.log.flush()
    house.manager.checkpoint()
    return disk, house, records_of(house.log)


def _calls(root: Path) -> range:
    """Those of a move, counted in one that nothing disturbs."""
    disk, house, _ = _moving(root)
    before = len(disk.calls)
    house.move()
    house.manager.close()
    return range(before, len(disk.calls))


@pytest.mark.parametrize("loses_unsynced", [False, True], ids=["crash", "power cut"])
def test_no_crash_loses_or_doubles_a_partition(tmp_path: Path, loses_unsynced: bool) -> None:
    calls = _calls(tmp_path / "counted")
    places = set()
    for number in calls:
        root = tmp_path / str(number)
        disk, house, safe = _moving(root)
        disk.crash_at = number
        with pytest.raises(Crash):
            house.move()
            house.manager.close()
        disk.bury()
        house.manager.abandon()
        if loses_unsynced:
            disk.power_cut(root)
        house.disk = SYSTEM_DISK
        house.start()
        assert records_of(house.log)[: len(safe)] == safe, number
        assert {one.value for one in records_of(house.log)[len(safe) :]} <= {b"between", b"last"}
        (place,) = house.places()
        places.add(place.name)
        house.append(b"after")
        house.manager.close()
        house.start()
        assert house.places() == [place]
        assert records_of(house.log)[-1].value == b"after"
        house.manager.deleted.remove()
        house.manager.close()
        for path in house.paths:
            assert verify_data_directory(path) == [], number
    assert places == {"a", "b"}


def test_no_error_loses_or_doubles_a_partition(tmp_path: Path) -> None:
    calls = _calls(tmp_path / "counted")
    places = set()
    for number in calls:
        disk, house, safe = _moving(tmp_path / str(number))
        disk.error_at[number] = errno.EIO
        with contextlib.suppress(OSError, KafkaError):
            house.move()
        with contextlib.suppress(OSError, KafkaError):
            house.append(b"after")
            house.log.flush()
            safe = records_of(house.log)
        house.manager.close()
        house.disk = SYSTEM_DISK
        house.start()
        found = records_of(house.log)
        assert found[: len(safe)] == safe, number
        (place,) = house.places()
        places.add(place.name)
        house.manager.close()
    assert places == {"a", "b"}


@pytest.mark.parametrize("grows", [False, True])
def test_of_two_directories_the_moved_one_counts_unless_the_other_grew(tmp_path: Path, grows: bool) -> None:
    """The crash between the two renames; then a start without the second disk."""
    house = House(tmp_path)
    house.write()
    copy = house.copy()
    house.log.hold()
    moved = house.mover.finish(house.log, copy)
    records = records_of(moved)
    moved.abandon()
    house.manager.abandon()
    assert house.places() == house.paths
    if grows:
        away = tmp_path / "away"
        house.paths[1].rename(away)
        alone = LogManager(house.paths[:1], BrokerConfig(), lambda: NOW_MS, SYSTEM_DISK)
        alone.open_all(lambda topic: CONFIG, 1)
        alone.logs[KEY].append(batch(b"newer"), now_ms=NOW_MS)
        alone.close()
        away.rename(house.paths[1])
        with pytest.raises(DataDirectoryError, match="is in another data directory as well"):
            house.start()
    else:
        house.start()
        assert house.places() == [house.paths[1]]
        assert records_of(house.log) == records
        house.manager.close()
