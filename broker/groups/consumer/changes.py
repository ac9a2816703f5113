"""What can change in a consumer group: each change is a record of `__consumer_offsets` and what it does.

A change is made of what shall be, written, and only then done to the group, by the same functions that the
start calls for what it reads. Records as Kafka 4.3 writes them (`GroupCoordinatorRecordHelpers`), so that a
directory can change hands while groups have members.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    ClassicProtocol,
    ConsumerMember,
    Held,
    MemberState,
)
from broker.groups.kinds import Change, RecordKey
from broker.groups.topics import Partitions
from protocol.messages.internal_consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)

_EPOCH, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _REGEX = 3, 5, 6, 7, 8, 16


# what changes


def member_changed(group: ConsumerGroup, member: ConsumerMember) -> Change:
    """Who it is, or what it subscribes to."""
    stored = ConsumerGroupMemberMetadataValue
    classic = None
    if member.classic is not None:
        protocol = stored.ClassicMemberMetadata.ClassicProtocol
        classic = stored.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                protocol(name=name, metadata=data) for name, data in member.classic.protocols
            ],
        )
    value = stored(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex or "",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return Change(RecordKey(_MEMBER, group.group_id, member.member_id), value)


def assignment_changed(group: ConsumerGroup, member: ConsumerMember) -> Change:
    """What it has, and where it stands."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_stored_held(member.assigned),
        partitions_pending_revocation=_stored_held(member.pending_revocation),
    )
    return Change(RecordKey(_CURRENT, group.group_id, member.member_id), value)


def target_changed(group: ConsumerGroup, member_id: str, target: Partitions) -> Change:
    """What it shall have."""
    topic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            topic(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in target.items()
        ]
    )
    return Change(RecordKey(_TARGET, group.group_id, member_id), value)


def target_epoch_changed(group: ConsumerGroup, epoch: int, now_ms: int) -> Change:
    """The epoch of all targets."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return Change(RecordKey(_TARGET_EPOCH, group.group_id), value)


def epoch_changed(group: ConsumerGroup, epoch: int, metadata_hash: int) -> Change:
    """What there is to divide, or among whom, is another."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Change(RecordKey(_EPOCH, group.group_id), value)


def regex_changed(
    group: ConsumerGroup, regex: str, topics: frozenset[str], version: int, now_ms: int
) -> Change:
    """A regular expression stands for other topics."""
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=now_ms)
    return Change(RecordKey(_REGEX, group.group_id, regex), value)


def regex_removed(group: ConsumerGroup, regex: str) -> Change:
    """No member subscribes to it any more."""
    return Change(RecordKey(_REGEX, group.group_id, regex), None)


def member_removed(group: ConsumerGroup, member_id: str) -> list[Change]:
    """It is no member any more."""
    return [Change(RecordKey(kind, group.group_id, member_id), None) for kind in (_CURRENT, _TARGET, _MEMBER)]


def group_removed(group: ConsumerGroup) -> list[Change]:
    """Nothing is left of the group but its offsets."""
    group_id = group.group_id
    changes = [change for member_id in group.members for change in member_removed(group, member_id)]
    changes += [regex_removed(group, regex) for regex in group.regexes]
    return [*changes, *(Change(RecordKey(kind, group_id), None) for kind in (_TARGET_EPOCH, _EPOCH))]


def group_made(group: ConsumerGroup) -> list[Change]:
    """The whole group, which its log knows nothing of."""
    members = group.members.values()
    return [
        *(member_changed(group, member) for member in members),
        epoch_changed(group, group.epoch, group.metadata_hash),
        *(target_changed(group, member_id, target) for member_id, target in group.targets.items()),
        target_epoch_changed(group, group.target_epoch, group.target_ms),
        *(assignment_changed(group, member) for member in members),
    ]


# what a change does


def apply(group: ConsumerGroup, changes: Iterable[Change]) -> None:
    """Do to the group what the records say."""
    for change in changes:
        _apply_one(group, change.key, change.value)


def _apply_one(group: ConsumerGroup, key: RecordKey, value: Any) -> None:
    if key.kind == _EPOCH and value is not None:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    elif key.kind == _TARGET_EPOCH and value is not None:
        group.target_epoch, group.target_ms = value.assignment_epoch, value.assignment_timestamp
    elif key.kind == _TARGET and value is not None:
        group.targets[key.of] = {one.topic_id: frozenset(one.partitions) for one in value.topic_partitions}
    elif key.kind == _TARGET:
        group.targets.pop(key.of, None)
    elif key.kind == _REGEX and value is not None:
        group.regexes[key.of] = frozenset(value.topics)
    elif key.kind == _REGEX:
        group.regexes.pop(key.of, None)
    elif key.kind == _MEMBER and value is None:
        group.remove(key.of)
    elif key.kind in (_MEMBER, _CURRENT) and value is not None:
        member = group.members.get(key.of) or ConsumerMember(key.of)
        group.put((_with_metadata if key.kind == _MEMBER else _with_assignment)(member, value))


def _with_metadata(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    stored = value.classic_member_metadata
    classic = None
    if stored is not None:
        protocols = [(one.name, bytes(one.metadata)) for one in stored.supported_protocols]
        classic = ClassicProtocol(stored.session_timeout_ms, protocols)
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=classic,
    )


def _with_assignment(
    member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    known = frozenset(MemberState)
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in known else MemberState.UNKNOWN,
        assigned=_held(value.assigned_partitions, value.member_epoch),
        pending_revocation=_held(value.partitions_pending_revocation, value.member_epoch),
    )


def _stored_held(held: Held) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    topic = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    return [
        topic(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in held.items()
    ]


def _held(stored: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int) -> Held:
    held: dict[UUID, dict[int, int]] = {}
    for one in stored:
        # Brokers before 4.3 know no epoch of a partition: the member's stands for it.
        epochs = one.assignment_epochs or []
        if len(epochs) != len(one.partitions):
            epochs = [member_epoch] * len(one.partitions)
        held[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return held
