"""Goal: an index that could not be written when it was made anew, because the disk failed or was full, is
never believed by the next start, whatever of it has come into the file.

Method: logs with a damaged or missing index are opened on a disk that fails at each call in turn, or takes
only so many bytes, are stopped and opened again on a good one. What they answer is compared with what they
answered before.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import statistics
from storage.file import SYSTEM_DISK, Disk
from storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from storage.log import Log
from storage.txn_index import ENTRY_BYTES
from storage.verify import verify_log
from tests.storage.builders import NOW_MS, LogBuilder
from tests.storage.conftest import MakeLog
from tests.storage.faults import FaultyDisk

Damage = Callable[[LogBuilder], None]


def file_of(builder: LogBuilder, segment: int, suffix: str) -> Path:
    return builder.directory / builder.files(suffix)[segment]


def stopped_log(make_log: MakeLog) -> LogBuilder:
    """Two closed segments and an active one, an aborted transaction in the second; entries at about every
    third batch.
    """
    builder = make_log(segment_bytes=20_000, index_interval_bytes=4000)
    builder.fill(15, b"v" * 1500, step_ms=10)
    builder.append(
        b"a", timestamp=NOW_MS + 300, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    builder.end_transaction(7, is_commit=False)
    builder.now_ms += 300
    builder.fill(20, b"v" * 1500, step_ms=10)
    builder.log.close()
    builder.recovery_point = builder.log.recovery_point
    assert len(builder.log.segments) == 3
    return builder


def answers(log: Log) -> list[object]:
    """What the indexes are asked for."""
    found: list[object] = [(one.base_offset, *one._largest_entry()) for one in log.segments]
    found += [log.offset_for_timestamp(NOW_MS + time) for time in range(0, 510, 10)]
    found += [header.base_offset for header, _ in log.scan(0)]
    found += [*log.aborted_transactions(0, log.log_end_offset), log.max_timestamp_offset()]
    return found


def missing(suffix: str, segment: int) -> Damage:
    return lambda builder: file_of(builder, segment, suffix).unlink()


def zeros(suffix: str, segment: int) -> Damage:
    def damage(builder: LogBuilder) -> None:
        path = file_of(builder, segment, suffix)
        path.write_bytes(bytes(path.stat().st_size))

    return damage


def another_end(builder: LogBuilder) -> None:
    """The checkpoint does not say where the last segment ends, so all of it is looked at."""
    builder.recovery_point -= 3


class Copies:
    """The same stopped log again and again."""

    def __init__(self, builder: LogBuilder, attic: Path) -> None:
        self.builder, self.attic = builder, attic
        self.recovery_point = builder.recovery_point
        self.right = answers(builder.open(is_clean=True))
        builder.log.close()
        shutil.copytree(builder.directory, attic)

    def restore(self, damage: Damage) -> LogBuilder:
        builder = self.builder
        shutil.rmtree(builder.directory)
        shutil.copytree(self.attic, builder.directory)
        builder.recovery_point = self.recovery_point
        damage(builder)
        return builder

    def check(self, *, is_clean: bool) -> None:
        builder = self.builder
        log = builder.open(disk=SYSTEM_DISK, is_clean=is_clean)
        assert answers(log) == self.right
        assert verify_log(builder.directory) == []
        log.close()


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "not clean"])
@pytest.mark.parametrize(
    "damage",
    [another_end, missing(".index", 0), missing(".timeindex", 1), zeros(".timeindex", 1), zeros(".index", 2)],
    ids=["another end", "no index", "no time index", "zeros", "zeros of the last"],
)
def test_an_error_at_any_call_of_an_open_is_made_good_by_the_next(
    make_log: MakeLog, tmp_path: Path, damage: Damage, is_clean: bool
) -> None:
    """Opening fails then, and the broker sets the log offline: nobody has been told anything wrong."""
    copies = Copies(stopped_log(make_log), tmp_path / "attic")
    failures = 0
    for number in range(100):
        builder = copies.restore(damage)
        disk = FaultyDisk()
        disk.error_at = {number: errno.EIO}
        try:
            answers(builder.open(disk=disk, is_clean=True))
        except OSError:
            failures += 1
        builder.log.abandon()
        copies.check(is_clean=is_clean)
        if len(disk.calls) <= number:
            break
    assert 0 < failures == number, "each call but those of the last round has failed"


@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "not clean"])
def test_the_front_part_of_a_time_index_is_not_believed(
    make_log: MakeLog, tmp_path: Path, segment: int, is_clean: bool
) -> None:
    """A full disk takes some whole entries, then there is room again. The last of them is not the largest
    timestamp of the segment, by which retention goes.
    """
    copies = Copies(stopped_log(make_log), tmp_path / "attic")
    entries = file_of(copies.builder, segment, ".timeindex").stat().st_size // TIME_ENTRY_BYTES
    assert entries > 2
    for taken in range(entries):
        builder = copies.restore(missing(".timeindex", segment))
        disk = FaultyDisk()
        offsets = file_of(builder, segment, ".index").stat().st_size
        assert offsets == (entries - 1) * OFFSET_ENTRY_BYTES
        disk.room_bytes = offsets + taken * TIME_ENTRY_BYTES
        log = builder.open(disk=disk, is_clean=True)
        assert disk.room_bytes == 0
        assert answers(log) == copies.right
        disk.room_bytes = None
        if is_clean:
            log.close()
            assert verify_log(builder.directory) == [], "what was refused is written at the end"
        else:
            log.abandon()
        copies.check(is_clean=True)


class FullForSome(Disk):
    """Has no room for files with this suffix."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix

    def open(self, path: Path, flags: int) -> int:
        if flags and self.suffix in path.suffixes:
            raise OSError(errno.ENOSPC, "full")
        return super().open(path, flags)


def test_statistics_do_not_vouch_for_a_transaction_index_that_could_not_be_repaired(
    make_log: MakeLog, tmp_path: Path
) -> None:
    """They are written when there is room again, and say what the file should hold."""
    copies = Copies(stopped_log(make_log), tmp_path / "attic")

    def cut(builder: LogBuilder) -> None:
        path = file_of(builder, 0, ".txnindex")
        assert path.stat().st_size == ENTRY_BYTES
        path.write_bytes(path.read_bytes()[:-3])

    def change(builder: LogBuilder) -> None:
        path = file_of(builder, 0, ".txnindex")
        data = path.read_bytes()
        path.write_bytes(data[:5] + bytes([data[5] ^ 4]) + data[6:])

    for damage in (cut, change):
        for path in copies.attic.glob("*.stats"):
            path.unlink()
        builder = copies.restore(damage)
        log = builder.open(disk=FullForSome(".tmp"), is_clean=True)
        assert answers(log) == copies.right
        for one in log.segments:
            one.file.disk = SYSTEM_DISK
            statistics.ensure(one)
        log.close()
        copies.check(is_clean=True)
