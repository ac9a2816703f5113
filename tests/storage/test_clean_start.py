"""Goal: a start after a clean stop believes what the stop wrote and reads next to nothing.

Method: logs are stopped and opened again on a disk that counts what is read of data files.
"""

from __future__ import annotations

import pytest

from protocol.batch import iterate_headers
from storage.file import Disk
from tests.storage.builders import NOW_MS, LogBuilder
from tests.storage.conftest import MakeLog

VALUE = b"v" * 300_000
HEADERS_BYTES = 1000


class CountingDisk(Disk):
    """Counts the bytes that are read, whoever asks."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        data = super().pread(descriptor, size, position)
        self.read_bytes += len(data)
        return data


def stopped(make_log: MakeLog, times: list[int]) -> tuple[LogBuilder, CountingDisk]:
    disk = CountingDisk()
    builder = make_log(disk)
    for time in times:
        builder.append(VALUE, timestamp=time)
    builder.log.close()
    builder.recovery_point = builder.log.recovery_point
    disk.read_bytes = 0
    return builder, disk


@pytest.mark.parametrize(
    ("times", "largest"),
    [([NOW_MS, NOW_MS + 1, NOW_MS + 2], NOW_MS + 2), ([-1, -1, -1], -1)],
    ids=["times", "no times"],
)
def test_the_indexes_are_believed(make_log: MakeLog, times: list[int], largest: int) -> None:
    """Of the batches only headers are read, to see that the log ends where it was stopped; a log without
    times has no entry in its time index, which is no reason to make that anew.
    """
    builder, disk = stopped(make_log, times)
    log = builder.open(is_clean=True)
    assert log.segments[-1].max_timestamp == largest
    assert disk.read_bytes < HEADERS_BYTES
    assert log.log_end_offset == 3


@pytest.mark.parametrize("times", [[NOW_MS, NOW_MS + 1], [NOW_MS, -1]])
def test_a_lost_time_index_is_made_anew(make_log: MakeLog, times: list[int]) -> None:
    builder, _ = stopped(make_log, times)
    (path,) = builder.directory.glob("*.timeindex")
    path.write_bytes(b"")
    assert builder.open(is_clean=True).segments[-1].max_timestamp == max(times)


@pytest.mark.parametrize("is_rolled", [False, True], ids=["active", "rolled"])
def test_what_is_appended_later_is_no_damage(make_log: MakeLog, is_rolled: bool) -> None:
    """The segment was on disk up to an offset, and was checked up to there; then it went on. Where its pages
    have left the cache all of it is checked again, up to where it ends now.
    """
    builder, _ = stopped(make_log, [NOW_MS, NOW_MS + 1])
    builder.open(is_clean=True)
    assert builder.offsets(0) == [0, 1]
    segment = builder.log.segments[-1]
    segment.check(0, segment.size_bytes)
    assert segment.trust is None
    builder.append(VALUE)
    builder.append(VALUE)
    if is_rolled:
        builder.log.roll(NOW_MS)
        builder.append(VALUE)
    builder.log.flush()
    for offset in range(builder.log.log_end_offset):
        held = builder.log.read(offset, 1, upper_offset=builder.log.log_end_offset)
        held.warm()
        assert [header.base_offset for _, header in iterate_headers(held.read())] == [offset]
    assert segment.check_again(0, segment.size_bytes)
    assert (segment.damages, builder.log.health.damaged_places) == ((), 0)
