"""Goal: a client that takes its time with an answer gets the whole of it, and one that takes none of it costs
no more than its limits.

Method: a server with handlers of the test's own behind a real socket, a clock that stands still, clients
that read as the test wants.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker import connection
from broker.api import Later
from broker.clock import ManualClock
from broker.context import RequestContext
from broker.server import UNLIMITED_SWEEP_MS
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.groups import HeartbeatRequest, HeartbeatResponse, ListGroupsRequest
from protocol.schema import registry
from tests.broker.client import until
from tests.broker.handlers_world import (
    FETCH_BYTES,
    IN_FLIGHT,
    QUEUED_BYTES,
    UNREAD_BYTES,
    World,
    frame,
    serving,
)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with serving(monkeypatch) as made:
        yield made


def large_answer(broker: Any, context: RequestContext, request: Any) -> Any:
    """20 MB: more than the sockets of both sides take."""
    response = registry[16].response()
    response.groups = [type(response).ListedGroup(group_id="x" * 30_000) for _ in range(667)]
    return response


async def test_who_reads_an_answer_slowly_is_not_idle(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Else it would get the same part of it at every retry, and never the whole."""
    world.handle(ListGroupsRequest, large_answer)
    clock = world.server.broker.clock
    assert isinstance(clock, ManualClock)
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", world.server.listener.port))
        await until(lambda: world.server.connections)
        (served,) = world.server.connections
        # Else the system takes megabytes before it takes more, and the steps are as large.
        served.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        await loop.sock_sendall(client, frame(ListGroupsRequest(), 4))
        size = 4 + int.from_bytes(await loop.sock_recv(client, 4), "big")
        received, ticks = 4, 0
        while received < size:
            data = await loop.sock_recv(client, 1 << 16)
            assert data, f"cut off after {received} of {size} bytes"
            received += len(data)
            if received >> 18 > ticks:  # every 256 KiB, a quarter of the idle limit
                ticks += 1
                for _ in range(3):
                    clock.advance(1_000)
                    for _ in range(5):
                        await asyncio.sleep(0)
    assert ticks * 3_000 > 10 * world.server.limits.idle_ms
    assert not [record for record in caplog.records if record.name == connection.__name__]


async def test_who_reads_no_answer_is_idle_and_that_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.handle(ListGroupsRequest, large_answer)
    clock = world.server.broker.clock
    assert isinstance(clock, ManualClock)
    client = await world.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(ListGroupsRequest(), 4)
    await until(lambda: any(served.transport.get_write_buffer_size() for served in world.server.connections))
    for _ in range(30):
        clock.advance(1_000)
        for _ in range(20):
            await asyncio.sleep(0)
    await until(lambda: not world.server.connections)
    (line,) = [record.getMessage() for record in caplog.records if record.name == connection.__name__]
    assert "ListGroups: " in line
    assert "bytes of answers were left unread" in line


@pytest.mark.parametrize("idle_ms", [-1, 10_000])
@pytest.mark.parametrize("count", [IN_FLIGHT + 1, 10 * IN_FLIGHT])
async def test_a_client_that_hangs_up_while_nothing_is_read_from_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch, count: int, idle_ms: int
) -> None:
    """Its end lies behind what it sent; what waits for it would wait as long as it asked for."""
    async with serving(monkeypatch, idle_ms=idle_ms) as world:
        await _hang_up(world, count, 1_000 if idle_ms > 0 else UNLIMITED_SWEEP_MS)


async def test_a_client_that_hangs_up_and_has_nothing_that_waits_is_noticed_at_once(world: World) -> None:
    """However much it has asked for already."""
    dropped: list[int] = []
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    world.handle(HeartbeatRequest, lambda *_: Later([never], HeartbeatResponse, lambda: dropped.append(1)))
    client = await world.connect()
    client.send_bytes(frame(HeartbeatRequest(), 4) * IN_FLIGHT)
    await client.writer.drain()
    await client.close()
    await until(lambda: not world.server.connections)
    assert len(dropped) == IN_FLIGHT


