"""Logs and batches for tests, in as few words as possible."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from config.topic import TopicConfig
from protocol.control import Marker, marker_batch
from protocol.records import Record, decode_all, encode_batch
from storage.file import SYSTEM_DISK, Disk
from storage.index import OffsetIndex, TimeIndex
from storage.key_hashes import KeyHashes
from storage.layout import TopicPartition
from storage.log import Log
from storage.opening import open_log
from storage.types import Appended, LogLimits, Origin

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
LATER_MS = NOW_MS + 100 * HOUR_MS
TOPIC_PARTITION = TopicPartition("orders", 2)
FEW_KEY_HASH_BYTES = 2000
"""the keys of a few batches are known and the others unpacked: every test of a cleaning may meet both"""


def entries_of(index: OffsetIndex | TimeIndex) -> list[tuple[int, int]]:
    """(offset, position), or (timestamp, offset), of each entry."""
    base, (first, second) = index.base_offset, index.columns()
    if isinstance(index, OffsetIndex):
        first = [base + offset for offset in first]
    else:
        second = [base + offset for offset in second]
    return list(zip(first, second, strict=True))


def topic_config(**values: Any) -> TopicConfig:
    """The defaults with some values changed."""
    for name in ("cleanup_policy",):
        if name in values:
            values[name] = frozenset(values[name].split(","))
    return dataclasses.replace(TopicConfig(), **values)


def batch(
    *values: bytes | None, key: bytes | None = b"k", timestamp: int = NOW_MS, codec: int = 0, **fields: Any
) -> bytes:
    """A client's batch: one record a value (b"v" when none is given)."""
    return encode_batch([(timestamp, key, value, ()) for value in (values or (b"v",))], codec=codec, **fields)


class LogBuilder:
    """A log in a directory of its own, which can be opened again and again."""

    def __init__(self, directory: Path, disk: Disk = SYSTEM_DISK, **config: Any) -> None:
        self.directory = directory
        self.disk = disk
        self.key_hashes = KeyHashes(config.pop("key_hash_bytes", FEW_KEY_HASH_BYTES))
        self.config = topic_config(**config)
        self.now_ms = NOW_MS
        self.recovery_point = 0
        self.log_start_offset = 0
        self.log = self.open(is_clean=True)

    def open(self, *, is_clean: bool = False, disk: Disk | None = None) -> Log:
        """Open (again), by default as after a crash."""
        self.disk = disk or self.disk
        self.log = open_log(
            self.directory,
            TOPIC_PARTITION,
            self.config,
            now_ms=self.now_ms,
            disk=self.disk,
            is_clean=is_clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            limits=LogLimits(key_hashes=self.key_hashes),
        )
        return self.log

    def crash(self, *, disk: Disk | None = None) -> Log:
        """End without a goodbye and open again."""
        self.log.abandon()
        return self.open(disk=disk or SYSTEM_DISK)

    def restart(self) -> Log:
        """Shut down cleanly and open again."""
        self.log.close()
        return self.open(is_clean=True)

    def append(self, *values: bytes | None, **fields: Any) -> Appended:
        return self.log.append(batch(*values, **fields), now_ms=self.now_ms)

    def fill(self, count: int, value: bytes = b"v", *, step_ms: int = 0, **fields: Any) -> None:
        """`count` batches of one record, `step_ms` apart."""
        for number in range(count):
            self.append(value, timestamp=self.now_ms + number * step_ms, **fields)

    def end_transaction(self, producer_id: int, *, is_commit: bool, epoch: int = 0) -> Appended:
        data = marker_batch(
            Marker(is_commit), producer_id=producer_id, producer_epoch=epoch, now_ms=self.now_ms
        )
        return self.log.append(data, now_ms=self.now_ms, origin=Origin.COORDINATOR)

    def records(self, start: int | None = None) -> list[Record]:
        """Everything a reader gets, fetch by fetch, from `start` (the log's start) to the end."""
        return list(read_all(self.log, self.log.log_start_offset if start is None else start))

    def offsets(self, start: int | None = None) -> list[int]:
        return [record.offset for record in self.records(start)]

    def files(self, suffix: str = "") -> list[str]:
        return sorted(path.name for path in self.directory.iterdir() if path.name.endswith(suffix))


def read_all(log: Log, start: int, max_bytes: int = 4096) -> Iterable[Record]:
    """What a client does: fetch, skip what lies below the offset asked for, go on behind the last record."""
    offset = start
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, upper_offset=log.log_end_offset).read()
        assert data, f"nothing at {offset}, below the end {log.log_end_offset}"
        found = [record for record in decode_all(data) if record.offset >= offset]
        yield from found
        offset = _next_offset(data)


def _next_offset(data: bytes | bytearray | memoryview) -> int:
    from protocol.batch import iterate_headers

    headers = [header for _, header in iterate_headers(data)]
    return headers[-1].next_offset
