"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: questions about and changes of a partition's offset
range.

ListOffsets v1: one offset for a timestamp. v2: isolation level. v4: leader epochs. v6: flexible. v7: -3,
the largest timestamp (KIP-734). v8 and v9: -4 and -5, tiered storage. v10: a timeout (KIP-1075).
OffsetForLeaderEpoch v3: replica id. v4: flexible. DeleteRecords v2: flexible.
"""

from __future__ import annotations

from protocol.schema import array, int8, int16, int32, int64, request, response, string, struct


@request(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """Ask for the first offset at or behind a timestamp; negative ones are questions of their own (G21)."""

    @struct
    class ListOffsetsTopic:
        @struct
        class ListOffsetsPartition:
            partition_index: int = int32()
            current_leader_epoch: int = int32("4+", default=-1)
            timestamp: int = int64()

        name: str = string()
        partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


@response(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """One offset a partition; offset and timestamp are -1 when no record is that young."""

    @struct
    class ListOffsetsTopicResponse:
        @struct
        class ListOffsetsPartitionResponse:
            partition_index: int = int32()
            error_code: int = int16()
            timestamp: int = int64("1+", default=-1)
            offset: int = int64("1+", default=-1)
            leader_epoch: int = int32("4+", default=-1)

        name: str = string()
        partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)

    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


@request(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Ask where an epoch ended, to find out whether what was read is still true."""

    @struct
    class OffsetForLeaderTopic:
        @struct
        class OffsetForLeaderPartition:
            partition: int = int32()
            current_leader_epoch: int = int32("2+", default=-1)
            leader_epoch: int = int32()

        topic: str = string()
        partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@response(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """The largest epoch not above the one asked for, and its end offset."""

    @struct
    class OffsetForLeaderTopicResult:
        @struct
        class EpochEndOffset:
            error_code: int = int16()
            partition: int = int32()
            leader_epoch: int = int32("1+", default=-1)
            end_offset: int = int64(default=-1)

        topic: str = string()
        partitions: list[EpochEndOffset] = array(EpochEndOffset)

    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


@request(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Forget everything before an offset; -1 stands for the high watermark."""

    @struct
    class DeleteRecordsTopic:
        @struct
        class DeleteRecordsPartition:
            partition_index: int = int32()
            offset: int = int64()

        name: str = string()
        partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@response(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """The log start offset, here called low watermark, after the deletion."""

    @struct
    class DeleteRecordsTopicResult:
        @struct
        class DeleteRecordsPartitionResult:
            partition_index: int = int32()
            low_watermark: int = int64()
            error_code: int = int16()

        name: str = string()
        partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
