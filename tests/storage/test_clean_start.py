"""Goal: a start after a clean stop believes what the stop wrote and reads next to nothing.

Method: logs are stopped and opened again on a disk that counts what is read of data files.
"""

from __future__ import annotations

import pytest

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
