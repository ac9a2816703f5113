"""Consumer groups (KIP-848): a heartbeat answered, a member that leaves or is fenced.

Mirrors the consumer half of Kafka's GroupMetadataManager. A heartbeat makes a draft of the group, in which
the member is what it says it is, everybody has a target, and the member is one step nearer to its own; what
is different is written, and the answer leaves when that is durable. Whoever falls silent, or does not give
back in time, is fenced: its partitions are for the others, and its next heartbeat finds that it is no member.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from broker.group_settings import GroupSettings
from broker.groups import kinds, records
from broker.groups.consumer import changes
from broker.groups.consumer.conversion import Conversion, Groups
from broker.groups.consumer.draft import Draft
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    ConsumerMember,
    MemberState,
    is_within,
    partitions_of,
)
from broker.groups.contents import Contents
from broker.groups.epoch_group import Deadline, Pace
from broker.groups.epochs import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from broker.groups.fencing import Fencing
from broker.groups.membership import Group
from broker.groups.rebalance import Rebalancer
from broker.groups.storing import Flushed, append
from broker.groups.topics import GroupTopics, MayKnow, Partitions, everything
from broker.node import Node
from broker.state_topic import KeyValue, StateTopic, fits
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from config.broker import BrokerConfig

T = TypeVar("T")
logger = logging.getLogger(__name__)

OWN_ID_VERSION = 1
"""from this version on a client makes its member id (KIP-1082)"""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat, freed from its version; None: as before."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int | None
    topic_names: frozenset[str] | None
    topic_regex: str | None
    server_assignor: str | None
    owned: Partitions | None
    may_know: MayKnow = everything
    """which topics the client may know"""

    @property
    def is_full(self) -> bool:
        """Whether the client says all that it knows, as after a request that had no answer."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms is not None and has_subscription and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat is answered; final once `flushed` is done (None: already)."""

    member_id: str
    epoch: int
    assigned: Partitions | None = None
    flushed: Flushed | None = None


def check_heartbeat(beat: Heartbeat, api_version: int, assignors: Sequence[str]) -> None:
    """What is wrong with a request whatever the group's state is (GroupCoordinatorService)."""

    def refuse(message: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, message)

    if not beat.member_id and (api_version >= OWN_ID_VERSION or beat.epoch > 0 or beat.epoch == LEAVE_EPOCH):
        raise refuse("MemberId can't be empty.")
    for name, value in (
        ("GroupId", beat.group_id),
        ("InstanceId", beat.instance_id),
        ("RackId", beat.rack_id),
    ):
        if value == "":
            raise refuse(f"{name} can't be empty.")
    if beat.epoch == JOIN_EPOCH:
        if beat.rebalance_timeout_ms is None:
            raise refuse("RebalanceTimeoutMs must be provided in first request.")
        if beat.owned is None or beat.owned:
            raise refuse("TopicPartitions must be empty when (re-)joining.")
        if beat.topic_names is None and beat.topic_regex is None:
            raise refuse(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif beat.epoch == STATIC_LEAVE_EPOCH and beat.instance_id is None:
        raise refuse("InstanceId can't be null.")
    elif beat.epoch < STATIC_LEAVE_EPOCH:
        raise refuse("MemberEpoch is invalid.")
    if beat.server_assignor is not None and beat.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )
    records.check_group_id(beat.group_id)
    for name, value in (("MemberId", beat.member_id), ("SubscribedTopicRegex", beat.topic_regex)):
        if value is not None and not fits(value):
            raise refuse(f"{name} is too long.")


