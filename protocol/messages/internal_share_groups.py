"""What brokers write down of share groups (KIP-932), for Kafka's own formatters too.

In `__consumer_offsets` a key's version is its kind, as in `internal_consumer_groups.py`: 10 a member, 11 the
group's epoch, 12 and 13 the target assignment (its epoch; of a member), 14 what a member has, 15 which
partitions have a beginning. In `__share_group_state` a key's version is 0 for all that is known of a
partition that a group reads, 1 for what has changed since.
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import array, data, int8, int16, int32, int64, string, struct, uuid


@struct
class TopicPartitions:
    """Partitions of a topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


@data(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """A member: who it is and what it subscribes to."""

    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


@data(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """A group's epoch: how often what it has to divide, or among whom, has changed."""

    epoch: int = int32()
    metadata_hash: int = int64()


@data(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The group epoch that the target assignment is made for."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@data(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """What a member shall have."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@data(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """What a member has, and where it stands."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


@data(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The partitions of which `__share_group_state` knows where the group stands, or soon will."""

    @struct
    class TopicPartitionsInfo:
        topic_id: UUID = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    @struct
    class TopicInfo:
        topic_id: UUID = uuid()
        topic_name: str = string()

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)


@data(versions="0-1")
class ShareStateKey:
    """A partition that a group reads."""

    group_id: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


@struct
class StateBatch:
    """A run of offsets of one delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@data(versions="0", flexible="0+")
class ShareSnapshotValue:
    """All that is known; times are ms since 1970."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


@data(versions="0", flexible="0+")
class ShareUpdateValue:
    """What has changed; start offset -1: it has not."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=-1)
    state_batches: list[StateBatch] = array(StateBatch)
