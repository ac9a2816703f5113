"""One blocking connection to one broker: TLS and SASL where wanted, negotiated versions, requests in order.

Fetches name topics (up to version 12), so that Apache Kafka from 0.11 on answers as kompakt does. What only
writers and pipelines need may be missing until one asks for it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from protocol.errors import ErrorCode, MalformedFrame
from protocol.framing import decode_response, encode_request
from protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from spark_connector.authentication import authenticate, refused_by_tls, tls_context, wrap
from spark_connector.errors import ConnectorError
from spark_connector.options import ClientSettings

T = TypeVar("T")
Versions = Mapping[int, tuple[int, int]]

FETCH, LIST_OFFSETS, METADATA = 1, 2, 3
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
PRODUCE, OFFSET_COMMIT, FIND_COORDINATOR, INIT_PRODUCER_ID, DESCRIBE_CONFIGS = 0, 8, 10, 22, 32
# The lowest and highest version spoken of each API: fetches by topic name, isolation levels everywhere.
READING = {FETCH: (4, 12), LIST_OFFSETS: (2, 7), METADATA: (4, 10)}
SPOKEN = {
    **READING,
    PRODUCE: (3, 9),
    OFFSET_COMMIT: (2, 8),
    FIND_COORDINATOR: (0, 3),
    SASL_HANDSHAKE: (1, 1),
    INIT_PRODUCER_ID: (0, 4),
    DESCRIBE_CONFIGS: (1, 4),
    SASL_AUTHENTICATE: (0, 2),
}
MAX_FRAME_BYTES = 1 << 30
MAX_DOUBLINGS = 16  # of the time for a connection to be made
# The part of a SASL session's lifetime after which its connection is not used for another task.
SESSION_SHARE = 0.85


class Unavailable(Exception):
    """Worth another try: a broken connection, a leader on the move, a broker that starts."""


class Connection:
    """One blocking socket to one broker. Owned by: whoever took it out of the cache."""

    def __init__(self, host: str, port: int, settings: ClientSettings, failures: int = 0) -> None:
        """`failures` are those of this address since it was last reached: with each it gets more time."""
        self.address = (host, port)
        self._settings = settings
        self._correlation_id = 0
        self._awaited: list[tuple[int, type[Any], int]] = []
        self._answers = 0
        self._session_end = float("inf")
        self._socket = self._open(failures)
        try:
            self._served = self._served_versions()
            if settings.security.mechanism:
                self._authenticate()
            for api_key in READING:
                self.version_of(api_key)
        except BaseException:
            self.close()
            raise

    def _open(self, failures: int) -> socket.socket:
        settings, security = self._settings, self._settings.security
        context = tls_context(security) if security.uses_tls else None
        setup_ms = settings.setup_timeout_ms * 2 ** min(failures, MAX_DOUBLINGS)
        timeout_ms = min(setup_ms, settings.setup_timeout_max_ms, settings.request_timeout_ms)
        try:
            made = socket.create_connection(self.address, timeout_ms / 1000)
        except OSError as problem:
            raise Unavailable(f"no connection to {self._name()}: {problem}") from problem
        made.settimeout(settings.request_timeout_ms / 1000)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._settings.receive_buffer_bytes > 0:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.receive_buffer_bytes)
        if context is None:
            return made
        try:
            return wrap(made, context, self.address)
        except OSError as problem:
            made.close()
            raise Unavailable(
                f"{self._name()} ended the TLS handshake: {problem}; is it a TLS listener?"
            ) from problem
        except BaseException:
            made.close()
            raise

    def _name(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def _served_versions(self) -> Versions:
        answer = self._exchange(ApiVersionsRequest(), 0, ApiVersionsResponse)
        if answer.error_code:
            raise ConnectorError(f"{self._name()} refuses ApiVersions: {ErrorCode(answer.error_code).name}")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def version_of(self, api_key: int) -> int:
        """The version to speak of an API; ConnectorError when there is none that both sides know."""
        lowest, highest = SPOKEN[api_key]
        broker_lowest, broker_highest = self._served.get(api_key, (0, -1))
        version = min(highest, broker_highest)
        if version < max(lowest, broker_lowest):
            raise ConnectorError(
                f"{self._name()} serves versions {broker_lowest} to {broker_highest} of API {api_key}, "
                f"versions {lowest} to {highest} are needed"
            )
        return version

    def _authenticate(self) -> None:
        if SASL_HANDSHAKE not in self._served:
            raise ConnectorError(
                f"{self._name()} has no SASL, but kafka.security.protocol={self._settings.security.protocol}"
            )
        keys = {SaslHandshakeResponse: SASL_HANDSHAKE, SaslAuthenticateResponse: SASL_AUTHENTICATE}
        lifetime_ms = authenticate(
            self._settings.security,
            lambda request, response: self.call(request, keys[response], response),
            self._name(),
        )
        if lifetime_ms > 0:
            self._session_end = time.monotonic() + lifetime_ms / 1000 * SESSION_SHARE

    @property
    def is_usable(self) -> bool:
        """Its SASL session lives long enough for another task; the broker closes those that do not."""
        return time.monotonic() < self._session_end

    @property
    def is_idle(self) -> bool:
        """No answer is awaited, so the next one read belongs to the next request."""
        return not self._awaited

    def send(self, request: Any, api_key: int, response: type[Any]) -> None:
        """Send without waiting; answers come in the order of the requests."""
        self._send(request, self.version_of(api_key), response)

    def send_unanswered(self, request: Any, api_key: int) -> None:
        """Send what the broker never answers: a produce request with acks=0.

        Into a connection that the broker has closed the first one would go without any error, and be lost.
        """
        if self._is_closed():
            raise Unavailable(f"{self._name()} closed the connection")
        self._send(request, self.version_of(api_key), type(None))
        del self._awaited[-1]

    def _send(self, request: Any, version: int, response: type[Any]) -> None:
        self._correlation_id += 1
        parts = encode_request(request, version, self._correlation_id, self._settings.client_id)
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as problem:
            raise self._broken(problem, "closed the connection") from problem
        self._awaited.append((self._correlation_id, response, version))

    def _is_closed(self) -> bool:
        """Whether that can be seen already; for one that owes no answer, so that any byte is a wrong one.

        It is read from and not only looked at: TLS has messages of its own, of which nothing is handed on.
        """
        timeout_s = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        finally:
            self._socket.settimeout(timeout_s)
        return True

    def receive(self) -> Any:
        """The answer to the oldest request without one."""
        correlation_id, response, version = self._awaited[0]
        try:
            (size,) = struct.unpack(">i", self._read(4))
            if not 4 <= size <= MAX_FRAME_BYTES:
                raise ConnectorError(
                    f"{self._name()} sent a frame of {size} bytes; is it a Kafka listener "
                    f"{'with' if self._settings.security.uses_tls else 'without'} TLS "
                    f"(kafka.security.protocol={self._settings.security.protocol})?"
                )
            answered, message = decode_response(response, version, cast(bytes, self._read(size)))
        except OSError as problem:
            raise self._broken(problem, "did not answer") from problem
        except MalformedFrame as problem:
            raise Unavailable(f"{self._name()} sent a broken {response.__name__}: {problem}") from problem
        if answered != correlation_id:
            raise Unavailable(f"{self._name()} answered request {answered} in place of {correlation_id}")
        del self._awaited[0]
        self._answers += 1
        return message

    def _broken(self, problem: OSError, what: str) -> Exception:
        """A connection that breaks is worth another try; an alert of TLS is not."""
        if isinstance(problem, ssl.SSLError) and not isinstance(
            problem, ssl.SSLEOFError | ssl.SSLZeroReturnError
        ):
            return refused_by_tls(problem, self.address)
        protocol = self._settings.security.protocol
        hint = f"; does the listener speak {protocol} (kafka.security.protocol)?" if self._answers < 2 else ""
        return Unavailable(f"{self._name()} {what}: {problem}{hint}")

    def _read(self, size: int) -> bytearray:
        """A new buffer for each answer: the records of a fetch are used where they lie."""
        buffer = bytearray(size)
        view = memoryview(buffer)
        position = 0
        while position < size:
            got = self._socket.recv_into(view[position:])
            if got == 0:
                raise ConnectionResetError("the connection was closed")
            position += got
        return buffer

    def call(self, request: Any, api_key: int, response: type[T]) -> T:
        """Send and wait for the answer."""
        return self._exchange(request, self.version_of(api_key), response)

    def _exchange(self, request: Any, version: int, response: type[T]) -> T:
        self._send(request, version, response)
        message: T = self.receive()
        return message

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
