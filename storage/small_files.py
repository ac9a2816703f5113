"""Small files that are read and written as a whole: checkpoints, indexes, snapshots, statistics."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from storage.file import Disk
from storage.layout import TEMPORARY_SUFFIX

logger = logging.getLogger(__name__)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def read_whole(disk: Disk, path: Path) -> bytes:
    """A small file as bytes."""
    descriptor = disk.open(path, os.O_RDONLY)
    try:
        parts = []
        position = 0
        while part := disk.pread(descriptor, 1 << 20, position):
            parts.append(part)
            position += len(part)
        return b"".join(parts)
    except OSError as error:
        error.filename = str(path)  # a descriptor has no name, and the message would have none
        raise
    finally:
        disk.close(descriptor)


def write_whole(disk: Disk, path: Path, data: bytes, *, is_durable: bool) -> None:
    """A small file written at once in place; a reader that meets half of it must be able to tell."""
    descriptor = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        if data and disk.pwritev(descriptor, [data], 0) != len(data):
            raise OSError(errno.ENOSPC, "No space left: a short write", str(path))
        if is_durable:
            disk.fsync(descriptor)
    finally:
        disk.close(descriptor)


def replace_whole(disk: Disk, path: Path, data: bytes) -> None:
    """A small file replaced in one step, durably: temporary file, fsync, rename, fsync of the directory."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    write_whole(disk, temporary, data, is_durable=True)
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def sync_file(disk: Disk, path: Path) -> None:
    """fsync by name; a file that is gone needs none."""
    try:
        descriptor = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        disk.fsync(descriptor)
    finally:
        disk.close(descriptor)


@contextlib.contextmanager
def room_or_none() -> Iterator[None]:
    """On a full disk what the batches say as well is not written: the log can be read, and room be made."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        logger.warning("not written, because the disk is full: %s", error)
