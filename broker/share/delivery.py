"""The records of a partition that are on their way to a share group: who has them, how often they were sent.

Nothing before `start_offset` is of interest any more; from there to `end_offset` there are batches, each with
one delivery for all its offsets as long as they fare alike, else with one for each. Mirrors the state of
Kafka's SharePartition, InFlightBatch and InFlightState (KIP-932). Pure: no input or output, no clock; what
changes is returned to be written down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from broker.share.state_batches import DeliveryState, StateBatch, joined
from protocol.errors import ErrorCode, KafkaError

NOBODY = ""
NO_GAP = -1
NOT_ACQUIRED_BATCH = "The batch cannot be acknowledged. The batch is not in the acquired state."
NOT_ACQUIRED_OFFSET = "The offset cannot be acknowledged. The offset is not acquired."


AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


class AckType(IntEnum):
    """How a member says that a delivery went."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_LEADS_TO = {
    AckType.GAP: ARCHIVED,
    AckType.ACCEPT: ACKNOWLEDGED,
    AckType.RELEASE: AVAILABLE,
    AckType.REJECT: ARCHIVED,
}


class Acknowledgement(NamedTuple):
    """What a member says of a run of offsets: one type for all, or one each."""

    first: int
    last: int
    types: Sequence[int]

    def type_of(self, offset: int) -> AckType:
        return AckType(self.types[offset - self.first] if len(self.types) > 1 else self.types[0])


class Delivery:
    """How far the delivery of one offset is, or of all of a batch."""

    __slots__ = ("count", "lock_until_ms", "member_id", "state")

    def __init__(
        self,
        state: DeliveryState = AVAILABLE,
        count: int = 0,
        member_id: str = NOBODY,
        lock_until_ms: int = 0,
    ) -> None:
        self.state = state
        self.count = count
        """how often it was sent"""
        self.member_id = member_id
        self.lock_until_ms = lock_until_ms
        """so long its member has it, by `Clock.passed_ms`; of one that is acquired"""

    @property
    def is_over(self) -> bool:
        return self.state is ACKNOWLEDGED or self.state is ARCHIVED

    def acquire(self, member_id: str, lock_until_ms: int) -> None:
        self.state = ACQUIRED
        self.count += 1
        self.member_id = member_id
        self.lock_until_ms = lock_until_ms

    def end(self, state: DeliveryState, count_limit: int) -> None:
        """Nobody has it any more; what was sent too often is given up."""
        self.state = ARCHIVED if state is AVAILABLE and self.count >= count_limit else state
        self.member_id = NOBODY

    def copy(self) -> Delivery:
        return Delivery(self.state, self.count, self.member_id, self.lock_until_ms)


class Batch:
    """Offsets that were taken together. `whole` is None once they fare differently: then there is `each`."""

    __slots__ = ("each", "first", "last", "whole")

    def __init__(self, first: int, last: int, whole: Delivery) -> None:
        self.first = first
        self.last = last
        self.whole: Delivery | None = whole
        self.each: dict[int, Delivery] = {}

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def split(self) -> None:
        if self.whole is not None:
            whole, self.whole = self.whole, None
            self.each = {offset: whole.copy() for offset in range(self.first, self.last + 1)}

    def parts(self, first: int, last: int) -> Iterator[tuple[int, int, Delivery]]:
        """What of it lies within `first` to `last`, with its offsets: a batch that fares alike is one part,
        whether or not it reaches beyond.
        """
        if self.whole is not None:
            yield self.first, self.last, self.whole
            return
        for offset in range(max(first, self.first), min(last, self.last) + 1):
            yield offset, offset, self.each[offset]

    def delivery_at(self, offset: int) -> Delivery:
        return self.each[offset] if self.whole is None else self.whole


class Transition:
    """What one request changes: written down if all of it may be, else undone."""

    def __init__(self, count_limit: int) -> None:
        self._count_limit = count_limit
        self._before: list[tuple[Delivery, Delivery]] = []
        self._after: list[StateBatch] = []

    def end(self, first: int, last: int, delivery: Delivery, state: DeliveryState) -> None:
        self._before.append((delivery, delivery.copy()))
        delivery.end(state, self._count_limit)
        self._after.append(StateBatch(first, last, delivery.state, delivery.count))

    @property
    def batches(self) -> list[StateBatch]:
        """What is to be written down; in the order of the offsets, alike neighbours as one."""
        return joined(self._after)

    def undo(self) -> None:
        for delivery, before in self._before:
            delivery.state, delivery.member_id = before.state, before.member_id


