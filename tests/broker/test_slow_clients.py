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
from broker.clock import ManualClock
from broker.context import RequestContext
from protocol.messages.groups import ListGroupsRequest
from protocol.schema import registry
from tests.broker.client import until
from tests.broker.handlers_world import World, frame, serving


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
