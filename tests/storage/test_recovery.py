"""Goal: after any end of the process the log opens with every record that was whole, and no other.

Method: logs are ended without a goodbye, their files torn, cut, flipped and littered, and opened again;
the records must be a prefix of those appended, and everything that verification looks at must be right.
"""

from __future__ import annotations

import logging
import os
import random
import struct

import pytest

from protocol.batch import HEADER_BYTES, iterate_headers
from storage import recovery
from storage.segment import MAX_RELATIVE_OFFSET, Segment
from storage.types import Origin
from tests.storage.builders import NOW_MS, LogBuilder, batch
from tests.storage.conftest import MakeLog

SIZE = len(batch())


def test_t167_a_clean_start_scans_nothing(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log(segment_bytes=5 * SIZE)
    log.fill(23)
    log.log.close()
    monkeypatch.setattr(recovery, "recover_segment", None)
    monkeypatch.setattr("storage.replay.replay", None)
    log.open(is_clean=True)
    assert log.log.log_end_offset == 23
    assert log.offsets() == list(range(23))


def test_t168_only_segments_from_the_recovery_point_on_are_scanned(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(segment_bytes=5 * SIZE)
    log.fill(23)
    log.recovery_point = 17
    scanned: list[int] = []
    original = recovery.recover_segment

    def noted(segment: Segment, *rest: object) -> bool:
        scanned.append(segment.base_offset)
        return original(segment, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "recover_segment", noted)
    log.crash()
    assert scanned == [15, 20]
    assert log.offsets() == list(range(23))


def test_a_roll_right_behind_a_flush_is_not_taken_for_flushed(make_log: MakeLog) -> None:
    """Power is cut between the two: a time index of zeros would make retention think the segment ancient."""
    log = make_log(segment_bytes=5 * SIZE)
    log.fill(6)
    log.recovery_point = 5
    closed = log.log.segments[0]
    log.log.abandon()
    for path in (closed.offset_index.path, closed.time_index.path):
        path.write_bytes(bytes(path.stat().st_size))
    (log.directory / f"{5:020d}.snapshot").write_bytes(b"")
    log.open()
    assert log.log.segments[0].largest_timestamp == NOW_MS
    assert log.offsets() == list(range(6))


def test_t168_the_first_bad_batch_ends_the_log(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=5 * SIZE)
    log.fill(23)
    path = log.log.segments[1].file.path
    log.log.abandon()
    data = bytearray(path.read_bytes())
    data[2 * SIZE + HEADER_BYTES + 3] ^= 0x10
    path.write_bytes(data)
    log.open()
    assert log.offsets() == list(range(7))
    assert [segment.base_offset for segment in log.log.segments] == [0, 5]
    assert log.files(".log") == [f"{0:020d}.log", f"{5:020d}.log"]
    assert log.append().base_offset == 7


@pytest.mark.parametrize("seed", range(10))
def test_t169_garbage_behind_log_and_index(make_log: MakeLog, seed: int) -> None:
    source = random.Random(seed)
    log = make_log(segment_bytes=40 * SIZE, index_interval_bytes=100)
    log.fill(source.randrange(1, 100))
    before = log.records()
    paths = [log.log.active_segment.file.path, log.log.active_segment.offset_index.path]
    log.log.abandon()
    for path in paths:
        with path.open("ab") as file:
            file.write(source.randbytes(source.randrange(1, 300)))
    log.open()
    assert log.records() == before
    log.append()


@pytest.mark.parametrize(
    "garbage", [b"\0" * 200, b"\xff" * 200, b"\0" * 8 + struct.pack(">i", 2**31 - 1) + b"\2" * 80]
)
def test_t169_garbage_that_looks_like_a_header(log: LogBuilder, garbage: bytes) -> None:
    log.fill(5)
    path = log.log.active_segment.file.path
    log.log.abandon()
    with path.open("ab") as file:
        file.write(garbage)
    log.open()
    assert log.offsets() == [0, 1, 2, 3, 4]


def test_t176_the_last_batch_torn_at_every_byte(make_log: MakeLog) -> None:
    log = make_log(index_interval_bytes=50)
    log.fill(3)
    log.append(b"last", b"batch")
    path = log.log.active_segment.file.path
    whole = path.read_bytes()
    for size in range(3 * SIZE, len(whole)):
        log.log.abandon()
        path.write_bytes(whole[:size])
        log.open()
        assert log.log.log_end_offset == 3
        assert log.log.size_bytes == 3 * SIZE
    assert log.offsets() == [0, 1, 2]
    log.log.abandon()
    path.write_bytes(whole)
    log.open()
    assert log.offsets() == [0, 1, 2, 3, 4]


def test_t176_every_bit_of_the_last_header(log: LogBuilder) -> None:
    """A flipped bit is found, but for the 4 bytes of the leader epoch, which no checksum covers, and the
    offset (which may only leave a hole).
    """
    log.fill(2)
    path = log.log.active_segment.file.path
    whole = path.read_bytes()
    for bit in range(8 * 8, 8 * SIZE, 5):
        position = SIZE + bit // 8
        if 12 <= bit // 8 < 16:
            continue
        data = bytearray(whole)
        data[position] ^= 1 << bit % 8
        log.log.abandon()
        path.write_bytes(data)
        log.open()
        assert log.log.log_end_offset == 1, f"bit {bit}"


def test_offsets_that_go_back_end_the_log(log: LogBuilder) -> None:
    log.fill(3)
    path = log.log.active_segment.file.path
    log.log.abandon()
    data = path.read_bytes()
    path.write_bytes(data + data[SIZE : 2 * SIZE])
    log.open()
    assert log.offsets() == [0, 1, 2]


def test_t173_an_end_below_the_start_drops_everything(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=5 * SIZE)
    log.fill(12)
    log.log_start_offset = 40
    log.crash()
    assert (log.log.log_start_offset, log.log.log_end_offset) == (40, 40)
    assert log.files(".log") == [f"{40:020d}.log"]
    assert log.append().base_offset == 40


def test_t174_an_over_compacted_log_with_big_holes(log: LogBuilder) -> None:
    """`testOverCompactedLogRecovery`: holes of any size are no reason to repair anything."""
    log.append()
    log.log.log_end_offset = MAX_RELATIVE_OFFSET
    log.append()
    log.log.log_end_offset = 10 * MAX_RELATIVE_OFFSET
    log.append()
    before = {segment.base_offset: segment.size_bytes for segment in log.log.segments}
    log.crash()
    assert {segment.base_offset: segment.size_bytes for segment in log.log.segments} == before
    assert log.offsets() == [0, MAX_RELATIVE_OFFSET, 10 * MAX_RELATIVE_OFFSET]


FAR = MAX_RELATIVE_OFFSET + 1


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(
    ("offsets", "bases"),
    [
        ((0, 5, FAR, FAR + 3, 3 * FAR), [0, FAR, 3 * FAR]),
        ((2 * FAR, 2 * FAR + 1, 5 * FAR), [0, 2 * FAR, 5 * FAR]),  # nothing is near its name
    ],
)
def test_t110_t174_a_segment_that_holds_an_overflow_is_split(
    make_log: MakeLog, is_last: bool, offsets: tuple[int, ...], bases: list[int]
) -> None:
    log = make_log()
    pieces = [(offset, batch(b"%d" % offset)) for offset in offsets]
    data = b"".join(struct.pack(">q", offset) + raw[8:] for offset, raw in pieces)
    log.append()
    if not is_last:
        log.log.log_end_offset = 6 * FAR
        log.append()
    log.log.abandon()
    (log.directory / f"{0:020d}.log").write_bytes(data)
    for start in (log.open, log.crash):
        start()
        assert [segment.base_offset for segment in log.log.segments][:3] == bases
        assert [record.value for record in log.records()][: len(offsets)] == [b"%d" % one for one in offsets]


def test_t175_an_empty_active_segment_stays(make_log: MakeLog) -> None:
    log = make_log()
    log.fill(3)
    log.log.roll(NOW_MS)
    log.crash()
    assert log.files(".log") == [f"{0:020d}.log", f"{3:020d}.log"]
    assert log.append().base_offset == 3


def test_t175_no_file_at_all(log: LogBuilder) -> None:
    log.log.abandon()
    for path in log.directory.iterdir():
        path.unlink()
    log.open()
    assert log.append().base_offset == 0


def test_t182_strange_files_are_left_alone_and_named(
    log: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    log.fill(2)
    strange = log.directory / "notes.txt"
    strange.write_text("mine")
    with caplog.at_level(logging.WARNING):
        log.crash()
    assert strange.read_text() == "mine"
    assert "notes.txt is unknown" in caplog.text


def test_t170_the_transaction_index_is_made_anew(log: LogBuilder) -> None:
    log.append(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.end_transaction(7, is_commit=False)
    before = log.log.aborted_transactions(0, 2)
    assert before == [(7, 0, 1, 2)]
    path = log.log.active_segment.txn_index.path
    data = path.read_bytes()
    assert data == struct.pack(">hqqqq", 0, 7, 0, 1, 2)
    for damage in (None, b"", b"\xff" * 34, data[:-1]):
        log.log.abandon()
        path.unlink() if damage is None else path.write_bytes(damage)
        log.open()
        assert log.log.aborted_transactions(0, 2) == before
        assert path.read_bytes() == data


def test_a_batch_larger_than_the_scan_window(make_log: MakeLog) -> None:
    log = make_log(max_message_bytes=8 << 20)
    log.append(os.urandom(100))
    log.append(os.urandom(5 << 20))
    log.append()
    log.crash()
    assert log.log.log_end_offset == 3
    assert [header.base_offset for header, _ in log.log.scan(0)] == [0, 1, 2]


def test_empty_batches_of_a_cleaned_log_are_recovered(log: LogBuilder) -> None:
    from protocol.records import encode_batch

    empty = encode_batch([], producer_id=7, producer_epoch=0, base_sequence=0, last_offset_delta=4)
    log.append()
    log.log.append(empty, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    log.append()
    log.crash()
    assert log.offsets() == [0, 6]


def test_recovery_itself_may_crash_anywhere(make_log: MakeLog) -> None:
    from tests.storage.faults import Crash, FaultyDisk

    log = make_log(segment_bytes=4 * SIZE, index_interval_bytes=50)
    log.fill(14)
    log.append(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.end_transaction(7, is_commit=False)
    path = log.log.segments[-1].file.path
    with path.open("ab") as file:
        file.write(b"torn" * 20)
    for number in range(1000):
        disk = FaultyDisk()
        disk.crash_at = number
        log.log.abandon()
        try:
            log.open(disk=disk)
        except Crash:
            continue
        disk.crash_at = None
        break
    assert number > 10
    assert log.offsets(0)[:15] == list(range(15))
    assert log.log.aborted_transactions(0, 16) == [(7, 14, 15, 16)]


def test_t110_the_parts_of_an_overflow_keep_its_aborted_transactions(make_log: MakeLog) -> None:
    """After a clean stop nobody would make them anew."""
    log = make_log()
    log.append(b"good")
    log.append(b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.end_transaction(7, is_commit=False)
    log.append(b"far")
    before = log.log.aborted_transactions(0, 10)
    assert len(before) == 1
    log.log.flush()
    log.log.close()
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    position = [position for position, _ in iterate_headers(data)][-1]
    far = 2 * MAX_RELATIVE_OFFSET
    data[position : position + 8] = struct.pack(">q", far)
    path.write_bytes(data)
    for snapshot in log.directory.glob("*.snapshot"):
        snapshot.unlink()
    (log.directory / f"{far + 1:020d}.log").write_bytes(struct.pack(">q", far + 1) + batch()[8:])
    log.recovery_point = far + 2
    log.open(is_clean=True)
    assert [segment.base_offset for segment in log.log.segments] == [0, far, far + 1]
    assert log.log.aborted_transactions(0, far) == before
    assert log.files(".txnindex") == [f"{0:020d}.txnindex"]
