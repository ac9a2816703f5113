"""Reading as a member of a share group (KIP-932): records are taken for a while, and told how it went.

ShareFetch brings records and takes acknowledgements of earlier ones; ShareAcknowledge only takes them. Types
of an acknowledgement: 0 a gap, 1 accept, 2 release, 3 reject, and from v2 on 4 renew (KIP-1222). v2 also says
whether `max_records` is a limit (KIP-1206).
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import (
    Records,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    optional,
    records,
    request,
    response,
    string,
    struct,
    uuid,
)


@struct
class AcknowledgementBatch:
    """How the delivery of a run of offsets went: one type for all, or one each."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)


@struct
class LeaderIdAndEpoch:
    """Where the leader is, when it is not here."""

    leader_id: int = int32()
    leader_epoch: int = int32()


@struct
class NodeEndpoint:
    """The address of a leader."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@request(key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    """Take records; with session epoch 0 of these partitions, then of these too, with -1 nothing more."""

    @struct
    class FetchTopic:
        @struct
        class FetchPartition:
            partition_index: int = int32()
            acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)

        topic_id: UUID = uuid()
        partitions: list[FetchPartition] = array(FetchPartition)

    @struct
    class ForgottenTopic:
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default="")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+")
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@response(key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    """Whole batches, and which offsets of them the member has now."""

    @struct
    class ShareFetchableTopicResponse:
        @struct
        class PartitionData:
            @struct
            class AcquiredRecords:
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_count: int = int16()

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            acknowledge_error_code: int = int16()
            acknowledge_error_message: str | None = string(nullable="0+", default=None)
            current_leader: LeaderIdAndEpoch | None = optional(LeaderIdAndEpoch)
            records: Records = records(nullable="0")
            acquired_records: list[AcquiredRecords] = array(AcquiredRecords)

        topic_id: UUID = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)


@request(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    """Say how deliveries went; with session epoch -1 the member gives back what it has besides."""

    @struct
    class AcknowledgeTopic:
        @struct
        class AcknowledgePartition:
            partition_index: int = int32()
            acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)

        topic_id: UUID = uuid()
        partitions: list[AcknowledgePartition] = array(AcknowledgePartition)

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default="")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


@response(key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    """Whether it is known now, by partition."""

    @struct
    class ShareAcknowledgeTopicResponse:
        @struct
        class PartitionData:
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            current_leader: LeaderIdAndEpoch | None = optional(LeaderIdAndEpoch)

        topic_id: UUID = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
