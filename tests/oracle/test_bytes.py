"""Goal: another implementation of the protocol reads our bytes as we meant them and writes the same ones.

Method: every message of every version is filled from seeds, written by us, read by kafka-python (its classes
are made from Kafka's own JSON), compared field by field, written again by it and compared byte by byte.
"""

from __future__ import annotations

from typing import Any

import pytest

import protocol.messages.every  # noqa: F401  # fills the registry
from protocol.codegen import decode, encode
from protocol.schema import ZERO_UUID, Field, schema_of
from tests.oracle.test_declarations import APIS
from tests.protocol.messages import filled, versions_of

schemas = pytest.importorskip("kafka.protocol.schemas")
containers = pytest.importorskip("kafka.protocol.data_container")

SEEDS = 4


class TheirCodec:
    """kafka-python's codec for one message, from the JSON alone: its own classes rename some fields."""

    def __init__(self, name: str) -> None:
        self.struct = schemas.StructField(schemas.load_json(name))
        self.struct._versions = (0, self.struct._versions[1])
        self.container = type(name, (containers.DataContainer,), {"_struct": self.struct})
        self.struct.set_data_class(self.container)

    def decode(self, wire: bytes, version: int, is_flexible: bool) -> Any:
        read = self.struct.compiled_decode_from(
            version, compact=is_flexible, tagged=is_flexible, data_class=self.container
        )
        message, position = read(memoryview(wire), 0)
        assert position == len(wire)
        return message

    def encode(self, message: Any, version: int, is_flexible: bool) -> bytes:
        return bytes(self.struct.encode(message, version=version, compact=is_flexible, tagged=is_flexible))


def compare(ours: Any, theirs: Any, version: int) -> None:
    for field in schema_of(type(ours)).fields:
        if field.versions.has(version):
            _compare_value(field, getattr(ours, field.name), getattr(theirs, field.name), version)


def _compare_value(field: Field, ours: Any, theirs: Any, version: int) -> None:
    if field.kind == "array" and ours:
        assert field.element is not None
        assert len(ours) == len(theirs), field.name
        for our_item, their_item in zip(ours, theirs, strict=True):
            _compare_value(field.element, our_item, their_item, version)
    elif field.kind == "struct" and ours is not None:
        compare(ours, theirs, version)
    elif ours in (None, ZERO_UUID):
        assert theirs in (None, ZERO_UUID) or field.kind == "struct", field.name
    else:
        assert ours == theirs, field.name


@pytest.mark.parametrize("cls", APIS, ids=lambda cls: cls.__name__)
def test_kafka_python_reads_and_writes_the_same(cls: type[Any]) -> None:
    theirs = TheirCodec(cls.__name__)
    for version in versions_of(cls):
        is_flexible = schema_of(cls).flexible.has(version)
        for seed in range(SEEDS):
            message = filled(cls, version, seed)
            wire = b"".join(encode(message, version))
            read = theirs.decode(wire, version, is_flexible)
            compare(message, read, version)
            again = theirs.encode(read, version, is_flexible)
            assert decode(cls, version, again) == message
            assert again == wire, f"v{version} seed {seed}"
