"""Streams groups (KIP-1071): a heartbeat answered, a member that leaves or is fenced.

Mirrors the streams half of Kafka's GroupMetadataManager. A heartbeat makes a draft of the group; what is
different there is written, and the answer leaves when that is durable. Internal topics that are missing are
named in the answer's `missing`: who has the request makes them, by the client's rights.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.group_settings import GroupSettings
from broker.groups import kinds, records
from broker.groups.commits import AnyGroup
from broker.groups.contents import Contents
from broker.groups.epoch_group import Deadline
from broker.groups.epochs import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from broker.groups.fencing import Fencing
from broker.groups.membership import Group
from broker.groups.storing import Flushed, append
from broker.groups.streams import changes
from broker.groups.streams.draft import STANDBY_REPLICAS, Draft, StreamsPace
from broker.groups.streams.endpoints import held_by_endpoint
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import (
    Assignment,
    Endpoint,
    HeldPartitions,
    MemberState,
    StreamsMember,
    is_within,
)
from broker.groups.streams.topology import NOT_CONFIGURED, Configured, Status, StatusCode, check_topology
from broker.groups.topics import GroupTopics
from broker.node import Node
from broker.state_topic import KeyValue, StateTopic, fits
from config.group import GroupConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.internal_streams_groups import StreamsGroupTopologyValue

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat:
    """A StreamsGroupHeartbeat; None: as before."""

    group_id: str
    member_id: str
    epoch: int
    endpoints_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int | None
    topology: StreamsGroupTopologyValue | None
    owned: Assignment | None
    process_id: str | None
    endpoint: Endpoint | None
    client_tags: Mapping[str, str] | None
    wants_shutdown: bool


@dataclass(frozen=True, slots=True)
class StreamsBeat:
    """What a heartbeat is answered; final once `flushed` is done (None: already)."""

    member_id: str
    epoch: int
    statuses: Sequence[Status] = ()
    assigned: Assignment | None = None
    endpoints_epoch: int = 0
    endpoints: Sequence[HeldPartitions] | None = None
    configured: Configured = NOT_CONFIGURED
    flushed: Flushed | None = None


def check_heartbeat(beat: StreamsHeartbeat) -> None:
    """What is wrong with a request whatever the group's state is (GroupCoordinatorService)."""

    def refuse(message: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, message)

    for name, value in (
        ("MemberId", beat.member_id),
        ("GroupId", beat.group_id),
        ("RackId", beat.rack_id),
    ):
        if value == "":
            raise refuse(f"{name} can't be empty.")
    if beat.epoch == JOIN_EPOCH:
        if beat.rebalance_timeout_ms is None:
            raise refuse("RebalanceTimeoutMs must be provided in first request.")
        for name, place in (("ActiveTasks", 0), ("StandbyTasks", 1)):
            if beat.owned is None or beat.owned[place]:
                raise refuse(f"{name} must be empty when (re-)joining.")
        if beat.topology is None:
            raise refuse("Topology must be non-null when (re-)joining.")
        check_topology(beat.topology)
    elif beat.epoch == STATIC_LEAVE_EPOCH:
        raise refuse("InstanceId can't be null.")
    elif beat.epoch < STATIC_LEAVE_EPOCH:
        raise refuse(f"MemberEpoch is {beat.epoch}, but must be greater than or equal to -2.")
    elif beat.topology is not None:
        raise refuse("Topology can only be provided when (re-)joining.")
    records.check_group_id(beat.group_id)
    if not fits(beat.member_id):
        raise refuse("MemberId is too long.")


