"""What can change in a streams group: each change is a record of `__consumer_offsets` and what it does.

As in `consumer/changes.py`: a change is made of what shall be, written, and only then done to the group, by
the same functions that the start calls for what it reads. Records as Kafka 4.3 writes them
(`StreamsCoordinatorRecordHelpers`), so that a directory can change hands while groups have members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker.groups.kinds import Change, RecordKey
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import (
    Assignment,
    Endpoint,
    HeldTasks,
    Holding,
    MemberState,
    StreamsMember,
    Tasks,
)
from protocol.messages import streams_groups as messages
from protocol.messages.internal_streams_groups import (
    StoredTasks,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)

_EPOCH, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _TOPOLOGY = 17, 19, 20, 21, 22, 23


# what changes


def topology_changed(group_id: str, topology: StreamsGroupTopologyValue) -> Change:
    """What the members run."""
    return Change(RecordKey(_TOPOLOGY, group_id), topology)


def member_changed(group_id: str, member: StreamsMember) -> Change:
    """Who it is, or what it runs."""
    endpoint = member.endpoint
    value = StreamsGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint and messages.Endpoint(**endpoint._asdict()),
        client_tags=_stored_settings(member.client_tags),
    )
    return Change(RecordKey(_MEMBER, group_id, member.member_id), value)


def assignment_changed(group_id: str, member: StreamsMember) -> Change:
    """What it has, and where it stands."""
    held, pending = member.assigned, member.pending_revocation
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_stored_active(held.active),
        standby_tasks=_stored(StoredTasks, held.standby),
        warmup_tasks=_stored(StoredTasks, held.warmup),
        active_tasks_pending_revocation=_stored_active(pending.active),
        standby_tasks_pending_revocation=_stored(StoredTasks, pending.standby),
        warmup_tasks_pending_revocation=_stored(StoredTasks, pending.warmup),
    )
    return Change(RecordKey(_CURRENT, group_id, member.member_id), value)


def target_changed(group_id: str, member_id: str, target: Assignment) -> Change:
    """What it shall have."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_stored(messages.TaskIds, target.active),
        standby_tasks=_stored(messages.TaskIds, target.standby),
        warmup_tasks=_stored(messages.TaskIds, target.warmup),
    )
    return Change(RecordKey(_TARGET, group_id, member_id), value)


def target_epoch_changed(group_id: str, epoch: int, now_ms: int) -> Change:
    """The epoch of all targets."""
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return Change(RecordKey(_TARGET_EPOCH, group_id), value)


def epoch_changed(
    group_id: str, epoch: int, metadata_hash: int, validated_epoch: int, configs: Mapping[str, str]
) -> Change:
    """What there is to divide, or among whom, is another."""
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=_stored_settings(configs),
    )
    return Change(RecordKey(_EPOCH, group_id), value)


def member_removed(group_id: str, member_id: str) -> list[Change]:
    """It is no member any more."""
    return [Change(RecordKey(kind, group_id, member_id), None) for kind in (_CURRENT, _TARGET, _MEMBER)]


def group_removed(group: StreamsGroup) -> list[Change]:
    """Nothing is left of the group but its offsets."""
    group_id = group.group_id
    # A record of who was lost otherwise would be a group again after a restart.
    members = dict.fromkeys((*group.members, *group.targets))
    changes = [change for member_id in members for change in member_removed(group_id, member_id)]
    return [
        *changes,
        *(Change(RecordKey(kind, group_id), None) for kind in (_TARGET_EPOCH, _EPOCH, _TOPOLOGY)),
    ]


# what a change does


def apply(group: StreamsGroup, changes: Iterable[Change]) -> None:
    """Do to the group what the records say."""
    for key, value in changes:
        if value is None:
            if key.kind == _MEMBER:
                group.remove(key.of)
        elif key.kind == _EPOCH:
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
            group.validated_epoch = value.validated_topology_epoch
            group.assignment_configs = _settings(value.last_assignment_configs or ())
        elif key.kind == _TARGET_EPOCH:
            group.target_epoch, group.target_ms = value.assignment_epoch, value.assignment_timestamp
        elif key.kind == _TARGET:
            group.targets[key.of] = Assignment(
                _tasks(value.active_tasks), _tasks(value.standby_tasks), _tasks(value.warmup_tasks)
            )
        elif key.kind == _TOPOLOGY:
            group.run(value)
        else:
            member = group.members.get(key.of) or StreamsMember(key.of)
            changed = _with_metadata if key.kind == _MEMBER else _with_assignment
            group.put(changed(member, value))


def _with_metadata(member: StreamsMember, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
    endpoint = value.user_endpoint
    return replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=_settings(value.client_tags),
    )


def _with_assignment(member: StreamsMember, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
    states = frozenset(MemberState)
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in states else MemberState.UNKNOWN,
        assigned=Holding(
            _held(value.active_tasks, value.member_epoch),
            _tasks(value.standby_tasks),
            _tasks(value.warmup_tasks),
        ),
        pending_revocation=Holding(
            _held(value.active_tasks_pending_revocation, value.member_epoch),
            _tasks(value.standby_tasks_pending_revocation),
            _tasks(value.warmup_tasks_pending_revocation),
        ),
    )


def _stored(kind: type[Any], tasks: Tasks) -> list[Any]:
    return [kind(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _stored_active(tasks: HeldTasks) -> list[StoredTasks]:
    return [
        StoredTasks(
            subtopology_id=name,
            partitions=sorted(tasks[name]),
            assignment_epochs=[tasks[name][partition] for partition in sorted(tasks[name])],
        )
        for name in sorted(tasks)
    ]


def _tasks(stored: Iterable[messages.TaskIds | StoredTasks]) -> Tasks:
    return {one.subtopology_id: frozenset(one.partitions) for one in stored}


def _held(stored: Iterable[StoredTasks], member_epoch: int) -> HeldTasks:
    """A broker before 4.3 wrote no epochs of single tasks: its members had them since theirs."""
    held: dict[str, Mapping[int, int]] = {}
    for one in stored:
        epochs: Sequence[int] = one.assignment_epochs or ()
        if len(epochs) != len(one.partitions):
            epochs = [member_epoch] * len(one.partitions)
        held[one.subtopology_id] = dict(zip(one.partitions, epochs, strict=True))
    return held


def _stored_settings(settings: Mapping[str, str]) -> list[messages.KeyValue]:
    return [messages.KeyValue(key=name, value=value) for name, value in sorted(settings.items())]


def _settings(stored: Iterable[messages.KeyValue]) -> dict[str, str]:
    return {one.key: one.value for one in stored}
