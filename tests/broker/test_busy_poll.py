"""Goal: the loop stays awake only while requests follow each other closely, and never for long in vain.

Method: `BusyPoll` beside a clock that is moved by hand, its turns on the loop counted; and a broker that
serves with it and without it.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from broker import busy_poll
from broker.busy_poll import ENOUGH_GAPS, GAPS_AFTER_VAIN, SMALL_BYTES, BusyPoll

POLL_US = 100
SHORT_NS = 150_000  # both sides have to be woken: less than twice the time
LONG_NS = 250_000


class Bench:
    """A `BusyPoll`, its clock, and whether it keeps the loop awake."""

    def __init__(self, poll_us: int = POLL_US) -> None:
        self.now_ns = 1_000_000_000
        self.poll = BusyPoll(poll_us, lambda: self.now_ns)

    def request(self, gap_ns: int, size_bytes: int = 100, answer_bytes: int = 100) -> None:
        self.now_ns += gap_ns
        self.poll.received(size_bytes)
        self.poll.sent(answer_bytes)

    def requests(self, count: int, gap_ns: int = SHORT_NS) -> None:
        for _ in range(count):
            self.request(gap_ns)

    async def is_awake(self) -> bool:
        """Whether the loop is kept from sleeping, as seen after several turns."""
        for _ in range(3):
            await asyncio.sleep(0)
        return self.poll.is_awake


async def test_it_takes_some_short_gaps_in_a_row() -> None:
    bench = Bench()
    bench.requests(1, LONG_NS)
    bench.requests(ENOUGH_GAPS - 1)
    assert not await bench.is_awake()
    bench.requests(1, LONG_NS)
    bench.requests(ENOUGH_GAPS - 1)
    assert not await bench.is_awake()
    bench.requests(1)
    assert await bench.is_awake()


async def test_it_sleeps_when_nothing_came_and_then_for_many_requests() -> None:
    bench = Bench()
    bench.requests(ENOUGH_GAPS + 1)
    assert await bench.is_awake()
    bench.now_ns += POLL_US * 1000 - 1
    assert await bench.is_awake()
    bench.now_ns += 1
    assert not await bench.is_awake()
    bench.requests(1, LONG_NS)
    bench.requests(GAPS_AFTER_VAIN - 1)
    assert not await bench.is_awake()
    bench.requests(1)
    assert await bench.is_awake()


async def test_a_request_in_time_prolongs_it() -> None:
    bench = Bench()
    bench.requests(ENOUGH_GAPS + 1)
    for _ in range(50):
        bench.request(POLL_US * 1000 - 1)
        assert await bench.is_awake()


@pytest.mark.parametrize("sizes", [(SMALL_BYTES + 1, 100), (100, SMALL_BYTES + 1)], ids=["read", "sent"])
async def test_much_at_once_ends_it(sizes: tuple[int, int]) -> None:
    bench = Bench()
    bench.requests(ENOUGH_GAPS + 1)
    bench.request(1000, *sizes)
    assert not await bench.is_awake()


async def test_much_at_once_does_not_make_up_for_a_look_out_in_vain() -> None:
    bench = Bench()
    bench.requests(ENOUGH_GAPS + 1)
    bench.now_ns += POLL_US * 1000
    assert not await bench.is_awake()
    bench.request(LONG_NS, SMALL_BYTES + 1)
    bench.requests(GAPS_AFTER_VAIN - 1)
    assert not await bench.is_awake()


async def test_zero_is_never() -> None:
    bench = Bench(0)
    bench.requests(100, 0)
    assert not await bench.is_awake()


async def test_never_on_a_single_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client could not send anything meanwhile."""
    monkeypatch.setattr(busy_poll.os, "sched_getaffinity", lambda process: {0})
    assert len(os.sched_getaffinity(0)) == 1
    bench = Bench()
    bench.requests(100, 0)
    assert not await bench.is_awake()
