"""The keys that sign clients' tokens (JWKS, RFC 7517): had from whoever gives tokens out, or from a file.

They are asked for again from time to time, and at once for a token whose key is not known: whoever gives
tokens out changes its keys. Where they cannot be had those stay that are known. Mirrors Kafka's
`RefreshingHttpsJwks`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from broker.node import Node
    from config.security import SecurityConfig

logger = logging.getLogger(__name__)

MOST_BYTES = 1024 * 1024
"""of a key set"""
LIMIT_SECONDS = 10.0
"""for one to come"""
UNKNOWN_PAUSE_MS = 10_000
"""tokens with keys that are not known bring about no more than one question within so long"""


class SigningKey(NamedTuple):
    """A public key."""

    key_id: str | None
    kind: str
    """RSA, EC, OKP"""
    algorithm: str | None
    """the only one that it signs by, if it says so"""
    key: Any
    """what PyJWT verifies with"""


KeysOf = Callable[[str | None], Sequence[SigningKey]]
"""the keys with a name; with None all"""


def read_keys(text: bytes) -> list[SigningKey]:
    """The keys of a set that can sign tokens; what else is in it does not count. ValueError: it is none."""
    import jwt

    try:
        rows = json.loads(text)["keys"]
        found = [row for row in rows if row.get("use") in (None, "sig")]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError('it is no key set: {"keys": [...]}') from None
    keys = []
    for row in found:
        try:
            made = jwt.PyJWK(row)
        except (jwt.PyJWTError, TypeError, ValueError, AttributeError) as problem:  # whatever a row may have
            logger.warning("a key of the key set is left out: %s", problem)
            continue
        keys.append(SigningKey(row.get("kid"), str(made.key_type), row.get("alg"), made.key))
    return keys


class KeySet:
    """Owned by: event loop."""

    def __init__(self, node: Node, settings: SecurityConfig, authorities: str | None) -> None:
        """`authorities`: a PEM file of who signs the URL's certificate; None: of whom the system knows."""
        self._node = node
        self._settings = settings
        self._authorities = authorities
        self._url = settings.sasl_oauthbearer_jwks_endpoint_url or ""
        self._keys: list[SigningKey] = []
        self._is_wanted = asyncio.Event()
        self._wanted_ms: int | None = None

    @property
    def is_file(self) -> bool:
        return self._url.lower().startswith("file:")

    def of(self, key_id: str | None) -> Sequence[SigningKey]:
        """See `KeysOf`; where there is none with the name, they are asked for anew."""
        found = [one for one in self._keys if key_id in (None, one.key_id)]
        now_ms = self._node.clock.passed_ms()
        if not found and (self._wanted_ms is None or now_ms - self._wanted_ms >= UNKNOWN_PAUSE_MS):
            self._wanted_ms = now_ms
            self._is_wanted.set()
        return found

    async def load(self) -> None:
        """Ask for the keys once. OSError, ValueError: they cannot be had; the message says why."""
        text = await (self._read_file() if self.is_file else self._fetch())
        self._keys = await self._node.run_blocking(read_keys, text)
        logger.info("%d keys that sign tokens, of %s", len(self._keys), self._url)

    async def keep_fresh(self) -> None:
        """Ask for them whenever it is time, until it is cancelled."""
        settings = self._settings
        retry_ms = settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms
        while True:
            self._is_wanted.clear()
            try:
                await self.load()
            except (OSError, ValueError) as problem:
                logger.warning("keys that sign tokens could not be had of %s: %s", self._url, problem)
                await self._node.clock.sleep(retry_ms)
                retry_ms = min(2 * retry_ms, settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms)
                continue
            retry_ms = settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms
            timer = self._node.clock.call_later(
                settings.sasl_oauthbearer_jwks_endpoint_refresh_ms, self._is_wanted.set
            )
            await self._is_wanted.wait()
            timer.cancel()

    async def _read_file(self) -> bytes:
        path = urllib.request.url2pathname(urllib.parse.urlsplit(self._url).path)
        return await self._node.run_blocking(Path(path).read_bytes)

    async def _fetch(self) -> bytes:
        import aiohttp

        context = ssl.create_default_context(cafile=self._authorities)
        limit = aiohttp.ClientTimeout(total=LIMIT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.get(self._url, ssl=context, raise_for_status=True) as answer,
            ):
                text = await answer.content.read(MOST_BYTES + 1)
                while len(text) <= MOST_BYTES and (more := await answer.content.read(MOST_BYTES)):
                    text += more
        except TimeoutError:
            raise OSError(f"no answer within {LIMIT_SECONDS:.0f} s") from None
        except aiohttp.ClientError as problem:
            raise OSError(str(problem) or type(problem).__name__) from None
        if len(text) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        return text
