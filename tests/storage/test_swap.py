"""Goal: cleaned segments take the place of others in one step, whatever happens in between.

Method: a cleaning that keeps every second batch is made by hand, of a log with an aborted transaction, so
that there are four files a segment; the swap is ended at each of its calls to the disk, and so is the start
after it. What opens then is the old log or the new one, whole, with no file left over.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.control import Marker, marker_batch
from protocol.errors import KafkaError
from storage import layout
from storage.cleaned_segment import CleanedSegment
from storage.file import POOL, SYSTEM_DISK, Disk
from storage.segment import MAX_RELATIVE_OFFSET, Segment
from storage.types import AbortedTransaction
from storage.verify import verify_log
from tests.storage.builders import NOW_MS, LogBuilder, batch
from tests.storage.conftest import MakeLog
from tests.storage.faults import Crash, FaultyDisk, UnsyncedDisk
from tests.thoroughness import slow

SIZE = len(batch())
ABORTED = AbortedTransaction(producer_id=7, first_offset=8, last_offset=10, last_stable_offset=11)
MARKER = ABORTED.last_offset
MARKER_SIZE = len(marker_batch(Marker(False), producer_id=7, producer_epoch=0, now_ms=NOW_MS))
SETTINGS = {
    "segment_bytes": 3 * SIZE + MARKER_SIZE,
    "index_interval_bytes": SIZE,
    "file_delete_delay_ms": 0,
}
OLD = [offset for offset in range(16) if offset != MARKER]
KEPT = [0, 2, 4, 6, 8]
NEW = [*KEPT, 12, 13, 14, 15]


def fill(log: LogBuilder) -> None:
    """Segments 0, 4, 8, 12 (active) of four batches each; 8 and 9 are of producer 7, which 10 aborts."""
    for offset in range(16):
        log.now_ms = NOW_MS + offset
        if offset == MARKER:
            log.end_transaction(7, is_commit=False)
        elif offset in (8, 9):
            sequence = offset - ABORTED.first_offset
            log.append(
                timestamp=log.now_ms,
                producer_id=7,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
        else:
            log.append(timestamp=log.now_ms)
    log.now_ms = NOW_MS
    log.log.flush()


def build(make_log: MakeLog, disk: Disk = SYSTEM_DISK) -> LogBuilder:
    log = make_log(disk, **SETTINGS)
    fill(log)
    return log


def clean(log: LogBuilder, sources: Sequence[Segment], groups: int = 1) -> list[CleanedSegment]:
    """The even batches of `sources`, in one cleaned segment or two."""
    made: list[CleanedSegment] = []
    for number, segment in enumerate(sources):
        if number in (0, 2)[:groups]:
            made.append(CleanedSegment(log.disk, log.directory, segment.base_offset, log.config))
        for header, view in log.log.scan(segment.base_offset, segment.next_offset):
            if header.base_offset % 2 == 0:
                made[-1].append(bytes(view))
        made[-1].add_aborted(segment.txn_index.entries())
    for one in made:
        one.finish(sources[-1].last_modified_ms)
    return made


def swap(log: LogBuilder, groups: int = 1) -> None:
    sources = log.log.segments[:3]
    job = log.log.replace_segments(sources, clean(log, sources, groups), NOW_MS)
    job.run()
    log.log._list._removals.run(NOW_MS)


def leftovers(directory: Path) -> list[str]:
    states = (layout.CLEANED_SUFFIX, layout.SWAP_SUFFIX, layout.DELETED_SUFFIX)
    return [path.name for path in directory.iterdir() if path.name.endswith(states)]


@pytest.mark.parametrize("groups", [1, 2])
def test_t111_cleaned_segments_replace_their_sources(make_log: MakeLog, groups: int) -> None:
    log = build(make_log)
    modified = log.log.segments[2].last_modified_ms
    size_before = log.log.size_bytes
    swap(log, groups)
    assert log.offsets() == NEW
    assert [segment.base_offset for segment in log.log.segments] == ([0, 12] if groups == 1 else [0, 8, 12])
    assert log.log.size_bytes == size_before - 6 * SIZE
    assert sum(segment.size_bytes for segment in log.log.segments) == log.log.size_bytes
    assert log.log.segments[groups - 1].last_modified_ms == modified
    assert not leftovers(log.directory)
    assert log.log.log_start_offset == 0
    log.restart()
    assert log.offsets() == NEW
    assert log.log.segments[groups - 1].last_modified_ms == modified
    assert log.append().base_offset == 16


def test_t125_snapshots_of_vanished_segments_go(make_log: MakeLog) -> None:
    log = build(make_log)
    assert log.files(".snapshot") == [f"{offset:020d}.snapshot" for offset in (4, 8, 12)]
    swap(log)
    assert log.files(".snapshot") == [f"{12:020d}.snapshot"]


def test_t67_indexes_of_cleaned_segments_find_what_is_left(make_log: MakeLog) -> None:
    log = build(make_log)
    swap(log)
    assert verify_log(log.directory) == []
    for offset in range(12):
        data = log.log.read(offset, 1, upper_offset=16).read()
        assert struct.unpack_from(">q", data)[0] == (offset + 1) // 2 * 2
    for number in range(12):
        found = log.log.offset_for_timestamp(NOW_MS + number)
        assert found is not None
        assert found.offset == (number + 1) // 2 * 2


def test_t120_a_source_that_retention_removed_is_skipped(make_log: MakeLog) -> None:
    log = build(make_log)
    sources = log.log.segments[:3]
    cleaned = clean(log, sources)
    log.log.delete_records(4)
    log.log.expire(NOW_MS).run()
    log.log.replace_segments(sources, cleaned, NOW_MS).run()
    log.log._list._removals.run(NOW_MS)
    assert not leftovers(log.directory)
    assert log.offsets(4) == [offset for offset in NEW if offset >= 4]
    log.crash()
    assert log.offsets(4) == [offset for offset in NEW if offset >= 4]


def test_t120_when_all_sources_are_gone_nothing_is_swapped(make_log: MakeLog) -> None:
    log = build(make_log)
    sources = log.log.segments[:3]
    cleaned = clean(log, sources)
    log.log.delete_records(12)
    log.log.expire(NOW_MS).run()
    log.log.replace_segments(sources, cleaned, NOW_MS).run()
    log.log._list._removals.run(NOW_MS)
    assert not leftovers(log.directory)
    assert log.offsets() == [12, 13, 14, 15]


def test_t121_a_reader_finishes_on_the_old_file(make_log: MakeLog) -> None:
    log = build(make_log)
    held = log.log.read(4, 4 * SIZE, upper_offset=16)
    sources = log.log.segments[:3]
    log.log.replace_segments(sources, clean(log, sources), NOW_MS).run()
    data = held.read()
    assert struct.unpack_from(">q", data)[0] == 4
    assert len(data) == 4 * SIZE
    assert log.offsets(4) == [offset for offset in NEW if offset >= 4]


def test_the_active_segment_is_never_replaced(make_log: MakeLog) -> None:
    log = build(make_log)
    cleaned = clean(log, log.log.segments[:1])
    with pytest.raises(ValueError, match="active"):
        log.log.replace_segments(log.log.segments[3:], cleaned)
    for one in cleaned:
        one.abandon()


def test_t124_an_abandoned_cleaning_leaves_nothing(make_log: MakeLog) -> None:
    log = build(make_log)
    for one in clean(log, log.log.segments[:3], 2):
        one.abandon()
    assert not leftovers(log.directory)
    assert log.offsets() == OLD


def test_t106_a_cleaned_segment_holds_no_offset_too_far(make_log: MakeLog) -> None:
    log = build(make_log)
    cleaned = CleanedSegment(SYSTEM_DISK, log.directory, 0, log.config)
    near = struct.pack(">q", 0) + batch()[8:]
    far = struct.pack(">q", MAX_RELATIVE_OFFSET + 1) + batch()[8:]
    cleaned.append(near)
    with pytest.raises(ValueError, match="does not fit"):
        cleaned.append(far)
    cleaned.abandon()


def check(log: LogBuilder) -> list[int]:
    """The log is the old or the new one, and complete."""
    assert not leftovers(log.directory)
    assert verify_log(log.directory) == []
    assert log.log.log_end_offset == 16
    assert log.log.aborted_transactions(0, 16) == [ABORTED]
    offsets = log.offsets()
    assert set(NEW) <= set(offsets) <= set(OLD)
    assert offsets == sorted(offsets)
    return offsets


@pytest.mark.parametrize("stride", [12, slow(1)])
@pytest.mark.parametrize("groups", [1, 2])
def test_t111_to_t118_a_crash_at_every_step(tmp_path: Path, groups: int, stride: int) -> None:
    """T111-T118: each call of the swap is the last one of the process; then each of the recovery as well (a
    part of them, another one for each step, in the usual run).
    """
    results: set[tuple[int, ...]] = set()
    met: set[str] = set()
    for step in range(1000):
        log, is_over = crashed_swap(tmp_path / f"{step}", step, groups)
        log.log.abandon()
        crashed = log.directory.with_name("crashed")
        shutil.copytree(log.directory, crashed)
        met.update(leftovers(crashed))
        log.open(disk=UnsyncedDisk())
        expected = check(log)
        results.add(tuple(expected))
        log.log.abandon()
        recover_and_crash(log, crashed, expected, range(step % stride, 1000, stride))
        shutil.rmtree(log.directory.parent)
        if is_over:
            break
    assert step > 20
    assert {tuple(OLD), tuple(NEW)} <= results
    base = 0 if groups == 1 else 8
    for state in (layout.CLEANED_SUFFIX, layout.SWAP_SUFFIX):
        assert {layout.segment_file_name(base, kind, state) for kind in layout.SEGMENT_SUFFIXES} <= met
    assert {
        layout.segment_file_name(8, kind, layout.DELETED_SUFFIX) for kind in layout.SEGMENT_SUFFIXES
    } <= met


def recover_and_crash(log: LogBuilder, crashed: Path, expected: list[int], calls: range) -> None:
    """End the recovery of `crashed` at each of these calls, until there are no more; the next one must come
    to the same.
    """
    for second in calls:
        shutil.rmtree(log.directory)
        shutil.copytree(crashed, log.directory)
        disk = FaultyDisk()
        disk.crash_at = second
        try:
            log.open(disk=disk)
        except Crash:
            log.open(disk=UnsyncedDisk())
            assert check(log) == expected, f"{crashed}, then {second} of the recovery"
            log.log.abandon()
        else:
            log.log.abandon()
            return
    raise AssertionError("the recovery never ended")


def crashed_swap(directory: Path, step: int, groups: int) -> tuple[LogBuilder, bool]:
    """A log whose swap ended at its call number `step`; and whether it was over before that."""
    disk = FaultyDisk()
    directory.mkdir()
    log = LogBuilder(directory / "orders-2", disk, **SETTINGS)
    fill(log)
    log.recovery_point = 16
    disk.crash_at = len(disk.calls) + step
    try:
        swap(log, groups)
    except Crash:
        return log, False
    disk.crash_at = None
    return log, True


def test_t112_only_cleaned_files_undoes(make_log: MakeLog) -> None:
    log = build(make_log)
    clean(log, log.log.segments[:3])
    log.crash()
    assert check(log) == OLD


def test_t113_a_mix_of_cleaned_and_swap_undoes_those_above(make_log: MakeLog) -> None:
    log = build(make_log)
    cleaned = clean(log, log.log.segments[:3], 2)
    cleaned[1].to_segment().rename(layout.SWAP_SUFFIX)
    log.crash()
    assert check(log) == OLD


def test_t113_one_of_three_renamed_is_undone_with_the_others(make_log: MakeLog) -> None:
    """A power cut may keep one rename of several, and not that which was made first."""
    log = build(make_log)
    cleaned = [one for segment in log.log.segments[:3] for one in clean(log, [segment])]
    cleaned[1].to_segment().rename(layout.SWAP_SUFFIX)
    log.crash()
    assert check(log) == OLD


def one_record_each(make_log: MakeLog, count: int) -> LogBuilder:
    """A log of `count` closed segments with a record each, and an active one with another."""
    log = make_log(file_delete_delay_ms=0)
    for _ in range(count):
        log.append()
        log.log.roll(NOW_MS)
    log.append()
    log.log.flush()
    return log


def test_t114_a_source_with_the_last_record_alone_is_superseded(make_log: MakeLog) -> None:
    log = one_record_each(make_log, 3)
    made = CleanedSegment(log.disk, log.directory, 0, log.config)
    for _, view in log.log.scan(0, 3):
        made.append(bytes(view))
    made.finish(NOW_MS)
    made.to_segment().rename(layout.SWAP_SUFFIX)
    log.crash()
    assert log.offsets() == [0, 1, 2, 3]
    assert [segment.base_offset for segment in log.log.segments] == [0, 3]
    assert not leftovers(log.directory)


def test_t114_a_swapped_segment_without_batches_takes_only_its_own_source(make_log: MakeLog) -> None:
    log = one_record_each(make_log, 2)
    made = CleanedSegment(log.disk, log.directory, 0, log.config)
    made.finish(NOW_MS)
    made.to_segment().rename(layout.SWAP_SUFFIX)
    log.crash()
    assert log.offsets() == [1, 2]
    assert not leftovers(log.directory)


def test_t114_all_swap_finishes(make_log: MakeLog) -> None:
    log = build(make_log)
    for one in reversed(clean(log, log.log.segments[:3], 2)):
        one.to_segment().rename(layout.SWAP_SUFFIX)
    log.crash()
    assert set(NEW) <= set(check(log)) <= {*NEW, 7, 11}, (
        "a superseded last segment may stay until the next cleaning"
    )


def test_t115_deleted_and_swap_finishes(make_log: MakeLog) -> None:
    log = build(make_log)
    cleaned = clean(log, log.log.segments[:3])
    for segment in log.log.segments[:3]:
        segment.rename(layout.DELETED_SUFFIX)
    cleaned[0].to_segment().rename(layout.SWAP_SUFFIX)
    log.log.abandon()
    log.open()
    assert check(log) == NEW


@pytest.mark.parametrize("done", [1, 2])
def test_t116_between_the_renames_of_one_segment(make_log: MakeLog, done: int) -> None:
    log = build(make_log)
    cleaned = clean(log, log.log.segments[:3])
    for segment in log.log.segments[:3]:
        segment.rename(layout.DELETED_SUFFIX)
    cleaned[0].to_segment().rename(layout.SWAP_SUFFIX)
    for kind in layout.SEGMENT_SUFFIXES[:done]:
        name = layout.segment_file_name(0, kind)
        (log.directory / f"{name}.swap").rename(log.directory / name)
    log.log.abandon()
    log.open()
    assert check(log) == NEW


def test_t117_deleted_files_go_at_the_start(make_log: MakeLog) -> None:
    log = build(make_log)
    sources = log.log.segments[:3]
    log.log.replace_segments(sources, clean(log, sources), NOW_MS)
    assert leftovers(log.directory)
    log.crash()
    assert check(log) == NEW


def test_of_unfinished_files_only_ours_go(make_log: MakeLog) -> None:
    """Indexes and statistics get their names when they are whole; a log has no such name before."""
    log = build(make_log)
    names = [f"{0:020d}{suffix}.tmp" for suffix in (".log", ".index", ".timeindex", ".txnindex", ".stats")]
    for name in names:
        (log.directory / name).write_bytes(b"x")
    log.crash()
    assert sorted(path.name for path in log.directory.glob("*.tmp")) == names[:1]


def test_a_segment_that_left_the_log_raises_no_alarm(make_log: MakeLog) -> None:
    """Two that left within `file.delete.delay.ms` have one name: who still reads the first finds the other
    one's bytes under it, once its file was closed.
    """
    log = make_log(cleanup_policy="compact", segment_bytes=100_000)
    log.fill(10, b"v" * 20)
    log.log.roll(NOW_MS)
    log.log.flush()
    log.recovery_point = log.log.recovery_point
    log.restart()
    held = log.log.read(0, 1 << 20, upper_offset=10)
    for _ in range(2):
        sources = log.log.segments[:1]
        log.log.replace_segments(sources, clean(log, sources), NOW_MS).run()
    POOL.shed()
    with contextlib.suppress(KafkaError):
        held.read()
    assert log.log.health.damaged_places == 0


def test_files_that_left_are_removed_though_their_directory_could_not_be_synced(make_log: MakeLog) -> None:
    disk = FaultyDisk()
    log = build(make_log, disk)
    sources = log.log.segments[:3]
    job = log.log.replace_segments(sources, clean(log, sources), NOW_MS)
    disk.fail_on["fsync"] = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        job.run()
    disk.fail_on.clear()
    log.log._list._removals.run(NOW_MS + 10 * log.config.file_delete_delay_ms)
    assert leftovers(log.directory) == []
