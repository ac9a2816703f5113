"""Produce: record batches into partitions.

v3: record format 2 and the transactional id. v5: log start offset. v7: zstd. v8: which records were
refused, and why (KIP-467). v9: flexible. v10: leader hints (KIP-951). v0-2 are shown to clients and refused
when used (G2): without them older librdkafka turns compression off. v12: transactions v2 (KIP-890, G15). v13:
topic ids in place of names (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import (
    Records,
    array,
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


@request(key=0, versions="3-13", flexible="9+", advertised="0-13")
class ProduceRequest:
    """Append record batches to partitions; `acks` says when that is answered, 0 not at all."""

    @struct
    class TopicProduceData:
        @struct
        class PartitionProduceData:
            index: int = int32()
            records: Records = records()

        name: str = string("0-12")
        topic_id: UUID = uuid("13+")
        partition_data: list[PartitionProduceData] = array(PartitionProduceData)

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@response(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """Where the batches were put, or why they were refused."""

    @struct
    class TopicProduceResponse:
        @struct
        class PartitionProduceResponse:
            @struct
            class BatchIndexAndErrorMessage:
                batch_index: int = int32("8+")
                batch_index_error_message: str | None = string("8+", nullable="8+", default=None)

            @struct
            class LeaderIdAndEpoch:
                leader_id: int = int32("10+", default=-1)
                leader_epoch: int = int32("10+", default=-1)

            index: int = int32()
            error_code: int = int16()
            base_offset: int = int64()
            log_append_time_ms: int = int64("2+", default=-1)
            log_start_offset: int = int64("5+", default=-1)
            record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
            error_message: str | None = string("8+", nullable="8+", default=None)
            current_leader: LeaderIdAndEpoch | None = optional(LeaderIdAndEpoch, "10+", tag=0)

        name: str = string("0-12")
        topic_id: UUID = uuid("13+")
        partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)

    @struct
    class NodeEndpoint:
        node_id: int = int32("10+")
        host: str = string("10+")
        port: int = int32("10+")
        rack: str | None = string("10+", nullable="10+", default=None)

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
