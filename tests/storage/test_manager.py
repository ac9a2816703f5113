"""Goal: a data directory belongs to one broker at a time, opens fast after a clean stop, and whole after
any other.

Method: managers on temporary directories, one after the other and side by side; the small files are
read as Kafka would read them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import itertools
import logging
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.broker import BrokerConfig
from config.topic import TopicConfig
from protocol.errors import ErrorCode, KafkaError
from storage import layout, recovery
from storage.checkpoint import (
    CheckpointWitness,
    OffsetCheckpoint,
    decode_uuid,
    parse_offsets,
    read_properties,
)
from storage.data_directory import DataDirectoryError
from storage.file import SYSTEM_DISK, Disk
from storage.layout import TopicPartition
from storage.log import Log
from storage.manager import LogManager
from storage.opening import open_log
from storage.verify import verify_data_directory
from tests.storage.builders import LATER_MS, NOW_MS, batch, topic_config
from tests.storage.faults import Crash, FaultyDisk

SIZE = len(batch())
ORDERS = [TopicPartition("orders", number) for number in range(3)]


class Managers:
    """Makes managers one after the other on the same directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_ms = NOW_MS
        self.topic_config = topic_config(segment_bytes=4 * SIZE)
        self.made: list[LogManager] = []

    def start(self, *names: str, open_all: bool = True, **config: Any) -> LogManager:
        paths = [self.root / name for name in names or ("data",)]
        manager = LogManager(paths, dataclasses.replace(BrokerConfig(), **config), lambda: self.now_ms)
        self.made.append(manager)
        if open_all:
            manager.open_all(lambda topic: self.topic_config, 2)
        return manager

    def create(self, manager: LogManager, topic_partition: TopicPartition, records: int = 10) -> Log:
        log = manager.create(topic_partition, uuid.uuid4(), self.topic_config)
        for _ in range(records):
            log.append(batch(), now_ms=self.now_ms)
        return log


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[Managers]:
    made = Managers(tmp_path)
    yield made
    for manager in made.made:
        manager.abandon()
    for directory in tmp_path.iterdir():
        if directory.is_dir():
            assert verify_data_directory(directory) == []


@pytest.mark.parametrize("mark", ['{"version":0,"brokerEpoch":17}', ""], ids=["4.x", "before 3.7"])
def test_what_a_kafka_has_left_begins_another_leader_epoch(managers: Managers, mark: str) -> None:
    """By its stop the epoch rises, and clients may know. Once: afterwards it is ours."""
    manager = managers.start()
    managers.create(manager, ORDERS[0]).flush()
    manager.close()
    (managers.root / "data" / layout.CLEAN_SHUTDOWN).write_text(mark)
    for _ in range(3):
        manager = managers.start()
        assert manager.logs[ORDERS[0]].leader_epoch == 1
        assert manager.logs[ORDERS[0]].end_offset_for_epoch(0) == (0, 10)
        assert manager.logs[ORDERS[0]].end_offset_for_epoch(1) == (1, 10)
        if ORDERS[1] not in manager.logs:
            managers.create(manager, ORDERS[1])
        assert manager.logs[ORDERS[1]].leader_epoch == 0, "no Kafka knows it"
        manager.close()


def test_a_mark_that_nobody_can_read_holds_no_start_up(managers: Managers) -> None:
    """A FIFO has no end to read to."""
    manager = managers.start()
    managers.create(manager, ORDERS[0]).flush()
    manager.close()
    mark = managers.root / "data" / layout.CLEAN_SHUTDOWN
    mark.unlink()
    os.mkfifo(mark)
    manager = managers.start()
    assert manager.logs[ORDERS[0]].leader_epoch == 0
    manager.close()


