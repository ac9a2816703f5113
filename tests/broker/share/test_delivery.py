"""Goal: a record that was read for a share group is with one member at a time, until it is delivered or given
up; nothing is lost behind a start.

Method: hypothesis lets members acquire, acknowledge and vanish, locks end, logs lose records and brokers
start again; beside it a table says of each offset what it should be, and what is kept count of is found by
walking over all offsets. How much is acquired at a time is in `test_acquiring.py`, and
beside Kafka in `tests/kafka/test_share_groups.py`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.share.acquiring import Run, Wish, acquire
from broker.share.delivery import Acknowledgement, AckType, InFlight
from broker.share.state_batches import DeliveryState
from protocol.errors import ErrorCode, KafkaError

COUNT_LIMIT = 3
LOCK_MS = 100
MEMBERS = st.sampled_from("mno")
TYPES = st.sampled_from([AckType.GAP, AckType.ACCEPT, AckType.RELEASE, AckType.REJECT])


def wish(member: str = "m", now_ms: int = 0, **more: Any) -> Wish:
    usual = {
        "max_records": 500,
        "batch_size": 500,
        "is_limit": False,
        "record_limit": 200,
        "count_limit": COUNT_LIMIT,
        "lock_until_ms": now_ms + LOCK_MS,
    }
    return Wish(member_id=member, **{**usual, **more})


def walked_to(in_flight: InFlight) -> int:
    """Where to read next."""
    if in_flight.is_empty:
        return in_flight.end_offset
    unknown_from = in_flight.gap_offset
    for batch in in_flight.batches:
        if in_flight.has_gap and batch.first > unknown_from:
            return unknown_from
        unknown_from = max(unknown_from, batch.last + 1)
        for offset in range(batch.first, batch.last + 1):
            if batch.delivery_at(offset).state is DeliveryState.AVAILABLE:
                return offset
    return in_flight.end_offset + 1


class Deliveries(RuleBasedStateMachine):
    """A partition, and what a table says of it: who has an offset, until when, how often it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.in_flight = InFlight(0)
        self.log: list[Run] = []
        self.now_ms = 0
        self.had: dict[int, tuple[str, int]] = {}
        self.sent: dict[int, int] = {}
        self.over: set[int] = set()

    @rule(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=3))
    def append(self, sizes: list[int]) -> None:
        for size in sizes:
            first = self.log[-1].last + 1 if self.log else 0
            self.log.append(Run(first, first + size - 1))

    @precondition(lambda self: self.log)
    @rule(member=MEMBERS, most=st.integers(1, 30), batch_size=st.integers(1, 20), is_limit=st.booleans())
    def fetch(self, member: str, most: int, batch_size: int, is_limit: bool) -> None:
        if not self.in_flight.can_acquire(200):
            return
        offset = self.in_flight.next_fetch_offset()
        read = [run for run in self.log if run.last >= offset]
        asked = wish(member, self.now_ms, max_records=most, batch_size=batch_size, is_limit=is_limit)
        acquired = acquire(self.in_flight, asked, read, offset)
        if is_limit:
            assert sum(run.size for run in acquired) <= most
        for run in acquired:
            for each in range(run.first, run.last + 1):
                assert each not in self.had
                assert each not in self.over
                self.sent[each] = self.sent.get(each, 0) + 1
                assert run.deliveries == self.sent[each] <= COUNT_LIMIT
                self.had[each] = member, self.now_ms + LOCK_MS

    @precondition(lambda self: self.had)
    @rule(member=MEMBERS, data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        own = [offset for offset, (holder, _) in self.had.items() if holder == member]
        own = sorted(offset for offset in own if offset >= self.in_flight.start_offset)
        if not own:
            return
        first = data.draw(st.sampled_from(own))
        last = first
        while last + 1 in own and data.draw(st.booleans()):
            last += 1
        types = data.draw(st.lists(TYPES, min_size=last - first + 1, max_size=last - first + 1))
        self.in_flight.acknowledge(
            member,
            [Acknowledgement(first, last, types)],
            count_limit=COUNT_LIMIT,
            renewed_until_ms=None,
        )
        self.in_flight.advance()
        for offset, ack_type in zip(range(first, last + 1), types, strict=True):
            self._give_back(offset)
            if ack_type is not AckType.RELEASE:
                self.over.add(offset)

    @rule(member=MEMBERS)
    def acknowledge_of_another(self, member: str) -> None:
        others = [offset for offset, (holder, _) in self.had.items() if holder != member]
        others = sorted(offset for offset in others if offset >= self.in_flight.start_offset)
        before = self.in_flight.stored()
        for offset in others[:1]:
            with pytest.raises(KafkaError) as refused:
                self.in_flight.acknowledge(
                    member,
                    [Acknowledgement(offset, offset, [AckType.ACCEPT])],
                    count_limit=COUNT_LIMIT,
                    renewed_until_ms=None,
                )
            assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
        assert self.in_flight.stored() == before

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.in_flight.release(member, COUNT_LIMIT)
        self.in_flight.advance()
        for offset in [offset for offset, (holder, _) in self.had.items() if holder == member]:
            self._give_back(offset)

    @rule(ms=st.integers(1, LOCK_MS))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.in_flight.expire(self.now_ms, COUNT_LIMIT)
        self.in_flight.advance()
        for offset in [offset for offset, (_, until_ms) in self.had.items() if until_ms <= self.now_ms]:
            self._give_back(offset)

    @rule()
    def start_again(self) -> None:
        """What members have is not known any more, nor that it was sent this time."""
        self.in_flight = InFlight(self.in_flight.start_offset, self.in_flight.stored())
        for offset in self.had:
            self.sent[offset] -= 1
        self.over.update(offset for offset in self.had if offset < self.in_flight.start_offset)
        self.had.clear()

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        own = sorted(offset for offset in self.had if offset >= self.in_flight.start_offset)
        if own:
            offset = data.draw(st.sampled_from(own))
            member = self.had[offset][0]
            until_ms = self.now_ms + 2 * LOCK_MS
            run = Acknowledgement(offset, offset, [AckType.RENEW])
            self.in_flight.acknowledge(member, [run], count_limit=COUNT_LIMIT, renewed_until_ms=until_ms)
            self.had[offset] = member, until_ms

    @rule(member=MEMBERS, types=st.lists(TYPES, min_size=1, max_size=40))
    def acknowledge_in_vain(self, member: str, types: list[AckType]) -> None:
        """It cannot be written down."""
        own = [offset for offset, (holder, _) in self.had.items() if holder == member]
        own = sorted(offset for offset in own if offset >= self.in_flight.start_offset)
        told = [Acknowledgement(*one) for one in zip(own, own, ([each] for each in types), strict=False)]
        transition = self.in_flight.acknowledge(member, told, count_limit=COUNT_LIMIT, renewed_until_ms=None)
        transition.undo()

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        """The transaction of a batch, just after it was acquired."""
        aborted = data.draw(st.sampled_from(self.log))
        self.in_flight.archive(aborted.first, aborted.last, DeliveryState.ACQUIRED)
        for offset in range(aborted.first, aborted.last + 1):
            if self.had.pop(offset, None) is not None:
                self.over.add(offset)

    @precondition(lambda self: len(self.log) > 1)
    @rule()
    def lose_the_beginning(self) -> None:
        """A member that has any of it may keep it until its time is up."""
        self.log.pop(0)
        begins = self.log[0].first
        self.in_flight.start_at(begins)
        self.over.update(set(range(begins)) - set(self.had))

    def _give_back(self, offset: int) -> None:
        del self.had[offset]
        if self.sent[offset] >= COUNT_LIMIT or offset < self.in_flight.start_offset:
            self.over.add(offset)

    @invariant()
    def what_is_kept_count_of_is_what_a_walk_finds(self) -> None:
        in_flight = self.in_flight
        states = Counter(
            delivery.state
            for batch in in_flight.batches
            for offset in range(max(batch.first, in_flight.start_offset), batch.last + 1)
            for delivery in [batch.delivery_at(offset)]
        )
        assert {state: in_flight.count_of(state) for state in DeliveryState} == {
            state: states[state] for state in DeliveryState
        }
        assert in_flight.next_fetch_offset() == walked_to(in_flight)
        for batch in in_flight.batches:
            parts = list(batch.parts(batch.first, batch.last))
            assert (parts[0][0], parts[-1][1]) == (batch.first, batch.last)
            for (_, last, delivery), (first, _, following) in itertools.pairwise(parts):
                assert last + 1 == first
                assert delivery != following  # or it would be one run

    @invariant()
    def it_is_as_the_table_says(self) -> None:
        for batch in self.in_flight.batches:
            for first, last, delivery in batch.parts(batch.first, batch.last):
                for offset in range(max(first, self.in_flight.start_offset), last + 1):
                    holder = self.had.get(offset)
                    assert (delivery.state is DeliveryState.ACQUIRED) == (holder is not None)
                    assert delivery.is_over == (offset in self.over)
                    if holder is not None:
                        assert (delivery.member_id, delivery.lock_until_ms) == holder
        assert set(range(self.in_flight.start_offset)) <= self.over | set(self.had)
        expected = min((until_ms for _, until_ms in self.had.values()), default=None)
        assert self.in_flight.next_expiry_ms() == expected

    def teardown(self) -> None:
        """Whoever goes on reading gets all that is not over, in the end."""
        self.in_flight.release("m", COUNT_LIMIT)
        self.in_flight.release("n", COUNT_LIMIT)
        self.in_flight.release("o", COUNT_LIMIT)
        for offset in list(self.had):
            self._give_back(offset)
        end = self.log[-1].last + 1 if self.log else 0
        while self.log and self.in_flight.next_fetch_offset() < end:
            self.fetch("m", 500, 500, False)
            held = sorted(self.had)
            assert held
            for offset in held:
                self.in_flight.acknowledge(
                    "m",
                    [Acknowledgement(offset, offset, [AckType.ACCEPT])],
                    count_limit=COUNT_LIMIT,
                    renewed_until_ms=None,
                )
                self.over.add(offset)
            self.in_flight.advance()
            self.had.clear()
        assert self.over == set(range(end))


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=60, stateful_step_count=30)


