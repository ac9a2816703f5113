"""How an answer leaves: small parts together, large ones as they are, and regions of files by `sendfile`.

A region is sent past the transport, which is allowed as long as the transport has nothing to send itself, and
does not encrypt: there it is read, as many bytes in one turn of the loop as are sent else.
What the socket does not take at once is read, and goes the usual way: so the transport alone waits for the
client. Many bytes of regions leave in several turns of the loop, so that other clients have theirs between.
What all clients together have not taken yet is counted, for it takes memory, or will: fetches look at that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import cast

from broker.counters import Counters
from protocol.schema import Buffer
from storage.region import Region

Parts = Sequence[Buffer | Region]
JOINED_BYTES = 16 * 1024
MAX_PARTS = 1024
"""as many as the system takes at once; above a million uvloop gives up"""
PIECE_BYTES = 512 * 1024
"""of regions that leave in one turn of the loop: 1 MiB takes 0.3 to 0.6 ms, and every other client waits;
half as much at a time costs who reads alone half as much CPU again"""


def joined(parts: list[Buffer]) -> list[Buffer]:
    """The same bytes in few parts: small ones together, large ones as they are."""
    if len(parts) <= MAX_PARTS:
        return parts
    fewer: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < JOINED_BYTES:
            small.append(part)
        else:
            fewer += (b"".join(small), part)
            small = []
    return [*fewer, b"".join(small)]


def read(parts: Parts) -> list[Buffer]:
    """The same bytes without regions. OSError when one cannot be read."""
    return [part.read() if isinstance(part, Region) else part for part in parts]


def cut(parts: Parts) -> tuple[Parts, Parts]:
    """What leaves in this turn of the loop, and what in the next ones."""
    room = PIECE_BYTES
    for number, part in enumerate(parts):
        if isinstance(part, Region):
            if len(part) > room:
                first, second = part.cut(room)
                return [*parts[:number], first], [second, *parts[number + 1 :]]
            room -= len(part)
    return parts, []


class Sender:
    """What leaves by one transport, in order. Owned by: event loop."""

    __slots__ = (
        "_counters",
        "_failed",
        "_is_paused",
        "_last_bytes",
        "_rest",
        "_sent",
        "_transport",
        "_unread_bytes",
        "is_busy",
        "is_encrypted",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        counters: Counters,
        sent: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """`sent()`: all has left that took more than one turn. `failed(error)`: it cannot."""
        self._transport = transport
        self._counters = counters
        self._sent = sent
        self._failed = failed
        self._rest: Parts = ()
        self.is_encrypted = transport.get_extra_info("sslcontext") is not None
        self._is_paused = False
        self._unread_bytes = 0
        self._last_bytes = 0
        self.is_busy = False
        """whether something is left for the next turns of the loop, or much that the client has not taken;
        what follows it has to wait"""

    def pause(self) -> None:
        """The transport has more to send than it should."""
        self._is_paused = True
        self._count()

    def resume(self) -> None:
        """The client has taken nearly all of it."""
        self._is_paused = False
        self._count()

    def has_moved(self) -> bool:
        """Whether the client has taken some of what the transport had when this was asked last."""
        last_bytes, self._last_bytes = self._last_bytes, self._transport.get_write_buffer_size()
        return self._last_bytes < last_bytes

    def _count(self) -> None:
        """Of what the transport has only what is much: the end of little is not told."""
        self.is_busy = self._is_paused or bool(self._rest)
        waiting_bytes = self._transport.get_write_buffer_size() if self._is_paused else 0
        self._note(waiting_bytes + sum(map(len, self._rest)))

    def _note(self, unread_bytes: int) -> None:
        self._counters.unread_bytes += unread_bytes - self._unread_bytes
        self._unread_bytes = unread_bytes

    def send(self, parts: Parts, size_bytes: int) -> None:
        """Send all of it, behind what is on its way."""
        if self._rest:
            self._rest = [*self._rest, *parts]
            self._count()
        elif size_bytes <= JOINED_BYTES:
            self._transport.write(b"".join(parts))  # type: ignore[arg-type]  # regions are larger
        else:
            self._send(parts)

    def _send(self, parts: Parts) -> None:
        try:
            left = self._send_regions(parts)
        except OSError as error:
            return self._failed(error)
        if left:
            self._transport.writelines(joined(left))
        elif self._rest:
            asyncio.get_running_loop().call_soon(self._go_on)
        self._count()
        return None

    def _send_regions(self, parts: Parts) -> list[Buffer]:
        """What is left for the transport to send; nothing is, if the client reads fast enough."""
        if not any(isinstance(part, Region) for part in parts):
            return list(cast(Sequence[Buffer], parts))
        transport = self._transport
        if transport.get_write_buffer_size() or transport.is_closing():
            return read(parts)
        now, later = cut(parts)
        if self.is_encrypted:
            transport.writelines(joined(read(now)))
            self._rest = later
            return []
        left = send(transport.get_extra_info("socket").fileno(), now)
        if left:
            return [*left, *read(later)]
        self._rest = later
        return []

    def _go_on(self) -> None:
        rest, self._rest = self._rest, ()
        if rest:
            self._send(rest)
            if not self._rest:
                self._sent()

    def finish(self) -> None:
        """The transport will be closed: it gets what is left."""
        rest, self._rest = self._rest, ()
        if rest:
            try:
                self._transport.writelines(joined(read(rest)))
            except OSError as error:
                self._failed(error)
            else:
                self._count()

    def drop(self) -> None:
        """The client is gone: nothing more is sent."""
        self._rest = ()
        self.is_busy = self._is_paused
        self._note(0)


def send(descriptor: int, parts: Parts) -> list[Buffer]:
    """Send by a socket that does not wait, and return what it has not taken. OSError."""
    # Named whole, so that nothing is asked of the system; the family makes no difference to what is called.
    plain = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)
    try:
        # The few bytes around a region get no packets of their own.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        try:
            return _send(plain, _together(parts))
        finally:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    finally:
        plain.detach()  # it is the transport's


def _together(parts: Parts) -> Parts:
    """The same bytes with one part between two regions: the encoder makes ten, and each costs a call."""
    fewer: list[Buffer | Region] = []
    for is_region, run in groupby(parts, lambda part: part.__class__ is Region):
        if is_region:
            fewer += run
        else:
            fewer.append(b"".join(cast(Iterable[Buffer], run)))
    return fewer


def _send(plain: socket.SocketType, parts: Parts) -> list[Buffer]:
    for number, part in enumerate(parts):
        sent = part.send(plain.fileno()) if isinstance(part, Region) else _send_bytes(plain, part)
        if sent < len(part):
            rest = part.read(sent) if isinstance(part, Region) else memoryview(part)[sent:]
            return [rest, *read(parts[number + 1 :])]
    return []


def _send_bytes(plain: socket.SocketType, data: Buffer) -> int:
    try:
        return plain.send(data)
    except BlockingIOError:
        return 0
