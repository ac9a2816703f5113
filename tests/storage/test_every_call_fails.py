"""Goal: whichever call to the disk fails while a log is written, flushed and rolled, the log answers with its
own error, takes nothing acknowledged back, and goes on where it may.

Method: each call in turn fails once, with EIO and with ENOSPC, until a run has fewer calls than that; then
the log is opened as after a crash.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from storage.verify import verify_log
from tests.storage.builders import LogBuilder, batch
from tests.storage.faults import FaultyDisk, UnsyncedDisk

SIZE = len(batch())
APPENDS = 12


def write(log: LogBuilder, error: int) -> int:
    """Append and flush; how many attempts were refused."""
    refused = 0
    for _ in range(APPENDS):
        try:
            log.append()
            log.log.flush()
        except KafkaError as problem:
            assert problem.code is ErrorCode.KAFKA_STORAGE_ERROR
            refused += 1
        except OSError as problem:
            assert problem.errno == error
            assert log.log.offline_reason is not None, "a flush that fails and is not the end"
            refused += 1
    return refused


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_each_call_of_append_flush_and_roll_fails_once(tmp_path: Path, error: int) -> None:
    """A full disk that has room again at the next call costs one append; after EIO the log may be offline."""
    met: set[str] = set()
    outcomes: set[bool] = set()
    for number in range(1000):
        disk = FaultyDisk()
        log = LogBuilder(
            tmp_path / f"orders-{number}", disk, segment_bytes=3 * SIZE, index_interval_bytes=SIZE
        )
        before = len(disk.calls)
        disk.error_at = {before + number: error}
        refused = write(log, error)
        safe, is_offline = log.log.high_watermark, log.log.offline_reason is not None
        if len(disk.calls) <= before + number:
            assert (refused, safe, is_offline) == (0, APPENDS, False)
            log.log.abandon()
            break
        failed = disk.calls[before + number].split()[0]
        met.add(failed)
        outcomes.add(is_offline)
        if not is_offline:
            assert refused <= 1, failed
            assert safe >= APPENDS - refused, failed
        log.crash(disk=UnsyncedDisk())
        assert log.offsets()[:safe] == list(range(safe)), failed
        assert log.append().base_offset == log.log.log_end_offset - 1
        log.log.flush()
        log.log.close()
        assert verify_log(log.directory) == [], failed
    assert number > 40
    assert {"create", "write", "truncate", "fdatasync", "fsync"} <= met
    assert True in outcomes, "no failure had a consequence"
