"""Arrow record batches as the flat arrays that the kernels of `write_kernels` take: no value is copied.

Only headers are written anew, row by row in the form they have in a record, since they are lists of pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
import pyarrow

from spark_connector.kernels import Bytes, Ints, Longs
from spark_connector.write_kernels import measure_row_headers, write_row_headers

NO_BYTES: Bytes = numpy.empty(0, numpy.uint8)
NO_INTS: Ints = numpy.empty(0, numpy.int32)
NO_LONGS: Longs = numpy.empty(0, numpy.int64)
for _empty in (NO_BYTES, NO_INTS, NO_LONGS):
    _empty.flags.writeable = False

# With `spark.sql.execution.arrow.useLargeVarTypes` columns have offsets of 64 bits: made small again.
SMALL_TYPES = {pyarrow.large_binary(): pyarrow.binary(), pyarrow.large_string(): pyarrow.string()}


class BadHeader(Exception):
    """A row has a header, or a header's key, that is null."""

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row}")
        self.row = row


class Binary(NamedTuple):
    """A column of bytes or text: row i is data[ends[i]:ends[i + 1]] unless valid[i] is 0."""

    data: Bytes = NO_BYTES
    ends: Ints = NO_INTS
    valid: Bytes = NO_BYTES


class Numbers(NamedTuple):
    """A column of numbers of one width; `valid` as above."""

    numbers: Any
    valid: Bytes = NO_BYTES


class Rows(NamedTuple):
    """The columns of one Arrow batch; absent ones are empty arrays."""

    size: int
    keys: Binary
    values: Binary
    headers: Bytes
    header_ends: Longs
    timestamps: Numbers
    partitions: Numbers
    topics: pyarrow.Array | None  # of text; None when an option names the topic

    def largest_column(self, row: int) -> str:
        """Which of its columns takes the most bytes of a record."""
        sizes = {
            "value": _bytes_of(self.values.ends, row),
            "key": _bytes_of(self.keys.ends, row),
            "headers": _bytes_of(self.header_ends, row),
        }
        return max(sizes, key=lambda name: sizes[name])


def _bytes_of(ends: Any, row: int) -> int:
    return int(ends[row + 1] - ends[row]) if len(ends) else 0


def rows_of(batch: pyarrow.RecordBatch, with_topics: bool) -> Rows:
    """The columns of `batch` by their names in lower case; BadHeader for headers that cannot be."""
    columns = {name.lower(): batch.column(index) for index, name in enumerate(batch.schema.names)}
    headers, header_ends = headers_of(columns["headers"]) if "headers" in columns else (NO_BYTES, NO_LONGS)
    return Rows(
        batch.num_rows,
        binary_of(columns["key"]) if "key" in columns else Binary(),
        binary_of(columns["value"]),
        headers,
        header_ends,
        numbers_of(columns.get("timestamp"), NO_LONGS),
        numbers_of(columns.get("partition"), NO_INTS),
        columns["topic"] if with_topics else None,
    )


def binary_of(array: pyarrow.Array) -> Binary:
    """The buffers of a binary or text column."""
    small = SMALL_TYPES.get(array.type)
    if small is not None:
        array = array.cast(small)
    _, ends, data = array.buffers()
    return Binary(_view(data, numpy.uint8, 0, None), _ends(ends, array), _valid(array))


def numbers_of(array: pyarrow.Array | None, absent: Any) -> Numbers:
    """The buffers of a column of fixed width; `absent`, an empty array, when there is none."""
    if array is None:
        return Numbers(absent)
    return Numbers(_view(array.buffers()[1], absent.dtype, array.offset, len(array)), _valid(array))


def headers_of(array: pyarrow.Array) -> tuple[Bytes, Longs]:
    """Each row's headers as they stand in a record, and n + 1 ends; empty for a row without headers."""
    pairs = array.values
    keys, values = (binary_of(child) for child in pairs.flatten())  # `field` would forget their offset
    list_ends, list_valid, pair_valid = _ends(array.buffers()[1], array), _valid(array), _valid(pairs)
    ends = numpy.empty(len(array) + 1, numpy.int64)
    broken = measure_row_headers(
        list_ends, list_valid, pair_valid, keys.ends, keys.valid, values.ends, values.valid, ends
    )
    if broken >= 0:
        raise BadHeader(broken)
    output = numpy.empty(int(ends[-1]), numpy.uint8)
    if not write_row_headers(list_ends, *keys, *values, ends, output):
        raise AssertionError("a column of headers points out of its own bytes")
    return read_only(output), read_only(ends)


def read_only(array: Any) -> Any:
    """The kernels are compiled for views that cannot be written to, and for no others."""
    array.flags.writeable = False
    return array


def _ends(buffer: pyarrow.Buffer | None, array: pyarrow.Array) -> Ints:
    if len(array) == 0:
        return read_only(numpy.zeros(1, numpy.int32))  # type: ignore[no-any-return]
    return _view(buffer, numpy.int32, array.offset, len(array) + 1)  # type: ignore[no-any-return]


def _valid(array: pyarrow.Array) -> Bytes:
    if array.null_count == 0:
        return NO_BYTES
    bits = array.buffers()[0]
    bytes_ = numpy.unpackbits(numpy.frombuffer(bits, numpy.uint8), bitorder="little")
    return read_only(bytes_[array.offset : array.offset + len(array)])  # type: ignore[no-any-return]


def _view(buffer: pyarrow.Buffer | None, kind: Any, offset: int, count: int | None) -> Any:
    if buffer is None:
        return NO_BYTES.view(kind)
    whole = numpy.frombuffer(
        buffer, kind, -1 if count is None else count, offset * numpy.dtype(kind).itemsize
    )
    return read_only(whole)
