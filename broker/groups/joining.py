"""JoinGroup decided: who may join, under which id, and whether that needs a rebalance.

Mirrors the join half of Kafka's GroupCoordinator: MEMBER_ID_REQUIRED (KIP-394), static instances (KIP-345),
the leader that may skip its assignment (KIP-814), `group.max.size` (KIP-389).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass

from broker.groups import records
from broker.groups.contents import Contents
from broker.groups.membership import Group, JoinResult, Member, Protocols, SyncResult
from broker.groups.rebalance import Rebalancer
from broker.groups.state import GroupState
from broker.groups.storing import STORE_ERRORS
from broker.state_topic import StateTopic, fits, when_durable
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MEMBER_NAME_CHARACTERS = 255
"""how much of its client's or instance's name a member id begins with"""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup, freed from its version."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    # v4+: a new dynamic member must come back with the id it is given.
    requires_known_member_id: bool
    # v9+: a leader may be told not to compute an assignment.
    can_skip_assignment: bool


def new_member_id(request: JoinRequest) -> str:
    """An id for who has none, by which it can be recognised."""
    instance_id = request.group_instance_id
    named = instance_id if instance_id is not None else request.client_id
    return f"{named[:MEMBER_NAME_CHARACTERS]}-{uuid.uuid4()}"


class Joining:
    """Owned by: event loop."""

    def __init__(self, rebalancer: Rebalancer, store: StateTopic[Contents]) -> None:
        self._rebalancer = rebalancer
        self._store = store

    def check_limits(self, request: JoinRequest) -> None:
        """What is wrong with the request whatever the group's state is."""
        config = self._rebalancer.config
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group id is needed")
        records.check_group_id(request.group_id)
        names = (request.group_instance_id or "", request.protocol_type, *dict(request.protocols))
        if not all(map(fits, names)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a name is too long")
        if (
            not config.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= config.group_max_session_timeout_ms
        ):
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT, f"{request.session_timeout_ms} ms")
        # A group is stored as one record: what cannot fit one message can never be stored.
        if sum(len(name) + len(metadata) for name, metadata in request.protocols) > config.message_max_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, "the member's protocol metadata exceeds message.max.bytes"
            )

    def join(self, group: Group, request: JoinRequest) -> JoinResult | asyncio.Future[JoinResult]:
        """Take the member in or back; the future resolves when the group's join phase ends."""
        max_size = self._rebalancer.config.group_max_size
        if not group.has_room(request.member_id, max_size):
            group.remove(request.member_id)
            return JoinResult("", ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.accepts(request.protocol_type, request.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol that all members support")
        if not request.member_id:
            return self._join_unknown(group, request)
        return self._join_known(group, request)

    def _join_unknown(self, group: Group, request: JoinRequest) -> JoinResult | asyncio.Future[JoinResult]:
        instance_id = request.group_instance_id
        member_id = new_member_id(request)
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is not None:
                return self._replace_static(group, request, current, member_id)
        elif request.requires_known_member_id:
            self._rebalancer.expect_join(group, member_id, request.session_timeout_ms)
            return JoinResult(member_id, ErrorCode.MEMBER_ID_REQUIRED)
        return self._add(group, request, member_id)

    def _join_known(self, group: Group, request: JoinRequest) -> JoinResult | asyncio.Future[JoinResult]:
        if request.member_id in group.pending_members:
            if request.group_instance_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "a static member is never asked to come back")
            return self._add(group, request, request.member_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        if group.state is GroupState.PREPARING_REBALANCE or not member.supports(request.protocols):
            return self._rejoin(group, member, request)
        is_leader = group.leader_id == member.member_id
        if group.state is GroupState.STABLE and is_leader:
            # Only the leader sees changed topic metadata: its rejoin means that it wants to assign anew.
            return self._rejoin(group, member, request)
        # The member missed its answer: the generation that it is in already (T187).
        return self._rebalancer.generation_result(group, member)

    def _add(self, group: Group, request: JoinRequest, member_id: str) -> asyncio.Future[JoinResult]:
        waiter: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=list(request.protocols),
            is_new=True,
            join_waiter=waiter,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        if group.is_initial_delay:
            group.new_member_added = True
        group.add(member)
        self._rebalancer.expect_first_generation(member, group)
        self._rebalancer.start_if_possible(group, f"new member {member_id}")
        self._rebalancer.complete_join_if_ready(group)
        return waiter

    def _rejoin(self, group: Group, member: Member, request: JoinRequest) -> asyncio.Future[JoinResult]:
        waiter: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        # An older JoinGroup of the same member came over a connection that its client gave up.
        group.answer_join(member, JoinResult(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
        self._update(group, member, request)
        group.set_join_waiter(member, waiter)
        self._rebalancer.start_if_possible(group, f"{member.member_id} rejoins")
        self._rebalancer.complete_join_if_ready(group)
        return waiter

    def _update(self, group: Group, member: Member, request: JoinRequest) -> None:
        group.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host

    # static members

    def _replace_static(
        self, group: Group, request: JoinRequest, old_member_id: str, member_id: str
    ) -> asyncio.Future[JoinResult]:
        """The instance restarted: it takes its old place, whoever still uses the old id is fenced (T188)."""
        member = group.members[old_member_id]
        group.answer_join(member, JoinResult(old_member_id, ErrorCode.FENCED_INSTANCE_ID))
        group.answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        former = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        was_leader = group.leader_id == old_member_id
        group.rename(old_member_id, member_id)
        self._update(group, member, request)
        waiter: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            undo = _Undo(old_member_id, *former)
            self._rebalancer.touch(member, group)
            self._store_replacement(
                group, member, undo, self._standing(group, request, member, undo, was_leader), waiter
            )
            return waiter
        group.set_join_waiter(member, waiter)
        self._rebalancer.start_if_possible(group, f"static member {request.group_instance_id} was replaced")
        self._rebalancer.complete_join_if_ready(group)
        return waiter

    def _standing(
        self, group: Group, request: JoinRequest, member: Member, undo: _Undo, was_leader: bool
    ) -> JoinResult:
        """The standing generation for a member that came back. The group is stable, so a leader's new
        assignment would reach nobody: one that cannot be told to skip it is not told that it leads.
        """
        result = self._rebalancer.generation_result(group, member)
        if was_leader:
            result.skip_assignment = request.can_skip_assignment
            if not request.can_skip_assignment:
                result.leader_id = undo.member_id
                result.members = []
        return result

    def _store_replacement(
        self,
        group: Group,
        member: Member,
        undo: _Undo,
        result: JoinResult,
        waiter: asyncio.Future[JoinResult],
    ) -> None:
        member_id = member.member_id

        def stored(error: KafkaError | None) -> None:
            if error is not None:
                logger.warning("group %s: replaced static member not stored: %s", group.group_id, error)
                self._restore(group, member_id, undo)
            if not waiter.done():
                waiter.set_result(
                    result if error is None else JoinResult("", STORE_ERRORS.get(error.code, error.code))
                )

        assignments = {other.member_id: other.assignment for other in group.members.values()}
        value = records.group_value(group, assignments)
        try:
            written = self._store.append(group.group_id, [(records.group_key(group.group_id), value)])
        except KafkaError as error:
            stored(error)
        else:
            when_durable(written, stored)

    def _restore(self, group: Group, member_id: str, undo: _Undo) -> None:
        member = group.members.get(member_id)
        if member is not None:
            group.rename(member_id, undo.member_id)
            group.set_protocols(member, undo.protocols)
            member.rebalance_timeout_ms = undo.rebalance_timeout_ms
            member.session_timeout_ms = undo.session_timeout_ms
            self._rebalancer.touch(member, group)


@dataclass(frozen=True, slots=True)
class _Undo:
    """A static member as it was before its replacement, for the case that the record cannot be stored."""

    member_id: str
    protocols: list[tuple[str, bytes]]
    rebalance_timeout_ms: int
    session_timeout_ms: int
