"""A streams group as it will be: changes are tried on a copy, written, and only then done to the group.

In a draft the member is what it says it is, the topology is the group's, the topics have been looked at, and
the member is a step nearer to its target. Mirrors what of Kafka's GroupMetadataManager turns a
StreamsGroupHeartbeat into records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.groups.epoch_group import Pace
from broker.groups.kinds import Change
from broker.groups.streams import changes
from broker.groups.streams.assignor import assign
from broker.groups.streams.group import NOT_VALIDATED, StreamsGroup
from broker.groups.streams.member import Assignment, StreamsMember, next_step
from broker.groups.streams.topology import (
    Configured,
    Status,
    StatusCode,
    configured,
    topics_of,
    work_of,
)
from broker.groups.topics import GroupTopics, metadata_hash
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.internal_streams_groups import StreamsGroupTopologyValue
from protocol.messages.streams_groups import Subtopology

STANDBY_REPLICAS = "num.standby.replicas"
"""the setting that targets depend on, as it is written down"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsPace(Pace):
    """What else holds for a group now."""

    configs: Mapping[str, str]
    """the settings that targets depend on"""
    is_waiting: bool
    """whether the group waits for more members before it divides its tasks for the first time"""


class Draft:
    """Owned by: event loop."""

    def __init__(self, group: StreamsGroup, topics: GroupTopics, pace: StreamsPace) -> None:
        self.group = group.drafted()
        self.changes: list[Change] = []
        self.statuses: list[Status] = []
        self._topics = topics
        self._pace = pace

    def bring_up_to_date(
        self, told: StreamsMember, topology: StreamsGroupTopologyValue | None, owned: Assignment | None
    ) -> StreamsMember:
        """A member says what it is, what it runs when it joins, and maybe what it owns: it is a step nearer
        to what it shall have then. KafkaError: the draft is not to be used.
        """
        group = self.group
        is_new_epoch = told != group.members.get(told.member_id)
        if is_new_epoch:
            self._add(changes.member_changed(group.group_id, told))
        is_new_topology = self._take_topology(topology)
        self._tell_stale(told)
        digest = self._look_at_topics(is_new_topology)
        validated = self._validated_epoch(owned)
        is_new_epoch |= digest != group.metadata_hash or validated != group.validated_epoch
        if is_new_epoch or self._pace.configs != group.assignment_configs:
            self.start_epoch(digest, validated)
        target_epoch, target = self._target(told.member_id)
        member = group.members[told.member_id]
        moved = next_step(member, target_epoch, target, owned, group.taken_for(member.process_id))
        if moved != member:
            self._add(changes.assignment_changed(group.group_id, moved))
        return moved

    def remove(self, member_id: str) -> None:
        """Take a member out; what it had is for the others."""
        group = self.group
        self._add(*changes.member_removed(group.group_id, member_id))
        self._add(
            changes.epoch_changed(
                group.group_id,
                group.epoch + 1,
                group.metadata_hash,
                group.validated_epoch,
                group.assignment_configs,
            )
        )

    def start_epoch(self, digest: int, validated: int) -> None:
        """What there is to divide, or among whom, has changed."""
        group = self.group
        self._add(
            changes.epoch_changed(group.group_id, group.epoch + 1, digest, validated, self._pace.configs)
        )

    def _add(self, *made: Change) -> None:
        # Most heartbeats change nothing, and cost nothing that grows with the group.
        if not self.changes:
            self.group.detach()
        self.changes += made
        changes.apply(self.group, made)

    def _take_topology(self, topology: StreamsGroupTopologyValue | None) -> bool:
        """Whether the group has one now and had none."""
        group = self.group
        if group.topology is None:
            if topology is None:
                # Its record is lost. Kafka has an unknown error until somebody joins: this has them join.
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The topology of the group is not known any more. The member must abandon all its tasks "
                    "and rejoin.",
                )
            self._add(changes.topology_changed(group.group_id, topology))
            return True
        is_stale = topology is None or topology.epoch < group.topology.epoch
        if topology is not None and not is_stale and _by_id(topology) != _by_id(group.topology):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return False

    def _tell_stale(self, member: StreamsMember) -> None:
        assert self.group.topology is not None
        epoch = self.group.topology.epoch
        if member.topology_epoch < epoch:
            self.statuses.append(
                Status(
                    StatusCode.STALE_TOPOLOGY,
                    f"The member's topology epoch {member.topology_epoch} is behind the group's topology "
                    f"epoch {epoch}.",
                )
            )

    def _look_at_topics(self, is_new_topology: bool) -> int:
        """The digest of the topics that the topology needs, with which it is configured."""
        group, topics = self.group, self._topics
        assert group.topology is not None
        if group.configured is not None and not is_new_topology and group.seen_topics == topics.version:
            return group.metadata_hash
        group.seen_topics = topics.version
        digest = metadata_hash(topics.sizes(topics_of(group.topology)))
        if group.configured is None or is_new_topology or digest != group.metadata_hash:
            group.configured = configured(group.topology, topics.size_of)
        return digest

    def _validated_epoch(self, owned: Assignment | None) -> int:
        """The topology's epoch, if nothing stands in its way; KafkaError where a client has other tasks."""
        group = self.group
        assert group.topology is not None and group.configured is not None
        if group.configured.problem is not None or group.configured.tasks is None:
            return NOT_VALIDATED
        for tasks in owned or ():
            for name, partitions in tasks.items():
                _check_tasks(group.configured, name, partitions)
        return group.topology.epoch

    def _target(self, member_id: str) -> tuple[int, Assignment]:
        """What a member shall have now, and the epoch of that."""
        group, pace = self.group, self._pace
        if pace.is_waiting:
            self._tell_delay("initial rebalance delay")
            return group.target_epoch, Assignment()
        if group.target_epoch < group.epoch:
            if group.keeps_targets(pace):
                self._tell_delay("assignment interval")
            else:
                self.assign()
        return group.target_epoch, group.targets.get(member_id, Assignment())

    def _tell_delay(self, what: str) -> None:
        detail = f"Assignment delayed due to the configured {what}."
        self.statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))

    def assign(self) -> None:
        """Give every member its target; nothing while something stands in the topology's way."""
        group, configured = self.group, self.group.configured
        targets = dict.fromkeys(group.members, Assignment())
        if configured is not None and configured.problem is None and configured.tasks is not None:
            assert group.topology is not None
            targets = assign(
                {member_id: member.process_id for member_id, member in group.members.items()},
                work_of(group.topology, configured.tasks),
                group.targets,
                int(self._pace.configs.get(STANDBY_REPLICAS, 0)),
            )
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                self._add(changes.target_changed(group.group_id, member_id, target))
        self._add(changes.target_epoch_changed(group.group_id, group.epoch, self._pace.now_ms))


def _by_id(
    topology: StreamsGroupTopologyValue,
) -> tuple[int, dict[str, Subtopology]]:
    return topology.epoch, {one.subtopology_id: one for one in topology.subtopologies}


def _check_tasks(configured: Configured, name: str, partitions: frozenset[int]) -> None:
    tasks = (configured.tasks or {}).get(name)
    if tasks is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Subtopology {name} does not exist in the topology.")
    for partition in sorted(partitions):
        if not 0 <= partition < tasks:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Task {partition} for subtopology {name} is invalid. Number of tasks for this subtopology: "
                f"{tasks}",
            )
