"""ConsumerGroupHeartbeat 0-1, ConsumerGroupDescribe 0-1 (KIP-848).

Behaviour: the consumer group protocol; `broker/groups/consumer/` decides, here versions are translated. A
heartbeat that changes anything is answered when that is durable. A group of the classic protocol is described
as one that is not there (`groups.py`): the admin client asks for both.

Version notes: v1 of the heartbeat brings regular expressions, and the client makes its member id; v1 of the
description says which protocol a member speaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.api import Later, handles
from broker.context import RequestContext
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.heartbeats import Beat, Heartbeat
from broker.groups.consumer.member import (
    ConsumerMember,
    partitions_of,
)
from broker.groups.epochs import JOIN_EPOCH
from broker.groups.topics import Partitions, everything
from broker.handlers.groups import GROUP_OPERATIONS, NOT_ASKED_FOR
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

_Described = ConsumerGroupDescribeResponse.DescribedGroup
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


@handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Later:
    names = request.subscribed_topic_names
    beat = Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        # Kafka's form of an address without a name.
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=_owned(request),
        may_know=everything if broker.authorizer is None else broker.authorizer.knower(context),
    )
    try:
        answer = broker.groups.beat(beat, api_version=context.api_version)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    interval_ms = broker.group_settings.of(request.group_id).consumer_heartbeat_interval_ms
    if answer.flushed is None:
        return _beat_response(answer, interval_ms)
    flushed = answer.flushed

    def finish() -> ConsumerGroupHeartbeatResponse:
        if flushed.exception() is not None:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
        return _beat_response(answer, interval_ms)

    return Later([flushed], finish)


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return {one.topic_id: frozenset(one.partitions) for one in request.topic_partitions}


def _beat_response(beat: Beat, interval_ms: int) -> ConsumerGroupHeartbeatResponse:
    response = ConsumerGroupHeartbeatResponse(member_id=beat.member_id, member_epoch=beat.epoch)
    if beat.epoch >= JOIN_EPOCH:
        response.heartbeat_interval_ms = interval_ms
    if beat.assigned is not None:
        assignment = ConsumerGroupHeartbeatResponse.Assignment
        response.assignment = assignment(
            topic_partitions=[
                assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in beat.assigned.items()
            ]
        )
    return response


@handles(ConsumerGroupDescribeRequest)
def describe_consumer_groups(
    broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    return ConsumerGroupDescribeResponse(
        groups=[_describe(broker, group_id, operations) for group_id in dict.fromkeys(request.group_ids)]
    )


def _describe(broker: Broker, group_id: str, operations: int) -> _Described:
    try:
        group = broker.groups.find_named(group_id)
    except KafkaError as error:
        return _Described(group_id=group_id, error_code=error.code)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return _Described(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {what}.",
            group_id=group_id,
        )
    return _Described(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_described_member(broker, group, member) for member in group.members.values()],
        authorized_operations=operations,
    )


def _described_member(broker: Broker, group: ConsumerGroup, member: ConsumerMember) -> _Described.Member:
    return _Described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex or "",
        assignment=_described_partitions(broker, _had(member)),
        target_assignment=_described_partitions(broker, group.targets.get(member.member_id, {})),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _had(member: ConsumerMember) -> Partitions:
    """What a member has, with what it has still to give back."""
    assigned, pending = partitions_of(member.assigned), partitions_of(member.pending_revocation)
    return {
        topic_id: assigned.get(topic_id, frozenset()) | pending.get(topic_id, frozenset())
        for topic_id in assigned.keys() | pending.keys()
    }


def _described_partitions(broker: Broker, partitions: Partitions) -> _Described.Member.Assignment:
    assignment = _Described.Member.Assignment
    topics = [(broker.topics.by_id(topic_id), indexes) for topic_id, indexes in partitions.items()]
    return assignment(
        topic_partitions=[
            assignment.TopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(indexes)
            )
            for topic, indexes in topics
            if topic is not None
        ]
    )
