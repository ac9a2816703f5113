"""(message class, version, direction) -> Python source -> function, compiled on first use.

The generated functions are the only implementation of the wire format: `decoding.py` and `encoding.py`
write their source, this module compiles and keeps them. The source goes into `linecache`, so that
tracebacks and debuggers show it; `python -m protocol.codegen ProduceRequest 9 decode` prints it.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from typing import Any

from protocol.decoding import decoder_source
from protocol.encoding import encoder_source
from protocol.errors import NotText, UnsupportedVersion
from protocol.schema import Buffer, Message, Schema, registry, schema_of
from protocol.source import Source


def decode(
    cls: type[Message], version: int, data: bytes, position: int = 0, max_elements: int = sys.maxsize
) -> Message:
    """Read a message that reaches from `position` to the end of `data`; MalformedFrame when it does not, or
    when its arrays have more than `max_elements` elements together.

    What clients call things may be any bytes, in Kafka as here: a request's strings that are not UTF-8 have
    U+FFFD in place of what cannot be read. In other messages they are malformed.
    """
    schema: Schema = cls.__schema__  # type: ignore[attr-defined]
    decoder = schema.decoders.get(version) or _compile_decoder(cls, version)
    message: Message
    try:
        message = decoder(data, position, max_elements)
    except NotText:
        if schema.kind != "request":
            raise
        lenient = schema.lenient_decoders.get(version) or _compile_lenient(cls, version)
        message = lenient(data, position, max_elements)
    return message


def encode(message: Any, version: int) -> list[Buffer]:
    """The message as parts to be sent one after another; records are the caller's own bytes, not copies."""
    parts: list[Buffer] = []
    encoder_of(message, version)(message, parts)
    return parts


def encoder_of(message: Any, version: int) -> Callable[[Any, list[Buffer]], None]:
    encoders: dict[int, Callable[[Any, list[Buffer]], None]] = message.__schema__.encoders
    return encoders.get(version) or _compile_encoder(type(message), version)


def _compile_decoder(cls: type[Any], version: int) -> Callable[..., Any]:
    schema = _checked(cls, version)
    decoder = _compile(decoder_source(cls, version), f"<{schema.name} v{version} decode>", "decode")
    schema.decoders[version] = decoder
    return decoder


def _compile_lenient(cls: type[Any], version: int) -> Callable[..., Any]:
    schema = _checked(cls, version)
    source = decoder_source(cls, version, is_lenient=True)
    decoder = _compile(source, f"<{schema.name} v{version} decode, lenient>", "decode")
    schema.lenient_decoders[version] = decoder
    return decoder


def _compile_encoder(cls: type[Any], version: int) -> Callable[..., None]:
    schema = _checked(cls, version)
    encoder = _compile(encoder_source(cls, version), f"<{schema.name} v{version} encode>", "encode")
    schema.encoders[version] = encoder
    return encoder


def _checked(cls: type[Any], version: int) -> Schema:
    schema = schema_of(cls)
    if not schema.versions.has(version):
        raise UnsupportedVersion(f"{schema.name} has versions {schema.versions}, not {version}")
    return schema


def _compile(source: Source, file_name: str, name: str) -> Callable[..., Any]:
    text = source.text()
    linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
    exec(compile(text, file_name, "exec"), source.namespace)
    function: Callable[..., Any] = source.namespace[name]
    return function


def message_class(name: str) -> type[Any]:
    """The declared class of this name: a request, a response or a message of an internal topic."""
    from protocol.messages import every, internal  # noqa: F401  # every: fills the registry

    for spec in registry.values():
        for cls in (spec.request, spec.response):
            if schema_of(cls).name == name:
                return cls
    found: type[Any] | None = getattr(internal, name, None)
    if found is None:
        raise LookupError(f"no message is called {name}")
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or arguments[2] not in ("decode", "encode"):
        sys.stderr.write("usage: python -m protocol.codegen MESSAGE VERSION decode|encode\n")
        return 2
    name, version, direction = arguments
    try:
        cls = message_class(name)
        _checked(cls, int(version))
    except (LookupError, ValueError, UnsupportedVersion) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    make_source = decoder_source if direction == "decode" else encoder_source
    sys.stdout.write(make_source(cls, int(version)).text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
