"""A group changes its protocol while it has members (T202): classic to consumer when the first member comes
that speaks the new one, back when the last one goes.

Mirrors Kafka's `convertToConsumerGroup` and `convertToClassicGroup`. What the log knows of the group under
one protocol goes, what it has to know under the other comes, in one batch; `group.consumer.migration.policy`
says which way is open. Empty groups change in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING
from uuid import UUID

from broker.groups import kinds, records
from broker.groups.commits import AnyGroup
from broker.groups.consumer import changes
from broker.groups.consumer.classic_protocol import (
    assignment_bytes,
    read_assignment,
    read_subscription,
    version_of,
)
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    ClassicProtocol,
    ConsumerMember,
    partitions_of,
)
from broker.groups.contents import Contents
from broker.groups.membership import CONSUMER_PROTOCOL_TYPE, Group, Member
from broker.groups.rebalance import Rebalancer
from broker.groups.state import GroupState
from broker.groups.storing import Flushed, append
from broker.groups.topics import GroupTopics, Partitions, metadata_hash
from broker.node import Node
from broker.state_topic import StateTopic
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from config.broker import BrokerConfig

logger = logging.getLogger(__name__)

Groups = MutableMapping[str, AnyGroup]


class Conversion:
    """Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        store: StateTopic[Contents],
        groups: Groups,
        rebalancer: Rebalancer,
        topics: GroupTopics,
    ) -> None:
        self._node = node
        self._store = store
        self._groups = groups
        self._rebalancer = rebalancer
        self._topics = topics

    @property
    def config(self) -> BrokerConfig:
        return self._node.config

    def to_consumer(self, group: Group) -> ConsumerGroup:
        """The group as it is under the consumer protocol, its members in their places. KafkaError where it
        cannot be.
        """
        made = ConsumerGroup(group.group_id, self.config.group_consumer_assignors)
        made.offsets = group.offsets
        if group.is_empty:
            return made
        self._check_upgrade(group)
        made.epoch = made.target_epoch = group.generation
        for member in group.members.values():
            converted = self._converted(group, member)
            made.targets[member.member_id] = partitions_of(converted.assigned)
            made.put(converted)
        sizes = self._topics.sizes(made.subscribed_topics())
        if _is_divided(sizes, made.targets.values()):
            # Else there is something to divide, as where the leader has not seen yet that a topic grew.
            made.metadata_hash = metadata_hash(sizes)
        return made

    def _check_upgrade(self, group: Group) -> None:
        reason = None
        if self.config.group_consumer_migration_policy not in ("bidirectional", "upgrade"):
            reason = "online upgrade is disabled"
        elif not group.is_consumer_group:
            reason = "the group does not use the consumer embedded protocol"
        elif len(group.members) > self.config.group_consumer_max_size:
            reason = "the group size exceeds the consumer group maximum size"
        if reason is not None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
            )

    def _converted(self, group: Group, member: Member) -> ConsumerMember:
        try:
            # Before its first generation a group has no protocol yet.
            protocol = group.protocol_name or member.protocols[0][0]
            said = read_subscription(member.metadata_of(protocol), self._topics)
            assigned = read_assignment(member.assignment, self._topics)
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded "
                f"consumer protocol is malformed: {error.message}",
            ) from error
        return ConsumerMember(
            member.member_id,
            instance_id=member.group_instance_id,
            rack_id=said.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=said.topic_names,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicProtocol(member.session_timeout_ms, member.protocols),
            epoch=group.generation,
            previous_epoch=group.generation,
            assigned={
                topic_id: dict.fromkeys(partitions, group.generation)
                for topic_id, partitions in assigned.items()
            },
        )

    def put(self, made: ConsumerGroup, group: Group) -> None:
        """Put the consumer group in the classic one's place: who waits there joins again."""
        group.answer_all(ErrorCode.REBALANCE_IN_PROGRESS)
        group.stop_timers()
        self._groups[group.group_id] = made

    def check_classic_may_join(self, group: ConsumerGroup) -> None:
        """Whether who speaks the classic protocol may come to a consumer group that has members."""
        if self.config.group_consumer_migration_policy == "disabled":
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the "
                "group migration is disabled.",
            )

    def can_become_classic(self, group: ConsumerGroup, leaving: Collection[str] = ()) -> bool:
        """Whether all that stay when `leaving` go speak the classic protocol, and may have the group."""
        staying = [member for member in group.members.values() if member.member_id not in leaving]
        return (
            bool(staying)
            and all(member.is_classic for member in staying)
            and self.config.group_consumer_migration_policy in ("bidirectional", "downgrade")
            and len(staying) <= self.config.group_max_size
        )

    def to_classic(
        self,
        group: ConsumerGroup,
        generation: int,
        leaving: Collection[str] = (),
        *,
        is_settled: bool = False,
    ) -> Flushed | None:
        """Put a classic group of those who stay in the group's place; `generation`: the epoch that they know.
        They divide anew, unless each has what it shall have: then they go on with that.
        """
        made = self._made_classic(group, generation, leaving)
        assignments = {member.member_id: member.assignment for member in made.members.values()}
        flushed = append(
            self._store,
            group.group_id,
            [
                *map(kinds.encoded, changes.group_removed(group)),
                (records.group_key(group.group_id), records.group_value(made, assignments)),
            ],
        )
        group.stop_timers()
        self._groups[group.group_id] = made
        for member in made.members.values():
            self._rebalancer.touch(member, made)
        if not is_settled:
            self._rebalancer.start_if_possible(made, "the last member of the consumer protocol has left")
        return flushed

    def _made_classic(self, group: ConsumerGroup, generation: int, leaving: Collection[str]) -> Group:
        made = Group(group.group_id, self._node.clock.now_ms(), GroupState.STABLE)
        made.offsets = group.offsets
        made.generation = generation
        made.protocol_type = CONSUMER_PROTOCOL_TYPE
        for member in group.members.values():
            if member.classic is None or member.member_id in leaving:
                continue
            target = group.targets.get(member.member_id, {})
            version = version_of(member.classic.protocols[0][1])
            made.add(
                Member(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.classic.session_timeout_ms,
                    protocols=list(member.classic.protocols),
                    assignment=assignment_bytes(target, self._topics, version),
                )
            )
        made.protocol_name = made.select_protocol()
        made.subscribed_topics = made.compute_subscribed_topics()
        return made


def _is_divided(sizes: Mapping[UUID, int], targets: Iterable[Partitions]) -> bool:
    """Whether every partition of topics of these sizes is in one of the targets, and none in two."""
    divided = [(topic_id, index) for target in targets for topic_id in target for index in target[topic_id]]
    return sorted(divided) == [
        (topic_id, index) for topic_id in sorted(sizes) for index in range(sizes[topic_id])
    ]
