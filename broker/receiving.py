"""Where the bytes of clients go: one buffer for all connections, and one for each frame that is too large;
and whether any are to come.
"""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from protocol.records import as_array

RECEIVE_BYTES = 256 * 1024
LARGE_BYTES = RECEIVE_BYTES // 2
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


class LargeFrame:
    """A frame that the shared buffer cannot hold, in a buffer sized by what has come of it. Owned by: event
    loop.
    """

    __slots__ = ("_filled", "_size_bytes", "data")

    def __init__(self, received: memoryview, size_bytes: int) -> None:
        """It will be `size_bytes` long; `received` is its begin."""
        self._size_bytes = size_bytes
        self._filled = len(received)
        self.data = bytearray(min(size_bytes, max(RECEIVE_BYTES, 4 * len(received))))
        self.data[: len(received)] = received

    @property
    def is_whole(self) -> bool:
        return self._filled == self._size_bytes

    @property
    def received(self) -> bytearray:
        return self.data[: self._filled]

    def room(self) -> memoryview:
        """Where to put what comes next."""
        if self._filled == len(self.data):
            grown = bytearray(min(self._size_bytes, 2 * len(self.data)))
            grown[: self._filled] = self.data
            self.data = grown
        return memoryview(self.data)[self._filled :]

    def add(self, size_bytes: int) -> None:
        """So many bytes were put into the room."""
        self._filled += size_bytes
