"""What can change in a share group: each change is a record of `__consumer_offsets` and what it does.

As in `consumer/changes.py`: a change is made of what shall be, written, and only then done to the group, by
the same functions that the start calls for what it reads. Records as Kafka 4.3 writes them, so that a
directory can change hands while groups have members. Partitions that a Kafka was about to begin, or to
forget, when it stopped are not looked at: they begin anew with the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from broker.groups.kinds import Change, RecordKey
from broker.groups.share.group import Begun, ShareGroup, ShareMember
from broker.groups.topics import Partitions
from protocol.messages.internal_share_groups import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)

_MEMBER, _EPOCH, _TARGET_EPOCH, _TARGET, _CURRENT, _BEGUN = 10, 11, 12, 13, 14, 15
STABLE = 0
"""the only state that a member of a share group has"""


# what changes


def member_changed(group_id: str, member: ShareMember) -> Change:
    """Who it is, or what it subscribes to."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return Change(RecordKey(_MEMBER, group_id, member.member_id), value)


def assignment_changed(group_id: str, member: ShareMember) -> Change:
    """What it has, and where it stands."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=_stored(member.assigned),
    )
    return Change(RecordKey(_CURRENT, group_id, member.member_id), value)


def target_changed(group_id: str, member_id: str, target: Partitions) -> Change:
    """What it shall have."""
    value = ShareGroupTargetAssignmentMemberValue(topic_partitions=_stored(target))
    return Change(RecordKey(_TARGET, group_id, member_id), value)


def target_epoch_changed(group_id: str, epoch: int, now_ms: int) -> Change:
    """The epoch of all targets."""
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return Change(RecordKey(_TARGET_EPOCH, group_id), value)


def epoch_changed(group_id: str, epoch: int, metadata_hash: int) -> Change:
    """What there is to divide, or among whom, is another."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Change(RecordKey(_EPOCH, group_id), value)


def begun_changed(group_id: str, begun: Mapping[UUID, Begun]) -> Change:
    """Of other partitions than before it is known where the group stands."""
    topic = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo
    value = ShareGroupStatePartitionMetadataValue(
        initialized_topics=[
            topic(topic_id=topic_id, topic_name=one.topic, partitions=sorted(one.partitions))
            for topic_id, one in begun.items()
        ]
    )
    return Change(RecordKey(_BEGUN, group_id), value)


def member_removed(group_id: str, member_id: str) -> list[Change]:
    """It is no member any more."""
    return [Change(RecordKey(kind, group_id, member_id), None) for kind in (_CURRENT, _TARGET, _MEMBER)]


def group_removed(group: ShareGroup) -> list[Change]:
    """Nothing is left of the group."""
    group_id = group.group_id
    changes = [change for member_id in group.members for change in member_removed(group_id, member_id)]
    return [
        *changes,
        *(Change(RecordKey(kind, group_id), None) for kind in (_TARGET_EPOCH, _BEGUN, _EPOCH)),
    ]


# what a change does


def apply(group: ShareGroup, changes: Iterable[Change]) -> None:
    """Do to the group what the records say."""
    for key, value in changes:
        if value is None:
            if key.kind == _MEMBER:
                group.members.pop(key.of, None)
            elif key.kind == _TARGET:
                group.targets.pop(key.of, None)
        elif key.kind == _EPOCH:
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        elif key.kind == _TARGET_EPOCH:
            group.target_epoch, group.target_ms = value.assignment_epoch, value.assignment_timestamp
        elif key.kind == _TARGET:
            group.targets[key.of] = _partitions(value.topic_partitions)
        elif key.kind == _BEGUN:
            group.begun = {
                one.topic_id: Begun(one.topic_name, frozenset(one.partitions))
                for one in value.initialized_topics
            }
        else:
            member = group.members.get(key.of) or ShareMember(key.of)
            changed = _with_metadata if key.kind == _MEMBER else _with_assignment
            group.members[key.of] = changed(member, value)


def _with_metadata(member: ShareMember, value: ShareGroupMemberMetadataValue) -> ShareMember:
    return replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
    )


def _with_assignment(member: ShareMember, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned=_partitions(value.assigned_partitions),
    )


def _stored(partitions: Partitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in partitions.items()
    ]


def _partitions(stored: Iterable[TopicPartitions]) -> Partitions:
    return {one.topic_id: frozenset(one.partitions) for one in stored}