def acknowledged(in_flight: InFlight, *told: tuple[int, int, list[int]], member: str = "m") -> None:
    runs = [Acknowledgement(*one) for one in told]
    in_flight.acknowledge(member, runs, count_limit=COUNT_LIMIT, renewed_until_ms=500)


def test_all_of_a_request_holds_or_nothing() -> None:
    in_flight = InFlight(0)
    acquire(in_flight, wish(), [Run(0, 9)], 0)
    with pytest.raises(KafkaError):
        acknowledged(in_flight, (0, 3, [AckType.ACCEPT]), (8, 12, [AckType.ACCEPT]))
    assert in_flight.complete_count == 0
    acknowledged(in_flight, (0, 3, [AckType.ACCEPT]), (8, 9, [AckType.ACCEPT]))
    assert in_flight.complete_count == 6


def test_each_offset_of_a_request_fares_as_it_says() -> None:
    in_flight = InFlight(0)
    acquire(in_flight, wish(), [Run(0, 9)], 0)
    accept, release, reject = AckType.ACCEPT, AckType.RELEASE, AckType.REJECT
    acknowledged(in_flight, (1, 7, [accept, accept, release, reject, reject, AckType.GAP, accept]))
    states = [in_flight.batches[0].delivery_at(offset).state.name for offset in range(10)]
    assert states == [
        "ACQUIRED", "ACKNOWLEDGED", "ACKNOWLEDGED", "AVAILABLE", "ARCHIVED", "ARCHIVED", "ARCHIVED",
        "ACKNOWLEDGED", "ACQUIRED", "ACQUIRED",
    ]  # fmt: skip