class InFlight:
    """Owned by: event loop."""

    def __init__(self, start_offset: int, stored: Iterable[StateBatch] = ()) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        """the last offset that is on its way; while there is none, the first that will be"""
        self.batches: list[Batch] = []
        self.looks_back = False
        """whether something may be available that was on its way before"""
        self.gap_offset = NO_GAP
        """behind a start, the first offset before `gap_end` of which nothing is known"""
        self.gap_end = NO_GAP
        for first, last, state, count in stored:
            known_to = self.batches[-1].last if self.batches else start_offset - 1
            if first > known_to + 1 and self.gap_offset == NO_GAP:
                self.gap_offset = known_to + 1
            self.batches.append(Batch(first, last, Delivery(state, count)))
        if self.batches:
            self.looks_back = True
            self.end_offset = self.batches[-1].last
            if self.gap_offset != NO_GAP:
                self.gap_end = self.end_offset
            self.advance()

    # look-ups

    @property
    def is_empty(self) -> bool:
        return not self.batches or self.start_offset > self.batches[-1].last

    @property
    def has_gap(self) -> bool:
        return self.gap_offset != NO_GAP and self.gap_end == self.end_offset

    @property
    def record_count(self) -> int:
        """How many offsets are on their way."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def complete_count(self) -> int:
        """Of how many of them the delivery is over."""
        return self.count_of(ACKNOWLEDGED, ARCHIVED)

    def count_of(self, *states: DeliveryState) -> int:
        """How many of them are in one of these states."""
        return sum(
            last - max(first, self.start_offset) + 1
            for batch in self.batches
            for first, last, delivery in batch.parts(self.start_offset, self.end_offset)
            if delivery.state in states and last >= self.start_offset
        )

    def stored(self) -> list[StateBatch]:
        """All that a broker has to know that goes on from here: not who has what. What a member has was
        available before, and is again if nobody says how it went.
        """
        found = []
        for batch in self.batches:
            for first, last, delivery in batch.parts(self.start_offset, self.end_offset):
                is_acquired = delivery.state is ACQUIRED
                state, count = (
                    (AVAILABLE, delivery.count - 1) if is_acquired else (delivery.state, delivery.count)
                )
                if last >= self.start_offset and (state is not AVAILABLE or count):
                    found.append(StateBatch(max(first, self.start_offset), last, state, count))
        return joined(found)

    def floor(self, offset: int) -> Batch | None:
        """The last batch that begins at `offset` or before."""
        index = bisect_right(self.batches, offset, key=_first_of)
        return self.batches[index - 1] if index else None

    def between(self, first: int, last: int) -> list[Batch]:
        """The batches that begin at `first` to `last`."""
        low = bisect_left(self.batches, first, key=_first_of)
        return self.batches[low : bisect_right(self.batches, last, key=_first_of)]

    def put(self, batch: Batch) -> None:
        index = bisect_left(self.batches, batch.first, key=_first_of)
        is_known = index < len(self.batches) and self.batches[index].first == batch.first
        self.batches[index : index + is_known] = [batch]

    def next_fetch_offset(self) -> int:
        """Where to read next: the first offset that is available, or what comes behind all."""
        if self.is_empty:
            self.looks_back = False
            return self.end_offset
        if self.looks_back:
            found = self._first_available()
            if found is not None:
                return found
            self.looks_back = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        has_gap, gap_offset = self.has_gap, self.gap_offset
        for batch in self.batches:
            if has_gap:
                if batch.first > gap_offset:
                    return gap_offset
                gap_offset = max(batch.last + 1, gap_offset)
            for first, _, delivery in batch.parts(batch.first, batch.last):
                if delivery.state is AVAILABLE:
                    return first
        return None

    def can_acquire(self, record_limit: int) -> bool:
        """Whether a member could get anything: what is available again, or one more."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.record_count < record_limit

    # what members say

    def acknowledge(
        self,
        member_id: str,
        told: Iterable[Acknowledgement],
        *,
        count_limit: int,
        renewed_until_ms: int | None,
    ) -> Transition:
        """What members say of what they have. KafkaError: nothing has changed, though a lock that was renewed
        before the error stays so. `renewed_until_ms` None: no member may ask for more time.
        """
        transition = Transition(count_limit)
        try:
            for one in told:
                if one.last >= self.start_offset:
                    for batch in self._batches_of(one):
                        if batch.last >= self.start_offset:
                            self._acknowledge_in(batch, member_id, one, transition, renewed_until_ms)
        except KafkaError:
            transition.undo()
            raise
        return self._changed(transition)

    def _batches_of(self, one: Acknowledgement) -> list[Batch]:
        floor = self.floor(one.first)
        if floor is None and one.first < self.start_offset <= one.last:
            floor = self.floor(self.start_offset)
        if floor is None:
            raise _bad_state("Batch record not found. The request batch offsets are not found in the cache.")
        batches = self.between(floor.first, one.last)
        for which, offset in (("first", one.first), ("last", one.last)):
            if offset > batches[-1].last:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Batch record not found. The {which} offset in request is past acquired records.",
                )
        return batches

    def _acknowledge_in(
        self,
        batch: Batch,
        member_id: str,
        one: Acknowledgement,
        transition: Transition,
        renewed_until_ms: int | None,
    ) -> None:
        if batch.whole is not None:
            _check_owner(batch.whole, member_id, NOT_ACQUIRED_BATCH, "batch record")
            is_within = one.first <= batch.first and batch.last <= one.last
            if not is_within or len(one.types) > 1 or batch.first < self.start_offset:
                batch.split()
        first = max(one.first, self.start_offset)
        for low, high, delivery in batch.parts(first, one.last):
            if batch.whole is None:
                _check_owner(delivery, member_id, NOT_ACQUIRED_OFFSET, "offset")
            ack_type = one.type_of(max(low, one.first))
            if ack_type is not AckType.RENEW:
                transition.end(low, high, delivery, _LEADS_TO[ack_type])
            elif renewed_until_ms is not None:
                delivery.lock_until_ms = renewed_until_ms
            else:
                raise _bad_state("Renewing acquisition locks is not enabled for the group.")

    def release(self, member_id: str, count_limit: int) -> Transition:
        """The member is gone: what it has is for the others."""
        return self._give_back(lambda delivery: delivery.member_id == member_id, count_limit)

    def expire(self, now_ms: int, count_limit: int) -> Transition:
        """What members have had for too long is for the others."""
        return self._give_back(lambda delivery: delivery.lock_until_ms <= now_ms, count_limit)

    def _give_back(self, concerns: Callable[[Delivery], bool], count_limit: int) -> Transition:
        transition = Transition(count_limit)
        for batch in self.batches:
            whole = batch.whole
            if whole is not None:
                if whole.state is not ACQUIRED or not concerns(whole):
                    continue
                if batch.first < self.start_offset <= batch.last:
                    batch.split()
            for first, last, delivery in batch.parts(batch.first, batch.last):
                if delivery.state is ACQUIRED and concerns(delivery):
                    transition.end(first, last, delivery, ARCHIVED if last < self.start_offset else AVAILABLE)
        return self._changed(transition)

    def _changed(self, transition: Transition) -> Transition:
        self.looks_back |= any(batch.state is AVAILABLE for batch in transition.batches)
        return transition

    def next_expiry_ms(self) -> int | None:
        """When the first of the members has had something for too long."""
        return min(
            (
                delivery.lock_until_ms
                for batch in self.batches
                for _, _, delivery in batch.parts(batch.first, batch.last)
                if delivery.state is ACQUIRED
            ),
            default=None,
        )

    # what the log says

    def archive(self, first: int, last: int, state: DeliveryState) -> None:
        """What is in `state` of `first` to `last` is never delivered any more: the log has no such record, or
        its transaction was aborted.
        """
        floor = self.floor(first)
        begin = floor.first if floor is not None and floor.last >= first else first
        for batch in self.between(begin, last):
            if batch.whole is not None and not first <= batch.first <= batch.last <= last:
                if batch.whole.state is not state:
                    continue
                batch.split()
            for _, _, delivery in batch.parts(first, last):
                if delivery.state is state:
                    delivery.state, delivery.member_id = ARCHIVED, NOBODY
                    self.looks_back = True

    def start_at(self, log_start_offset: int) -> None:
        """The log begins later now."""
        if log_start_offset <= self.start_offset:
            return
        if self.batches:
            self.archive(self.start_offset, log_start_offset - 1, AVAILABLE)
        else:
            self.end_offset = log_start_offset
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)

    # moving on

    def advance(self) -> None:
        """Forget what is over at the beginning; call it once a transition is written down."""
        floor = self.floor(self.start_offset)
        if floor is None or not self._delivery_at_start(floor).is_over:
            return
        over_to = self._over_to()
        if over_to is None:
            return
        if over_to == self.batches[-1].last:
            self.start_offset = self.end_offset = over_to + 1
            self.batches.clear()
            return
        index = bisect_right(self.batches, over_to, key=_first_of) - 1
        if self.batches[index].last == over_to:
            index += 1
            self.start_offset = max(self.start_offset, self.batches[index].first)
            if self.has_gap:
                self.start_offset = min(self.gap_offset, self.start_offset)
        else:
            self.start_offset = max(self.start_offset, over_to + 1)
        del self.batches[:index]

    def _delivery_at_start(self, floor: Batch) -> Delivery:
        return floor.delivery_at(min(self.start_offset, floor.last))

    def _over_to(self) -> int | None:
        """Up to which offset all is over, from the first batch on."""
        over_to = None
        for batch in self.batches:
            if self.has_gap and batch.last >= self.gap_offset:
                return over_to
            for _, last, delivery in batch.parts(batch.first, batch.last):
                if not delivery.is_over:
                    return over_to
                over_to = last
        return over_to

    def note_read_to(self, offset: int) -> None:
        """What lies before `offset` is known now."""
        if self.gap_offset != NO_GAP:
            has_more = self.gap_end == self.end_offset and offset <= self.gap_end
            self.gap_offset = offset if has_more else NO_GAP


def _first_of(batch: Batch) -> int:
    return batch.first


def _check_owner(delivery: Delivery, member_id: str, not_acquired: str, owner_of: str) -> None:
    if delivery.state is not ACQUIRED:
        raise _bad_state(not_acquired)
    if delivery.member_id != member_id:
        raise _bad_state(f"Member is not the owner of {owner_of}")


def _bad_state(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, message)
