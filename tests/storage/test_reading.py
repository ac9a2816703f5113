"""Goal: a read gives whole batches from the right place, as many as asked, and never waits where it must
not.

Method: logs of batches of many sizes are read from every offset with every kind of limit and compared
with a model.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import HEADER_BYTES, iterate_headers
from protocol.errors import ErrorCode, KafkaError
from protocol.records import decode_all
from storage import file, page_cache, search
from storage.file import SYSTEM_DISK, Buffer, DataFile, Disk
from storage.slice import BASE_OFFSET_BYTES
from storage.stored_batches import LARGE_BYTES
from storage.txn_index import TransactionIndex, encode
from storage.types import AbortedTransaction
from tests.storage.builders import NOW_MS, LogBuilder, batch
from tests.storage.conftest import MakeLog


class ColdDisk(Disk):
    """Nothing is ever in the page cache."""

    def pread_cached(self, descriptor: int, size: int, position: int) -> bytes | None:
        return None


class AskedDisk(Disk):
    """Notes how much the page cache is asked for, by a kernel that cannot tell beforehand."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def is_cached(self, descriptor: int, size: int, position: int) -> bool:
        return False

    def pread_cached(self, descriptor: int, size: int, position: int) -> Buffer | None:
        self.asked.append(size)
        return super().pread_cached(descriptor, size, position)


def test_t137_t138_outside_of_the_log(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=300)
    log.fill(10)
    log.log.flush()
    log.log.delete_records(4)
    for offset in (-1, 0, 3, 11):
        with pytest.raises(KafkaError) as caught:
            log.log.read(offset, 100, upper_offset=10)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log.read(10, 100, upper_offset=10).size_bytes == 0
    assert log.log.read(10, 100, upper_offset=10).read_now() == b""
    assert log.log.read(4, 100, upper_offset=10).size_bytes > 0


def test_t139_s12_a_hole_is_stepped_over(make_log: MakeLog) -> None:
    """Offsets missing at the end of a segment: the next batch comes from a later one (`testReadAtLogGap`)."""
    log = make_log()
    log.fill(3)
    log.log.log_end_offset = 10
    log.log.roll(NOW_MS)
    log.log.log_end_offset = 20
    log.fill(2)
    for start in (3, 5, 9, 10, 15, 20):
        data = log.log.read(start, 1000, upper_offset=22).read()
        assert [record.offset for record in decode_all(data)] == [20, 21]
    assert log.offsets(0) == [0, 1, 2, 20, 21]
    log.restart()
    assert log.offsets(0) == [0, 1, 2, 20, 21]


def test_t140_the_middle_of_a_batch_gives_the_whole_batch(log: LogBuilder) -> None:
    log.append(b"a", b"b", b"c", b"d")
    data = log.log.read(2, 1000, upper_offset=4).read()
    assert [record.offset for record in decode_all(data)] == [0, 1, 2, 3]


def test_t141_compaction_alone_does_not_move_the_start(make_log: MakeLog) -> None:
    log = make_log(cleanup_policy="compact", segment_bytes=200)
    log.fill(10)
    log.log.flush()
    assert log.log.expire(NOW_MS * 2).removed_segments == 0
    assert log.log.log_start_offset == 0


def test_nothing_at_or_above_the_upper_offset(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=700)
    for number in range(40):
        log.append(*[b"v"] * (number % 3 + 1))
    ends = [header.next_offset for header, _ in log.log.scan(0)]
    for upper in ends:
        offset = 0
        seen: list[int] = []
        while offset < upper:
            data = log.log.read(offset, 250, upper_offset=upper).read()
            headers = [header for _, header in iterate_headers(data)]
            seen += [header.base_offset for header in headers]
            offset = headers[-1].next_offset
        assert offset == upper
        assert seen == sorted(set(seen))


@pytest.mark.parametrize("interval", [0, 300, 4096])
def test_reads_of_all_sizes_from_all_offsets(make_log: MakeLog, interval: int) -> None:
    log = make_log(segment_bytes=8000, index_interval_bytes=interval)
    source = random.Random(interval)
    for _ in range(120):
        log.append(*[b"x" * source.randrange(200)] * source.randrange(1, 4))
    batches = [(header, bytes(view)) for header, view in log.log.scan(0)]
    end = log.log.log_end_offset
    for _ in range(400):
        offset, limit = source.randrange(end), source.choice([1, 61, 200, 1000, 5000, 100_000])
        found = log.log.read(offset, limit, upper_offset=end)
        data = found.read_now() if source.random() < 0.5 else found.read()
        assert data
        first = next(n for n, (header, _) in enumerate(batches) if header.last_offset >= offset)
        expected = b"".join(raw for _, raw in batches[first:])
        assert expected.startswith(data)
        sizes = [header.size_bytes for _, header in iterate_headers(data)]
        assert sum(sizes) == len(data), "whole batches only"
        assert len(data) <= max(limit, sizes[0])


