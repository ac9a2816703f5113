"""What the instances of an application tell each other by way of the broker: which of them has the state of
which partitions, for interactive queries. Mirrors Kafka's EndpointToPartitionsManager.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import Endpoint, HeldPartitions, StreamsMember, Tasks
from broker.groups.streams.topology import sources_of
from broker.groups.topics import GroupTopics


def held_by_endpoint(group: StreamsGroup, asker: str, topics: GroupTopics) -> list[HeldPartitions]:
    """Of every endpoint; that of the one who asks comes last.

    What the members of an instance have, its threads, is told together: Kafka tells of each member, and of
    rows with the same endpoint its clients keep the last, so that they look for keys where they are not.
    """
    held: dict[Endpoint, list[HeldPartitions]] = {}
    for member in sorted(group.members.values(), key=lambda one: one.member_id == asker):
        if member.endpoint is not None:
            held[member.endpoint] = [*held.pop(member.endpoint, ()), _row(group, member, topics)]
    return [rows[0] if len(rows) == 1 else _together(rows) for rows in held.values()]


def _row(group: StreamsGroup, member: StreamsMember, topics: GroupTopics) -> HeldPartitions:
    """As it was told before, if neither the member nor the topics have changed: while tasks move all members
    are told of all with each change.
    """
    known = group.told.get(member.member_id)
    if known is not None and known[0] is member and known[1] == topics.version:
        return known[2]
    tasks = member.assigned.without_epochs()
    active, standby = (partitions_read(group, kind, topics) for kind in (tasks.active, tasks.standby))
    assert member.endpoint is not None
    row = HeldPartitions(member.endpoint, active, standby)
    group.told[member.member_id] = member, topics.version, row
    return row


def _together(rows: Sequence[HeldPartitions]) -> HeldPartitions:
    kinds = ([row.active for row in rows], [row.standby for row in rows])
    return HeldPartitions(rows[0].endpoint, *map(_union, kinds))


def _union(rows: Iterable[Sequence[tuple[str, Sequence[int]]]]) -> list[tuple[str, Sequence[int]]]:
    found: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        for topic, partitions in row:
            found[topic].update(partitions)
    return [(topic, sorted(partitions)) for topic, partitions in found.items()]


def partitions_read(
    group: StreamsGroup, tasks: Tasks, topics: GroupTopics
) -> list[tuple[str, Sequence[int]]]:
    """The partitions that tasks read, by topic; a topic may have fewer than there are tasks."""
    found: list[tuple[str, Sequence[int]]] = []
    for name, partitions in tasks.items():
        one = group.subtopologies.get(name)
        for topic in sources_of(one) if one is not None else ():
            size = topics.size_of(topic) or 0
            # As in Kafka: as many of the first ones as the topic has partitions.
            found.append((topic, sorted(partitions)[:size]))
    return found
