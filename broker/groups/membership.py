"""One classic group: who is in it, what they support, who leads, who is still expected.

Mirrors Kafka's ClassicGroup and ClassicGroupMember. Nothing here sets a timer, writes a record or decides
when to rebalance; `rebalance.py` does. Waiters are futures that the engine resolves, a group only keeps and
counts them.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.clock import Timer
from broker.groups.offsets import GroupOffsets
from broker.groups.state import GroupEvent, GroupState, next_state
from protocol.errors import ErrorCode, KafkaError

CONSUMER_PROTOCOL_TYPE = "consumer"

Protocols = Sequence[tuple[str, bytes]]


@dataclass(slots=True)
class JoinResult:
    """What a JoinGroup is answered with; `members` (id, instance id, metadata) is filled for the leader
    only.
    """

    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: list[tuple[str, str | None, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A SyncGroup, freed from its version."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    # None where the version has no such field.
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(slots=True)
class SyncResult:
    """What a SyncGroup is answered with."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True)
class Member:
    """One member of a group. Owned by: event loop."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    # A new member waits for its first generation: its session is then the long join deadline.
    is_new: bool = False
    join_waiter: asyncio.Future[JoinResult] | None = None
    sync_waiter: asyncio.Future[SyncResult] | None = None
    session_timer: Timer | None = None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_waiter is not None

    @property
    def is_awaiting_sync(self) -> bool:
        return self.sync_waiter is not None

    def metadata_of(self, protocol_name: str | None) -> bytes:
        """The subscription bytes for one protocol; empty when the member does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def supports(self, protocols: Protocols) -> bool:
        """Whether `protocols` are exactly what the member announced, order included."""
        return self.protocols == list(protocols)

    def vote(self, candidates: set[str]) -> str:
        """The member's most preferred protocol among the candidates."""
        return next(name for name, _ in self.protocols if name in candidates)


class Group:
    """A group with its members and committed offsets. Owned by: event loop."""

    kind = "classic"

    def __init__(self, group_id: str, now_ms: int, state: GroupState = GroupState.EMPTY) -> None:
        self.group_id = group_id
        self.state = state
        self.state_since_ms = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.was_stored = False
        """as its log said at the start; Kafka writes a group down before its first generation"""
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        # Ids handed out with MEMBER_ID_REQUIRED whose second JoinGroup has not come yet (KIP-394).
        self.pending_members: dict[str, Timer] = {}
        self.pending_sync: set[str] = set()
        self.awaiting_join_count = 0
        # Somebody joined while the first delay ran: the delay is prolonged once more (KIP-134).
        self.new_member_added = False
        # None = not known: the group is no consumer group or its subscriptions do not parse.
        self.subscribed_topics: frozenset[str] | None = None
        self.join_timer: Timer | None = None
        self.is_initial_delay = False
        self.sync_timer: Timer | None = None
        self.offsets = GroupOffsets()
        self._support: Counter[str] = Counter()

    def move(self, event: GroupEvent, now_ms: int) -> None:
        """Follow the transition table."""
        self.state = next_state(self.state, event)
        self.state_since_ms = now_ms

    def stop_timers(self) -> None:
        """No deadline of this group fires any more."""
        for timer in (self.join_timer, self.sync_timer, *self.pending_members.values()):
            if timer is not None:
                timer.cancel()
        for member in self.members.values():
            if member.session_timer is not None:
                member.session_timer.cancel()

    # members

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._support.update({name for name, _ in member.protocols})
        self.awaiting_join_count += member.is_awaiting_join
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Take a member out; leadership passes to any other member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._support.subtract({name for name, _ in member.protocols})
            self.awaiting_join_count -= member.is_awaiting_join
            instance_id = member.group_instance_id
            if instance_id is not None and self.static_members.get(instance_id) == member_id:
                del self.static_members[instance_id]
            if member.session_timer is not None:
                member.session_timer.cancel()
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_sync.discard(member_id)
        self.forget_pending(member_id)
        return member

    def rename(self, old_member_id: str, new_member_id: str) -> None:
        """A static instance came back under a new member id: it keeps its place, leadership included."""
        member = self.members.pop(old_member_id)
        member.member_id = new_member_id
        self.members[new_member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.discard(old_member_id)
            self.pending_sync.add(new_member_id)

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._support.subtract({name for name, _ in member.protocols})
        member.protocols = list(protocols)
        self._support.update({name for name, _ in member.protocols})

    def forget_pending(self, member_id: str) -> None:
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member, or the error that a stale or unknown one gets (T188, T189)."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"no member with instance id {group_instance_id}"
                )
            if current != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID, f"{group_instance_id} belongs to a newer member"
                )
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id}")
        return member

    # waiters

    def set_join_waiter(self, member: Member, waiter: asyncio.Future[JoinResult] | None) -> None:
        self.awaiting_join_count += (waiter is not None) - member.is_awaiting_join
        member.join_waiter = waiter

    def answer_join(self, member: Member, result: JoinResult) -> bool:
        """Answer the member's JoinGroup, if one waits. A client that hung up has cancelled its waiter."""
        waiter = member.join_waiter
        if waiter is None:
            return False
        self.set_join_waiter(member, None)
        if not waiter.done():
            waiter.set_result(result)
        return True

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer the member's SyncGroup, if one waits."""
        waiter, member.sync_waiter = member.sync_waiter, None
        if waiter is None:
            return False
        if not waiter.done():
            waiter.set_result(result)
        return True

    def answer_all(self, error: ErrorCode) -> None:
        """Answer everybody who waits."""
        for member in list(self.members.values()):
            self.answer_join(member, JoinResult(member.member_id, error))
            self.answer_sync(member, SyncResult(error))

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def has_all_joined(self) -> bool:
        return not self.pending_members and self.awaiting_join_count == len(self.members)

    # protocols

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member sets the pace."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody with these protocols can be a member."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._support[name] == everybody for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Each member votes for its favourite among those that all support; most votes win, ties by name."""
        everybody = len(self.members)
        candidates = {name for name, count in self._support.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return min(votes, key=lambda name: (-votes[name], name))

    def joined_members(self) -> list[tuple[str, str | None, bytes]]:
        """(member id, instance id, metadata) of everybody, for the leader to assign by."""
        return [
            (member.member_id, member.group_instance_id, member.metadata_of(self.protocol_name))
            for member in self.members.values()
        ]

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_consumer_group:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscription = parse_subscribed_topics(member.metadata_of(self.protocol_name))
            if subscription is None:
                return None
            topics.update(subscription)
        return frozenset(topics)

    def is_subscribed(self, topic: str) -> bool:
        """Unknown subscriptions of a consumer group count as subscribed: nothing of it may be thrown away."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def has_room(self, member_id: str, max_size: int) -> bool:
        """Whether group.max.size lets this JoinGroup in; members that are in may always stay."""
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            member = self.members.get(member_id)
            return (member is not None and member.is_awaiting_join) or self.awaiting_join_count < max_size
        return member_id in self.members or len(self.members) < max_size


def parse_subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics of a consumer subscription: version, then an array of names, the prefix of every version."""
    try:
        _version, count = struct.unpack_from(">hi", metadata)
        topics: list[str] = []
        position = 6
        if not 0 <= count * 2 <= len(metadata):
            return None
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            name = metadata[position + 2 : position + 2 + length]
            if len(name) != length:
                return None
            topics.append(name.decode())
            position += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
