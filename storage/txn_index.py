"""The aborted transactions of a segment (`.txnindex`, Kafka's `TransactionIndex`).

34-byte entries in the order of their markers: version i16, producer id, first offset, last offset (of the
marker), and the last stable offset after it, each i64. A fetch with read_committed is told which of them
touch its range. The file exists only where a transaction was aborted.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from struct import Struct

from storage.file import Disk
from storage.small_files import read_whole, replace_whole, room_or_none, sync_file
from storage.types import AbortedTransaction

ENTRY = Struct(">hqqqq")
ENTRY_BYTES = ENTRY.size
VERSION = 0
LAST_OFFSET = attrgetter("last_offset")


def parse(data: bytes) -> list[AbortedTransaction]:
    """The entries, each ending behind the one before; ValueError when the bytes are none."""
    if len(data) % ENTRY_BYTES:
        raise ValueError(f"{len(data)} bytes are no whole entries")
    entries: list[AbortedTransaction] = []
    for version, *fields in ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        ascends = not entries or entry.last_offset > entries[-1].last_offset
        if version != VERSION or entry.first_offset > entry.last_offset or not ascends:
            raise ValueError(f"entry {len(entries)} of version {version} is {entry}")
        entries.append(entry)
    return entries


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


class TransactionIndex:
    """Owned by: the log's owner for appending; any thread for reading (the list is replaced, or grows)."""

    __slots__ = ("_entries", "disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self.disk = disk
        self.path = path
        self._entries: list[AbortedTransaction] | None = None

    def entries(self) -> list[AbortedTransaction]:
        """All entries, not to be changed by who asks; ValueError when the file is damaged."""
        entries = self._entries
        if entries is None:
            self._entries = entries = parse(self.read_file())
        return entries

    def note_none(self) -> None:
        """There is no file, and none is missing: nobody needs to look for it again."""
        self._entries = []

    def read_file(self) -> bytes:
        """The bytes of the file, whatever they are; none where there is no file."""
        try:
            return read_whole(self.disk, self.path)
        except FileNotFoundError:
            return b""

    def content(self) -> bytes:
        """What the file has to hold. It may hold something else, when a full disk refused to be repaired."""
        entries = self._entries
        return self.read_file() if entries is None else encode(entries)

    def append(self, added: Iterable[AbortedTransaction], *, is_durable: bool = False) -> None:
        """Write entries behind those that are there; an empty index makes no file."""
        entries = self.entries()
        new = tuple(added)
        if not new:
            return
        data = encode(new)
        descriptor = self.disk.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            if self.disk.pwritev(descriptor, [data], len(entries) * ENTRY_BYTES) != len(data):
                raise OSError(errno.ENOSPC, "a short write", str(self.path))
            if is_durable:
                self.disk.fsync(descriptor)
        finally:
            self.disk.close(descriptor)
        entries += new  # in place: an active segment may have a million, and each end of one comes here

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """Exactly these, in one step: a crash leaves the old file or the new one. On a full disk the old
        one stays, and these are in memory.
        """
        self._entries = list(entries)
        with room_or_none():
            replace_whole(self.disk, self.path, encode(self._entries))

    def reset(self) -> None:
        """Forget everything, and the file."""
        self.disk.unlink(self.path)
        self._entries = []

    def sync(self) -> None:
        if self._entries:
            sync_file(self.disk, self.path)

    def exists(self) -> bool:
        return bool(self.entries())

    def collect(self, start_offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that touch [start, upper), and whether later segments hold no more of
        them. Whoever reads at the end of a log asks that in every fetch: what ended before is not looked at.
        """
        found = []
        entries = self.entries()
        for place in range(bisect_left(entries, start_offset, key=LAST_OFFSET), len(entries)):
            entry = entries[place]
            if entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def rename(self, target: Path) -> None:
        if self.path.exists():
            self.disk.rename(self.path, target)
        self.path = target
