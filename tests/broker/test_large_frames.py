"""Goal: requests that clients have half sent take no more memory together than `queued.max.request.bytes`
and one request, all of them are taken in the end, and one that is never ended keeps nobody waiting for long.

Method: a server with handlers of the test's own behind a real socket, clients that send as the test wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.clock import ManualClock
from broker.large_frames import PATIENCE_MS, LargeFrame, LargeFrames
from broker.receiving import RECEIVE_BYTES
from protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.broker.client import Client, until
from tests.broker.handlers_world import FRAME_BYTES, LARGE_FRAMES_BYTES, World, frame, serving
from tests.siege import PRODUCE_VERSION, produce_request

RECORDS_BYTES = FRAME_BYTES - 1000
REST_BYTES = 10


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with serving(monkeypatch) as made:
        made.handle(ProduceRequest, lambda *_: ProduceResponse())
        yield made


def frames_of(world: World) -> LargeFrames:
    frames: LargeFrames = world.server.broker.large_frames
    return frames


def large(size_bytes: int = RECORDS_BYTES) -> bytes:
    return frame(produce_request(("t", 0, bytes(size_bytes))), PRODUCE_VERSION)


async def settled(world: World) -> int:
    """How many bytes the broker has taken, when it takes no more."""
    before = -1
    while (now := world.counters.bytes_received) != before:
        before = now
        await asyncio.sleep(0.05)
    return now


async def answered(client: Client) -> None:
    await client.receive(ProduceResponse, PRODUCE_VERSION)


async def test_half_sent_requests_are_bounded_and_all_are_taken(world: World) -> None:
    clients = [await world.connect() for _ in range(3)]
    request = large()
    for client in clients:
        client.send_bytes(request[:-REST_BYTES])
    await settled(world)
    frames = frames_of(world)
    assert frames.used_bytes <= LARGE_FRAMES_BYTES + len(request)
    assert sum(len(served._large.data) for served in world.server.connections) == frames.used_bytes
    for client in clients:
        client.send_bytes(request[-REST_BYTES:])
    for client in clients:
        await answered(client)
    assert frames.used_bytes == 0


@pytest.mark.parametrize("size_bytes", [RECEIVE_BYTES, 5 * RECEIVE_BYTES // 2, RECORDS_BYTES])
async def test_many_go_through_a_narrow_door_in_the_order_of_each(
    world: World, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    """However little there is: requests are read on as others end."""
    monkeypatch.setattr(frames_of(world), "_limit_bytes", 1)
    clients = [await world.connect() for _ in range(3)]
    for client in clients:
        for number in range(5):
            request = produce_request(("t", number, bytes(size_bytes)))
            client.send_bytes(frame(request, PRODUCE_VERSION, correlation_id=number))

    async def read(client: Client) -> None:
        for number in range(5):
            correlation_id, _ = await client.receive(ProduceResponse, PRODUCE_VERSION)
            assert correlation_id == number

    await asyncio.gather(*map(read, clients))
    assert frames_of(world).used_bytes == 0


async def test_who_hangs_up_makes_room(world: World) -> None:
    first, second = [await world.connect() for _ in range(2)]
    request = large()
    first.send_bytes(request[:-REST_BYTES])
    await until(lambda: frames_of(world).used_bytes >= len(request) - REST_BYTES)
    second.send_bytes(request)
    taken = await settled(world)
    assert taken < 2 * len(request) - REST_BYTES
    await first.close()
    await answered(second)
    assert frames_of(world).used_bytes == 0


async def test_half_a_request_keeps_nobody_waiting_for_long(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = [await world.connect() for _ in range(3)]
    request = large()
    first.send_bytes(request[:-REST_BYTES])
    await until(lambda: frames_of(world).used_bytes >= len(request) - REST_BYTES)
    for client in (second, third):
        client.send_bytes(request)
    await settled(world)
    world.server.broker.clock.advance(PATIENCE_MS - 1)
    await settled(world)
    assert not caplog.records
    world.server.broker.clock.advance(1)
    for client in (second, third):
        await answered(client)
    assert await first.is_closed_by_peer()
    (line,) = [record.getMessage() for record in caplog.records if "others waited" in record.getMessage()]
    assert "Produce: " in line
    assert "queued.max.request.bytes" in line
    assert frames_of(world).used_bytes == 0


async def test_nobody_is_given_up_while_nobody_waits(world: World) -> None:
    client = await world.connect()
    request = large()
    client.send_bytes(request[:-REST_BYTES])
    await settled(world)
    world.server.broker.clock.advance(2 * PATIENCE_MS)
    client.send_bytes(request[-REST_BYTES:])
    await answered(client)


@pytest.mark.parametrize("limit_bytes", [-1, 0])
async def test_without_a_limit_nobody_waits(limit_bytes: int) -> None:
    frames = LargeFrames(limit_bytes, ManualClock())

    def never(*_: Any) -> None:
        raise AssertionError

    received = memoryview(bytes(RECEIVE_BYTES))
    for _ in range(100):
        one = LargeFrame(frames, received, 1 << 30, never, never)
        assert not one.is_waiting
    assert frames.used_bytes == 100 * len(one.data)