def test_a_lock_that_is_renewed_ends_later() -> None:
    in_flight = InFlight(0)
    acquire(in_flight, wish(), [Run(0, 9)], 0)
    acknowledged(in_flight, (0, 4, [AckType.RENEW]))
    assert in_flight.next_expiry_ms() == LOCK_MS
    assert [one[:2] for one in in_flight.expire(LOCK_MS, COUNT_LIMIT).batches] == [(5, 9)]
    assert in_flight.next_expiry_ms() == 500


def test_what_the_log_has_lost_is_delivered_to_nobody() -> None:
    """Compacted away in between, and cut off at the beginning."""
    in_flight = InFlight(0)
    acquire(in_flight, wish(), [Run(0, 9), Run(10, 19), Run(20, 29)], 0)
    in_flight.release("m", COUNT_LIMIT)
    assert acquire(in_flight, wish(), [Run(20, 29)], 0) == [Run(20, 29, 2)]
    acknowledged(in_flight, (20, 29, [AckType.ACCEPT]))
    in_flight.advance()
    assert (in_flight.start_offset, in_flight.next_fetch_offset()) == (30, 30)

    in_flight = InFlight(0)
    acquire(in_flight, wish(), [Run(0, 9)], 0)
    in_flight.release("m", COUNT_LIMIT)
    in_flight.start_at(7)
    assert (in_flight.start_offset, in_flight.next_fetch_offset()) == (7, 7)
    in_flight.start_at(50)
    assert (in_flight.start_offset, in_flight.next_fetch_offset()) == (50, 50)


