"""The consumer group protocol (KIP-848): one heartbeat for joining, reconciling and leaving, and the admin's
view.

The broker assigns; a member's heartbeats say what it subscribes to and what it owns, the answers what it may
own. Null fields of a request mean "as before". ConsumerGroupHeartbeat v1: a regular expression (KIP-848), and
the client makes its member id (KIP-1082). ConsumerGroupDescribe v1: which protocol a member speaks
(KIP-1099). Last come what members of the classic protocol say within JoinGroup and SyncGroup, for groups in
which both meet.
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import (
    array,
    binary,
    boolean,
    data,
    int8,
    int16,
    int32,
    optional,
    request,
    response,
    string,
    struct,
    uuid,
)


@request(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """A sign of life of a member; with epoch 0 it joins, with -1 it leaves, with -2 it leaves for a while."""

    @struct
    class TopicPartitions:
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


@response(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """Where the member stands; the assignment only where it changed, or everything was asked for."""

    @struct
    class Assignment:
        @struct
        class TopicPartitions:
            topic_id: UUID = uuid()
            partitions: list[int] = array(int32)

        topic_partitions: list[TopicPartitions] = array(TopicPartitions)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = optional(Assignment, nullable="0+")


@request(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """Ask what groups of this protocol look like."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@response(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """The groups, their members, what each has and what it shall have."""

    @struct
    class DescribedGroup:
        @struct
        class Member:
            @struct
            class Assignment:
                @struct
                class TopicPartitions:
                    topic_id: UUID = uuid()
                    topic_name: str = string()
                    partitions: list[int] = array(int32)

                topic_partitions: list[TopicPartitions] = array(TopicPartitions)

            member_id: str = string()
            instance_id: str | None = string(nullable="0+", default=None)
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            subscribed_topic_regex: str | None = string(nullable="0+", default=None)
            assignment: Assignment | None = optional(Assignment)
            target_assignment: Assignment | None = optional(Assignment)
            member_type: int = int8("1+", default=-1)

        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[Member] = array(Member)
        authorized_operations: int = int32(default=-2147483648)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)


@data(versions="0-3")
class ConsumerProtocolSubscription:
    """What a member of the classic protocol tells its leader: the metadata of its JoinGroup."""

    @struct
    class TopicPartition:
        topic: str = string("1+")
        partitions: list[int] = array(int32, "1+")

    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


@data(versions="0-3")
class ConsumerProtocolAssignment:
    """What a member of the classic protocol is assigned, in its SyncGroup."""

    @struct
    class TopicPartition:
        topic: str = string()
        partitions: list[int] = array(int32)

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = binary(nullable="0+", default=None)
