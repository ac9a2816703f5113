"""Arrow arrays out of located records: bytes copied by kernel into buffers of exactly their size."""

from __future__ import annotations

import numpy
import pyarrow

from spark_connector import kernels
from spark_connector.kernels import Bytes, Ints, Longs
from spark_connector.options import COLUMN_TYPES

HEADER_TYPE = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
ARROW_TYPES: dict[str, pyarrow.DataType] = {
    "key": pyarrow.binary(),
    "value": pyarrow.binary(),
    "topic": pyarrow.string(),
    "partition": pyarrow.int32(),
    "offset": pyarrow.int64(),
    "timestamp": pyarrow.timestamp("us", tz="UTC"),
    "timestampType": pyarrow.int32(),
    "headers": pyarrow.list_(HEADER_TYPE),
}
assert ARROW_TYPES.keys() == COLUMN_TYPES.keys()


def repeated_text(text: str, count: int) -> pyarrow.Array:
    """As `pyarrow.repeat`, which would make every worker import pandas to look at the value."""
    encoded = text.encode()
    ends = numpy.arange(count + 1, dtype=numpy.int32) * numpy.int32(len(encoded))
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(encoded * count)]
    return pyarrow.Array.from_buffers(pyarrow.string(), count, buffers)


def fixed_column(name: str, numbers: Longs | Ints) -> pyarrow.Array:
    """The numbers as the column `name` has them, which owns their memory from then on."""
    return pyarrow.Array.from_buffers(ARROW_TYPES[name], len(numbers), [None, pyarrow.py_buffer(numbers)])


def _bits(count: int) -> Bytes:
    return numpy.zeros((count + 7) // 8, numpy.uint8)


def _buffer_or_none(bits: Bytes) -> pyarrow.Buffer | None:
    return pyarrow.py_buffer(bits) if bits.size else None


def binary_column(data: Bytes, rows: Longs, fields: tuple[int, int], kind: pyarrow.DataType) -> pyarrow.Array:
    """Keys or values as they are; text is not looked at, as Spark does not when it casts binary to string."""
    position_field, size_field = fields
    size, nulls = kernels.measure_column(rows, size_field)
    output = numpy.empty(size, numpy.uint8)
    ends = numpy.empty(len(rows) + 1, numpy.int32)
    validity = _bits(len(rows) if nulls else 0)
    if not kernels.copy_column(data, rows, position_field, size_field, ends, validity, output):
        raise AssertionError("a located record lies outside of its bytes")
    buffers = [_buffer_or_none(validity), pyarrow.py_buffer(ends), pyarrow.py_buffer(output)]
    return pyarrow.Array.from_buffers(kind, len(rows), buffers, null_count=nulls)


def headers_column(data: Bytes, rows: Longs) -> pyarrow.Array:
    """A list of (key, value) a row, null where a record has no headers, as Spark's own has it."""
    count, key_bytes, value_bytes = kernels.measure_headers(data, rows)
    if count < 0:
        raise AssertionError("a located record has headers outside of its bytes")
    list_ends = numpy.empty(len(rows) + 1, numpy.int32)
    list_validity = _bits(len(rows))
    key_ends, value_ends = numpy.empty(count + 1, numpy.int32), numpy.empty(count + 1, numpy.int32)
    keys, values = numpy.empty(key_bytes, numpy.uint8), numpy.empty(value_bytes, numpy.uint8)
    value_validity = _bits(count)
    if not kernels.copy_headers(
        data, rows, list_ends, list_validity, key_ends, keys, value_ends, value_validity, values
    ):
        raise AssertionError("a located record has other headers than a moment ago")
    key_buffers = [None, pyarrow.py_buffer(key_ends), pyarrow.py_buffer(keys)]
    value_buffers = [
        pyarrow.py_buffer(value_validity),
        pyarrow.py_buffer(value_ends),
        pyarrow.py_buffer(values),
    ]
    pairs = pyarrow.StructArray.from_arrays(
        [
            pyarrow.Array.from_buffers(pyarrow.string(), count, key_buffers),
            pyarrow.Array.from_buffers(pyarrow.binary(), count, value_buffers),
        ],
        fields=list(HEADER_TYPE),
    )
    list_buffers = [pyarrow.py_buffer(list_validity), pyarrow.py_buffer(list_ends)]
    return pyarrow.Array.from_buffers(ARROW_TYPES["headers"], len(rows), list_buffers, children=[pairs])
