"""A partition as one share group sees it, and what is written down of that."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from broker.clock import Timer
from broker.share.delivery import InFlight
from broker.share.state_batches import StateBatch, overlaid

NO_OFFSET = -1
"""the group has no position yet: it begins by share.auto.offset.reset when somebody reads"""
NO_COUNT = -1
NO_EPOCH = -1


class ShareKey(NamedTuple):
    """A group and a partition that it reads."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def state_id(self) -> str:
        """By which Kafka finds the partition of `__share_group_state`."""
        topic_id = base64.urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        return f"{self.group_id}:{topic_id}:{self.partition}"


@dataclass(slots=True)
class Stored:
    """What the records of `__share_group_state` say of a partition."""

    snapshot_epoch: int
    """how often all was written at once"""
    state_epoch: int
    """of the group, when it began here"""
    leader_epoch: int
    start_offset: int
    complete_count: int
    """of how many offsets behind that the delivery is over; NO_COUNT: it is not known"""
    created_ms: int
    batches: Sequence[StateBatch] = ()
    snapshot_at: int = 0
    """the offset of the last record that says all"""
    updates: int = 0
    """how many say what has changed since"""

    def update(
        self, start_offset: int, complete_count: int, leader_epoch: int, batches: Sequence[StateBatch]
    ) -> None:
        """Something has changed since; what is NO_OFFSET or NO_EPOCH has not."""
        if start_offset != NO_OFFSET:
            self.start_offset = start_offset
        if leader_epoch != NO_EPOCH:
            self.leader_epoch = leader_epoch
        self.complete_count = complete_count
        self.batches = overlaid(self.batches, batches, self.start_offset)
        self.updates += 1


class SharePartition:
    """Owned by: event loop."""

    def __init__(self, key: ShareKey, stored: Stored) -> None:
        self.key = key
        self.stored = stored
        """its batches are those of the start, while `in_flight` is None; then that knows them"""
        self.in_flight: InFlight | None = None
        """None until somebody reads"""
        self.expiry: Timer | None = None
        self.expires_ms = 0
        """when that fires: no later than the first of the locks ends"""

    def open_at(self, start_offset: int) -> InFlight:
        """Somebody reads: from where the group stands, `start_offset` if that is not known."""
        stored = self.stored
        if stored.start_offset != NO_OFFSET:
            start_offset = stored.start_offset
        self.in_flight = InFlight(start_offset, stored.batches)
        stored.batches = ()
        return self.in_flight

    def follow(self) -> None:
        """What is written down next says where the group stands now."""
        if self.in_flight is not None:
            self.stored.start_offset = self.in_flight.start_offset
            self.stored.complete_count = self.in_flight.complete_count

    def batches(self) -> Sequence[StateBatch]:
        """All that is known of its offsets."""
        return self.stored.batches if self.in_flight is None else self.in_flight.stored()

    def close(self) -> None:
        """No deadline fires any more, nothing is delivered."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None
