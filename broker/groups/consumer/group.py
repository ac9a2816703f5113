"""One consumer group: its members, what each shall have, who holds a partition, its offsets.

Mirrors Kafka's ConsumerGroup. Nothing here sets a timer, writes a record or decides; `changes.py` says what
can change, `heartbeats.py` what does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING
from uuid import UUID

from broker.groups.consumer.member import (
    ConsumerMember,
    MemberState,
)
from broker.groups.epoch_group import CommittingGroup
from broker.groups.membership import CONSUMER_PROTOCOL_TYPE
from broker.groups.topics import Partitions
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.topic import Topic


class ConsumerGroupState(Enum):
    """Kafka's names, as ConsumerGroupDescribe and ListGroups spell them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup(CommittingGroup[ConsumerMember, Partitions]):
    """Owned by: event loop."""

    kind = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE
    tables = ("members", "targets", "static_members", "regexes", "_holders")

    def __init__(self, group_id: str, assignors: Sequence[str]) -> None:
        """`assignors` are those that its members may want, the first of them that of who wants none."""
        super().__init__(group_id)
        self._assignors = assignors
        self.static_members: dict[str, str] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        """the topics that a regular expression of a member stood for at that epoch"""
        self._holders: dict[tuple[UUID, int], str] = {}

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.has_reached(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    # members

    def put(self, member: ConsumerMember) -> None:
        """Take a member in, or in place of what it was."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._let_go(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for held in (member.assigned, member.pending_revocation):
            for topic_id, partitions in held.items():
                self._holders.update(dict.fromkeys(((topic_id, one) for one in partitions), member.member_id))

    def remove(self, member_id: str) -> None:
        """Take a member out."""
        member = self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        if member is None:
            return
        self._let_go(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _let_go(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.pending_revocation):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    if self._holders.get((topic_id, partition)) == member.member_id:
                        del self._holders[topic_id, partition]

    def is_free(self, topic_id: UUID, partition: int, member_id: str) -> bool:
        """Whether no other member has the partition, or has still to give it back."""
        return self._holders.get((topic_id, partition), member_id) == member_id

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Who holds an instance id now."""
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def check_holder(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The member that holds an instance id, if it has this id; KafkaError otherwise."""
        holder = self.static_member(instance_id)
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{holder.member_id}.",
            )
        return holder

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether what a member lacks of its target is still with other members."""
        target = self.targets.get(member.member_id, {})
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            partition not in member.assigned.get(topic_id, {})
            and not self.is_free(topic_id, partition, member.member_id)
            for topic_id, partitions in target.items()
            for partition in partitions
        )

    # subscriptions

    def subscribed_topics(self) -> frozenset[str]:
        """The names that members subscribe to; not all of them need exist."""
        return frozenset[str]().union(*map(self.topics_of, self.members.values()))

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names that a member subscribes to; not all of them need exist."""
        if not member.topic_regex:
            return member.topic_names
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    @property
    def assignor(self) -> str:
        """The server-side assignor that most members want."""
        votes = Counter(one.server_assignor for one in self.members.values())
        names = self._assignors
        return max(names, key=lambda name: (votes[name], -names.index(name)))

    # offsets

    def held_since(self, member_id: str, topic: Topic, partition: int) -> int | None:
        return self.members[member_id].held_since(topic.topic_id, partition)
