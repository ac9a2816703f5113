"""One member of a streams group, and how it moves towards the tasks that it shall have. Pure.

A task is a subtopology and a partition of its source topics. As in `consumer/member.py` a member first gives
back what is not in its target (UNREVOKED_TASKS, in its old epoch), then takes what is free of the rest, in
the target's epoch (UNRELEASED_TASKS while others still have some of it, STABLE with all). An active task is
with one process; of a task no process has two copies, for they would share one directory of state. Mirrors
Kafka's StreamsGroupMember, TasksTuple and CurrentAssignmentBuilder (KIP-1071).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from protocol.errors import ErrorCode

Tasks = Mapping[str, frozenset[int]]
"""partitions by subtopology, no subtopology without any"""
NO_TASKS: Tasks = MappingProxyType({})
HeldTasks = Mapping[str, Mapping[int, int]]
"""partitions by subtopology, each with the epoch that it was assigned in (KIP-1251)"""


class MemberState(IntEnum):
    """Where a member is on its way to its target; the numbers are those of its record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


class Assignment(NamedTuple):
    """What a member shall have, or says that it owns."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS


class Holding(NamedTuple):
    """What a member has, or has still to give back."""

    active: HeldTasks = MappingProxyType({})
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def without_epochs(self) -> Assignment:
        active = {name: frozenset(partitions) for name, partitions in self.active.items()}
        return Assignment(active, self.standby, self.warmup)


NOTHING = Holding()


class Endpoint(NamedTuple):
    """Where an instance answers interactive queries."""

    host: str
    port: int


class HeldPartitions(NamedTuple):
    """What an instance has, by topic."""

    endpoint: Endpoint
    active: Sequence[tuple[str, Sequence[int]]]
    standby: Sequence[tuple[str, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member as it is now; a change replaces it."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Holding = NOTHING
    pending_revocation: Holding = NOTHING

    @property
    def is_classic(self) -> bool:
        """No streams member speaks the classic protocol."""
        return False

    @property
    def stale_epoch(self) -> ErrorCode:
        """What a commit in a wrong epoch is answered."""
        return ErrorCode.STALE_MEMBER_EPOCH

    def has_reached(self, target_epoch: int) -> bool:
        """Whether it has all that the target of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def held_since(self, subtopology: str, partition: int) -> int | None:
        """The epoch in which it got an active task that it has, or has still to give back."""
        epoch = self.assigned.active.get(subtopology, {}).get(partition)
        return self.pending_revocation.active.get(subtopology, {}).get(partition) if epoch is None else epoch


IsTaken = Callable[[str, int], bool]
"""whether a member must not have a task (of this subtopology, of this partition) now"""


class Taken(NamedTuple):
    """What keeps a member from taking a task, as active one or as copy."""

    active: IsTaken
    copy: IsTaken


def owns_any(owned: Assignment | None, held: Holding) -> bool:
    """Whether a client that says it owns `owned` has any of `held`; one that says nothing may have."""
    if owned is None:
        return True
    return any(
        not mine.get(name, frozenset()).isdisjoint(partitions)
        for mine, theirs in zip(owned, held.without_epochs(), strict=True)
        for name, partitions in theirs.items()
    )


def is_within(owned: Assignment | None, assigned: Holding) -> bool:
    """Whether all that a client says it owns is assigned to it."""
    if owned is None:
        return False
    return all(
        name in theirs and partitions <= theirs[name]
        for mine, theirs in zip(owned, assigned.without_epochs(), strict=True)
        for name, partitions in mine.items()
    )


def next_step(
    member: StreamsMember, target_epoch: int, target: Assignment, owned: Assignment | None, taken: Taken
) -> StreamsMember:
    """The member after its heartbeat: one step nearer to `target`; `owned` is what its client says it has."""
    if member.has_reached(target_epoch):
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_TASKS:
        if owns_any(owned, member.pending_revocation):
            return member
        epoch += 1
    elif member.state is MemberState.UNKNOWN:
        epoch = target_epoch
    held, wanted = member.assigned, target
    active = _differences(held.active, wanted.active, taken.active)
    standby = _differences(held.standby, wanted.standby, taken.copy)
    warmup = _differences(held.warmup, wanted.warmup, taken.copy)
    kept = Holding(_with_epochs(active.kept, held.active), standby.kept, warmup.kept)
    surplus = Holding(_with_epochs(active.surplus, held.active), standby.surplus, warmup.surplus)
    if not surplus.is_empty and owns_any(owned, surplus):
        return _moved(member, MemberState.UNREVOKED_TASKS, epoch, kept, surplus)
    new = {name: dict.fromkeys(partitions, target_epoch) for name, partitions in active.free.items()}
    assigned = Holding(
        {name: {**kept.active.get(name, {}), **new.get(name, {})} for name in kept.active.keys() | new},
        _joined(standby.kept, standby.free),
        _joined(warmup.kept, warmup.free),
    )
    has_to_wait = active.has_to_wait or standby.has_to_wait or warmup.has_to_wait
    state = MemberState.UNRELEASED_TASKS if has_to_wait else MemberState.STABLE
    return _moved(member, state, target_epoch, assigned, NOTHING)


class _Difference(NamedTuple):
    kept: Tasks
    surplus: Tasks
    free: Tasks
    """what is wanted and may be taken"""
    has_to_wait: bool
    """whether more is wanted, which may not be taken yet"""


def _differences(
    held: Mapping[str, Mapping[int, int] | frozenset[int]], wanted: Tasks, is_taken: IsTaken
) -> _Difference:
    kept, surplus, free = {}, {}, {}
    has_to_wait = False
    for name in held.keys() | wanted.keys():
        mine, shall = frozenset(held.get(name, ())), wanted.get(name, frozenset())
        missing = shall - mine
        there = frozenset(partition for partition in missing if not is_taken(name, partition))
        has_to_wait |= len(there) < len(missing)
        kept[name], surplus[name], free[name] = mine & shall, mine - shall, there
    return _Difference(_without_empty(kept), _without_empty(surplus), _without_empty(free), has_to_wait)


def _without_empty(tasks: Tasks) -> Tasks:
    return {name: partitions for name, partitions in tasks.items() if partitions}


def _with_epochs(tasks: Tasks, held: HeldTasks) -> HeldTasks:
    return {
        name: {partition: held[name][partition] for partition in partitions}
        for name, partitions in tasks.items()
    }


def _joined(tasks: Tasks, more: Tasks) -> Tasks:
    return {
        name: tasks.get(name, frozenset()) | more.get(name, frozenset())
        for name in tasks.keys() | more.keys()
    }


def _moved(
    member: StreamsMember, state: MemberState, epoch: int, assigned: Holding, pending_revocation: Holding
) -> StreamsMember:
    return dataclasses.replace(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )
