"""Avro schemas as Spark's types, and as the decoder should read them. Light: JSON in, text out."""

from __future__ import annotations

import json
import math
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
LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp_ltz",
    "timestamp-micros": "timestamp_ltz",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
BASES = {"date": "int", **dict.fromkeys((name for name in LOGICAL if name != "date"), "long")}
"""the one type that each of LOGICAL belongs to"""
MILLIS = "kompakt-millis"
"""what `AvroParser` has read as microseconds: a name of our own, for its readers are those of all"""


def ddl_of_record(text: str) -> list[str]:
    """`name type` for each field of a record schema."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConnectorError("avroSchema must be the schema of a record")
    named: dict[str, Any] = {}
    schema = with_full_names(schema, "", named)
    return [f"`{field['name']}` {_ddl(field['type'], named)}" for field in schema["fields"]]


def logical_type(schema: dict[str, Any]) -> str | None:
    """The logical type of `schema` where Spark has one for it; None if it does not belong to such a type.

    An invalid one is passed over, as the specification of Avro asks, and `from_avro` does.
    """
    name, base = schema.get("logicalType"), schema["type"]
    if name == "decimal" and base in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if type(precision) is not int or type(scale) is not int:  # a bool is none
            return None
        return "decimal" if 0 <= scale <= precision and 0 < precision <= _most_digits(schema) else None
    return name if isinstance(name, str) and name in BASES and base == BASES[name] else None


def _most_digits(decimal: dict[str, Any]) -> float:
    """How many decimal digits every number of such bytes may have (`LogicalTypes.Decimal.maxPrecision`)."""
    if decimal["type"] == "bytes":
        return math.inf
    bits = 8 * decimal.get("size", 0) - 1  # of the largest number
    return math.floor(bits * math.log10(2)) if bits > 0 else 0


def readable(schema: Any) -> Any:
    """The schema without the logical types that Spark has none for: a uuid is read as its text.

    And without days and times: Python's end with the year 9999, so they are read as the numbers they are.
    """
    if isinstance(schema, list):
        return [readable(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    logical = logical_type(schema)
    kept = {name: readable(value) if name in ("type", "items", "values") else value
            for name, value in schema.items() if name != "logicalType" or logical == "decimal"}  # fmt: skip
    if logical in ("timestamp-millis", "local-timestamp-millis"):
        kept["logicalType"] = MILLIS
    if "fields" in kept:
        kept["fields"] = [{**field, "type": readable(field["type"])} for field in kept["fields"]]
    return kept


def with_full_names(schema: Any, namespace: str, named: dict[str, Any]) -> Any:
    """The schema with each named type, and each use of one, by its full name; fills `named` with them.

    A name without a dot is of the namespace given beside it, or else of the type it stands within.
    """
    if isinstance(schema, list):
        return [with_full_names(branch, namespace, named) for branch in schema]
    if isinstance(schema, str):
        full = f"{namespace}.{schema}"
        return full if full in named and schema not in _PLAIN else schema
    made = dict(schema)
    if schema["type"] in ("record", "enum", "fixed"):
        name = schema["name"]
        namespace = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
        made["name"] = name if "." in name or not namespace else f"{namespace}.{name}"
        named[made["name"]] = made  # before its fields, which may be of this type
    for part in ("type", "items", "values"):
        if part in schema:
            made[part] = with_full_names(schema[part], namespace, named)
    if "fields" in schema:
        made["fields"] = [
            {**field, "type": with_full_names(field["type"], namespace, named)} for field in schema["fields"]
        ]
    return made


def _ddl_of_union(branches: list[Any], named: dict[str, Any], depth: int) -> str:
    """Spark's own rules: null says only that a value may be missing, and numbers become the wider one.

    But for its structs of a `member0`, `member1`, ... for each type, which are refused.
    """
    left = [branch for branch in branches if branch != "null"]
    if len(left) == 1:
        return _ddl(left[0], named, depth)
    for narrow, wide in (("int", "long"), ("float", "double")):
        if len(left) == 2 and all(branch in (narrow, wide) for branch in left):
            return _PLAIN[wide]
    raise ConnectorError(
        f"avroSchema: a union of {len(left)} types is no column here (from_avro makes a struct of it): "
        f"name the columns without the field (.schema(...)), or read the value as it is, without avroSchema"
    )


def _ddl(schema: Any, named: dict[str, Any], depth: int = 0) -> str:
    if depth > 32:
        raise ConnectorError("avroSchema nests too deep, or a type contains itself")
    deeper = depth + 1
    if isinstance(schema, list):
        return _ddl_of_union(schema, named, deeper)
    if isinstance(schema, str):
        if schema in named:
            return _ddl(named[schema], named, deeper)
        schema = {"type": schema}
    kind = schema["type"]
    logical = logical_type(schema)
    if logical == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if logical is not None:
        return LOGICAL[logical]
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
