"""StreamsGroupHeartbeat 0, StreamsGroupDescribe 0 (KIP-1071).

Behaviour: members of Kafka Streams applications; `broker/groups/streams/` decides. A heartbeat that changes
anything is answered when that is durable, and when the internal topics that it found missing have been made
by the client's rights: the answer still says that they were missing, the next heartbeat finds them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.api import Later, handles
from broker.context import RequestContext
from broker.groups.epochs import JOIN_EPOCH
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.heartbeats import StreamsBeat, StreamsHeartbeat
from broker.groups.streams.member import Assignment, Endpoint, HeldPartitions, StreamsMember, Tasks
from broker.groups.streams.topology import (
    Status,
    StatusCode,
    check_names,
    some_of,
)
from broker.handlers.groups import GROUP_OPERATIONS, NOT_ASKED_FOR
from broker.handlers.topics import create_topics
from broker.security.acls import CLUSTER_NAME, Asker, Operation, Resource
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import streams_groups as messages
from protocol.messages.internal_streams_groups import StreamsGroupTopologyValue
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TopicInfo,
)
from protocol.messages.topics import CreateTopicsRequest

if TYPE_CHECKING:
    from broker.broker import Broker

_Described = StreamsGroupDescribeResponse.DescribedGroup
_EndpointToPartitions = StreamsGroupHeartbeatResponse.EndpointToPartitions
_Creatable = CreateTopicsRequest.CreatableTopic
BROKER_DEFAULT = -1


@handles(StreamsGroupHeartbeatRequest)
def streams_group_heartbeat(
    broker: Broker, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse | Later | Awaitable[StreamsGroupHeartbeatResponse]:
    try:
        topology = None
        if (told := request.topology) is not None:
            topology = StreamsGroupTopologyValue(epoch=told.epoch, subtopologies=told.subtopologies)
            check_names(topology)
        _check_features(request)
        beat = broker.groups.beat_streams(_heartbeat(context, request, topology))
    except KafkaError as error:
        return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)
    interval_ms = broker.group_settings.of(request.group_id).streams_heartbeat_interval_ms

    def finish() -> StreamsGroupHeartbeatResponse:
        if beat.flushed is not None and beat.flushed.exception() is not None:
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
        return _beat_response(beat, interval_ms)

    if beat.configured.missing:
        return _when_topics_are_made(broker, context, beat, interval_ms)
    return finish() if beat.flushed is None else Later([beat.flushed], finish)


def _check_features(request: StreamsGroupHeartbeatRequest) -> None:
    """What Kafka 4.3 does not serve yet either."""
    for value, problem in (
        (request.instance_id, "Static membership is not yet supported."),
        (request.task_offsets, "TaskOffsets are not supported yet."),
        (request.task_end_offsets, "TaskEndOffsets are not supported yet."),
    ):
        if value is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    if request.warmup_tasks:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "WarmupTasks are not supported yet.")
    subtopologies = request.topology.subtopologies if request.topology is not None else ()
    if any(one.source_topic_regex for one in subtopologies):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet."
        )


def _heartbeat(
    context: RequestContext,
    request: StreamsGroupHeartbeatRequest,
    topology: StreamsGroupTopologyValue | None,
) -> StreamsHeartbeat:
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        endpoints_epoch=request.endpoint_information_epoch,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        # Kafka's form of an address without a name.
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        topology=topology,
        owned=_owned(request),
        process_id=request.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else {tag.key: tag.value for tag in tags},
        wants_shutdown=request.shutdown_application,
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> Assignment | None:
    told = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if told == (None, None, None):
        return None
    if None in told:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "If one task-type is non-null, all must be non-null.")
    return Assignment(*(_tasks(tasks or ()) for tasks in told))


def _tasks(told: Iterable[messages.TaskIds]) -> Tasks:
    return {one.subtopology_id: frozenset(one.partitions) for one in told if one.partitions}


# internal topics


async def _when_topics_are_made(
    broker: Broker, context: RequestContext, beat: StreamsBeat, interval_ms: int
) -> StreamsGroupHeartbeatResponse:
    """Make what is missing; why it could not be is told with what is missing."""
    if beat.flushed is not None:
        try:
            await beat.flushed
        except KafkaError:
            return StreamsGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    response = _beat_response(beat, interval_ms)
    problem = await _make_topics(broker, context, beat.configured.missing, beat.configured.sizes)
    for status in response.status or ():
        if problem and status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {problem}."
    return response


async def _make_topics(
    broker: Broker, context: RequestContext, missing: Sequence[TopicInfo], sizes: Mapping[str, int]
) -> str:
    """What stood in the way, if anything."""
    secret = [info.name for info in missing if not _may_create(broker, context, info.name)]
    if secret:
        return f"Unauthorized to CREATE on topics {', '.join(secret)}"
    wanted = [
        _Creatable(
            name=info.name,
            num_partitions=sizes[info.name],
            replication_factor=info.replication_factor or BROKER_DEFAULT,
            configs=[
                _Creatable.CreatableTopicConfig(name=one.key, value=one.value) for one in info.topic_configs
            ],
        )
        for info in missing
    ]
    try:
        made = await create_topics(broker, context, CreateTopicsRequest(topics=wanted))
    except KafkaError as error:
        # All together cannot be made, for they are too many. The member is one all the same, and told so.
        return _creation_failed(f"{row.name} ({error.message or error.code.name})" for row in wanted)
    return _creation_failed(
        f"{row.name} ({row.error_message or ErrorCode(row.error_code).name})"
        for row in made.topics
        # Another member's heartbeat may have been first.
        if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    )


def _creation_failed(rows: Iterable[str]) -> str:
    failed = list(rows)
    return f"Creation failed: {some_of(failed, 'more')}" if failed else ""


def _may_create(broker: Broker, context: RequestContext, name: str) -> bool:
    authorizer = broker.authorizer
    if authorizer is None:
        return True
    asker = Asker(context.principal, context.client_host)
    return authorizer.allows(asker, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME) or authorizer.allows(
        asker, Operation.CREATE, Resource.TOPIC, name
    )


# answers


def _beat_response(beat: StreamsBeat, interval_ms: int) -> StreamsGroupHeartbeatResponse:
    response = StreamsGroupHeartbeatResponse(
        member_id=beat.member_id,
        member_epoch=beat.epoch,
        status=[_status(status) for status in beat.statuses],
        endpoint_information_epoch=beat.endpoints_epoch,
    )
    if beat.epoch >= JOIN_EPOCH:
        response.heartbeat_interval_ms = interval_ms
    if beat.assigned is not None:
        response.active_tasks, response.standby_tasks, response.warmup_tasks = map(_told, beat.assigned)
    if beat.endpoints is not None:
        response.partitions_by_user_endpoint = [_told_endpoint(held) for held in beat.endpoints]
    return response


def _status(status: Status) -> StreamsGroupHeartbeatResponse.Status:
    return StreamsGroupHeartbeatResponse.Status(status_code=status.code, status_detail=status.detail)


def _told(tasks: Tasks) -> list[messages.TaskIds]:
    return [messages.TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _told_endpoint(held: HeldPartitions) -> _EndpointToPartitions:
    row = _EndpointToPartitions.TopicPartition
    return _EndpointToPartitions(
        user_endpoint=messages.Endpoint(host=held.endpoint.host, port=held.endpoint.port),
        active_partitions=[row(topic=name, partitions=list(partitions)) for name, partitions in held.active],
        standby_partitions=[
            row(topic=name, partitions=list(partitions)) for name, partitions in held.standby
        ],
    )


@handles(StreamsGroupDescribeRequest)
def describe_streams_groups(
    broker: Broker, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    return StreamsGroupDescribeResponse(
        groups=[_describe(broker, group_id, operations) for group_id in dict.fromkeys(request.group_ids)]
    )


def _describe(broker: Broker, group_id: str, operations: int) -> _Described:
    try:
        group = broker.groups.find_named(group_id)
    except KafkaError as error:
        return _Described(group_id=group_id, error_code=error.code)
    if not isinstance(group, StreamsGroup):
        what = "not found" if group is None else "is not a streams group"
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
        topology=_described_topology(group),
        members=[_described_member(group, member) for member in group.members.values()],
        authorized_operations=operations,
    )


def _described_topology(group: StreamsGroup) -> _Described.Topology | None:
    """With the numbers of partitions that internal topics have, once all are there."""
    if group.topology is None:
        return None
    configured = group.configured
    sizes = configured.sizes if configured is not None and configured.problem is None else {}
    return _Described.Topology(
        epoch=group.topology.epoch,
        subtopologies=[
            _Described.Topology.Subtopology(
                subtopology_id=one.subtopology_id,
                source_topics=sorted(one.source_topics),
                repartition_sink_topics=sorted(one.repartition_sink_topics),
                state_changelog_topics=_described_topics(one.state_changelog_topics, sizes),
                repartition_source_topics=_described_topics(one.repartition_source_topics, sizes),
            )
            for one in sorted(group.topology.subtopologies, key=lambda one: one.subtopology_id)
        ],
    )


def _described_topics(infos: Iterable[TopicInfo], sizes: Mapping[str, int]) -> list[TopicInfo]:
    return [
        dataclasses.replace(info, partitions=sizes.get(info.name, info.partitions))
        for info in sorted(infos, key=lambda info: info.name)
    ]


def _described_member(group: StreamsGroup, member: StreamsMember) -> _Described.Member:
    endpoint = member.endpoint
    return _Described.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint and messages.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[messages.KeyValue(key=name, value=value) for name, value in member.client_tags.items()],
        assignment=_described_tasks(member.assigned.without_epochs()),
        target_assignment=_described_tasks(group.targets.get(member.member_id, Assignment())),
    )


def _described_tasks(assignment: Assignment) -> _Described.Member.Assignment:
    active, standby, warmup = map(_told, assignment)
    return _Described.Member.Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
