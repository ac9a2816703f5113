"""What the instances of an application tell each other by way of the broker: which of them has the state of
which partitions, for interactive queries. Mirrors Kafka's EndpointToPartitionsManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import Endpoint, Tasks
from broker.groups.streams.topology import sources_of
from broker.groups.topics import GroupTopics


class HeldPartitions(NamedTuple):
    """What an instance has, by topic."""

    endpoint: Endpoint
    active: Sequence[tuple[str, Sequence[int]]]
    standby: Sequence[tuple[str, Sequence[int]]]


def held_by_endpoint(group: StreamsGroup, asker: str, topics: GroupTopics) -> list[HeldPartitions]:
    """Of every member with an endpoint; the one who asks comes last."""
    found = []
    for member in sorted(group.members.values(), key=lambda one: one.member_id == asker):
        if member.endpoint is not None:
            held = member.assigned.without_epochs()
            active, standby = (partitions_read(group, tasks, topics) for tasks in (held.active, held.standby))
            found.append(HeldPartitions(member.endpoint, active, standby))
    return found


def partitions_read(
    group: StreamsGroup, tasks: Tasks, topics: GroupTopics
) -> list[tuple[str, Sequence[int]]]:
    """The partitions that tasks read, by topic; a topic may have fewer than there are tasks."""
    found: list[tuple[str, Sequence[int]]] = []
    for one in group.topology.subtopologies if group.topology is not None else ():
        partitions = tasks.get(one.subtopology_id, frozenset())
        for topic in sources_of(one) if partitions else ():
            size = topics.size_of(topic) or 0
            # As in Kafka: as many of the first ones as the topic has partitions.
            found.append((topic, sorted(partitions)[:size]))
    return found
