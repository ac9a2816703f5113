"""The records of a partition that are on their way to a share group: who has them, how often they were sent.

Nothing before `start_offset` is of interest any more; from there to `end_offset` there are batches, each of
one piece as long as its offsets fare alike, else of runs (`batches.py`). Mirrors the state of Kafka's
SharePartition (KIP-932). Pure: no input or output, no clock; what changes is returned to be written down.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby, islice
from typing import NamedTuple

from broker.share.batches import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, Batch, Change, Delivery
from broker.share.overview import Overview
from broker.share.state_batches import DeliveryState, StateBatch, joined
from protocol.errors import ErrorCode, KafkaError

NO_GAP = -1
NOT_ACQUIRED_BATCH = "The batch cannot be acknowledged. The batch is not in the acquired state."
NOT_ACQUIRED_OFFSET = "The offset cannot be acknowledged. The offset is not acquired."


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
_OVER = Delivery(ARCHIVED)


class Acknowledgement(NamedTuple):
    """What a member says of a run of offsets: one type for all, or one each."""

    first: int
    last: int
    types: Sequence[int]

    def parts(self, first: int, last: int) -> Iterator[tuple[int, int, AckType]]:
        """What it says of `first` to `last`, which lie within: runs of the same type."""
        if len(self.types) == 1:
            yield first, last, AckType(self.types[0])
            return
        for ack_type, run in groupby(self.types[first - self.first : last - self.first + 1]):
            end = first + sum(1 for _ in run)
            yield first, end - 1, AckType(ack_type)
            first = end


class Transition:
    """What one request changes: written down if all of it may be, else undone."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._changes: list[tuple[Batch, Sequence[Change]]] = []
        self._after: list[StateBatch] = []

    def apply(self, batch: Batch, changes: Sequence[Change]) -> None:
        """Change a batch, as `Batch.change`."""
        self._in_flight.change(batch, changes)
        self._changes.append((batch, changes))
        self._after += [
            StateBatch(first, last, after.state, after.sent)
            for first, last, before, after in changes
            if after is not before and after.state is not ACQUIRED
        ]

    @property
    def batches(self) -> list[StateBatch]:
        """What is to be written down; in the order of the offsets, alike neighbours as one."""
        return joined(self._after)

    @property
    def gives_back(self) -> bool:
        return any(batch.state is AVAILABLE for batch in self._after)

    def undo(self) -> None:
        """Nothing is over: a lock that was renewed stays so."""
        for batch, changes in self._changes:
            self._in_flight.change(
                batch,
                [
                    Change(first, last, after, after if after.state is ACQUIRED else before)
                    for first, last, before, after in changes
                ],
            )


