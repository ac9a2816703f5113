"""Arrow record batches out of fetched bytes: the columns of Spark's own Kafka source, as many as wanted.

Key, value and headers are copied once, from the fetched (or decompressed) bytes into Arrow's buffers
(`arrays.py`); offsets and timestamps are written by the walk itself; topic and partition are the same for all
rows of a task, made once, sliced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy
import pyarrow

from protocol.record_kernels import FAULTS, LOCATED_ROWS, OK
from spark_connector import kernels
from spark_connector.arrays import (
    ARROW_TYPES,
    binary_column,
    fixed_column,
    headers_column,
    repeated_text,
)
from spark_connector.kernels import Bytes, Ints, Longs
from spark_connector.offsets import TopicPartition
from spark_connector.shape import Shape
from spark_connector.unpacking import CorruptBatch

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
            "offset": lambda: fixed_column("offset", located.offsets),
            "timestamp": lambda: fixed_column("timestamp", located.timestamps),
            "timestampType": lambda: fixed_column("timestampType", located.timestamp_types),
            "headers": lambda: headers_column(data, rows),
        }
        columns = [made[name] if name in made else makers[name]() for name in self.schema.names]
        return pyarrow.RecordBatch.from_arrays(columns, schema=self.schema)

    def _constant(self, name: str, count: int) -> pyarrow.Array:
        """`count` times the task's topic or partition, sliced from a longer array that lasts for the task."""
        made = self._constants.get(name)
        if made is None or len(made) < count:
            topic, partition = self.topic_partition
            if name == "topic":
                made = repeated_text(topic, count)
            else:
                made = fixed_column(name, numpy.full(count, partition, numpy.int32))
            self._constants[name] = made
        return made[:count]
