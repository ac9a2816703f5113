"""OffsetCommit, OffsetFetch, OffsetDelete: what a group has consumed.

OffsetCommit v2-4: retention time (later the broker's own). v6: leader epoch. v7: static members. v8:
flexible. v9: KIP-848's member epoch. OffsetFetch v2: null topics means all. v6: flexible. v7: stable
offsets only. v8: several groups at once (KIP-709, G13). v9: member epoch. v10 of both: topic ids in place of
names (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import array, boolean, int16, int32, int64, request, response, string, struct, uuid


@request(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """Store how far a group has consumed."""

    @struct
    class OffsetCommitRequestTopic:
        @struct
        class OffsetCommitRequestPartition:
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("6+", default=-1)
            committed_metadata: str | None = string(nullable="0+")

        name: str = string("0-9")
        topic_id: UUID = uuid("10+")
        partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@response(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """What came of it, a row a partition."""

    @struct
    class OffsetCommitResponseTopic:
        @struct
        class OffsetCommitResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string("0-9")
        topic_id: UUID = uuid("10+")
        partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


@request(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """Ask how far groups have consumed; null topics mean all."""

    @struct
    class OffsetFetchRequestTopic:
        name: str = string("0-7")
        partition_indexes: list[int] = array(int32, "0-7")

    @struct
    class OffsetFetchRequestGroup:
        @struct
        class OffsetFetchRequestTopics:
            name: str = string("8-9")
            topic_id: UUID = uuid("10+")
            partition_indexes: list[int] = array(int32, "8+")

        group_id: str = string("8+")
        member_id: str | None = string("9+", nullable="9+", default=None)
        member_epoch: int = int32("9+", default=-1)
        topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@response(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """Committed offsets, -1 where there is none."""

    @struct
    class OffsetFetchResponseTopic:
        @struct
        class OffsetFetchResponsePartition:
            partition_index: int = int32("0-7")
            committed_offset: int = int64("0-7")
            committed_leader_epoch: int = int32("5-7", default=-1)
            metadata: str | None = string("0-7", nullable="0-7")
            error_code: int = int16("0-7")

        name: str = string("0-7")
        partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")

    @struct
    class OffsetFetchResponseGroup:
        @struct
        class OffsetFetchResponseTopics:
            @struct
            class OffsetFetchResponsePartitions:
                partition_index: int = int32("8+")
                committed_offset: int = int64("8+")
                committed_leader_epoch: int = int32("8+", default=-1)
                metadata: str | None = string("8+", nullable="8+")
                error_code: int = int16("8+")

            name: str = string("8-9")
            topic_id: UUID = uuid("10+")
            partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")

        group_id: str = string("8+")
        topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
        error_code: int = int16("8+")

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")


@request(key=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    """Forget committed offsets of topics nobody in the group subscribes to."""

    @struct
    class OffsetDeleteRequestTopic:
        @struct
        class OffsetDeleteRequestPartition:
            partition_index: int = int32()

        name: str = string()
        partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@response(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    """What came of it, a row a partition."""

    @struct
    class OffsetDeleteResponseTopic:
        @struct
        class OffsetDeleteResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
