"""Goal: an fdatasync by io_uring ends with what the kernel said of it, whatever happens meanwhile; and where
there is no io_uring for us, that is told instead of half of one being made.

Method: the kernel's own io_uring, on files of a temporary directory and on a device that cannot be flushed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import ring as rings
from storage.file import SYSTEM_DISK, DataFile, Disk
from storage.ring import ENTRIES, Ring, open_ring


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = open_ring()
    if made is None:
        pytest.skip("this machine has no io_uring for us")
    yield made
    made.close()


async def ended(ring: Ring, count: int = 1) -> dict[int, int]:
    """Token and errno of `count` that ended."""
    loop, found = asyncio.get_running_loop(), dict[int, int]()
    is_there = asyncio.Event()

    def look() -> None:
        found.update(ring.finished())
        if len(found) >= count:
            is_there.set()

    loop.add_reader(ring.eventfd, look)
    try:
        async with asyncio.timeout(60):
            await is_there.wait()
    finally:
        loop.remove_reader(ring.eventfd)
    return found


def open_files(of: str = "") -> set[tuple[str, str]]:
    """Descriptors of this process, and what they are of; others than ours come and go meanwhile."""
    gc.collect()
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add((descriptor.name, str(descriptor.readlink())))
    return {one for one in found if of in one[1]}


def test_nothing_is_left_of_a_ring_that_is_closed() -> None:
    """Whoever still knows it."""
    before = open_files()
    rings = [open_ring() for _ in range(5)]
    for ring in filter(None, rings):
        ring.close()
    assert open_files("anon_inode") <= before


async def test_what_the_kernel_said_is_told(ring: Ring, tmp_path: Path) -> None:
    """A file that is written, a device that cannot be flushed, and a descriptor that is none."""
    device = os.open("/dev/full", os.O_WRONLY)
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(b"x" * 5000)
        assert ring.fdatasync(file.fileno(), 7)
        assert ring.fdatasync(device, 1 << 60)
        assert ring.fdatasync(1_000_000, 9)
        assert await ended(ring, 3) == {7: 0, 1 << 60: errno.EINVAL, 9: errno.EBADF}
    os.close(device)
    assert ring.finished() == []


async def test_a_file_stays_open_until_its_flush_has_ended(ring: Ring, tmp_path: Path) -> None:
    """Else its descriptor could be another file's by the time the kernel looks it up."""
    files = [DataFile.create(SYSTEM_DISK, tmp_path / str(number)) for number in range(50)]
    for number, file in enumerate(files):
        file.write([b"x" * 5000], 0, 5000)
        assert file.begin_flush_data(ring, number)
        file.close()
    assert len(open_files(str(tmp_path))) == 50
    assert await ended(ring, 50) == dict.fromkeys(range(50), 0)
    for file in files:
        file.release()
        file.close()
    assert open_files(str(tmp_path)) == set()


async def test_it_takes_as_many_as_it_has_room_for(ring: Ring, tmp_path: Path) -> None:
    """Then no more, until their ends were asked for; the places are used again and again."""
    with (tmp_path / "file").open("wb", buffering=0) as file:
        for turn in range(5):
            tokens = range(turn * ENTRIES, (turn + 1) * ENTRIES)
            assert all(ring.fdatasync(file.fileno(), token) for token in tokens)
            assert not ring.fdatasync(file.fileno(), 1 << 40)
            assert await ended(ring, ENTRIES) == dict.fromkeys(tokens, 0)


async def test_what_the_kernel_does_not_take_leaves_no_trace(
    ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "file").open("wb", buffering=0) as file, monkeypatch.context() as patch:
        patch.setattr(rings, "_system_call", lambda *_: -1)
        assert not ring.fdatasync(file.fileno(), 1)
        patch.undo()
        assert ring.fdatasync(file.fileno(), 2)
        assert await ended(ring) == {2: 0}


class OtherDisk(Disk):
    """A test's."""


@pytest.mark.parametrize(
    ("make", "is_by_ring"),
    [
        (lambda path: DataFile.create(SYSTEM_DISK, path), True),
        (lambda path: DataFile.create(OtherDisk(), path), False),
        (lambda path: DataFile(SYSTEM_DISK, path), False),
    ],
    ids=["kept open", "a test's disk", "not kept open"],
)
def test_a_file_says_whether_it_can_be_flushed_by_a_ring(
    ring: Ring, tmp_path: Path, make: Callable[[Path], DataFile], is_by_ring: bool
) -> None:
    file = make(tmp_path / "file")
    assert file.begin_flush_data(ring, 1) == is_by_ring
    file.close()


def test_where_there_is_none_that_is_told(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_files()
    for code in (errno.EPERM, errno.ENOSYS, errno.ENOMEM):

        def refuse(*_: int, code: int = code) -> int:
            ctypes.set_errno(code)
            return -1

        with monkeypatch.context() as patch:
            patch.setattr(rings, "_system_call", refuse)
            with pytest.raises(OSError, match=os.strerror(code)):
                Ring()
            assert open_ring() is None
    with monkeypatch.context() as patch:  # a kernel that lacks what we need
        patch.setattr(rings, "NO_DROP", 1 << 31)
        assert open_ring() is None
    with monkeypatch.context() as patch:
        patch.setattr(platform, "machine", lambda: "aarch64")
        assert open_ring() is None
    assert open_files("anon_inode") <= before
