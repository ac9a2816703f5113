"""The classic group protocol: coordinators, membership, and the admin's view of groups.

FindCoordinator v4: several keys at once, the answer a list (KIP-699, G12). JoinGroup v0-1 stay for old
clients (G4); v4: a member id is required first (KIP-394); v5: static members (KIP-345); v7: protocol type;
v8: reason; v9: skip the assignment. LeaveGroup v3: several members. DescribeGroups v3: authorized
operations; v6: GROUP_ID_NOT_FOUND with a message. ListGroups v4: state filter; v5: type filter.
"""

from __future__ import annotations

from protocol.schema import array, binary, boolean, int8, int16, int32, request, response, string, struct


@request(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """Ask which broker coordinates groups (key type 0) or transactions (1)."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


@response(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The coordinators; before v4 exactly one, in the fields of the message itself."""

    @struct
    class Coordinator:
        key: str = string("4+")
        node_id: int = int32("4+")
        host: str = string("4+")
        port: int = int32("4+")
        error_code: int = int16("4+")
        error_message: str | None = string("4+", nullable="4+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


@request(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Enter a group, or enter again for its next generation."""

    @struct
    class JoinGroupRequestProtocol:
        name: str = string()
        metadata: bytes = binary()

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None)


@response(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The generation that was formed; only the leader is told the members."""

    @struct
    class JoinGroupResponseMember:
        member_id: str = string()
        group_instance_id: str | None = string("5+", nullable="5+", default=None)
        metadata: bytes = binary()

    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


@request(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Ask for the assignment; the leader brings everybody's."""

    @struct
    class SyncGroupRequestAssignment:
        member_id: str = string()
        assignment: bytes = binary()

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@response(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """A member's assignment, opaque to the broker."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = binary()


@request(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Say that a member is alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@response(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """Nothing, or that the group rebalances."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()


@request(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """Leave a group: one member before v3, several from then on."""

    @struct
    class MemberIdentity:
        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        reason: str | None = string("5+", nullable="5+", default=None)

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@response(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """What came of it, from v3 a row a member."""

    @struct
    class MemberResponse:
        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+")
        error_code: int = int16("3+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


@request(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Ask for groups, their members and assignments."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


@response(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """The groups; an unknown one is Dead, from v6 GROUP_ID_NOT_FOUND."""

    @struct
    class DescribedGroup:
        @struct
        class DescribedGroupMember:
            member_id: str = string()
            group_instance_id: str | None = string("4+", nullable="4+", default=None)
            client_id: str = string()
            client_host: str = string()
            member_metadata: bytes = binary()
            member_assignment: bytes = binary()

        error_code: int = int16()
        error_message: str | None = string("6+", nullable="6+", default=None)
        group_id: str = string()
        group_state: str = string()
        protocol_type: str = string()
        protocol_data: str = string()
        members: list[DescribedGroupMember] = array(DescribedGroupMember)
        authorized_operations: int = int32("3+", default=-2147483648)

    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)


@request(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """Ask which groups there are, by state (v4) and type (v5)."""

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


@response(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups and their protocol types."""

    @struct
    class ListedGroup:
        group_id: str = string()
        protocol_type: str = string()
        group_state: str = string("4+")
        group_type: str = string("5+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


@request(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Delete groups without members, offsets and all."""

    groups_names: list[str] = array(string)


@response(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """What came of it, a row a group."""

    @struct
    class DeletableGroupResult:
        group_id: str = string()
        error_code: int = int16()

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
