"""Fetch: record batches out of partitions.

v4: isolation level and aborted transactions. v5: log start offset. v7: sessions (KIP-227). v9: leader
epoch. v10: zstd. v11: rack. v12: flexible, truncation by epoch. v13: topic ids in place of names (KIP-516).
v15: replica state as a tag. v16: leader hints (KIP-951). v17: directory ids of replicas (KIP-853). v18: what
replicas know of the high watermark (KIP-1166).
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import (
    Records,
    array,
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


@request(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    """Read record batches from offsets on, waiting until `min_bytes` are there or `max_wait_ms` are over."""

    @struct
    class ReplicaState:
        replica_id: int = int32("15+", default=-1)
        replica_epoch: int = int64("15+", default=-1)

    @struct
    class FetchTopic:
        @struct
        class FetchPartition:
            partition: int = int32()
            current_leader_epoch: int = int32("9+", default=-1)
            fetch_offset: int = int64()
            last_fetched_epoch: int = int32("12+", default=-1)
            log_start_offset: int = int64("5+", default=-1)
            partition_max_bytes: int = int32()
            replica_directory_id: UUID = uuid("17+", tag=0)
            high_watermark: int = int64("18+", tag=1, default=9223372036854775807)

        topic: str = string("0-12")
        topic_id: UUID = uuid("13+")
        partitions: list[FetchPartition] = array(FetchPartition)

    @struct
    class ForgottenTopic:
        topic: str = string("7-12")
        topic_id: UUID = uuid("13+")
        partitions: list[int] = array(int32, "7+")

    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = optional(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=2147483647)
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


@response(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """Whole batches, the first of which may begin before the offset that was asked for."""

    @struct
    class FetchableTopicResponse:
        @struct
        class PartitionData:
            @struct
            class EpochEndOffset:
                epoch: int = int32("12+", default=-1)
                end_offset: int = int64("12+", default=-1)

            @struct
            class LeaderIdAndEpoch:
                leader_id: int = int32("12+", default=-1)
                leader_epoch: int = int32("12+", default=-1)

            @struct
            class SnapshotId:
                end_offset: int = int64(default=-1)
                epoch: int = int32(default=-1)

            @struct
            class AbortedTransaction:
                producer_id: int = int64("4+")
                first_offset: int = int64("4+")

            partition_index: int = int32()
            error_code: int = int16()
            high_watermark: int = int64()
            last_stable_offset: int = int64("4+", default=-1)
            log_start_offset: int = int64("5+", default=-1)
            diverging_epoch: EpochEndOffset | None = optional(EpochEndOffset, "12+", tag=0)
            current_leader: LeaderIdAndEpoch | None = optional(LeaderIdAndEpoch, "12+", tag=1)
            snapshot_id: SnapshotId | None = optional(SnapshotId, "12+", tag=2)
            aborted_transactions: list[AbortedTransaction] | None = array(
                AbortedTransaction, "4+", nullable="4+"
            )
            preferred_read_replica: int = int32("11+", default=-1)
            records: Records = records()

        topic: str = string("0-12")
        topic_id: UUID = uuid("13+")
        partitions: list[PartitionData] = array(PartitionData)

    @struct
    class NodeEndpoint:
        node_id: int = int32("16+")
        host: str = string("16+")
        port: int = int32("16+")
        rack: str | None = string("16+", nullable="16+", default=None)

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
