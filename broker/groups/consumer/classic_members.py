"""Members of the classic protocol within a consumer group (T202): JoinGroup is their heartbeat with news,
SyncGroup fetches what the broker assigned, Heartbeat says whether to join again.

Mirrors Kafka's `classicGroupJoinToConsumerGroup` and its kin. Such a member never leads; what it owns it says
in its subscription, and what it has to give back it finds missing in its assignment.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence

from broker.groups.consumer.classic_protocol import assignment_bytes, read_subscription, version_of
from broker.groups.consumer.draft import Draft
from broker.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from broker.groups.consumer.heartbeats import Heartbeats
from broker.groups.consumer.member import (
    ClassicProtocol,
    ConsumerMember,
    MemberState,
    partitions_of,
)
from broker.groups.epoch_group import Deadline
from broker.groups.joining import JoinRequest, new_member_id
from broker.groups.membership import CONSUMER_PROTOCOL_TYPE, JoinResult, SyncResult
from broker.state_topic import call_when_flushed, fits
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class ClassicMembers:
    """Owned by: event loop."""

    def __init__(self, heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats

    # JoinGroup

    def join(self, group: ConsumerGroup, request: JoinRequest) -> JoinResult | asyncio.Future[JoinResult]:
        """Take the member in or back; the future resolves when that is durable."""
        heartbeats = self._heartbeats
        is_unknown = not request.member_id
        member_id = request.member_id or new_member_id(request)
        heartbeats.conversion.check_classic_may_join(group)
        group.check_room(heartbeats.config.group_consumer_max_size, member_id)
        if not fits(member_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the member id is too long")
        if not _is_supported(group, request):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
            )
        if is_unknown and request.group_instance_id is None and request.requires_known_member_id:
            return JoinResult(member_id, ErrorCode.MEMBER_ID_REQUIRED)
        draft = heartbeats.draft(group)
        member = _member_for(draft, member_id, request)
        said = read_subscription(request.protocols[0][1], heartbeats.topics)
        joining = dataclasses.replace(
            member,
            instance_id=request.group_instance_id,
            rack_id=said.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=said.topic_names,
            topic_regex=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicProtocol(request.session_timeout_ms, list(request.protocols)),
        )
        now = draft.bring_up_to_date(joining, said.owned)
        epoch, has_new_targets = group.epoch, draft.group.target_epoch != group.target_epoch
        flushed = heartbeats.store(group, draft)
        self._expect_sync(group, request, member_id)
        if heartbeats.conversion.can_become_classic(group):
            # A static member took the place of the last one that spoke the consumer protocol. Kafka looks at
            # the targets alone, and who waits for what this one gives back would wait for ever.
            is_settled = not has_new_targets and group.state is ConsumerGroupState.STABLE
            flushed = heartbeats.conversion.to_classic(group, epoch, is_settled=is_settled)
            now = joining if has_new_targets else now
        return _when_stored(flushed, _joined(now, request))

    def _expect_sync(self, group: ConsumerGroup, request: JoinRequest, member_id: str) -> None:
        fencing = self._heartbeats.fencing
        group.no_longer_expect(member_id, Deadline.JOIN, Deadline.REVOCATION)
        fencing.expect(group, member_id, Deadline.SESSION, request.session_timeout_ms)
        fencing.expect(group, member_id, Deadline.SYNC, request.rebalance_timeout_ms)

    # SyncGroup, Heartbeat, LeaveGroup

    def sync(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
    ) -> SyncResult:
        """What the member has now; `protocol` is the type and name that it believes in (None: it does not
        say).
        """
        member, classic = _classic_member(group, member_id, instance_id, generation)
        protocol_type, protocol_name = protocol
        if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
            protocol_name not in (None, classic.protocols[0][0])
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"it is {classic.protocols[0][0]}")
        if self._is_behind(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the member has to join again")
        heartbeats = self._heartbeats
        group.no_longer_expect(member_id, Deadline.SYNC)
        heartbeats.fencing.expect(group, member_id, Deadline.SESSION, classic.session_timeout_ms)
        version = version_of(classic.protocols[0][1])
        return SyncResult(
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignment=assignment_bytes(partitions_of(member.assigned), heartbeats.topics, version),
        )

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """NONE, or REBALANCE_IN_PROGRESS where the member has to join again: it has a new target, has to give
        something back, or what it waits for is free.
        """
        member, classic = _classic_member(group, member_id, instance_id, generation)
        self._heartbeats.fencing.expect(group, member_id, Deadline.SESSION, classic.session_timeout_ms)
        has_to_join = (
            self._is_behind(group, member)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        )
        if not has_to_join:
            return ErrorCode.NONE
        self._expect_join(group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _is_behind(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Whether there is a target that the member has not asked for yet.

        Those of a new epoch are made with the next heartbeat of who speaks the consumer protocol; where
        nobody does (the group may not become classic), by the join that this brings about.
        """
        if member.epoch < group.target_epoch:
            return True
        is_all_classic = all(one.is_classic for one in group.members.values())
        return (
            is_all_classic
            and member.epoch < group.epoch
            and not group.keeps_targets(self._heartbeats.pace(group))
        )

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        if not group.is_expected(member.member_id, Deadline.JOIN):
            within_ms = member.rebalance_timeout_ms
            self._heartbeats.fencing.expect(group, member.member_id, Deadline.JOIN, within_ms)

    def leave(self, group: ConsumerGroup, leaving: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Take members out, of either protocol, by (member id, instance id); the answer to each, in order."""
        answers: list[ErrorCode] = []
        gone: list[str] = []
        for member_id, instance_id in leaving:
            try:
                if instance_id is not None and not member_id:
                    # The admin client removes static members by their instance alone.
                    member_id = group.static_members.get(instance_id, "")
                gone.append(_found(group, member_id, instance_id).member_id)
                answers.append(ErrorCode.NONE)
            except KafkaError as error:
                answers.append(error.code)
        if gone:
            self._heartbeats.take_out(group, gone)
        return answers


def _is_supported(group: ConsumerGroup, request: JoinRequest) -> bool:
    """Whether all classic members of the group support one of the member's protocols; it is one of them
    itself, as is whom it replaces, by what they said last.
    """
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
        return False
    common = {name for name, _ in request.protocols}
    for member in group.members.values():
        if member.classic is not None:
            common.intersection_update(name for name, _ in member.classic.protocols)
    return bool(common)


def _member_for(draft: Draft, member_id: str, request: JoinRequest) -> ConsumerMember:
    """Who joins, as it was before."""
    group, instance_id = draft.group, request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    holder = group.static_member(instance_id)
    if request.member_id:
        return group.check_holder(instance_id, member_id)
    return ConsumerMember(member_id) if holder is None else draft.replace(holder, member_id)


def _found(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    return group.member(member_id) if instance_id is None else group.check_holder(instance_id, member_id)


def _classic_one(member: ConsumerMember) -> ConsumerMember:
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    return member


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicProtocol]:
    member = _classic_one(_found(group, member_id, instance_id))
    if member.epoch != generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"the member's epoch is {member.epoch}")
    assert member.classic is not None
    return member, member.classic


def _joined(member: ConsumerMember, request: JoinRequest) -> JoinResult:
    return JoinResult(
        member.member_id,
        generation=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0][0],
    )


def _when_stored(
    flushed: asyncio.Future[None] | None, result: JoinResult
) -> JoinResult | asyncio.Future[JoinResult]:
    if flushed is None:
        return result
    waiter: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()

    def stored(error: KafkaError | None) -> None:
        if waiter.done():
            return
        if error is None:
            waiter.set_result(result)
        else:
            logger.warning("a classic member's join was not stored: %s", error)
            waiter.set_result(JoinResult(result.member_id, ErrorCode.NOT_COORDINATOR))

    call_when_flushed(flushed, stored)
    return waiter
