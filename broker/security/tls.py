"""The TLS of a listener: what its settings and files come to, and files that are renewed while it serves.

Certificates are short-lived where they are renewed by a machine: `Tls.renewed` reads the file again when it
has changed, and connections from then on get the new one. Mirrors Kafka's `DefaultSslEngineFactory`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from config.definition import ConfigError
from protocol.pem import as_pem, how_to_convert

if TYPE_CHECKING:
    from broker.node import Node
    from config.security import ListenerSecurity, SecurityConfig

logger = logging.getLogger(__name__)

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
RENEWAL_MS = 60_000
"""how often the file of a certificate is looked at"""
JKS_MAGIC = b"\xfe\xed\xfe\xed"
DER_SEQUENCE = b"\x30"


class Tls:
    """Owned by: event loop; it is made, and `renewed` runs, on an I/O thread."""

    def __init__(self, listener: str, security: ListenerSecurity) -> None:
        """Blocking. ConfigError for what cannot be used, files included."""
        self._listener = listener
        self._keys = security.keys
        self._seen = self._stamp()
        self.context = self._made()
        """for the next connection"""

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        versions = [VERSIONS[name] for name in self._keys.ssl_enabled_protocols]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        context.verify_mode = CLIENT_AUTH[self._keys.ssl_client_auth]
        _load_identity(context, self._keys)
        if self._keys.ssl_client_auth != "none":
            _load_trust(context, self._keys)
        return context

    async def keep_fresh(self, node: Node) -> None:
        """New connections get the certificate that is in its file now."""
        while True:
            await node.clock.sleep(RENEWAL_MS)
            self.context = await node.run_blocking(self.renewed)

    def _stamp(self) -> tuple[int, int, int] | None:
        """What changes when somebody writes or replaces the file of the certificate."""
        if not self._keys.ssl_keystore_location:
            return None
        try:
            found = Path(self._keys.ssl_keystore_location).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def renewed(self) -> ssl.SSLContext:
        """The `context`; a new one if the file of the certificate has changed. One that is not good is told,
        and the old one stays.
        """
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return self.context
        self._seen = stamp
        try:
            context = self._made()
        except ConfigError as error:
            logger.error("listener %s keeps the certificate that it has: %s", self._listener, error.message)
            return self.context
        path = self._keys.ssl_keystore_location
        logger.info("listener %s has a new certificate from %s", self._listener, path)
        return context


def _load_identity(context: ssl.SSLContext, keys: SecurityConfig) -> None:
    password = keys.ssl_key_password or ""
    path = keys.ssl_keystore_location
    if path:
        _require_pem_file(path, "keystore")
        _load_chain(context, path, password, f"ssl.keystore.location {path}")
        return
    what = "ssl.keystore.key and ssl.keystore.certificate.chain"
    try:
        with _secret_file() as (file, path):
            for text in (keys.ssl_keystore_key, keys.ssl_keystore_certificate_chain):
                file.write(f"{as_pem(text or '')}\n")
            file.flush()
            _load_chain(context, path, password, what)
    except OSError as problem:
        raise ConfigError(
            f"{what} cannot be used, for no temporary file can be made of them: {problem}. TMPDIR may name a "
            "place, or ssl.keystore.location a file",
            "ssl.keystore.key",
        ) from None


@contextlib.contextmanager
def _secret_file() -> Iterator[tuple[IO[str], str]]:
    """Python loads keys from files only: one in memory and its path, or where Python cannot make that (one
    that is built for old systems), one for the owner alone that is gone at once. OSError.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("kompakt"), "w") as file:
            yield file, f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w", prefix="kompakt-", suffix=".pem") as made:
            yield made.file, made.name


def _load_chain(context: ssl.SSLContext, path: str, password: str, what: str) -> None:
    try:
        # A password that is always given keeps OpenSSL from asking for one at the terminal.
        context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, OSError, ValueError) as problem:
        raise ConfigError(
            f"{what} cannot be used: {problem}. PEM with the private key and its certificates is needed, and "
            "ssl.key.password if the key is encrypted",
            "ssl.keystore.location",
        ) from None


def _load_trust(context: ssl.SSLContext, keys: SecurityConfig) -> None:
    path = keys.ssl_truststore_location
    try:
        if path:
            _require_pem_file(path, "truststore")
            context.load_verify_locations(cafile=path)
        else:
            context.load_verify_locations(cadata=as_pem(keys.ssl_truststore_certificates or ""))
    except (ssl.SSLError, OSError, ValueError) as problem:
        what = f"ssl.truststore.location {path}" if path else "ssl.truststore.certificates"
        raise ConfigError(
            f"{what} has no certificate that can be read: {problem}", "ssl.truststore.location"
        ) from None


def _require_pem_file(path: str, store: str) -> None:
    name = f"ssl.{store}.location"
    try:
        with Path(path).open("rb") as file:
            start = file.read(4)
    except OSError as problem:
        raise ConfigError(f"{name} {path}: {problem.strerror}", name) from None
    if start == JKS_MAGIC or start[:1] == DER_SEQUENCE:
        kind = "JKS" if start == JKS_MAGIC else "PKCS12"
        raise ConfigError(
            f"{name} {path} is a {kind} file, PEM is needed. {how_to_convert(store, f'ssl.{store}.type')}",
            name,
        )
