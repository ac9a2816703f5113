"""Goal: the cleaner's promises to users that have no case of Kafka's own: S61, S69, S70.

Method: the pure choice among logs, the offset map by itself, and the size of a partition's directory at
every change that a cleaning makes to the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cleaner.selection import Assessment, Reason, dirtiest
from storage.file import Disk
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.maps import MapByHand

SEGMENT_BYTES = 20_000


def assessed(dirty: int, clean: int, reason: Reason | None = None) -> Assessment:
    return Assessment(
        first_dirty_offset=0,
        first_uncleanable_offset=1,
        end=1,
        clean_bytes=clean,
        cleanable_bytes=dirty,
        uncleanable_bytes={},
        threshold=0.5,
        compaction_delay_ms=0,
        checkpoint_reset=None,
        next_eligible_ms=None,
        reason=reason,
    )


def test_s61_the_dirtiest_log_comes_first() -> None:
    logs = [assessed(6, 4), assessed(9, 1), assessed(99, 1, Reason.RATIO), assessed(800, 200)]
    order = []
    left = dict(enumerate(logs))
    while (chosen := dirtiest(list(left.values()))) is not None:
        number = list(left)[chosen]
        order.append(number)
        del left[number]
    assert order == [1, 3, 0]


def test_s69_the_map_knows_the_last_offset_of_each_key() -> None:
    offsets = MapByHand(1 << 16)
    for offset in range(300):
        offsets.put(b"key-%d" % (offset % 7), offset)
    assert offsets.entries == 7
    assert {offsets.get(b"key-%d" % key) for key in range(7)} == set(range(293, 300))


class MeasuringDisk(Disk):
    """Calls `measure` after each change of a file or a name."""

    measure: Callable[[], None] = staticmethod(lambda: None)

    def pwritev(self, descriptor, buffers, position):  # type: ignore[no-untyped-def]
        written = super().pwritev(descriptor, buffers, position)
        self.measure()
        return written

    def rename(self, source, target):  # type: ignore[no-untyped-def]
        super().rename(source, target)
        self.measure()


def log_bytes(directory: Path) -> int:
    """Bytes of the log's segments and of those being written; a replaced one waits for its deletion apart."""
    return sum(
        path.stat().st_size for path in directory.iterdir() if path.suffix in (".log", ".cleaned", ".swap")
    )


def test_s70_a_cleaning_needs_about_one_segment_more_of_disk(make_world: MakeWorld) -> None:
    """Twelve segments without a duplicate, so that nothing shrinks: each group is rewritten and swapped in
    turn, so that never more than one is there twice.
    """
    disk = MeasuringDisk()
    world = make_world(disk=disk, segment_bytes=SEGMENT_BYTES)
    number = 0
    while len(world.log.segments) < 13:
        world.put((f"key-{number}", "v" * 500))
        number += 1
    before = log_bytes(world.directory)
    largest = before

    def measure() -> None:
        nonlocal largest
        largest = max(largest, log_bytes(world.directory))

    disk.measure = measure  # type: ignore[method-assign]
    world.clean()
    assert world.keys() == [f"key-{each}" for each in range(number)]
    assert before < largest <= before + SEGMENT_BYTES
