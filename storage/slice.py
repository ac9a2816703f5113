"""A stretch of whole batches in one segment, to be sent or read now if it is in the page cache, else to be
read on a thread.

Finding the stretch can need the disk too (a cold index, a cold batch header), so a slice may be handed out
before its place is known. Its end lies on a batch boundary: at the upper offset, or at an index entry below
`max_bytes`, or, when a single batch is larger than that, behind this batch.
"""

from __future__ import annotations

import contextlib
from resource import RUSAGE_THREAD, getrusage

from protocol.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES
from protocol.errors import KafkaError
from storage.batch_table import as_chunk, whole_batches
from storage.file import Buffer, DataFile
from storage.index import BrokenIndex, WouldBlock
from storage.region import Region
from storage.segment import Segment
from storage.segments import SegmentTuple, floor_segment
from storage.stored_batches import LARGE_BYTES

# So far behind a read that went to the disk only threads read much at once: asking for cached bytes alone
# starts the reading ahead of those that are not, and takes milliseconds even when it succeeds; and what the
# reading ahead has brought came from the disk and was not checked.
COLD_BYTES = 8 << 20
AHEAD_BYTES = 8 << 20
"""a reader that asks for more at once is not read ahead of: it would wait for the rest anyway"""
BASE_OFFSET_BYTES = 8
ENOUGH_BYTES = 2**31 - 1
"""as many as anybody can wait for"""


def blocks_read() -> int:
    """What this thread has asked of the disk so far. Unlike time it does not count who else had the core."""
    return getrusage(RUSAGE_THREAD).ru_inblock


