"""SaslHandshake, SaslAuthenticate: a client says who it is.

SaslHandshake v1: the tokens travel inside SaslAuthenticate, not bare. SaslAuthenticate v1: how long the
session lives (KIP-368). v2: flexible.
"""

from __future__ import annotations

from protocol.schema import array, binary, int16, int64, request, response, string


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    """Choose a mechanism."""

    mechanism: str = string()


@response(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    """Whether it is offered, and which are."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """The mechanism's next token."""

    auth_bytes: bytes = binary()


@response(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The broker's token, or why it refuses."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+")
