"""Goal: a region is what a read of the same slice gives, is had only where no disk is waited for, and never
ends early in silence.

Method: logs of many batch sizes; a pair of sockets, one of which does not wait; disks that forget.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import iterate_headers
from protocol.records import decode_all
from storage import page_cache
from storage.file import SYSTEM_DISK, DataFile, DescriptorPool, Disk
from storage.page_cache import CAN_TELL_CACHED, PAGE_BYTES
from storage.region import Region
from storage.slice import Slice
from storage.stored_batches import LARGE_BYTES
from tests.storage.builders import LogBuilder
from tests.storage.conftest import MakeLog

PLENTY = 1 << 30


@pytest.fixture(autouse=True)
def reads_meet_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take pages at any time: what is cached is said by the disks of the tests alone."""
    monkeypatch.setattr("storage.slice.blocks_read", lambda: 0)


class KnownDisk(Disk):
    """Says of all pages that they are cached, or that they are not, whatever the kernel can tell."""

    def __init__(self, is_cached: bool) -> None:
        self.knows = is_cached

    def pread_cached(
        self, descriptor: int, size: int, position: int
    ) -> bytes | memoryview | bytearray | None:
        if self.knows:
            return self.pread(descriptor, size, position)
        return super().pread_cached(descriptor, size, position)

    def is_cached(self, descriptor: int, size: int, position: int) -> bool:
        return self.knows


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """One that sends and does not wait, one that receives."""
    sender, receiver = socket.socketpair()
    sender.setblocking(False)
    with sender, receiver:
        yield sender, receiver


def filled(make_log: MakeLog, disk: Disk, batches: int = 60, size: int = 5000) -> LogBuilder:
    log = make_log(disk)
    log.fill(batches, b"v" * size)
    log.log.flush()
    return log


def region_at(log: LogBuilder, offset: int, max_bytes: int = PLENTY) -> Region | None:
    end = log.log.log_end_offset
    found = log.log.read(offset, max_bytes, upper_offset=end).send_now()
    return found if isinstance(found, Region) else None


@pytest.mark.parametrize("max_bytes", [LARGE_BYTES, LARGE_BYTES + 7000, 2 * LARGE_BYTES, PLENTY])
def test_it_holds_what_a_read_gives(make_log: MakeLog, max_bytes: int) -> None:
    log = filled(make_log, KnownDisk(True))
    regions = 0
    for offset in range(0, 60, 7):
        expected = log.log.read(offset, max_bytes, upper_offset=60).read()
        region = region_at(log, offset, max_bytes)
        assert (region is None) == (len(expected) < LARGE_BYTES)
        if region is not None:
            regions += 1
            assert (len(region), region.read(), region.read(10)) == (len(expected), expected, expected[10:])
    assert regions or max_bytes == LARGE_BYTES


def test_the_batch_behind_it_need_not_be_searched(make_log: MakeLog) -> None:
    log = filled(make_log, KnownDisk(True))
    region = region_at(log, 0, 2 * LARGE_BYTES)
    assert region is not None
    *_, (_, last) = iterate_headers(region.read())
    assert log.log.segments[-1].hints[last.next_offset] == len(region)


@pytest.mark.parametrize(("is_cached", "batches"), [(True, 3), (False, 60)])
def test_there_is_none_of_little_or_of_what_is_not_cached(
    make_log: MakeLog, is_cached: bool, batches: int
) -> None:
    assert region_at(filled(make_log, KnownDisk(is_cached), batches=batches), 0) is None


def test_there_is_none_of_a_batch_that_the_limit_cuts(make_log: MakeLog) -> None:
    log = filled(make_log, KnownDisk(True), batches=2, size=3 * LARGE_BYTES)
    found = log.log.read(0, 2 * LARGE_BYTES, upper_offset=2)
    assert found.size_bytes == 2 * LARGE_BYTES
    data = found.send_now()
    assert isinstance(data, memoryview | bytes)
    assert [header.base_offset for _, header in iterate_headers(data)] == [0]


def test_there_is_none_of_what_was_not_checked_yet(make_log: MakeLog) -> None:
    log = filled(make_log, KnownDisk(True))
    log.log.roll(log.now_ms)
    log.restart()
    assert region_at(log, 0) is None
    log.log.read(0, PLENTY, upper_offset=60).read()
    assert region_at(log, 0) is not None


def test_there_is_none_behind_a_cold_read(make_log: MakeLog) -> None:
    """What was read ahead came from the disk, and was not checked."""
    log = filled(make_log, KnownDisk(True))
    log.log.segments[0].file.cold_position = 0
    assert region_at(log, 0) is None


