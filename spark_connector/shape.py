"""Which columns a read gives: those of the records, and those made out of their values.

Light, as `source.py` is: no Arrow here. A column of the user's schema is a column of the record when it has
the name and the type of one; with `valueFormat=json` or `avro` any other name is a field of the value. Where
the user gave no schema, the columns are the fields of `avroSchema`, whatever they are called.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_connector.errors import ConnectorError
from spark_connector.formats import AS_THEY_ARE, Formats
from spark_connector.options import COLUMN_TYPES, Options

logger = logging.getLogger("kompakt.spark")

MALFORMED = "_corrupt_record"
SCHEMA_ID = "_schema_id"
MADE_TYPES = {MALFORMED: ("string", "binary"), SCHEMA_ID: ("int",)}

JSON_TYPES = (BooleanType, NumericType, StringType, DateType, TimestampType, TimestampNTZType)

_LOWER_CASE = {name.lower(): name for name in COLUMN_TYPES}


@dataclass(frozen=True)
class Shape:
    """The columns in order; `fields` are those of them that come out of the value. Picklable."""

    names: tuple[str, ...]
    fields: StructType | None = None
    formats: Formats = AS_THEY_ARE
    malformed_type: str = "string"

    @classmethod
    def of(cls, columns: Sequence[str]) -> Shape:
        """Columns of the records only, with their own types."""
        return cls(tuple(columns))

    @property
    def texts(self) -> tuple[str, ...]:
        """Those of key and value that are strings."""
        forms = (("key", self.formats.key), ("value", self.formats.value))
        return tuple(name for name, form in forms if form == "string")

    @property
    def record_columns(self) -> frozenset[str]:
        """The columns that are as the record has them."""
        fields = set() if self.fields is None else set(self.fields.names)
        return frozenset(self.names) - fields - MADE_TYPES.keys()

    @property
    def needs_decoder(self) -> bool:
        """Whether a column is made out of the value, not just copied."""
        is_stripped = self.formats.prefix != "none" and "value" in self.names
        return bool(self.fields) or is_stripped or any(name in MADE_TYPES for name in self.names)


def record_types(options: Options) -> dict[str, str]:
    """The columns of a record and their types, text instead of bytes where that is asked for."""
    types = dict(COLUMN_TYPES)
    for name, form in (("key", options.formats.key), ("value", options.formats.value)):
        if form == "string":
            types[name] = "string"
    return types


def default_schema(options: Options) -> str:
    """The schema of a read for which the user gave none, as DDL.

    Spark makes `timestamp` what `spark.sql.timestampType` says, which may be without a zone.
    """
    types = {**record_types(options), "timestamp": "timestamp_ltz"}
    if options.formats.value == "json":
        raise ConnectorError('valueFormat=json needs the fields: .schema("id long, name string")')
    if options.formats.value != "avro":
        return ", ".join(f"{name} {types[name]}" for name in options.columns)
    from spark_connector.avro_schema import ddl_of_record

    fields = ddl_of_record(options.formats.avro_schema)
    for name in MADE_TYPES:
        if any(field.startswith(f"`{name}` ") for field in fields):
            raise ConnectorError(
                f"avroSchema has a field {name}, and so is a column called that tells of the whole value: "
                f"name the columns without it (.schema(...)), or read the value as it is, without avroSchema"
            )
    named = [f"{name} {types[name]}" for name in options.columns] if options.are_columns_given else []
    return ", ".join([*named, *fields])


def shape_of(schema: StructType, options: Options) -> Shape:
    """The columns of `schema` (the user's or our own); ConnectorError for one that there cannot be."""
    names: list[str] = []
    fields: list[StructField] = []
    malformed_type = "string"
    are_all_fields = _are_fields_of_avro(schema, options)
    if not schema.fields:  # Arrow's record batches have no length without one
        raise ConnectorError("the schema has no column: name at least one, such as offset")
    for field in schema.fields:
        _check_nullable(field)
        if field.name in names:  # Spark fails on it deep in the JVM
            raise ConnectorError(f"column {field.name} is there twice; the option columns adds to the fields")
        names.append(field.name)
        if are_all_fields or _is_field(field, options):
            fields.append(field)
            if options.formats.value == "json":
                _check_json_type(field)
        elif field.name == MALFORMED:
            malformed_type = field.dataType.simpleString()
    if MALFORMED in names and not fields and options.formats.are_fields:
        raise ConnectorError(
            f"the schema has {MALFORMED} and no field of the value: by those values are parsed"
        )
    shape = Shape(
        tuple(names),
        StructType(fields) if options.formats.are_fields else None,
        options.formats,
        malformed_type,
    )
    _compare_with_options(shape, options)
    if fields and options.formats.value == "avro":
        from spark_connector.avro_types import check_avro_fields

        check_avro_fields(StructType(fields), options.formats.avro_schema)
    return shape


def _compare_with_options(shape: Shape, options: Options) -> None:
    """The schema decides which columns there are; the options may have said something else.

    ConnectorError for a column that `columns` leaves out; warnings for what only the options name.
    """
    if options.has_headers and "headers" not in shape.record_columns:
        logger.warning(
            "includeHeaders=true adds nothing to the columns that the option columns or a schema names; name "
            "headers there"
        )
    if not options.are_columns_given:
        return
    others = [name for name in shape.names if name in shape.record_columns and name not in options.columns]
    if others:
        raise ConnectorError(
            f"the schema has {', '.join(others)}, the option columns only {', '.join(options.columns)}; "
            f"leave out one of the two, or name the same columns"
        )
    missed = [name for name in options.columns if name not in shape.record_columns]
    if missed:
        logger.warning("%s: named by the option columns, not by the schema, and not read", ", ".join(missed))


def _check_nullable(field: StructField) -> None:
    """A null that Spark does not expect, within a value too, fails its whole job; any value may have one."""
    if not field.nullable:
        raise ConnectorError(f"column {field.name} must be nullable, as all columns of this source are")
    kinds: list[DataType] = [field.dataType]
    while kinds:
        kind = kinds.pop()
        is_nullable = True
        if isinstance(kind, ArrayType):
            is_nullable = kind.containsNull
            kinds.append(kind.elementType)
        elif isinstance(kind, MapType):
            is_nullable = kind.valueContainsNull
            kinds.append(kind.valueType)
        elif isinstance(kind, StructType):
            is_nullable = all(inner.nullable for inner in kind.fields)
            kinds.extend(inner.dataType for inner in kind.fields)
        if not is_nullable:
            raise ConnectorError(
                f"column {field.name} must be nullable all through, as all columns of this source are; "
                f"{kind.simpleString()} within it is not (nullable, containsNull, valueContainsNull)"
            )


def _check_json_type(field: StructField) -> None:
    """The parser makes neither maps nor intervals nor variants out of JSON."""
    kinds: list[DataType] = [field.dataType]
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, ArrayType):
            kinds.append(kind.elementType)
        elif isinstance(kind, StructType):
            kinds.extend(inner.dataType for inner in kind.fields)
        elif not isinstance(kind, JSON_TYPES):
            raise ConnectorError(
                f"valueFormat=json cannot make {field.name} {field.dataType.simpleString()}; "
                f"read the value as a string and use from_json"
            )


