"""Goal: connections that are too many, too slow or too idle are ended with one log line each, and those that
work are not disturbed.

Method: a broker process of each test's own, with limits low enough to be reached; a neighbour produces and
reads back meanwhile, and at the end everything it wrote must be there.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from protocol.messages.metadata import ApiVersionsRequest
from tests.broker.client import Client
from tests.siege import MIB, SLACK_BYTES, Neighbour, Siege

OwnSiege = Callable[..., Siege]
IDLE_MS = 1500


@pytest.fixture
async def own_siege(tmp_path: Path) -> AsyncIterator[OwnSiege]:
    """Start a broker with these settings, `connections_max_idle_ms="1"`; it is judged at the end."""
    started: list[Siege] = []

    def start(*prefix: str, **settings: str) -> Siege:
        given = {name.replace("_", "."): text for name, text in settings.items()}
        started.append(Siege(tmp_path, given, prefix=prefix))
        return started[-1]

    yield start
    for siege in started:
        try:
            await siege.hang_up()
            await asyncio.to_thread(siege.end)
        finally:
            siege.process.close()


async def test_a_flood_of_connections(own_siege: OwnSiege) -> None:
    siege = own_siege(max_connections="20")
    await siege.make_topics()
    neighbour = await Neighbour.move_in(siege)
    neighbour.begin()
    flood = [await siege.connect() for _ in range(200)]
    refused = []
    for client in flood[19:]:
        assert await client.is_closed_by_peer()
        await siege.explains(client, "too many connections")
        refused.append(client)
    for client in flood[:19]:
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
    assert len(refused) == 181
    await neighbour.goes_on()
    for client in flood[:19]:
        await client.close()
    await asyncio.wait_for(_has_room(siege), 60)
    await neighbour.leave()


async def _has_room(siege: Siege) -> None:
    """Return when a new connection is served again."""
    while True:
        client = await siege.connect()
        try:
            await client.ask(ApiVersionsRequest(), 0)
        except (asyncio.IncompleteReadError, ConnectionError):
            await siege.explains(client, "too many connections")
        else:
            return


async def test_one_address_does_not_take_all(own_siege: OwnSiege) -> None:
    siege = own_siege(max_connections_per_ip="5")
    await siege.make_topics()
    neighbour = await Neighbour.move_in(siege)
    flood = [await siege.connect() for _ in range(10)]
    for client in flood[4:]:
        assert await client.is_closed_by_peer()
        await siege.explains(client, "too many connections")
    await neighbour.leave()


async def test_more_connections_than_files_may_be_open(own_siege: OwnSiege) -> None:
    """The system's limit counts when it is below the configured one: segments can still be rolled."""
    siege = own_siege("sh", "-c", 'ulimit -n 200; exec "$@"', "sh")
    await siege.make_topics()
    neighbour = await Neighbour.move_in(siege)
    neighbour.begin()
    flood = [await siege.connect() for _ in range(400)]
    for client in flood[49:]:
        assert await client.is_closed_by_peer()
        await siege.explains(client, "too many connections")
    for index in range(5):
        await siege.create_topic_on(flood[0], f"made-meanwhile-{index}")
    await neighbour.goes_on(20)
    for client in flood:
        await client.close()
    await neighbour.leave()


async def test_a_slow_loris_does_not_stay(own_siege: OwnSiege) -> None:
    """A byte now and then is no sign of life: a frame has to come whole within the idle limit."""
    siege = own_siege(connections_max_idle_ms=str(IDLE_MS))
    await siege.make_topics()
    neighbour = await Neighbour.move_in(siege)
    neighbour.begin()
    clients = [await siege.connect() for _ in range(20)]
    with siege.takes_at_most(SLACK_BYTES):
        await asyncio.gather(*(_drip(client) for client in clients))
    for client in clients:
        await siege.explains(client, f"Produce: no whole frame for {IDLE_MS} ms")
    await neighbour.leave()


async def _drip(client: Client) -> None:
    """One byte of a large produce after the other, until the broker has enough."""
    client.send_bytes(struct.pack(">ihhi", 100 * MIB, 0, 9, 1))
    closed = asyncio.ensure_future(client.is_closed_by_peer())
    while not closed.done():
        client.send_bytes(b"\0")
        await asyncio.wait([closed], timeout=0.05)
    assert closed.result()


async def test_idle_connections_go_without_a_word(own_siege: OwnSiege) -> None:
    siege = own_siege(connections_max_idle_ms=str(IDLE_MS))
    await siege.make_topics()
    neighbour = await Neighbour.move_in(siege)
    neighbour.begin()
    used, unused = await siege.connect(), await siege.connect()
    await used.ask(ApiVersionsRequest(), 0)
    assert await used.is_closed_by_peer()
    assert await unused.is_closed_by_peer()
    await neighbour.leave()
    siege.assert_nothing_else_was_said()
