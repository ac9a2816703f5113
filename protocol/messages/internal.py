"""Keys and values of `__consumer_offsets` and `__transaction_state`, as Kafka's own formatters read them.

The version is not part of the message: it is the int16 before it. A key's version is rather its kind: 0 and
1 are a committed offset, 2 is a group, those from 3 on are of groups of newer protocols. OffsetCommitValue v1
alone has an expiry of its own; v3 added the leader epoch; v4 is flexible. GroupMetadataValue v1 split the
timeouts; v2 added the time of the last change; v3 static members; v4 is flexible. TransactionLogValue v1 is
flexible (its tags are passed over).
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import array, binary, data, int8, int16, int32, int64, string, struct, uuid


@data(versions="0-1")
class OffsetCommitKey:
    """The key of a committed offset."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@data(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: UUID = uuid("4+", tag=0)


@data(versions="2")
class GroupMetadataKey:
    """The key of a group's generation."""

    group: str = string()


@data(versions="3-23")
class GroupRecordKey:
    """The key of what there is once a group of a newer protocol."""

    group_id: str = string()


@data(versions="5-22")
class GroupPartKey:
    """The key of what there is once a member of such a group, or a regular expression."""

    group_id: str = string()
    part: str = string()


@data(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A group's last stable generation: its members and what each was assigned."""

    @struct
    class MemberMetadata:
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        client_id: str = string()
        client_host: str = string()
        rebalance_timeout: int = int32("1+")
        session_timeout: int = int32()
        subscription: bytes = binary()
        assignment: bytes = binary()

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


@data(versions="0")
class TransactionLogKey:
    """The key of what a coordinator knows of a transactional id."""

    transactional_id: str = string()


@data(versions="0-1", flexible="1+")
class TransactionLogValue:
    """What a coordinator last knew of a transactional id."""

    @struct
    class PartitionsSchema:
        topic: str = string()
        partition_ids: list[int] = array(int32)

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)