class InFlight:
    """Owned by: event loop."""

    def __init__(self, start_offset: int, stored: Iterable[StateBatch] = ()) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        """the last offset that is on its way; while there is none, the first that will be"""
        self.batches: list[Batch] = []
        self._overview = Overview()
        self.looks_back = False
        """whether something may be available that was on its way before"""
        self.gap_offset = NO_GAP
        """behind a start, the first offset before `gap_end` of which nothing is known"""
        self.gap_end = NO_GAP
        for first, last, state, count in stored:
            known_to = self.batches[-1].last if self.batches else start_offset - 1
            if first > known_to + 1 and self.gap_offset == NO_GAP:
                self.gap_offset = known_to + 1
            self.put(Batch(first, last, Delivery(state, count)))
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
        return sum(self._overview.counts[state] for state in states)

    def stored(self) -> list[StateBatch]:
        """All that a broker has to know that goes on from here: not who has what. What a member has was
        available before, and is again if nobody says how it went.
        """
        found = []
        for batch in self.batches:
            for first, last, delivery in batch.parts(self.start_offset, self.end_offset):
                state, count = delivery.state, delivery.sent
                if state is ACQUIRED:
                    state, count = AVAILABLE, count - 1
                if state is not AVAILABLE or count:
                    found.append(StateBatch(first, last, state, count))
        return joined(found)

    def floor(self, offset: int) -> Batch | None:
        """The last batch that begins at `offset` or before."""
        index = bisect_right(self.batches, offset, key=_first_of)
        return self.batches[index - 1] if index else None

    def between(self, first: int, last: int) -> list[Batch]:
        """The batches that begin at `first` to `last`."""
        low = bisect_left(self.batches, first, key=_first_of)
        return self.batches[low : bisect_right(self.batches, last, key=_first_of)]

    def overlapping(self, first: int, last: int) -> list[Batch]:
        """The batches that hold any of `first` to `last`."""
        floor = self.floor(first)
        return self.between(floor.first if floor is not None and floor.last >= first else first, last)

    def put(self, batch: Batch) -> None:
        """A batch where there is none."""
        assert batch.whole is not None, "nobody has treated its records differently"
        index = bisect_left(self.batches, batch.first, key=_first_of)
        self.batches.insert(index, batch)
        self._overview.add(batch.first, batch.last, batch.whole, self.start_offset)

    def change(self, batch: Batch, changes: Sequence[Change]) -> None:
        """Change a batch, as `Batch.change`."""
        batch.change(changes)
        self._overview.change(changes, self.start_offset, batch.last)

    def move_start(self, offset: int) -> None:
        """What lies before `offset` does not count any more."""
        low, high = sorted((self.start_offset, offset))
        for batch in self.overlapping(low, high - 1):
            for first, last, delivery in batch.parts(low, high - 1):
                size = last - first + 1
                self._overview.counts[delivery.state] += size if offset == low else -size
        self.start_offset = offset

    def next_fetch_offset(self) -> int:
        """Where to read next: the first offset that is available, or what comes behind all."""
        if self.is_empty:
            self.looks_back = False
            return self.end_offset
        if self.looks_back:
            found = self._first_to_read()
            if found is not None:
                return found
            self.looks_back = False
        return self.end_offset + 1

    def _first_to_read(self) -> int | None:
        """The first offset that is available, or that nothing is known of, though of what comes behind it."""
        available = self.first_available()
        unknown = self._first_unknown(available) if self.has_gap else None
        return min((found for found in (available, unknown) if found is not None), default=None)

    def first_available(self) -> int | None:
        while (offset := self._overview.first_candidate) is not None:
            batch = self.floor(offset)
            is_there = batch is not None and offset <= batch.last
            if batch is not None and is_there and batch.delivery_at(offset).state is AVAILABLE:
                return offset
            self._overview.drop_candidate()
        return None

    def _first_unknown(self, available: int | None) -> int | None:
        """The first hole between batches from `gap_offset` on, if it lies before what is `available`."""
        offset = self.gap_offset
        index = bisect_right(self.batches, offset, key=_first_of)
        if index:
            offset = max(offset, self.batches[index - 1].last + 1)
        for batch in islice(self.batches, index, None):
            if batch.first > offset:
                return offset
            if available is not None and available <= batch.last:
                return None
            offset = batch.last + 1
        return None

    @property
    def most_sent(self) -> int:
        """No offset that is available was sent more often."""
        return self._overview.most_sent

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
        transition = Transition(self)
        saying = _Saying(member_id, count_limit, renewed_until_ms)
        try:
            for one in told:
                if one.last >= self.start_offset:
                    for batch in self._batches_of(one):
                        if batch.last >= self.start_offset:
                            self._acknowledge_in(batch, one, saying, transition)
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
        self, batch: Batch, one: Acknowledgement, saying: _Saying, transition: Transition
    ) -> None:
        whole = batch.whole
        if whole is not None:
            saying.check_owner(whole, NOT_ACQUIRED_BATCH, "batch record")
            is_within = one.first <= batch.first and batch.last <= one.last
            if not is_within or len(one.types) > 1 or batch.first < self.start_offset:
                batch.split()
        changes = []
        try:
            for low, high, delivery in batch.parts(max(one.first, self.start_offset), one.last):
                if batch.whole is None:
                    saying.check_owner(delivery, NOT_ACQUIRED_OFFSET, "offset")
                outcomes: dict[AckType, Delivery] = {}
                for first, last, ack_type in one.parts(low, high):
                    if ack_type not in outcomes:
                        outcomes[ack_type] = saying.outcome(delivery, ack_type)
                    changes.append(Change(first, last, delivery, outcomes[ack_type]))
        finally:  # what was renewed before an error stays so
            if changes:
                transition.apply(batch, changes)

    def release(self, member_id: str, count_limit: int) -> Transition:
        """The member is gone: what it has is for the others."""
        if member_id not in self._overview.held:
            return Transition(self)
        return self._give_back(lambda delivery: delivery.member_id == member_id, count_limit)

    def expire(self, now_ms: int, count_limit: int) -> Transition:
        """What members have had for too long is for the others."""
        next_ms = self.next_expiry_ms()
        if next_ms is None or next_ms > now_ms:
            return Transition(self)
        return self._give_back(lambda delivery: delivery.lock_until_ms <= now_ms, count_limit)

    def _give_back(self, concerns: Callable[[Delivery], bool], count_limit: int) -> Transition:
        transition = Transition(self)
        start_offset = self.start_offset
        for batch in self.batches:
            whole = batch.whole
            if whole is not None:
                if whole.state is not ACQUIRED or not concerns(whole):
                    continue
                if batch.first < start_offset <= batch.last:
                    batch.split()
            changes = [
                Change(first, last, delivery, delivery.ended(state, count_limit))
                if delivery.state is ACQUIRED and concerns(delivery)
                else Change(first, last, delivery, delivery)
                for low, high, state in (
                    (batch.first, start_offset - 1, ARCHIVED),
                    (start_offset, batch.last, AVAILABLE),
                )
                for first, last, delivery in batch.parts(low, high)
            ]
            if any(one.after is not one.before for one in changes):
                transition.apply(batch, changes)
        return self._changed(transition)

    def _changed(self, transition: Transition) -> Transition:
        self.looks_back |= transition.gives_back
        return transition

    def next_expiry_ms(self) -> int | None:
        """When the first of the members has had something for too long."""
        return self._overview.first_lock_end_ms

    # what the log says

    def archive(self, first: int, last: int, state: DeliveryState) -> None:
        """What is in `state` of `first` to `last` is never delivered any more: the log has no such record, or
        its transaction was aborted.
        """
        for batch in self.overlapping(first, last):
            if batch.whole is not None and not first <= batch.first <= batch.last <= last:
                if batch.whole.state is not state:
                    continue
                batch.split()
            changes = [
                Change(low, high, delivery, delivery.archived() if delivery.state is state else delivery)
                for low, high, delivery in batch.parts(first, last)
            ]
            if any(one.after is not one.before for one in changes):
                self.change(batch, changes)
                self.looks_back = True

    def start_at(self, log_start_offset: int) -> None:
        """The log begins later now."""
        if log_start_offset <= self.start_offset:
            return
        if self.batches:
            self.archive(self.start_offset, log_start_offset - 1, AVAILABLE)
        else:
            self.end_offset = log_start_offset
        self.move_start(log_start_offset)
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
            self._overview = Overview()
            return
        index = bisect_right(self.batches, over_to, key=_first_of) - 1
        if self.batches[index].last == over_to:
            index += 1
            start_offset = max(self.start_offset, self.batches[index].first)
            if self.has_gap:
                start_offset = min(self.gap_offset, start_offset)
        else:
            start_offset = max(self.start_offset, over_to + 1)
        self.move_start(start_offset)
        del self.batches[:index]
        first = self.batches[0]
        if first.first <= over_to:  # one run, that nobody walks over it again
            first.change([Change(first.first, over_to, _OVER, _OVER)])

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


class _Saying(NamedTuple):
    """Who says something of deliveries, and what the group allows."""

    member_id: str
    count_limit: int
    renewed_until_ms: int | None

    def check_owner(self, delivery: Delivery, not_acquired: str, owner_of: str) -> None:
        """KafkaError: the member does not have it."""
        if delivery.state is not ACQUIRED:
            raise _bad_state(not_acquired)
        if delivery.member_id != self.member_id:
            raise _bad_state(f"Member is not the owner of {owner_of}")

    def outcome(self, delivery: Delivery, ack_type: AckType) -> Delivery:
        """KafkaError: no member may ask for more time."""
        if ack_type is not AckType.RENEW:
            return delivery.ended(_LEADS_TO[ack_type], self.count_limit)
        if self.renewed_until_ms is None:
            raise _bad_state("Renewing acquisition locks is not enabled for the group.")
        return delivery.renewed(self.renewed_until_ms)


def _bad_state(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, message)
