"""Group and offset records <-> bytes of `__consumer_offsets`.

Kafka's schemas: the key's leading int16 says what it is (0 and 1: a committed offset, 2: a group), the
value's is its version. Written are, as by Kafka 4.3.1, OffsetCommitValue v4 with the topic's id (v1 when the
commit names an expiry, which v4 cannot hold), and GroupMetadataValue v3; all versions are read. What groups
of newer protocols write is in `kinds.py`; a key of a kind that is not known is skipped.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from broker.groups import kinds
from broker.groups.kinds import RecordKey
from broker.groups.membership import Group, Member
from broker.groups.offsets import Commit
from broker.groups.state import GroupState
from broker.state_topic import fits
from protocol.codegen import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.internal import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.schema import ZERO_UUID
from storage.layout import TopicPartition

_VERSION = struct.Struct(">h")
_OFFSET_KEY = 1
_GROUP_KEY = 2
_OFFSET_VALUE = 4
_OFFSET_VALUE_WITH_EXPIRY = 1
_GROUP_VALUE = 3


def check_group_id(group_id: str) -> None:
    """Raise unless groups can be stored under this id."""
    if not fits(group_id):
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is too long")


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """The key of a committed offset."""

    group_id: str
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The key of a group's metadata."""

    group_id: str


def offset_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=topic_partition.topic, partition=topic_partition.partition)
    return _with_version(_OFFSET_KEY, key)


def offset_value(commit: Commit) -> bytes:
    has_expiry = commit.expire_timestamp_ms >= 0
    value = OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=-1 if has_expiry else commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_timestamp_ms,
        expire_timestamp=commit.expire_timestamp_ms,
        topic_id=ZERO_UUID if has_expiry else commit.topic_id,
    )
    return _with_version(_OFFSET_VALUE_WITH_EXPIRY if has_expiry else _OFFSET_VALUE, value)


def group_key(group_id: str) -> bytes:
    return _with_version(_GROUP_KEY, GroupMetadataKey(group=group_id))


def group_value(group: Group, assignments: dict[str, bytes]) -> bytes:
    """The group as it will be once `assignments` are stored."""
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata_of(group.protocol_name),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=members,
    )
    return _with_version(_GROUP_VALUE, value)


Key = OffsetKey | GroupKey | RecordKey


def read_key(key: bytes | memoryview) -> Key | None:
    """What a record is about; None for a kind of record that is not known here."""
    (version,) = _VERSION.unpack_from(key)
    if version in (0, _OFFSET_KEY):
        decoded = decode(OffsetCommitKey, version, bytes(key), _VERSION.size)
        return OffsetKey(decoded.group, TopicPartition(decoded.topic, decoded.partition))
    if version == _GROUP_KEY:
        return GroupKey(decode(GroupMetadataKey, version, bytes(key), _VERSION.size).group)
    return kinds.read_key(version, bytes(key))


def read_commit(value: bytes | memoryview, log_offset: int) -> Commit:
    (version,) = _VERSION.unpack_from(value)
    decoded = decode(OffsetCommitValue, version, bytes(value), _VERSION.size)
    return Commit(
        offset=decoded.offset,
        leader_epoch=decoded.leader_epoch,
        metadata=decoded.metadata,
        commit_timestamp_ms=decoded.commit_timestamp,
        expire_timestamp_ms=decoded.expire_timestamp,
        log_offset=log_offset,
        topic_id=decoded.topic_id,
    )


def read_group(group_id: str, value: bytes | memoryview, now_ms: int) -> Group:
    """A group as it was last stored: stable with its members and assignments, or empty (T200)."""
    (version,) = _VERSION.unpack_from(value)
    decoded = decode(GroupMetadataValue, version, bytes(value), _VERSION.size)
    group = Group(group_id, now_ms, GroupState.STABLE if decoded.members else GroupState.EMPTY)
    group.was_stored = True
    group.generation = decoded.generation
    group.protocol_type = decoded.protocol_type or None
    group.protocol_name = decoded.protocol
    if decoded.current_state_timestamp >= 0:
        group.state_since_ms = decoded.current_state_timestamp
    for stored in decoded.members:
        timeout_ms = stored.rebalance_timeout if version >= 1 else stored.session_timeout
        member = Member(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=timeout_ms,
            session_timeout_ms=stored.session_timeout,
            protocols=[(decoded.protocol or "", bytes(stored.subscription))],
            assignment=bytes(stored.assignment),
        )
        group.add(member)
    if decoded.leader in group.members:
        group.leader_id = decoded.leader
    group.subscribed_topics = group.compute_subscribed_topics() if group.protocol_type else None
    return group


def _with_version(version: int, message: object) -> bytes:
    return _VERSION.pack(version) + b"".join(encode(message, version))
