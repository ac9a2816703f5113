"""Goal: any thread may read while the owner appends, rolls, expires and swaps: no gap, no repeat, no half
batch.

Method: readers on threads follow a log from its start while one thread, the owner, changes it in every
way there is.
"""

from __future__ import annotations

import os
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from protocol.batch import iterate_headers
from protocol.errors import ErrorCode, KafkaError
from storage.batch_table import Table
from storage.cleaned_segment import CleanedSegment
from storage.file import SYSTEM_DISK, Buffer
from storage.integrity import Anchors
from storage.stored_batches import StoredBatches
from storage.verify import verify_log
from tests.storage.builders import NOW_MS, LogBuilder, batch, entries_of
from tests.storage.conftest import MakeLog
from tests.storage.faults import UnsyncedDisk
from tests.waiting import LIMIT_SECONDS

READERS = 3
BATCHES = 2000
SIZE = len(batch())
SWITCH_SECONDS = 10e-6


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads take turns at almost every step. With Python's own 5 ms each call of the owner that lets go of
    the lock waits for all readers in turn: the test took two minutes, and saw few of the ways.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    yield
    sys.setswitchinterval(before)


def follow(log: LogBuilder, stop: threading.Event, seen: list[int], problems: list[BaseException]) -> None:
    """Fetch like a consumer until the owner is done and everything was read."""
    offset = 0
    try:
        while not (stop.is_set() and offset >= log.log.high_watermark):
            try:
                data = log.log.read(offset, 2000, upper_offset=log.log.high_watermark).read()
            except KafkaError as error:
                assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
                offset = log.log.log_start_offset
                continue
            for _, header in iterate_headers(data):
                assert header.next_offset > offset
                seen.append(header.base_offset)
                offset = header.next_offset
    except BaseException as problem:
        problems.append(problem)


def clean(log: LogBuilder, number: int) -> None:
    """Swap two closed segments for one that lacks every seventh batch."""
    sources = log.log.segments[number : number + 2]
    if len(sources) < 2 or sources[-1].is_active:
        return
    cleaned = CleanedSegment(SYSTEM_DISK, log.directory, sources[0].base_offset, log.config)
    for header, view in log.log.scan(sources[0].base_offset, sources[-1].next_offset):
        if header.base_offset % 7 or header.next_offset == sources[-1].next_offset:
            cleaned.append(bytes(view))
    cleaned.finish(sources[-1].last_modified_ms)
    log.log.replace_segments(sources, [cleaned], NOW_MS).run()


@pytest.mark.usefixtures("frequent_switches")
def test_t121_readers_beside_everything(make_log: MakeLog) -> None:
    log = make_log(UnsyncedDisk(), segment_bytes=3000, index_interval_bytes=300, file_delete_delay_ms=10_000)
    stop = threading.Event()
    problems: list[BaseException] = []
    seen: list[list[int]] = [[] for _ in range(READERS)]
    threads = [threading.Thread(target=follow, args=(log, stop, one, problems)) for one in seen]
    for thread in threads:
        thread.start()
    for number in range(BATCHES):
        log.append(b"v" * (number % 50))
        if number % 10 == 9:
            log.log.flush()
        if number % 200 == 150:
            clean(log, 1)
        if number % 500 == 499:
            log.log.delete_records(max(0, number - 800))
            log.log.expire(NOW_MS).run()
    log.log.flush()
    stop.set()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
    assert problems == []
    survivors = {header.base_offset for header, _ in log.log.scan(log.log.log_start_offset)}
    for one in seen:
        assert one == sorted(set(one))
        assert survivors <= set(one) | {offset for offset in survivors if offset < one[0]}


def test_an_entry_that_is_being_appended_is_in_no_stretch() -> None:
    """Its position comes first, so that who looks for its offset finds both. Fetches on threads failed."""
    positions = array("i", (100, 200, 300))
    for start, end in ((0, 50), (150, 250), (200, 300), (250, 300), (300, 400)):
        whole = Anchors.around(array("i", (9, 19)), positions[:2], start, end)
        torn = Anchors.around(array("i", (9, 19)), positions, start, end)
        assert torn[:3] == whole[:3]
        assert torn.positions.tolist() == whole.positions.tolist()
        assert torn.offsets.tolist() == whole.offsets.tolist()


