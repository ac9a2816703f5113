"""The broker's side of a SASL conversation: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677); OAUTHBEARER is
in `bearer.py`. Pure.

`answer(token)` returns the next token; when `user` is set, the client has proved to be that. What is refused
is told in Kafka's words: those of a wrong password say neither whether there is such a user, nor what was
wrong. Mirrors Kafka's `PlainSaslServer` and `ScramSaslServer`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

from protocol import scram
from protocol.scram import Credential

NONCE_BYTES = 24
OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"
_FIRST = re.compile(r"n,(?:a=([^,]*))?,(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)", re.DOTALL)
_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=([A-Za-z0-9+/=]+)", re.DOTALL)
_ESCAPE = re.compile(r"=(2C|3D)")


class Refused(Exception):
    """The client is not let in; the message is for it."""


def invalid_credentials(mechanism: str) -> Refused:
    """What is told of whatever is wrong with a token."""
    return Refused(
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        f"{mechanism}"
    )


class Conversation(Protocol):
    """One client proving who it is."""

    user: str | None
    expires_ms: int | None
    """until when what it has shown holds, milliseconds since 1970; None: for ever"""

    def answer(self, token: bytes) -> bytes:
        """The broker's next token. Refused."""


class Plain:
    """The name and the password, as they are: for connections that nobody else can read."""

    expires_ms: int | None = None

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user: str | None = None

    def answer(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise Refused("Invalid SASL/PLAIN response: not UTF-8") from None
        if len(parts) != 3:
            raise Refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise Refused("Authentication failed: username not specified")
        if not password:
            raise Refused("Authentication failed: password not specified")
        known = self._passwords.get(user)
        # Compared whoever it is, so that the time tells nobody who there is.
        is_right = hmac.compare_digest(password.encode(), (known or "").encode())
        if known is None or not is_right:
            raise Refused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise Refused(OTHER_ID)
        self.user = user
        return b""


class Scram:
    """Both sides prove that they know the password, neither sends it."""

    expires_ms: int | None = None

    def __init__(
        self, mechanism: str, credential_of: Callable[[str], Credential | None], nonce: str | None = None
    ) -> None:
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._nonce = nonce or secrets.token_urlsafe(NONCE_BYTES)
        self._credential: Credential | None = None
        self._claimed = ""
        self._header = b""
        self._spoken = ""
        self.user: str | None = None

    def answer(self, token: bytes) -> bytes:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise self._refused() from None
        return self._second(text) if self._credential is not None else self._first(text)

    def _refused(self) -> Refused:
        return invalid_credentials(self._mechanism)

    def _first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise self._refused()
        authorization_id, bare, user, nonce = match.groups()
        user = _ESCAPE.sub(lambda code: "," if code[1] == "2C" else "=", user)
        credential = self._credential_of(user)
        if credential is None:
            raise self._refused()
        if authorization_id not in (None, "", user):
            raise Refused(OTHER_ID)
        self._credential, self._claimed = credential, user
        self._header = text[: -len(bare)].encode()
        self._nonce = f"{nonce}{self._nonce}"
        salt = base64.b64encode(credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._spoken = f"{bare},{first}"
        return first.encode()

    def _second(self, text: str) -> bytes:
        match = _FINAL.fullmatch(text)
        assert self._credential is not None
        if match is None:
            raise self._refused()
        without_proof, header, nonce, proof = match.groups()
        message = f"{self._spoken},{without_proof}".encode()
        mechanism, kept = self._mechanism, self._credential
        try:
            key = scram.combined(
                base64.b64decode(proof, validate=True), scram.keyed(mechanism, kept.stored_key, message)
            )
            is_bound = base64.b64decode(header, validate=True) == self._header
        except (binascii.Error, ValueError):
            raise self._refused() from None
        if (
            not is_bound
            or nonce != self._nonce
            or not hmac.compare_digest(scram.hashed(mechanism, key), kept.stored_key)
        ):
            raise self._refused()
        self.user = self._claimed
        return b"v=" + base64.b64encode(scram.keyed(mechanism, kept.server_key, message))