def test_t181_a_second_broker_on_the_directory_is_refused(managers: Managers) -> None:
    first = managers.start()
    with pytest.raises(DataDirectoryError, match="in use"):
        managers.start()
    program = (
        "import pathlib, sys\n"
        "from config.broker import BrokerConfig\n"
        "from storage.data_directory import DataDirectoryError\n"
        "from storage.manager import LogManager\n"
        "try:\n"
        "    LogManager([pathlib.Path(sys.argv[1])], BrokerConfig(), lambda: 0)\n"
        "except DataDirectoryError as error:\n"
        "    print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(managers.root / "data")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "is in use by another broker" in told.stdout
    first.close()
    managers.start()


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_a_file_system_without_locks_is_not_another_broker(
    managers: Managers, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, call, refuse)
    with pytest.raises(DataDirectoryError, match=r"cannot be used as a data directory: .*No locks available"):
        managers.start()


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_limit_of_threads_costs_no_clean_stop(
    managers: Managers, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """Of a container or a service: what closes and recovers logs makes do with the threads there are."""
    manager = managers.start()
    for number in range(20):
        managers.create(manager, TopicPartition(f"many-{number}", 0))
    left = threads
    start = threading.Thread.start

    def start_some(thread: threading.Thread) -> None:
        nonlocal left
        if not left:
            raise RuntimeError("can't start new thread")
        left -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    manager.abandon()
    again = managers.start()
    assert len([log for log in again.logs.values() if log.offline_reason is None]) == 20
    left = threads
    again.close()
    assert (managers.root / "data" / layout.CLEAN_SHUTDOWN).exists()


def test_s25_one_directory_a_partition(managers: Managers) -> None:
    manager = managers.start()
    for topic_partition in ORDERS:
        managers.create(manager, topic_partition)
    manager.close()
    names = {path.name for path in (managers.root / "data").iterdir() if path.is_dir()}
    assert names == {"orders-0", "orders-1", "orders-2"}


def test_t167_s39_a_clean_stop_is_marked_and_the_mark_is_used_once(
    managers: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managers.start()
    ids = {tp: managers.create(manager, tp).topic_id for tp in ORDERS}
    manager.close()
    marker = managers.root / "data" / layout.CLEAN_SHUTDOWN
    assert marker.exists()
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "recover_segment", None)
        manager = managers.start()
    assert not marker.exists()
    assert {tp: log.topic_id for tp, log in manager.logs.items()} == ids
    assert all(log.log_end_offset == 10 for log in manager.logs.values())
    manager.abandon()
    manager = managers.start()
    assert not manager.was_clean
    assert manager.segments_recovered > 0
    assert all(log.log_end_offset == 10 for log in manager.logs.values())


def test_t183_recovery_tells_how_far_it_is(managers: Managers) -> None:
    manager = managers.start()
    for tp in ORDERS:
        managers.create(manager, tp)
    manager.abandon()
    manager = managers.start()
    assert (manager.logs_to_recover, manager.segments_recovered) == (0, 9)


def test_t183_what_is_left_falls_to_nothing(managers: Managers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that still have to be opened, and segments of those that are being opened."""
    manager = managers.start()
    for tp in ORDERS:
        managers.create(manager, tp)
    manager.abandon()
    seen: list[tuple[int, int, int]] = []
    recover = recovery.recover_segment

    def watched(*arguments: Any) -> bool:
        seen.append((manager.logs_to_recover, manager.segments_to_recover, manager.segments_recovered))
        return recover(*arguments)

    monkeypatch.setattr(recovery, "recover_segment", watched)
    manager = managers.start(open_all=False)
    manager.open_all(lambda topic: managers.topic_config, 1)
    logs, left, done = zip(*seen, strict=True)
    assert logs == (3, 3, 3, 2, 2, 2, 1, 1, 1)
    assert left == (3, 2, 1, 3, 2, 1, 3, 2, 1)
    assert done == tuple(range(9))
    assert (manager.logs_to_recover, manager.segments_to_recover, manager.segments_recovered) == (0, 0, 9)


def test_an_aborted_start_does_not_count_as_a_clean_stop(managers: Managers) -> None:
    manager = managers.start()
    managers.create(manager, ORDERS[0])
    managers.create(manager, ORDERS[1]).delete_records(0)
    manager.abandon()
    manager = managers.start(open_all=False)
    manager.open_log(ORDERS[0], managers.topic_config)
    manager.close()
    manager = managers.start(open_all=False)
    assert not manager.was_clean


def test_t142_the_log_start_survives(managers: Managers) -> None:
    manager = managers.start()
    log = managers.create(manager, ORDERS[0])
    log.flush()
    log.delete_records(6)
    manager.checkpoint()
    text = (managers.root / "data" / layout.LOG_START_CHECKPOINT).read_text()
    assert text == "0\n1\norders 0 6\n"
    manager.abandon()
    manager = managers.start(open_all=False)
    manager.close()
    manager = managers.start()
    assert manager.logs[ORDERS[0]].log_start_offset == 6


def test_recovery_points_are_written(managers: Managers) -> None:
    manager = managers.start()
    managers.create(manager, ORDERS[0]).flush()
    managers.create(manager, ORDERS[1])
    manager.checkpoint()
    text = (managers.root / "data" / layout.RECOVERY_POINT_CHECKPOINT).read_text()
    assert text == "0\n2\norders 0 10\norders 1 0\n"


def test_t122_a_deleted_partition_is_renamed_and_then_removed(managers: Managers) -> None:
    manager = managers.start()
    log = managers.create(manager, ORDERS[0])
    log.flush()
    held = log.read(0, 100, upper_offset=10)
    manager.delete(ORDERS[0])
    (path,) = [path for path in (managers.root / "data").iterdir() if path.is_dir()]
    assert layout.is_deleted_directory(path.name)
    assert path.name.startswith("orders-0.")
    assert held.read(), "who held a slice may finish"
    again = managers.create(manager, ORDERS[0], 0)
    assert again.log_end_offset == 0
    assert manager.deleted.remove() == 1
    assert not path.exists()


def test_one_thread_removes_and_what_comes_meanwhile_waits_for_the_next_turn(managers: Managers) -> None:
    """A removal takes its time, and shall not keep all I/O threads."""
    manager = managers.start()
    for topic_partition in ORDERS[:2]:
        managers.create(manager, topic_partition)
    found: list[int] = []

    class Disturbed(Disk):
        def remove_tree(self, path: Path) -> None:
            if not found:
                manager.delete(ORDERS[1])
                found.append(manager.deleted.remove())
            super().remove_tree(path)

    manager.deleted._disk = Disturbed()
    manager.delete(ORDERS[0])
    assert manager.deleted.remove() == 1
    assert found == [0]
    assert manager.deleted.remove() == 1


def test_t122_what_retention_took_from_a_deleted_partition_goes_with_it(managers: Managers) -> None:
    """By its name in a directory that is gone, it could be another file in a new one."""
    manager = managers.start()
    log = managers.create(manager, ORDERS[0])
    log.flush()
    log.delete_records(9)
    log.expire(NOW_MS).run()
    assert list(log.directory.glob("*.deleted"))
    manager.delete(ORDERS[0])
    assert manager.removals.run(LATER_MS) == 0


def test_t122_a_removal_that_a_stop_interrupted_goes_on(managers: Managers) -> None:
    manager = managers.start()
    managers.create(manager, ORDERS[0])
    manager.delete(ORDERS[0])
    manager.close()
    manager = managers.start()
    assert manager.logs == {}
    assert manager.deleted.remove() == 1
    assert not [path for path in (managers.root / "data").iterdir() if path.is_dir()]


def test_t182_strange_things_are_left_alone_and_named(
    managers: Managers, caplog: pytest.LogCaptureFixture
) -> None:
    data = managers.root / "data"
    for name in ("lost+found", "x" * 30, "backup"):
        (data / name).mkdir(parents=True)
    (data / "__cluster_metadata-0").mkdir()
    (data / "notes").write_text("mine")
    (data / f"{layout.RECOVERY_POINT_CHECKPOINT}.tmp").write_text("0\n")  # a kill has left it
    with caplog.at_level(logging.WARNING):
        manager = managers.start()
    assert manager.logs == {}
    manager.close()
    assert (data / "notes").read_text() == "mine"
    assert (data / "lost+found").is_dir()
    assert "lost+found" not in caplog.text  # the top of a volume has one
    for told in ("backup is no partition", "notes is unknown"):
        assert caplog.text.count(told) == 1
    assert "checkpoint.tmp" not in caplog.text


def test_partitions_are_spread_over_directories(managers: Managers) -> None:
    manager = managers.start("one", "two")
    for number in range(6):
        managers.create(manager, TopicPartition("orders", number), 1)
    for name in ("one", "two"):
        assert len([path for path in (managers.root / name).iterdir() if path.is_dir()]) == 3
    found = [
        read_properties(SYSTEM_DISK, managers.root / name / "meta.properties") for name in ("one", "two")
    ]
    ids = {properties and properties["cluster.id"] for properties in found}
    assert ids == {manager.cluster_id}
    manager.close()
    assert len(managers.start("one", "two").logs) == 6


def test_meta_properties_are_kafkas(managers: Managers) -> None:
    manager = managers.start(node_id=5)
    found = read_properties(SYSTEM_DISK, managers.root / "data" / "meta.properties")
    assert found is not None
    assert found["version"] == "1"
    assert found["node.id"] == "5"
    assert found["cluster.id"] == manager.cluster_id
    assert len(manager.cluster_id) == 22
    decode_uuid(found["directory.id"])
    manager.close()
    path = managers.root / "data" / "meta.properties"
    path.write_text(path.read_text().replace("\n", "\n\nno pair\n ! no=pair\n"))
    assert read_properties(SYSTEM_DISK, path) == found, "an administrator may have written to it"
    assert managers.start(node_id=5).cluster_id == manager.cluster_id
    managers.made[-1].close()
    with pytest.raises(DataDirectoryError, match=r"node\.id"):
        managers.start(node_id=6)


def test_a_create_that_exists_is_refused(managers: Managers) -> None:
    manager = managers.start()
    managers.create(manager, ORDERS[0])
    with pytest.raises(FileExistsError):
        managers.create(manager, ORDERS[0])


def test_a_log_that_cannot_be_opened_stops_nobody_else(
    managers: Managers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = managers.start()
    for tp in ORDERS:
        managers.create(manager, tp)
    manager.close()

    def failing(directory: Path, tp: TopicPartition, *rest: Any, **more: Any) -> Log:
        if tp == ORDERS[1]:
            raise OSError(5, "Input/output error")
        return open_log(directory, tp, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr("storage.manager.open_log", failing)
        manager = managers.start()
    assert set(manager.logs) == set(ORDERS)
    failed = manager.logs[ORDERS[1]]
    assert failed.offline_reason is not None
    assert "Input/output error" in failed.offline_reason
    for refused in (
        lambda: failed.append(batch(), now_ms=NOW_MS),
        lambda: failed.read(0, 100, upper_offset=0),
        lambda: failed.roll(NOW_MS),
    ):
        with pytest.raises(KafkaError) as caught:
            refused()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failed.begin_flush() is None
    assert failed.expire(NOW_MS).removed_segments == 0
    assert manager.logs[ORDERS[0]].append(batch(), now_ms=NOW_MS).base_offset == 10
    manager.checkpoint()
    manager.close()
    manager = managers.start()
    assert {tp: log.log_end_offset for tp, log in manager.logs.items()} == dict(
        zip(ORDERS, (11, 10, 10), strict=True)
    )


def test_t180_damaged_checkpoints_are_empty_ones(managers: Managers, tmp_path: Path) -> None:
    manager = managers.start()
    managers.create(manager, ORDERS[0])
    manager.close()
    for damage in (b"", b"\xff\xfe", b"1\n0\n", b"0\n3\norders 0 5\n", b"0\n1\norders zero 5\n", b"0\n"):
        for name in (
            layout.RECOVERY_POINT_CHECKPOINT,
            layout.LOG_START_CHECKPOINT,
            layout.CLEANER_CHECKPOINT,
        ):
            (managers.root / "data" / name).write_bytes(damage)
        manager = managers.start()
        assert manager.logs[ORDERS[0]].log_end_offset == 10
        assert manager.directories[0].cleaner_checkpoint.read() == {}
        manager.directories[0].cleaner_checkpoint.write({})
        manager.directories[0].write_checkpoints(list(manager.logs.values()), set())
        manager.directories[0].log_start_checkpoint.write({})
        manager.close()


def test_checkpoint_files_are_kafkas(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(tmp_path / "cleaner-offset-checkpoint")
    assert checkpoint.read() == {}
    checkpoint.write({ORDERS[1]: 7, TopicPartition("a", 0): 3})
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n2\na 0 3\norders 1 7\n"
    assert checkpoint.read() == {ORDERS[1]: 7, TopicPartition("a", 0): 3}
    assert [path.name for path in tmp_path.iterdir()] == ["cleaner-offset-checkpoint"]


def test_a_crash_between_a_checkpoint_and_its_witness_leaves_one_of_the_two_states(tmp_path: Path) -> None:
    witness = tmp_path / layout.LOG_START_WITNESS
    for before, after in ((5, 7), (5, 1234)):  # "7" is "5" but for a bit
        for step in itertools.count():
            disk = FaultyDisk()
            checkpoint = OffsetCheckpoint(tmp_path / "starts", disk, CheckpointWitness(witness, disk))
            checkpoint.write({ORDERS[0]: before})
            disk.crash_at = len(disk.calls) + step
            with contextlib.suppress(Crash):
                checkpoint.write({ORDERS[0]: after})
            again = OffsetCheckpoint(tmp_path / "starts", witness=CheckpointWitness(witness))
            found = again.read()
            assert found in ({ORDERS[0]: before}, {ORDERS[0]: after}), f"step {step}"
            assert found == again.read() == parse_offsets((tmp_path / "starts").read_bytes())
            assert CheckpointWitness(witness).read() == (tmp_path / "starts").read_bytes()
            if not disk.is_dead:  # every step was tried
                break
        assert step >= 8, "two files are written"
        assert found == {ORDERS[0]: after}


def test_a_damaged_checkpoint_can_be_read_on_a_full_disk(tmp_path: Path) -> None:
    disk = FaultyDisk()
    witness = CheckpointWitness(tmp_path / layout.LOG_START_WITNESS, disk)
    checkpoint = OffsetCheckpoint(tmp_path / "starts", disk, witness)
    checkpoint.write({ORDERS[0]: 5})
    checkpoint.path.write_bytes(b"0\n1\norders 0 4\n")
    disk.room_bytes = 0
    assert checkpoint.read() == {ORDERS[0]: 5}
    disk.room_bytes = None
    assert checkpoint.read() == {ORDERS[0]: 5}
    assert checkpoint.path.read_bytes() == witness.read()


def test_checkpoints_may_be_written_while_logs_come_and_go(managers: Managers) -> None:
    manager = managers.start()
    stopping = threading.Event()
    problems: list[BaseException] = []

    def write() -> None:
        while not stopping.is_set():
            try:
                manager.checkpoint()
            except BaseException as problem:
                problems.append(problem)
                return

    thread = threading.Thread(target=write)
    thread.start()
    for number in range(30):
        managers.create(manager, TopicPartition("t", number), 1)
        if number % 3 == 0:
            manager.delete(TopicPartition("t", number))
    stopping.set()
    thread.join()
    assert problems == []
    manager.deleted.remove()


def test_the_defaults_of_a_topic_serve() -> None:
    assert TopicConfig().flush_messages == 1


def test_files_of_expired_segments_leave_the_disk(managers: Managers) -> None:
    """Also those of the very first log, which finds nothing waiting for its removal."""
    managers.topic_config = topic_config(segment_bytes=4 * SIZE, retention_bytes=8 * SIZE)
    manager = managers.start()
    log = managers.create(manager, ORDERS[0], 40)
    log.flush()
    expired = log.expire(NOW_MS)
    assert expired.removed_segments > 0
    expired.run()
    assert list(log.directory.glob("*.deleted"))
    managers.now_ms += log.config.file_delete_delay_ms
    assert manager.deleted.remove() == expired.removed_segments
    assert not list(log.directory.glob("*.deleted"))


@pytest.mark.parametrize("problem", [errno.ENOTEMPTY, errno.ENOENT])
def test_a_file_that_comes_or_goes_while_a_directory_is_removed(managers: Managers, problem: int) -> None:
    """The statistics of a segment may be written at that moment."""
    manager = managers.start()
    managers.create(manager, ORDERS[0])
    left = [OSError(problem, "once"), OSError(problem, "twice")]

    class Busy(Disk):
        def remove_tree(self, path: Path) -> None:
            if left:
                raise left.pop()
            super().remove_tree(path)

    manager.delete(ORDERS[0])
    manager.deleted._disk = Busy()
    assert manager.deleted.remove() == 1
    assert not list(managers.root.rglob("*-delete"))


def test_a_directory_with_a_log_that_went_offline_is_not_called_clean(managers: Managers) -> None:
    """What its last flush left unsure is to be read by the next start, as after a crash."""
    manager = managers.start()
    managers.create(manager, ORDERS[0])
    managers.create(manager, ORDERS[1]).take_offline("as a test says")
    manager.close()
    assert not (managers.root / "data" / layout.CLEAN_SHUTDOWN).exists()
    again = managers.start()
    assert not again.directories[0].was_clean
    assert again.logs[ORDERS[1]].offline_reason is None
    again.close()
    assert (managers.root / "data" / layout.CLEAN_SHUTDOWN).exists()


def test_a_start_finds_out_whether_the_kernel_tells_what_is_cached(
    managers: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a directory by a file that holds something: not before it is taken into the cluster."""
    looked_at: list[Path] = []
    monkeypatch.setattr("storage.manager.look_at_device", looked_at.append)
    manager = managers.start("a", "b")
    manager.admit_new_directories()
    assert looked_at == [one.path / layout.META_PROPERTIES for one in manager.directories]
    assert all(one.stat().st_size for one in looked_at)