class Slice:
    """Owned by: whoever asked for it; read once, by one thread.

    `size_bytes` is 0 when there is nothing to read. It is exact once `is_located`, before that (and where the
    first batch is larger than the limit) an estimate.
    """

    __slots__ = (
        "_at_least_one",
        "_available",
        "_ends_at_entry",
        "_first",
        "_is_followed",
        "_max_bytes",
        "_offset",
        "_segment",
        "_segments",
        "_upper_offset",
        "is_located",
        "is_warm",
        "position",
        "size_bytes",
    )

    def __init__(
        self,
        segments: SegmentTuple,
        first: int,
        offset: int,
        max_bytes: int,
        upper_offset: int,
        at_least_one: bool,
    ) -> None:
        self._segments = segments
        self._first = first  # the number of the one that can hold `offset`
        self._segment = segments[first]
        self._offset = offset
        self._max_bytes = max_bytes
        self._upper_offset = upper_offset
        self._at_least_one = at_least_one
        self._available = 0
        self._ends_at_entry = False  # where a batch begins that the index knows of
        self._is_followed = False  # more that can be read lies behind where it has to end
        self.position = 0
        self.size_bytes = 0
        self.is_located = False
        self.is_warm = False  # `warm` has just been here

    @classmethod
    def of(
        cls,
        segments: SegmentTuple,
        end: int,
        offset: int,
        max_bytes: int,
        upper_offset: int,
        at_least_one: bool,
    ) -> Slice:
        """Of a log that ends at `end`, in its owner's turn; located if that can be done without waiting."""
        upper_offset = min(upper_offset, end)
        active = segments[-1]
        found = cls(segments, floor_segment(segments, offset), offset, max_bytes, upper_offset, at_least_one)
        if offset >= upper_offset:
            active.expect(offset)
            found.is_located = True
            return found
        if offset >= active.base_offset:
            position = active.hints.get(offset)
            if position is not None:
                limit = active.size_bytes if upper_offset == end else active.hints.get(upper_offset)
                if limit is not None:
                    found.place(active, position, limit)
                    return found
        found.locate(False)
        return found

    @property
    def file(self) -> DataFile:
        """The file that holds it, once it is located."""
        return self._segment.file

    @property
    def counted_bytes(self) -> int:
        """How much of `fetch.min.bytes` it is: all that is there up to the limit, with the part of the batch
        that the limit cuts, as in Kafka. Else a limit of just as many bytes would never be reached. Where it
        ends because its segment does, and others follow, no waiting would make it larger: it is enough.
        """
        if self._is_followed:
            return ENOUGH_BYTES
        return min(self._available, self._max_bytes) if self.is_located else self.size_bytes

    def place(self, segment: Segment, position: int, end: int, *, is_followed: bool = False) -> None:
        """It begins at `position` of `segment` and may reach to `end`, a batch boundary, which more that can
        be read follows, or not.
        """
        self._segment = segment
        self.position = position
        if segment.damages:
            good_end = segment.good_end(position, end)
            is_followed, end = is_followed or good_end < end, good_end
        self._is_followed = is_followed
        self._available = available = end - position
        limit = self._max_bytes
        if available > limit:
            available = self._known_bytes(limit, False)
            self._ends_at_entry = available > 0
            if available <= 0:
                available = limit  # cut inside a batch; `_whole` sees to that
        self.size_bytes = available
        self.is_located = True

    def _known_bytes(self, size: int, may_wait: bool) -> int:
        """Where, within `size` bytes, the last batch begins that the index knows of; 0 if there is none."""
        try:
            return self._segment.offset_index.floor_position(self.position + size, may_wait) - self.position
        except (WouldBlock, BrokenIndex, OSError):
            return 0

    def locate(self, may_wait: bool) -> bool:
        """Find the first batch that reaches `offset`; False when that would wait and must not."""
        upper_offset = self._upper_offset
        segments = self._segments
        last = len(segments) - 1
        try:
            for number in range(self._first, len(segments)):
                segment = segments[number]
                if segment.base_offset >= upper_offset:
                    break
                position = segment.locate(self._offset, may_wait)
                if position is None:
                    continue
                end = segment.size_bytes
                if number == last or segments[number + 1].base_offset > upper_offset:
                    with contextlib.suppress(KafkaError):  # a damage there: `place` ends the slice before it
                        found = segment.locate(upper_offset, may_wait)
                        end = end if found is None else found
                is_followed = number < last and segments[number + 1].base_offset < upper_offset
                self.place(segment, position, max(position, end), is_followed=is_followed)
                return True
        except WouldBlock:
            self.size_bytes = self._max_bytes
            return False
        self.size_bytes = 0
        self.is_located = True
        return True

    def _would_wait(self) -> bool:
        """Whether something is known for which reading these bytes had to wait; it is located if not."""
        if not self.is_located and not self.locate(False):
            return True
        size = self.size_bytes
        trust = self._segment.trust
        if size and trust is not None and not trust.covers(self.position, self.position + size):
            return True
        if size < LARGE_BYTES or self.is_warm:
            return False
        file = self.file
        if 0 <= self.position - file.cold_position < COLD_BYTES:
            return True
        if file.has_readahead or file.is_cached(size, self.position):
            return False
        return file.tells_cached()

    def _is_unchecked(self) -> bool:
        """Whether a thread has asked for some of these bytes and not checked them yet.

        To be asked when they were found in the page cache: they may have come there for that thread.
        """
        warming = self.file.warming
        if not warming or self.is_warm:
            return False
        position, end = self.position, self.position + self.size_bytes
        return any(start < end and position < stop for start, stop in tuple(warming))

    def send_now(self) -> Buffer | Region | None:
        """As `read_now`; if they are many, the batches where they are."""
        found = None if self._would_wait() else self._send_cached()
        return None if self._is_unchecked() else found

    def _send_cached(self) -> Buffer | Region | None:
        size, is_cut = self.size_bytes, self.size_bytes != self._available
        if size < LARGE_BYTES or (is_cut and not self._ends_at_entry):  # it cuts a batch: seen in the bytes
            return self._read_cached()
        if not (is_cut and self._has_next_in_cache()) and not self.file.is_cached(size, self.position):
            return self._read_cached()
        return Region(self.file, self.position, size)

    def read_now(self) -> Buffer | None:
        """The batches, if no disk has to be waited for; else None: ask `read` on a thread."""
        found = None if self._would_wait() else self._read_cached()
        return None if self._is_unchecked() else found

    def _read_cached(self) -> Buffer | None:
        size = self.size_bytes
        if not size:
            return b""
        file = self.file
        before = blocks_read() if size >= LARGE_BYTES else 0
        data = file.read_cached(size, self.position)
        if size >= LARGE_BYTES and blocks_read() != before:
            file.cold_position = self.position + size
        if data is None or len(data) != size:
            return None
        return data if size == self._available else self._whole(data, False)

    def warm(self) -> None:
        """Find the batches, check them, and have them in the page cache, whence `send_now` can take them.

        May wait for the disk. They are not handed over: from the page cache they can be sent without a copy.
        What follows them is then expected on the disk as well; once the reading ahead has been stopped that
        is known, and all that is in the page cache was asked for by a thread that checks it (`file.warming`).
        """
        before = blocks_read()
        if not self.is_located:
            self.locate(True)
        file = self.file  # `self.file` may be another one below
        may_hold_more = file.has_readahead or not file.tells_cached()  # the page cache, unchecked
        if self.size_bytes and not self._bring(self.position, self.position + self.size_bytes):
            self.locate(True)  # the place was found by something wrong
            self.file.cache(self.size_bytes, self.position)
        if may_hold_more and blocks_read() != before:
            self.file.cold_position = self.position + self.size_bytes
        self.is_warm = True

    def _bring(self, position: int, end: int) -> bool:
        """Have these bytes checked, and in the page cache if they are many. False: something was wrong."""
        segment, file, size = self._segment, self.file, end - position
        is_large, is_unread = size >= LARGE_BYTES, False
        file.warming.append((position, end))
        try:
            if is_large:
                # Asked before the pages are: one that is on its way from the disk counts as cached.
                is_known = segment.trust is not None and segment.trust.covers(position, end)
                is_unread = is_known and not file.is_cached(size, position)
                file.stop_readahead()
                file.prefetch(size + HEADER_BYTES, position)  # a check looks at what follows, too
            is_good = segment.check_again(position, end)
            if is_large and (is_unread or not file.is_cached(size, position)):
                # It was checked before, so that nobody has read it now; or it has left the cache again.
                file.cache(size, position)
        finally:
            file.warming.remove((position, end))
        return is_good

    def following(self) -> tuple[int, int]:
        """From where to where the same reader will ask next, at most, if it goes on."""
        start = self.position + self.size_bytes
        return start, min(start + self._max_bytes, self.position + self._available)

    def is_following_cold(self) -> bool:
        """Whether what follows is worth to be read ahead: much, on the disk, and checked if it is not."""
        start, end = self.following()
        file = self.file
        if not LARGE_BYTES <= end - start <= AHEAD_BYTES or file.has_readahead:
            return False
        return not 0 <= start - file.cold_position < COLD_BYTES and not file.is_cached(end - start, start)

    def warm_following(self) -> None:
        """As `warm`, for what follows. May wait for the disk; what is wrong is told to who asks for it."""
        with contextlib.suppress(OSError, KafkaError):
            self._bring(*self.following())

    def read(self) -> Buffer:
        """The batches, checked. May wait for the disk."""
        self.warm()
        if not self.size_bytes:
            return b""
        data = self._segment.read_at(self.position, self.size_bytes)
        if self.size_bytes == self._available:
            return data
        whole = self._whole(data, True)
        assert whole is not None
        return whole

    def _whole(self, data: Buffer, may_wait: bool) -> Buffer | None:
        """`data` without the batch that its end cuts, or the first batch whole if that is the one."""
        segment = self._segment
        known = self._known_bytes(len(data), may_wait)
        if known == len(data):
            self._remember_next(self.position + known)
            return data
        end, next_offset = whole_batches(as_chunk(data), max(known, 0))
        if end > 0:
            if next_offset >= 0:
                segment.remember(int(next_offset), self.position + int(end))
            return data[: int(end)]
        if not self._at_least_one:
            return b""
        return self._first_batch(may_wait)

    def _has_next_in_cache(self) -> bool:
        """Whether all is in the page cache, with the begin of the next batch, which is remembered then."""
        segment, end = self._segment, self.position + self.size_bytes
        if segment.trust is not None and not segment.trust.covers(end, end + 1):
            return False
        base_offset = segment.file.read_behind(self.size_bytes, self.position, BASE_OFFSET_BYTES)
        if base_offset is None or len(base_offset) < BASE_OFFSET_BYTES:
            return False
        segment.remember(int.from_bytes(base_offset, "big"), end)
        return True

    def _remember_next(self, position: int) -> None:
        """A batch begins at `position`, and the same reader asks for it next: spare it the search."""
        segment = self._segment
        if position < segment.size_bytes and (
            segment.trust is None or segment.trust.covers(position, position + 1)
        ):
            file = segment.file
            with file.descriptor() as descriptor:  # held: on a reader's thread the owner may give it back
                base_offset = file.disk.pread_cached(descriptor, BASE_OFFSET_BYTES, position)
            if base_offset is not None and len(base_offset) == BASE_OFFSET_BYTES:
                segment.remember(int.from_bytes(base_offset, "big"), position)

    def _first_batch(self, may_wait: bool) -> Buffer | None:
        read = self.file.read if may_wait else self.file.read_cached
        head = read(HEADER_BYTES, self.position)
        if head is None:
            return None
        size = int.from_bytes(head[8:12], "big") + LENGTH_PREFIX_BYTES
        size = min(size, self._available)
        data = read(size, self.position)
        return None if data is None or (len(data) < size and not may_wait) else data
