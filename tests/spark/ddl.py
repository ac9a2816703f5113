"""A schema's text as types without a JVM: Spark's own parser needs a running session."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

PLAIN: dict[str, DataType] = {
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "double": DoubleType(),
    "float": FloatType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "string": StringType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}


def schema_of(ddl: str) -> StructType:
    """`name type [not null], ...`, as far as the tests go."""
    fields = []
    for part in _split(ddl):
        name, _, kind = part.replace("`", "").replace(":", " ", 1).partition(" ")
        plain = kind.removesuffix(" not null")
        fields.append(StructField(name, _type(plain.strip()), nullable=plain == kind))
    return StructType(fields)


def _type(text: str) -> DataType:
    if text in PLAIN:
        return PLAIN[text]
    if text.startswith("decimal("):
        precision, scale = text[8:-1].split(",")
        return DecimalType(int(precision), int(scale))
    outer, inner = text[:-1].split("<", 1)
    if outer == "array":
        return ArrayType(_type(inner))
    if outer == "map":
        key, value = _split(inner)
        return MapType(_type(key), _type(value))
    assert outer == "struct", text
    return schema_of(inner)


def _split(text: str) -> list[str]:
    """At commas outside of all brackets."""
    parts = [""]
    depth = 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