def test_where_nothing_is_read_ahead_the_kernel_is_asked_what_is_cached(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody else: to ask the page cache for bytes that it has not would start reading them."""
    monkeypatch.setattr(Disk, "tells_cached", lambda *_: True)
    disk = KnownDisk(True)
    log = filled(make_log, disk)
    file = log.log.segments[0].file
    file.stop_readahead()
    assert region_at(log, 0) is not None
    disk.knows = False
    monkeypatch.setattr(Disk, "pread_cached", None)
    assert log.log.read(0, PLENTY, upper_offset=60).send_now() is None


@pytest.mark.parametrize(
    ("has_readahead", "can_tell", "is_expected"),
    [(True, True, True), (False, True, False), (True, False, True), (False, False, True)],
)
def test_more_on_the_disk_is_expected_where_it_may_have_been_read_ahead_or_nobody_can_tell(
    make_log: MakeLog,
    monkeypatch: pytest.MonkeyPatch,
    has_readahead: bool,
    can_tell: bool,
    is_expected: bool,
) -> None:
    blocks = itertools.count()
    monkeypatch.setattr("storage.slice.blocks_read", lambda: next(blocks))
    monkeypatch.setattr(Disk, "tells_cached", lambda *_: can_tell)
    log = filled(make_log, KnownDisk(True))
    found = log.log.read(0, PLENTY, upper_offset=60)
    if not has_readahead:
        found.file.stop_readahead()
    found.warm()
    assert (found.file.cold_position == found.position + found.size_bytes) == is_expected
    assert not found.file.has_readahead


def test_a_file_that_is_opened_again_is_read_ahead(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    file = DataFile(SYSTEM_DISK, path)
    file.stop_readahead()
    assert file.try_close()
    assert file.read(1, 0) == b"x"
    assert file.has_readahead
    file.close()


def test_a_file_that_is_given_back_is_open_for_its_readers_only(tmp_path: Path) -> None:
    """Held open, a removed file would keep its place on the disk until the next start."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    pool = DescriptorPool(10)
    file = DataFile(SYSTEM_DISK, path, pool)
    with file.descriptor() as held:
        file.close()
        path.unlink()
        assert os.pread(held, 1, 0) == b"x"
    with pytest.raises(FileNotFoundError):
        file.read(1, 0)
    path.write_bytes(b"late")
    assert file.read(4, 0) == b"late"
    assert descriptors_of(path) == []
    assert pool.open_files == 0


def descriptors_of(path: Path) -> list[str]:
    """Those of this process."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += [link.name] if link.readlink() == path else []
    return found


def test_what_a_thread_has_warmed_is_a_region(make_log: MakeLog) -> None:
    """Checked, read, and not copied."""
    log = filled(make_log, KnownDisk(True))
    log.log.roll(log.now_ms)
    log.restart()
    found = log.log.read(0, PLENTY, upper_offset=60)
    assert found.send_now() is None
    found.warm()
    region = found.send_now()
    assert isinstance(region, Region)
    assert region.read() == log.log.read(0, PLENTY, upper_offset=60).read()


class EmptyCache(KnownDisk):
    """Nothing is in the page cache until somebody has it brought there."""

    def __init__(self) -> None:
        super().__init__(False)
        self.cached: list[tuple[int, int]] = []

    def cache(self, descriptor: int, size: int, position: int) -> None:
        super().cache(descriptor, size, position)
        self.cached.append((size, position))
        self.knows = True


def test_what_was_checked_before_and_left_the_cache_is_brought_back(make_log: MakeLog) -> None:
    disk = EmptyCache()
    log = filled(make_log, disk)
    log.log.segments[0].file.cold_position = 0
    found = log.log.read(0, PLENTY, upper_offset=60)
    assert found.send_now() is None
    found.warm()
    assert disk.cached == [(found.size_bytes, found.position)]
    assert isinstance(found.send_now(), Region)


class OnItsWay(EmptyCache):
    """Pages count as cached from when they were asked for, as Linux has it."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self.happens = happens

    def prefetch(self, descriptor: int, size: int, position: int) -> None:
        self.knows = True
        self.happens()


def test_what_was_checked_before_is_waited_for_when_it_is_read_again(make_log: MakeLog) -> None:
    """Nobody reads it for a check: else the loop would wait for what is only on its way."""
    disk = OnItsWay(lambda: None)
    log = filled(make_log, disk)
    log.log.roll(log.now_ms)
    log.restart()
    log.log.read(0, 2 * LARGE_BYTES, upper_offset=60).warm()
    disk.cached.clear()
    disk.knows = False
    again = log.log.read(0, 2 * LARGE_BYTES, upper_offset=60)
    again.warm()
    assert disk.cached == [(again.size_bytes, again.position)]


@pytest.mark.parametrize("is_now", [Slice.send_now, Slice.read_now], ids=["sent", "read"])
@pytest.mark.parametrize("offset", [0, 59])
def test_what_a_thread_has_asked_for_is_no_others_before_it_was_checked(
    make_log: MakeLog, is_now: Callable[[Slice], Any], offset: int
) -> None:
    """It may be in the page cache already, and damaged."""
    found: list[Any] = []
    disk = OnItsWay(lambda: found.append(is_now(log.log.read(offset, PLENTY, upper_offset=60))))
    log = filled(make_log, disk)
    file = log.log.segments[0].file
    file.stop_readahead()
    log.log.read(0, PLENTY, upper_offset=60).warm()
    assert found == [None]
    assert file.warming == []
    assert is_now(log.log.read(offset, PLENTY, upper_offset=60)) is not None


@pytest.mark.parametrize("size", [1, 64 * 1024, 64 * 1024 + 1, 3 * 1024 * 1024, 1 << 40])
def test_bytes_are_brought_into_the_page_cache(told_path: Path, size: int) -> None:
    """As many as there are, whatever was asked for; more than one call takes as well."""
    path = told_path / "file"
    path.write_bytes(b"x" * (2 * 1024 * 1024 + 5))
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    file = DataFile(SYSTEM_DISK, path)
    there = min(size, path.stat().st_size)

    def is_brought() -> bool:
        file.cache(size, 0)
        return file.is_cached(there, 0)

    # A machine may take its pages back whenever it likes, but not every time.
    assert any(is_brought() for _ in range(20)) or not CAN_TELL_CACHED
    file.close()


def test_a_socket_takes_what_it_can(make_log: MakeLog, sockets: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = sockets
    log = filled(make_log, KnownDisk(True), batches=400)
    region = region_at(log, 0)
    assert region is not None
    expected = region.read()
    sent = region.send(sender.fileno())
    assert 0 < sent < len(region)
    assert region.send(sender.fileno()) == 0
    assert receiver.recv(sent, socket.MSG_WAITALL) == expected[:sent]
    assert region.read(sent) == expected[sent:]


def test_a_file_that_ends_early_is_an_error(
    tmp_path: Path, sockets: tuple[socket.socket, socket.socket]
) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"x" * 100)
    region = Region(DataFile(SYSTEM_DISK, path), 50, 51)
    for attempt in (lambda: region.send(sockets[0].fileno()), region.read):
        with pytest.raises(OSError, match="the file ends before 101"):
            attempt()


def knows_pages() -> bool:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return found is not None and (int(found[1]), int(found[2])) >= (6, 5)


@pytest.mark.skipif(not knows_pages(), reason="Linux tells since 6.5 which pages it has cached")
def test_the_kernel_is_asked_for_every_page(told_path: Path) -> None:
    """A page that was never written nor read is in no cache; those around it are."""
    page = b"x" * PAGE_BYTES
    path = told_path / "file"
    with path.open("wb") as writing:
        writing.write(3 * page)
        writing.seek(PAGE_BYTES, os.SEEK_CUR)
        writing.write(4 * page)
    file = DataFile(SYSTEM_DISK, path)
    assert CAN_TELL_CACHED
    assert file.is_cached(3 * PAGE_BYTES, 0)
    assert file.is_cached(2, PAGE_BYTES - 1)
    assert file.is_cached(1, 8 * PAGE_BYTES - 1)
    assert not file.is_cached(1, 3 * PAGE_BYTES)
    assert not file.is_cached(2, 3 * PAGE_BYTES - 1)
    assert not file.is_cached(8 * PAGE_BYTES, 0)
    assert not file.is_cached(2, 8 * PAGE_BYTES - 1)  # behind the end
    assert file.read_behind(PAGE_BYTES, 0, 8) == page[:8]
    assert file.read_behind(PAGE_BYTES, 2 * PAGE_BYTES, 1) is None
    assert file.read_behind(PAGE_BYTES - 2, 2 * PAGE_BYTES, 2) == page[:2]
    assert file.read_behind(PAGE_BYTES, 7 * PAGE_BYTES, 1) is None  # behind the end


def test_a_file_system_of_which_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """overlayfs and ZFS keep what is cached elsewhere: then it is read as where the kernel cannot tell."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    monkeypatch.setattr(page_cache, "CAN_TELL_CACHED", True)
    monkeypatch.setattr(page_cache, "_blind", set())
    monkeypatch.setattr(page_cache, "holds_all", lambda descriptor, size, position: False)
    file = DataFile(SYSTEM_DISK, path)
    with file.descriptor() as descriptor:
        assert file.tells_cached()
        assert page_cache.pread_counted(descriptor, 3, 2) is None
        page_cache.look_at_device(path)
        assert not file.tells_cached()
        assert page_cache.pread_counted(descriptor, 3, 2) == b"234"


def test_where_nobody_can_tell_a_cold_file_is_asked_all_the_same(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in memory is handed out at once, and not brought there by a thread once more."""
    disk = KnownDisk(False)
    monkeypatch.setattr(disk, "tells_cached", lambda descriptor: False)
    monkeypatch.setattr(disk, "pread_cached", disk.pread)
    log = filled(make_log, disk)
    log.log.segments[0].file.stop_readahead()
    found = log.log.read(0, PLENTY, upper_offset=60).send_now()
    assert isinstance(found, bytes | memoryview)
    assert len(list(decode_all(found))) == 60


def test_a_kernel_that_cannot_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.page_cache.CACHESTAT", 99_999)  # as on an older one: no such system call
    path = tmp_path / "file"
    path.write_bytes(b"x")
    assert not DataFile(SYSTEM_DISK, path).is_cached(1, 0)
