"""How a listener looks at its clients' tokens (OAUTHBEARER): by which rules, with whose keys."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

from broker.security.bearer import InvalidToken, Token
from broker.security.jwks import KeySet
from broker.security.tokens import Rules, UnsecuredRules, validate_signed, validate_unsecured
from config.definition import ConfigError
from config.security import JAAS, JWKS, LISTENER_PREFIX, OAUTHBEARER
from protocol.jaas import OAUTH_MODULE, parse_jaas

if TYPE_CHECKING:
    from broker.context import Listener
    from broker.node import Node

logger = logging.getLogger(__name__)

AUTHORITIES = "ssl.truststore.location"
"""the option of the JAAS text that says who signs the certificate of the keys' URL"""


class ListenerTokens:
    """Owned by: event loop."""

    def __init__(self, node: Node, listener: Listener) -> None:
        """ConfigError."""
        security = listener.security
        self._clock = node.clock
        self._rules = Rules.of(security.keys)
        self._unsecured: UnsecuredRules | None = None
        self.keys: KeySet | None = None
        """None where tokens are believed that nobody signed"""
        options = _options(listener.name, security.oauth_jaas)
        if security.believes_tokens:
            self._unsecured = _unsecured(listener.name, options)
            logger.warning("listener %s believes tokens that nobody signed: for tests only", listener.name)
            return
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise ConfigError(
                f"Listener {listener.name}: {OAUTHBEARER} needs PyJWT: pip install 'kompakt[oauth]'",
                "listeners",
            )
        self.keys = KeySet(node, security.keys, options.get(AUTHORITIES))

    async def load(self) -> None:
        """Read a file of keys; those of a URL come when the listener is there. ConfigError."""
        if self.keys is not None and self.keys.is_file:
            try:
                await self.keys.load()
            except (OSError, ValueError) as problem:
                raise ConfigError(f"Configuration {JWKS}: {problem}", JWKS) from None

    def validate(self, text: str) -> Token:
        """What a client's token says. InvalidToken."""
        now_ms = self._clock.now_ms()
        try:
            if self._unsecured is not None:
                return validate_unsecured(text, self._unsecured, now_ms)
            assert self.keys is not None
            return validate_signed(text, self.keys.of, self._rules, now_ms)
        except (UnicodeError, RecursionError) as problem:  # no text, or JSON that is too deep
            raise InvalidToken(f"it cannot be read: {type(problem).__name__}") from None


def _name(listener: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{OAUTHBEARER.lower()}.{JAAS}"


def _options(listener: str, jaas: str) -> dict[str, str]:
    if not jaas:
        return {}
    try:
        return parse_jaas(jaas, (OAUTH_MODULE,)).settings
    except ValueError as problem:
        name = _name(listener)
        raise ConfigError(f"Invalid value for configuration {name}: {problem}", name) from None


def _unsecured(listener: str, options: dict[str, str]) -> UnsecuredRules:
    try:
        return UnsecuredRules.of(options)
    except ValueError:
        name = _name(listener)
        raise ConfigError(
            f"Invalid value for configuration {name}: unsecuredValidatorAllowableClockSkewMs is no number",
            name,
        ) from None
