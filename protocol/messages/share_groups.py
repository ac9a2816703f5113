"""Share groups (KIP-932): the heartbeat of a member, and the admin's view of groups and of where they stand.

The broker assigns, several members may have the same partition. Null fields of a heartbeat mean "as before".
DescribeShareGroupOffsets v1 says how far a group is behind (KIP-1226).
"""

from __future__ import annotations

from uuid import UUID

from protocol.schema import (
    array,
    boolean,
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


@request(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """A sign of life of a member; with epoch 0 it joins, with -1 it leaves."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


@response(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
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


@request(key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    """Ask for groups, their members and what each has."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


@response(key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    """Each of the groups."""

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
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            assignment: Assignment | None = optional(Assignment)

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


@request(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """Ask where groups stand; null topics: all that a group reads."""

    @struct
    class DescribeShareGroupOffsetsRequestGroup:
        @struct
        class DescribeShareGroupOffsetsRequestTopic:
            topic_name: str = string()
            partitions: list[int] = array(int32)

        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
            DescribeShareGroupOffsetsRequestTopic, nullable="0+"
        )

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


@response(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """Of each partition the first offset whose delivery is not over."""

    @struct
    class DescribeShareGroupOffsetsResponseGroup:
        @struct
        class DescribeShareGroupOffsetsResponseTopic:
            @struct
            class DescribeShareGroupOffsetsResponsePartition:
                partition_index: int = int32()
                start_offset: int = int64()
                leader_epoch: int = int32()
                lag: int = int64("1+", default=-1)
                error_code: int = int16()
                error_message: str | None = string(nullable="0+", default=None)

            topic_name: str = string()
            topic_id: UUID = uuid()
            partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
                DescribeShareGroupOffsetsResponsePartition
            )

        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)


@request(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """Let an empty group begin elsewhere."""

    @struct
    class AlterShareGroupOffsetsRequestTopic:
        @struct
        class AlterShareGroupOffsetsRequestPartition:
            partition_index: int = int32()
            start_offset: int = int64()

        topic_name: str = string()
        partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
            AlterShareGroupOffsetsRequestPartition
        )

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@response(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """Whether it does, by partition."""

    @struct
    class AlterShareGroupOffsetsResponseTopic:
        @struct
        class AlterShareGroupOffsetsResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)

        topic_name: str = string()
        topic_id: UUID = uuid()
        partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
            AlterShareGroupOffsetsResponsePartition
        )

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)


@request(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """Let an empty group forget topics."""

    @struct
    class DeleteShareGroupOffsetsRequestTopic:
        topic_name: str = string()

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


@response(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """Whether it does, by topic."""

    @struct
    class DeleteShareGroupOffsetsResponseTopic:
        topic_name: str = string()
        topic_id: UUID = uuid()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)
