"""What the stateful model test knows: everything that was written, in order, and what a cleaning may take
away of it. And a disk that can end the process, fail, or lose what was not synced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from protocol.batch import iterate_headers
from protocol.control import ControlType, control_type
from protocol.records import Record, decode_batch
from storage.file import Disk
from storage.log import Log
from storage.verify import verify_log
from tests.storage.faults import Crash, FaultyDisk, PowerCutDisk

Pair = tuple[bytes | None, bytes | None]


class FragileDisk(FaultyDisk, PowerCutDisk):
    """Counts, fails and dies like the one, and forgets what was not synced like the other."""

    def __init__(self, attic: Path, before: FragileDisk | None = None) -> None:
        FaultyDisk.__init__(self)
        if before is None:
            PowerCutDisk.__init__(self, attic)
        else:  # another process, the same page cache
            self._attic, self._kept = before._attic, before._kept
            self._durable_size, self._undo = before._durable_size, before._undo
        self._open: set[int] = set()
        self._is_buried = False

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        self._open.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        if not self._is_buried:
            self._open.discard(descriptor)
            super().close(descriptor)

    def fdatasync(self, descriptor: int) -> None:
        self.fsync(descriptor)

    def fsync(self, descriptor: int) -> None:
        self._count("fsync", descriptor)
        PowerCutDisk.fsync(self, descriptor)

    def sync_directory(self, path: Path) -> None:
        self._count("fsync", path.name)
        PowerCutDisk.sync_directory(self, path)

    def bury(self) -> None:
        """The process is gone, and all that it had open."""
        self._is_buried = True
        for descriptor in self._open:
            with contextlib.suppress(OSError):
                Disk.close(self, descriptor)


@dataclass(frozen=True)
class Written:
    """One batch, or the marker that ends a transaction."""

    base_offset: int
    count: int
    pairs: Sequence[Pair]
    timestamp: int
    producer_id: int = -1
    base_sequence: int = -1
    codec: int = 0
    is_transactional: bool = False
    is_commit: bool | None = None  # None: no marker
    producer_epoch: int = -1

    @property
    def end(self) -> int:
        return self.base_offset + self.count

    def is_like(self, offset: int, found: Record) -> bool:
        key, value = self.pairs[offset - self.base_offset]
        return (found.key, found.value, found.timestamp) == (key, value, self.timestamp)


@dataclass
class Ledger:
    """All that was written and not lost, oldest first, and which part of it was ever given to a cleaning."""

    entries: list[Written] = field(default_factory=list)
    pending: Written | None = None
    cleaned_to: int = 0
    first_cleaned_ms: list[tuple[int, int]] = field(default_factory=list)  # (end of a cleaning, when)

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    def last_of(self, producer_id: int) -> Written | None:
        found = (one for one in reversed(self.entries) if one.producer_id == producer_id and one.pairs)
        return next(found, None)

    def epoch_of(self, producer_id: int) -> int:
        """That of its last batch or marker."""
        epochs = (one.producer_epoch for one in reversed(self.entries) if one.producer_id == producer_id)
        return next(epochs, 0)

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        last = self.last_of(producer_id)
        is_first = last is None or last.producer_epoch != epoch
        return 0 if is_first else last.base_sequence + last.count

    def note_cleaning(self, end: int, now_ms: int) -> None:
        """A cleaning up to `end` begins; it may be cut off anywhere."""
        self.cleaned_to = max(self.cleaned_to, end)
        self.first_cleaned_ms.append((end, now_ms))

    def survived(self, end: int, promised: int) -> None:
        """A start has found the log to end at `end`: nothing promised is missing, nothing is there in
        half.
        """
        if self.pending is not None and end == self.pending.end and self.end == self.pending.base_offset:
            self.entries.append(self.pending)
        self.pending = None
        assert promised <= end <= self.end, f"{promised} was promised, {self.end} written, {end} found"
        while self.entries and self.entries[-1].end > end:
            lost = self.entries.pop()
            assert lost.base_offset >= end, f"half of the batch at {lost.base_offset} survived"

    def aborted(self) -> set[int]:
        """The base offsets of batches whose transaction was aborted."""
        found: set[int] = set()
        undecided: dict[int, list[int]] = {}
        for one in self.entries:
            if one.is_commit is not None:
                ended = undecided.pop(one.producer_id, [])
                found.update([] if one.is_commit else ended)
            elif one.is_transactional:
                undecided.setdefault(one.producer_id, []).append(one.base_offset)
        return found

    def undecided(self) -> dict[int, int]:
        """Where the open transaction of each producer begins."""
        first: dict[int, int] = {}
        for one in self.entries:
            if one.is_commit is not None:
                first.pop(one.producer_id, None)
            elif one.is_transactional:
                first.setdefault(one.producer_id, one.base_offset)
        return first

    def armed_ms(self, offset: int) -> int | None:
        """When a cleaning saw this offset for the first time."""
        return next((when for end, when in self.first_cleaned_ms if offset < end), None)

    def check(self, log: Log, retention_ms: int, now_ms: int) -> None:
        """Nothing was moved or changed, and only what may go is gone."""
        by_offset = {one.base_offset + n: one for one in self.entries for n in range(len(one.pairs))}
        found = read_log(log)
        offsets = [record.offset for _, record in found]
        assert offsets == sorted(set(offsets)), "offsets are not ascending"
        for _, record in found:
            assert by_offset[record.offset].is_like(record.offset, record), record
        assert log.log_end_offset == self.end
        assert_read_from_disk(log, offsets)
        aborted = self.aborted()
        newest: dict[bytes | None, int] = {}
        present = set(offsets)
        for offset in sorted(by_offset, reverse=True):
            one = by_offset[offset]
            key, value = one.pairs[offset - one.base_offset]
            is_aborted = one.base_offset in aborted
            if offset not in present and offset >= log.log_start_offset:
                is_past = value is None and self._is_expired(offset, retention_ms, now_ms)
                may_go = is_aborted or key is None or key in newest or is_past
                assert offset < self.cleaned_to and may_go, f"the record at {offset} is lost"
            if not is_aborted and offset < self.cleaned_to:
                newest.setdefault(key, offset)
        self._check_table(log, found, by_offset, aborted)
        present_committed = [
            record.offset
            for _, record in found
            if by_offset[record.offset].base_offset not in aborted and record.offset < log.last_stable_offset
        ]
        for start in {log.log_start_offset, *offsets[1 :: max(1, len(offsets) // 3)]}:
            assert read_committed(log, start) == [one for one in present_committed if one >= start]
        check_times(log, [record for _, record in found])

    def _is_expired(self, offset: int, retention_ms: int, now_ms: int) -> bool:
        armed_ms = self.armed_ms(offset)
        return armed_ms is not None and now_ms >= armed_ms + retention_ms

    def _check_table(
        self,
        log: Log,
        found: Sequence[tuple[int, Record]],
        by_offset: dict[int, Written],
        aborted: set[int],
    ) -> None:
        """The last committed value of each key, as a reader of the log sees it."""
        limit = log.last_stable_offset
        left_out = [
            (one.producer_id, one.first_offset, one.last_offset)
            for one in log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        ]
        seen: dict[bytes | None, bytes | None] = {}
        for producer_id, record in found:
            is_hidden = any(
                producer_id == producer and first <= record.offset <= last
                for producer, first, last in left_out
            )
            if not is_hidden and record.offset < limit and record.key is not None:
                seen[record.key] = record.value
        expected: dict[bytes | None, bytes | None] = {}
        for offset, one in sorted(by_offset.items()):
            key, value = one.pairs[offset - one.base_offset]
            if one.base_offset not in aborted and log.log_start_offset <= offset < limit and key is not None:
                expected[key] = value
        assert alive(seen) == alive(expected)


def alive(table: dict[bytes | None, bytes | None]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in table.items() if value is not None}


def read_log(log: Log) -> list[tuple[int, Record]]:
    """(producer id, record) of all data in the log from its start on."""
    return [
        (header.producer_id, record)
        for header, data in log.scan(log.log_start_offset)
        if not header.is_control
        for record in decode_batch(data)
        if record.offset >= log.log_start_offset
    ]


def read_committed(log: Log, start: int) -> list[int]:
    """The offsets of the records that a consumer keeps of what it fetches, as Kafka's own decides."""
    kept: list[int] = []
    offset = start
    while offset < log.last_stable_offset:
        data = log.read(offset, 300, upper_offset=log.last_stable_offset).read()
        assert data, f"nothing at {offset} below {log.last_stable_offset}"
        headers = list(iterate_headers(data))
        end = headers[-1][1].next_offset
        told = log.aborted_transactions(offset, log.last_stable_offset)
        coming = sorted((one.first_offset, one.producer_id) for one in told if one.first_offset < end)
        hidden: set[int] = set()
        for position, header in headers:
            while coming and coming[0][0] <= header.last_offset:
                hidden.add(coming.pop(0)[1])
            if header.is_control:
                kinds = [control_type(one.key) for one in decode_batch(data, position)]
                if ControlType.ABORT in kinds:
                    hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                kept += [one.offset for one in decode_batch(data, position) if one.offset >= offset]
        offset = end
    return kept


