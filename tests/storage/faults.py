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
    their directory was synced after them.
    """

    def __init__(self, attic: Path) -> None:
        self._attic = attic
        attic.mkdir()
        self._durable_size: dict[int, int] = {}  # inode -> bytes
        self._undo: dict[Path, list[Callable[[], None]]] = {}
        self._kept = 0

    def _keep(self, path: Path) -> Path | None:
        """A second name for a file that is about to lose its own."""
        if not path.exists():
            return None
        self._kept += 1
        kept = self._attic / str(self._kept)
        os.link(path, kept)
        return kept

    def _note(self, path: Path, undo: Callable[[], None]) -> None:
        self._undo.setdefault(path.parent, []).append(undo)

    def open(self, path: Path, flags: int) -> int:
        is_new = bool(flags & os.O_CREAT) and not path.exists()
        descriptor = super().open(path, flags)
        if is_new:
            self._note(path, lambda: path.unlink(missing_ok=True))
            self._durable_size[os.fstat(descriptor).st_ino] = 0
        return descriptor

    def fdatasync(self, descriptor: int) -> None:
        self.fsync(descriptor)

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._durable_size[status.st_ino] = status.st_size

    def sync_directory(self, path: Path) -> None:
        self._undo.pop(path, None)

    def rename(self, source: Path, target: Path) -> None:
        kept = None if target.is_dir() else self._keep(target)
        super().rename(source, target)

        def undo() -> None:
            target.rename(source)
            if kept is not None:
                kept.rename(target)

        self._note(target, undo)

    def unlink(self, path: Path) -> None:
        kept = self._keep(path)
        super().unlink(path)
        if kept is not None:
            self._note(path, lambda: _rename(kept, path))

    def make_directory(self, path: Path) -> None:
        super().make_directory(path)
        self._note(path, lambda: shutil.rmtree(path, ignore_errors=True))

    def power_cut(self, root: Path) -> None:
        """Take everything below `root` back to what was synced."""
        for directory in sorted(self._undo, reverse=True):
            for undo in reversed(self._undo[directory]):
                undo()
        self._undo.clear()
        for path in root.rglob("*"):
            if path.is_file():
                durable = self._durable_size.get(path.stat().st_ino)
                if durable is not None and durable < path.stat().st_size:
                    os.truncate(path, durable)


def _rename(source: Path, target: Path) -> None:
    source.rename(target)
