"""What groups of the newer protocols have in common: members in epochs, a target for each, deadlines.

Consumer, share and streams groups are such (KIP-848, KIP-932, KIP-1071); the first and the last commit
offsets. Nothing here sets a timer, writes a record or decides: `changes.py` of each says what can change,
`heartbeats.py` what does.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, Self, TypeVar

from broker.clock import Timer
from broker.groups.epochs import FIRST_EPOCH, MEMBER_EPOCH_VERSION
from broker.groups.offsets import GroupOffsets
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.topic import Topic


class Deadline(Enum):
    """What a member has to do in time, or it is fenced."""

    SESSION = "the member session expired."
    REVOCATION = "the member did not give back what it had to within its rebalance timeout."
    JOIN = "the classic member failed to join within the rebalance timeout."
    SYNC = "the member failed to sync within timeout."


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When something happens to a group, and how often it is divided anew."""

    now_ms: int
    interval_ms: int


class CommittingMember(Protocol):
    """A member whose commits have an epoch."""

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol, which knows generations."""

    @property
    def stale_epoch(self) -> ErrorCode:
        """What a commit in a wrong epoch is answered."""


M = TypeVar("M")
C = TypeVar("C", bound=CommittingMember)
T = TypeVar("T")


class EpochGroup(Generic[M, T]):
    """Of members `M`, which get targets `T`. Owned by: event loop."""

    kind: ClassVar[str]
    """Kafka's type of the group"""
    protocol_type: ClassVar[str]
    tables: ClassVar[tuple[str, ...]] = ("members", "targets")
    """what a draft has a copy of before it changes it"""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        """how often what there is to divide, or among whom, has changed"""
        self.metadata_hash = 0
        """of the topics as they were at that epoch"""
        self.target_epoch = 0
        """the epoch that `targets` are made for"""
        self.target_ms = 0
        """when they were made; 0: never by an assignor"""
        self.members: dict[str, M] = {}
        self.targets: dict[str, T] = {}
        self.seen_topics = -1
        """the version of the topics that were looked at last; not stored"""
        self._timers: dict[tuple[str, Deadline], Timer] = {}

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> M:
        """The member; KafkaError if there is none."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def check_room(self, most: int, member_id: str = "") -> None:
        """Whether the group, which may have `most` members, has room for this one; who is in may stay."""
        if len(self.members) >= most and member_id not in self.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The {self.kind} group has reached its maximum capacity of {most} members.",
            )

    def keeps_targets(self, pace: Pace) -> bool:
        """Whether the targets stay as they are for now, for they are not old enough. Mirrors
        `canComputeNextTargetAssignment`, but for a clock that has been set back.
        """
        return self.target_ms != 0 and 0 <= pace.now_ms - self.target_ms < pace.interval_ms

    # drafts

    def drafted(self) -> Self:
        """A copy, to try changes on; what of `tables` only after `detach`."""
        return copy.copy(self)

    def detach(self) -> None:
        """A draft is about to change what it shares with its group until then."""
        for name in self.tables:
            setattr(self, name, getattr(self, name).copy())

    # deadlines

    def expect(self, member_id: str, deadline: Deadline, timer: Timer) -> None:
        """The member has until `timer` fires; what it had before does not count."""
        self.no_longer_expect(member_id, deadline)
        self._timers[member_id, deadline] = timer

    def no_longer_expect(self, member_id: str, *deadlines: Deadline) -> None:
        """The member has done it, is gone, or its timer has fired."""
        for deadline in deadlines:
            timer = self._timers.pop((member_id, deadline), None)
            if timer is not None:
                timer.cancel()

    def is_expected(self, member_id: str, deadline: Deadline) -> bool:
        return (member_id, deadline) in self._timers

    def forget_gone(self) -> None:
        """Nothing is expected of who is no member any more."""
        for member_id, deadline in list(self._timers):
            if member_id not in self.members:
                self.no_longer_expect(member_id, deadline)

    def stop_timers(self) -> None:
        """No deadline of this group fires any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class CommittingGroup(EpochGroup[C, T], ABC):
    """A group that commits offsets. Owned by: event loop."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.offsets = GroupOffsets()

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transaction: bool, api_version: int
    ) -> C | None:
        """Who commits, if that need be asked; KafkaError: it may not (KIP-848, KIP-1251).

        A member in an older epoch may: `held_since` says of which partitions.
        """
        if epoch < 0 and self.is_empty:
            return None
        if is_transaction and epoch < 0 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not member.is_classic and not is_transaction and api_version < MEMBER_EPOCH_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {MEMBER_EPOCH_VERSION} or above must be used by members using the "
                f"{self.kind} group protocol",
            )
        if epoch > member.epoch:
            raise KafkaError(member.stale_epoch, f"the member's epoch is {member.epoch}")
        return member if epoch < member.epoch else None

    @abstractmethod
    def held_since(self, member_id: str, topic: Topic, partition: int) -> int | None:
        """The epoch in which a member got a partition, if it has it or has still to give it back."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether who says that it is a member may see the offsets (KIP-848)."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if member.epoch != epoch:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH, f"the member's epoch is {member.epoch}")