async def _hang_up(world: World, count: int, sweep_ms: int) -> None:
    dropped: list[int] = []
    taken: list[int] = []
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wait(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Later:
        taken.append(1)
        return Later([never], HeartbeatResponse, lambda: dropped.append(1))

    world.handle(HeartbeatRequest, wait)
    clock = world.server.broker.clock
    assert isinstance(clock, ManualClock)
    client, other = await world.connect(), await world.connect()
    for one in (client, other):
        one.send_bytes(frame(HeartbeatRequest(), 4) * count)
        await one.writer.drain()
    await until(lambda: len(taken) == 2 * IN_FLIGHT)
    await client.close()
    clock.advance(sweep_ms)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(world.server.connections) == 2, "what was just asked may still be done"
    for _ in range(5):
        clock.advance(sweep_ms)
        for _ in range(20):
            await asyncio.sleep(0)
    await until(lambda: len(world.server.connections) == 1)
    assert len(dropped) == IN_FLIGHT
    assert other.local_address[1] in {int(served.peer.split(":")[1]) for served in world.server.connections}


ANSWER_BYTES = 30_000


def groups_of(handled: list[int], groups: int = 1) -> Any:
    def list_groups(broker: Any, context: RequestContext, request: Any) -> Any:
        handled.append(context.correlation_id)
        response = registry[16].response()
        response.groups = [type(response).ListedGroup(group_id="x" * ANSWER_BYTES)] * groups
        return response

    return list_groups


async def test_unread_answers_are_bounded(world: World) -> None:
    """The memory that clients who do not read take is this limit, times the connections."""
    handled: list[int] = []
    world.handle(ListGroupsRequest, groups_of(handled))
    client = await world.connect()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    count = 2000
    client.send_bytes(frame(ListGroupsRequest(), 4) * count)
    most = 0
    for _ in range(3000):
        await asyncio.sleep(0)
        for served in world.server.connections:
            most = max(most, served.transport.get_write_buffer_size())
    assert 0 < most <= UNREAD_BYTES + 2 * ANSWER_BYTES
    assert len(handled) < count
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(count):
        await client.receive_frame()


async def test_answers_behind_one_that_waits_are_bounded(world: World) -> None:
    handled: list[int] = []
    world.handle(ListGroupsRequest, groups_of(handled, 10))
    wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    world.handle(
        HeartbeatRequest,
        lambda broker, context, request: Later([wait], HeartbeatResponse),
    )
    client = await world.connect()
    client.send(HeartbeatRequest(), 4)
    client.send_bytes(frame(ListGroupsRequest(), 4) * 100)
    await until(lambda: handled)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert 10 * ANSWER_BYTES > UNREAD_BYTES
    assert len(handled) == 1
    wait.set_result(None)
    for _ in range(101):
        await client.receive_frame()
    assert len(handled) == 100


async def test_waiting_fetches_count_with_all_they_may_be_answered_and_no_longer_than_they_wait(
    world: World,
) -> None:
    """One that is over and still counted would, a few hours of long polls later, end the reading for good."""
    waits: list[asyncio.Future[None]] = []

    def fetch(broker: Any, context: RequestContext, request: FetchRequest) -> Later:
        waits.append(asyncio.get_running_loop().create_future())
        return Later([waits[-1]], FetchResponse)

    world.handle(FetchRequest, fetch)
    client = await world.connect()
    assert 2 * FETCH_BYTES == QUEUED_BYTES
    assert IN_FLIGHT > 3
    for taken in range(0, 12, 4):
        client.send_bytes(frame(FetchRequest(max_bytes=FETCH_BYTES), 12) * 4)
        await until(lambda taken=taken: len(waits) == taken + 3)  # type: ignore[misc]
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(waits) == taken + 3
        waits[taken].set_result(None)
        await until(lambda taken=taken: len(waits) == taken + 4)  # type: ignore[misc]
        for wait in waits[taken + 1 :]:
            wait.set_result(None)
        for _ in range(4):
            await client.receive_frame()
