"""Avro values to Arrow columns, decoded by `fastavro`, which is installed only by those who need it."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow

from spark_connector.avro_schema import MILLIS, readable
from spark_connector.errors import ConnectorError
from spark_connector.kernels import Bytes, Longs
from spark_connector.value_kernels import BAD, GOOD

MISFITS = (pyarrow.ArrowException, TypeError, ValueError, OverflowError)
"""what Arrow raises for a value that is none of a type"""


class AvroParser:
    """Owned by: the task that reads one partition."""

    def __init__(self, schema: str, fields: pyarrow.Schema) -> None:
        try:
            import fastavro
        except ImportError:
            raise ConnectorError(
                "valueFormat=avro needs the package fastavro on driver and executors: "
                "pip install 'pyspark-kompakt[avro]'"
            ) from None
        fastavro.read.LOGICAL_READERS[f"long-{MILLIS}"] = _micros
        self._read = fastavro.schemaless_reader
        self._schema = fastavro.parse_schema(readable(json.loads(schema)))
        self._type = pyarrow.struct(list(fields))

    def parse(self, data: Bytes, bodies: Longs, verdicts: Bytes) -> list[pyarrow.Array]:
        """One array a field; marks as BAD what is not exactly one datum of the schema."""
        view = data.data
        rows: list[Any] = []
        for index, (position, size) in enumerate(bodies.tolist()):
            row = None
            if verdicts[index] == GOOD:
                row = self._datum(view[position : position + size])
                if row is None:
                    verdicts[index] = BAD
            rows.append(row)
        return list(self._array(rows, verdicts).flatten())

    def _datum(self, value: memoryview) -> Any:
        stream = io.BytesIO(value)
        try:
            row = self._read(stream, self._schema, None)
        except Exception:  # whatever broken bytes make of it: IndexError, EOFError, UnicodeDecodeError, ...
            return None
        return row if stream.tell() == len(value) else None

    def _array(self, rows: list[Any], verdicts: Bytes) -> pyarrow.StructArray:
        try:
            return pyarrow.array(rows, self._type)
        except MISFITS:
            pass
        for index, row in enumerate(rows):
            try:
                pyarrow.array([row], self._type)
            except MISFITS:
                rows[index] = {field.name: _fitting(row[field.name], field.type) for field in self._type}
                verdicts[index] = BAD
        return pyarrow.array(rows, self._type)


def _micros(millis: int, *_: Any) -> int:
    """Called by fastavro. Arrow refuses what has more than 64 bits now."""
    return millis * 1000


def _fitting(value: Any, kind: pyarrow.DataType) -> Any:
    """The value of a field, or None if it is none of `kind`."""
    try:
        pyarrow.array([value], kind)
    except MISFITS:
        return None
    return value
