"""Goal: whatever lies in one log's directory, the broker starts, and all other logs are served.

Method: a data directory with two logs is left by a crash, one of them is harmed, all are opened again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.broker import BrokerConfig
from storage import layout, recovery, sidecar, statistics
from storage.data_directory import DataDirectoryError
from storage.file import Disk
from storage.key_search import find_key
from storage.layout import TopicPartition
from storage.manager import LogManager
from storage.stored_batches import SCAN_BYTES
from tests.storage.builders import NOW_MS, batch, read_all, topic_config
from tests.storage.conftest import MakeLog

HARMED, OTHER = TopicPartition("harmed", 0), TopicPartition("other", 0)
RECORDS = 6
STATISTICS = layout.segment_file_name(0, layout.STATISTICS_SUFFIX)
HORIZON_COUNT_AT = sidecar._HEAD.size + 4 * 8 + 2 * 4 + 8 * 8
SKETCH_BYTES_AT = HORIZON_COUNT_AT + 4


def manager(directory: Path, *others: Path) -> LogManager:
    return LogManager([directory, *others], BrokerConfig(), lambda: NOW_MS)


def write_logs(directory: Path, *logs: TopicPartition) -> None:
    """Two segments each, then a crash."""
    logs_of = manager(directory)
    for topic_partition in logs:
        log = logs_of.open_log(topic_partition, topic_config())
        for number in range(RECORDS):
            if number == RECORDS - 1:
                log.roll(NOW_MS)
            log.append(batch(b"v", key=b"k"), now_ms=NOW_MS)
        log.flush()
        statistics.ensure(log.segments[0])
    logs_of.abandon()


def opened(directory: Path) -> LogManager:
    found = manager(directory)
    found.open_all(lambda topic: topic_config(), threads=1)
    return found


def flip_in_statistics(directory: Path, position: int, bit: int) -> None:
    path = directory / STATISTICS
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("position", [HORIZON_COUNT_AT, SKETCH_BYTES_AT], ids=["horizons", "sketch"])
@pytest.mark.parametrize("bit", range(8))
def test_sizes_in_a_damaged_statistics_file_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int, bit: int
) -> None:
    write_logs(tmp_path, HARMED)
    flip_in_statistics(tmp_path / str(HARMED), position, bit)
    largest = 0
    pread = Disk.pread

    def watch(self: Disk, descriptor: int, size: int, position: int) -> bytes:
        nonlocal largest
        largest = max(largest, size)
        return pread(self, descriptor, size, position)

    monkeypatch.setattr(Disk, "pread", watch)
    logs = opened(tmp_path)
    log = logs.logs[HARMED]
    assert len(list(read_all(log, 0))) == RECORDS
    assert find_key(log, b"k").versions[0].offset == RECORDS - 1
    assert largest <= SCAN_BYTES
    logs.close()


@pytest.mark.parametrize(
    "name",
    [
        "99999999999999999999.log",
        "99999999999999999999.log.swap",
        "99999999999999999999.snapshot",
        f"{2**63}.index".rjust(26, "0"),
    ],
)
def test_t182_a_name_with_an_offset_that_cannot_be_is_foreign(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_logs(tmp_path, HARMED, OTHER)
    path = tmp_path / str(HARMED) / name
    path.write_bytes(b"")
    logs = opened(tmp_path)
    assert [log.offline_reason for log in logs.logs.values()] == [None, None]
    assert len(list(read_all(logs.logs[HARMED], 0))) == RECORDS
    assert path.exists(), "what is not ours stays"
    assert f"{name} is unknown and left alone" in caplog.text
    logs.close()


def test_a_deleted_directory_that_goes_while_they_are_listed_is_not_called_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its removal is a thread's work; played by a link to nothing."""
    write_logs(tmp_path, HARMED)
    (tmp_path / f"t-0.{'0' * 32}-delete").symlink_to("gone")
    logs = opened(tmp_path)
    assert logs.directories[0].partitions() == [HARMED]
    logs.close()
    assert "left alone" not in caplog.text


@pytest.mark.parametrize(
    "error", [MemoryError(), OverflowError("too large"), KeyError("x"), OSError(5, "I/O")]
)
def test_one_log_that_cannot_be_opened_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    write_logs(tmp_path, HARMED, OTHER)
    load = recovery.load

    def fail(request: recovery.LoadRequest) -> recovery.LoadedLog:
        if request.directory.name == str(HARMED):
            raise error
        return load(request)

    monkeypatch.setattr(recovery, "load", fail)
    logs = opened(tmp_path)
    assert "could not be opened" in (logs.logs[HARMED].offline_reason or "")
    assert len(list(read_all(logs.logs[OTHER], 0))) == RECORDS
    logs.close()


def test_a_partition_in_two_directories_is_served_from_neither(tmp_path: Path) -> None:
    """As Kafka: whichever was taken, the records of the other would be gone without a word."""
    first, second = tmp_path / "first", tmp_path / "second"
    write_logs(first, HARMED, OTHER)
    write_logs(second, HARMED)
    (second / layout.META_PROPERTIES).unlink()
    with pytest.raises(DataDirectoryError, match=rf"harmed-0 in {second} is in another data directory"):
        manager(first, second)
    (second / str(HARMED)).rename(tmp_path / "out of the way")
    manager(first, second).close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_log_that_is_shorter_than_it_was_says_so(
    tmp_path: Path, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Where its last file ends with a whole batch nothing else tells that acknowledged records are gone."""
    write_logs(tmp_path, HARMED, OTHER)
    found = opened(tmp_path)
    last = found.logs[HARMED].active_segment
    size = len(batch(b"v", key=b"k"))
    found.logs[HARMED].append(batch(b"v", key=b"k"), now_ms=NOW_MS)
    found.close()
    assert last.file.path.stat().st_size == 2 * size
    os.truncate(last.file.path, size)
    if not is_clean:
        (tmp_path / layout.CLEAN_SHUTDOWN).unlink()
    caplog.clear()
    found = opened(tmp_path)
    told = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 1
    assert told[0].startswith(f"{HARMED} ends at {RECORDS}, and ended at {RECORDS + 1} or behind")
    assert len(list(read_all(found.logs[HARMED], 0))) == RECORDS
    found.close()


def test_a_closed_segment_that_is_shorter_than_its_index_says_so(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(batch())
    log = make_log(segment_bytes=20 * size, index_interval_bytes=3 * size)
    log.fill(50)
    path = log.log.segments[1].file.path
    log.log.close()
    os.truncate(path, 5 * size)
    log.open(is_clean=True)
    assert log.offsets() == [*range(25), *range(40, 50)]
    told = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 1
    assert told[0].startswith(f"{path} ends at {5 * size}, and its index goes on to ")
    assert "before 40 are lost" in told[0]
    assert log.log.health.damaged_places == 1