class StreamsGroups:
    """Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        topics: GroupTopics,
        settings: GroupSettings,
        store: StateTopic[Contents],
        groups: MutableMapping[str, AnyGroup],
    ) -> None:
        self._node = node
        self._topics = topics
        self._group_settings = settings
        self._store = store
        self._groups = groups
        """of all kinds that commit offsets"""
        self._fencing = Fencing(node.clock, self._session_ms, self._take_out)

    # a heartbeat

    def beat(self, request: StreamsHeartbeat, *, is_share_group: bool) -> StreamsBeat:
        """StreamsGroupHeartbeat: a group comes into being, or becomes a streams group, with who joins."""
        check_heartbeat(request)
        self._store.check_available(request.group_id)
        known = self._groups.get(request.group_id)
        if request.epoch == LEAVE_EPOCH:
            return self._leave(self._existing(known, request, "Group", is_share_group), request)
        if request.epoch == JOIN_EPOCH:
            group, first = self._group_to_join(known, request.group_id, is_share_group)
        else:
            group, first = self._existing(known, request, "Streams group", is_share_group), []
        member = self._member_for(group, request)
        pace = self._pace(group)
        draft = Draft(group, self._topics, pace)
        now = draft.bring_up_to_date(_as_told(member, request), request.topology, request.owned)
        flushed = self._store_changes(group, draft, first)
        if known is not group:
            if known is not None:
                known.stop_timers()
            self._groups[group.group_id] = group
        self._expect(group, member, now, starts_waiting=pace.is_waiting)
        return self._answer(group, request, member, now, draft, flushed, is_known=known is group)

    def _existing(
        self, known: AnyGroup | None, request: StreamsHeartbeat, what: str, is_share_group: bool
    ) -> StreamsGroup:
        if isinstance(known, StreamsGroup):
            return known
        is_other = known is not None or is_share_group
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {request.group_id} is not a streams group."
            if is_other
            else f"{what} {request.group_id} not found.",
        )

    def _group_to_join(
        self, known: AnyGroup | None, group_id: str, is_share_group: bool
    ) -> tuple[StreamsGroup, list[KeyValue]]:
        """The group, and what has to be written before it is one."""
        if isinstance(known, StreamsGroup):
            # As in Kafka: also of who is in it and joins again.
            known.check_room(self._node.config.group_streams_max_size)
            return known, []
        if is_share_group or (known is not None and not (isinstance(known, Group) and known.is_empty)):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        made = StreamsGroup(group_id)
        if known is None:
            return made, []
        made.offsets = known.offsets
        return made, [(records.group_key(group_id), None)]

    def _member_for(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsMember:
        """Who beats, as it was before; one that is new has no epoch yet."""
        if request.epoch == JOIN_EPOCH:
            return group.members.get(request.member_id) or StreamsMember(request.member_id)
        member = group.member(request.member_id)
        if member.state is MemberState.UNKNOWN and request.owned != Assignment():
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and "
                "rejoin.",
            )
        is_late = request.epoch == member.previous_epoch and is_within(request.owned, member.assigned)
        if request.epoch == member.epoch or (request.epoch < member.epoch and is_late):
            return member
        relation = "greater" if request.epoch > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The streams group member has a {relation} member epoch ({request.epoch}) than the one known by "
            f"the group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )

    def _answer(
        self,
        group: StreamsGroup,
        request: StreamsHeartbeat,
        before: StreamsMember,
        now: StreamsMember,
        draft: Draft,
        flushed: Flushed | None,
        *,
        is_known: bool,
    ) -> StreamsBeat:
        assert group.configured is not None
        assigned = now.assigned.without_epochs()
        # Who owns anything else has lost an answer, or is not done with it. Kafka does not say it again, and
        # nobody runs the tasks.
        is_told = (
            request.epoch == JOIN_EPOCH
            or now.assigned != before.assigned
            or request.owned not in (None, assigned)
        )
        # As in Kafka: what who makes a group tells of itself is not counted.
        if is_told and is_known and now.endpoint is not None:
            group.endpoints_epoch += 1
        if request.wants_shutdown and group.shutdown_by is None:
            logger.info("streams group %s: %s wants all to end", group.group_id, now.member_id)
            group.shutdown_by = now.member_id
        statuses = draft.statuses
        if group.configured.problem is not None:
            statuses.append(group.configured.problem)
        if group.shutdown_by is not None:
            statuses.append(_shutdown(group.shutdown_by))
        is_current = group.endpoints_epoch == request.endpoints_epoch
        return StreamsBeat(
            now.member_id,
            now.epoch,
            statuses,
            assigned if is_told else None,
            group.endpoints_epoch,
            None if is_current else held_by_endpoint(group, now.member_id, self._topics),
            group.configured,
            flushed,
        )

    def _pace(self, group: StreamsGroup) -> StreamsPace:
        settings = self._settings(group)
        is_waiting = group.first_assignment is not None
        return StreamsPace(
            now_ms=self._node.clock.now_ms(),
            interval_ms=settings.streams_assignment_interval_ms,
            configs={STANDBY_REPLICAS: str(settings.streams_num_standby_replicas)},
            is_waiting=is_waiting or (group.is_empty and settings.streams_initial_rebalance_delay_ms > 0),
        )

    def _settings(self, group: StreamsGroup) -> GroupConfig:
        return self._group_settings.of(group.group_id)

    def _session_ms(self, group: StreamsGroup) -> int:
        return self._settings(group).streams_session_timeout_ms

    # ways out

    def _leave(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsBeat:
        group.member(request.member_id)
        if request.wants_shutdown and group.shutdown_by is None:
            group.shutdown_by = request.member_id
        flushed = self._take_out(group, request.member_id)
        logger.info("streams group %s: %s left", group.group_id, request.member_id)
        return StreamsBeat(request.member_id, LEAVE_EPOCH, flushed=flushed)

    def _take_out(self, group: StreamsGroup, member_id: str) -> Flushed | None:
        draft = Draft(group, self._topics, self._pace(group))
        draft.remove(member_id)
        return self._store_changes(group, draft)

    # deadlines

    def resume(self, group: StreamsGroup) -> None:
        """The group was read at start: its members have their whole time again."""
        # Who is in a later epoch than the group, of which a record is lost, would wait for that one.
        reached = (group.target_epoch, *(member.epoch for member in group.members.values()))
        group.epoch = max(group.epoch, *reached)
        for member in group.members.values():
            self._expect(group, None, member, starts_waiting=False)

    def _expect(
        self, group: StreamsGroup, before: StreamsMember | None, now: StreamsMember, *, starts_waiting: bool
    ) -> None:
        self._fencing.expect_beat(group, now.member_id)
        if now.state is not MemberState.UNREVOKED_TASKS:
            group.no_longer_expect(now.member_id, Deadline.REVOCATION)
        elif before is None or now.pending_revocation != before.pending_revocation:
            self._fencing.expect(group, now.member_id, Deadline.REVOCATION, now.rebalance_timeout_ms)
        if starts_waiting and group.first_assignment is None:
            group.first_assignment = self._node.clock.call_later(
                self._settings(group).streams_initial_rebalance_delay_ms, self._assign_first, group
            )

    def _assign_first(self, group: StreamsGroup) -> None:
        """Who wanted to be there from the beginning is."""
        group.first_assignment = None
        pace = self._pace(group)
        if group.is_empty or group.epoch <= group.target_epoch or group.keeps_targets(pace):
            return
        draft = Draft(group, self._topics, pace)
        draft.assign()
        try:
            self._store_changes(group, draft)
        except KafkaError as error:
            # The next heartbeat does it.
            logger.warning("streams group %s: not divided now: %s", group.group_id, error)

    # records

    def _store_changes(
        self, group: StreamsGroup, draft: Draft, first: Sequence[KeyValue] = ()
    ) -> Flushed | None:
        """Write down what the draft changed, and do it to the group. KafkaError: it has not changed."""
        flushed = None
        if draft.changes:
            flushed = append(self._store, group.group_id, [*first, *map(kinds.encoded, draft.changes)])
            changes.apply(group, draft.changes)
            group.forget_gone()
        group.configured, group.seen_topics = draft.group.configured, draft.group.seen_topics
        return flushed


def _as_told(member: StreamsMember, request: StreamsHeartbeat) -> StreamsMember:
    """The member as its client says it is; what it does not say stays."""
    said = {
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": request.rebalance_timeout_ms,
        "topology_epoch": None if request.topology is None else request.topology.epoch,
        "process_id": request.process_id,
        "endpoint": request.endpoint,
        "client_tags": request.client_tags,
    }
    told: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    return dataclasses.replace(member, client_id=request.client_id, client_host=request.client_host, **told)


def _shutdown(member_id: str) -> Status:
    return Status(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire "
        "application.",
    )
