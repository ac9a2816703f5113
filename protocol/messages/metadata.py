"""ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions: what a client asks before it can ask for
anything.

ApiVersions v3: flexible, client software name (KIP-511), features as tags; the response header never has
tags (G1). v4: KIP-1022. Metadata v1: null means all topics, an empty array none (G31). v4: automatic
creation. v7: leader epochs. v9: flexible. v10: topic ids. v12: topics asked for by id, their names null.
v13: an error for the whole answer.
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
    optional,
    request,
    response,
    string,
    struct,
    uuid,
)


@request(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """Ask which APIs and versions the broker serves; the first request of nearly every client."""

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


@response(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """The served versions of each API, and the cluster's features."""

    @struct
    class ApiVersion:
        api_key: int = int16()
        min_version: int = int16()
        max_version: int = int16()

    @struct
    class SupportedFeatureKey:
        name: str = string("3+")
        min_version: int = int16("3+")
        max_version: int = int16("3+")

    @struct
    class FinalizedFeatureKey:
        name: str = string("3+")
        max_version_level: int = int16("3+")
        min_version_level: int = int16("3+")

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)


@request(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """Ask for brokers, topics and partitions; may create missing topics."""

    @struct
    class MetadataRequestTopic:
        topic_id: UUID = uuid("10+")
        name: str | None = string(nullable="10+")

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@response(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """The cluster as a client needs it: brokers, controller, and each partition's leader."""

    @struct
    class MetadataResponseBroker:
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string("1+", nullable="1+", default=None)

    @struct
    class MetadataResponseTopic:
        @struct
        class MetadataResponsePartition:
            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32("7+", default=-1)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            offline_replicas: list[int] = array(int32, "5+")

        error_code: int = int16()
        name: str | None = string(nullable="12+")
        topic_id: UUID = uuid("10+")
        is_internal: bool = boolean("1+")
        partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
        topic_authorized_operations: int = int32("8+", default=-2147483648)

    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+")


@request(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """Ask for the brokers (endpoint type 1) or controllers (2) without any topics."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@response(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The cluster's id, controller and brokers."""

    @struct
    class DescribeClusterBroker:
        broker_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)
        is_fenced: bool = boolean("2+")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)


@request(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """Ask for topics in pages of partitions (KIP-966)."""

    @struct
    class TopicRequest:
        name: str = string()

    @struct
    class Cursor:
        topic_name: str = string()
        partition_index: int = int32()

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = optional(Cursor, nullable="0+")


@response(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """One page; `next_cursor` is null on the last."""

    @struct
    class DescribeTopicPartitionsResponseTopic:
        @struct
        class DescribeTopicPartitionsResponsePartition:
            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32(default=-1)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
            last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
            offline_replicas: list[int] = array(int32)

        error_code: int = int16()
        name: str | None = string(nullable="0+")
        topic_id: UUID = uuid()
        is_internal: bool = boolean()
        partitions: list[DescribeTopicPartitionsResponsePartition] = array(
            DescribeTopicPartitionsResponsePartition
        )
        topic_authorized_operations: int = int32(default=-2147483648)

    @struct
    class Cursor:
        topic_name: str = string()
        partition_index: int = int32()

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = optional(Cursor, nullable="0+")
