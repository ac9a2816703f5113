"""A consumer group as it will be: changes are tried on a copy, written, and only then done to the group."""

from __future__ import annotations

import dataclasses
from uuid import UUID

from broker.groups.consumer import changes
from broker.groups.consumer.assignors import ASSIGNORS, Subscriber
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    ConsumerMember,
    Held,
    next_step,
)
from broker.groups.epoch_group import Pace
from broker.groups.kinds import Change
from broker.groups.topics import GroupTopics, MayKnow, Partitions, everything, metadata_hash


class Draft:
    """Mirrors what of Kafka's GroupMetadataManager turns a heartbeat into records. Owned by: event loop."""

    def __init__(
        self, group: ConsumerGroup, topics: GroupTopics, pace: Pace, may_know: MayKnow | None
    ) -> None:
        self.group = group
        """the group itself until something changes, then a copy"""
        self.changes: list[Change] = []
        self.seen_topics = group.seen_topics
        self._topics = topics
        self._pace = pace
        self._may_know = may_know
        """None where no client asks: nobody is there by whose rights topics could be looked for"""

    def bring_up_to_date(self, member: ConsumerMember, owned: Partitions | None) -> ConsumerMember:
        """A member says what it is and maybe what it owns: it is a step nearer to what it shall have then.

        KafkaError: the draft is not to be used.
        """
        has_new_subscription = self._put(member)
        self._follow_topics()
        self._assign()
        return self._step(member.member_id, owned, has_new_subscription)

    def add(self, *made: Change) -> None:
        if not self.changes:
            self.group = self.group.drafted()
            self.group.detach()
        self.changes += made
        changes.apply(self.group, made)

    def _put(self, member: ConsumerMember) -> bool:
        """Take a member in, or what it says of itself; who subscribes to something new starts an epoch.
        Whether it does.
        """
        group, before = self.group, self.group.members.get(member.member_id)
        if before == member:
            return False
        self.add(changes.member_changed(group, member))
        self._forget_unused_regexes()
        if before is not None and before.subscribes_like(member):
            return False
        self.start_epoch()
        return True

    def remove(self, member_id: str) -> None:
        """Take a member out; what it had is for the others."""
        self.add(*changes.member_removed(self.group, member_id))
        self._forget_unused_regexes()

    def replace(self, member: ConsumerMember, new_member_id: str) -> ConsumerMember:
        """A static member comes back under another id: what it had and shall have is its own (KIP-345)."""
        group = self.group
        target = group.targets.get(member.member_id, {})
        newcomer = _as_newcomer(member, new_member_id)
        self.add(
            *changes.member_removed(group, member.member_id),
            changes.member_changed(group, newcomer),
            changes.target_changed(group, new_member_id, target),
            changes.assignment_changed(group, newcomer),
        )
        return newcomer

    def start_epoch(self) -> None:
        """What there is to divide, or among whom, has changed."""
        digest = self._look_at_topics()
        self.add(changes.epoch_changed(self.group, self.group.epoch + 1, digest))

    def _follow_topics(self) -> None:
        """Start an epoch where the topics that the members subscribe to are others than at the last one."""
        if self.seen_topics != self._topics.version:
            digest = self._look_at_topics()
            if digest != self.group.metadata_hash:
                self.add(changes.epoch_changed(self.group, self.group.epoch + 1, digest))

    def _look_at_topics(self) -> int:
        group = self.group
        regexes = {one.topic_regex for one in group.members.values() if one.topic_regex}
        may_know = self._may_know
        if may_know is None:
            if regexes:
                return metadata_hash(self._sizes())  # who beats next looks
            may_know = everything
        self.seen_topics = self._topics.version
        for regex in regexes:
            names = self._topics.matching(regex, may_know)
            if names != group.regexes.get(regex):
                self.add(changes.regex_changed(group, regex, names, self._topics.version, self._pace.now_ms))
        return metadata_hash(self._sizes())

    def _assign(self) -> None:
        """Give every member its target, where the targets are of an older epoch and old enough."""
        group = self.group
        if group.epoch <= group.target_epoch or group.keeps_targets(self._pace):
            return
        sizes = self._sizes()
        # Usually all subscribe to the same.
        topic_ids = {
            names: frozenset(self._topics.sizes(names))
            for names in set(map(group.topics_of, group.members.values()))
        }
        subscribers = [
            Subscriber(member.member_id, member.instance_id, topic_ids[group.topics_of(member)])
            for member in group.members.values()
        ]
        targets = ASSIGNORS[group.assignor](subscribers, sizes, group.targets)
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                self.add(changes.target_changed(group, member_id, target))
        self.add(changes.target_epoch_changed(group, group.epoch, self._pace.now_ms))

    def _step(self, member_id: str, owned: Partitions | None, has_new_subscription: bool) -> ConsumerMember:
        """Bring a member one step nearer to its target."""
        group = self.group
        member = group.members[member_id]
        if member.has_reached(group.target_epoch) and not has_new_subscription:
            return member
        target = group.targets.get(member_id, {})
        subscribed = self._topics.sizes(group.topics_of(member))
        moved = next_step(
            member,
            group.target_epoch,
            target,
            owned,
            group.is_free,
            subscribed,
            is_new_subscription=has_new_subscription,
        )
        if moved != member:
            self.add(changes.assignment_changed(group, moved))
        return moved

    def _sizes(self) -> dict[UUID, int]:
        return self._topics.sizes(self.group.subscribed_topics())

    def _forget_unused_regexes(self) -> None:
        used = {member.topic_regex for member in self.group.members.values()}
        for regex in self.group.regexes.keys() - used:
            self.add(changes.regex_removed(self.group, regex))


def _as_newcomer(member: ConsumerMember, new_member_id: str) -> ConsumerMember:
    def anew(held: Held) -> Held:
        return {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in held.items()}

    return dataclasses.replace(
        member,
        member_id=new_member_id,
        epoch=0,
        previous_epoch=0,
        assigned=anew(member.assigned),
        pending_revocation=anew(member.pending_revocation),
    )
