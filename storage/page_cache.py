"""What the page cache holds of a file, and whether it lets go of it: Linux's `cachestat`."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from struct import Struct

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CACHESTAT = 451  # the number of this system call on every architecture of Linux, since 6.5
NOT_TOLD = -1
"""instead of a number of pages"""
# It waits for nothing: letting go of the GIL would only invite somebody else to take it.
_system_call = ctypes.PyDLL(None, use_errno=True).syscall
_stretch = Struct("=QQ").pack  # offset, length (0: up to the end): `struct cachestat_range`
_count = Struct("=QQQ16x").unpack  # pages that are cached, dirty, being written; ...: `struct cachestat`
_Cachestat = ctypes.c_char * 40


def _can_tell_cached() -> bool:
    """Whether there is a cachestat, and we may call it: then what is wrong is a descriptor that is none."""
    if sys.platform != "linux":  # which ends who calls by a number that it does not know
        return False
    _system_call(CACHESTAT, -1, _stretch(0, 0), _Cachestat(), 0)
    return ctypes.get_errno() == errno.EBADF


CAN_TELL_CACHED = _can_tell_cached()
_blind: set[int] = set()
"""devices of which it says that nothing is cached, whatever is: overlayfs and ZFS keep it elsewhere"""


def look_at_device(path: Path) -> None:
    """Note whether the kernel tells what is cached of files beside this one, which is not empty. OSError."""
    with path.open("rb", buffering=0) as file:
        file.read(1)
        if CAN_TELL_CACHED and not holds_all(file.fileno(), 1, 0):
            _blind.add(os.fstat(file.fileno()).st_dev)


def tells_cached(descriptor: int) -> bool:
    """Whether the kernel can tell what is cached of this file."""
    return CAN_TELL_CACHED and os.fstat(descriptor).st_dev not in _blind


def cached_pages(descriptor: int, size: int, position: int) -> int:
    """How many pages of these bytes are cached; NOT_TOLD where the kernel cannot tell."""
    return _counts(descriptor, size, position)[0]


def holds_all(descriptor: int, size: int, position: int) -> bool:
    """Whether all of these bytes are cached; False as well where the kernel cannot tell."""
    pages = (position + size - 1) // PAGE_BYTES - position // PAGE_BYTES + 1
    return cached_pages(descriptor, size, position) == pages


def pread_counted(descriptor: int, size: int, position: int) -> bytes | None:
    """These bytes, where no read can be told not to wait for the disk: None where they are not all cached, if
    that can be told.
    """
    found = os.fstat(descriptor)
    there = min(size, found.st_size - position)
    can_tell = CAN_TELL_CACHED and found.st_dev not in _blind
    if there > 0 and can_tell and not holds_all(descriptor, there, position):
        return None
    return os.pread(descriptor, size, position)


def _counts(descriptor: int, size: int = 0, position: int = 0) -> tuple[int, int, int]:
    """How many pages are cached, and of these not written yet, and being written."""
    answer = _Cachestat()
    if _system_call(CACHESTAT, descriptor, _stretch(position, size), answer, 0):
        return NOT_TOLD, NOT_TOLD, NOT_TOLD
    cached, dirty, written = _count(answer)
    return cached, dirty, written


def drop_cached(descriptor: int) -> bool:
    """Have the page cache let go of a file; False where pages stay. Those do that `sendfile` has put into a
    socket, until its client has them; and all, where some are not written yet: they would be.
    """
    _, dirty, written = _counts(descriptor)
    if dirty or written:
        return False
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_pages(descriptor, 0, 0) == 0
