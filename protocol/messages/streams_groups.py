"""Streams groups (KIP-1071): the heartbeat of a member of a Kafka Streams application, and the admin's view.

Work is divided by task: a subtopology and a partition of its source topics. Null fields of a heartbeat mean
"as before".
"""

from __future__ import annotations

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
    uint16,
)


@struct
class TaskIds:
    """Tasks of a subtopology, by partition."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@struct
class TaskOffset:
    """How far the changelog of a task goes."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@struct
class KeyValue:
    """A client tag, or a setting of a topic."""

    key: str = string()
    value: str = string()


@struct
class Endpoint:
    """Where an instance answers interactive queries."""

    host: str = string()
    port: int = uint16()


@struct
class TopicInfo:
    """An internal topic; `partitions` 0: as its sources say, `replication_factor` 0: the broker's."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


@struct
class CopartitionGroup:
    """Topics that need the same number of partitions, by their places in the subtopology."""

    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


@struct
class Subtopology:
    """A part of an application that no topic but those of the broker ties to the others."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


@request(key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatRequest:
    """A sign of life of a member; with epoch 0 it joins and says what it runs, with -1 it leaves."""

    @struct
    class Topology:
        epoch: int = int32()
        subtopologies: list[Subtopology] = array(Subtopology)

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = optional(Topology, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    process_id: str | None = string(nullable="0+", default=None)
    user_endpoint: Endpoint | None = optional(Endpoint, nullable="0+")
    client_tags: list[KeyValue] | None = array(KeyValue, nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    shutdown_application: bool = boolean()


@response(key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse:
    """Where the member stands and what keeps the group; tasks only where they changed, or it joined."""

    @struct
    class Status:
        status_code: int = int8()
        status_detail: str = string()

    @struct
    class EndpointToPartitions:
        @struct
        class TopicPartition:
            topic: str = string()
            partitions: list[int] = array(int32)

        user_endpoint: Endpoint | None = optional(Endpoint)
        active_partitions: list[TopicPartition] = array(TopicPartition)
        standby_partitions: list[TopicPartition] = array(TopicPartition)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = array(Status, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable="0+", default=None
    )


@request(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeRequest:
    """Ask for groups, what they run, their members and what each has."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@response(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeResponse:
    """Each of the groups."""

    @struct
    class DescribedGroup:
        @struct
        class Topology:
            @struct
            class Subtopology:
                subtopology_id: str = string()
                source_topics: list[str] = array(string)
                repartition_sink_topics: list[str] = array(string)
                state_changelog_topics: list[TopicInfo] = array(TopicInfo)
                repartition_source_topics: list[TopicInfo] = array(TopicInfo)

            epoch: int = int32()
            subtopologies: list[Subtopology] | None = array(Subtopology, nullable="0+", default=None)

        @struct
        class Member:
            @struct
            class Assignment:
                active_tasks: list[TaskIds] = array(TaskIds)
                standby_tasks: list[TaskIds] = array(TaskIds)
                warmup_tasks: list[TaskIds] = array(TaskIds)

            member_id: str = string()
            member_epoch: int = int32()
            instance_id: str | None = string(nullable="0+", default=None)
            rack_id: str | None = string(nullable="0+", default=None)
            client_id: str = string()
            client_host: str = string()
            topology_epoch: int = int32()
            process_id: str = string()
            user_endpoint: Endpoint | None = optional(Endpoint, nullable="0+")
            client_tags: list[KeyValue] = array(KeyValue)
            task_offsets: list[TaskOffset] = array(TaskOffset)
            task_end_offsets: list[TaskOffset] = array(TaskOffset)
            assignment: Assignment | None = optional(Assignment)
            target_assignment: Assignment | None = optional(Assignment)
            is_classic: bool = boolean()

        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        topology: Topology | None = optional(Topology, nullable="0+")
        members: list[Member] = array(Member)
        authorized_operations: int = int32(default=-2147483648)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
