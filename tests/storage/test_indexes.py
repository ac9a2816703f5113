"""Goal: the indexes hold Kafka's entries, stay small, find what they should, and are never missed when
damaged.

Method: entries are compared with those worked out by hand; damaged and missing files are put in the way
of reads. The worked example of offset 1573 is built byte for byte.
"""

from __future__ import annotations

import errno
import random
import struct
from pathlib import Path

import pytest

from protocol.errors import KafkaError
from storage.file import SYSTEM_DISK
from storage.index import LOADED, BrokenIndex, OffsetIndex, TimeIndex, WouldBlock
from storage.segment import Segment
from tests.storage.builders import NOW_MS, LogBuilder, batch, entries_of
from tests.storage.conftest import MakeLog
from tests.storage.faults import FaultyDisk
from tests.storage.test_append import changed

INDEX_FILES = (".index", ".timeindex")


def offset_index(path: Path, base_offset: int, entries: list[tuple[int, int]]) -> OffsetIndex:
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    return OffsetIndex(SYSTEM_DISK, path, base_offset)


def test_s49_floor_of_an_entry_on_a_crafted_file(tmp_path: Path) -> None:
    """The walk-through: entries 0, 200, 400, 600; relative offset 573 finds 400 at 16200."""
    index = offset_index(tmp_path / "i.index", 1000, [(0, 0), (200, 8123), (400, 16200), (600, 24100)])
    assert index.floor(1573) == (1400, 16200)
    assert index.floor(1400) == (1400, 16200)
    assert index.floor(1399) == (1200, 8123)
    assert index.floor(9999) == (1600, 24100)
    assert index.floor(999) == (1000, 0)


def test_s46_to_s50_offset_1573(make_log: MakeLog) -> None:
    """S46, S47, S48, S50: segments 0, 1000, 2000; the scan starts at an index entry and ends at the
    record.
    """
    log = make_log()
    for _ in range(3):
        log.fill(1000)
        log.log.roll(NOW_MS)
    assert [segment.base_offset for segment in log.log.segments] == [0, 1000, 2000, 3000]
    segment = log.log.segments[1]
    offset, position = segment.offset_index.floor(1573)
    assert 1000 <= offset <= 1573
    found = segment.locate(1573)
    assert found is not None
    assert 0 <= found - position <= 4096 + 2 * len(batch())
    data = log.log.read(1573, 100, upper_offset=3000).read()
    assert struct.unpack_from(">q", data)[0] == 1573


def test_s42_s43_entries_are_sparse_and_kafkas(make_log: MakeLog) -> None:
    """An entry when more than the interval was written since the last: the last offset of the batch that
    begins there.
    """
    log = make_log(index_interval_bytes=1000)
    size = len(batch(b"a", b"b"))
    for number in range(100):
        log.append(b"a", b"b", timestamp=NOW_MS + number)
    expected, since = [], 0
    for number in range(100):
        if since > 1000:
            expected.append((2 * number + 1, number * size, NOW_MS + number))
            since = 0
        since += size
    index, time_index = log.log.active_segment.offset_index, log.log.active_segment.time_index
    assert entries_of(index) == [(offset, position) for offset, position, _ in expected]
    assert entries_of(time_index) == [(time, offset) for offset, _, time in expected]
    log.log.roll(NOW_MS)
    closed = log.log.segments[0]
    data = closed.offset_index.path.read_bytes()
    assert list(struct.iter_unpack(">ii", data)) == entries_of(index)
    assert entries_of(closed.time_index)[-1] == (NOW_MS + 99, 199), "the final entry is forced"
    assert len(data) < closed.size_bytes / 50


def test_s45_offsets_for_times(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=5000, index_interval_bytes=200)
    random_source = random.Random(5)
    times = [NOW_MS + random_source.randrange(100_000) for _ in range(300)]
    for time in times:
        log.append(timestamp=time)
    for restarted in (False, True):
        for wanted in [NOW_MS - 1, NOW_MS + 100_001, *random_source.sample(times, 50)]:
            expected = next((offset for offset, time in enumerate(times) if time >= wanted), None)
            found = log.log.offset_for_timestamp(wanted)
            assert (found.offset if found else None) == expected
            assert found is None or found.timestamp == times[found.offset]
        newest = log.log.max_timestamp_offset()
        assert newest is not None
        assert newest.offset == times.index(max(times))
        if not restarted:
            log.restart()


def test_by_time_inside_a_batch_and_behind_the_log_start(log: LogBuilder) -> None:
    from protocol.records import encode_batch

    data = encode_batch([(NOW_MS + n, b"k", b"v", ()) for n in (5, 1, 9, 3)], codec=3)
    log.log.append(data, now_ms=NOW_MS)
    log.log.flush()
    found = log.log.offset_for_timestamp(NOW_MS + 6)
    assert found is not None
    assert (found.offset, found.timestamp) == (2, NOW_MS + 9)
    log.log.delete_records(3)
    assert log.log.offset_for_timestamp(NOW_MS + 6) is None
    found = log.log.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.offset == 3
    newest = log.log.max_timestamp_offset()
    assert newest is not None
    assert (newest.offset, newest.timestamp) == (3, NOW_MS + 3)


