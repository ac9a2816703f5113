"""Goal: a port is a broker's own from the moment it is taken, which is long before anybody is answered there.

Method: servers that are bound and do not listen, on both event loops: uvloop (the broker's) tells nobody of a
listen that failed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from broker import listening
from broker.listening import ListenError, bind, listen

HOST = "127.0.0.1"
In = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def in_loop(request: pytest.FixtureRequest) -> In:
    def run(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run


class Echo(asyncio.Protocol):
    """Says what it was told, and ends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
        self._transport.close()


async def bound(port: int = 0) -> tuple[asyncio.Server, int]:
    server = await bind(Echo, "TEST://here", HOST, port)
    return server, server.sockets[0].getsockname()[1]


async def echoed(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"hello")
    try:
        return await reader.read()
    finally:
        writer.close()


def another(port: int) -> socket.socket:
    """A program that is as willing to share as most servers are."""
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        other.bind((HOST, port))
    except OSError:
        other.close()
        raise
    return other


def test_nobody_else_gets_a_port_that_is_bound(in_loop: In) -> None:
    async def work() -> None:
        server, port = await bound()
        with pytest.raises(ListenError, match="cannot listen on TEST://here: Address already in use"):
            await bound(port)
        with pytest.raises(OSError, match="Address already in use"):
            another(port)
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await echoed(port)
        await listen(server, "TEST://here")
        assert await echoed(port) == b"hello"
        server.close()

    in_loop(work())


def test_any_free_port_is_the_same_one_of_every_address(in_loop: In) -> None:
    """Clients are told one port, whether their name of the broker leads to IPv4 or to IPv6."""

    async def work() -> None:
        server = await bind(Echo, "TEST://", "", 0)
        assert len({bound.getsockname()[1] for bound in server.sockets}) == 1
        server.close()

    in_loop(work())


def test_a_port_that_is_free_nowhere_else_is_not_sought_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with the same address twice: each gets a port, and never the other one's."""
    asked: list[int] = []

    class Twice:
        async def create_server(self, protocol: Any, host: str, port: int, **options: Any) -> Any:
            asked.append(port)
            if port:
                raise OSError("taken, by itself")
            sockets = [SimpleNamespace(getsockname=lambda port=port: (HOST, port)) for port in (1, 2)]
            return SimpleNamespace(sockets=sockets, close=lambda: None, wait_closed=closed)

    async def closed() -> None:
        pass

    monkeypatch.setattr(listening, "asyncio", SimpleNamespace(get_running_loop=Twice))
    with pytest.raises(ListenError, match="no port was free in all of its addresses"):
        asyncio.run(bind(Echo, "TEST://here", HOST, 0))
    assert len(asked) == listening.BIND_ATTEMPTS


def test_a_port_can_be_had_again_at_once(in_loop: In) -> None:
    """Connections that the server ended first keep its port for a minute, for programs that do not share."""

    async def work() -> None:
        port = 0
        for _ in range(3):
            server, port = await bound(port)
            await listen(server, "TEST://here")
            assert await echoed(port) == b"hello"
            server.close()
            await server.wait_closed()

    in_loop(work())


def test_listening_in_vain_is_told(in_loop: In, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should somebody else listen there after all."""

    async def work() -> None:
        server, port = await bound()
        listening._share_address(server, True)
        with another(port) as other:
            other.listen()
            with pytest.raises(ListenError, match="cannot listen on TEST://here: Address already in use"):
                await listen(server, "TEST://here")
        server.close()

    in_loop(work())
