"""One share group: its members, what each shall have, of which partitions it is known where the group stands.

Mirrors Kafka's ShareGroup and ShareGroupMember. Nothing here sets a timer, writes a record or decides;
`changes.py` says what can change, `heartbeats.py` what does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from broker.groups.epoch_group import EpochGroup
from broker.groups.epochs import FIRST_EPOCH
from broker.groups.topics import Partitions


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


class ShareGroup(EpochGroup[ShareMember, Partitions]):
    """Owned by: event loop."""

    kind = "share"
    protocol_type = "share"
    assignor = "simple"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.target_epoch = FIRST_EPOCH
        self.begun: Mapping[UUID, Begun] = {}
        """by topic id"""

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribed_topics(self) -> frozenset[str]:
        """The names that members subscribe to; not all of them need exist."""
        return frozenset[str]().union(*(member.topic_names for member in self.members.values()))
