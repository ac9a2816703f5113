"""Who of a share group shall have which partition: the assignor `simple` (KIP-932). Pure.

Every partition goes to at least one member, every member has about as many as the others, and with more
members than partitions several have the same. Mirrors Kafka's SimpleAssignor as seen from outside: members
that subscribe to the same divide all their topics together, others each topic by itself; as little as can be
moves from the assignment before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from uuid import UUID

from broker.groups.topics import Partitions

Place = tuple[UUID, int]
Targets = Mapping[str, Partitions]
"""what each member shall have, by its id"""


def assign(subscribed: Mapping[str, frozenset[UUID]], places: Sequence[Place], before: Targets) -> Targets:
    """What each member shall have of `places`, by the topics that it is subscribed to."""
    members = sorted(subscribed)
    had = {
        member: {(topic_id, one) for topic_id, indexes in before.get(member, {}).items() for one in indexes}
        for member in members
    }
    if len(set(subscribed.values())) == 1:
        wanted = subscribed[members[0]]
        return _by_topic(_shared(members, [one for one in places if one[0] in wanted], had))
    found: dict[str, set[Place]] = {member: set() for member in members}
    for topic_id in dict.fromkeys(topic_id for topic_id, _ in places):
        subscribers = [member for member in members if topic_id in subscribed[member]]
        of_topic = _shared(subscribers, [one for one in places if one[0] == topic_id], had)
        for member, some in of_topic.items():
            found[member] |= some
    return _by_topic(found)


def _shared(
    members: Sequence[str], places: Sequence[Place], had: Mapping[str, set[Place]]
) -> dict[str, set[Place]]:
    """`places` divided among all of `members`."""
    found: dict[str, set[Place]] = {member: set() for member in members}
    if not members or not places:
        return found
    sharing = -(-len(members) // len(places))
    quotas = _quotas(members, sharing * len(places))
    holders: Counter[Place] = Counter()
    ranks = {place: rank for rank, place in enumerate(places)}
    for member in members:
        for place in sorted(had[member] & ranks.keys(), key=ranks.__getitem__):
            if holders[place] < sharing and len(found[member]) < quotas[member]:
                found[member].add(place)
                holders[place] += 1
    # Those who have less than they shall, those first who lack most.
    needy = [
        (len(found[member]) - quotas[member], rank, member)
        for rank, member in enumerate(members)
        if len(found[member]) < quotas[member]
    ]
    heapify(needy)
    for place in places:
        served = []
        while needy and holders[place] < sharing:
            lack, rank, member = heappop(needy)
            if place not in found[member]:
                found[member].add(place)
                holders[place] += 1
                lack += 1
            if lack < 0:
                served.append((lack, rank, member))
        for one in served:
            heappush(needy, one)
        if not holders[place]:
            found[min(members, key=lambda one: len(found[one]))].add(place)
    return found


def _quotas(members: Sequence[str], total: int) -> dict[str, int]:
    """How many each gets of `total`: the same, or one more."""
    ends = [-(-total * (rank + 1) // len(members)) for rank in range(len(members))]
    return {member: end - start for member, start, end in zip(members, [0, *ends], ends, strict=False)}


def _by_topic(found: Mapping[str, set[Place]]) -> dict[str, Partitions]:
    targets: dict[str, Partitions] = {}
    for member, places in found.items():
        indexes: dict[UUID, set[int]] = defaultdict(set)
        for topic_id, index in places:
            indexes[topic_id].add(index)
        targets[member] = {topic_id: frozenset(some) for topic_id, some in indexes.items()}
    return targets
