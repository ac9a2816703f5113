"""What the instances of an application tell each other by way of the broker: which of them has the state of
which partitions, for interactive queries. Mirrors Kafka's EndpointToPartitionsManager.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import Endpoint, Tasks
from broker.groups.streams.topology import sources_of
from broker.groups.topics import GroupTopics

_ByTopic = defaultdict[str, set[int]]


class HeldPartitions(NamedTuple):
    """What an instance has, by topic."""

    endpoint: Endpoint
    active: Sequence[tuple[str, Sequence[int]]]
    standby: Sequence[tuple[str, Sequence[int]]]


def held_by_endpoint(group: StreamsGroup, asker: str, topics: GroupTopics) -> list[HeldPartitions]:
    """Of every endpoint; that of the one who asks comes last.

    What the members of an instance have, its threads, is told together: Kafka tells of each member, and of
    rows with the same endpoint its clients keep the last, so that they look for keys where they are not.
    """
    held: dict[Endpoint, tuple[_ByTopic, _ByTopic]] = {}
    for member in sorted(group.members.values(), key=lambda one: one.member_id == asker):
        if member.endpoint is not None:
            ours = held.pop(member.endpoint, None) or (defaultdict(set), defaultdict(set))
            held[member.endpoint] = ours
            tasks = member.assigned.without_epochs()
            for by_topic, kind in zip(ours, (tasks.active, tasks.standby), strict=True):
                for topic, partitions in partitions_read(group, kind, topics):
                    by_topic[topic].update(partitions)
    return [HeldPartitions(endpoint, *map(_sorted, kinds)) for endpoint, kinds in held.items()]


def _sorted(by_topic: _ByTopic) -> list[tuple[str, Sequence[int]]]:
    return [(topic, sorted(partitions)) for topic, partitions in by_topic.items()]


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
