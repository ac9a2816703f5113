"""Columns out of values: text, the fields of JSON, the fields of Avro.

A value that does not parse, or does not fit the types, is a malformed row: its fields are null (only those
that do not fit, where it parses: `repair.py`, `avro.py`), its bytes are in `_corrupt_record` if the user
asked for that column, and the query goes on. A tombstone has null fields and is not malformed.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import numpy
import pyarrow
import pyarrow.json

from protocol.record_kernels import LOCATED_ROWS, VALUE_BYTES, VALUE_POSITION
from spark_connector import kernels
from spark_connector.arrays import binary_column
from spark_connector.kernels import Bytes, Longs
from spark_connector.repair import Repair
from spark_connector.shape import MALFORMED, SCHEMA_ID, Shape
from spark_connector.spark_versions import arrow_schema
from spark_connector.times import has_times, with_times, zone_of_task
from spark_connector.value_kernels import (
    ALL_PREFIX,
    BAD,
    NO_PREFIX,
    SOME_PREFIX,
    lines_of,
    strip_prefixes,
)

logger = logging.getLogger("kompakt.spark")

REPAIRED_ROWS = 64  # a repaired row costs about as much as the parser's start
PREFIXES = {"none": NO_PREFIX, "auto": SOME_PREFIX, "confluent": ALL_PREFIX}


class ValueDecoder:
    """Owned by: the task that reads one partition."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._prefix = PREFIXES[shape.formats.prefix]
        self._fields = pyarrow.schema([])
        if shape.fields is not None:
            self._fields = arrow_schema(shape.fields)
        malformed = pyarrow.string() if shape.malformed_type == "string" else pyarrow.binary()
        self.types: dict[str, pyarrow.DataType] = {field.name: field.type for field in self._fields}
        if SCHEMA_ID in shape.names:
            self.types[SCHEMA_ID] = pyarrow.int32()
        if MALFORMED in shape.names:
            self.types[MALFORMED] = malformed
        self._is_text = shape.formats.value == "string" and "value" in shape.names
        if self._is_text:
            self.types["value"] = pyarrow.string()
        self._parse: Callable[[Bytes, Longs, Bytes], list[pyarrow.Array]] = self._parse_json
        if shape.formats.value == "avro" and shape.fields:
            from spark_connector.avro import AvroParser

            self._parse = AvroParser(shape.formats.avro_schema, self._fields).parse
        self._has_warned = False
        self._zone = ""
        if shape.formats.value == "json" and any(has_times(field.type) for field in self._fields):
            self._zone = zone_of_task(shape.formats.time_zone)
        self._repair = Repair(self._fields, self._zone)

    def decode(self, data: Bytes, rows: Longs) -> dict[str, pyarrow.Array]:
        """The columns that are made out of the values of `rows`."""
        bodies = numpy.empty((len(rows), 2), numpy.int64)
        ids = numpy.empty(len(rows), numpy.int32)
        verdicts = numpy.empty(len(rows), numpy.uint8)
        strip_prefixes(data, rows, self._prefix, bodies, ids, verdicts)
        made: dict[str, pyarrow.Array] = {}
        if len(self._fields):
            made.update(zip(self._fields.names, self._parse(data, bodies, verdicts), strict=True))
        if self._is_text:
            made["value"] = _column(data, bodies, pyarrow.string())
        if SCHEMA_ID in self.types:
            made[SCHEMA_ID] = pyarrow.array(ids, mask=ids == -1)
        if MALFORMED in self.types:
            whole = numpy.stack((rows[:, VALUE_POSITION], rows[:, VALUE_BYTES]), axis=1)
            whole[verdicts != BAD, 1] = -1
            made[MALFORMED] = _column(data, whole, self.types[MALFORMED])
        elif not self._has_warned and (verdicts == BAD).any():
            self._has_warned = True
            has_bare = self._prefix == ALL_PREFIX and ((verdicts == BAD) & (ids == -1)).any()
            hint = " (some begin without Confluent's five bytes: valuePrefix=none is for those)"
            logger.warning(
                "values that are no %s, or do not fit, give nulls; add a column %s to see them%s",
                self._shape.formats.value,
                MALFORMED,
                hint if has_bare else "",
            )
        return made

    # --- JSON

    def _parse_json(self, data: Bytes, bodies: Longs, verdicts: Bytes) -> list[pyarrow.Array]:
        room = int(numpy.maximum(bodies[:, 1], 2).sum()) + len(bodies)
        lines = numpy.empty(room, numpy.uint8)
        ends = numpy.empty(len(bodies), numpy.int64)
        lines = lines[: lines_of(data, bodies, verdicts, lines, ends)]
        tables = [
            pyarrow.Table.from_batches([], self._fields),
            *self._parse_lines(lines, ends, verdicts, 0, len(ends)),
        ]
        made = pyarrow.concat_tables(tables).combine_chunks()
        return [_only_chunk(column) for column in made.columns]

    def _parse_lines(
        self, lines: Bytes, ends: Longs, verdicts: Bytes, first: int, end: int, *, is_repaired: bool = False
    ) -> list[pyarrow.Table]:
        """Rows `first` to `end`; where the parser stumbles, each half by itself, down to few rows, which are
        repaired, and then down to the row that nothing helps."""
        begin = int(ends[first - 1]) if first else 0
        try:
            return [self._read_lines(lines[begin : int(ends[end - 1])], end - first, is_repaired)]
        except pyarrow.ArrowException:
            if is_repaired and end - first == 1:
                verdicts[first] = BAD
                return [pyarrow.Table.from_pylist([{}], self._fields)]
        if not is_repaired and end - first <= REPAIRED_ROWS:
            repaired = self._repaired(lines, [begin, *ends[first:end].tolist()], verdicts[first:end])
            return self._parse_lines(*repaired, verdicts[first:end], 0, end - first, is_repaired=True)
        middle = (first + end) // 2
        halves = (first, middle), (middle, end)
        return [
            table
            for half in halves
            for table in self._parse_lines(lines, ends, verdicts, *half, is_repaired=is_repaired)
        ]

    def _repaired(self, lines: Bytes, edges: list[int], verdicts: Bytes) -> tuple[Bytes, Longs]:
        """The lines between `edges` as `Repair` writes them; marks as BAD what does not fit as a whole."""
        made = []
        for index, (begin, end) in enumerate(itertools.pairwise(edges)):
            line, is_whole = lines[begin:end].tobytes(), True
            try:
                line, is_whole = self._repair.line(line)
            except ValueError:  # no JSON, which the parser will say as well
                line = line.removesuffix(b"\n")
            if not is_whole:
                verdicts[index] = BAD
            made.append(line + b"\n")
        ends = numpy.cumsum([len(line) for line in made], dtype=numpy.int64)
        return numpy.frombuffer(b"".join(made), numpy.uint8), ends

    def _read_lines(self, text: Bytes, count: int, is_repaired: bool) -> pyarrow.Table:
        read = pyarrow.json.read_json(
            pyarrow.BufferReader(pyarrow.py_buffer(text)),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pyarrow.schema(
                    [(field.name, _read_type(field.type)) for field in self._fields]
                ),
                unexpected_field_behavior="ignore",
            ),
        )
        if read.num_rows != count:
            raise pyarrow.ArrowInvalid(f"{read.num_rows} rows out of {count} lines")
        read = read.select(self._fields.names)
        for column in read.columns:
            _check_decimals(column)
        made = [
            with_times(_only_chunk(column), field.type, self._zone, is_repaired=is_repaired)
            for column, field in zip(read.columns, self._fields, strict=True)
        ]
        return pyarrow.Table.from_arrays(made, schema=self._fields)


