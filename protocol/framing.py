"""Frames and headers, sans-IO: a frame in, its header out; a message in, parts with their length and header
out.

Nothing on the wire tells a header's version: it follows from API and version (request header v2 and
response header v1 for flexible versions, but v0 for every ApiVersions response), so the declarations answer
that (G1, G5).
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from protocol.codegen import decode, encoder_of
from protocol.decoding import skip_tags
from protocol.errors import MalformedFrame
from protocol.schema import Buffer, Message, registry, schema_of

MAX_HEADER_TAGS = 100
_REQUEST = Struct(">hhih")
_RESPONSE = Struct(">ii")
_RESPONSE_WITH_TAGS = Struct(">iiB")
_REQUEST_FRAME = Struct(">ihhih")
_CORRELATION = Struct(">i")
_PLACEHOLDER = b""
_new_header = tuple.__new__  # what `RequestHeader(...)` does, without its Python


class RequestHeader(NamedTuple):
    """What stands before every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """Read the header of a request; return it and the position of the body.

    The header of an API that is not declared is read as version 1: enough to name it in a log line. Who
    reads requests therefore imports `protocol.messages.every`.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
        position = _REQUEST.size
        if length < 0:
            if length < -1:
                raise MalformedFrame(f"a client id of {length} bytes")
            client_id = None
        else:
            end = position + length
            try:
                client_id = frame[position:end].decode()
            except UnicodeDecodeError:  # Kafka takes it too; a "?" keeps it as short as it came
                replaced = frame[position:end].decode(errors="replace")
                client_id = replaced.replace("\N{REPLACEMENT CHARACTER}", "?")
            position = end
        spec = registry.get(api_key)
        if spec is not None and api_version >= spec.request.__schema__.flexible_header_from:
            tags = frame[position]
            position += 1
            if tags:
                position, _ = skip_tags(frame, position, tags, MAX_HEADER_TAGS)
    except (struct_error, IndexError):
        raise MalformedFrame("a request header ends too early") from None
    if position > len(frame):
        raise MalformedFrame("a request header ends too early")
    return _new_header(RequestHeader, (api_key, api_version, correlation_id, client_id)), position


def encode_request(message: Any, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """The parts of a whole request frame, length prefix and header first."""
    schema = schema_of(message)
    parts: list[Buffer] = [_PLACEHOLDER]
    encoder_of(message, version)(message, parts)
    client = b"" if client_id is None else client_id.encode()
    client_length = -1 if client_id is None else len(client)
    tail = b"\0" if version >= schema.flexible_header_from else b""
    length = sum(map(len, parts)) + _REQUEST.size + len(client) + len(tail)
    parts[0] = _REQUEST_FRAME.pack(length, schema.key, version, correlation_id, client_length) + client + tail
    return parts


def encode_response(message: Any, version: int, correlation_id: int) -> list[Buffer]:
    """The parts of a whole response frame, length prefix and header first."""
    parts: list[Buffer] = [_PLACEHOLDER]
    encoder_of(message, version)(message, parts)
    length = sum(map(len, parts))
    if version >= message.__schema__.flexible_header_from:
        parts[0] = _RESPONSE_WITH_TAGS.pack(length + 5, correlation_id, 0)
    else:
        parts[0] = _RESPONSE.pack(length + 4, correlation_id)
    return parts


def decode_response(cls: type[Message], version: int, frame: bytes) -> tuple[int, Message]:
    """Read a response frame: its correlation id and its message."""
    try:
        correlation_id: int = _CORRELATION.unpack_from(frame)[0]
        position = _CORRELATION.size
        if version >= schema_of(cls).flexible_header_from:
            position, _ = skip_tags(frame, position + 1, frame[position], MAX_HEADER_TAGS)
    except (struct_error, IndexError):
        raise MalformedFrame("a response header ends too early") from None
    return correlation_id, decode(cls, version, frame, position)