def test_at_least_one_is_the_callers_choice(log: LogBuilder) -> None:
    log.append(b"x" * 1000)
    assert log.log.read(0, 100, upper_offset=1, at_least_one=False).read() == b""
    assert log.log.read(0, 100, upper_offset=1, at_least_one=False).read_now() == b""
    assert len(log.log.read(0, 100, upper_offset=1).read()) > 1000


def test_a_cold_read_is_told_and_done_elsewhere(make_log: MakeLog) -> None:
    log = make_log(ColdDisk(), segment_bytes=300)
    log.fill(20)
    log.restart()
    for offset in range(20):
        found = log.log.read(offset, 1000, upper_offset=20)
        assert found.size_bytes > 0
        assert found.read_now() is None
        assert next(decode_all(found.read())).offset == offset
    assert log.log.read(20, 1000, upper_offset=20).read_now() == b""


def test_behind_a_read_from_the_disk_the_loop_does_not_even_ask(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking starts the reading ahead, which holds the loop up for as long as the disk takes."""
    disk = AskedDisk()
    log = make_log(disk)
    for _ in range(6):
        log.append(b"v" * LARGE_BYTES)
    log.append(b"little")
    log.log.flush()

    def asks(offset: int) -> bool:
        """Read the batch at `offset`: whether the loop asked the page cache for it."""
        found = log.log.read(offset, LARGE_BYTES + 200, upper_offset=6)
        disk.asked.clear()
        data = found.read_now()
        asked = max(disk.asked, default=0) >= LARGE_BYTES
        assert next(decode_all(data or found.read())).offset == offset
        return asked

    monkeypatch.setattr(Disk, "tells_cached", lambda *_: False)
    monkeypatch.setattr("storage.slice.blocks_read", lambda: 0)
    assert asks(1)
    assert asks(2)
    blocks = count()
    monkeypatch.setattr("storage.slice.blocks_read", lambda: next(blocks))
    assert asks(1), "this one comes from the disk"
    assert not asks(2)
    assert not asks(3), "within reach of what a thread read from the disk"
    monkeypatch.setattr("storage.slice.blocks_read", lambda: 0)
    assert asks(1), "before it"
    assert log.log.read(6, 1000, upper_offset=7).read_now(), "little at once, by a reader at the end"
    monkeypatch.setattr("storage.slice.COLD_BYTES", 0)
    assert asks(5), "out of reach"


def test_a_reader_that_follows_the_end_needs_no_search(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log()
    offset = 0
    monkeypatch.setattr("storage.slice.Slice.locate", None)
    assert log.log.read(0, 1000, upper_offset=0).read_now() == b""
    for _ in range(50):
        log.append()
        log.log.flush()
        data = log.log.read(offset, 1000, upper_offset=log.log.high_watermark).read_now()
        assert data
        offset = [header for _, header in iterate_headers(data)][-1].next_offset
        assert log.log.read(offset, 1000, upper_offset=log.log.high_watermark).read_now() == b""


def test_t121_a_slice_outlives_the_removal_of_its_segment(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=300, retention_bytes=300)
    log.fill(20)
    log.log.flush()
    held = log.log.read(0, 200, upper_offset=20)
    expired = log.log.expire(NOW_MS)
    expired.run()
    assert expired.removed_segments
    assert next(decode_all(held.read())).offset == 0


def test_scan_gives_every_batch_of_a_range(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=500)
    for _ in range(20):
        log.append(b"a", b"b")
    assert [header.base_offset for header, _ in log.log.scan(0)] == list(range(0, 40, 2))
    assert [header.base_offset for header, _ in log.log.scan(5, 9)] == [4, 6, 8]
    assert all(bytes(view)[16:] == batch(b"a", b"b")[16:] for _, view in log.log.scan(0))


class PlainDisk(ColdDisk):
    """Notes who reads without readahead, and what is asked for at once."""

    def __init__(self) -> None:
        self.plain: list[int] = []
        self.wanted: list[tuple[int, int]] = []

    def prefetch(self, descriptor: int, size: int, position: int) -> None:
        self.wanted.append((size, position))
        super().prefetch(descriptor, size, position)

    def stop_readahead(self, descriptor: int) -> None:
        self.plain.append(descriptor)
        super().stop_readahead(descriptor)


@pytest.mark.parametrize(("value", "is_large"), [(b"little", False), (b"v" * LARGE_BYTES, True)])
def test_what_a_client_waits_for_is_read_without_readahead(
    make_log: MakeLog, value: bytes, is_large: bool
) -> None:
    """Else a flush waits behind megabytes that nobody asked for."""
    disk = PlainDisk()
    log = make_log(disk)
    log.append(value)
    log.log.flush()
    log.restart()
    found = log.log.read(0, 2 * LARGE_BYTES, upper_offset=1)
    assert found.read_now() is None
    assert next(decode_all(found.read())).value == value
    assert bool(disk.plain) == is_large
    with_next = found.size_bytes + HEADER_BYTES  # a check looks at the batch behind it, too
    assert disk.wanted == ([(with_next, found.position)] if is_large else [])


class PartlyCachedDisk(Disk):
    """Of few bytes, the page cache holds the first three: they lie on two pages."""

    def pread_cached(self, descriptor: int, size: int, position: int) -> Buffer | None:
        return super().pread_cached(descriptor, 3 if size == BASE_OFFSET_BYTES else size, position)


@pytest.mark.parametrize("disk", [Disk(), PartlyCachedDisk()], ids=["cached", "partly cached"])
def test_a_reader_goes_on_at_the_batch_behind_its_last_fetch(make_log: MakeLog, disk: Disk) -> None:
    """Its place is known, and what is known of it is right, whatever came of the attempt."""
    log = make_log(disk, index_interval_bytes=1)
    for _ in range(20):
        log.append(b"v" * 500)
    log.log.flush()
    active = log.log.segments[-1]
    offset = 0
    while offset < 20:
        data = log.log.read(offset, 1500, upper_offset=20).read_now()
        assert data is not None
        found = [header.base_offset for _, header in iterate_headers(data)]
        assert found == list(range(offset, found[-1] + 1))
        offset = found[-1] + 1
        known = active.hints
        assert all(log.log.read(one, 1, upper_offset=20).position == known[one] for one in known if one < 20)
        assert offset == 20 or (offset in known) == (type(disk) is Disk)
    assert 0 not in active.hints or active.hints[0] == 0


def test_who_reads_committed_records_looks_only_where_some_were_aborted(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand segments each was looked at in every fetch: 2 ms, and every other client waits."""
    log = make_log(segment_bytes=300)
    for number in range(30):
        log.append(producer_id=7, producer_epoch=0, base_sequence=number, is_transactional=True)
        log.fill(3)
        if number % 10 == 4:
            log.end_transaction(7, is_commit=False)
    log.end_transaction(7, is_commit=True)
    segments, end = log.log.segments, log.log.log_end_offset
    assert len(segments) > 30
    everything = [search.aborted_transactions(segments, start, end) for start in range(end)]
    assert len(everything[0]) == 3
    asked = 0
    real = TransactionIndex.entries

    def entries(index: TransactionIndex) -> list[AbortedTransaction]:
        nonlocal asked
        asked += 1
        return real(index)

    assert [log.log.aborted_transactions(start, end) for start in range(end)] == everything
    monkeypatch.setattr(TransactionIndex, "entries", entries)
    log.log.aborted_transactions(0, end)
    assert asked <= 4
    log.append(producer_id=7, producer_epoch=0, base_sequence=30, is_transactional=True)
    log.end_transaction(7, is_commit=False)
    log.fill(3)
    log.log.roll(NOW_MS)
    assert len(log.log.aborted_transactions(0, log.log.log_end_offset)) == 4


class CountedEntries(list[AbortedTransaction]):
    """How many of them somebody looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for place in range(len(self)):
            yield self[place]


def test_many_aborted_transactions_in_the_active_segment_slow_nobody_down(tmp_path: Path) -> None:
    """Each fetch at the end of a log looked at all of them, and each further one copied them all: 9 ms and
    0.6 ms of the event loop where there were a hundred thousand.
    """
    index = TransactionIndex(Disk(), tmp_path / "0.txnindex")
    # From time to time one that began far before: the stable offset stays behind.
    every = [
        AbortedTransaction(7, 10 * n - 25 * (n % 4 == 3), 10 * n + 5, 10 * n + (6 if n % 4 else -20))
        for n in range(3, 1000)
    ]
    index.append(every[:-1])
    index._entries = counted = CountedEntries(every[:-1])
    index.append(every[-1:])
    assert index.entries() is counted
    assert counted.looks == 0
    found, _ = index.collect(9_990, 9_999)
    assert found == every[-1:]
    assert counted.looks < 50
    for start in range(0, 10_000, 37):
        for upper in (start + 1, start + 60):
            found, is_complete = index.collect(start, upper)
            end = next((at for at, one in enumerate(every, 1) if one.last_stable_offset >= upper), None)
            assert is_complete == (end is not None)
            assert found == [
                one for one in every[:end] if one.last_offset >= start and one.first_offset < upper
            ]
    assert TransactionIndex(Disk(), index.path).entries() == every
    index.path.write_bytes(encode([every[1], every[0]]))
    with pytest.raises(ValueError, match="entry 1"):
        TransactionIndex(Disk(), index.path).entries()


@pytest.mark.parametrize("has_aborted", [False, True])
def test_after_a_clean_start_nobody_looks_for_files_that_are_not_there(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, has_aborted: bool
) -> None:
    log = make_log(segment_bytes=300)
    log.fill(20)
    if has_aborted:
        log.append(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.end_transaction(7, is_commit=False)
    log.fill(20)
    again = log.restart()
    opened: list[str] = []
    real = Disk.open

    def note(disk: Disk, path: Path, flags: int) -> int:
        opened.append(path.name)
        return real(disk, path, flags)

    monkeypatch.setattr(Disk, "open", note)
    assert len(again.aborted_transactions(0, again.log_end_offset)) == has_aborted
    assert len([name for name in opened if name.endswith(".txnindex")]) == has_aborted


@pytest.mark.parametrize("call", ["read", "read_cached", "cache"])
def test_a_read_that_fails_says_of_which_file(tmp_path: Path, call: str) -> None:
    """The line in the broker's log named none: a bad sector could be in any partition."""

    class BadSector(Disk):
        def pread(self, descriptor: int, size: int, position: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        cache = pread_cached = pread  # type: ignore[assignment]

    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(10))
    file = DataFile(BadSector(), path)
    with pytest.raises(OSError, match=f"Input/output error: '{path}'"):
        getattr(file, call)(10, 0)
    file.close()


def test_a_file_that_lost_its_last_batches_is_told_of(make_log: MakeLog) -> None:
    """Under a broker that has written it: where it ends, a batch did, and nothing looks damaged."""
    log = make_log(index_interval_bytes=300)
    log.fill(20)
    log.log.roll(NOW_MS)
    log.log.flush()
    segment = log.log.segments[0]
    os.truncate(segment.file.path, segment.size_bytes * 18 // 20)
    segment.hints.clear()
    for offset in (18, 19):
        with pytest.raises(KafkaError) as caught:
            log.log.read(offset, 100, upper_offset=20).read()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    left = log.log.read(0, 10_000, upper_offset=18).read()
    assert [record.offset for record in decode_all(left)] == list(range(18))


@pytest.mark.parametrize("what", ["no constant", "no call", "forbidden"])
def test_where_no_read_can_be_told_not_to_wait_pages_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Pythons of uv and conda are built for systems without preadv2; an old container may forbid it."""

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, "") if what == "forbidden" else NotImplementedError

    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 1000)
    page_cache.look_at_device(path)
    if what == "no constant":
        monkeypatch.setattr(file, "NOWAIT", None)
    else:
        monkeypatch.setattr(file, "NOWAIT", 8)
        monkeypatch.setattr(os, "preadv", refuse)
    descriptor = os.open(path, os.O_RDWR)
    try:
        assert SYSTEM_DISK.pread_cached(descriptor, 20_000, 9_990) == b"0123456789"
        assert SYSTEM_DISK.pread_cached(descriptor, 10, 10_000) == b""
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if SYSTEM_DISK.tells_cached(descriptor) and not SYSTEM_DISK.is_cached(
            descriptor, 10_000, 0
        ):  # no tmpfs
            assert SYSTEM_DISK.pread_cached(descriptor, 20_000, 0) is None
        monkeypatch.setattr(page_cache, "CAN_TELL_CACHED", False)
        assert SYSTEM_DISK.pread_cached(descriptor, 10, 10) == b"0123456789"
    finally:
        os.close(descriptor)
