"""How an answer leaves: small parts together, large ones as they are, and regions of files by `sendfile`.

A region is sent past the transport, which is allowed as long as the transport has nothing to send itself.
What the socket does not take at once is read, and goes the usual way: so the transport alone waits for the
client.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import cast

from protocol.schema import Buffer
from storage.region import Region

Parts = Sequence[Buffer | Region]
JOINED_BYTES = 16 * 1024
MAX_PARTS = 1024
"""as many as the system takes at once; above a million uvloop gives up"""


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


def send(descriptor: int, parts: Parts) -> list[Buffer]:
    """Send by a socket that does not wait, and return what it has not taken. OSError."""
    # Named whole, so that nothing is asked of the system; the family makes no difference to what is called.
    plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)
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


def _send(plain: socket.socket, parts: Parts) -> list[Buffer]:
    for number, part in enumerate(parts):
        sent = part.send(plain.fileno()) if isinstance(part, Region) else _send_bytes(plain, part)
        if sent < len(part):
            rest = part.read(sent) if isinstance(part, Region) else memoryview(part)[sent:]
            return [rest, *read(parts[number + 1 :])]
    return []


def _send_bytes(plain: socket.socket, data: Buffer) -> int:
    try:
        return plain.send(data)
    except BlockingIOError:
        return 0
