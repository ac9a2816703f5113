"""Arrow record batches out of fetched bytes: the columns of Spark's own Kafka source, as many as wanted.

Key, value and headers are copied once, by kernel, from the fetched (or decompressed) bytes into buffers of
exactly their size; offsets and timestamps are written by the walk itself; topic and partition are the same
for all rows of a task, made once, sliced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy
import pyarrow

from protocol.record_kernels import FAULTS, LOCATED_ROWS, OK
from spark_connector import kernels
from spark_connector.kernels import Bytes, Ints, Longs
from spark_connector.offsets import TopicPartition
from spark_connector.options import COLUMN_TYPES
from spark_connector.shape import Shape
from spark_connector.unpacking import CorruptBatch

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

# What one record batch may hold at most; a single record is taken whatever its size. Arrow's offsets within a
# column have 32 bits, and a worker's memory must not depend on how large the batches of a topic are.
MAX_ROWS = 48_000
MAX_BYTES = 8 * 1024 * 1024


class Located(NamedTuple):
    """Records as the first walk has found them: places in the bytes, and numbers ready for Arrow."""

    rows: Longs
    offsets: Longs
    timestamps: Longs
    timestamp_types: Ints

    def choose(self, chosen: numpy.ndarray[Any, numpy.dtype[numpy.bool_]]) -> Located:
        """Those rows only."""
        return Located(*(column[chosen] for column in self))


class ColumnBuilder:
    """Makes the record batches of one topic partition. Owned by: the one task that reads it."""

    def __init__(self, shape: Shape, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self._shape = shape
        self._values = None
        if shape.needs_decoder:
            from spark_connector.values import ValueDecoder

            self._values = ValueDecoder(shape)
        self.schema = pyarrow.schema([(name, self._type_of(name)) for name in shape.names])
        self._rows: Longs = numpy.empty((0, LOCATED_ROWS), numpy.int64)
        self._constants: dict[str, pyarrow.Array] = {}

    def _type_of(self, name: str) -> pyarrow.DataType:
        if self._values is not None and name in self._values.types:
            return self._values.types[name]
        return pyarrow.string() if name in self._shape.texts else ARROW_TYPES[name]

    def build(self, data: Bytes, batches: Longs, start: int, end: int) -> Iterator[pyarrow.RecordBatch]:
        """The records of `batches` (a batch table over `data`) within [start, end), none without any."""
        for located in self.locate(data, batches, start, end):
            yield self.record_batch(data, located)

    def locate(self, data: Bytes, batches: Longs, start: int, end: int) -> Iterator[Located]:
        """As `build`, without making columns; what is given is good until the next step.

        CorruptBatch for a batch whose records are not what its header says.
        """
        cursor = numpy.array([0, 0, -1], numpy.int64)
        records = int(batches[:, kernels.RECORD_COUNT].sum())
        while cursor[kernels.CURSOR_BATCH] < len(batches):
            capacity = max(min(records, MAX_ROWS), 1)
            if len(self._rows) < capacity:
                self._rows = numpy.empty((capacity, LOCATED_ROWS), numpy.int64)
            offsets = numpy.empty(capacity, numpy.int64)
            timestamps = numpy.empty(capacity, numpy.int64)
            timestamp_types = numpy.empty(capacity, numpy.int32)
            rows = self._rows[:capacity]
            count, fault = kernels.locate_rows(
                data, batches, cursor, MAX_BYTES, start, end, rows, offsets, timestamps, timestamp_types
            )
            if fault != OK:
                base_offset = int(batches[cursor[kernels.CURSOR_BATCH], kernels.BASE_OFFSET])
                raise CorruptBatch(self.topic_partition, base_offset, FAULTS[fault])
            records -= count
            if count:
                yield Located(rows[:count], offsets[:count], timestamps[:count], timestamp_types[:count])

    def record_batch(self, data: Bytes, located: Located) -> pyarrow.RecordBatch:
        """The columns of the records."""
        rows = located.rows
        count = len(rows)
        made = {} if self._values is None else self._values.decode(data, rows)
        makers: dict[str, Callable[[], pyarrow.Array]] = {
            "key": lambda: binary_column(data, rows, kernels.KEY_FIELDS, self._type_of("key")),
            "value": lambda: binary_column(data, rows, kernels.VALUE_FIELDS, self._type_of("value")),
            "topic": lambda: self._constant("topic", count),
            "partition": lambda: self._constant("partition", count),
            "offset": lambda: _fixed("offset", located.offsets),
            "timestamp": lambda: _fixed("timestamp", located.timestamps),
            "timestampType": lambda: _fixed("timestampType", located.timestamp_types),
            "headers": lambda: _headers(data, rows),
        }
        columns = [made[name] if name in made else makers[name]() for name in self.schema.names]
        return pyarrow.RecordBatch.from_arrays(columns, schema=self.schema)

    def _constant(self, name: str, count: int) -> pyarrow.Array:
        """`count` times the task's topic or partition, sliced from a longer array that lasts for the task."""
        made = self._constants.get(name)
        if made is None or len(made) < count:
            topic, partition = self.topic_partition
            if name == "topic":
                made = _repeated_text(topic, count)
            else:
                made = _fixed(name, numpy.full(count, partition, numpy.int32))
            self._constants[name] = made
        return made[:count]


def _repeated_text(text: str, count: int) -> pyarrow.Array:
    """As `pyarrow.repeat`, which would make every worker import pandas to look at the value."""
    encoded = text.encode()
    ends = numpy.arange(count + 1, dtype=numpy.int32) * numpy.int32(len(encoded))
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(encoded * count)]
    return pyarrow.Array.from_buffers(pyarrow.string(), count, buffers)


def _fixed(name: str, numbers: Longs | Ints) -> pyarrow.Array:
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


def _headers(data: Bytes, rows: Longs) -> pyarrow.Array:
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
