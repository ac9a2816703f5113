"""Goal: answers to several clients leave behind one another at the end of a turn of the loop, and who is
alone waits for nothing.

Method: connections that note when they leave; then real ones, whose sends are noted beside their requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.answers import Answers
from broker.departure import Departure
from broker.sending import Sender
from protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from tests.broker.handlers_world import World, beat, serving


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with serving(monkeypatch) as made:
        yield made


class Noted:
    """A connection that notes that it left, or why it could not."""

    def __init__(self, seen: list[str], name: str) -> None:
        self.seen = seen
        self.name = name
        self.error: Exception | None = None

    def leave(self) -> None:
        if self.error is not None:
            raise self.error
        self.seen.append(self.name)

    def cannot_leave(self, error: Exception) -> None:
        self.seen.append(f"{self.name}: {error}")


async def test_all_leave_at_the_end_of_the_turn_once_the_last_first() -> None:
    seen: list[str] = []
    departure, one, other = Departure(), Noted(seen, "one"), Noted(seen, "other")
    for connection in (one, other, one):
        departure.add(connection)
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["other", "one"]
    await asyncio.sleep(0)
    assert seen == ["other", "one"]


async def test_who_was_alone_lately_leaves_at_once() -> None:
    seen: list[str] = []
    departure, one, other = Departure(), Noted(seen, "one"), Noted(seen, "other")
    departure.add(one)
    await asyncio.sleep(0)
    departure.add(one)
    assert seen == ["one"] * 2
    departure.add(one, is_last=False)  # more of it comes in this turn
    assert seen == ["one"] * 2
    await asyncio.sleep(0)
    assert seen == ["one"] * 3
    departure.add(other)  # not alone any more
    assert seen == ["one"] * 3
    await asyncio.sleep(0)
    departure.add(other)
    departure.add(one)
    assert seen == ["one"] * 3 + ["other"] * 2
    await asyncio.sleep(0)
    assert seen == ["one"] * 3 + ["other"] * 2 + ["one"]


async def test_two_in_step_leave_together_though_one_was_alone_before() -> None:
    seen: list[str] = []
    departure, one, other = Departure(), Noted(seen, "one"), Noted(seen, "other")
    for _ in range(2):
        departure.add(one)
        await asyncio.sleep(0)
    departure.add(one)
    departure.add(other)
    await asyncio.sleep(0)
    for _ in range(3):
        seen.clear()
        departure.add(one)
        departure.add(other)
        assert seen == []
        await asyncio.sleep(0)
        assert seen == ["other", "one"]


async def test_one_that_cannot_leave_holds_up_nobody() -> None:
    seen: list[str] = []
    departure, one, other = Departure(), Noted(seen, "one"), Noted(seen, "other")
    other.error = RuntimeError("a defect")
    departure.add(one)
    departure.add(other)
    await asyncio.sleep(0)
    assert seen == ["other: a defect", "one"]


async def test_one_that_cannot_leave_by_itself_is_told_so_too() -> None:
    seen: list[str] = []
    departure, one = Departure(), Noted(seen, "one")
    departure.add(one)
    await asyncio.sleep(0)
    one.error = RuntimeError("a defect")
    departure.add(one)
    assert seen == ["one", "one: a defect"]


async def test_a_bug_while_sending_ends_its_connection_and_is_not_hidden(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def send(*arguments: Any) -> None:
        raise ZeroDivisionError("a bug")

    client, other = await world.connect(), await world.connect()
    with monkeypatch.context() as patch:
        patch.setattr(Sender, "send", send)
        client.send(beat(1), 4)
        assert await client.is_closed_by_peer()
    assert world.counters.internal_errors == 1
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert line.exc_info is not None and line.exc_info[0] is ZeroDivisionError
    assert (await other.ask(beat(2), 4)).throttle_time_ms == 2


async def test_requests_that_came_together_are_answered_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    leave = Answers.leave

    def noting(answers: Answers) -> None:
        seen.append("leaves")
        leave(answers)

    def handler(broker: Any, context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        seen.append("handled")
        return HeartbeatResponse(throttle_time_ms=request.generation_id)

    clients = [await world.connect() for _ in range(3)]
    for client in clients:
        await client.ask(beat(0), 4)
    world.handle(HeartbeatRequest, handler)
    monkeypatch.setattr(Answers, "leave", noting)
    for _ in range(100):  # the system may keep one of them for a moment
        seen.clear()
        for number, client in enumerate(clients):
            client.send(beat(number), 4)
        for number, client in enumerate(clients):
            _, answer = await client.receive(HeartbeatResponse, 4)
            assert answer.throttle_time_ms == number
        if seen == ["handled"] * 3 + ["leaves"] * 3:
            break
    else:
        pytest.fail(f"they never left together: {seen}")
    await clients[0].ask(beat(0), 4)
    seen.clear()
    for number in range(3):  # known to be alone
        answer = await clients[0].ask(beat(number), 4)
        assert answer.throttle_time_ms == number
    assert seen == ["handled", "leaves"] * 3
