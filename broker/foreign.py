"""What a client speaks that does not speak Kafka, told by what would be the size of its first frame."""

from __future__ import annotations

TLS_HANDSHAKE = b"\x16\x03"  # a record of type handshake, major version 3: SSL 3.0 to TLS 1.3
HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"PRI ")


def hint(size: int) -> str:
    """Words to put behind the refusal of a frame of `size` bytes; none when it may be Kafka's protocol."""
    first = size.to_bytes(4, "big", signed=True)
    if first.startswith(TLS_HANDSHAKE):
        return ". It speaks TLS, this listener does not: set the client's security.protocol to PLAINTEXT"
    if first in HTTP_METHODS:
        return (
            ". It speaks HTTP, and this port Kafka's protocol: /metrics and /api have another (--http-port)"
        )
    return ""
