"""Goal: a member gets what was read for it, where the log has it, and nothing of transactions that were
aborted, however many there are.

What is acquired in which order is in `test_delivery.py`, and beside Kafka in `tests/kafka/`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.handlers.share_fetch import aborted_batches
from broker.share.acquiring import Run, acquire, without
from broker.share.delivery import InFlight
from protocol.batch import BatchHeader, parse_header
from protocol.records import encode_batch
from storage.types import AbortedTransaction
from tests.broker.share.test_delivery import wish


@st.composite
def disjoint(draw: st.DrawFn) -> list[Run]:
    """In order, none over another."""
    runs, first = [], 0
    for size, hole in draw(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=8)):
        runs.append(Run(first + hole, first + hole + size - 1))
        first = runs[-1].last + 1
    return runs


def offsets(runs: list[Run]) -> set[int]:
    return {offset for run in runs for offset in range(run.first, run.last + 1)}


@given(disjoint(), disjoint())
def test_what_is_gone_is_not_acquired(acquired: list[Run], gone: list[Run]) -> None:
    left = without(acquired, gone)
    assert offsets(left) == offsets(acquired) - offsets(gone)
    assert sum(run.size for run in left) == len(offsets(left))
    assert left == sorted(left)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), max_size=30),
)
def test_batches_of_aborted_transactions(written: list[tuple[int, bool, bool]]) -> None:
    """Producers write by turns; the end of a transaction takes an offset as well."""
    batches: list[BatchHeader] = []
    aborted: list[AbortedTransaction] = []
    begun: dict[int, list[int]] = {}
    expected: list[int] = []
    for offset, (producer_id, ends, is_aborted) in enumerate(written):
        if ends:
            of_it = begun.pop(producer_id, [])
            if is_aborted and of_it:
                aborted.append(AbortedTransaction(producer_id, of_it[0], offset, offset))
                expected += of_it
            continue
        begun.setdefault(producer_id, []).append(offset)
        data = encode_batch(
            [(0, None, b"", ())],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        batches.append(parse_header(data))
    found = aborted_batches([(0, header) for header in batches], aborted)
    assert found == [Run(offset, offset) for offset in sorted(expected)]


def test_where_the_log_has_nothing_any_more_nothing_is_acquired() -> None:
    """No more may be on their way, what was given back is compacted away, and other records come behind:
    the member was told of a batch that ended before it began.
    """
    in_flight = InFlight(0)
    acquire(in_flight, wish(max_records=1), [Run(0, 4)], 0)
    acquire(in_flight, wish(max_records=3, is_limit=True), [Run(5, 9)], 5)
    offset = in_flight.next_fetch_offset()
    assert offset == 8
    assert acquire(in_flight, wish("n", record_limit=5), [Run(20, 29)], offset) == []
    assert in_flight.batches[-1].last == 9
    assert acquire(in_flight, wish("n"), [Run(20, 29)], in_flight.next_fetch_offset()) == [Run(20, 29)]


def test_what_is_acknowledged_together_ends_with_a_batch() -> None:
    """Of at least as many records as the member asks for, where there are more."""

    def portions(*sizes: int) -> list[Run]:
        read, first = [], 0
        for size in sizes:
            read.append(Run(first, first + size - 1))
            first += size
        return acquire(InFlight(0), wish(batch_size=10), read, 0)

    assert portions(4, 5, 1) == [Run(0, 9)]
    assert portions(10, 1) == [Run(0, 9), Run(10, 10)]
    assert portions(10, 2) == [Run(0, 9), Run(10, 11)]
    assert portions(9, 2) == [Run(0, 10)]
    assert portions(4, 5, 2, 9, 1) == [Run(0, 10), Run(11, 20)]
    assert portions(30, 1, 30) == [Run(0, 29), Run(30, 60)]
