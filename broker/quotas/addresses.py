"""The address that somebody means who names a host, in the one spelling that it has."""

from __future__ import annotations

import contextlib
import ipaddress
import socket


def resolved(host: str) -> str | None:
    """The address of a host, which may be one already; None where there is none. Blocking: it may have to ask
    a name server.
    """
    with contextlib.suppress(ValueError):
        return address_of(host)
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    families = [family for family, *_ in found]
    at = families.index(socket.AF_INET) if socket.AF_INET in families else 0  # as Java chooses
    return address_of(str(found[at][4][0]))


def address_or_text(text: str) -> str:
    """An address in the one spelling that it has, without the interface that it is reached by (`%eth0`); the
    text itself where it is none.
    """
    with contextlib.suppress(ValueError):
        return address_of(text.partition("%")[0])
    return text


def address_of(text: str) -> str:
    """In the one spelling that it has. ValueError."""
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
