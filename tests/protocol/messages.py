"""Every declared message and ways to fill one: at random from a seed, or as a hypothesis strategy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

import protocol.messages.every  # noqa: F401  # fills the registry
from protocol.messages import internal
from protocol.schema import Field, Schema, registry, schema_of

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
INTERNAL = (
    internal.OffsetCommitKey,
    internal.OffsetCommitValue,
    internal.GroupMetadataKey,
    internal.GroupMetadataValue,
)
TEXTS = ("", "a", "flights", "größe-√", "x" * 126, "y" * 127, "z" * 300)


def all_messages() -> list[type[Any]]:
    """Requests, responses and records of internal topics."""
    of_apis = (cls for spec in registry.values() for cls in (spec.request, spec.response))
    return [*of_apis, *INTERNAL]


def versions_of(cls: type[Any]) -> range:
    schema = schema_of(cls)
    return range(schema.versions.lowest, schema.versions.highest + 1)


def all_versions() -> Iterator[tuple[type[Any], int]]:
    return ((cls, version) for cls in all_messages() for version in versions_of(cls))


def filled(cls: type[Any], version: int, seed: int) -> Any:
    """A message with something in every field of the version; one seed always gives the same one."""
    return _filled(schema_of(cls), cls, version, random.Random(f"{cls.__name__} {version} {seed}"))


def _filled(schema: Schema, cls: type[Any], version: int, chance: random.Random) -> Any:
    fields = (field for field in schema.fields if field.versions.has(version))
    return cls(**{field.name: _value(field, version, chance) for field in fields})


def _value(field: Field, version: int, chance: random.Random) -> Any:
    if field.nullable.has(version) and chance.random() < 0.25:
        return None
    if field.tag is not None and chance.random() < 0.3:
        return [] if field.default == () else field.default
    if field.kind in INTEGER_BITS:
        bits = INTEGER_BITS[field.kind]
        return chance.randrange(-(1 << bits - 1), 1 << bits - 1)
    if field.kind == "uint16":
        return chance.randrange(1 << 16)
    if field.kind == "float64":
        return chance.random() * 1e9
    if field.kind == "bool":
        return chance.random() < 0.5
    if field.kind == "uuid":
        return UUID(int=chance.getrandbits(128))
    if field.kind == "string":
        return chance.choice(TEXTS)
    if field.kind in ("bytes", "records"):
        return chance.randbytes(chance.choice((0, 1, 126, 127, 128, 20_000)))
    if field.kind == "struct":
        assert field.struct is not None
        return _filled(schema_of(field.struct), field.struct, version, chance)
    assert field.element is not None
    return [_value(field.element, version, chance) for _ in range(chance.choice((0, 1, 2, 3)))]


def messages(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Any message of this version; fields of other versions have their defaults."""
    fields = (field for field in schema_of(cls).fields if field.versions.has(version))
    return st.builds(cls, **{field.name: _values(field, version) for field in fields})


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    strategy = _plain_values(field, version)
    may_be_none = field.nullable.has(version) or (field.kind == "struct" and field.tag is not None)
    return st.none() | strategy if may_be_none else strategy


def _plain_values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.kind in INTEGER_BITS:
        bits = INTEGER_BITS[field.kind]
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    if field.kind == "uint16":
        return st.integers(0, (1 << 16) - 1)
    if field.kind == "float64":
        return st.floats(allow_nan=False)
    if field.kind == "bool":
        return st.booleans()
    if field.kind == "uuid":
        return st.uuids()
    if field.kind == "string":
        return st.text(max_size=20) | st.sampled_from(TEXTS)
    if field.kind in ("bytes", "records"):
        return st.binary(max_size=200)
    if field.kind == "struct":
        assert field.struct is not None
        return messages(field.struct, version)
    assert field.element is not None
    return st.lists(_values(field.element, version), max_size=3)
