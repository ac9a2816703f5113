"""Goal: what smaller segments cost, and how a log is written and read, as promised (S31, S41).

Method: a disk that counts every call that changes something; the same batches go into logs of different
segments.
"""

from __future__ import annotations

from tests.storage.builders import NOW_MS, batch
from tests.storage.conftest import MakeLog
from tests.storage.faults import FaultyDisk

BATCHES = 60


def test_s31_smaller_segments_mean_more_files_and_more_closes(make_log: MakeLog) -> None:
    files: dict[int, int] = {}
    created: dict[int, int] = {}
    for segment_bytes in (1 << 20, 1000):
        disk = FaultyDisk()
        builder = make_log(disk, f"orders-{segment_bytes}", segment_bytes=segment_bytes)
        for _ in range(BATCHES):
            builder.log.append(batch(b"v" * 100), now_ms=NOW_MS)
        files[segment_bytes] = len(list(builder.directory.glob("*.log")))
        created[segment_bytes] = sum(call.startswith("create") for call in disk.calls)
    assert files[1 << 20] == 1
    assert files[1000] >= BATCHES // 10
    assert created[1000] >= created[1 << 20] + 2 * (files[1000] - 1)


def test_s41_an_append_is_one_write_at_the_end_and_a_read_one_stretch_of_the_file(make_log: MakeLog) -> None:
    disk = FaultyDisk()
    builder = make_log(disk)
    data = batch(b"v" * 100)
    builder.log.append(data, now_ms=NOW_MS)
    for number in range(1, BATCHES):
        before = len(disk.calls)
        builder.log.append(data, now_ms=NOW_MS)
        assert [call.split()[0] for call in disk.calls[before:]].count("write") == 1
        assert builder.log.size_bytes == (number + 1) * len(data)
    builder.log.flush()
    end = builder.log.log_end_offset
    found = builder.log.read(10, 1 << 20, upper_offset=end)
    assert found.read() == (builder.directory / f"{0:020d}.log").read_bytes()[10 * len(data) :]
