"""FindCoordinator 0-6, JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, DescribeGroups 0-6,
ListGroups 0-5, DeleteGroups 0-2.

Behaviour: the classic group protocol, whole; `broker/groups/` decides, here versions are translated. A group
of the consumer protocol, or a share group, is listed, and described as one that is not there
(`consumer_groups.py`, `share_groups.py`). The one node coordinates every group and transactional id. Not
implemented: share keys in FindCoordinator, which only brokers ask for (refused with INVALID_REQUEST).

Version notes: JoinGroup v4+ asks new members to come back with an id, v7+ allows a null protocol name, v9+
can tell a leader to skip its assignment. LeaveGroup v3+ and FindCoordinator v4+ are batches. DescribeGroups
v6+ says GROUP_ID_NOT_FOUND where older versions describe a dead group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from broker.api import Later, handles
from broker.context import RequestContext
from broker.groups.joining import JoinRequest
from broker.groups.membership import Group, JoinResult, SyncRequest, SyncResult
from broker.groups.state import GroupState
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

_GROUP, _TRANSACTION = 0, 1
NOT_ASKED_FOR = -(1 << 31)
# Read, delete, describe, describe and alter configs: what nobody is kept from without an authorizer.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))


# FindCoordinator


@handles(FindCoordinatorRequest)
def find_coordinator(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    if request.key_type not in (_GROUP, _TRANSACTION):
        refusal = KafkaError(ErrorCode.INVALID_REQUEST, f"key type {request.key_type} is not supported")
        return _coordinators(broker, context, request, refusal)
    if request.key_type == _TRANSACTION:
        has_topic, ensure_topic = broker.transactions.has_topic, broker.transactions.ensure_topic
    else:
        has_topic, ensure_topic = broker.groups.has_offsets_topic, broker.groups.ensure_offsets_topic
    if has_topic:
        return _coordinators(broker, context, request)
    return _once_there_is_a_topic(broker, context, request, ensure_topic)


async def _once_there_is_a_topic(
    broker: Broker,
    context: RequestContext,
    request: FindCoordinatorRequest,
    ensure_topic: Callable[[], Awaitable[None]],
) -> FindCoordinatorResponse:
    try:
        await ensure_topic()
    except KafkaError as error:
        refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        return _coordinators(broker, context, request, refusal)
    return _coordinators(broker, context, request)


def _coordinators(
    broker: Broker,
    context: RequestContext,
    request: FindCoordinatorRequest,
    refusal: KafkaError | None = None,
) -> FindCoordinatorResponse:
    host, port, node_id = context.listener.advertised_host, context.listener.advertised_port, broker.node_id
    error, message = ErrorCode.NONE, None
    if refusal is not None:
        error, message = refusal.code, refusal.message
        host, port, node_id = "", -1, -1
    if context.api_version < 4:
        return FindCoordinatorResponse(
            error_code=error, error_message=message, node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message
            )
            for key in request.coordinator_keys
        ]
    )


# JoinGroup


@handles(JoinGroupRequest)
def join_group(
    broker: Broker, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Later:
    version = context.api_version
    join = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        # Kafka's form of an address without a name.
        client_host=f"/{context.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        requires_known_member_id=version >= 4,
        can_skip_assignment=version >= 9,
    )
    try:
        result = broker.groups.join(join)
    except KafkaError as error:
        return _join_response(JoinResult(request.member_id, error.code), version)
    if isinstance(result, JoinResult):
        return _join_response(result, version)
    waiter: asyncio.Future[Any] = result
    return Later([waiter], lambda: _join_response(waiter.result(), version))


def _join_response(result: JoinResult, version: int) -> JoinGroupResponse:
    name = result.protocol_name
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name="" if name is None and version < 7 else name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=group_instance_id, metadata=metadata
            )
            for member_id, group_instance_id, metadata in result.members
        ],
    )


# SyncGroup


@handles(SyncGroupRequest)
def sync_group(
    broker: Broker, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Later:
    sync = SyncRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    if context.api_version >= 5 and (sync.protocol_type is None or sync.protocol_name is None):
        # KIP-559: from v5 on a member has to say what it believes to take part in.
        return _sync_response(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    try:
        result = broker.groups.sync(sync)
    except KafkaError as error:
        return _sync_response(SyncResult(error.code))
    if isinstance(result, SyncResult):
        return _sync_response(result)
    waiter: asyncio.Future[Any] = result
    return Later([waiter], lambda: _sync_response(waiter.result()))


def _sync_response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


# Heartbeat, LeaveGroup


@handles(HeartbeatRequest)
def heartbeat(broker: Broker, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        error = broker.groups.heartbeat(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )
    except KafkaError as refused:
        error = refused.code
    return HeartbeatResponse(error_code=error)


@handles(LeaveGroupRequest)
def leave_group(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    is_batch = context.api_version >= 3
    leaving: list[tuple[str, str | None]] = (
        [(member.member_id, member.group_instance_id) for member in request.members]
        if is_batch
        else [(request.member_id, None)]
    )
    try:
        errors = broker.groups.leave(request.group_id, leaving)
    except KafkaError as refused:
        if not is_batch or refused.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveGroupResponse(error_code=refused.code)
        # No such group: every member of the batch is unknown, the request as such is well.
        errors = [refused.code] * len(leaving)
    if not is_batch:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member_id, group_instance_id=group_instance_id, error_code=error
            )
            for (member_id, group_instance_id), error in zip(leaving, errors, strict=True)
        ]
    )


# DescribeGroups, ListGroups, DeleteGroups


@handles(DescribeGroupsRequest)
def describe_groups(
    broker: Broker, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    return DescribeGroupsResponse(
        groups=[
            _describe(broker, group_id, context.api_version, operations)
            for group_id in dict.fromkeys(request.groups)
        ]
    )


def _describe(
    broker: Broker, group_id: str, version: int, operations: int
) -> DescribeGroupsResponse.DescribedGroup:
    try:
        group = broker.groups.find(group_id)
    except KafkaError as error:
        return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=error.code)
    if not isinstance(group, Group):
        is_told = version >= 6
        what = "not found" if group is None else "is not a classic group"
        return DescribeGroupsResponse.DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.NONE,
            error_message=f"Group {group_id} {what}." if is_told else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            authorized_operations=NOT_ASKED_FOR if is_told else operations,
        )
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if group.state is GroupState.STABLE else "",
        members=_described_members(group),
        authorized_operations=operations,
    )


def _described_members(group: Group) -> list[DescribeGroupsResponse.DescribedGroup.DescribedGroupMember]:
    # Between generations a member still owns what it was assigned; what it subscribes to may have changed.
    is_stable = group.state is GroupState.STABLE
    return [
        DescribeGroupsResponse.DescribedGroup.DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_of(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


@handles(ListGroupsRequest)
def list_groups(broker: Broker, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    try:
        groups = broker.groups.list_groups(request.states_filter, request.types_filter)
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=group.kind,
            )
            for group in groups
        ]
    )


@handles(DeleteGroupsRequest)
def delete_groups(
    broker: Broker, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Later:
    results: dict[str, ErrorCode] = {}
    waits: dict[str, list[asyncio.Future[None]]] = {}
    for group_id in request.groups_names:
        try:
            waits[group_id] = broker.groups.delete_group(group_id)
        except KafkaError as error:
            results.setdefault(group_id, error.code)
            continue
        results[group_id] = ErrorCode.NONE

    def finish() -> DeleteGroupsResponse:
        for group_id, of_group in waits.items():
            if any(flushed.exception() is not None for flushed in of_group):
                results[group_id] = ErrorCode.NOT_COORDINATOR
        return DeleteGroupsResponse(
            results=[
                DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
                for group_id, error in results.items()
            ]
        )

    flushes = [flushed for of_group in waits.values() for flushed in of_group]
    return Later(flushes, finish) if flushes else finish()
