"""A disk that fails as disks do: at the nth call, in the middle of a write, when it is full, when the
power goes.

Handed to a `Log` or `LogManager` in the place of `storage.file.SYSTEM_DISK`. It works on real files, so
that what a fault leaves behind is opened again by the ordinary code.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from storage.file import Buffer, Disk


class Crash(BaseException):
    """The process ends here. Not an Exception: no code of ours may catch it and go on."""


class UnsyncedDisk(Disk):
    """Spares the syncs, which only a power cut would miss: for tests that open a log a thousand times."""

    def fdatasync(self, descriptor: int) -> None:
        return

    def fsync(self, descriptor: int) -> None:
        return


class FaultyDisk(UnsyncedDisk):
    """Counts every call that changes something; one of them can be made to fail, to tear or to end the
    process.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.crash_at: int | None = None
        self.error_at: dict[int, int] = {}  # number of a call -> errno
        self.fail_on: dict[str, int] = {}  # name of a call -> errno
        self.room_bytes: int | None = None
        self.tear_bytes: int | None = None  # of the next write only so much arrives before the crash
        self.is_dead = False

    def _count(self, name: str, subject: object) -> None:
        if self.is_dead:
            raise Crash
        number = len(self.calls)
        self.calls.append(f"{name} {subject}")
        if number == self.crash_at:
            self.is_dead = True
            raise Crash
        error = self.error_at.get(number) or self.fail_on.get(name)
        if error is not None:
            raise OSError(error, os.strerror(error))

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT:
            self._count("create", path.name)
        elif self.is_dead:
            raise Crash
        return super().open(path, flags)

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if self.tear_bytes is not None:
            os.pwrite(descriptor, b"".join(buffers)[: self.tear_bytes], position)
            self.is_dead = True
            raise Crash
        self._count("write", descriptor)
        size = sum(len(buffer) for buffer in buffers)
        if self.room_bytes is not None:
            if size > self.room_bytes:
                written, self.room_bytes = self.room_bytes, 0
                if not written:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return os.pwrite(descriptor, b"".join(buffers)[:written], position)
            self.room_bytes -= size
        return super().pwritev(descriptor, buffers, position)

    def truncate(self, descriptor: int, size: int) -> None:
        self._count("truncate", size)
        super().truncate(descriptor, size)

    def fdatasync(self, descriptor: int) -> None:
        self._count("fdatasync", descriptor)
        super().fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        self._count("fsync", descriptor)
        super().fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self._count("rename", f"{source.name} {target.name}")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._count("unlink", path.name)
        super().unlink(path)


class PowerCutDisk(Disk):
    """Remembers what was synced; `power_cut` takes the files back to exactly that.

    Data of a file survives up to the size it had at its last sync; creations, renames and removals survive if
    their directory was synced after them, whatever it is called by then.
    """

    def __init__(self, attic: Path) -> None:
        self._attic = attic
        attic.mkdir()
        self._durable_size: dict[int, int] = {}  # inode -> bytes
        self._undo: list[tuple[Path, int, Callable[[Path], None]]] = []
        """oldest first: a directory, its inode, and how a change in it is taken back"""
        self._kept = 0

    def _keep(self, path: Path) -> Path | None:
        """A second name for a file that is about to lose its own."""
        if not path.exists():
            return None
        self._kept += 1
        kept = self._attic / str(self._kept)
        os.link(path, kept)
        return kept

    def _note(self, directory: Path, undo: Callable[[Path], None]) -> None:
        self._undo.append((directory, directory.stat().st_ino, undo))

    def _settle(self, inode: int) -> None:
        """What was done in the directory is not taken back any more."""
        self._undo[:] = [done for done in self._undo if done[1] != inode]

    def open(self, path: Path, flags: int) -> int:
        is_new = bool(flags & os.O_CREAT) and not path.exists()
        descriptor = super().open(path, flags)
        if is_new:
            self._note(path.parent, lambda directory: (directory / path.name).unlink(missing_ok=True))
            self._durable_size[os.fstat(descriptor).st_ino] = 0
        return descriptor

    def fdatasync(self, descriptor: int) -> None:
        self.fsync(descriptor)

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._durable_size[status.st_ino] = status.st_size

    def sync_directory(self, path: Path) -> None:
        self._settle(path.stat().st_ino)

    def rename(self, source: Path, target: Path) -> None:
        kept = None if target.is_dir() else self._keep(target)
        super().rename(source, target)

        def undo(directory: Path) -> None:
            (directory / target.name).rename(directory / source.name)
            if kept is not None:
                kept.rename(directory / target.name)

        self._note(target.parent, undo)

    def unlink(self, path: Path) -> None:
        kept = self._keep(path)
        super().unlink(path)
        if kept is not None:
            self._note(path.parent, lambda directory: _rename(kept, directory / path.name))

    def make_directory(self, path: Path) -> None:
        super().make_directory(path)
        self._note(path.parent, lambda directory: shutil.rmtree(directory / path.name, ignore_errors=True))

    def remove_tree(self, path: Path) -> None:
        self._settle(path.stat().st_ino)
        super().remove_tree(path)

    def power_cut(self, root: Path) -> None:
        """Take everything below `root` back to what was synced."""
        for path, inode, undo in reversed(self._undo):
            directory = _find(root, path, inode)
            if directory is not None:  # else it was taken back itself
                undo(directory)
        self._undo.clear()
        for path in root.rglob("*"):
            if path.is_file():
                durable = self._durable_size.get(path.stat().st_ino)
                if durable is not None and durable < path.stat().st_size:
                    os.truncate(path, durable)


def _rename(source: Path, target: Path) -> None:
    source.rename(target)


def _find(root: Path, path: Path, inode: int) -> Path | None:
    """A directory below `root` that was `path` once."""
    if path.is_dir() and path.stat().st_ino == inode:
        return path
    found = (Path(name) for name, _, _ in os.walk(root))
    return next((one for one in found if one.stat().st_ino == inode), None)
