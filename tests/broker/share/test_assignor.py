"""Goal: every partition of a share group is somebody's, everybody has about as many as the others, and what
somebody has it keeps. Beside Kafka's own assignor: `tests/kafka/test_share_groups.py`.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.share.assignor import Place, Targets, assign

TOPICS = [UUID(int=number) for number in range(1, 4)]


def having(targets: Targets) -> list[Place]:
    return [(topic_id, one) for had in targets.values() for topic_id, some in had.items() for one in some]


def places(*sizes: int) -> list[Place]:
    return [(topic_id, one) for topic_id, size in zip(TOPICS, sizes, strict=False) for one in range(size)]


def group(size: int, first: int = 0) -> dict[str, frozenset[UUID]]:
    return {f"m{number:03}": frozenset(TOPICS) for number in range(first, first + size)}


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), min_size=1, max_size=4),
)
def test_members_of_the_same_topics_have_about_the_same(
    sizes: list[int], turns: list[tuple[int, int]]
) -> None:
    """They come and go; each time all is divided anew."""
    there = places(*sizes)
    targets: Targets = {}
    for size, first in turns:
        subscribed = group(size, first)
        targets = assign(subscribed, there, targets)
        assert targets.keys() == subscribed.keys()
        holders = Counter(having(targets))
        counts = [sum(map(len, had.values())) for had in targets.values()]
        assert set(holders) == set(there)
        assert max(holders.values()) <= -(-size // len(there)) + 1
        assert max(counts) - min(counts) <= 1 + (size < len(there))
        assert assign(subscribed, there, targets) == targets


@given(st.lists(st.integers(1, 9), min_size=3, max_size=3), st.data())
def test_members_of_different_topics_have_theirs(sizes: list[int], data: st.DataObject) -> None:
    there = places(*sizes)
    targets: Targets = {}
    for _ in range(3):
        wanted = st.frozensets(st.sampled_from(TOPICS))
        subscribed = data.draw(st.dictionaries(st.sampled_from("abcdefgh"), wanted, min_size=1))
        targets = assign(subscribed, there, targets)
        for member, had in targets.items():
            assert had.keys() <= subscribed[member]
        assert set(having(targets)) == {
            one for one in there if any(one[0] in some for some in subscribed.values())
        }


def test_many_members_of_many_partitions() -> None:
    """The 300th took 20 ms of everybody's time: all pairs of both were looked at."""
    there = places(400)
    targets = assign(group(300), there, assign(group(299), there, {}))
    assert Counter(Counter(having(targets)).values()) == {1: 400}
    assert Counter(sum(map(len, had.values())) for had in targets.values()) == {1: 200, 2: 100}
