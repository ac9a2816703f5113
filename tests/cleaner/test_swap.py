"""Goal: a cleaning that is cut off at any moment leaves the old log or the new one, and nothing else.

Method: the disk ends the process, fails or is full at each of its calls in turn; then the log is opened
again.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import shutil
from pathlib import Path

import pytest

from cleaner.results import Range
from storage import layout, statistics
from storage.file import SYSTEM_DISK, Disk
from storage.verify import verify_log
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.world import RETENTION_MS, World
from tests.storage.faults import Crash, FaultyDisk
from tests.thoroughness import slow

TRANSIT = (".cleaned", ".swap", ".deleted")


def filled(directory: Path, disk: FaultyDisk) -> tuple[World, dict[str | None, str | None]]:
    """Several small segments with values, tombstones, an aborted transaction and a producer; all closed."""
    world = World(directory, disk=disk, segment_bytes=700, index_interval_bytes=50)
    model: dict[str | None, str | None] = {}
    for number in range(24):
        key = str(number % 5)
        world.put((key, str(number)), ("gone", None if number % 7 else "x"))
        model[key] = str(number)
    world.put(("aborted", "x"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(7, is_commit=False)
    world.put(("2", None))
    del model["2"]
    world.roll()
    flush(world)
    return world, model


def flush(world: World) -> None:
    job = world.log.begin_flush()
    if job is not None:
        job.run()
        world.log.end_flush(job, None)


def calls_of_a_cleaning(tmp_path: Path) -> list[str]:
    disk = FaultyDisk()
    (tmp_path / "count").mkdir()
    world, _ = filled(tmp_path / "count" / "orders-2", disk)
    before = len(disk.calls)
    world.clean()
    world.log.abandon()
    return disk.calls[before:]


def test_t119_a_crash_at_every_call_of_a_cleaning(tmp_path: Path) -> None:
    """T112-T119, T126: what is opened then tells the same table, keeps its end, has no file in transit."""
    calls = calls_of_a_cleaning(tmp_path)
    assert any("rename" in call for call in calls)
    assert any("fdatasync" in call for call in calls)
    for number in range(len(calls)):
        directory = tmp_path / str(number) / "orders-2"
        directory.parent.mkdir()
        disk = FaultyDisk()
        world, model = filled(directory, disk)
        end = world.log.log_end_offset
        disk.crash_at = len(disk.calls) + number
        with pytest.raises(Crash):
            world.clean()
        world.crash()
        assert world.committed() == model, calls[number]
        assert world.log.log_end_offset == end
        assert not [name for name in world.files() if name.endswith(TRANSIT)]
        assert verify_log(directory) == []
        world.clean()
        assert world.committed() == model, calls[number]
        world.log.close()


@pytest.mark.parametrize(("step", "stride"), [(5, 17), slow(1, 1)])
def test_t118_a_crash_in_the_recovery_of_a_crash(tmp_path: Path, step: int, stride: int) -> None:
    """T118: every call from the first rename on is the process's last one, then each of the recovery (in the
    usual run a part of both, other ones of the recovery for each first call).
    """
    calls = calls_of_a_cleaning(tmp_path)
    first_rename = next(number for number, call in enumerate(calls) if call.startswith("rename"))
    second_calls: list[str] = []
    for number in range(first_rename, len(calls), step):
        directory = tmp_path / str(number) / "orders-2"
        directory.parent.mkdir()
        disk = FaultyDisk()
        world, model = filled(directory, disk)
        disk.crash_at = len(disk.calls) + number
        with pytest.raises(Crash):
            world.clean()
        world.log.abandon()
        crashed = directory.with_name("crashed")
        shutil.copytree(directory, crashed)
        for second in range(number % stride, 1000, stride):
            shutil.rmtree(directory)
            shutil.copytree(crashed, directory)
            died_at = world.open_twice(second)
            assert world.committed() == model, (calls[number], second)
            assert not [name for name in world.files() if name.endswith(TRANSIT)]
            assert verify_log(directory) == []
            world.log.abandon()
            if died_at is None:
                break
            second_calls.append(died_at)
        shutil.rmtree(directory.parent)
    kinds = {call.split()[0] for call in second_calls}
    assert {"unlink", "rename", "fsync"} <= kinds, "the second crash met no swap being finished"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_t124_a_failing_call_undoes_the_cleaning_and_a_later_one_succeeds(
    tmp_path: Path, number: int
) -> None:
    calls = calls_of_a_cleaning(tmp_path)
    first_rename = next(index for index, call in enumerate(calls) if call.startswith("rename"))
    for index in range(first_rename):
        directory = tmp_path / f"{number}-{index}" / "orders-2"
        directory.parent.mkdir()
        disk = FaultyDisk()
        world, model = filled(directory, disk)
        before = world.batches()
        disk.error_at = {len(disk.calls) + index: number}
        if calls[index].startswith("unlink"):
            continue
        with pytest.raises(OSError, match=r"\[Errno"):
            world.clean()
        assert world.batches() == before, calls[index]
        assert world.files(".cleaned") == [], calls[index]
        world.clean()
        assert world.committed() == model
        assert len(world.records()) < len(before)
        world.log.close()


def test_t124_a_full_disk_leaves_the_source_untouched(tmp_path: Path) -> None:
    disk = FaultyDisk()
    world, model = filled(tmp_path / "orders-2", disk)
    world.log.update_config(dataclasses.replace(world.config, segment_bytes=1 << 20))
    before = world.batches()
    disk.room_bytes = 100
    with pytest.raises(OSError, match="No space left"):
        world.clean()
    assert (world.batches(), world.files(".cleaned")) == (before, [])
    disk.room_bytes = None
    world.clean()
    assert world.committed() == model
    world.log.close()


def test_t120_a_segment_that_retention_took_is_not_swapped(tmp_path: Path) -> None:
    world = World(
        tmp_path / "orders-2", segment_bytes=300, cleanup_policy="compact,delete", retention_ms=RETENTION_MS
    )
    world.put_each("abcabc")
    world.now_ms += RETENTION_MS + 1
    world.put_each("defdef")
    world.roll()
    flush(world)
    cleaner = world.cleaner()
    replaced = world.log.replace_segments
    removed = 0

    def expire_first(*arguments: object) -> object:
        nonlocal removed
        if not removed:
            expired = world.log.expire(world.now_ms)
            removed = expired.removed_segments
            expired.run()
        return replaced(*arguments)  # type: ignore[arg-type]

    world.log.replace_segments = expire_first  # type: ignore[method-assign, assignment]
    cleaner.clean(world.log, Range(0, world.log.segments[-1].base_offset), world.now_ms)
    assert removed > 0
    assert world.offsets()[0] >= world.log.log_start_offset > 0
    assert set(world.table()) >= {"d", "e", "f"}
    assert verify_log(world.directory) == []
    world.log.close()


def test_t121_a_reader_that_holds_the_old_segment_reads_on(tmp_path: Path) -> None:
    world = World(tmp_path / "orders-2")
    world.put_each("aabb")
    world.roll()
    held = world.log.read(0, 1 << 20, upper_offset=4)
    world.clean()
    assert len(held.read()) == held.size_bytes
    assert world.offsets() == [1, 3]
    world.log.close()


def test_t125_snapshots_of_segments_that_vanished_are_removed(tmp_path: Path) -> None:
    world = World(tmp_path / "orders-2", segment_bytes=250)
    for number in range(12):
        world.put(("a", str(number)), producer_id=7, producer_epoch=0, base_sequence=number)
    world.roll()
    assert len(world.files(".snapshot")) > 3
    world.clean()
    bases = [segment.base_offset for segment in world.log.segments]
    assert len(bases) > 1
    assert world.files(".snapshot") == [f"{base:020d}.snapshot" for base in bases[1:]]
    world.log.close()


def test_t111_the_files_change_their_names_in_the_order_that_a_start_understands(tmp_path: Path) -> None:
    """`.cleaned` synced, then how far the cleaning knows the log, then `.swap`, then the old ones `.deleted`,
    then the final names, then the directory.
    """
    calls = calls_of_a_cleaning(tmp_path)
    told, first_rename = [number for number, call in enumerate(calls) if call.startswith("rename")][:2]
    assert calls[told].endswith(layout.COMPACTED_TO)
    assert any(call.startswith("fdatasync") for call in calls[:first_rename])
    swap = list(itertools.takewhile(lambda call: not call.startswith("fsync"), calls[first_rename:]))
    gone = max(number for number, call in enumerate(swap) if call.endswith(".stats"))
    assert all(call.endswith((".swap", ".deleted")) for call in swap[:gone] if call.startswith("rename"))
    renames = [call for call in swap if call.startswith("rename")]
    steps = [tuple(Path(name).suffix for name in call.split()[1:]) for call in renames]
    kinds = [step for step, _ in itertools.groupby(steps)]
    order = [target for _, target in kinds]
    assert order.index(".swap") < order.index(".deleted")
    assert kinds[0][0] == ".cleaned"
    assert kinds[-1][0] == ".swap"
    assert calls[first_rename + len(swap)].startswith("fsync")


def test_t111_one_group_is_renamed_to_swap_in_descending_order(tmp_path: Path) -> None:
    """Two cleaned segments of one group: all files of the later one first, so that a `.cleaned` file below a
    `.swap` one tells a start that the group is not complete (T113). The old ones go after the last.
    """
    disk = FaultyDisk()
    world = World(tmp_path / "orders-2", disk=disk, segment_bytes=1 << 20)
    for number in range(40):
        world.put((str(number), "v" * 10))
    world.roll()
    world.log.update_config(dataclasses.replace(world.config, segment_bytes=2000))
    flush(world)
    before = len(disk.calls)
    world.clean()
    names = [call.split()[1:] for call in disk.calls[before:] if call.startswith("rename")]
    swapped = [int(source[:20]) for source, target in names if target.endswith(".swap")]
    bases = [segment.base_offset for segment in world.closed()]
    assert len(bases) > 1
    assert [base for base, _ in itertools.groupby(swapped)] == bases[::-1]
    first_swapped = next(number for number, (_, target) in enumerate(names) if target.endswith(".swap"))
    assert all(target.endswith(".swap") for _, target in names[first_swapped : first_swapped + len(swapped)])
    behind = names[first_swapped + len(swapped) :]
    suffixes = [target for target, _ in itertools.groupby(Path(target).suffix for _, target in behind)]
    assert suffixes[0] == ".deleted"
    final = [int(target[:20]) for source, target in behind if source.endswith(".swap")]
    assert [base for base, _ in itertools.groupby(final)] == bases
    world.log.close()


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "crash"])
def test_statistics_do_not_outlive_their_segment(make_world: MakeWorld, is_clean: bool) -> None:
    """Beside a cleaned segment of the same size, with offsets that differ in one bit, they would call it
    damaged for good.
    """
    world = make_world()
    world.put(("a", "1"))
    world.roll()
    world.clean()
    statistics.ensure(world.closed()[0])
    world.put(("a", "2"))
    world.roll()
    before = world.closed()[0].size_bytes
    world.clean()
    assert [(one.base_offset, one.size_bytes) for one in world.closed()] == [(0, before)]
    assert world.files(".stats") == []
    world.put(("x", "y"))
    world.log.flush()
    world.recovery_point = world.log.recovery_point
    world.restart() if is_clean else world.crash()
    assert world.table() == {"a": "2", "x": "y"}
    statistics.ensure(world.closed()[0])
    world.clean()


def test_statistics_that_are_late_are_not_left_behind(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread makes them while the segment is replaced."""
    world = make_world()
    world.put_each("aab")
    world.roll()
    (segment,) = world.closed()
    rename = SYSTEM_DISK.rename

    def clean_first(source: Path, target: Path) -> None:
        if target.name.endswith(".stats"):
            monkeypatch.undo()
            world.clean()
        rename(source, target)

    monkeypatch.setattr(SYSTEM_DISK, "rename", clean_first)
    statistics.ensure(segment)
    assert world.closed() != (segment,)
    assert world.files(".stats") == []


