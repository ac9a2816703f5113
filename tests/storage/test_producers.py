"""Goal: idempotent producers are exactly once, and what a partition knows of them survives whatever a log
survives.

Method: batches with producer ids go to a real log, which is opened again after clean and unclean ends,
with its snapshots as they were, damaged, or gone.
"""

from __future__ import annotations

import shutil

import pytest

from protocol.batch import MAX_SEQUENCE
from protocol.control import Marker, marker_batch
from protocol.errors import ErrorCode, KafkaError
from storage import layout
from storage.producer_state import ProducerState, ProducerStateManager, decode_snapshot, encode_snapshot
from storage.types import Appended, LastRecord, LogLimits, Origin
from storage.verify import verify_log
from tests.storage.builders import NOW_MS, LogBuilder, batch

DAY_MS = 86_400_000


def send(
    log: LogBuilder, sequence: int, count: int = 1, producer: int = 7, epoch: int = 0, **fields: int
) -> Appended:
    return log.append(
        *[b"v"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields
    )


def code_of(log: LogBuilder, sequence: int, **fields: int) -> ErrorCode:
    before = log.log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        send(log, sequence, **fields)
    assert log.log.log_end_offset == before
    return caught.value.code


def test_t155_the_last_five_batches_are_recognised(log: LogBuilder) -> None:
    first = [send(log, sequence * 2, 2) for sequence in range(5)]
    again = [send(log, sequence * 2, 2) for sequence in range(5)]
    assert [(a.base_offset, a.last_offset) for a in again] == [(a.base_offset, a.last_offset) for a in first]
    assert log.log.log_end_offset == 10


def test_t156_an_older_or_partial_duplicate_is_out_of_order(log: LogBuilder) -> None:
    for sequence in range(0, 12, 2):
        send(log, sequence, 2)
    assert code_of(log, 0, count=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, 10, count=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, 11) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "it ends as the last one does"
    assert code_of(log, 14) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_t157_an_unknown_producer_may_begin_anywhere(log: LogBuilder) -> None:
    assert send(log, 42).base_offset == 0
    assert send(log, 43).base_offset == 1


def test_t158_a_new_epoch_begins_at_zero(log: LogBuilder) -> None:
    send(log, 0)
    assert code_of(log, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=1).base_offset == 1
    send(log, 1, epoch=1)
    assert [send(log, sequence, epoch=2).base_offset for sequence in (0, 1)] == [3, 4], "no duplicates"


def test_t158_what_was_sent_in_an_older_epoch_is_no_duplicate(log: LogBuilder) -> None:
    """It would be answered as if it were there, and the records would be lost."""
    for sequence in range(3):
        send(log, sequence)
    assert send(log, 0, epoch=1).base_offset == 3
    assert code_of(log, 2, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(log, sequence, epoch=1).base_offset for sequence in (1, 2)] == [4, 5]


def test_t158_behind_no_epoch_any_sequence_may_come(log: LogBuilder) -> None:
    assert send(log, 5, epoch=-1).base_offset == 0
    assert send(log, 9, epoch=0).base_offset == 1


def test_t159_an_old_epoch_is_fenced(log: LogBuilder) -> None:
    send(log, 0, epoch=3)
    assert code_of(log, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_t160_sequences_wrap(log: LogBuilder) -> None:
    send(log, MAX_SEQUENCE)
    assert send(log, 0).base_offset == 1
    other = MAX_SEQUENCE - 1
    send(log, other, 4, producer=8)
    assert send(log, other, 4, producer=8).base_offset == 2
    assert send(log, 2, producer=8).base_offset == 6


def test_t161_a_plain_write_into_an_open_transaction(log: LogBuilder) -> None:
    send(log, 0, is_transactional=True)
    assert code_of(log, 1) is ErrorCode.INVALID_TXN_STATE
    log.end_transaction(7, is_commit=True)
    send(log, 1)


@pytest.mark.parametrize("is_clean", [True, False])
def test_t162_state_is_rebuilt(log: LogBuilder, is_clean: bool) -> None:
    for sequence in range(3):
        send(log, sequence)
    log.log.roll(NOW_MS)
    send(log, 3)
    log.restart() if is_clean else log.crash()
    assert (send(log, 3).base_offset, log.log.log_end_offset) == (3, 4)
    assert send(log, 4).base_offset == 4
    assert code_of(log, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_t162_state_from_gapped_and_empty_batches(log: LogBuilder) -> None:
    """A compacted batch keeps its sequence range though records are gone (`testRebuildProducerState...`)."""
    gapped = batch(
        b"a", producer_id=7, producer_epoch=0, base_sequence=0, offset_deltas=[1], last_offset_delta=3
    )
    empty = batch_without_records(producer_id=8)
    log.log.append(gapped, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    log.log.append(empty, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    log.crash()
    producers = log.log.producers.producers
    assert producers[7].last_sequence == 3
    assert producers[8].last_sequence == 1


def batch_without_records(producer_id: int) -> bytes:
    from protocol.records import encode_batch

    return encode_batch([], producer_id=producer_id, producer_epoch=0, base_sequence=0, last_offset_delta=1)


def test_t163_producers_expire_but_not_in_a_transaction() -> None:
    producers = ProducerStateManager(LogLimits(producer_expiration_ms=DAY_MS))
    from protocol.batch import parse_header

    def note(producer_id: int, is_transactional: bool) -> None:
        data = batch(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=is_transactional
        )
        producers.update(parse_header(data), producer_id)

    note(1, False)
    note(2, True)
    producers.expire(NOW_MS + DAY_MS - 1)
    assert set(producers.producers) == {1, 2}
    producers.expire(NOW_MS + DAY_MS)
    assert set(producers.producers) == {2}


def test_the_number_of_producers_is_bounded() -> None:
    from protocol.batch import parse_header

    producers = ProducerStateManager(LogLimits(max_producers=100))
    in_transaction = batch(
        producer_id=2000, producer_epoch=0, base_sequence=0, timestamp=0, is_transactional=True
    )
    producers.update(parse_header(in_transaction), 0)
    for number in range(1000):
        data = batch(producer_id=number, producer_epoch=0, base_sequence=0, timestamp=NOW_MS + number)
        producers.update(parse_header(data), number)
    assert len(producers.producers) <= 100
    assert producers.producers.keys() >= set(range(910, 1000)), "no more than a tenth goes at a time"
    assert 2000 in producers.producers, "forgotten, its marker would not end the transaction"


def test_a_snapshot_knows_better_than_the_batches_that_are_left() -> None:
    """Of a producer whose newer epoch stood in a marker that is gone, and of one whose batches are."""
    from protocol.batch import parse_header

    producers = ProducerStateManager()
    begun = batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    producers.update(parse_header(begun), 0)
    newer, unseen = ProducerState(7, 1), ProducerState(8, 0)
    newer.last_timestamp = unseen.last_timestamp = NOW_MS
    unseen.transaction_start = 5
    producers.compare([newer, unseen], NOW_MS, 1 << 62)
    assert producers.open_transactions() == {}
    assert producers.first_unstable_offset is None
    with pytest.raises(KafkaError):
        producers.check(parse_header(begun), "orders-0")
    ended = parse_header(marker_batch(Marker(True), producer_id=8, producer_epoch=0, now_ms=NOW_MS))
    assert producers.update_marker(ended, Marker(True), 9) is None


def test_t164_snapshots_at_rolls_and_at_the_end(log: LogBuilder) -> None:
    for sequence in range(3):
        send(log, sequence)
        log.log.roll(NOW_MS)
    assert log.files(".snapshot") == [f"{offset:020d}.snapshot" for offset in (1, 2, 3)]
    send(log, 3)
    log.log.close()
    assert f"{4:020d}.snapshot" in log.files(".snapshot")
    log.open(is_clean=True)
    assert (send(log, 3).base_offset, log.log.log_end_offset) == (3, 4)


@pytest.mark.parametrize("damage", [b"", b"\0", b"\0\1", b"\xff" * 100, None], ids=repr)
@pytest.mark.parametrize("is_clean", [True, False])
def test_t164_a_damaged_snapshot_falls_back_to_an_older_one_or_a_scan(
    log: LogBuilder, damage: bytes | None, is_clean: bool
) -> None:
    for sequence in range(4):
        send(log, sequence)
        log.log.roll(NOW_MS)
    log.log.close()
    for name in log.files(".snapshot")[1:]:
        path = log.directory / name
        path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    log.open(is_clean=is_clean)
    assert (send(log, 3).base_offset, log.log.log_end_offset) == (3, 4)
    assert code_of(log, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_t164_stray_snapshots_go_except_the_newest(log: LogBuilder) -> None:
    send(log, 0)
    log.log.roll(NOW_MS)
    for sequence in range(1, 5):
        send(log, sequence)
    log.log.close()
    newest = log.directory / layout.segment_file_name(5, layout.SNAPSHOT_SUFFIX)
    for stray in (2, 3, 9):
        shutil.copy(newest, log.directory / layout.segment_file_name(stray, layout.SNAPSHOT_SUFFIX))
    log.open(is_clean=True)
    assert log.files(".snapshot") == [f"{offset:020d}.snapshot" for offset in (1, 5)]


def test_snapshot_bytes_are_kafkas() -> None:
    """Layout of ProducerSnapshot version 1: version, checksum of the rest, count, entries of 46 bytes."""
    state = ProducerState(7, 2)
    state.last_timestamp = NOW_MS
    data = encode_snapshot([state])
    assert data[:2] == b"\0\1"
    assert data[6:10] == b"\0\0\0\1"
    assert len(data) == 10 + 46
    (found,) = decode_snapshot(data)
    assert (found.producer_id, found.epoch, found.last_sequence, found.last_data_offset) == (7, 2, -1, None)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_t165_a_marker_of_an_older_coordinator_is_fenced(log: LogBuilder, is_restarted: bool) -> None:
    def mark(coordinator_epoch: int) -> None:
        data = marker_batch(Marker(True, coordinator_epoch), producer_id=7, producer_epoch=0, now_ms=NOW_MS)
        log.log.append(data, now_ms=NOW_MS, origin=Origin.COORDINATOR)

    send(log, 0, is_transactional=True)
    mark(5)
    if is_restarted:
        log.restart()
    send(log, 1, is_transactional=True)
    with pytest.raises(KafkaError) as caught:
        mark(4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    mark(5)


@pytest.mark.parametrize("restart", ["none", "clean", "crash"])
def test_t101_last_stable_offset_and_aborted_transactions(log: LogBuilder, restart: str) -> None:
    log.append()
    send(log, 0, producer=1, is_transactional=True)  # 1
    send(log, 0, producer=2, is_transactional=True)  # 2
    log.append()  # 3
    log.log.flush()
    assert (log.log.high_watermark, log.log.last_stable_offset) == (4, 1)
    log.end_transaction(1, is_commit=False)  # 4
    log.log.flush()
    assert log.log.last_stable_offset == 2
    if restart != "none":
        log.restart() if restart == "clean" else log.crash()
        assert log.log.last_stable_offset == 2
    log.end_transaction(2, is_commit=True)  # 5
    log.log.flush()
    assert log.log.last_stable_offset == 6
    (aborted,) = log.log.aborted_transactions(0, 6)
    assert aborted == (1, 1, 4, 2)
    assert log.log.aborted_transactions(5, 6) == []
    assert log.log.aborted_transactions(0, 1) == []


def test_an_undecided_marker_keeps_its_transaction_unstable_until_it_is_flushed(log: LogBuilder) -> None:
    send(log, 0, is_transactional=True)
    log.log.flush()
    log.end_transaction(7, is_commit=True)
    assert log.log.last_stable_offset == 0
    log.log.flush()
    assert log.log.last_stable_offset == 2


def test_a_flush_that_ends_before_the_marker_decides_nothing(log: LogBuilder) -> None:
    """A power cut may still take the marker, and with it what readers have taken for committed."""
    send(log, 0, is_transactional=True)
    log.append()
    job = log.log.begin_flush()
    assert job is not None
    log.end_transaction(7, is_commit=True)
    job.run()
    log.log.end_flush(job, None)
    assert (log.log.high_watermark, log.log.last_stable_offset) == (2, 0)


def test_the_first_of_what_is_open_and_what_is_not_yet_safe_counts(log: LogBuilder) -> None:
    send(log, 0, producer=1, is_transactional=True)
    send(log, 0, producer=2, is_transactional=True)
    log.log.flush()
    log.end_transaction(1, is_commit=True)
    assert log.log.last_stable_offset == 0
    log.log.flush()
    assert log.log.last_stable_offset == 1


def test_t163_a_transaction_is_open_however_long_ago_it_began(log: LogBuilder) -> None:
    """After a start, too: its records must not pass for committed ones."""
    send(log, 0, is_transactional=True)
    send(log, 0, producer=8)
    log.now_ms += 30 * DAY_MS
    log.restart()
    assert log.log.producers.open_transactions() == {7: 0}
    assert set(log.log.producers.producers) == {7}
    assert log.log.last_stable_offset == 0


def test_the_marker_may_lie_in_a_later_segment(log: LogBuilder) -> None:
    send(log, 0, is_transactional=True)
    log.log.roll(NOW_MS)
    log.append()
    log.log.roll(NOW_MS)
    log.end_transaction(7, is_commit=False)
    assert [entry.first_offset for entry in log.log.aborted_transactions(0, 1)] == [0]
    log.crash()
    assert [entry.first_offset for entry in log.log.aborted_transactions(0, 1)] == [0]


def test_the_cleaner_learns_of_active_producers(log: LogBuilder) -> None:
    send(log, 0, 3, epoch=1)
    log.end_transaction(9, is_commit=True)
    assert log.log.producers.active_producers() == {7: LastRecord(2, 1), 9: LastRecord(None, 0)}


def test_a_snapshot_that_a_roll_left_empty_is_removed(log: LogBuilder) -> None:
    """Killed between making and writing it: recovery begins before that offset and never reads it."""
    log.fill(3)
    empty = log.directory / layout.segment_file_name(3, layout.SNAPSHOT_SUFFIX)
    empty.touch()
    log.open(is_clean=False)
    assert not empty.exists()
    assert verify_log(log.directory) == []
