"""The only system calls on data files, and the seam where tests inject faults.

`Disk` is one method a system call and holds no state: a test hands in its own to fail the nth call, tear a
write, forget what was not flushed or fill the disk. `DataFile` is one file whose descriptor may be closed
behind its back by the `DescriptorPool`, so that thousands of segments fit under a small `ulimit -n` (Kafka
keeps one descriptor a segment open for ever).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy

from storage.page_cache import CAN_TELL_CACHED, drop_cached, holds_all, pread_counted, tells_cached
from storage.ring import Ring

Buffer = bytes | bytearray | memoryview

FILE_MODE = 0o644
# Where bytes are read to that nobody looks at: small enough to stay in a core's own cache.
_nowhere = bytearray(64 * 1024)
MAX_CACHED_AT_ONCE = 16 * 1024 * 1024
NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
"""None of a Python that was built for older systems, as uv's and conda's are"""


def check_regular(path: Path, mode: int) -> None:
    """OSError when a file of this mode is none that has bytes at positions."""
    if not stat.S_ISREG(mode):
        reason = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(reason, "it is no regular file", str(path))


class Disk:
    """The operating system. Owned by: any thread; has no state."""

    def open(self, path: Path, flags: int) -> int:
        """A regular file: who opens a FIFO for one direction waits for somebody at its other end, and a
        device has no end. OSError where it is something else.
        """
        if not flags & os.O_RDWR:
            flags |= os.O_NONBLOCK
        descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
        try:
            check_regular(path, os.fstat(descriptor).st_mode)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    pwritev = staticmethod(os.pwritev)
    """(descriptor, buffers, position): how many bytes were written"""

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        return os.pread(descriptor, size, position)

    def stop_readahead(self, descriptor: int) -> None:
        """From now on only what is asked for is read: whoever flushes would wait behind the rest as well.

        For all who read by this descriptor, and for good: the small reads that look for the next batch would
        start it again.
        """
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def prefetch(self, descriptor: int, size: int, position: int) -> None:
        """Begin to bring these bytes into the page cache, those that lie apart at the same time."""
        os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_WILLNEED)

    def cache(self, descriptor: int, size: int, position: int) -> None:
        """Bring these bytes into the page cache."""
        while size > 0:
            pieces = -(-min(size, MAX_CACHED_AT_ONCE) // len(_nowhere))
            got = os.preadv(descriptor, [_nowhere] * pieces, position)
            if not got:
                break
            size -= got
            position += got

    def pread_cached(self, descriptor: int, size: int, position: int) -> Buffer | None:
        """What the page cache holds of these bytes; None when the disk would have to be asked first."""
        if NOWAIT is None:
            return pread_counted(descriptor, size, position)
        buffer = numpy.empty(size, numpy.uint8).data  # not cleared first, and not copied afterwards
        try:
            got = os.preadv(descriptor, (buffer,), position, NOWAIT)
        except BlockingIOError:
            return None
        except NotImplementedError:  # Python was built for a system without `preadv2`
            return pread_counted(descriptor, size, position)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):  # not on this file system: ask plainly
                return os.pread(descriptor, size, position)
            if error.errno == errno.EPERM:  # forbidden by a container's rules
                return pread_counted(descriptor, size, position)
            raise
        return buffer[:got].toreadonly()

    tells_cached = staticmethod(tells_cached)
    is_cached = staticmethod(holds_all)
    """(descriptor, size, position): whether all of this is in the page cache; False where nobody can tell"""

    def sendfile(self, socket_descriptor: int, descriptor: int, size: int, position: int) -> int:
        """How many of these bytes the socket took; BlockingIOError when it takes none."""
        return os.sendfile(socket_descriptor, descriptor, position, size)

    truncate = staticmethod(os.ftruncate)

    def allocate(self, descriptor: int, size: int) -> None:
        os.posix_fallocate(descriptor, 0, size)

    def fdatasync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Make creates, renames and removals in `path` durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def is_last(self, descriptor: int) -> bool:
        """Whether a file has no name any more and nobody else has it open; False where nobody can tell."""
        if os.fstat(descriptor).st_nlink or not hasattr(fcntl, "F_SETLEASE"):
            return False
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)  # refused if it is open elsewhere
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return False
        return True

    def is_unsent(self, descriptor: int) -> bool:
        """Whether no client is still to get bytes of a file by `sendfile`, which copies nothing: what is cut
        off meanwhile would reach it as zeros. False as well of a file that is not all on the disk. The page
        cache forgets the file.
        """
        return not CAN_TELL_CACHED or drop_cached(descriptor)  # where it cannot, no file is sent like that

    def make_directory(self, path: Path) -> None:
        path.mkdir()

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=False)

    def size_of(self, path: Path) -> int:
        return path.stat().st_size

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        nanoseconds = modified_ms * 1_000_000
        os.utime(path, ns=(nanoseconds, nanoseconds))


SYSTEM_DISK = Disk()


class DescriptorPool:
    """At most `capacity` descriptors of idle data files stay open; the second-chance rule picks who goes.

    Owned by: any thread, under lock. Files in use, and files that pin themselves open (the active segments),
    are not closed, so the capacity is a target and not a wall.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._open: deque[DataFile] = deque()

    @property
    def open_files(self) -> int:
        return len(self._open)

    def opened(self, file: DataFile) -> None:
        """`file` has just opened its descriptor: make room for it."""
        with self._lock:
            self._open.append(file)
            for _ in range(2 * len(self._open)):
                if len(self._open) <= self.capacity:
                    return
                candidate = self._open.popleft()
                if candidate is file or candidate.recently_used:
                    candidate.recently_used = candidate is file
                    self._open.append(candidate)
                elif not candidate.try_close():
                    self._open.append(candidate)

    def shed(self) -> int:
        """Close all that is idle, because the process has no descriptors left; how many were closed."""
        with self._lock:
            before = len(self._open)
            self._open = deque(file for file in self._open if not file.try_close())
            return before - len(self._open)

    def closed(self, file: DataFile) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._open.remove(file)


