"""A server behind a real socket whose handlers are the test's own, with small limits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker import api
from broker.api import apis
from broker.busy_poll import BusyPoll
from broker.clock import ManualClock
from broker.context import Listener
from broker.counters import Counters
from broker.departure import Departure
from broker.door import Limits
from broker.large_frames import LargeFrames
from broker.produce_template import ProduceTemplate
from broker.quotas.headcount import Headcount
from broker.quotas.rates import Rate
from broker.server import Server
from config.broker import BrokerConfig
from protocol.framing import encode_request
from protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from protocol.messages.produce import ProduceRequest
from protocol.schema import registry, schema_of
from tests.broker.client import Client

IN_FLIGHT = 4
FRAME_BYTES = 2_000_000
OTHER_FRAME_BYTES = 500_000
ELEMENTS = 1000
UNREAD_BYTES = 1 << 18
QUEUED_BYTES = 1 << 20
FETCH_BYTES = QUEUED_BYTES // 2
LARGE_FRAMES_BYTES = 1 << 20


class World:
    """A server whose handlers the test sets."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.clients: list[Client] = []
        self._monkeypatch = monkeypatch

    @property
    def counters(self) -> Counters:
        return self.server.broker.metrics_state

    def handle(self, request: type[Any], handler: Callable[..., Any]) -> None:
        spec = registry[schema_of(request).key]
        if request is ProduceRequest:  # one like the last goes past the handlers
            self._monkeypatch.setattr(ProduceTemplate, "learn", lambda *arguments: None)
        self._monkeypatch.setitem(apis, spec.key, api.Api(*spec, handler))

    async def connect(self) -> Client:
        client = await Client.connect("127.0.0.1", self.server.listener.port)
        self.clients.append(client)
        return client


MOST_CONNECTIONS = 3


@contextlib.asynccontextmanager
async def serving(monkeypatch: pytest.MonkeyPatch, *, idle_ms: int = 10_000) -> AsyncIterator[World]:
    """A world that answers heartbeats with their generation as the throttle time."""
    clock = ManualClock()
    broker: Any = SimpleNamespace(
        clock=clock,
        metrics_state=Counters(),
        config=BrokerConfig(max_connections=MOST_CONNECTIONS),
        busy_poll=BusyPoll(100),
        departure=Departure(),
        large_frames=LargeFrames(LARGE_FRAMES_BYTES, clock),
        apis=apis,
        authorizer=None,
        quotas=SimpleNamespace(
            is_active=False, connect=lambda host: 0, created=Rate(11, 1000, clock.passed_ms())
        ),
        share_sessions=SimpleNamespace(on_disconnect=lambda connection: None),
    )
    broker.headcount = Headcount(broker)
    limits = Limits(
        frame_bytes=FRAME_BYTES,
        frame_bytes_without_records=OTHER_FRAME_BYTES,
        elements=ELEMENTS,
        in_flight_requests=IN_FLIGHT,
        queued_bytes=QUEUED_BYTES,
        unread_bytes=UNREAD_BYTES,
        fetch_bytes=FETCH_BYTES,
        idle_ms=idle_ms,
    )
    monkeypatch.setattr(Limits, "of", staticmethod(lambda config: limits))
    server = Server(broker, Listener("PLAINTEXT", "127.0.0.1", 0, "127.0.0.1", 0))
    await server.bind()
    await server.start()
    made = World(server, monkeypatch)
    made.handle(
        HeartbeatRequest,
        lambda broker, context, request: HeartbeatResponse(throttle_time_ms=request.generation_id),
    )
    yield made
    for client in made.clients:
        await client.close()
    server.stop_listening()
    await server.close()


def beat(number: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=number, member_id="m")


def frame(request: Any, version: int, correlation_id: int = 1) -> bytes:
    return b"".join(encode_request(request, version, correlation_id, "test"))
