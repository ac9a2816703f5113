"""A share group as it will be: changes are tried on a copy, written, and only then done to the group.

In a draft the member is what it says it is, all partitions of subscribed topics have a beginning, and
everybody has a target, which a member takes at once: nobody has to give anything back before.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from uuid import UUID

from broker.groups.epoch_group import Pace
from broker.groups.kinds import Change
from broker.groups.share import changes
from broker.groups.share.assignor import assign
from broker.groups.share.group import Begun, ShareGroup, ShareMember
from broker.groups.topics import GroupTopics, metadata_hash
from broker.share.coordinator import ShareCoordinator
from broker.share.partition import ShareKey

logger = logging.getLogger(__name__)


class Draft:
    """Mirrors what of Kafka's GroupMetadataManager turns a heartbeat into records. Owned by: event loop."""

    def __init__(self, group: ShareGroup, topics: GroupTopics, shares: ShareCoordinator, pace: Pace) -> None:
        self.group = group
        self.drafted = group.drafted()
        self.drafted.detach()
        self.changes: list[Change] = []
        self.begins: list[ShareKey] = []
        self.seen_topics = group.seen_topics
        self._topics = topics
        self._shares = shares
        self._pace = pace

    def bring_up_to_date(self, member: ShareMember, told: ShareMember) -> ShareMember:
        """A member says what it is: it has what it shall have then."""
        if told != member:  # so is one that is new, which subscribes to something
            self._add(changes.member_changed(self.group.group_id, told))
        has_new_subscription = told.topic_names != member.topic_names
        self._follow_topics(has_new_subscription)
        self._assign()
        return self._step(told.member_id, has_new_subscription)

    def _add(self, *made: Change) -> None:
        self.changes += made
        changes.apply(self.drafted, made)

    def _follow_topics(self, has_changed: bool) -> None:
        """Begin in partitions that are new, and start an epoch where there is another thing to divide, or
        others to divide it among.
        """
        draft = self.drafted
        if not has_changed and self.seen_topics == self._topics.version:
            return
        self.seen_topics = self._topics.version
        names = draft.subscribed_topics()
        begun = dict(draft.begun)
        for name in sorted(names):
            topic = self._topics.registry.get(name)
            if topic is not None:
                known = begun.get(topic.topic_id, Begun(name, frozenset()))
                missing = frozenset(range(topic.partition_count)) - known.partitions
                missing |= self._lost(topic.topic_id, known)
                if missing:
                    begun[topic.topic_id] = known._replace(partitions=known.partitions | missing)
                    self.begins += share_keys(draft.group_id, {topic.topic_id: Begun(name, missing)})
        if self.begins:
            self._add(changes.begun_changed(draft.group_id, begun))
        digest = metadata_hash(self._topics.sizes(names))
        if has_changed or digest != draft.metadata_hash:
            self._add(changes.epoch_changed(draft.group_id, draft.epoch + 1, digest))

    def _lost(self, topic_id: UUID, known: Begun) -> frozenset[int]:
        """The partitions that the group has begun in, and of which nothing is known any more."""
        group_id = self.drafted.group_id
        lost = [one for one in known.partitions if self._shares.is_lost(ShareKey(group_id, topic_id, one))]
        for index in lost:
            logger.warning(
                "share group %s begins anew in %s-%d: where it stood is lost", group_id, known.topic, index
            )
        return frozenset(lost)

    def _assign(self) -> None:
        """Give every member its target, where the targets are of an older epoch and old enough."""
        draft = self.drafted
        if draft.epoch <= draft.target_epoch or draft.keeps_targets(self._pace):
            return
        subscribed = {
            member_id: frozenset(self._topics.sizes(member.topic_names))
            for member_id, member in draft.members.items()
        }
        places = [
            (topic_id, index) for topic_id, one in draft.begun.items() for index in sorted(one.partitions)
        ]
        for member_id, target in assign(subscribed, places, draft.targets).items():
            if target != draft.targets.get(member_id):
                self._add(changes.target_changed(draft.group_id, member_id, target))
        self._add(changes.target_epoch_changed(draft.group_id, draft.epoch, self._pace.now_ms))

    def _step(self, member_id: str, has_new_subscription: bool) -> ShareMember:
        """The member takes what of its target it still subscribes to."""
        draft = self.drafted
        member = draft.members[member_id]
        if member.epoch == draft.target_epoch and not has_new_subscription:
            return member
        target, subscribed = draft.targets.get(member_id, {}), self._topics.sizes(member.topic_names)
        assigned = {topic_id: target[topic_id] for topic_id in target if topic_id in subscribed}
        moved = dataclasses.replace(member, assigned=assigned)
        if member.epoch != draft.target_epoch:
            moved = dataclasses.replace(moved, epoch=draft.target_epoch, previous_epoch=member.epoch)
        if moved != member:
            self._add(changes.assignment_changed(draft.group_id, moved))
        return moved


def share_keys(group_id: str, begun: Mapping[UUID, Begun]) -> list[ShareKey]:
    """The keys of these partitions."""
    return [
        ShareKey(group_id, topic_id, index)
        for topic_id, one in begun.items()
        for index in sorted(one.partitions)
    ]