def default_capacity() -> int:
    """Half of what the process may open; the rest is for connections, indexes and checkpoints."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 16
    return max(16, soft // 2)


POOL = DescriptorPool(default_capacity())


NOWHERE = -(1 << 62)


class Held:
    """A data file whose descriptor stays open meanwhile. A class: a generator would cost twice as much."""

    __slots__ = ("_file",)

    def __init__(self, file: DataFile) -> None:
        self._file = file

    def __enter__(self) -> int:
        return self._file.acquire()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._file.release()
        if isinstance(error, OSError):
            self._file.name_in(error)


class DataFile:
    """One file of a log by path; its descriptor comes and goes.

    Owned by: the log's owner for writing and renaming; any thread, under lock, for reading and flushing.
    """

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_lock",
        "_pool",
        "_users",
        "cold_position",
        "disk",
        "has_readahead",
        "is_given_back",
        "is_pinned",
        "path",
        "recently_used",
        "warming",
    )

    def __init__(self, disk: Disk, path: Path, pool: DescriptorPool = POOL) -> None:
        self.disk = disk
        self.path = path
        self.cold_position = NOWHERE  # where a read that went to the disk ended last
        self.has_readahead = True  # of its descriptor
        self.warming: list[tuple[int, int]] = []  # asked for by a thread that has not checked them yet
        self.is_pinned = False
        self.is_given_back = False  # nobody but who still reads needs the descriptor
        self.recently_used = False
        self._pool = pool
        self._lock = threading.Lock()
        self._descriptor = -1
        self._users = 0

    @staticmethod
    def create(disk: Disk, path: Path, pool: DescriptorPool = POOL) -> DataFile:
        """A new empty file, kept open until `unpin`; what had the name before is emptied."""
        file = DataFile(disk, path, pool)
        file.is_pinned = True
        file._open(os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        return file

    def _open(self, flags: int) -> None:
        try:
            self._descriptor = self.disk.open(self.path, flags)
        except OSError as error:
            if error.errno != errno.EMFILE or self._pool.shed() == 0:
                raise
            self._descriptor = self.disk.open(self.path, flags)
        self.has_readahead = True

    def acquire(self) -> int:
        """An open descriptor, valid until `release`."""
        with self._lock:
            self.recently_used = True
            is_open = self._descriptor >= 0
            if not is_open:
                self._open(os.O_RDWR)
            self._users += 1
            descriptor = self._descriptor
        if not is_open and not self.is_given_back:
            self._pool.opened(self)
        return descriptor

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self.is_given_back:
                self._close_unused()

    def name_in(self, error: OSError) -> None:
        """A descriptor has no name: say which file it was, or a bad sector could be anywhere."""
        if error.filename is None:
            error.filename = str(self.path)

    def descriptor(self) -> Held:
        """`with file.descriptor() as descriptor`: an open one, held for as long."""
        return Held(self)

    def try_close(self) -> bool:
        """Close the descriptor if nobody uses it; False when it stays. Never waits."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return not self.is_pinned and self._close_unused()
        finally:
            self._lock.release()

    def _close_unused(self) -> bool:
        """Close the descriptor if nobody uses it, under the lock; False when it stays."""
        if self._users:
            return False
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self.disk.close(descriptor)
        return True

    def unpin(self) -> None:
        """The file is written no more: from now on the pool may close it."""
        if self.is_pinned:
            self.is_pinned = False
            if self._descriptor >= 0:
                self._pool.opened(self)

    def pin(self) -> None:
        """The file is written from now on: keep it open."""
        if not self.is_pinned:
            self.is_pinned = True
            self.acquire()
            self.release()
            self._pool.closed(self)

    def close(self) -> None:
        """Give the descriptor back. Who still reads, or begins to, keeps the file open until then and no
        longer: as long as it is open, a file that was removed takes its place on the disk.
        """
        with self._lock:
            self.is_pinned = False
            self.is_given_back = True
            self._close_unused()
        self._pool.closed(self)

    def write(self, buffers: Sequence[Buffer], position: int, size: int) -> None:
        """All of `buffers` (`size` bytes) at `position` by one call; OSError (ENOSPC) when less could be
        written.
        """
        descriptor = self._descriptor
        if descriptor >= 0 and self.is_pinned:
            written = self.disk.pwritev(descriptor, buffers, position)
        else:
            with self.descriptor() as descriptor:
                written = self.disk.pwritev(descriptor, buffers, position)
        if written != size:
            raise OSError(errno.ENOSPC, f"No space left: {written} of {size} bytes written", str(self.path))

    def stop_readahead(self) -> None:
        """Read no more than what is asked for, as long as the descriptor stays open."""
        with self.descriptor() as descriptor:
            if self.has_readahead:
                self.disk.stop_readahead(descriptor)
                self.has_readahead = False

    def prefetch(self, size: int, position: int) -> None:
        """Begin to bring `size` bytes at `position` into the page cache."""
        with self.descriptor() as descriptor:
            self.disk.prefetch(descriptor, size, position)

    def cache(self, size: int, position: int) -> None:
        """Bring `size` bytes at `position` into the page cache. May wait for the disk."""
        with self.descriptor() as descriptor:
            self.disk.cache(descriptor, size, position)

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes at `position`, less only at the end of the file. May wait for the disk."""
        descriptor = self.acquire()
        pread = self.disk.pread
        try:
            data = pread(descriptor, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            missing = size - len(data)
            while missing:  # a signal, or more than the system gives at once
                position += len(parts[-1])
                more = pread(descriptor, missing, position)
                if not more:
                    break
                parts.append(more)
                missing -= len(more)
            return b"".join(parts)
        except OSError as error:
            self.name_in(error)
            raise
        finally:
            self.release()

    def read_cached(self, size: int, position: int) -> Buffer | None:
        """As `read`, never waiting: None when the page cache does not hold the bytes (or all of them).
        For the log's owner: nobody else may unpin the file meanwhile.
        """
        descriptor = self._descriptor
        if descriptor >= 0 and self.is_pinned:
            return self.disk.pread_cached(descriptor, size, position)
        descriptor = self.acquire()
        try:
            return self.disk.pread_cached(descriptor, size, position)
        except OSError as error:
            self.name_in(error)
            raise
        finally:
            self.release()

    def tells_cached(self) -> bool:
        """Whether anybody can tell what `is_cached`; else nothing is."""
        try:
            with self.descriptor() as descriptor:
                return self.disk.tells_cached(descriptor)
        except OSError:  # who reads it is told
            return False

    def is_cached(self, size: int, position: int) -> bool:
        """Whether `size` bytes at `position` can be had without the disk; False when nobody can tell."""
        with self.descriptor() as descriptor:
            return self.disk.is_cached(descriptor, size, position)

    def read_behind(self, size: int, position: int, count: int) -> bytes | None:
        """`count` bytes behind `size` at `position`, if all these are in the page cache; as `is_cached`."""
        with self.descriptor() as descriptor:
            if not self.disk.is_cached(descriptor, size + count, position):
                return None
            return self.disk.pread(descriptor, count, position + size)

    def truncate(self, size: int) -> None:
        with self.descriptor() as descriptor:
            self.disk.truncate(descriptor, size)

    def allocate(self, size: int) -> None:
        with self.descriptor() as descriptor:
            self.disk.allocate(descriptor, size)

    def flush_data(self) -> None:
        """fdatasync: contents and size."""
        with self.descriptor() as descriptor:
            self.disk.fdatasync(descriptor)

    def begin_flush_data(self, ring: Ring, token: int) -> bool:
        """`flush_data` by `ring`; `release` has to follow when it has ended.

        False when `flush_data` has to be called instead: the ring takes no more, the file is not kept open,
        or its disk is a test's.
        """
        if not self.is_pinned or self._descriptor < 0 or self.disk is not SYSTEM_DISK:
            return False
        if ring.fdatasync(self.acquire(), token):
            return True
        self.release()
        return False

    def size(self) -> int:
        return self.disk.size_of(self.path)

    def rename(self, target: Path) -> None:
        with self._lock:
            self.disk.rename(self.path, target)
            self.path = target
