"""Values of `__consumer_offsets` about consumer groups (KIP-848), for Kafka's own formatters too.

As in `internal.py` a key's version is its kind: 3 the group's epoch, 4 what older brokers knew of the topics
(only read over), 5 a member, 6 and 7 the target assignment (its epoch; of a member), 8 what a member has, 16
what a regular expression stands for. Values are flexible; their newer fields are tagged: the hash of the
topics (Kafka 4.1), the time of an assignment and the epoch a partition was assigned at (4.3).
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import (
    array,
    binary,
    data,
    int8,
    int32,
    int64,
    optional,
    string,
    struct,
    uuid,
)


@data(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """A group's epoch: how often what it has to divide, or among whom, has changed."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@data(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """A member: who it is and what it subscribes to."""

    @struct
    class ClassicMemberMetadata:
        @struct
        class ClassicProtocol:
            name: str = string()
            metadata: bytes = binary()

        session_timeout_ms: int = int32()
        supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)

    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = optional(
        ClassicMemberMetadata, nullable="0+", tag=0
    )


@data(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch that the target assignment is made for."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@data(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """What a member shall have."""

    @struct
    class TopicPartition:
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartition] = array(TopicPartition)


@data(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """What a member has, and what it has not given back yet."""

    @struct
    class TopicPartitions:
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)
        assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0, default=None)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


@data(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that a regular expression stood for, and when that was looked up."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
