"""Old records are read from the disk one fetch ahead of who reads them in order.

A consumer asks for the next MiB when it is through with the last one, and a fetch from the disk then waits
for a thread, the disk and the checksums: as long again as the consumer took. So the slice behind one that
came from the disk is brought into the page cache while the client is busy, if the one before it was read as
well; not by the kernel's own reading ahead, behind which nobody could tell what was checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from storage.file import DataFile
from storage.slice import Slice


class Reader(NamedTuple):
    """Who reads a file from the disk, the last one if they are several."""

    position: int
    """where it goes on, if it reads in order"""
    end: int
    """how far it is read ahead of"""
    coming: asyncio.Future[None] | None


class ReadAhead:
    """Owned by: event loop."""

    def __init__(self, run_blocking: Callable[..., asyncio.Future[None]]) -> None:
        self._run_blocking = run_blocking
        self._readers: WeakKeyDictionary[DataFile, Reader] = WeakKeyDictionary()

    def coming(self, found: Slice) -> asyncio.Future[None] | None:
        """What to wait for before a slice is asked for: a thread is about to bring it."""
        if not self._readers or not (found.is_located or found.locate(False)):
            return None
        reader = self._readers.get(found.file)
        if reader is None or reader.coming is None or reader.coming.done():
            return None
        return reader.coming if reader.position <= found.position < reader.end else None

    def leave(self, slices: list[Slice]) -> None:
        """Slices leave by the page cache: one thread sees to the next ones of those that were brought there
        for their readers. Many threads would make others wait for the disk.
        """
        cold: list[Slice] = []
        for found in slices:
            reader = self._readers.get(found.file)
            is_next = reader is not None and reader.position == found.position
            if not is_next and not found.is_warm:
                continue
            self._readers[found.file] = Reader(*found.following(), None)
            if is_next and found.is_following_cold():
                cold.append(found)
        if not cold:
            return
        coming = self._run_blocking(_warm_following, cold)
        for found in cold:
            self._readers[found.file] = Reader(*found.following(), coming)


def _warm_following(slices: list[Slice]) -> None:
    for found in slices:
        found.warm_following()
