"""Listening: who may connect, who idles too long, and how serving ends.

Mirrors Kafka's `SocketServer` and `ConnectionQuotas`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.connection import Connection
from broker.context import Listener
from broker.door import Limits
from broker.listening import bind, listen
from broker.quotas.gate import Gate
from broker.receiving import RECEIVE_BYTES, Room
from broker.security.listener_tokens import ListenerTokens
from broker.security.principal import rules_of
from broker.security.session import Session
from broker.security.tls import Tls
from broker.security.tls_transport import SEALED_BYTES, TlsTransport
from broker.security.users import plain_users
from config.listeners import address_text
from config.security import OAUTHBEARER

if TYPE_CHECKING:
    from broker.broker import Broker

logger = logging.getLogger(__name__)

SWEEPS_PER_IDLE_LIMIT = 10
UNLIMITED_SWEEP_MS = 60_000  # for those that hung up, where nobody is idle too long
DRAIN_MS = 5_000
CLOSE_MS = 1_000


class Server:
    """One listener and its connections. Owned by: event loop."""

    def __init__(self, broker: Broker, listener: Listener) -> None:
        self.broker = broker
        self.listener = listener
        self.limits = Limits.of(broker.config)
        stranger_bytes = listener.security.keys.sasl_server_max_receive_size
        self.limits_of_strangers = replace(
            self.limits,
            frame_bytes=min(self.limits.frame_bytes, stranger_bytes),
            frame_bytes_without_records=min(self.limits.frame_bytes_without_records, stranger_bytes),
        )
        """of clients that have not said who they are"""
        self.receive_room = Room(bytearray(RECEIVE_BYTES))
        self.connections: set[Connection] = set()
        self.sweep = 0
        self.is_draining = False
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._all_drained = asyncio.Event()
        self._all_closed = asyncio.Event()
        self._tls: Tls | None = None
        self.gate = Gate(broker, broker.quotas, broker.headcount, listener.name, self._new_connection)
        self._sealed = memoryview(bytearray(SEALED_BYTES if listener.security.uses_tls else 0))
        security = listener.security
        self._plain_users = plain_users(listener.name, security)
        has_tokens = security.uses_sasl and OAUTHBEARER in security.keys.sasl_enabled_mechanisms
        self.tokens = ListenerTokens(broker, listener) if has_tokens else None
        self.principal_rules = rules_of(security)

    async def bind(self) -> None:
        """Take the address, and be deaf; a port of 0 becomes the one that was given. ListenError; ConfigError
        for certificates that cannot be used.
        """
        asked = self.listener
        if asked.security.uses_tls:
            self._tls = await self.broker.run_blocking(Tls, asked.name, asked.security)
        if self.tokens is not None:
            await self.tokens.load()
        self._server = await bind(self.gate.next_protocol, self._address, asked.host, asked.port)
        port = self._server.sockets[0].getsockname()[1]
        self.listener = replace(asked, port=port, advertised_port=asked.advertised_port or port)

    def _new_connection(self) -> asyncio.BufferedProtocol:
        if self._tls is None:
            return Connection(self)
        return TlsTransport(self, self._tls.context, self._sealed)

    def new_session(self, connection: Connection) -> Session | None:
        """Where clients have to say who they are."""
        security, broker = self.listener.security, self.broker
        if not security.uses_sasl:
            return None
        validate = None if self.tokens is None else self.tokens.validate
        return Session(
            security, broker.users, self._plain_users, validate, broker.metrics_state, connection.believe
        )

    @property
    def _address(self) -> str:
        return f"{self.listener.name}://{address_text(self.listener.host, self.listener.port)}"

    async def start(self) -> None:
        """Listen. ListenError."""
        assert self._server is not None
        await listen(self._server, self._address)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._sweep_idle())]
        if self._tls is not None:
            self._tasks.append(loop.create_task(self._tls.keep_fresh(self.broker)))
        if self.tokens is not None and self.tokens.keys is not None:
            self._tasks.append(loop.create_task(self.tokens.keys.keep_fresh()))

    def wait_ms(self, host: str) -> int:
        """How long somebody who was let in is held up, because there were too many of the address."""
        wait_ms = self.broker.quotas.connect(host)
        if wait_ms:
            self.gate.take_back()
        return wait_ms

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection may stay; it is counted either way until `forget`."""
        counters = self.broker.metrics_state
        self.connections.add(connection)
        has_place = self.broker.headcount.enter(self.listener.name, connection.client_host)
        counters.connections_open += 1
        counters.connections_opened += 1
        if self.is_draining or has_place:
            return not self.is_draining
        counters.connections_refused += 1
        logger.warning("refused the connection of %s: too many connections", connection.peer)
        return False

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        if connection in self.connections:
            self.connections.discard(connection)
            self.broker.headcount.leave(self.listener.name, connection.client_host)
            self.broker.metrics_state.connections_open -= 1
        if self.is_draining:
            self.drained()
            if not self.connections:
                self._all_closed.set()

    async def _sweep_idle(self) -> None:
        """Close what was silent for `connections.max.idle.ms`, to within a tenth of it."""
        idle_ms = self.limits.idle_ms
        pause_ms = max(1, idle_ms // SWEEPS_PER_IDLE_LIMIT) if idle_ms >= 0 else UNLIMITED_SWEEP_MS
        while True:
            await self.broker.clock.sleep(pause_ms)
            self.sweep += 1
            for connection in tuple(self.connections):
                is_silent = connection.is_silent_since(self.sweep - SWEEPS_PER_IDLE_LIMIT) and idle_ms >= 0
                if is_silent or connection.is_left_alone():
                    connection.expire()

    def stop_listening(self) -> None:
        """Take no new connections and no new requests."""
        self.is_draining = True
        if self._server is not None:
            self._server.close()
        self.gate.close()
        for task in self._tasks:
            task.cancel()
        for connection in tuple(self.connections):
            connection.drain()

    async def drain(self) -> None:
        """Return when every request that was taken is answered, or after a moment."""
        self.drained()
        try:
            await asyncio.wait_for(self._all_drained.wait(), DRAIN_MS / 1000)
        except TimeoutError:
            logger.warning("%d connections still wait for answers; closing them", len(self.connections))

    def drained(self) -> None:
        """Called when a connection answered its last request, or went away."""
        if not any(connection.has_answers_to_come for connection in self.connections):
            self._all_drained.set()

    async def close(self) -> None:
        """Close all connections; one whose client does not read its last answers in a moment is cut off."""
        for connection in tuple(self.connections):
            connection.close()
        if self.connections:
            self._all_closed.clear()
            try:
                await asyncio.wait_for(self._all_closed.wait(), CLOSE_MS / 1000)
            except TimeoutError:
                for connection in tuple(self.connections):
                    connection.expire()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
