"""One member of a consumer group, and how it moves towards what it shall have. Pure.

The broker computes a target for every member; a member reaches it in steps, each with a heartbeat, so that a
partition is never with two: first it gives back what is not in the target (UNREVOKED_PARTITIONS, in its old
epoch), then it takes what is free of the target's rest, in the target's epoch (UNRELEASED_PARTITIONS while
others still hold some of it, STABLE with all). Mirrors Kafka's ConsumerGroupMember and
CurrentAssignmentBuilder (KIP-848).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from broker.groups.membership import Protocols
from broker.groups.topics import Partitions
from protocol.errors import ErrorCode

Held = Mapping[UUID, Mapping[int, int]]
"""partitions by topic id, each with the epoch that it was assigned in (KIP-1251)"""


class MemberState(IntEnum):
    """Where a member is on its way to its target; the numbers are those of its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicProtocol(NamedTuple):
    """What a member said that speaks the classic protocol within a consumer group."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member as it is now; a change replaces it."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicProtocol | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Held = dataclasses.field(default_factory=dict)
    pending_revocation: Held = dataclasses.field(default_factory=dict)

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol, which knows generations."""
        return self.classic is not None

    @property
    def stale_epoch(self) -> ErrorCode:
        """What a commit in a wrong epoch is answered."""
        return ErrorCode.ILLEGAL_GENERATION if self.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def has_reached(self, target_epoch: int) -> bool:
        """Whether it has all that the target of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def subscribes_like(self, other: ConsumerMember) -> bool:
        return self.topic_names == other.topic_names and (self.topic_regex or None) == (
            other.topic_regex or None
        )

    def held_since(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch in which it got a partition that it has, or has still to give back."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch


def owns_any(owned: Partitions | None, partitions: Held) -> bool:
    """Whether a client that says it owns `owned` has any of `partitions`; one that says nothing may have."""
    if owned is None:
        return True
    return any(not owned.get(topic_id, frozenset()).isdisjoint(held) for topic_id, held in partitions.items())


def is_within(owned: Partitions | None, assigned: Held) -> bool:
    """Whether all that a client says it owns is assigned to it."""
    return owned is not None and all(
        owned[topic_id] <= assigned.get(topic_id, {}).keys() for topic_id in owned
    )


def next_step(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    is_free: Callable[[UUID, int, str], bool],
    subscribed: Collection[UUID],
    *,
    is_new_subscription: bool,
) -> ConsumerMember:
    """The member after its heartbeat: one step nearer to what of `target` it still subscribes to; where it
    has that already, or has to give back, without what it has just unsubscribed from.

    `owned` is what the client says it has, `is_free` whether a partition is with no other member,
    `subscribed` the ids of the topics it subscribes to.
    """
    has_to_give = member.state is MemberState.UNREVOKED_PARTITIONS
    if member.has_reached(target_epoch) or (has_to_give and owns_any(owned, member.pending_revocation)):
        return _unsubscribed(member, owned, subscribed) if is_new_subscription else member
    kept, surplus, free = {}, {}, {}
    has_to_wait = False
    for topic_id in member.assigned.keys() | target.keys():
        held = member.assigned.get(topic_id, {})
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        missing = wanted - held.keys()
        there = {partition for partition in missing if is_free(topic_id, partition, member.member_id)}
        has_to_wait |= len(there) < len(missing)
        kept[topic_id] = {partition: held[partition] for partition in held if partition in wanted}
        surplus[topic_id] = {partition: held[partition] for partition in held if partition not in wanted}
        free[topic_id] = dict.fromkeys(there, target_epoch)
    if any(surplus.values()) and owns_any(owned, surplus):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, surplus)
    state = MemberState.UNRELEASED_PARTITIONS if has_to_wait else MemberState.STABLE
    assigned = {topic_id: {**kept[topic_id], **free[topic_id]} for topic_id in kept}
    return _moved(member, state, target_epoch, assigned, {})


def _unsubscribed(
    member: ConsumerMember, owned: Partitions | None, subscribed: Collection[UUID]
) -> ConsumerMember:
    """The member, which has to give back all that it does not subscribe to any more: its client reads none
    of it from now on, and who else may have it need not wait for a new target, or one more round.
    """
    kept = {topic_id: held for topic_id, held in member.assigned.items() if topic_id in subscribed}
    if len(kept) == len(member.assigned):
        return member
    pending = dict(member.pending_revocation)
    for topic_id in member.assigned.keys() - kept.keys():
        pending[topic_id] = {**pending.get(topic_id, {}), **member.assigned[topic_id]}
    if owns_any(owned, pending):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, pending)
    return _moved(member, member.state, member.epoch, kept, member.pending_revocation)


def _moved(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: Held, pending_revocation: Held
) -> ConsumerMember:
    return dataclasses.replace(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=_without_empty(assigned),
        pending_revocation=_without_empty(pending_revocation),
    )


def _without_empty(held: Held) -> Held:
    return {topic_id: partitions for topic_id, partitions in held.items() if partitions}


def partitions_of(held: Held) -> Partitions:
    """Without the epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in held.items()}
