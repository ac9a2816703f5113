"""One share group: its members, what each shall have, of which partitions it is known where the group stands.

Mirrors Kafka's ShareGroup and ShareGroupMember. Nothing here sets a timer, writes a record or decides;
`changes.py` says what can change, `heartbeats.py` what does.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from broker.clock import Timer
from broker.groups.topics import Partitions
from protocol.errors import ErrorCode, KafkaError


class ShareGroupState(Enum):
    """Kafka's names, as ShareGroupDescribe and ListGroups spell them."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member as it is now; a change replaces it."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = dataclasses.field(default_factory=dict)


class Begun(NamedTuple):
    """Partitions of a topic of which `__share_group_state` knows where the group stands."""

    topic: str
    partitions: frozenset[int]


class ShareGroup:
    """Owned by: event loop."""

    kind = "share"
    protocol_type = "share"
    assignor = "simple"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        """how often what there is to divide, or among whom, has changed"""
        self.metadata_hash = 0
        """of the topics as they were at that epoch"""
        self.target_epoch = 0
        """the epoch that `targets` are made for"""
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.begun: Mapping[UUID, Begun] = {}
        """by topic id"""
        self.seen_topics = -1
        """the version of the topics that were looked at last; not stored"""
        self.timers: dict[str, Timer] = {}

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> ShareMember:
        """The member; KafkaError if there is none."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def subscribed_topics(self) -> frozenset[str]:
        """The names that members subscribe to; not all of them need exist."""
        return frozenset[str]().union(*(member.topic_names for member in self.members.values()))

    def drafted(self) -> ShareGroup:
        """A copy, to try changes on."""
        draft = copy.copy(self)
        draft.members, draft.targets = self.members.copy(), self.targets.copy()
        return draft

    def stop_timers(self) -> None:
        """No deadline of this group fires any more."""
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()
