"""What brokers write down of streams groups (KIP-1071), for Kafka's own formatters too.

In `__consumer_offsets` a key's version is its kind, as in `internal_consumer_groups.py`: 17 the group's
epoch, 19 a member, 20 and 21 the target assignment (its epoch; of a member), 22 what a member has, 23 the
topology (18 is nobody's).
"""

from __future__ import annotations

from protocol.schema import array, data, int8, int16, int32, int64, optional, string, struct, uint16


@struct
class StoredKeyValue:
    """A setting, or a client tag."""

    key: str = string()
    value: str = string()


@struct
class StoredTaskIds:
    """Tasks of a subtopology, by partition."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@struct
class StoredTasks:
    """Tasks that a member has; active ones with the epoch of each in which it got them."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0, default=None)


@data(versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """A group's epoch: how often what it has to divide, or among whom, has changed."""

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(tag=0, default=-1)
    last_assignment_configs: list[StoredKeyValue] | None = array(
        StoredKeyValue, nullable="0+", tag=1, default=None
    )


@data(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """A member: who it is and which topology it runs."""

    @struct
    class Endpoint:
        host: str = string()
        port: int = uint16()

    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = optional(Endpoint, nullable="0+")
    client_tags: list[StoredKeyValue] = array(StoredKeyValue)


@data(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The group epoch that the target assignment is made for, and when that was."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@data(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """What a member shall have."""

    active_tasks: list[StoredTaskIds] = array(StoredTaskIds)
    standby_tasks: list[StoredTaskIds] = array(StoredTaskIds)
    warmup_tasks: list[StoredTaskIds] = array(StoredTaskIds)


@data(versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """What a member has, what it has still to give back, and where it stands."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[StoredTasks] = array(StoredTasks)
    standby_tasks: list[StoredTasks] = array(StoredTasks)
    warmup_tasks: list[StoredTasks] = array(StoredTasks)
    active_tasks_pending_revocation: list[StoredTasks] = array(StoredTasks)
    standby_tasks_pending_revocation: list[StoredTasks] = array(StoredTasks)
    warmup_tasks_pending_revocation: list[StoredTasks] = array(StoredTasks)


@data(versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """What the members run, as the first of them said."""

    @struct
    class Subtopology:
        @struct
        class TopicInfo:
            name: str = string()
            partitions: int = int32()
            replication_factor: int = int16()
            topic_configs: list[StoredKeyValue] = array(StoredKeyValue)

        @struct
        class CopartitionGroup:
            source_topics: list[int] = array(int16)
            source_topic_regex: list[int] = array(int16)
            repartition_source_topics: list[int] = array(int16)

        subtopology_id: str = string()
        source_topics: list[str] = array(string)
        source_topic_regex: list[str] = array(string)
        state_changelog_topics: list[TopicInfo] = array(TopicInfo)
        repartition_sink_topics: list[str] = array(string)
        repartition_source_topics: list[TopicInfo] = array(TopicInfo)
        copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
