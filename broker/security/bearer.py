"""The broker's side of OAUTHBEARER (RFC 7628, KIP-255): a client brings a token that it was given. Pure.

What is wrong with a token is not told: as in Kafka the answer is `{"status":"invalid_token"}`, to which a
client says no more than that it has understood; then it is refused. Mirrors Kafka's `OAuthBearerSaslServer`
and `OAuthBearerClientInitialResponse`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import NamedTuple

from broker.security.sasl import Refused, invalid_credentials
from config.security import OAUTHBEARER

logger = logging.getLogger(__name__)

UNDERSTOOD = b"\x01"
INVALID, INSUFFICIENT_SCOPE = "invalid_token", "insufficient_scope"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_AUTH = re.compile(r"bearer +([-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)


class Token(NamedTuple):
    """What a token says."""

    user: str
    expires_ms: int
    """milliseconds since 1970"""


class InvalidToken(Exception):
    """The message is for the broker's log; `status` and `scope` are for the client."""

    def __init__(self, message: str, status: str = INVALID, scope: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.scope = scope


class Bearer:
    """One client and its token."""

    def __init__(self, validate: Callable[[str], Token]) -> None:
        """`validate` raises InvalidToken."""
        self._validate = validate
        self._problem = ""
        self.user: str | None = None
        self.expires_ms: int | None = None

    def answer(self, token: bytes) -> bytes:
        if token == UNDERSTOOD and self._problem:
            raise Refused(self._problem)
        self._problem = ""
        for_whom, text = _first(token)
        try:
            found = self._validate(text)
        except InvalidToken as problem:
            logger.warning("a token is not accepted: %s", problem)
            told = {"status": problem.status}
            if problem.scope is not None:
                told["scope"] = problem.scope
            self._problem = json.dumps(told, separators=(", ", ":"))
            return self._problem.encode()
        if for_whom not in ("", found.user):
            raise Refused(
                f"Authentication failed: Client requested an authorization id ({for_whom}) that is different "
                f"from the token's principal name ({found.user})"
            )
        self.user, self.expires_ms = found
        return b""


def _first(token: bytes) -> tuple[str, str]:
    """For whom a client speaks ("": for whom the token names), and its token."""
    match = _FIRST.fullmatch(token.decode(errors="replace"))
    if match is None:
        raise invalid_credentials(OAUTHBEARER)
    pairs = dict(pair.split("=", 1) for pair in match[2].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        raise invalid_credentials(OAUTHBEARER)
    return match[1] or "", auth[1]
