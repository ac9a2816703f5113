"""ShareGroupHeartbeat 1, ShareGroupDescribe 1 (KIP-932).

Behaviour: members of share groups; `broker/groups/share/` decides. A heartbeat that changes anything is
answered when that is durable. The first one of all waits until `__share_group_state` is there.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker.api import Later, handles
from broker.context import RequestContext
from broker.groups.epochs import JOIN_EPOCH
from broker.groups.share.group import ShareGroup, ShareMember
from broker.groups.share.heartbeats import ShareBeat, ShareHeartbeat
from broker.handlers.groups import GROUP_OPERATIONS, NOT_ASKED_FOR
from broker.handlers.share_acknowledge import check_member
from broker.handlers.share_offsets import once_there_is_a_topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

_Described = ShareGroupDescribeResponse.DescribedGroup


@handles(ShareGroupHeartbeatRequest)
def share_group_heartbeat(
    broker: Broker, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Later | Awaitable[ShareGroupHeartbeatResponse | Later]:
    if broker.shares.has_topic or request.member_epoch != JOIN_EPOCH:
        return _beat(broker, context, request)
    return once_there_is_a_topic(broker, ShareGroupHeartbeatResponse, lambda: _beat(broker, context, request))


def _beat(
    broker: Broker, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Later:
    names = request.subscribed_topic_names
    try:
        check_member(request.group_id, request.member_id)
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code)
    try:
        beat = broker.groups.shared.beat(
            ShareHeartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                epoch=request.member_epoch,
                rack_id=request.rack_id,
                client_id=context.client_id or "",
                # Kafka's form of an address without a name.
                client_host=f"/{context.client_host}",
                topic_names=None if names is None else frozenset(names),
            )
        )
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    interval_ms = broker.group_settings.of(request.group_id).share_heartbeat_interval_ms

    def finish() -> ShareGroupHeartbeatResponse:
        if any(flushed.exception() is not None for flushed in beat.waits):
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
        return _beat_response(beat, interval_ms)

    return Later(beat.waits, finish) if beat.waits else finish()


def _beat_response(beat: ShareBeat, interval_ms: int) -> ShareGroupHeartbeatResponse:
    response = ShareGroupHeartbeatResponse(member_id=beat.member_id, member_epoch=beat.epoch)
    if beat.epoch >= JOIN_EPOCH:
        response.heartbeat_interval_ms = interval_ms
    if beat.assigned is not None:
        assignment = ShareGroupHeartbeatResponse.Assignment
        response.assignment = assignment(
            topic_partitions=[
                assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in beat.assigned.items()
            ]
        )
    return response


@handles(ShareGroupDescribeRequest)
def describe_share_groups(
    broker: Broker, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    return ShareGroupDescribeResponse(
        groups=[_describe(broker, group_id, operations) for group_id in dict.fromkeys(request.group_ids)]
    )


def _describe(broker: Broker, group_id: str, operations: int) -> _Described:
    try:
        group = broker.groups.shared.existing(group_id)
    except KafkaError as error:
        return _Described(group_id=group_id, error_code=error.code, error_message=error.message or None)
    return _Described(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ShareGroup.assignor,
        members=[_described_member(broker, member) for member in group.members.values()],
        authorized_operations=operations,
    )


def _described_member(broker: Broker, member: ShareMember) -> _Described.Member:
    assignment = _Described.Member.Assignment
    topics = [(broker.topics.by_id(topic_id), indexes) for topic_id, indexes in member.assigned.items()]
    return _Described.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=assignment(
            topic_partitions=[
                assignment.TopicPartitions(
                    topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(indexes)
                )
                for topic, indexes in topics
                if topic is not None
            ]
        ),
    )
