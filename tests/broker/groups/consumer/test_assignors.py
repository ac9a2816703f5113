"""Goal: the server-side assignors give every partition to exactly one subscriber, evenly, and move little.

Method: random groups; what an assignor says is checked against what it was asked, and once more after the
group has changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer.assignors import ASSIGNORS, Subscriber, Targets, range_assignor, uniform_assignor

A, B, C = (uuid.UUID(int=number) for number in (1, 2, 3))
Sizes = Mapping[uuid.UUID, int]


def members(*subscriptions: Sequence[uuid.UUID]) -> list[Subscriber]:
    return [Subscriber(f"m{number}", None, frozenset(topics)) for number, topics in enumerate(subscriptions)]


subscriptions = st.lists(st.frozensets(st.sampled_from((A, B, C))), min_size=1, max_size=6)
sizes = st.fixed_dictionaries(dict.fromkeys((A, B, C), st.integers(1, 12)))


def places(targets: Targets) -> list[tuple[uuid.UUID, int]]:
    return [
        (topic_id, partition)
        for target in targets.values()
        for topic_id, partitions in target.items()
        for partition in partitions
    ]


def check(group: Sequence[Subscriber], size_of: Sizes, targets: Targets) -> None:
    wanted = frozenset[uuid.UUID]().union(*(member.topic_ids for member in group))
    expected = [(topic_id, partition) for topic_id in wanted for partition in range(size_of[topic_id])]
    assert sorted(places(targets)) == sorted(expected)
    for member in group:
        assert targets[member.member_id].keys() <= member.topic_ids
        assert all(targets[member.member_id].values()), "a topic without partitions"


@pytest.mark.parametrize("name", ASSIGNORS)
@given(first=subscriptions, then=subscriptions, size_of=sizes, later=sizes)
def test_every_partition_goes_to_one_subscriber(
    name: str,
    first: list[frozenset[uuid.UUID]],
    then: list[frozenset[uuid.UUID]],
    size_of: Sizes,
    later: Sizes,
) -> None:
    before = ASSIGNORS[name](members(*first), size_of, {})
    check(members(*first), size_of, before)
    check(members(*then), later, ASSIGNORS[name](members(*then), later, before))


@given(count=st.integers(1, 9), more=st.integers(1, 9), size_of=sizes)
def test_uniform_is_even_and_moves_no_more_than_it_must(count: int, more: int, size_of: Sizes) -> None:
    all_topics = [(A, B, C)]
    before = uniform_assignor(members(*all_topics * count), size_of, {})
    after = uniform_assignor(members(*all_topics * more), size_of, before)
    loads = [sum(map(len, after[member].values())) for member in after]
    assert max(loads) - min(loads) <= 1
    kept = sum(
        len(before[member].get(topic_id, frozenset()) & partitions)
        for member in after.keys() & before.keys()
        for topic_id, partitions in after[member].items()
    )
    # Who stays keeps what its quota lets it; with fewer members nothing of theirs moves at all.
    total = sum(size_of.values())
    if more >= count:
        share, extra = divmod(total, more)
        held = sorted((sum(map(len, before[member].values())) for member in before), reverse=True)
        assert kept == sum(min(load, share + (rank < extra)) for rank, load in enumerate(held))
    else:
        assert kept == sum(sum(map(len, before[member].values())) for member in after)


@given(first=subscriptions, size_of=sizes)
def test_uniform_leaves_nobody_with_more_than_it_could_pass_on(
    first: list[frozenset[uuid.UUID]], size_of: Sizes
) -> None:
    """No partition could move from who has more to who has at least two fewer."""
    group = members(*first)
    targets = uniform_assignor(group, size_of, {})
    loads = {member: sum(map(len, target.values())) for member, target in targets.items()}
    for giver in group:
        for taker in group:
            if loads[giver.member_id] - loads[taker.member_id] > 1:
                assert not targets[giver.member_id].keys() & taker.topic_ids


@given(first=subscriptions, size_of=sizes)
def test_uniform_moves_nothing_when_nothing_changed(
    first: list[frozenset[uuid.UUID]], size_of: Sizes
) -> None:
    before = uniform_assignor(members(*first), size_of, {})
    assert uniform_assignor(members(*first), size_of, before) == before


def test_range_gives_runs_that_meet_across_topics() -> None:
    targets = range_assignor(members((A, B), (A, B), (B,)), {A: 3, B: 3}, {})
    assert targets == {
        "m0": {A: frozenset((0, 1)), B: frozenset((0,))},
        "m1": {A: frozenset((2,)), B: frozenset((1,))},
        "m2": {B: frozenset((2,))},
    }


def test_range_puts_static_members_first_so_that_a_restart_moves_nothing() -> None:
    dynamic = Subscriber("a", None, frozenset((A,)))
    targets = range_assignor([dynamic, Subscriber("z", "i", frozenset((A,)))], {A: 3}, {})
    assert targets == {"z": {A: frozenset((0, 1))}, "a": {A: frozenset((2,))}}
    again = range_assignor([dynamic, Subscriber("b", "i", frozenset((A,)))], {A: 3}, {})
    assert again["b"] == targets["z"]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_to_assign_to(name: str) -> None:
    assert ASSIGNORS[name]([], {}, {}) == {}