def _read_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    """What to have the parser make: it knows no dates as text, nor the zone of a time without one."""
    if pyarrow.types.is_date(kind) or pyarrow.types.is_timestamp(kind):
        return pyarrow.string()
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(_read_type(field.type)) for field in kind])
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_read_type(kind.value_type)))
    return kind


def _check_decimals(column: pyarrow.ChunkedArray) -> None:
    """ArrowInvalid for a decimal with too many digits: the parser looks before it adds those of the scale.

    Only decimals: the rest is as the parser made it, and looking costs time.
    """
    if pyarrow.types.is_decimal(column.type):
        column.validate(full=True)
    elif pyarrow.types.is_struct(column.type):
        for field in column.flatten():
            _check_decimals(field)
    elif pyarrow.types.is_list(column.type):
        _check_decimals(
            pyarrow.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)
        )


def _only_chunk(column: Any) -> pyarrow.Array:
    """The array of a column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _column(data: Bytes, places: Longs, kind: pyarrow.DataType) -> pyarrow.Array:
    """The bytes at places (position, size), null for a size below 0."""
    rows = numpy.zeros((len(places), LOCATED_ROWS), numpy.int64)
    rows[:, VALUE_POSITION], rows[:, VALUE_BYTES] = places[:, 0], places[:, 1]
    return binary_column(data, rows, kernels.VALUE_FIELDS, kind)
