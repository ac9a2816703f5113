"""A connection to the HTTP listener before it is let in.

It has its place among `http.max.connections` from its first moment on, as those to Kafka's listeners have:
with TLS it shakes hands there, for `HANDSHAKE_SECONDS` at most, and gives way to others meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Protocol, cast

from broker import listening


class Door(Protocol):
    """Who lets it in."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """With what hands are shaken now; None: with nothing."""

    def has_room(self) -> bool:
        """Whether there is a place for one more; there may be one now, because somebody had to go."""

    def hold(self, entering: Entering) -> None:
        """It has a place while it shakes hands."""

    def let_go(self, entering: Entering) -> None:
        """It has none any more."""

    def admit(self, transport: asyncio.Transport) -> asyncio.Protocol:
        """What it talks to from now on, which knows the transport."""


class Entering(asyncio.Protocol):
    """Owned by: event loop."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._early: list[bytes] = []
        """what came before TLS was ready, and behind its handshake before it is let in"""
        self._shaking: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        """None when it is gone"""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = self.transport = cast(asyncio.Transport, transport)
        if not self._door.has_room():
            stream.abort()
        elif (context := self._door.tls) is None:
            stream.set_protocol(self._door.admit(stream))
        else:
            self._door.hold(self)
            self._shaking = asyncio.get_running_loop().create_task(self._shake_hands(stream, context))

    async def _shake_hands(self, stream: asyncio.Transport, context: ssl.SSLContext) -> None:
        loop, sealed = asyncio.get_running_loop(), None
        seconds = listening.HANDSHAKE_SECONDS
        shaking = loop.create_task(
            loop.start_tls(stream, self, context, server_side=True, ssl_handshake_timeout=seconds)
        )
        try:
            await asyncio.sleep(0)
            if not shaking.done():  # it talks to TLS now, for which the client's first words are
                _hand_over(self._taken(), cast(asyncio.BufferedProtocol, stream.get_protocol()))
            # It was told by TLS, is too late, or gone, for which uvloop has a RuntimeError.
            with contextlib.suppress(OSError, RuntimeError):
                sealed = await shaking
        finally:
            shaking.cancel()
            self._door.let_go(self)
            if sealed is None:
                stream.abort()
        if sealed is None or self.transport is None:
            return
        connection = self._door.admit(sealed)
        sealed.set_protocol(connection)
        if early := self._taken():
            connection.data_received(early)

    def _taken(self) -> bytes:
        data = b"".join(self._early)
        self._early.clear()
        return data

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None

    def force_close(self) -> None:
        """Its place is needed."""
        transport, self.transport = self.transport, None
        self._door.let_go(self)
        if self._shaking is not None:
            self._shaking.cancel()
        if transport is not None:
            transport.abort()


def _hand_over(data: bytes, protocol: asyncio.BufferedProtocol) -> None:
    """Bytes that a connection has received, as if the protocol had."""
    while data:
        room = memoryview(protocol.get_buffer(len(data)))
        count = min(len(room), len(data))
        room[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]
