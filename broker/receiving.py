"""Where the bytes of clients go: one buffer for all connections; and whether any are to come."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from protocol.records import as_array

RECEIVE_BYTES = 256 * 1024
HUNG_UP = (7, 8)
"""what TCP_INFO says of a connection that the client has ended: CLOSE, CLOSE_WAIT"""


def has_hung_up(transport: asyncio.Transport) -> bool:
    """Whether the client ended the connection; asked of the system, for reading may be paused."""
    state = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return state[0] in HUNG_UP


class Room:
    """Memory with bytes of clients, as handlers and as kernels see it. Owned by: event loop."""

    __slots__ = ("array", "view")

    def __init__(self, data: bytes | bytearray) -> None:
        self.view = memoryview(data)
        self.array = as_array(data)

    def frame(self, start: int, end: int) -> bytes | bytearray:
        """To be kept: all of it as it is, a part copied."""
        if end - start == len(self.view):
            return cast(bytes | bytearray, self.view.obj)
        return self.view[start:end].tobytes()
