"""Goal: requests are the same however the network cuts the stream of their bytes.

Method: a connection without a socket, which is fed by the test as a transport would do it: nothing while it
has paused the reading.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker import connection
from broker.context import RequestContext
from broker.large_frames import LARGE_BYTES
from broker.receiving import RECEIVE_BYTES
from protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.broker.client import until
from tests.broker.handlers_world import World, frame, serving


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with serving(monkeypatch) as made:
        yield made


class FedTransport(asyncio.Transport):
    """What a connection needs of one, so that a test says how its stream is cut."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        """Nobody reads the answers."""

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("seed", range(8))
async def test_any_cut_of_a_stream_gives_the_same_requests(world: World, seed: int) -> None:
    """The shared buffer, a buffer of its own, and the bytes kept in between, wherever a read ends."""
    chance = random.Random(seed)
    seen: list[bytes] = []

    def produce(broker: Any, context: RequestContext, request: ProduceRequest) -> ProduceResponse:
        seen.append(bytes(request.topic_data[0].partition_data[0].records or b""))
        return ProduceResponse()

    world.handle(ProduceRequest, produce)
    topic = ProduceRequest.TopicProduceData
    sizes = [
        chance.choice((1, 50, LARGE_BYTES, RECEIVE_BYTES)) + chance.randrange(-60, 60) for _ in range(12)
    ]
    sent = [bytes([number]) * max(1, size) for number, size in enumerate(sizes)]
    data = [topic.PartitionProduceData(index=0, records=records) for records in sent]
    requests = [ProduceRequest(acks=1, topic_data=[topic(name="t", partition_data=[one])]) for one in data]
    stream = memoryview(b"".join(frame(request, 9) for request in requests))
    served, transport = connection.Connection(world.server), FedTransport()
    served.connection_made(transport)
    while stream:
        await until(lambda: not transport.is_paused)
        room = served.get_buffer(-1)
        count = min(len(room), len(stream), chance.choice((1, 2, 3, 5, 60, 70_000, 1 << 20)))
        room[:count] = stream[:count]
        served.buffer_updated(count)
        stream = stream[count:]
    await until(lambda: len(seen) == len(sent))
    assert seen == sent
    served.connection_lost(None)
