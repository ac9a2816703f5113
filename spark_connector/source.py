"""The data source that Spark sees under the name `kompakt`.

Spark pickles it into several short-lived processes before the first byte is read, so this module and what it
imports stay light: neither numpy nor numba nor pyarrow, and no protocol message, before a reader wants them.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_connector.errors import ConnectorError
from spark_connector.options import COLUMN_TYPES, Options, parse_options

_LOWER_CASE = {name.lower(): name for name in COLUMN_TYPES}


class KompaktDataSource(DataSource):  # type: ignore[misc]
    """Topics of a Kafka cluster as a table or a stream. Options: see `options.py`."""

    @classmethod
    def name(cls) -> str:
        return "kompakt"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._given = {str(name): str(value) for name, value in options.items()}

    @property
    def parsed(self) -> Options:
        """The options of a reader; a writer has its own."""
        return parse_options(self._given)

    def schema(self) -> str:
        """The columns of Spark's own Kafka source, or those that the option `columns` names."""
        return ", ".join(f"{name} {COLUMN_TYPES[name]}" for name in self.parsed.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_connector.reader import BatchReader

        return BatchReader(self.parsed, column_names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_connector.stream import StreamReader

        return StreamReader(self.parsed, column_names(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_connector.writer import BatchWriter

        return BatchWriter(self._given, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark_connector.stream_writer import StreamWriter

        return StreamWriter(self._given, schema)


def column_names(schema: StructType) -> list[str]:
    """The columns of a user's schema: any of ours in any order, with our types. Only these are made."""
    names = []
    for field in schema.fields:
        expected = COLUMN_TYPES.get(field.name)
        if expected is None:
            hint = _LOWER_CASE.get(field.name.lower(), ", ".join(COLUMN_TYPES))
            raise ConnectorError(f"there is no column {field.name}; did you mean {hint}?")
        if field.dataType.simpleString() != expected:
            raise ConnectorError(
                f"column {field.name} has type {expected}, not {field.dataType.simpleString()}"
            )
        if not field.nullable:
            raise ConnectorError(f"column {field.name} must be nullable, as all columns of this source are")
        names.append(field.name)
    return names