def test_a_large_batch_is_a_few_runs() -> None:
    """Every request looks at it: one of a hundred thousand records took 65 ms of everybody's time."""
    in_flight = InFlight(0)
    acquire(in_flight, wish(), [Run(0, 99_999)], 0)
    (batch,) = in_flight.batches
    for offset in range(500):
        acknowledged(in_flight, (offset, offset, [offset % 2 + AckType.ACCEPT]))
        acknowledged(in_flight, (offset + 50_000, offset + 50_000, [AckType.ACCEPT]))
    in_flight.release("m", COUNT_LIMIT)
    assert len(list(batch.parts(0, 99_999))) <= 500 + 3
    assert in_flight.next_fetch_offset() == 1
    acquired = acquire(in_flight, wish(max_records=10, is_limit=True), [Run(0, 99_999)], 1)
    assert acquired == [Run(offset, offset, 2) for offset in range(1, 20, 2)]
    acknowledged(in_flight, *((run.first, run.last, [AckType.ACCEPT]) for run in acquired))
    in_flight.advance()
    assert in_flight.start_offset == 21
    assert len(list(batch.parts(0, 20))) == 1


def test_what_fails_again_and_again_comes_in_smaller_and_smaller_portions() -> None:
    """From half of its deliveries on, the last of them one by one, whatever else is available."""
    in_flight = InFlight(0)
    acquire(in_flight, wish("n", batch_size=16), [Run(0, 15), Run(16, 31)], 0)
    in_flight.release("n", 10)
    found = []
    for _ in range(9):
        found += acquire(in_flight, wish(count_limit=10), [Run(0, 15)], 0)
        in_flight.release("m", 10)
    sizes = [16, 16, 16, 16, 8, 4, 2, 1, 1]
    assert found == [Run(0, size - 1, count) for count, size in enumerate(sizes, start=2)]
    assert acquire(in_flight, wish(count_limit=10), [Run(0, 15)], 1) == [Run(1, 1, 9)]


def test_behind_a_start_what_is_not_known_is_read_first() -> None:
    in_flight = InFlight(0)
    acquire(in_flight, wish(), [Run(0, 9), Run(10, 19), Run(20, 29)], 0)
    acknowledged(in_flight, (10, 14, [AckType.ACCEPT]), (20, 29, [AckType.RELEASE]))
    again = InFlight(in_flight.start_offset, in_flight.stored())
    assert again.next_fetch_offset() == 0
    read = [Run(0, 9), Run(10, 19), Run(20, 29)]
    assert acquire(again, wish("n"), read, 0) == [Run(0, 9), Run(15, 19), Run(20, 29, 2)]
