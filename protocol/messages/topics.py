"""CreateTopics, DeleteTopics, CreatePartitions: the life of a topic.

CreateTopics v4: defaults for partitions and replication. v5: flexible, answers with the configuration. v7:
topic ids. DeleteTopics v4: flexible. v5: error messages. v6: by topic id. CreatePartitions v2: flexible.
Version 6 (v3 of CreatePartitions): quota errors.
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import array, boolean, int8, int16, int32, request, response, string, struct, uuid


@request(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """Create topics with partitions, settings and, where a client insists, assignments."""

    @struct
    class CreatableTopic:
        @struct
        class CreatableReplicaAssignment:
            partition_index: int = int32()
            broker_ids: list[int] = array(int32)

        @struct
        class CreatableTopicConfig:
            name: str = string()
            value: str | None = string(nullable="0+")

        name: str = string()
        num_partitions: int = int32()
        replication_factor: int = int16()
        assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
        configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")


@response(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """What was created, a row a topic."""

    @struct
    class CreatableTopicResult:
        @struct
        class CreatableTopicConfigs:
            name: str = string("5+")
            value: str | None = string("5+", nullable="5+")
            read_only: bool = boolean("5+")
            config_source: int = int8("5+", default=-1)
            is_sensitive: bool = boolean("5+")

        name: str = string()
        topic_id: UUID = uuid("7+")
        error_code: int = int16()
        error_message: str | None = string("1+", nullable="0+")
        topic_config_error_code: int = int16("5+", tag=0)
        num_partitions: int = int32("5+", default=-1)
        replication_factor: int = int16("5+", default=-1)
        configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+")

    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


@request(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """Delete topics by name or, from v6, by id."""

    @struct
    class DeleteTopicState:
        name: str | None = string("6+", nullable="6+", default=None)
        topic_id: UUID = uuid("6+")

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()


@response(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """What was deleted, a row a topic."""

    @struct
    class DeletableTopicResult:
        name: str | None = string(nullable="6+")
        topic_id: UUID = uuid("6+")
        error_code: int = int16()
        error_message: str | None = string("5+", nullable="5+", default=None)

    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


@request(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Raise the partition count of topics; `count` is the new total."""

    @struct
    class CreatePartitionsTopic:
        @struct
        class CreatePartitionsAssignment:
            broker_ids: list[int] = array(int32)

        name: str = string()
        count: int = int32()
        assignments: list[CreatePartitionsAssignment] | None = array(
            CreatePartitionsAssignment, nullable="0+"
        )

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@response(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """What came of it, a row a topic (G22)."""

    @struct
    class CreatePartitionsTopicResult:
        name: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