class Heartbeats:
    """Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        topics: GroupTopics,
        settings: GroupSettings,
        store: StateTopic[Contents],
        groups: Groups,
        rebalancer: Rebalancer,
    ) -> None:
        self._node = node
        self._clock = node.clock
        self._settings = settings
        self._store = store
        self.topics = topics
        self.conversion = Conversion(node, store, groups, rebalancer, topics)
        self.fencing = Fencing(node.clock, self._session_ms, lambda group, one: self.take_out(group, [one]))

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings as they are now."""
        return self._node.config

    def _session_ms(self, group: ConsumerGroup) -> int:
        return self._settings.of(group.group_id).consumer_session_timeout_ms

    # a heartbeat

    def beat(self, group: ConsumerGroup, request: Heartbeat, first: Sequence[KeyValue] = ()) -> Beat:
        """Take the member in or note that it lives, and bring it a step further; what else has to be written
        for that goes `first`.
        """
        if request.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(group, request)
        member_id = request.member_id or str(uuid.uuid4())
        group.check_room(self.config.group_consumer_max_size, member_id)
        draft = self.draft(group, request.may_know)
        member = self._member_for(draft, member_id, request)
        now = draft.bring_up_to_date(_as_told(member, request), request.owned)
        flushed = self.store(group, draft, first)
        self.fencing.expect_beat(group, member_id)
        self._expect_revocation(group, member, now)
        is_told = request.is_full or now.assigned != member.assigned
        return Beat(member_id, now.epoch, partitions_of(now.assigned) if is_told else None, flushed)

    def beat_anew(self, group: Group, request: Heartbeat) -> Beat:
        """The first member of the consumer protocol joins a classic group: it is a consumer group then."""
        made = self.conversion.to_consumer(group)
        first: list[KeyValue] = [(records.group_key(group.group_id), None)]
        if made.members:
            first += map(kinds.encoded, changes.group_made(made))
        beat = self.beat(made, request, first)
        self.conversion.put(made, group)
        self.resume(made)
        return beat

    def _member_for(self, draft: Draft, member_id: str, request: Heartbeat) -> ConsumerMember:
        """Who beats, as it was before; one that is new has no epoch yet."""
        group, instance_id = draft.group, request.instance_id
        is_joining = request.epoch == JOIN_EPOCH
        if instance_id is None:
            member = group.members.get(member_id)
            if member is None and is_joining:
                return ConsumerMember(member_id)
            member = group.member(member_id)
        else:
            holder = group.static_member(instance_id)
            if holder is None and is_joining:
                return ConsumerMember(member_id)
            if holder is not None and is_joining:
                return _take_over(draft, holder, member_id)
            member = group.check_holder(instance_id, member_id)
        _check_epoch(member, request)
        return member

    # ways out

    def _leave(self, group: ConsumerGroup, request: Heartbeat) -> Beat:
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = group.check_holder(request.instance_id, request.member_id)
        if request.epoch == STATIC_LEAVE_EPOCH:
            # Its session goes on: it has that long to come back to its partitions, and nothing to give back.
            draft = self.draft(group)
            away = dataclasses.replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
            draft.add(changes.assignment_changed(group, away))
            flushed = self.store(group, draft)
            group.no_longer_expect(member.member_id, Deadline.REVOCATION)
        else:
            flushed = self.take_out(group, [member.member_id])
        logger.info("group %s: %s left", group.group_id, member.member_id)
        return Beat(member.member_id, request.epoch, None, flushed)

    def take_out(self, group: ConsumerGroup, member_ids: Sequence[str]) -> Flushed | None:
        """End memberships; KafkaError: they go on."""
        if self.conversion.can_become_classic(group, member_ids):
            return self.conversion.to_classic(group, group.epoch, member_ids)
        draft = self.draft(group)
        for member_id in member_ids:
            draft.remove(member_id)
        draft.start_epoch()
        return self.store(group, draft)

    # deadlines

    def _expect_revocation(
        self, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember
    ) -> None:
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            group.no_longer_expect(member.member_id, Deadline.REVOCATION)
        elif member.pending_revocation != before.pending_revocation:
            self._expect_to_give_back(group, member)

    def _expect_to_give_back(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self.fencing.expect(group, member.member_id, Deadline.REVOCATION, member.rebalance_timeout_ms)

    def resume(self, group: ConsumerGroup) -> None:
        """The group was read at start: its members have their whole time again."""
        for member in group.members.values():
            if member.classic is not None:
                session_ms = member.classic.session_timeout_ms
                self.fencing.expect(group, member.member_id, Deadline.SESSION, session_ms)
                continue
            self.fencing.expect_beat(group, member.member_id)
            is_away = member.epoch == STATIC_LEAVE_EPOCH
            if member.state is MemberState.UNREVOKED_PARTITIONS and not is_away:
                self._expect_to_give_back(group, member)

    # records

    def draft(self, group: ConsumerGroup, may_know: MayKnow | None = None) -> Draft:
        """What is about to be done to a group, by a client that may know certain topics or without one."""
        if not self.topics.has_rules:
            may_know = everything
        return Draft(group, self.topics, self.pace(group), may_know)

    def pace(self, group: ConsumerGroup) -> Pace:
        """What time it is, and how often the group is divided anew."""
        settings = self._settings.of(group.group_id)
        return Pace(now_ms=self._clock.now_ms(), interval_ms=settings.consumer_assignment_interval_ms)

    def store(self, group: ConsumerGroup, draft: Draft, first: Sequence[KeyValue] = ()) -> Flushed | None:
        """Write down what the draft changed, and do it to the group; the future of its flush. KafkaError:
        nothing has changed.
        """
        if not draft.changes:
            group.seen_topics = draft.seen_topics
            return None
        flushed = append(self._store, group.group_id, [*first, *map(kinds.encoded, draft.changes)])
        changes.apply(group, draft.changes)
        group.seen_topics = draft.seen_topics
        group.forget_gone()
        return flushed


def _as_told(member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
    """The member as its client says it is; what it does not say stays."""
    told = dataclasses.replace(
        member,
        instance_id=_or(request.instance_id, member.instance_id),
        rack_id=_or(request.rack_id, member.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=_or(request.topic_names, member.topic_names),
        topic_regex=_or(request.topic_regex, member.topic_regex),
        rebalance_timeout_ms=_or(request.rebalance_timeout_ms, member.rebalance_timeout_ms),
        server_assignor=_or(request.server_assignor, member.server_assignor),
        classic=None,
    )
    return member if told == member else told


def _or(told: T | None, known: T) -> T:
    return known if told is None else told


def _take_over(draft: Draft, holder: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member comes back under a new id, once the one before has left (KIP-848)."""
    if not holder.is_classic and holder.epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {holder.instance_id} cannot join the group because "
            f"the instance id is owned by {holder.member_id} member.",
        )
    return draft.replace(holder, member_id)


def _check_epoch(member: ConsumerMember, request: Heartbeat) -> None:
    """Whether client and broker agree where the member stands; who has lost an answer may be one behind."""
    if member.state is MemberState.UNKNOWN and request.owned != {}:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and "
            "rejoin.",
        )
    if request.epoch in (JOIN_EPOCH, member.epoch):
        return
    is_late = request.epoch == member.previous_epoch and is_within(request.owned, member.assigned)
    if request.epoch < member.epoch and is_late:  # a static member that is away has an epoch below all
        return
    relation = "greater" if request.epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({request.epoch}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )
