"""Addresses, taken before anybody is answered: who cannot have one says so at once. Then listened on."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

BACKLOG = 1024
HANDSHAKE_SECONDS = 10.0
"""so long a connection may take to shake hands (TLS)"""
BIND_ATTEMPTS = 20  # to find a port that is free in all addresses of a host


class ListenError(Exception):
    """An address cannot be listened on."""

    def __init__(self, address: str, error: OSError) -> None:
        is_of_system = error.errno is not None and error.errno > 0
        reason = os.strerror(error.errno) if is_of_system and error.errno else error.strerror
        super().__init__(f"cannot listen on {address}: {reason}")


async def bind(
    protocol: Callable[[], asyncio.BaseProtocol], address: str, host: str, port: int
) -> asyncio.Server:
    """A server that has its address and does not listen yet; nobody else can have it.

    Raises ListenError, which says `address`, if it cannot be had.
    """
    loop = asyncio.get_running_loop()
    chosen = port
    for _ in range(BIND_ATTEMPTS):
        try:
            server = await loop.create_server(
                protocol, host or None, chosen, backlog=BACKLOG, start_serving=False
            )
        except OSError as error:
            if chosen == port:
                raise ListenError(address, error) from error
            chosen = port  # free for one family only: another one
            continue
        ports = {bound.getsockname()[1] for bound in server.sockets}
        if len(ports) == 1:
            _share_address(server, False)
            return server
        # IPv4 and IPv6 were each given a port of their own: clients are told only one.
        server.close()
        await server.wait_closed()
        chosen = ports.pop()
    raise ListenError(address, OSError(-1, "no port was free in all of its addresses; name one"))


async def listen(server: asyncio.Server, address: str) -> None:
    """Let what `bind` made take connections. Raises ListenError."""
    _share_address(server, True)  # connections inherit it, and would else keep the next start from its port
    try:
        await server.start_serving()
    except OSError as error:
        raise ListenError(address, error) from error
    if not all(map(_is_listening, server.sockets)):
        raise ListenError(address, OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))


def _share_address(server: asyncio.Server, is_shared: bool) -> None:
    """Of sockets that do not listen Linux lets any number have one address, if all say SO_REUSEADDR."""
    for bound in server.sockets:
        with socket.socket(fileno=os.dup(bound.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, is_shared)


def _is_listening(bound: socket.socket) -> bool:
    """uvloop raises nothing when a socket cannot listen, and closes it."""
    try:
        with socket.socket(fileno=os.dup(bound.fileno())) as same:
            return bool(same.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False
