"""Whether the columns that a user names can be made of an Avro schema; asked before there is a task.

Only what no value could say otherwise: a type that never fits would be a topic of malformed rows, and Arrow
cuts some values short without a word (decimals to whole numbers, times to days, a plain long taken for
microseconds where `from_avro` takes milliseconds). What depends on the value is for the row to show.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from spark_connector.avro_schema import LOGICAL, with_full_names
from spark_connector.errors import ConnectorError

NUMBERS = {"byte", "short", "integer", "long", "float", "double", "decimal"}
TEXTS = {"string", "char", "varchar", "binary"}
TIMES = {"timestamp", "timestamp_ntz"}
FITTING: dict[str, set[str]] = {
    "boolean": {"boolean"},
    "int": NUMBERS | {"date"},
    "long": NUMBERS,
    "float": {"float", "double"},
    "double": {"float", "double"},
    "string": TEXTS,
    "enum": TEXTS,
    "bytes": TEXTS,
    "fixed": TEXTS,
    "decimal": {"decimal"},
    "date": {"date"},
    **{name: TIMES for name in LOGICAL if name != "date"},
}
"""the kinds of Avro, logical ones among them, and the Spark types (`DataType.typeName()`) that hold them"""
COUNTED = NUMBERS | TIMES | {"date"}
MADE_BY_ARROW: dict[str, set[str]] = {
    "boolean": {"float", "double"},
    **dict.fromkeys(("int", "long", "float", "double", *LOGICAL), COUNTED),
    "decimal": COUNTED - {"float", "double"},
    **dict.fromkeys(("string", "enum", "bytes", "fixed"), TEXTS | {"array"}),
    "map": {"struct"},
}
"""the same, and what Arrow makes of a value without a word: cut (2 out of 2.5), or another time"""


def check_avro_fields(columns: StructType, text: str) -> None:
    """ConnectorError for a column that the record schema `text` has not, or never as such a type."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConnectorError("avroSchema must be the schema of a record")
    named: dict[str, Any] = {}
    fields = {field["name"]: field["type"] for field in with_full_names(schema, "", named)["fields"]}
    missing = [column.name for column in columns if column.name not in fields]
    if missing:
        raise ConnectorError(f"avroSchema has no field {', '.join(missing)}")
    for column in columns:
        if not _fits(fields[column.name], column.dataType, named):
            raise ConnectorError(
                f"column {column.name} cannot be {column.dataType.simpleString()}: in avroSchema it is "
                f"{json.dumps(fields[column.name])}; name it as what it is, and cast it in the query"
            )


def _fits(schema: Any, wanted: DataType, named: dict[str, Any]) -> bool:
    """Whether some value of `schema` is one of `wanted`, and none becomes another one on the way.

    Of a union one branch that fits is enough, if values of the others are refused by Arrow, row by row.
    """
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        fitting = [_fits(branch, wanted, named) for branch in branches]
        others = (branch for branch, fits in zip(branches, fitting, strict=True) if not fits)
        return any(fitting) and not any(_is_changed(branch, wanted, named) for branch in others)
    if isinstance(schema, str):
        if schema in named:
            return _fits(named[schema], wanted, named)
        schema = {"type": schema}
    kind = schema["type"]
    if not isinstance(kind, str) or kind in named:
        return _fits(kind, wanted, named)
    if kind == "record":
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        return isinstance(wanted, StructType) and all(
            field.name in fields and _fits(fields[field.name], field.dataType, named) for field in wanted
        )
    if kind == "array":
        return isinstance(wanted, ArrayType) and _fits(schema["items"], wanted.elementType, named)
    if kind == "map":
        return (
            isinstance(wanted, MapType)
            and wanted.keyType.typeName() == "string"
            and _fits(schema["values"], wanted.valueType, named)
        )
    return wanted.typeName() in FITTING.get(_leaf(schema), set())


def _is_changed(schema: Any, wanted: DataType, named: dict[str, Any]) -> bool:
    """Whether Arrow makes another value of one that does not fit, where it should refuse it."""
    if isinstance(schema, list):
        return any(_is_changed(branch, wanted, named) for branch in schema)
    if isinstance(schema, str):
        if schema in named:
            return _is_changed(named[schema], wanted, named)
        schema = {"type": schema}
    kind = schema["type"]
    if not isinstance(kind, str) or kind in named:
        return _is_changed(kind, wanted, named)
    if kind == "record":
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        return isinstance(wanted, StructType) and any(
            field.name in fields and _is_changed(fields[field.name], field.dataType, named)
            for field in wanted
        )
    if kind == "array" and isinstance(wanted, ArrayType):
        return _is_changed(schema["items"], wanted.elementType, named)
    if kind == "map" and isinstance(wanted, MapType):
        return _is_changed(schema["values"], wanted.valueType, named)
    leaf = _leaf(schema)
    return wanted.typeName() in MADE_BY_ARROW.get(leaf, set()) - FITTING.get(leaf, set())


def _leaf(schema: dict[str, Any]) -> str:
    """The kind by which FITTING knows a type without types within it."""
    logical = schema.get("logicalType")
    return str(logical if logical in FITTING else schema["type"])
