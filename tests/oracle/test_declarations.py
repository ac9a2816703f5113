"""Goal: our declarations say what Apache Kafka's own message definitions say.

Method: kafka-python ships Kafka's JSON files as data, and so do Kafka's jars, which not every machine has.
Both sides are flattened into rows of (path, type, versions, nullable versions, tag, default) in wire order,
cut to the versions we declare, and compared.
"""

from __future__ import annotations

import json
import re
import zipfile
from importlib import resources
from typing import Any

import pytest

import protocol.messages.every  # noqa: F401  # fills the registry
from protocol.errors import ErrorCode
from protocol.messages.consumer_groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from protocol.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from protocol.messages.streams_groups import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from protocol.messages.transactions import AddPartitionsToTxnTopic, AddPartitionsToTxnTopicResult
from protocol.schema import NO_VERSIONS, Field, Versions, registry, schema_of
from tests.kafka.fixtures import or_skip
from tests.kafka.jars import libraries
from tests.protocol.messages import INTEGER_BITS

Row = tuple[str, str, Versions, Versions, int | None, object]
NOT_SHIPPED = frozenset((38, 39, 40, 41, 64, 68, 69, 76, 77, 78, 79, 88, 89, 90, 91, 92))
"""what kafka-python has no definitions of; Kafka's own jar has"""
APIS = [
    cls for spec in registry.values() if spec.key not in NOT_SHIPPED for cls in (spec.request, spec.response)
]
SHARED = [
    AcknowledgementBatch,
    LeaderIdAndEpoch,
    NodeEndpoint,
    Endpoint,
    KeyValue,
    TaskIds,
    TaskOffset,
    TopicInfo,
    CopartitionGroup,
    Subtopology,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
]
"""structs that two places declare alike"""
WITHIN = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]
OLDER_NAMES = {
    0: "NO_ERROR",
    6: "NOT_LEADER_FOR_PARTITION",
    10: "MESSAGE_SIZE_TOO_LARGE",
    17: "INVALID_TOPIC",
    39: "INVALID_REPLICATION_ASSIGNMENT",
    -1: "UNKNOWN",
}


def upstream(name: str) -> dict[str, Any]:
    return parsed(resources.files("kafka.protocol.schemas").joinpath(f"resources/{name}.json").read_text())


def of_the_jar(name: str) -> dict[str, Any]:
    (jar,) = or_skip(libraries).glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as files:
        return parsed(files.read(f"common/message/{name}.json").decode())


def parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    common = {struct["name"]: struct["fields"] for struct in found.get("commonStructs", ())}
    return {**found, "fields": with_common(found["fields"], common)}


def with_common(fields: list[dict[str, Any]], common: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields, with those of structs that several of them share where they are used."""
    return [
        {**field, "fields": with_common(own, common)}
        if (own := field.get("fields") or common.get(field["type"].removeprefix("[]")))
        else field
        for field in fields
    ]


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def cut(versions: Versions, to: Versions) -> Versions:
    both = Versions(max(versions.lowest, to.lowest), min(versions.highest, to.highest))
    return both if both.lowest <= both.highest else NO_VERSIONS


def upstream_rows(fields: list[dict[str, Any]], path: str, served: Versions) -> list[Row]:
    rows = []
    for field in fields:
        versions = cut(Versions.parse(field["versions"]), served)
        if versions == NO_VERSIONS:
            continue
        kind = field["type"]
        nullable = cut(Versions.parse(field.get("nullableVersions", "none")), served)
        if "tag" in field:
            assert field["taggedVersions"] == field["versions"]
        name = f"{path}.{snake_case(field['name'])}"
        rows.append(
            (name, kind, versions, nullable, field.get("tag"), upstream_default(kind, field.get("default")))
        )
        rows += upstream_rows(field.get("fields", []), f"{path}.{kind.removeprefix('[]')}", served)
    return rows


def upstream_default(kind: str, default: object) -> object:
    if kind[0].isupper() or kind == "records" or default == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "bool":
        return default in ("true", True)
    if kind in INTEGER_BITS or kind == "uint16":
        return int(str(default or 0), 0)
    if kind == "float64":
        return float(str(default or 0))
    return {"uuid": "00000000-0000-0000-0000-000000000000", "bytes": b""}.get(kind, default or "")


def our_rows(cls: type[Any], path: str, served: Versions) -> list[Row]:
    rows: list[Row] = []
    for field in schema_of(cls).fields:
        versions, nullable = cut(field.versions, served), cut(field.nullable, served)
        default = [] if field.default == () else str(field.default) if field.kind == "uuid" else field.default
        rows.append((f"{path}.{field.name}", our_type(field), versions, nullable, field.tag, default))
        struct = field.struct or (field.element and field.element.struct)
        if struct is not None:
            nested = f"{cls.__qualname__}.{struct.__name__}"
            assert struct.__qualname__ == nested or struct in SHARED, "a struct nests where it is used"
            rows += our_rows(struct, f"{path}.{struct.__name__}", served)
    return rows


def our_type(field: Field) -> str:
    if field.kind == "array":
        assert field.element is not None
        return f"[]{our_type(field.element)}"
    return field.struct.__name__ if field.struct is not None else field.kind


@pytest.mark.parametrize("key", NOT_SHIPPED)
def test_what_is_left_out_has_no_definition_to_compare_with(key: int) -> None:
    for cls in (registry[key].request, registry[key].response):
        with pytest.raises(FileNotFoundError):
            upstream(cls.__name__)


@pytest.mark.parametrize("cls", [*APIS, *WITHIN], ids=lambda cls: cls.__name__)
def test_declaration_equals_kafkas(cls: type[Any]) -> None:
    equals(cls, upstream(cls.__name__))


@pytest.mark.java
@pytest.mark.parametrize("key", NOT_SHIPPED)
def test_declaration_equals_that_of_the_jar(key: int) -> None:
    for cls in (registry[key].request, registry[key].response):
        equals(cls, of_the_jar(cls.__name__))


def equals(cls: type[Any], definition: dict[str, Any]) -> None:
    schema = schema_of(cls)
    assert (schema.name, schema.kind, schema.key) == (
        definition["name"],
        definition["type"],
        definition.get("apiKey", -1),
    )
    assert cut(Versions.parse(definition["validVersions"]), schema.versions) == schema.versions
    assert schema.flexible == Versions.parse(definition["flexibleVersions"])
    assert our_rows(cls, "", schema.versions) == upstream_rows(definition["fields"], "", schema.versions)


def test_the_comparison_finds_differences() -> None:
    """A name, a type, a version, a tag: each change of a definition shows."""
    cls = registry[1].response
    definition, served = upstream("FetchResponse"), schema_of(registry[1].response).versions
    for key, value in (("name", "X"), ("type", "int64"), ("versions", "5+"), ("nullableVersions", "7+")):
        changed = [{**definition["fields"][0], key: value}, *definition["fields"][1:]]
        assert our_rows(cls, "", served) != upstream_rows(changed, "", served)
    assert our_rows(cls, "", served) != upstream_rows(definition["fields"][1:], "", served)


def test_error_codes_are_kafkas() -> None:
    errors = pytest.importorskip("kafka.errors")
    known = [
        error
        for error in vars(errors).values()
        if isinstance(error, type)
        and issubclass(error, errors.BrokerResponseError)
        and isinstance(error.errno, int)
    ]
    assert len(known) > 100
    for error in known:
        expected = {error.message, OLDER_NAMES.get(error.errno)}
        assert ErrorCode(error.errno).name == error.message or error.message in expected
    assert [code.value for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))
