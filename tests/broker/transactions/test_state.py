"""Goal: what may follow on what, and who is fenced, is as in Kafka's TransactionMetadata.

Method: the pure functions, state by state. What a real Kafka answers is asked in tests/kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.state_topic import Producer
from broker.transactions.records import read_key, read_state, state_key, state_value
from broker.transactions.state import (
    EXHAUSTED_EPOCH,
    MAX_EPOCH,
    Status,
    TransactionState,
)
from protocol.batch import NO_PRODUCER_ID
from protocol.errors import ErrorCode, KafkaError, MalformedFrame, UnsupportedVersion
from storage.layout import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS = 5_000
AT_REST = (Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)
ENDING = (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)


def state_of(status: Status = Status.EMPTY, **fields: object) -> TransactionState:
    parts = frozenset() if status in AT_REST else frozenset({T0})
    known = TransactionState(7, 3, 60_000, status, parts, 1_000, 2_000)
    return replace(known, **fields)  # type: ignore[arg-type]


def code_of(function: Callable[..., object], *arguments: object, **fields: object) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        function(*arguments, **fields)
    return raised.value.code


def test_the_first_producer_has_epoch_0_and_each_next_one_the_next() -> None:
    first = state_of(epoch=-1).initialized(None, 60_000, NOW_MS)
    assert (first.producer, first.status, first.updated_ms) == (Producer(7, 0), Status.EMPTY, NOW_MS)
    second = first.initialized(None, 30_000, NOW_MS)
    assert (second.producer, second.timeout_ms, second.last_epoch) == (Producer(7, 1), 30_000, -1)


@pytest.mark.parametrize("status", AT_REST)
def test_a_producer_goes_on_after_an_error_and_may_ask_again(status: Status) -> None:
    """KIP-360: it brings what it has. The answer may be lost: sent again, it gets the same one."""
    state = state_of(status).initialized(Producer(7, 3), 60_000, NOW_MS)
    assert (state.producer, state.last_epoch) == (Producer(7, 4), 3)
    assert state.initialized(Producer(7, 3), 60_000, NOW_MS).producer == Producer(7, 4)
    assert code_of(state.initialized, Producer(7, 2), 60_000, NOW_MS) is ErrorCode.PRODUCER_FENCED
    assert code_of(state.initialized, Producer(8, 4), 60_000, NOW_MS) is ErrorCode.PRODUCER_FENCED
    fenced = state.initialized(None, 60_000, NOW_MS)
    assert code_of(fenced.initialized, Producer(7, 4), 60_000, NOW_MS) is ErrorCode.PRODUCER_FENCED


def test_an_id_without_an_epoch_takes_any_producer() -> None:
    """Whose id the coordinator has forgotten."""
    assert state_of(epoch=-1).initialized(Producer(99, 5), 60_000, NOW_MS).producer == Producer(7, 0)


def test_epochs_that_are_used_up_are_followed_by_a_new_producer_id() -> None:
    last = state_of(epoch=EXHAUSTED_EPOCH - 1).initialized(None, 60_000, NOW_MS)
    assert last.producer == Producer(7, EXHAUSTED_EPOCH)
    mine, other = Producer(7, EXHAUSTED_EPOCH), Producer(7, EXHAUSTED_EPOCH - 1)
    assert [last.needs_new_producer_id(one) for one in (None, mine, other)] == [True, True, False]
    rotated = last.initialized(mine, 60_000, NOW_MS, new_producer_id=8)
    assert (rotated.producer, rotated.last_epoch) == (Producer(8, 0), EXHAUSTED_EPOCH)
    assert not rotated.needs_new_producer_id(None)
    assert rotated.initialized(mine, 60_000, NOW_MS).producer == Producer(8, 0), "sent again"
    assert code_of(rotated.initialized, other, 60_000, NOW_MS) is ErrorCode.PRODUCER_FENCED
    assert last.initialized(None, 60_000, NOW_MS, new_producer_id=8).last_epoch == -1


@pytest.mark.parametrize("status", AT_REST)
def test_partitions_begin_a_transaction(status: Status) -> None:
    state = state_of(status).with_partitions([T0], NOW_MS)
    assert state is not None
    assert (state.status, state.partitions, state.started_ms) == (Status.ONGOING, {T0}, NOW_MS)
    assert state.due_ms == NOW_MS + 60_000
    more = state.with_partitions([T0, T1], NOW_MS + 1)
    assert more is not None
    assert (more.partitions, more.started_ms, more.updated_ms) == ({T0, T1}, NOW_MS, NOW_MS + 1)
    assert more.with_partitions([T1], NOW_MS) is None, "nothing new: no record"


@pytest.mark.parametrize("status", ENDING)
def test_nothing_is_added_while_it_ends(status: Status) -> None:
    assert code_of(state_of(status).with_partitions, [T0], NOW_MS) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(state_of(status).check_part, T0) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_records_are_taken_where_the_transaction_takes_part() -> None:
    state_of(Status.ONGOING).check_part(T0)
    assert code_of(state_of(Status.ONGOING).check_part, T1) is ErrorCode.TRANSACTION_ABORTABLE
    for status in AT_REST:
        assert code_of(state_of(status).check_part, T0) is ErrorCode.TRANSACTION_ABORTABLE


COMMITTED = {
    Status.ONGOING: Status.PREPARE_COMMIT,
    Status.COMPLETE_COMMIT: None,
    Status.PREPARE_COMMIT: ErrorCode.CONCURRENT_TRANSACTIONS,
}
ABORTED = {
    Status.ONGOING: Status.PREPARE_ABORT,
    Status.COMPLETE_ABORT: None,
    Status.PREPARE_ABORT: ErrorCode.CONCURRENT_TRANSACTIONS,
}


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("status", [*AT_REST, *ENDING, Status.ONGOING])
def test_an_end_follows_on_what_goes_on_or_repeats_the_last_one(status: Status, is_commit: bool) -> None:
    state = state_of(status)
    expected = (COMMITTED if is_commit else ABORTED).get(status, ErrorCode.INVALID_TXN_STATE)
    if isinstance(expected, ErrorCode):
        assert code_of(state.ended, is_commit=is_commit, now_ms=NOW_MS) is expected
        return
    ended = state.ended(is_commit=is_commit, now_ms=NOW_MS)
    assert (None if ended is None else ended.status) == expected
    if ended is not None:
        done = ended.completed(NOW_MS + 1)
        assert (done.status, done.partitions, done.updated_ms) == (
            Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT, frozenset(), NOW_MS + 1,
        )  # fmt: skip


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("status", [*AT_REST, *ENDING, Status.ONGOING])
def test_who_was_followed_by_another_ends_nothing_of_v2(status: Status, is_commit: bool) -> None:
    """Each end is followed by the next epoch: until it is done only that before may ask again."""
    state = state_of(status)
    known = {2} if status in ENDING else {3} if status in (Status.EMPTY, Status.ONGOING) else {2, 3}

    def code(producer: Producer) -> ErrorCode:
        return code_of(state.ended_v2, producer, NO_PRODUCER_ID, is_commit=is_commit, now_ms=NOW_MS)

    assert {code(Producer(7, epoch)) for epoch in {1, 2, 3, 4} - known} == {ErrorCode.PRODUCER_FENCED}
    assert code(Producer(8, 3)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_who_is_aborted_by_the_broker_is_fenced() -> None:
    fenced = state_of(Status.ONGOING, last_epoch=2).fenced(NOW_MS)
    assert (fenced.producer, fenced.status, fenced.last_epoch) == (Producer(7, 4), Status.PREPARE_ABORT, 3)
    assert state_of(Status.ONGOING, epoch=EXHAUSTED_EPOCH).fenced(NOW_MS).epoch == MAX_EPOCH
    assert state_of(Status.ONGOING, epoch=MAX_EPOCH).fenced(NOW_MS).epoch == MAX_EPOCH


def test_who_was_aborted_goes_on_until_another_begins() -> None:
    """KIP-360, as Kafka 4.3.1 has it (4.0 fenced it for good)."""
    aborted = state_of(Status.ONGOING).fenced(NOW_MS).completed(NOW_MS)
    went_on = aborted.initialized(Producer(7, 3), 60_000, NOW_MS)
    assert (went_on.producer, went_on.status) == (Producer(7, 4), Status.EMPTY)
    assert went_on.initialized(Producer(7, 3), 60_000, NOW_MS).producer == Producer(7, 4), "sent again"
    taken = aborted.initialized(None, 60_000, NOW_MS)
    assert taken.producer == Producer(7, 5)
    assert code_of(taken.initialized, Producer(7, 3), 60_000, NOW_MS) is ErrorCode.PRODUCER_FENCED
    assert code_of(taken.initialized, Producer(7, 4), 60_000, NOW_MS) is ErrorCode.PRODUCER_FENCED


def test_only_who_has_the_id_speaks_for_it() -> None:
    state = state_of()
    state.check_producer(Producer(7, 3))
    assert code_of(state.check_producer, Producer(8, 3)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for epoch in (2, 4):
        assert code_of(state.check_producer, Producer(7, epoch)) is ErrorCode.PRODUCER_FENCED


# its records


@pytest.mark.parametrize("status", [*AT_REST, *ENDING, Status.ONGOING])
def test_a_state_is_read_as_it_was_written(status: Status) -> None:
    state = state_of(status)
    assert read_state(state_value(state)) == state
    assert read_key(state_key("t\u00e4\U0001f600")) == "t\u00e4\U0001f600"


def test_a_fence_that_was_under_way_is_an_abort() -> None:
    raw = bytearray(state_value(state_of(Status.PREPARE_ABORT)))
    position = 2 + 8 + 2 + 4
    assert raw[position] == Status.PREPARE_ABORT
    raw[position] = Status.PREPARE_EPOCH_FENCE
    assert read_state(bytes(raw)).status is Status.PREPARE_ABORT
    raw[position] = 99
    with pytest.raises(MalformedFrame, match="status 99"):
        read_state(bytes(raw))


def test_what_is_no_record_of_ours_is_told() -> None:
    for raw in (b"\x00\x09new", b"", b"\x00\x01cut"):
        with pytest.raises((MalformedFrame, UnsupportedVersion, struct.error)):
            read_state(raw)
    for raw in (b"\x00\x07later", b"", b"\x00"):
        with pytest.raises((MalformedFrame, UnsupportedVersion, struct.error)):
            read_key(raw)