def check_times(log: Log, found: Sequence[Record]) -> None:
    """Look-ups by time find the first record that is as young, and the first of the youngest."""
    control = [
        record
        for header, data in log.scan(log.log_start_offset)
        if header.is_control
        for record in decode_batch(data)
        if record.offset >= log.log_start_offset
    ]
    every = sorted([*found, *control], key=lambda one: one.offset)
    times = sorted({one.timestamp for one in every})
    for wanted in {0, *times[:: max(1, len(times) // 4)], *(one + 1 for one in times[-2:])}:
        if wanted < 0:
            continue
        first = next((one.offset for one in every if one.timestamp >= wanted), None)
        answer = log.offset_for_timestamp(wanted)
        assert (None if answer is None else answer.offset) == first, (wanted, answer, first)
    largest = max((one.timestamp for one in every), default=-1)
    answer = log.max_timestamp_offset()
    youngest = next((one.offset for one in every if one.timestamp == largest), None) if largest >= 0 else None
    assert (None if answer is None else answer.offset) == youngest, (answer, youngest)


def assert_sound(log: Log) -> None:
    """Every invariant of `storage.verify`."""
    assert verify_log(log.directory) == []


def assert_read_from_disk(log: Log, offsets: Sequence[int]) -> None:
    """What a thread reads for consumers whose pages have left the cache, and so checks again, is what there
    is.
    """
    damaged_places = log.health.damaged_places
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 300, upper_offset=log.log_end_offset).read()
        assert data, f"nothing at {offset}, the log ends at {log.log_end_offset}"
        for position, header in iterate_headers(data):
            offset = header.next_offset
            if not header.is_control:
                found += [record.offset for record in decode_batch(data, position)]
    assert [offset for offset in found if offset >= log.log_start_offset] == offsets
    assert log.health.damaged_places == damaged_places


__all__ = ["Crash", "FragileDisk", "Ledger", "Written", "assert_sound", "read_log"]
