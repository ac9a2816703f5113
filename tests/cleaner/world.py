"""A compacted log and a cleaner, in as few words as possible."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cleaner.cleaner import Cleaner
from cleaner.offset_map import ENTRY_BYTES
from cleaner.results import CleanResult, Range
from protocol.batch import BatchHeader
from protocol.records import decode_batch, encode_batch
from storage.file import SYSTEM_DISK, Disk
from storage.segment import Segment
from storage.types import AbortedTransaction, Appended, Origin
from tests.storage.builders import HOUR_MS, NOW_MS, LogBuilder
from tests.storage.faults import Crash, FaultyDisk

__all__ = ["HOUR_MS", "NOW_MS", "World"]

RETENTION_MS = 24 * HOUR_MS


class World(LogBuilder):
    """A log, and cleanings of it one by one."""

    def __init__(
        self,
        directory: Path,
        slots: int = 4096,
        disk: Disk = SYSTEM_DISK,
        *,
        load_factor: float = 0.75,
        **config: Any,
    ) -> None:
        super().__init__(directory, disk, **{"cleanup_policy": "compact", **config})
        self.slots = slots
        self.load_factor = load_factor
        self.read_bytes = 1 << 16
        self.is_damaged = False

    def put(self, *pairs: tuple[bytes | str | None, bytes | str | None], **fields: Any) -> Appended:
        """One batch of (key, value) pairs."""
        items = [(self.now_ms, encoded(key), encoded(value), ()) for key, value in pairs]
        origin = Origin.COORDINATOR if fields.pop("trusted", False) else Origin.CLIENT
        return self.log.append(encode_batch(items, **fields), now_ms=self.now_ms, origin=origin)

    def put_each(self, keys: Iterable[object], value: str = "v", **fields: Any) -> None:
        """A batch of one record for each key."""
        for key in keys:
            self.put((str(key), value), **fields)

    def roll(self) -> int:
        """Close the active segment; its successor's base offset."""
        self.log.roll(self.now_ms)
        return self.log.segments[-1].base_offset

    def set_policy(self, policy: str) -> None:
        """From now on."""
        self.log.update_config(dataclasses.replace(self.log.config, cleanup_policy=frozenset({policy})))

    def cleaner(self) -> Cleaner:
        return Cleaner(
            map_bytes=self.slots * ENTRY_BYTES,
            load_factor=self.load_factor,
            run_on_owner=lambda function: function(),
            read_bytes=self.read_bytes,
        )

    def clean(self, first_dirty: int = 0, end: int | None = None, *, is_dry: bool = False) -> CleanResult:
        """Clean [first_dirty, end); `end` is the active segment's base if not given."""
        stop = self.log.segments[-1].base_offset if end is None else end
        return self.cleaner().clean(self.log, Range(first_dirty, stop), self.now_ms, is_dry=is_dry)

    def clean_all(self, rounds: int = 100) -> int:
        """Clean until the checkpoint has reached the active segment; how many rounds it took."""
        checkpoint = 0
        for number in range(1, rounds + 1):
            result = self.clean(checkpoint)
            assert result.end_offset > checkpoint, f"round {number} made no progress"
            checkpoint = result.end_offset
            if checkpoint >= self.log.segments[-1].base_offset:
                return number
        raise AssertionError(f"{rounds} rounds were not enough")

    def open_twice(self, crash_at: int) -> str | None:
        """Start, end at this call, start again; the call, or None where the start was over before."""
        disk = FaultyDisk()
        disk.crash_at = crash_at
        try:
            self.open(disk=disk)
        except Crash:
            self.open(disk=FaultyDisk())
            return disk.calls[crash_at]
        return None

    def headers(self) -> list[BatchHeader]:
        """The headers of all batches in the log."""
        return [header for header, _ in self.log.scan(0)]

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        return [(header, bytes(data)) for header, data in self.log.scan(0)]

    def pairs(self) -> list[tuple[str | None, str | None]]:
        """(key, value) of every data record, in order."""
        return [(decoded(one.key), decoded(one.value)) for one in self.records()]

    def keys(self) -> list[str | None]:
        return [key for key, _ in self.pairs()]

    def table(self) -> dict[str | None, str | None]:
        """What a reader has at the end, deleted keys left out."""
        return {key: value for key, value in dict(self.pairs()).items() if value is not None}

    def aborted(self) -> list[AbortedTransaction]:
        """The transaction indexes."""
        return self.log.aborted_transactions(0, self.log.log_end_offset)

    def committed(self) -> dict[str | None, str | None]:
        """As `table`, for a read_committed reader."""
        gone = {
            (one.producer_id, offset)
            for one in self.aborted()
            for offset in range(one.first_offset, one.last_offset)
        }
        found: dict[str | None, str | None] = {}
        for header, data in self.batches():
            for record in [] if header.is_control else decode_batch(data):
                if (header.producer_id, record.offset) not in gone:
                    found[decoded(record.key)] = decoded(record.value)
        return {key: value for key, value in found.items() if value is not None}

    def all_offsets(self) -> list[int]:
        """Offsets of all records, those of control batches too."""
        return [one.offset for _, data in self.batches() for one in decode_batch(data)]

    def last_offsets(self) -> list[int]:
        """The last offset of every batch, the empty ones too."""
        return [header.last_offset for header in self.headers()]

    def closed(self) -> tuple[Segment, ...]:
        return self.log.segments[:-1]


def encoded(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
