"""A new socket becomes one that the broker trusts: TLS, then SASL PLAIN or SCRAM (RFC 5802, RFC 7677).

What is refused here is refused for good: an `AuthenticationError` says so and nothing is tried again, as
another try with the same password only fills the broker's log, or locks the user out. A connection that
breaks in the middle is another matter, and worth another try.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol import scram
from protocol.errors import ErrorCode
from protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from protocol.pem import how_to_convert
from spark_connector.errors import AuthenticationError, ConnectorError
from spark_connector.security import Identity, Security, Trust

MOST_ITERATIONS = 1_000_000
JKS_MAGIC = b"\xfe\xed\xfe\xed"
DER_SEQUENCE = b"\x30"

Ask = Callable[[Any, type[Any]], Any]
"""sends a request and returns the response of the given class"""

# --- TLS


def tls_context(security: Security) -> ssl.SSLContext:
    """What a client needs to speak TLS; ConnectorError for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _tls_version(security.tls_versions[0])
    context.maximum_version = _tls_version(security.tls_versions[-1])
    context.check_hostname = security.checks_host_name
    _load_trust(context, security.trust)
    if security.identity is not None:
        _load_identity(context, security.identity)
    return context


def _tls_version(name: str) -> ssl.TLSVersion:
    return {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}[name]


def _load_trust(context: ssl.SSLContext, trust: Trust) -> None:
    if trust.certificates:
        try:
            context.load_verify_locations(cadata=trust.certificates)
        except (ssl.SSLError, ValueError) as problem:
            raise ConnectorError(
                f"kafka.ssl.truststore.certificates has no certificate that can be read: {problem}"
            ) from None
    elif trust.path:
        _require_pem_file(trust.path, "truststore")
        try:
            context.load_verify_locations(cafile=trust.path)
        except (ssl.SSLError, OSError) as problem:
            raise ConnectorError(f"kafka.ssl.truststore.location {trust.path}: {problem}") from None
    else:
        context.load_default_certs()


def _load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    password = identity.key_password
    if identity.path:
        _require_pem_file(identity.path, "keystore")
        what, path = f"kafka.ssl.keystore.location {identity.path}", identity.path
    else:
        # Python loads keys from files only: one for the owner alone, and gone at once.
        what = "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain"
        handle, path = tempfile.mkstemp(prefix="kompakt-", suffix=".pem")
        with os.fdopen(handle, "w") as file:
            file.write(f"{identity.key}\n{identity.chain}\n")
    try:
        # A password that is always given keeps OpenSSL from asking for one at the terminal.
        context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, OSError, ValueError) as problem:
        raise ConnectorError(
            f"{what} cannot be used: {problem}. PEM with the key and its certificates is needed, and "
            f"kafka.ssl.key.password if the key is encrypted"
        ) from None
    finally:
        if not identity.path:
            Path(path).unlink()


def _require_pem_file(path: str, store: str) -> None:
    try:
        with Path(path).open("rb") as file:
            start = file.read(4)
    except OSError as problem:
        raise ConnectorError(
            f"kafka.ssl.{store}.location {path}: {problem.strerror}. It must be there on the driver and on "
            f"each executor"
        ) from None
    if start == JKS_MAGIC or start[:1] == DER_SEQUENCE:
        kind = "JKS" if start == JKS_MAGIC else "PKCS12"
        how = how_to_convert(store, f"kafka.ssl.{store}.type")
        raise ConnectorError(f"kafka.ssl.{store}.location {path} is a {kind} file. {how}")


def wrap(plain: socket.socket, context: ssl.SSLContext, address: tuple[str, int]) -> ssl.SSLSocket:
    """The TLS handshake; AuthenticationError when one side does not trust the other."""
    name = f"{address[0]}:{address[1]}"
    try:
        return context.wrap_socket(plain, server_hostname=address[0])
    except ssl.SSLCertVerificationError as problem:
        raise AuthenticationError(
            f"{name}: the broker's certificate is not trusted: {problem.verify_message}. See "
            f"kafka.ssl.truststore.location and kafka.ssl.endpoint.identification.algorithm"
        ) from None
    except ssl.SSLEOFError:
        raise
    except ssl.SSLError as problem:
        raise refused_by_tls(problem, address) from None


def refused_by_tls(problem: ssl.SSLError, address: tuple[str, int]) -> AuthenticationError:
    """A TLS alert, or bytes that are not TLS, in words."""
    reason = problem.reason or str(problem)
    return AuthenticationError(
        f"{address[0]}:{address[1]}: TLS failed: {reason}. Is it a TLS listener, and does it ask for a "
        f"certificate of yours (kafka.ssl.keystore.location)?"
    )


# --- SASL


def authenticate(security: Security, ask: Ask, name: str) -> int:
    """Say who we are to the broker `name`; the lifetime of the session in ms, 0 for no limit."""
    _choose_mechanism(security.mechanism, ask, name)
    try:
        if security.mechanism == "PLAIN":
            token = f"\0{security.username}\0{security.password}".encode()
            return _answer(ask, token).session_lifetime_ms
        conversation = Scram(security.mechanism, security.username, security.password)
        last = _answer(ask, conversation.final(_answer(ask, conversation.first()).auth_bytes))
        conversation.verify(last.auth_bytes)
        return last.session_lifetime_ms
    except Refused as problem:
        raise AuthenticationError(
            f"{name} refuses user {security.username} ({security.mechanism}): {problem}. "
            f"See kafka.sasl.jaas.config and kafka.sasl.mechanism"
        ) from None


def _choose_mechanism(mechanism: str, ask: Ask, name: str) -> None:
    answer = ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationError(
            f"{name} does not offer kafka.sasl.mechanism={mechanism}; it offers {offered}"
        )
    if answer.error_code:
        raise AuthenticationError(
            f"{name} refuses SASL: {ErrorCode(answer.error_code).name}. Is it a SASL listener "
            f"(kafka.security.protocol)?"
        )


def _answer(ask: Ask, token: bytes) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse = ask(
        SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse
    )
    if answer.error_code:
        raise Refused(answer.error_message or ErrorCode(answer.error_code).name)
    return answer


class Refused(Exception):
    """The broker says no, or proves not to know the password itself."""


class Scram:
    """The client's side of one conversation: both prove that they know the password, neither sends it."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str | None = None) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(24)
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof, for the broker's nonce, salt and number of iterations."""
        fields = scram.fields_of(server_first)
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        except (KeyError, ValueError):
            raise Refused("its first SCRAM message is malformed") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise Refused("its SCRAM nonce does not continue ours")
        least = scram.LEAST_ITERATIONS
        if not least <= iterations <= MOST_ITERATIONS:
            raise Refused(f"it asks for {iterations} SCRAM iterations, not {least} to {MOST_ITERATIONS}")
        mechanism = self._mechanism
        salted = scram.salt_password(mechanism, self._password, salt, iterations)
        key, kept = scram.client_key(mechanism, salted), scram.credential(mechanism, salted, salt, iterations)
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        proof = scram.combined(key, scram.keyed(mechanism, kept.stored_key, message))
        self._server_signature = scram.keyed(mechanism, kept.server_key, message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """The broker's own proof."""
        fields = scram.fields_of(server_final)
        if "e" in fields:
            raise Refused(fields["e"])
        signature = b""
        with contextlib.suppress(ValueError):
            signature = base64.b64decode(fields.get("v", ""))
        if not hmac.compare_digest(signature, self._server_signature):
            raise Refused("it does not know the password: its SCRAM signature is wrong")
