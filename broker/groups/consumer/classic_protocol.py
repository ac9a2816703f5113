"""What members of the classic protocol say within JoinGroup and SyncGroup <-> topics and partitions. Pure.

Mirrors Kafka's ConsumerProtocol: an int16 version, then a message of that version; of a version that is not
known what the newest known has is read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from broker.groups.topics import GroupTopics, Partitions
from protocol.codegen import decode, encode
from protocol.errors import ErrorCode, KafkaError, MalformedFrame
from protocol.messages.consumer_groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription

_VERSION = struct.Struct(">h")
_NEWEST = 3


class Subscription(NamedTuple):
    """What a member subscribes to and says it has."""

    topic_names: frozenset[str]
    owned: Partitions
    rack_id: str | None


def read_subscription(metadata: bytes, topics: GroupTopics) -> Subscription:
    """INCONSISTENT_GROUP_PROTOCOL where the bytes say nothing."""
    try:
        said = decode(ConsumerProtocolSubscription, version_of(metadata), metadata, _VERSION.size)
    except (struct.error, MalformedFrame) as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription cannot be read: {error}"
        ) from error
    return Subscription(frozenset(said.topics), _by_id(said.owned_partitions, topics), said.rack_id)


def read_assignment(assignment: bytes, topics: GroupTopics) -> Partitions:
    """What a leader assigned, of topics that exist; INCONSISTENT_GROUP_PROTOCOL as above."""
    if not assignment:
        return {}
    try:
        said = decode(ConsumerProtocolAssignment, version_of(assignment), assignment, _VERSION.size)
    except (struct.error, MalformedFrame) as error:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the assignment cannot be read: {error}"
        ) from error
    return _by_id(said.assigned_partitions, topics)


def assignment_bytes(partitions: Partitions, topics: GroupTopics, version: int) -> bytes:
    """An assignment as a leader would have made it."""
    topic = ConsumerProtocolAssignment.TopicPartition
    names = topics.names(partitions)
    said = ConsumerProtocolAssignment(
        assigned_partitions=[
            topic(topic=names[topic_id], partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if topic_id in names
        ]
    )
    return _VERSION.pack(version) + b"".join(encode(said, version))


def version_of(metadata: bytes) -> int:
    """The version of the bytes, or the newest that is known here; struct.error where they are too short."""
    (version,) = _VERSION.unpack_from(metadata)
    return int(min(max(version, 0), _NEWEST))


def _by_id(
    said: list[ConsumerProtocolSubscription.TopicPartition] | list[ConsumerProtocolAssignment.TopicPartition],
    topics: GroupTopics,
) -> Partitions:
    found: dict[UUID, frozenset[int]] = {}
    for one in said:
        topic_id = topics.id_of(one.topic)
        if topic_id is not None and one.partitions:
            found[topic_id] = found.get(topic_id, frozenset()).union(one.partitions)
    return found
