"""A disk of our own for a test: a file system in a file, or a small tmpfs, that may fail, fill up or vanish.

Only what is made here is touched; it is unmounted at the end, whatever happened. Needs root, and tools that
not every machine has: the test that asks for something missing is skipped, and says what.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.process import BrokerProcess
from tests.waiting import wait_for

FS_IOC_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN: from now on the file system answers EIO"""
NO_LOG_FLUSH = 2
IMAGE_BYTES = 320 << 20  # xfs wants at least 300 MiB
MAKE = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"]}


def needs(*tools: str, root: bool = True) -> None:
    """Skip the test where one of `tools` is missing, or we are not root."""
    if root and os.geteuid() != 0:
        pytest.skip("needs root, to mount")
    for tool in tools:
        if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            pytest.skip(f"needs {tool}")


def run(*command: str) -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False
    )
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def unmount(path: Path) -> None:
    """Linux lets go of what a killed process had in io_uring some milliseconds after its end."""

    def is_unmounted() -> bool:
        try:
            run("umount", str(path))
        except OSError as error:
            if "busy" not in str(error):
                raise
            return False
        return True

    wait_for(is_unmounted, f"the last user of {path} to be gone")


class LoopDisk:
    """A file system in a file of ours, mounted at `path`."""

    def __init__(self, kind: str, work: Path) -> None:
        self.kind = kind
        self.image = work / f"{kind}.image"
        self.path = work / kind
        self._is_mounted = False
        self.path.mkdir()
        with self.image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        run(*MAKE[kind], str(self.image))

    def mount(self) -> None:
        run("mount", "-o", "loop", "-t", self.kind, str(self.image), str(self.path))
        self._is_mounted = True

    def unmount(self) -> None:
        """Return when the file system is gone: a name space of another test that was made meanwhile has it
        mounted as well, and what is mounted then is not read from the disk anew.
        """
        if self._is_mounted:
            unmount(self.path)
            self._is_mounted = False
            wait_for(lambda: not self._is_attached(), f"the last name space with {self.path} to be gone", 600)

    def _is_attached(self) -> bool:
        for path in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):  # it was let go meanwhile
                if path.read_text().strip() == str(self.image):
                    return True
        return False

    def cut_power(self) -> None:
        """What is not on disk by now never gets there: neither data nor the file system's own log."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def work_directory() -> Iterator[Path]:
    """On the machine's disk: an image on a tmpfs could outgrow the memory."""
    path = Path(tempfile.mkdtemp(prefix="kompakt-crash-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def loop_disk(kind: str) -> Iterator[LoopDisk]:
    """A mounted disk of this kind, or a skipped test where there can be none."""
    needs(MAKE[kind][0], "mount", "umount")
    if kind not in Path("/proc/filesystems").read_text():
        pytest.skip(f"this kernel knows no {kind}")
    with work_directory() as work:
        disk = LoopDisk(kind, work)
        try:
            disk.mount()
        except OSError as error:
            pytest.skip(f"no loop device can be mounted: {error}")
        try:
            yield disk
        finally:
            disk.unmount()


@contextlib.contextmanager
def broker_on(disk: LoopDisk, settings: Mapping[str, str], output: Path) -> Iterator[BrokerProcess]:
    """One that serves from the disk, and says what it does elsewhere; it may be killed and started again."""
    broker = BrokerProcess(disk.path / "data", settings)
    broker.output = output
    broker.start()
    try:
        yield broker
    finally:
        if broker.process is not None:
            broker.kill()


def lose_power(disk: LoopDisk, broker: BrokerProcess) -> None:
    """Kill the broker, keep what was synced, and start it again."""
    broker.kill()
    disk.cut_power()
    disk.unmount()
    disk.mount()
    broker.start()


@contextlib.contextmanager
def small_tmpfs(size_bytes: int) -> Iterator[Path]:
    """A mounted tmpfs of this size, or a skipped test where there can be none."""
    needs("mount", "umount")
    with work_directory() as work:
        path = work / "disk"
        path.mkdir()
        try:
            run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "kompakt-test", str(path))
        except OSError as error:
            pytest.skip(f"no tmpfs can be mounted: {error}")
        try:
            yield path
        finally:
            unmount(path)


def fill(path: Path) -> Path:
    """Leave no free byte on the file system of `path`; the file that takes it all."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    return ballast
