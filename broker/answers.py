"""The answers of one connection, in the order of its requests.

Requests run one after the other, but the answer to some has to wait: it takes a slot in a queue, and later
answers wait behind it (G25). What is ready is collected, so that the answers of one read of the socket, or of
one flush, leave in one write; what waits, and what the client does not take, is counted for the connection,
which reads no more where that is too much.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker import sending
from broker.api import FETCH, PRODUCE, Api
from broker.sending import JOINED_BYTES, Parts, Sender
from broker.slot import Slot
from protocol.schema import Buffer
from storage.region import Region

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.door import Limits

logger = logging.getLogger(__name__)


class Answers:
    """Owned by: event loop."""

    __slots__ = (
        "_busy_poll",
        "_counters",
        "_departure",
        "_peer",
        "_queued_bytes",
        "_ready_bytes",
        "_reserved_bytes",
        "_transport",
        "is_over",
        "ready",
        "sender",
        "slots",
    )

    def __init__(
        self, transport: asyncio.Transport, peer: str, broker: Broker, all_sent: Callable[[], None]
    ) -> None:
        """`all_sent()`: an answer that took more than one turn of the loop has left."""
        self._transport = transport
        self._peer = peer
        self._counters = broker.metrics_state
        self._departure = broker.departure
        self._busy_poll = broker.busy_poll
        self._ready_bytes = 0  # without answers to Produce, which are small
        self._queued_bytes = 0  # of answers that are ready behind one that is not
        self._reserved_bytes = 0  # for answers to fetches that wait
        self.sender = Sender(transport, broker.metrics_state, all_sent, self.cannot_leave)
        self.slots: deque[Slot] = deque()
        self.ready: list[Buffer | Region] = []
        """what leaves next; who adds to it sees to it that it does"""
        self.is_over = False
        """whether the connection is closing: nothing leaves any more"""

    def is_full(self, limits: Limits) -> bool:
        """Whether no further request may be taken. Never while no answer waits and none is on its way."""
        return (
            self.sender.is_busy
            or len(self.slots) >= limits.in_flight_requests
            or self._queued_bytes > limits.unread_bytes
            or self._reserved_bytes > limits.queued_bytes
        )

    def add(self, api: Api, parts: Parts) -> None:
        """An answer that is ready, while no other has to wait."""
        self.ready += parts
        if api.key != PRODUCE:
            self._ready_bytes += sum(map(len, parts))
            if self._ready_bytes > JOINED_BYTES:
                self.leave()  # so that the next request is taken only if the client reads

    def queue(self, slot: Slot, parts: Parts | None) -> None:
        """An answer that has to wait: for itself where it is None, for others else."""
        self.slots.append(slot)
        self._reserved_bytes += slot.reserved_bytes
        if parts is not None:
            self._hold(slot, parts)

    def _hold(self, slot: Slot, parts: Parts) -> None:
        slot.parts = self._kept(slot.api, parts)
        self._queued_bytes += sum(map(len, parts))

    def fill(self, slot: Slot, parts: Parts) -> None:
        """The answer of a slot: it leaves when nothing before it is missing, with what waited for it."""
        self._reserved_bytes -= slot.reserved_bytes
        slots = self.slots
        if slots[0] is not slot:
            return self._hold(slot, parts)
        self.ready += parts if len(slots) == 1 else self._kept(slot.api, parts)
        slots.popleft()
        while slots and (held := slots[0].parts) is not None:
            self._queued_bytes -= sum(map(len, held))
            self.ready += held
            slots.popleft()
        if not slots and sum(map(len, self.ready)) > JOINED_BYTES:
            self.leave()
        else:  # one flush completes many: they leave in one write
            self._departure.add(self, is_last=not slots)
        return None

    def _kept(self, api: Api, parts: Parts) -> Parts:
        """The parts of an answer that waits for others, as bytes: no region lives so long."""
        if api.key != FETCH:
            return parts
        try:
            return sending.read(parts)
        except OSError as error:
            self.cannot_leave(error)
            return []

    def leave(self) -> None:
        """Send the answers that are ready, if there are any."""
        self._ready_bytes = 0
        ready, self.ready = self.ready, []
        if self.is_over or not ready:
            return
        size_bytes = sum(map(len, ready))
        self._counters.bytes_sent += size_bytes
        self.sender.send(ready, size_bytes)
        self._busy_poll.sent(size_bytes)

    def cannot_leave(self, error: Exception) -> None:
        """What the client was promised cannot be read or sent: no later byte would be understood."""
        is_our_bug = not isinstance(error, OSError)
        self._counters.internal_errors += is_our_bug
        if not isinstance(error, ConnectionError):
            text = "closed the connection of %s: an answer cannot be sent: %s"
            logger.error(text, self._peer, error, exc_info=error if is_our_bug else None)
        self.cut_off()

    def finish(self) -> None:
        """Hand all that is ready to the transport, which will be closed."""
        self.leave()
        self.sender.finish()
        self.is_over = True

    def cut_off(self) -> None:
        """Send nothing more, and end the connection now."""
        self.is_over = True
        self.sender.drop()
        self._transport.abort()

    def drop(self) -> None:
        """The connection is gone: nobody wants an answer."""
        self.is_over = True
        self.ready = []
        self.sender.drop()
        for slot in self.slots:
            slot.drop()
        self.slots.clear()
