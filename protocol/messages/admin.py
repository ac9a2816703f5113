"""Alter- and DescribeLogDirs (of replicas, KIP-113), ElectLeaders, Alter- and ListPartitionReassignments,
DescribeQuorum: the cluster as its administrator sees it.

DescribeLogDirs v2: flexible. v3: an error for the whole answer. v4: bytes of the volume (KIP-827).
ElectLeaders v1: kind of election. v2: flexible. DescribeQuorum v1: when a voter fetched last (KIP-836).
v2: the nodes, their directories (KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    struct,
    uint16,
    uuid,
)


@request(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Move partitions to other data directories of this broker, named by their absolute paths."""

    @struct
    class AlterReplicaLogDir:
        @struct
        class AlterReplicaLogDirTopic:
            name: str = string()
            partitions: list[int] = array(int32)

        path: str = string()
        topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@response(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """Which moves have begun."""

    @struct
    class AlterReplicaLogDirTopicResult:
        @struct
        class AlterReplicaLogDirPartitionResult:
            partition_index: int = int32()
            error_code: int = int16()

        topic_name: str = string()
        partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)


@request(key=35, versions="1-4", flexible="2+")
class DescribeLogDirsRequest:
    """Ask for data directories and the size of what lies in them; null topics mean all."""

    @struct
    class DescribableLogDirTopic:
        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@response(key=35, versions="1-4", flexible="2+")
class DescribeLogDirsResponse:
    """The directories with the sizes and lags of their partitions."""

    @struct
    class DescribeLogDirsResult:
        @struct
        class DescribeLogDirsTopic:
            @struct
            class DescribeLogDirsPartition:
                partition_index: int = int32()
                partition_size: int = int64()
                offset_lag: int = int64()
                is_future_key: bool = boolean()

            name: str = string()
            partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)

        error_code: int = int16()
        log_dir: str = string()
        topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
        total_bytes: int = int64("4+", default=-1)
        usable_bytes: int = int64("4+", default=-1)

    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


@request(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Ask for elections of partition leaders; null partitions mean all."""

    @struct
    class TopicPartitions:
        topic: str = string()
        partitions: list[int] = array(int32)

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


@response(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """What came of it; one broker has nothing to elect."""

    @struct
    class ReplicaElectionResult:
        @struct
        class PartitionResult:
            partition_id: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+")

        topic: str = string()
        partition_result: list[PartitionResult] = array(PartitionResult)

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


@request(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """Ask that partitions move to these brokers; null replicas give up a move (KIP-455)."""

    @struct
    class ReassignableTopic:
        @struct
        class ReassignablePartition:
            partition_index: int = int32()
            replicas: list[int] | None = array(int32, nullable="0+", default=None)

        name: str = string()
        partitions: list[ReassignablePartition] = array(ReassignablePartition)

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@response(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """What came of it, partition by partition."""

    @struct
    class ReassignableTopicResponse:
        @struct
        class ReassignablePartitionResponse:
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+")

        name: str = string()
        partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


@request(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Ask which partitions are moving between brokers."""

    @struct
    class ListPartitionReassignmentsTopics:
        name: str = string()
        partition_indexes: list[int] = array(int32)

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


@response(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The moving partitions."""

    @struct
    class OngoingTopicReassignment:
        @struct
        class OngoingPartitionReassignment:
            partition_index: int = int32()
            replicas: list[int] = array(int32)
            adding_replicas: list[int] = array(int32)
            removing_replicas: list[int] = array(int32)

        name: str = string()
        partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


@request(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """Ask who keeps the log of the cluster's metadata."""

    @struct
    class TopicData:
        @struct
        class PartitionData:
            partition_index: int = int32()

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    topics: list[TopicData] = array(TopicData)


@response(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """Its leader, its voters, and how far each has come."""

    @struct
    class TopicData:
        @struct
        class PartitionData:
            @struct
            class ReplicaState:
                replica_id: int = int32()
                replica_directory_id: UUID = uuid("2+")
                log_end_offset: int = int64()
                last_fetch_timestamp: int = int64("1+", default=-1)
                last_caught_up_timestamp: int = int64("1+", default=-1)

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string("2+", nullable="2+")
            leader_id: int = int32()
            leader_epoch: int = int32()
            high_watermark: int = int64()
            current_voters: list[ReplicaState] = array(ReplicaState)
            observers: list[ReplicaState] = array(ReplicaState)

        topic_name: str = string()
        partitions: list[PartitionData] = array(PartitionData)

    @struct
    class Node:
        @struct
        class Listener:
            name: str = string("2+")
            host: str = string("2+")
            port: int = uint16("2+")

        node_id: int = int32("2+")
        listeners: list[Listener] = array(Listener, "2+")

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")
