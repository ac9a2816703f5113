"""TLS between a socket and a connection, which takes this for its transport.

uvloop's own TLS drops what it has to send when a handshake fails, and so the alert, by which alone a client
learns why it is refused; here it leaves, and the log has a line. A connection counts from its first byte on,
and one that does not finish its handshake in `HANDSHAKE_SECONDS` is cut off. What is received lies encrypted
in one buffer of all connections only as long as it takes to hand it on. Mirrors Kafka's `SslTransportLayer`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from broker.connection import Connection
from broker.listening import HANDSHAKE_SECONDS
from broker.security.principal import USER, name_of
from broker.security.subject import subject_of
from protocol.schema import Buffer

if TYPE_CHECKING:
    from broker.door import Door

logger = logging.getLogger(__name__)

SEALED_BYTES = 64 * 1024
"""of the buffer that encrypted bytes come into"""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """Owned by: event loop."""

    def __init__(self, door: Door[Connection], context: ssl.SSLContext, sealed: memoryview) -> None:
        """`sealed`: the buffer of all connections for what comes in."""
        super().__init__()
        self._door = door
        self._context = context
        self._sealed = sealed
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._connection = Connection(door)
        self._is_open = False  # hands were shaken
        self._is_reading = True
        self._has_ended = False  # the client has said so
        self._timer: asyncio.TimerHandle | None = None

    # the socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._is_late)
        self._connection.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._sealed

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._sealed[:nbytes])
        try:
            if not self._is_open:
                self._shake_hands()
            if self._is_open:
                self._hand_on()
        except (ssl.SSLError, ValueError) as error:
            self._refuse(_reason(error))

    def eof_received(self) -> None:
        """The socket closes itself then: TLS knows no half of an end."""
        if self._is_open:
            self._connection.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._connection.connection_lost(error)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    # shaking hands

    def _shake_hands(self) -> None:
        """One more step; SSLError, or ValueError for a client that no rule has a name for."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._flush()
        self._identify()
        self._is_open = True
        if self._timer is not None:
            self._timer.cancel()
        return self._flush()

    def _identify(self) -> None:
        """The client is who its certificate says, unless it has to say so itself (SASL)."""
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate and self._connection.session is None:
            name = name_of(subject_of(certificate), self._door.principal_rules)
            self._connection.believe(f"{USER}{name}")
            self._door.broker.metrics_state.authentications += 1

    def _is_late(self) -> None:
        self._refuse(f"no handshake in {HANDSHAKE_SECONDS:g} s")

    def _refuse(self, reason: str) -> None:
        """End it, with an alert if there is one to send."""
        if not self._is_open:
            self._door.broker.metrics_state.failed_authentications += 1
        logger.warning("closed the connection of %s: TLS: %s", self._connection.peer, reason)
        self._flush()
        self._connection.close()
        self._socket.close()

    # bytes

    def _hand_on(self) -> None:
        """What has come, to the connection, as far as it reads. SSLError."""
        while self._is_reading and not self._socket.is_closing() and self._is_pending():
            room = self._connection.get_buffer(-1)
            filled = 0
            while filled < len(room) and self._is_pending():
                try:
                    count = cast(int, self._tls.read(len(room) - filled, room[filled:]))
                except ssl.SSLWantReadError:
                    break
                self._has_ended = count == 0
                filled += count
            if not filled:
                break
            self._connection.buffer_updated(filled)
        if self._has_ended and self._is_reading and not self._socket.is_closing():
            self._connection.eof_received()
            return self.close()
        return self._flush()  # an answer to a change of keys

    def _is_pending(self) -> bool:
        return not self._has_ended and bool(self._incoming.pending or self._tls.pending())

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    # the connection's side

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._socket.is_closing():
            return
        for data in list_of_data:
            left = memoryview(data)
            while left:
                left = left[self._tls.write(left) :]
        self._flush()

    def pause_reading(self) -> None:
        self._is_reading = False
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        self._socket.resume_reading()
        if self._has_ended or self._is_pending():
            asyncio.get_running_loop().call_soon(self.buffer_updated, 0)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._context if name == "sslcontext" else self._socket.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def close(self) -> None:
        """Say that it is the end, when all is sent."""
        if self._is_open and not self._socket.is_closing():
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._socket.close()

    def abort(self) -> None:
        self._socket.abort()


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error) or type(error).__name__
