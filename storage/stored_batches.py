"""The batches of one `.log` file and the indexes that lead to them: walking, finding, checking.

This half of a segment knows nothing of appends and roles: it reads, on any thread, what is below
`size_bytes`, steps over places that are known to be damaged, and makes the indexes anew from the batches.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy

from protocol.batch import HEADER_BYTES, MAGIC, NO_TIMESTAMP, BatchHeader, parse_header
from protocol.errors import ErrorCode, KafkaError
from storage import batch_table, layout
from storage.batch_table import BROKEN, CUT, NOT_FOUND, as_chunk, batch_size, find_batch, read_table
from storage.file import DataFile
from storage.index import BrokenIndex, OffsetIndex, TimeIndex, WouldBlock, add_entries
from storage.integrity import Damage
from storage.prefixes import Checksums
from storage.small_files import NO_ROOM
from storage.trust import Health, Trust, lost

SCAN_BYTES = 1 << 20
LOCATE_BYTES = 8192
MAX_HINTS = 64
LARGE_BYTES = 64 << 10
"""read at once: from here on it matters to others whether the disk is asked, and for how much"""

_rebuilding = threading.Lock()  # several readers may find the same index damaged


class StoredBatches:
    """Owned by: event loop for `size_bytes` and the role; any thread for reading."""

    __slots__ = (
        "_largest",
        "_next_offset",
        "base_offset",
        "bytes_since_entry",
        "damages",
        "directory",
        "file",
        "health",
        "hints",
        "is_active",
        "limit_offset",
        "offset_index",
        "prefixes",
        "size_bytes",
        "time_index",
        "trust",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        file: DataFile,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.offset_index = offset_index
        self.time_index = time_index
        self.size_bytes = 0
        self.bytes_since_entry = 0
        self.is_active = False
        self.hints: dict[int, int] = {}  # offset -> where the first batch at or behind it begins
        self.health: Health | None = None
        self.limit_offset: int | None = None  # of a segment that was on disk: all its offsets are below
        self.trust: Trust | None = None  # None: written or checked by this process
        self.damages: tuple[Damage, ...] = ()  # places without good batches, ascending
        self.prefixes: Checksums | None = None  # as a cleaning wrote them, until its statistics say so
        self._largest: tuple[int, int] | None = None
        self._next_offset: int | None = None

    @property
    def next_offset(self) -> int:
        """One behind its last record; its base offset when it is empty. May read the file the first time."""
        if self._next_offset is None:
            self._next_offset = self._find_next_offset()
        return self._next_offset

    def _find_next_offset(self) -> int:
        try:
            _, position = self.offset_index.last()
            next_offset = self._end_from(position)
        except (BrokenIndex, FileNotFoundError, KafkaError):
            self.rebuild_indexes()
            last_offset, position = self.offset_index.last()
            try:
                next_offset = self._end_from(position)
            except KafkaError:  # damaged behind this; who reads it finds out
                next_offset = last_offset + 1 if position else self.base_offset
        return next_offset

    @property
    def has_left(self) -> bool:
        """Whether it was taken out of the log; who has it may read on, until its files are removed."""
        return self.file.path.suffix == layout.DELETED_SUFFIX

    @property
    def upper_offset(self) -> int:
        """All its offsets are below: those found on disk, which may end sooner, and those appended since."""
        limit, appended = self.limit_offset, self._next_offset
        if limit is None:
            return self.next_offset
        return limit if appended is None else max(limit, appended)

    def has_whole_end(self) -> bool:
        """Whether batches go on from the last index entry to the end of the file."""
        try:
            self._end_from(self.offset_index.last()[1])
        except (BrokenIndex, FileNotFoundError, KafkaError):
            return False
        return True

    def note_end(self, next_offset: int) -> None:
        """Its last record, if it were readable, is the one before this offset."""
        self._next_offset = next_offset

    @property
    def ends_damaged(self) -> bool:
        return bool(self.damages) and self.damages[-1].end >= self.size_bytes

    def _end_from(self, position: int) -> int:
        sole = self._sole_batch(position)
        last = None if sole is None else (sole.last_offset, position)
        for table in self.tables(position) if last is None else ():
            last = int(table[batch_table.LAST_OFFSET, -1]), int(table[batch_table.POSITION, -1])
        if last is None:
            return self.base_offset
        self.remember(*last)  # in most logs the last time index entry is compared with this batch next
        return last[0] + 1

    def _sole_batch(self, position: int) -> BatchHeader | None:
        """The header of a large batch that reaches from `position` to the end of the file, if that is all."""
        if self.size_bytes - position <= LOCATE_BYTES or self.damages:
            return None
        head = self.file.read(HEADER_BYTES, position)
        header = parse_header(head) if len(head) == HEADER_BYTES else None
        if header is None or header.magic != MAGIC or header.last_offset_delta < 0:
            return None
        return header if position + header.size_bytes == self.size_bytes else None

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes of the file; may wait for the disk."""
        return self.file.read(size, position)

    def check(self, position: int, end: int) -> None:
        """Before these bytes are believed: know what of them is damaged. May wait for the disk."""
        if self.trust is not None:
            self.trust.check(self, position, end)

    def check_again(self, position: int, end: int) -> bool:
        """Bytes that come from the disk, whoever wrote them: bits rot there. False: something was wrong."""
        return (self.trust or Trust.of(self)).check(self, position, end)

    def set_damages(self, damages: tuple[Damage, ...]) -> None:
        self.damages = damages
        self.hints.clear()

    def _skip_damage(self, position: int) -> tuple[int, int]:
        """Where good batches go on at or behind `position`, and up to where."""
        for damage in self.damages:
            if damage.position <= position < damage.end:
                position = damage.end
            elif damage.position > position:
                return position, damage.position
        return position, self.size_bytes

    def good_end(self, position: int, end: int) -> int:
        """`end`, or the damage before it."""
        return min(end, self._skip_damage(position)[1]) if self.damages else end

    def tables(
        self, position: int = 0, end: int | None = None, wanted: int = SCAN_BYTES
    ) -> Iterable[batch_table.Table]:
        """Tables of all batches from `position` (a batch start) on, positions in the file, without those in
        known damages. `wanted` bytes are read first.

        KafkaError(CORRUPT_MESSAGE) where no batch can begin or the last one is cut off.
        """
        end = self.size_bytes if end is None else end
        while position < end:
            position, limit = self._skip_damage(position)
            limit = min(limit, end)
            if position >= limit:
                continue
            data = self.file.read(min(wanted, limit - position), position)
            table, stopped, reason = read_table(data)
            if not table.shape[1]:
                claimed = int(batch_size(as_chunk(data), 0)) if reason == CUT and len(data) == wanted else 0
                if wanted < claimed <= limit - position:
                    wanted = claimed
                    continue
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"no batch at {position} of {self.file.path.name}"
                )
            wanted = SCAN_BYTES
            table[batch_table.POSITION] += position
            yield table
            position += stopped

    def good_tables(self, position: int = 0, wanted: int = SCAN_BYTES) -> Iterable[batch_table.Table]:
        """As `tables`, of checked batches only; a damage is passed over."""
        while True:
            for table in self.tables(position, wanted=wanted):
                start = int(table[batch_table.POSITION, 0])
                end = int(table[batch_table.POSITION, -1] + table[batch_table.SIZE_BYTES, -1])
                known = self.damages
                self.check(start, end)
                if self.damages is not known:
                    position = start
                    break
                yield table
            else:
                return

    def locate(self, offset: int, may_wait: bool = True) -> int | None:
        """Where the first batch begins whose last offset is at least `offset`; None when there is none.

        WouldBlock instead of waiting; KafkaError(CORRUPT_MESSAGE) when the offset is among the damaged ones.
        """
        hint = self.hints.get(offset)
        if hint is not None:
            return hint if hint < self.size_bytes else None
        position = self.floor(offset, may_wait)
        while position < self.size_bytes:
            begin, limit = self._skip_damage(position)
            for damage in self.damages if begin != position else ():
                if damage.end == begin and offset < damage.next_offset:
                    raise lost(self, damage)
            found, position = self._find(offset, begin, limit, may_wait)
            if found is not None:
                self.remember(offset, found)
                return found
        return None

    def position_behind(self, offset: int) -> int:
        """As `locate`; the end of the file when there is no such batch, behind the damage when the offset is
        lost.
        """
        try:
            position = self.locate(offset)
        except KafkaError:
            for damage in self.damages:
                if offset < damage.next_offset:
                    return damage.end
            raise
        return self.size_bytes if position is None else position

    def floor(self, offset: int, may_wait: bool = True) -> int:
        """A batch start at or before that of `offset`; the stretch up to the next index entry is checked."""
        try:
            position = self.offset_index.floor(offset, may_wait)[1]
        except (BrokenIndex, FileNotFoundError):
            if not may_wait:
                raise WouldBlock from None
            self.rebuild_indexes()
            position = self.offset_index.floor(offset)[1]
        trust = self.trust
        if trust is None or trust.covers(position, position + 1):
            return position
        if not may_wait:
            raise WouldBlock
        trust.check(self, position, position + 1)
        return self.offset_index.floor(offset)[1]

    def _find(self, offset: int, position: int, limit: int, may_wait: bool) -> tuple[int | None, int]:
        """Where the first batch of [position, limit) begins that reaches `offset`, and where the search
        ended.
        """
        read = self.file.read if may_wait else self.file.read_cached
        while position < limit:
            wanted = min(LOCATE_BYTES, limit - position)
            data = read(wanted, position)
            if data is None or (len(data) < wanted and not may_wait):
                raise WouldBlock
            found, stopped, reason = find_batch(as_chunk(data), offset)
            if found != NOT_FOUND:
                return position + int(found), position
            if reason == BROKEN or not stopped:  # no bytes at all: the file lost its end under this process
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"no batch at {position + stopped} of {self.file.path.name}"
                )
            position += int(stopped)
        return None, position

    def time_entry_holds(self, timestamp: int, offset: int) -> bool:
        """Whether an entry of the time index is what the batch it speaks of says; of our own it is."""
        if self.limit_offset is None or timestamp < 0:
            return True
        try:
            position = self.locate(offset)
        except KafkaError:
            return False
        head = b"" if position is None else self.file.read(HEADER_BYTES, position)
        return len(head) == HEADER_BYTES and parse_header(head).max_timestamp == timestamp

    def remember(self, offset: int, position: int) -> None:
        """Where to go on for a reader that asks for `offset` next."""
        hints = self.hints
        if len(hints) >= MAX_HINTS:
            hints.clear()
        hints[offset] = position

    def rebuild_indexes(self, interval_bytes: int = 4096) -> None:
        """Write both indexes anew from the batches; what cannot be read of a damaged file has no entries."""
        with _rebuilding:
            if self.trust is not None:
                self.trust.has_anchors = False  # what is made from bytes says nothing about them
            offset_index, time_index = self.offset_index, self.time_index
            was_active = self.is_active
            if was_active:  # appends go on meanwhile
                offset_index = OffsetIndex(offset_index.disk, offset_index.path, self.base_offset)
                time_index = TimeIndex(time_index.disk, time_index.path, self.base_offset)
            offset_index.reset()
            time_index.reset()
            state = numpy.array([0, NO_TIMESTAMP, self.base_offset, 0], numpy.int64)
            self.hints.clear()
            with contextlib.suppress(KafkaError):
                for table in self.tables():
                    state[3] = table[batch_table.POSITION, 0]  # behind a damage it is farther on
                    add_entries(offset_index, time_index, table, state, interval_bytes)
            if was_active:
                self.offset_index.take(offset_index)
                self.time_index.take(time_index)
            else:
                self.note_recovered(state, is_durable=True)  # no recovery point says that it may be torn
        has_rolled = was_active and not self.is_active
        if has_rolled:  # and so has written the indexes from before
            self.rebuild_indexes(interval_bytes)

    def note_recovered(self, state: batch_table.Longs, *, is_durable: bool = False) -> None:
        """The indexes were filled anew, with `state` of `choose_entries` at the end: write them."""
        self._largest = (int(state[1]), int(state[2]))
        self.bytes_since_entry = int(state[0])
        if self.size_bytes:
            self.time_index.maybe_append(*self._largest)
        is_full = False
        for index in (self.offset_index, self.time_index):
            try:
                index.replace(is_durable=is_durable)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                is_full = True  # it stays in memory, and the next start makes it anew
        if not self.is_active and not is_full:
            self.offset_index.make_read_only()
            self.time_index.make_read_only()

    def save_refused_indexes(self) -> None:
        """Of a closed segment, what a full disk did not take when it was made anew."""
        with _rebuilding:
            for index in (self.offset_index, self.time_index):
                if index.is_writable:
                    index.replace(is_durable=True)
                    index.make_read_only()
