"""What brokers write down of streams groups (KIP-1071), for Kafka's own formatters too.

In `__consumer_offsets` a key's version is its kind, as in `internal_consumer_groups.py`: 17 the group's
epoch, 19 a member, 20 and 21 the target assignment (its epoch; of a member), 22 what a member has, 23 the
topology (18 is nobody's).
"""

from __future__ import annotations

from protocol.messages.streams_groups import Endpoint, KeyValue, Subtopology, TaskIds
from protocol.schema import array, data, int8, int32, int64, optional, string, struct


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
    last_assignment_configs: list[KeyValue] | None = array(KeyValue, nullable="0+", tag=1, default=None)


@data(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """A member: who it is and which topology it runs."""

    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = optional(Endpoint, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)


@data(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The group epoch that the target assignment is made for, and when that was."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@data(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """What a member shall have."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


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

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
