"""One streams group: its members, its topology, what each shall have, which process has a task, its offsets.

Mirrors Kafka's StreamsGroup. Nothing here sets a timer, writes a record or decides; `changes.py` says what
can change, `heartbeats.py` what does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import TYPE_CHECKING

from broker.clock import Timer
from broker.groups.epoch_group import CommittingGroup
from broker.groups.epochs import FIRST_EPOCH
from broker.groups.streams.member import Assignment, HeldPartitions, Holding, StreamsMember, Taken
from broker.groups.streams.topology import Configured, subtopologies_by_source
from protocol.messages.internal_streams_groups import StreamsGroupTopologyValue
from protocol.messages.streams_groups import Subtopology

if TYPE_CHECKING:
    from broker.topic import Topic

NOT_VALIDATED = -1


class StreamsGroupState(Enum):
    """Kafka's names, as StreamsGroupDescribe and ListGroups spell them."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsGroup(CommittingGroup[StreamsMember, Assignment]):
    """Owned by: event loop."""

    kind = "streams"
    protocol_type = "streams"
    assignor = "sticky"
    tables = ("members", "targets", "_active", "_copies")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_epoch = NOT_VALIDATED
        """of the topology whose topics were all there at that epoch"""
        self.assignment_configs: Mapping[str, str] = {}
        """the settings that the targets depend on, as they were at that epoch"""
        self.target_epoch = FIRST_EPOCH
        self.topology: StreamsGroupTopologyValue | None = None
        """see `run`"""
        self.subtopologies: Mapping[str, Subtopology] = {}
        """of the topology, by their ids"""
        # What follows is not stored.
        self.configured: Configured | None = None
        """the topology on the topics as they were looked at last"""
        self.first_assignment: Timer | None = None
        """runs while the group waits for more members before it divides its tasks for the first time"""
        self.shutdown_by: str | None = None
        """the member that wants the whole application to end"""
        self.endpoints_epoch = 0
        """how often what the instances hold has changed"""
        self.told: dict[str, tuple[StreamsMember, int, HeldPartitions]] = {}
        """by member id what was told of its endpoint, with the version of the topics that it was made of"""
        self._readers: Mapping[str, str] = {}
        """which subtopology reads a topic"""
        self._active: dict[tuple[str, int], str] = {}
        self._copies: Counter[tuple[str, int, str]] = Counter()

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.has_reached(self.target_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def run(self, topology: StreamsGroupTopologyValue) -> None:
        """The members run this from now on."""
        self.topology = topology
        self.subtopologies = {one.subtopology_id: one for one in topology.subtopologies}
        self._readers = subtopologies_by_source(topology)

    # members

    def put(self, member: StreamsMember) -> None:
        """Take a member in, or in place of what it was."""
        self._let_go(self.members.get(member.member_id))
        self.members[member.member_id] = member
        for held in (member.assigned, member.pending_revocation):
            for task in _active_tasks(held):
                self._active[task] = member.process_id
            self._copies.update((*task, member.process_id) for task in _copies(held))

    def remove(self, member_id: str) -> None:
        """Take a member out."""
        self._let_go(self.members.pop(member_id, None))
        self.targets.pop(member_id, None)
        self.told.pop(member_id, None)
        if not self.members:
            self.shutdown_by = None

    def _let_go(self, member: StreamsMember | None) -> None:
        if member is None:
            return
        for held in (member.assigned, member.pending_revocation):
            for task in _active_tasks(held):
                if self._active.get(task) == member.process_id:
                    del self._active[task]
            for task in _copies(held):
                self._copies[*task, member.process_id] -= 1
                if self._copies[*task, member.process_id] <= 0:
                    del self._copies[*task, member.process_id]

    def taken_for(self, process_id: str) -> Taken:
        """What a member of this process must not take: an active task that is active anywhere, a task in
        whatever form that its own process has.
        """

        def is_here(subtopology: str, partition: int) -> bool:
            return self._copies[subtopology, partition, process_id] > 0

        return Taken(
            active=lambda name, partition: (name, partition) in self._active or is_here(name, partition),
            copy=lambda name, partition: (
                self._active.get((name, partition)) == process_id or is_here(name, partition)
            ),
        )

    # offsets

    def subscribed_topics(self) -> Set[str]:
        """The names of the topics that the members read."""
        return self._readers.keys() if self.members else frozenset()

    def held_since(self, member_id: str, topic: Topic, partition: int) -> int | None:
        """The epoch in which a member got what reads a partition, if it has it or has still to return it."""
        return self.members[member_id].held_since(self._readers.get(topic.name, ""), partition)

    # deadlines

    def stop_timers(self) -> None:
        super().stop_timers()
        if self.first_assignment is not None:
            self.first_assignment.cancel()
            self.first_assignment = None


def _active_tasks(held: Holding) -> Iterator[tuple[str, int]]:
    for name, partitions in held.active.items():
        for partition in partitions:
            yield name, partition


def _copies(held: Holding) -> Iterator[tuple[str, int]]:
    for tasks in (held.standby, held.warmup):
        for name, partitions in tasks.items():
            for partition in partitions:
                yield name, partition
