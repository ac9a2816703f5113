"""Who of a group shall have which partition: the server-side assignors `uniform` and `range` (KIP-848). Pure.

Both are what Kafka's do as seen from outside: `uniform` balances over all topics and moves as little as it
can from the assignment before, `range` gives each member a run of each topic's partitions, so that equal
numbers of topics that are partitioned alike meet at one member.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from broker.groups.topics import Partitions

Targets = Mapping[str, Partitions]
"""what each member shall have, by its id"""
_Place = tuple[UUID, int]


class Subscriber(NamedTuple):
    """A member as assignors see it; `topic_ids` are of topics that exist."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]


Assignor = Callable[[Sequence[Subscriber], Mapping[UUID, int], Targets], Targets]
"""(members, number of partitions by topic id, the targets before) -> the targets"""


def range_assignor(members: Sequence[Subscriber], sizes: Mapping[UUID, int], before: Targets) -> Targets:
    """Of each topic a run of partitions for each of its subscribers, longer by one for the first of them.

    Static members come first, by instance id, so that a restart moves nothing; the rest by member id.
    """
    runs: dict[str, dict[UUID, frozenset[int]]] = {member.member_id: {} for member in members}
    ordered = sorted(members, key=lambda one: (one.instance_id is None, one.instance_id or one.member_id))
    for topic_id, size in sizes.items():
        subscribers = [member for member in ordered if topic_id in member.topic_ids]
        start = 0
        for rank, member in enumerate(subscribers):
            share, more = divmod(size, len(subscribers))
            end = start + share + (rank < more)
            if end > start:
                runs[member.member_id][topic_id] = frozenset(range(start, end))
            start = end
    return runs


def uniform_assignor(members: Sequence[Subscriber], sizes: Mapping[UUID, int], before: Targets) -> Targets:
    """As even as the subscriptions allow, with as much as possible where it was."""
    if not members:
        return {}
    kept, free = _still_valid(members, sizes, before)
    if len({member.topic_ids for member in members}) == 1:
        _fill_to_quota(kept, free)
    else:
        _Balance(members, kept).spread(free, sizes)
    return {member_id: _by_topic(places) for member_id, places in kept.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignor, "range": range_assignor}
"""by name, as `group.consumer.assignors` has them"""


def _still_valid(
    members: Sequence[Subscriber], sizes: Mapping[UUID, int], before: Targets
) -> tuple[dict[str, list[_Place]], list[_Place]]:
    """What each member keeps of before, and what nobody has."""
    taken: set[_Place] = set()
    kept: dict[str, list[_Place]] = {}
    for member in members:
        places = [
            (topic_id, partition)
            for topic_id, partitions in sorted(before.get(member.member_id, {}).items())
            if topic_id in member.topic_ids
            for partition in sorted(partitions)
            if partition < sizes[topic_id] and (topic_id, partition) not in taken
        ]
        taken.update(places)
        kept[member.member_id] = places
    wanted = frozenset[UUID]().union(*(member.topic_ids for member in members))
    free = [
        (topic_id, partition)
        for topic_id in sorted(wanted)
        for partition in range(sizes[topic_id])
        if (topic_id, partition) not in taken
    ]
    return kept, free


def _fill_to_quota(kept: dict[str, list[_Place]], free: list[_Place]) -> None:
    """All subscribe to the same: everybody gets the same number, or one more."""
    share, more = divmod(sum(map(len, kept.values())) + len(free), len(kept))
    # Who has most now keeps the one more, which would move for nothing otherwise.
    order = sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id))
    for rank, member_id in enumerate(order):
        quota = share + (rank < more)
        free += kept[member_id][quota:]
        del kept[member_id][quota:]
    free.sort(reverse=True)
    for rank, member_id in enumerate(order):
        while len(kept[member_id]) < share + (rank < more):
            kept[member_id].append(free.pop())


class _Balance:
    """Members that subscribe to different topics: free partitions go to the subscriber that has least, then
    partitions move from who has most to who has least, topic by topic, until that changes nothing.
    """

    def __init__(self, members: Sequence[Subscriber], kept: dict[str, list[_Place]]) -> None:
        self._kept = kept
        # By topic, of each subscriber the partitions that it has.
        self._held: dict[UUID, dict[str, list[int]]] = defaultdict(dict)
        for member in members:
            for topic_id in member.topic_ids:
                self._held[topic_id][member.member_id] = []
        for member_id, places in kept.items():
            for topic_id, partition in places:
                self._held[topic_id][member_id].append(partition)
        self._load = {member_id: len(places) for member_id, places in kept.items()}

    def spread(self, free: list[_Place], sizes: Mapping[UUID, int]) -> None:
        def scarcity(topic_id: UUID) -> tuple[float, int, UUID]:
            subscribers = len(self._held[topic_id])
            return -sizes[topic_id] / subscribers, subscribers, topic_id

        # What few can take many partitions of is placed first: the others have a choice then.
        order = sorted(self._held, key=scarcity)
        unplaced: dict[UUID, list[int]] = defaultdict(list)
        for topic_id, partition in free:
            unplaced[topic_id].append(partition)
        for topic_id in order:
            self._place(topic_id, unplaced[topic_id])
        # Each move makes two members more alike, so that this ends.
        while sum(self._even_out(topic_id) for topic_id in order):
            pass
        for member_id, places in self._kept.items():
            places[:] = [
                (topic_id, partition)
                for topic_id, held in self._held.items()
                for partition in held.get(member_id, ())
            ]

    def _place(self, topic_id: UUID, partitions: Sequence[int]) -> None:
        held = self._held[topic_id]
        least_first = [(self._load[member_id], member_id) for member_id in held]
        heapq.heapify(least_first)
        for partition in partitions:
            load, member_id = least_first[0]
            held[member_id].append(partition)
            self._load[member_id] = load + 1
            heapq.heapreplace(least_first, (load + 1, member_id))

    def _even_out(self, topic_id: UUID) -> bool:
        """Whether anything moved."""
        held = self._held[topic_id]
        has_moved = False
        while True:
            least = min(held, key=self._rank)
            most = max((member_id for member_id in held if held[member_id]), key=self._rank, default=least)
            if self._load[most] - self._load[least] <= 1:
                return has_moved
            held[least].append(held[most].pop())
            self._load[most] -= 1
            self._load[least] += 1
            has_moved = True

    def _rank(self, member_id: str) -> tuple[int, str]:
        return self._load[member_id], member_id


def _by_topic(places: Sequence[_Place]) -> Partitions:
    partitions: dict[UUID, set[int]] = defaultdict(set)
    for topic_id, partition in places:
        partitions[topic_id].add(partition)
    return {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
