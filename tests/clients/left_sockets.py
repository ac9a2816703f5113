"""kafka-python leaves a socket to the garbage collector now and then: a client that is closed while a request
is on its way stops its loop before the transport, which waits for it, is closed (3 % of such closings on busy
cores). Python's warning of that would fail whichever test runs when the collector comes. Only its sockets are
closed silently here, so that one which our own code forgets still fails a test.
"""

from __future__ import annotations

import socket
import sys
from typing import Any


class LeftSocket(socket.socket):
    """A socket that nobody has to close."""

    def __del__(self) -> None:
        self.close()


def _socket(
    _factory: Any,
    family: int = socket.AF_UNSPEC,
    kind: int = socket.SOCK_STREAM,
    number: int = socket.IPPROTO_TCP,
) -> socket.socket:
    return LeftSocket(family, kind, number)


def close_what_kafka_python_leaves() -> None:
    """From now on; nothing where no test uses it."""
    module: Any = sys.modules.get("kafka.net.inet")
    if module is not None:
        module.KafkaNetSocket.socket = _socket
