"""The rebalance engine: join phase, sync phase, sessions.

Mirrors the rebalance half of Kafka's GroupCoordinator with its delayed operations. Only this module moves a
group's state. It answers by resolving the waiters of members; what it has to wait for is a timer or a
durable record.

- Join phase (PreparingRebalance): ends when all members joined or the rebalance timeout passed; members that
  did not come are removed, static ones keep their place until their session ends (KIP-345). A group that was
  empty waits `group.initial.rebalance.delay.ms` instead, prolonged while members keep arriving (KIP-134).
- Sync phase (CompletingRebalance): ends when the leader's assignment is durable; who does not sync within the
  rebalance timeout is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.groups import records
from broker.groups.contents import Contents
from broker.groups.membership import Group, JoinResult, Member, SyncResult
from broker.groups.state import GroupEvent, GroupState, can
from broker.groups.storing import STORE_ERRORS
from broker.node import Node
from broker.state_topic import StateTopic, when_durable
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from config.broker import BrokerConfig

logger = logging.getLogger(__name__)

# Kafka's limit for a new member that waits for its first generation: it cannot heartbeat yet.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class Rebalancer:
    """Owned by: event loop."""

    def __init__(self, node: Node, store: StateTopic[Contents]) -> None:
        self._node = node
        self._clock = node.clock
        self._store = store

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings as they are now: some change while it runs."""
        return self._node.config

    # sessions

    def touch(self, member: Member, group: Group) -> None:
        """A sign of life: the session starts anew."""
        self._arm_session(group, member, member.session_timeout_ms)

    def expect_first_generation(self, member: Member, group: Group) -> None:
        """A new member cannot heartbeat until it has a generation."""
        self._arm_session(group, member, max(NEW_MEMBER_JOIN_TIMEOUT_MS, member.session_timeout_ms))

    def _arm_session(self, group: Group, member: Member, delay_ms: int) -> None:
        if member.session_timer is not None:
            member.session_timer.cancel()
        member.session_timer = self._clock.call_later(delay_ms, self._end_session, group, member)

    def _end_session(self, group: Group, member: Member) -> None:
        if not member.is_new and (member.is_awaiting_join or member.is_awaiting_sync):
            return  # it waits for us, not we for it: its answer starts the session anew
        logger.info("group %s: session of %s expired", group.group_id, member.member_id)
        self.discard(group, member)
        self.after_leaving(group, "session expired")

    # pending members

    def expect_join(self, group: Group, member_id: str, session_timeout_ms: int) -> None:
        """An id was handed out; it must join within its session timeout (KIP-394)."""
        group.pending_members[member_id] = self._clock.call_later(
            session_timeout_ms, self.remove_pending, group, member_id
        )

    def remove_pending(self, group: Group, member_id: str) -> None:
        group.forget_pending(member_id)
        self.complete_join_if_ready(group)

    # the join phase

    def start_if_possible(self, group: Group, reason: str) -> None:
        """Start a rebalance unless one is in its join phase already."""
        if can(group.state, GroupEvent.REBALANCE_STARTED):
            self._start(group, reason)

    def _start(self, group: Group, reason: str) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._fail_sync(group, ErrorCode.REBALANCE_IN_PROGRESS)
        if group.sync_timer is not None:
            group.sync_timer.cancel()
        was_empty = group.state is GroupState.EMPTY
        logger.info("group %s: rebalance after generation %d: %s", group.group_id, group.generation, reason)
        group.move(GroupEvent.REBALANCE_STARTED, self._clock.now_ms())
        if was_empty:
            delay_ms = self.config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._delay_first_join(group, delay_ms, remaining_ms)
        else:
            self._await_joins(group)
            self.complete_join_if_ready(group)

    def _delay_first_join(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        group.is_initial_delay = True
        group.join_timer = self._clock.call_later(delay_ms, self._end_first_delay, group, remaining_ms)

    def _end_first_delay(self, group: Group, remaining_ms: int) -> None:
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            delay_ms = min(self.config.group_initial_rebalance_delay_ms, remaining_ms)
            self._delay_first_join(group, delay_ms, remaining_ms - delay_ms)
        else:
            self._complete_join(group)

    def _await_joins(self, group: Group) -> None:
        group.join_timer = self._clock.call_later(group.rebalance_timeout_ms, self._complete_join, group)

    def complete_join_if_ready(self, group: Group) -> None:
        """End the join phase early when nobody is missing; the first delay is always sat out."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.has_all_joined and not (group.is_initial_delay and group.members):
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        if group.join_timer is not None:
            group.join_timer.cancel()
            group.join_timer = None
        group.is_initial_delay = False
        group.new_member_added = False
        for member in list(group.members.values()):
            if not member.is_awaiting_join and member.group_instance_id is None:
                logger.info("group %s: %s did not rejoin in time", group.group_id, member.member_id)
                group.remove(member.member_id)
        if not group.members:
            self._form_empty_generation(group)
        elif not self._elect_joined_leader(group):
            # Only static members that did not come back: they keep their partitions until their sessions end.
            self._await_joins(group)
        else:
            self._form_generation(group)

    def _elect_joined_leader(self, group: Group) -> bool:
        leader = group.members.get(group.leader_id or "")
        if leader is not None and leader.is_awaiting_join:
            return True
        joined = next((member for member in group.members.values() if member.is_awaiting_join), None)
        if joined is None:
            return False
        group.leader_id = joined.member_id
        return True

    def _form_empty_generation(self, group: Group) -> None:
        group.generation += 1
        group.protocol_name = None
        group.move(GroupEvent.EMPTIED, self._clock.now_ms())
        group.subscribed_topics = group.compute_subscribed_topics()
        try:
            written = self._store.append(
                group.group_id, [(records.group_key(group.group_id), records.group_value(group, {}))]
            )
        except KafkaError as error:
            # Nobody waits for it; a reload would only find the former members and expire them.
            logger.warning("group %s: empty generation not stored: %s", group.group_id, error)
            return
        when_durable(written, lambda error: self._note_unstored(group, error))

    def _note_unstored(self, group: Group, error: KafkaError | None) -> None:
        if error is not None:
            logger.warning("group %s: not stored: %s", group.group_id, error)

    def _form_generation(self, group: Group) -> None:
        group.generation += 1
        group.protocol_name = group.select_protocol()
        group.subscribed_topics = group.compute_subscribed_topics()
        group.move(GroupEvent.GENERATION_FORMED, self._clock.now_ms())
        # A static member that did not come back is not expected to sync: its session decides about it.
        group.pending_sync = {
            member.member_id for member in group.members.values() if member.is_awaiting_join
        }
        for member in group.members.values():
            member.is_new = False
            if group.answer_join(member, self.generation_result(group, member)):
                self.touch(member, group)
        group.sync_timer = self._clock.call_later(
            group.rebalance_timeout_ms, self._expire_sync, group, group.generation
        )

    def generation_result(self, group: Group, member: Member) -> JoinResult:
        """The current generation as this member sees it: only the leader gets the members."""
        is_leader = member.member_id == group.leader_id
        return JoinResult(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=group.leader_id or "",
            members=group.joined_members() if is_leader else [],
        )

    # the sync phase

    def _expire_sync(self, group: Group, generation: int) -> None:
        if generation != group.generation or not group.pending_sync:
            return
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        for member_id in list(group.pending_sync):
            logger.info("group %s: %s did not sync in time", group.group_id, member_id)
            self.discard(group, group.members[member_id])
        self.start_if_possible(group, "members did not sync in time")

    def sync(self, group: Group, member: Member, assignments: Mapping[str, bytes]) -> None:
        """The member's waiter is in place; the leader's assignments are stored and then given to all."""
        group.pending_sync.discard(member.member_id)
        if member.member_id == group.leader_id:
            complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}
            self._store_assignment(group, complete)

    def _store_assignment(self, group: Group, assignments: dict[str, bytes]) -> None:
        generation = group.generation

        def stored(error: KafkaError | None) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                return
            if error is None:
                self._distribute(group, assignments)
            else:
                self._fail_assignment(group, error)

        try:
            value = records.group_value(group, assignments)
            written = self._store.append(group.group_id, [(records.group_key(group.group_id), value)])
        except KafkaError as error:
            stored(error)
        else:
            when_durable(written, stored)

    def _fail_assignment(self, group: Group, error: KafkaError) -> None:
        logger.warning("group %s: assignment not stored: %s", group.group_id, error)
        self._fail_sync(group, STORE_ERRORS.get(error.code, error.code))
        self.start_if_possible(group, "the assignment could not be stored")

    def _distribute(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        group.move(GroupEvent.ASSIGNMENT_STORED, self._clock.now_ms())
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if group.answer_sync(member, self.assignment_result(group, member)):
                self.touch(member, group)

    def assignment_result(self, group: Group, member: Member) -> SyncResult:
        return SyncResult(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )

    def _fail_sync(self, group: Group, error: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if group.answer_sync(member, SyncResult(error)):
                self.touch(member, group)

    # members out

    def after_leaving(self, group: Group, reason: str) -> None:
        """Somebody went: those who stay need a new generation, unless one is forming already."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_join_if_ready(group)
        else:
            self.start_if_possible(group, reason)

    def discard(self, group: Group, member: Member) -> None:
        """Take a member out; `after_leaving` has to follow."""
        group.answer_join(member, JoinResult("", ErrorCode.UNKNOWN_MEMBER_ID))
        group.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