class Meanwhile(UnsyncedDisk):
    """What the owner does at the moment in which a reader's thread has a descriptor in its hand."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then: Callable[[], None] | None = then

    def pread_cached(self, descriptor: int, size: int, position: int) -> Buffer | None:
        then, self.then = self.then, None
        if then is not None:
            then()
        return super().pread_cached(descriptor, size, position)


def test_a_reader_is_not_misled_by_a_descriptor_that_was_given_back(
    make_log: MakeLog, tmp_path: Path
) -> None:
    """The segment is closed under it, and another file gets the number: what stands there is no offset."""
    log = make_log(UnsyncedDisk(), index_interval_bytes=1)
    log.fill(10)
    log.log.flush()
    segment, size = log.log.active_segment, log.log.size_bytes // 10
    other = tmp_path / "other"
    other.write_bytes(bytes(log.log.size_bytes))
    opened: list[int] = []

    def give_back() -> None:
        log.log.roll(NOW_MS)
        log.log.flush()
        segment.file.try_close()
        opened.extend(os.open(other, os.O_RDONLY) for _ in range(8))

    found = log.log.read(2, 3 * size + 1, upper_offset=10)
    segment.file.disk = Meanwhile(give_back)
    try:
        thread = threading.Thread(target=found.read)
        thread.start()
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert opened
    assert segment.locate(0) == 0
    assert [header.base_offset for header, _ in log.log.scan(0)] == list(range(10))


class Told:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self, is_over: threading.Event) -> None:
        self._lock = threading.Lock()
        self._is_over = is_over

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._is_over.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_indexes_made_anew_during_a_swap_do_not_take_the_new_segments_names(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader has found an index of a segment broken, and is about to put the new one in its place when a
    cleaning does the same with the whole segment.
    """
    log = make_log(UnsyncedDisk(), index_interval_bytes=1)
    log.fill(10)
    log.log.roll(NOW_MS)
    log.fill(1)
    log.log.flush()
    old = log.log.segments[0]
    cleaned = CleanedSegment(SYSTEM_DISK, log.directory, 0, log.config)
    for header, view in log.log.scan(0, 10):
        if header.base_offset > 6:
            cleaned.append(bytes(view))
    cleaned.finish(NOW_MS)
    swapped_or_waits = threading.Event()
    monkeypatch.setattr("storage.index._naming", Told(swapped_or_waits), raising=False)

    def swap() -> None:
        log.log.replace_segments([old], [cleaned], NOW_MS).run()
        swapped_or_waits.set()

    owner = threading.Thread(target=swap)
    rename = UnsyncedDisk.rename

    def rename_later(disk: UnsyncedDisk, source: Path, target: Path) -> None:
        if source.name.endswith(".index.tmp"):
            owner.start()
            assert swapped_or_waits.wait(LIMIT_SECONDS)
        rename(disk, source, target)

    monkeypatch.setattr(UnsyncedDisk, "rename", rename_later)
    old.rebuild_indexes(1)
    owner.join(LIMIT_SECONDS)
    fresh = log.log.segments[0]
    assert fresh is not old
    fresh.offset_index.unload()
    assert entries_of(fresh.offset_index) == [(8, SIZE), (9, 2 * SIZE)]
    assert log.offsets() == [7, 8, 9, 10]


def test_an_index_of_the_active_segment_is_made_anew_while_that_is_rolled(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(index_interval_bytes=1)
    log.fill(4)
    segment = log.log.active_segment
    tables = StoredBatches.tables

    def and_roll(self: StoredBatches, position: int = 0, end: int | None = None) -> Iterable[Table]:
        yield from tables(self, position, end)
        if self.is_active:
            log.append(timestamp=NOW_MS + 7)
            log.log.roll(NOW_MS)

    monkeypatch.setattr(StoredBatches, "tables", and_roll)
    segment.rebuild_indexes(1)
    assert segment.max_timestamp == NOW_MS + 7
    expected = [(offset, offset * SIZE) for offset in range(1, 5)]
    for _ in range(2):
        assert entries_of(segment.offset_index) == expected
        segment.offset_index.unload()
    log.log.close()
    assert verify_log(log.directory) == []
