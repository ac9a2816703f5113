"""How fast a listener takes connections: `max.connection.creation.rate`, of the broker and of the listener.

Who comes too soon is not refused but waits, and all who come after wait behind, in the order in which they
came. Nothing that they say is looked at, not even what TLS begins with, and they count as connections when
their turn has come. Mirrors `waitForConnectionSlot` of Kafka's `ConnectionQuotas`, where who waits is in the
system's queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from broker.quotas.rates import Rate
from broker.receiving import has_hung_up
from config.listeners import CREATION_RATE

if TYPE_CHECKING:
    from broker.clock import Timer
    from broker.node import Node
    from broker.quotas.headcount import Headcount
    from broker.quotas.quotas import Quotas

logger = logging.getLogger(__name__)

READ_OF_WHO_WAITS = 16
"""bytes, until its turn comes"""
LET_IN_AT_ONCE = 100
"""in one turn of the loop, where a higher rate lets in many that waited"""


class Waiting(asyncio.BufferedProtocol):
    """A connection that waits for its turn. Of what its client says a few bytes are read: uvloop reads in any
    case from when a connection is made, and so learns of those that leave. Owned by: event loop.
    """

    __slots__ = ("_gate", "_is_due", "_read", "_room", "_transport", "is_gone")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._transport: asyncio.Transport | None = None
        self._room = bytearray(READ_OF_WHO_WAITS)
        self._read = b""
        self._is_due = False
        self.is_gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_gone:  # it was one too many
            self._transport.abort()
        elif self._is_due:
            self.let_in()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_gone = True

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self._read = bytes(self._room[:nbytes])

    def has_left(self) -> bool:
        """Whether the client is no longer there: asked of the system, for nothing more is read."""
        transport = self._transport
        return self.is_gone or (transport is not None and (transport.is_closing() or has_hung_up(transport)))

    def let_in(self) -> None:
        """Its turn has come."""
        self._is_due = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        protocol, read = self._gate.make(), self._read
        transport.set_protocol(protocol)
        if read:
            transport.resume_reading()
        protocol.connection_made(transport)
        if read and not transport.is_closing():
            cast(memoryview, protocol.get_buffer(-1))[: len(read)] = read
            protocol.buffer_updated(len(read))

    def leave(self) -> None:
        """Cut it off."""
        self.is_gone = True
        if self._transport is not None:
            self._transport.abort()


class Gate:
    """Of one listener. Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        quotas: Quotas,
        headcount: Headcount,
        listener: str,
        make: Callable[[], asyncio.BufferedProtocol],
    ) -> None:
        """`make()`: what a client talks to when it is let in."""
        config = node.config
        self._node = node
        self._quotas = quotas
        self._headcount = headcount
        self.listener = listener
        self._is_open = True
        self.make = make
        self._longest_ms = 1000 * config.quota_window_size_seconds
        self._created = Rate(config.quota_window_num, self._longest_ms, node.clock.passed_ms())
        self._waiting: deque[Waiting] = deque()
        self._timer: Timer | None = None  # there is one as long as anybody waits

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return len(self._waiting)

    @property
    def rate(self) -> float:
        """How many connections a second were taken lately."""
        return self._created.per_second(self._node.clock.passed_ms())

    def next_protocol(self) -> asyncio.BaseProtocol:
        """What a connection that was just made talks to first."""
        wait_ms = 0
        if self._timer is None and not (wait_ms := self._count()):
            return self.make()
        waiting = Waiting(self)
        if not self._is_open or not self._headcount.wait(self.listener):
            waiting.is_gone = True
            self._node.metrics_state.connections_refused += 1
            logger.warning("refused a connection to %s: too many wait for their turn", self.listener)
            return waiting
        self._waiting.append(waiting)
        self._node.metrics_state.connections_throttled += 1
        if self._timer is None:
            self._wait(wait_ms)
        return waiting

    def _count(self) -> int:
        """A connection has its turn; for how long it has to wait, ms."""
        config = self._node.config
        return min(
            self._longest_ms,
            max(
                self._counted(self._quotas.created, config.max_connection_creation_rate),
                self._counted(self._created, config.limit_of(self.listener, CREATION_RATE)),
            ),
        )

    def _counted(self, rate: Rate, limit: int) -> int:
        now_ms = self._node.clock.passed_ms()
        rate.add(1, now_ms)
        return rate.wait_ms(limit, now_ms) if limit else self._longest_ms

    def take_back(self) -> None:
        """The last one was not taken: there were too many of its address."""
        now_ms = self._node.clock.passed_ms()
        self._quotas.created.add(-1, now_ms)
        self._created.add(-1, now_ms)

    def _wait(self, wait_ms: int) -> None:
        """The first one has to wait for so long from now on."""
        counters = self._node.metrics_state
        counters.throttled[CREATION_RATE] += 1
        counters.throttled_ms[CREATION_RATE] += wait_ms
        self._timer = self._node.clock.call_later(wait_ms, self._end_turn)

    def _end_turn(self) -> None:
        self._let_in()
        self._go_on()

    def _let_in(self) -> None:
        self._next().let_in()

    def _go_on(self) -> None:
        """Whose turn is next, as long as somebody waits."""
        self._timer = None
        for _ in range(LET_IN_AT_ONCE):
            while self._waiting and self._waiting[0].has_left():
                self._forget()
            if not self._waiting:
                return
            if wait_ms := self._count():
                self._wait(wait_ms)
                return
            self._let_in()
        self._timer = self._node.clock.call_later(0, self._go_on)

    def _forget(self) -> None:
        """Who did not stay has taken nobody's turn."""
        self._next().leave()

    def _next(self) -> Waiting:
        self._node.metrics_state.connections_throttled -= 1
        self._headcount.wait_no_more(self.listener)
        return self._waiting.popleft()

    def close(self) -> None:
        """Nobody is let in any more."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._forget()
