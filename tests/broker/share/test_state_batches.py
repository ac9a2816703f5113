"""Goal: what is written down of deliveries says of every offset what was said of it last."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from broker.share.state_batches import DeliveryState, StateBatch, joined, overlaid

ACKNOWLEDGED, AVAILABLE = DeliveryState.ACKNOWLEDGED, DeliveryState.AVAILABLE
Known = dict[int, tuple[DeliveryState, int]]


def of_each(batches: list[StateBatch]) -> Known:
    return {offset: one[2:] for one in batches for offset in range(one.first, one.last + 1)}


@st.composite
def disjoint(draw: st.DrawFn) -> list[StateBatch]:
    """Runs in any order, none over another."""
    batches, first = [], draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 6))):
        last = first + draw(st.integers(0, 4))
        state = draw(st.sampled_from([ACKNOWLEDGED, AVAILABLE]))
        batches.append(StateBatch(first, last, state, draw(st.integers(1, 2))))
        first = last + 1 + draw(st.integers(0, 3))
    return draw(st.permutations(batches))


@given(disjoint())
def test_neighbours_that_fare_alike_are_one(batches: list[StateBatch]) -> None:
    result = joined(batches)
    assert of_each(result) == of_each(batches)
    for one, following in itertools.pairwise(result):
        assert one.last < following.first
        assert one.last + 1 < following.first or one[2:] != following[2:]


@given(disjoint(), disjoint(), st.integers(0, 20))
def test_what_is_written_later_holds(
    under: list[StateBatch], over: list[StateBatch], start_offset: int
) -> None:
    expected = {
        offset: known
        for offset, known in {**of_each(under), **of_each(over)}.items()
        if offset >= start_offset
    }
    result = overlaid(under, over, start_offset)
    assert of_each(result) == expected
    assert result == joined(result)