def newest_from_each_start(log: LogBuilder) -> list[int | None]:
    """The offset of the newest record, with one record after the other deleted from the front."""
    found = []
    for start in range(6):
        log.log.delete_records(start)
        newest = log.log.max_timestamp_offset()
        found.append(newest and newest.offset)
    return found


def test_the_newest_record_that_is_left(make_log: MakeLog) -> None:
    """Apache Kafka 4.3.1, tried with these times, says 0 for each of the starts: a record that DeleteRecords
    took, which no fetch can have. Here it is one that can be read.
    """
    log = make_log(index_interval_bytes=1)
    for time in (9, 8, 1, 2, 7):
        log.append(timestamp=NOW_MS + time)
        if time == 2:
            log.log.roll(NOW_MS)
    log.log.flush()
    assert newest_from_each_start(log) == [0, 1, 4, 4, 4, None]
    log.log.delete_records(5)
    log.append(timestamp=-1)
    log.log.flush()
    assert log.log.max_timestamp_offset() is None


def test_the_newest_record_where_a_header_promises_a_newer_one(make_log: MakeLog) -> None:
    """As other software may have written a batch (an append would correct it): the answer comes, and is a
    record that is there.
    """
    log = make_log()
    log.append(timestamp=NOW_MS)
    log.log.roll(NOW_MS)
    log.append(timestamp=NOW_MS + 1)
    log.log.flush()
    log.is_damaged = True  # type: ignore[attr-defined]
    log.log.close()
    path = log.directory / f"{1:020d}.log"
    path.write_bytes(changed(path.read_bytes(), max_timestamp=NOW_MS + 77))
    log.open()
    newest = log.log.max_timestamp_offset()
    assert newest is not None
    assert (newest.offset, newest.timestamp) == (0, NOW_MS)


def test_by_time_a_segment_whose_newest_record_was_deleted_is_passed(log: LogBuilder) -> None:
    for time in (9, 1):
        log.append(timestamp=NOW_MS + time)
    log.log.roll(NOW_MS)
    log.append(timestamp=NOW_MS + 7)
    log.log.flush()
    log.log.delete_records(1)
    found = log.log.offset_for_timestamp(NOW_MS + 5)
    assert found is not None
    assert (found.offset, found.timestamp) == (2, NOW_MS + 7)


def test_the_newest_record_is_in_no_segment_that_was_deleted(make_log: MakeLog) -> None:
    """Whole segments below the log start stay until the next look at what has expired."""
    log = make_log()
    for time in (9, 8, 7):
        log.append(timestamp=NOW_MS + time)
        log.append(timestamp=NOW_MS + time - 1)
        log.log.roll(NOW_MS)
    log.log.flush()
    assert newest_from_each_start(log) == [0, 1, 2, 3, 4, 5]


def test_s44_any_offset_is_found(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=20_000, index_interval_bytes=500)
    for number in range(400):
        log.append(*[b"x" * (number % 37)] * (number % 5 + 1))
    end = log.log.log_end_offset
    for _ in range(2):
        for offset in random.Random(1).sample(range(end), 300):
            data = log.log.read(offset, 1, upper_offset=end).read()
            (base, delta) = struct.unpack_from(">q", data)[0], struct.unpack_from(">i", data, 23)[0]
            assert base <= offset <= base + delta
        log.restart()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", "both"])
@pytest.mark.parametrize("damage", [None, b"", b"\0", b"\x7f" * 240, b"\xff" * 48], ids=repr)
def test_t170_t172_damaged_or_missing_indexes_are_made_anew(
    make_log: MakeLog, is_clean: bool, suffix: str, damage: bytes | None
) -> None:
    log = make_log(segment_bytes=3000, index_interval_bytes=300)
    log.fill(100, step_ms=10)
    before = log.records()
    log.log.close()
    good = {name: (log.directory / name).read_bytes() for name in log.files()}
    for path in log.directory.iterdir():
        if path.suffix == suffix or (suffix == "both" and path.suffix in INDEX_FILES):
            path.unlink() if damage is None else path.write_bytes(damage)
    log.open(is_clean=is_clean)
    assert log.records() == before
    for number in (0, 17, 50, 99):
        found = log.log.offset_for_timestamp(NOW_MS + number * 10)
        assert found is not None
        assert found.offset == number
    log.log.close()
    if not is_clean:
        for name, data in good.items():
            assert (log.directory / name).read_bytes() == data
    log.open(is_clean=True)


def test_t171_an_orphan_index_is_removed(log: LogBuilder) -> None:
    log.fill(3)
    log.log.close()
    for suffix in (".index", ".timeindex", ".txnindex"):
        (log.directory / f"{77:020d}{suffix}").write_bytes(b"")
    log.open(is_clean=True)
    assert not [name for name in log.files() if "77." in name]


