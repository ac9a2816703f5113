"""Goal: aborted data is known as such, and markers are kept exactly as long as they mean something.

Method: batches and markers told in order, answers compared; nothing is on disk.
"""

from __future__ import annotations

from cleaner.transactions import CleanedTransactions
from protocol.control import ControlType
from storage.types import AbortedTransaction

FIRST = AbortedTransaction(7, 10, 20, 21)


def abort(state: CleanedTransactions, producer_id: int, offset: int) -> bool:
    return state.on_marker(producer_id, offset, ControlType.ABORT, is_empty=False)


def commit(state: CleanedTransactions, producer_id: int, offset: int) -> bool:
    return state.on_marker(producer_id, offset, ControlType.COMMIT, is_empty=False)


def test_t85_batches_of_an_aborted_transaction_are_obsolete_and_others_not() -> None:
    state = CleanedTransactions([FIRST])
    assert not state.on_batch(7, 9)
    assert state.on_batch(7, 12)
    assert not state.on_batch(8, 13)
    assert state.on_batch(7, 19)


def test_t87_a_commit_marker_stays_while_a_batch_of_its_transaction_is_left() -> None:
    state = CleanedTransactions([])
    state.on_batch(7, 3)
    assert not commit(state, 7, 4)
    assert commit(state, 7, 5)


def test_t89_an_abort_marker_and_its_index_entry_stay_while_a_batch_is_left() -> None:
    state = CleanedTransactions([FIRST])
    state.on_batch(7, 12)
    assert not abort(state, 7, 20)
    assert state.take_retained() == [FIRST]
    assert state.take_retained() == []


def test_t89_an_abort_marker_without_batches_may_go_with_its_entry() -> None:
    state = CleanedTransactions([FIRST])
    assert abort(state, 7, 20)
    assert state.take_retained() == []
    assert not state.on_batch(7, 25)


def test_t89_a_batch_of_one_transaction_keeps_no_marker_of_the_next() -> None:
    state = CleanedTransactions([FIRST, AbortedTransaction(7, 30, 40, 41)])
    state.on_batch(7, 12)
    assert not abort(state, 7, 20)
    assert abort(state, 7, 40)
    assert state.take_retained() == [FIRST]


def test_t90_an_empty_data_batch_counts_as_a_batch_of_the_transaction() -> None:
    state = CleanedTransactions([FIRST])
    assert state.on_batch(7, 11)  # its records are gone; on_batch is told all the same
    assert not abort(state, 7, 20)


def test_t91_an_empty_control_batch_ends_and_begins_nothing() -> None:
    state = CleanedTransactions([FIRST])
    state.on_batch(7, 12)
    assert state.on_marker(7, 15, None, is_empty=True)
    assert state.on_batch(7, 16)
    assert not abort(state, 7, 20)


def test_control_batches_of_other_kinds_stay() -> None:
    state = CleanedTransactions([])
    assert not state.on_marker(-1, 5, ControlType.LEADER_CHANGE, is_empty=False)
    assert not state.on_marker(-1, 6, None, is_empty=False)


def test_t94_two_aborted_transactions_of_one_producer_are_told_apart() -> None:
    second = AbortedTransaction(7, 30, 40, 41)
    state = CleanedTransactions([second, FIRST])
    state.on_batch(7, 12)
    assert not abort(state, 7, 20)
    assert not state.on_batch(7, 25)
    assert not commit(state, 7, 26)
    assert state.on_batch(7, 31)
    assert not abort(state, 7, 40)
    assert state.take_retained() == [FIRST, second]
