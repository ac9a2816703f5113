"""Whether the columns that a user names can be made of an Avro schema; asked before there is a task.

Only what no value could say otherwise: a type that never fits would be a topic of malformed rows, and Arrow
cuts some values short without a word (decimals to whole numbers, times to days, a plain long taken for
microseconds where `from_avro` takes milliseconds). What depends on the value is for the row to show.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from spark_connector.avro_schema import LOGICAL, logical_type, with_full_names
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
        if _fate(fields[column.name], column.dataType, named) != Fate.FITTING:
            raise ConnectorError(
                f"column {column.name} cannot be {column.dataType.simpleString()}: in avroSchema it is "
                f"{json.dumps(fields[column.name])}; name it as what it is, and cast it in the query"
            )


class Fate(IntEnum):
    """What becomes of the values of an Avro type in a column, the worst first."""

    CHANGED = 0  # into other values, without a word
    REFUSED = 1  # by Arrow, row by row
    FITTING = 2


def _fate(schema: Any, wanted: DataType, named: dict[str, Any]) -> Fate:
    """What becomes of the values of `schema` as `wanted`: of what has parts, what becomes of the worst one.

    Of a union one branch that fits is enough, if values of the others are refused.
    """
    if isinstance(schema, list):
        fates = {_fate(branch, wanted, named) for branch in schema if branch != "null"}
        return Fate.CHANGED if Fate.CHANGED in fates else max(fates, default=Fate.REFUSED)
    if isinstance(schema, str):
        if schema in named:
            return _fate(named[schema], wanted, named)
        schema = {"type": schema}
    kind = schema["type"]
    if not isinstance(kind, str) or kind in named:
        return _fate(kind, wanted, named)
    if kind == "record" and isinstance(wanted, StructType):
        types = {field["name"]: field["type"] for field in schema["fields"]}
        # A field that the record has not is a type without a branch: no value of it is known.
        return min(
            (_fate(types.get(field.name, []), field.dataType, named) for field in wanted),
            default=Fate.FITTING,
        )
    if kind == "array" and isinstance(wanted, ArrayType):
        return _fate(schema["items"], wanted.elementType, named)
    if kind == "map" and isinstance(wanted, MapType):
        values = _fate(schema["values"], wanted.valueType, named)
        return values if wanted.keyType.typeName() == "string" else min(values, Fate.REFUSED)
    leaf = _leaf(schema)
    if wanted.typeName() in FITTING.get(leaf, set()):
        return Fate.FITTING
    return Fate.CHANGED if wanted.typeName() in MADE_BY_ARROW.get(leaf, set()) else Fate.REFUSED


def _leaf(schema: dict[str, Any]) -> str:
    """The kind by which FITTING knows a type without types within it."""
    return logical_type(schema) or str(schema["type"])