def _are_fields_of_avro(schema: StructType, options: Options) -> bool:
    """Whether the columns are just the fields of `avroSchema`, as in a read without a schema of the user.

    A reader sees only what Spark passes on, not who named the columns. A user's own schema that is the same
    is taken for fields too: it names what is in the values, all of it and in their order.
    """
    if options.formats.value != "avro" or options.are_columns_given:
        return False
    from spark_connector.avro_schema import ddl_of_record

    try:
        fields = ddl_of_record(options.formats.avro_schema)
    except ConnectorError:  # a field that has no type here; the user names others
        return False
    return [_plain(f"{field.name} {field.dataType.simpleString()}") for field in schema.fields] == [
        _plain(field) for field in fields
    ]


def _plain(ddl: str) -> str:
    """A column's DDL as `simpleString` would write it; no name in Avro has marks or blanks."""
    return re.sub(r"([,:]) ", r"\1", ddl.replace("`", "").replace("timestamp_ltz", "timestamp"))


def _is_field(field: StructField, options: Options) -> bool:
    """Whether the column is a field of the value, not one of the record."""
    found = field.dataType.simpleString()
    if field.name in MADE_TYPES and options.formats.value != "binary":
        if found not in MADE_TYPES[field.name]:
            types = " or ".join(MADE_TYPES[field.name])
            raise ConnectorError(f"column {field.name} has type {types}, not {found}")
        return False
    expected = record_types(options).get(field.name)
    if options.formats.are_fields:
        if not options.are_columns_given:
            return bool(found != expected)
        if field.name not in options.columns:
            return True
    if expected is None:
        hint = _LOWER_CASE.get(field.name.lower(), ", ".join(COLUMN_TYPES))
        raise ConnectorError(f"there is no column {field.name}; did you mean {hint}?")
    if found != expected:
        raise ConnectorError(f"column {field.name} has type {expected}, not {found}")
    return False