def test_what_several_cleanings_replaced_waits_out_each_its_delay(make_world: MakeWorld) -> None:
    """All begin at the same offset; readers may have given back the descriptor, and open the file again."""
    world = make_world(file_delete_delay_ms=60_000)
    removals = world.log._list._removals
    checkpoint, start_ms = 0, world.now_ms
    replaced = []
    for text in ("aab", "ccd", "eef"):
        world.put_each(text)
        world.roll()
        segment = world.closed()[0]
        replaced.append((segment, bytes(segment.read_at(0, segment.size_bytes))))
        checkpoint = world.clean(checkpoint).end_offset
        world.now_ms += 50_000
    for gone in range(4):
        removals.run(start_ms + 10_000 + gone * 50_000)
        for segment, content in replaced[gone:]:
            segment.file.try_close()
            assert segment.read_at(0, segment.size_bytes) == content
    assert world.files(".deleted") == []
    assert removals.run(start_ms + 1_000_000) == 0


def test_what_leaves_while_a_large_file_gives_its_room_back_keeps_its_indexes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is on its way out has no name any more, so that the next one that leaves gets it."""
    world = make_world(file_delete_delay_ms=60_000)
    removals = world.log._list._removals
    world.put_each("aab")
    world.roll()
    checkpoint, start_ms = world.clean(0).end_offset, world.now_ms
    world.now_ms += 50_000
    world.put_each("ccd")
    world.roll()
    second, remove = world.closed()[0], removals.pace.remove

    def remove_slowly(disk: Disk, path: Path) -> None:
        remove(disk, path)
        world.clean(checkpoint)

    monkeypatch.setattr(removals.pace, "remove", remove_slowly)
    removals.run(start_ms + 60_000)
    assert second.has_left
    for index in (second.offset_index, second.time_index):
        assert index.path.exists()