def test_closed_indexes_leave_memory_when_the_budget_is_spent(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOADED, "budget_bytes", 100)
    log = make_log(segment_bytes=2000, index_interval_bytes=100)
    log.fill(300)
    assert log.offsets() == list(range(300))
    assert LOADED.used_bytes <= 100 + 2000 * 8 // 70


BROKEN_ENTRIES = {
    "offsets": [(0, 0), (5, 100), (5, 200)],
    "positions": [(0, 0), (5, 200), (9, 200)],
    "an offset below zero": [(-1, 0), (5, 100)],
    "a position below zero": [(0, -1), (5, 100)],
}


@pytest.mark.parametrize("what", BROKEN_ENTRIES)
def test_an_offset_index_that_does_not_ascend_is_refused(tmp_path: Path, what: str) -> None:
    index = offset_index(tmp_path / "i.index", 1000, BROKEN_ENTRIES[what])
    with pytest.raises(BrokenIndex):
        index.floor(1003)


def test_a_time_index_whose_offsets_go_back_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.timeindex"
    path.write_bytes(struct.pack(">qiqiqi", 5, 1, 7, 9, 9, 8))
    with pytest.raises(BrokenIndex):
        TimeIndex(SYSTEM_DISK, path, 100).floor(8)
    path.write_bytes(struct.pack(">qiqiqi", 5, 1, 7, 9, 9, 9))
    assert TimeIndex(SYSTEM_DISK, path, 100).floor(8) == (7, 109)


def test_the_last_entry_of_an_offset_index(tmp_path: Path) -> None:
    assert offset_index(tmp_path / "i.index", 1000, [(3, 10), (7, 90)]).last() == (1007, 90)
    assert offset_index(tmp_path / "j.index", 1000, []).last() == (1000, 0)


def test_a_lookup_that_must_not_wait_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = offset_index(tmp_path / "i.index", 0, [(1, 10), (2, 20)])
    with monkeypatch.context() as patched:
        patched.setattr(type(SYSTEM_DISK), "pread_cached", lambda *_: None)
        with pytest.raises(WouldBlock):
            index.floor(1, False)
    assert index.floor(1) == (1, 10)
    assert index.floor(1, False) == (1, 10)


def test_time_index_takes_only_larger_timestamps(tmp_path: Path) -> None:
    index = TimeIndex(SYSTEM_DISK, tmp_path / "t.timeindex", 100)
    index.create()
    for time, offset in ((5, 101), (5, 102), (4, 103), (9, 104)):
        index.maybe_append(time, offset)
    index.save()
    assert (tmp_path / "t.timeindex").read_bytes() == struct.pack(">qiqi", 5, 1, 9, 4)
    assert index.floor(8) == (5, 101)


def test_of_an_index_that_could_not_be_replaced_nothing_is_left(tmp_path: Path) -> None:
    """The next start would believe it: the entries that were to go look as whole as any."""
    disk, path = FaultyDisk(), tmp_path / f"{0:020d}.timeindex"
    index = TimeIndex(disk, path, 0)
    index.create()
    index.maybe_append(NOW_MS, 1)
    index.save()
    assert path.stat().st_size == 12
    index.maybe_append(NOW_MS + 1, 2)
    disk.fail_on = {"rename": errno.EIO}
    with pytest.raises(OSError, match="Input/output"):
        index.replace(is_durable=False)
    assert [(one.name, one.stat().st_size) for one in tmp_path.iterdir()] == [(path.name, 0)]


def test_a_time_index_that_speaks_of_a_later_batch_hides_none(make_log: MakeLog) -> None:
    """A flipped bit left its entries ascending: the search would begin behind the record it is to find."""
    log = make_log(index_interval_bytes=1)
    log.fill(10, step_ms=10)
    log.log.roll(NOW_MS)
    log.log.close()
    path = log.directory / f"{0:020d}.timeindex"
    entries = list(struct.iter_unpack(">qi", path.read_bytes()))
    place = entries.index((NOW_MS + 40, 4))
    entries[place] = (NOW_MS + 40, 5)
    path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
    log.open(is_clean=True)
    found = log.log.offset_for_timestamp(NOW_MS + 40)
    assert found is not None
    assert (found.offset, found.timestamp) == (4, NOW_MS + 40)


def test_t177_a_damaged_batch_stops_the_search_and_names_the_file(log: LogBuilder) -> None:
    log.fill(3)
    log.log.roll(NOW_MS)
    log.log.flush()
    log.append()
    path = log.log.segments[0].file.path
    data = bytearray(path.read_bytes())
    data[len(data) // 3 + 16] = 9
    path.write_bytes(data)
    log.is_damaged = True  # type: ignore[attr-defined]
    segment = Segment.open(SYSTEM_DISK, log.directory, 0)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        segment.locate(2)
    assert log.log.read(3, 1000, upper_offset=4).read(), "others are served"
