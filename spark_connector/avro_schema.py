"""Avro schemas as Spark's types, and as the decoder should read them. Light: JSON in, text out."""

from __future__ import annotations

import json
from typing import Any

from spark_connector.errors import ConnectorError

_PLAIN = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}


def ddl_of_record(text: str) -> list[str]:
    """`name type` for each field of a record schema."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConnectorError("avroSchema must be the schema of a record")
    named: dict[str, Any] = {}
    _note_names(schema, named)
    return [f"`{field['name']}` {_ddl(field['type'], named)}" for field in schema["fields"]]


def readable(schema: Any) -> Any:
    """The schema without the logical types that Spark has none for: a uuid is read as its text."""
    if isinstance(schema, list):
        return [readable(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: readable(value) if name in ("type", "items", "values") else value
            for name, value in schema.items()
            if name != "logicalType" or value in _LOGICAL or value == "decimal"}  # fmt: skip
    if "fields" in kept:
        kept["fields"] = [{**field, "type": readable(field["type"])} for field in kept["fields"]]
    return kept


def _note_names(schema: Any, named: dict[str, Any]) -> None:
    """Types may be used again by their names."""
    if isinstance(schema, list):
        for branch in schema:
            _note_names(branch, named)
    elif isinstance(schema, dict):
        if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
            named[schema["name"]] = schema
            named[f"{schema.get('namespace', '')}.{schema['name']}"] = schema
        for part in ("type", "items", "values"):
            _note_names(schema.get(part), named)
        for field in schema.get("fields", ()):
            _note_names(field["type"], named)


def _ddl(schema: Any, named: dict[str, Any], depth: int = 0) -> str:
    if depth > 32:
        raise ConnectorError("avroSchema nests too deep, or a type contains itself")
    deeper = depth + 1
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise ConnectorError(f"avroSchema: a union of {len(branches)} types has no type in Spark")
        return _ddl(branches[0], named, deeper)
    if isinstance(schema, str):
        if schema in named:
            return _ddl(named[schema], named, deeper)
        schema = {"type": schema}
    kind = schema["type"]
    if schema.get("logicalType") == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if kind == "record":
        fields = (f"`{field['name']}`: {_ddl(field['type'], named, deeper)}" for field in schema["fields"])
        return f"struct<{', '.join(fields)}>"
    if kind == "array":
        return f"array<{_ddl(schema['items'], named, deeper)}>"
    if kind == "map":
        return f"map<string, {_ddl(schema['values'], named, deeper)}>"
    if not isinstance(kind, str) or kind in named:
        return _ddl(kind, named, deeper)
    if kind not in _PLAIN:
        raise ConnectorError(f"avroSchema: {kind} is no type that Spark has")
    return _PLAIN[kind]
