"""Goal: the kernels turn any batches into the very records that `protocol.records` reads out of them.

Method: hypothesis makes record sets (nulls, empty values, headers, holes, both timestamp types), the
builder's columns are compared with `decode_all` record by record; then bytes are broken at random, and the
kernels must answer with a fault and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.compression import Codec
from protocol.records import Record, as_array, decode_all, encode_batch
from spark_connector import columns, kernels, warm_up
from spark_connector.arrays import ARROW_TYPES
from spark_connector.columns import ColumnBuilder
from spark_connector.offsets import TopicPartition
from spark_connector.shape import Shape
from spark_connector.unpacking import CorruptBatch

PARTITION = TopicPartition("a topic", 3)
text = st.text(st.characters(codec="utf-8"), max_size=8)
blob = st.binary(max_size=20)
record = st.tuples(
    st.integers(-1, 2**41),
    st.none() | blob,
    st.none() | blob,
    st.lists(st.tuples(text, st.none() | blob), max_size=3),
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Several uncompressed batches with holes between and within them."""
    parts = []
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 4))):
        records = draw(st.lists(record, max_size=5))
        steps = draw(st.lists(st.integers(0, 3), min_size=len(records), max_size=len(records)))
        deltas = [sum(steps[: index + 1]) + index for index in range(len(records))]
        last = deltas[-1] if deltas else 0
        append_time = draw(st.none() | st.integers(0, 2**41))
        parts.append(
            encode_batch(
                records,
                base_offset=offset,
                offset_deltas=deltas,
                last_offset_delta=last,
                log_append_time_ms=append_time,
            )
        )
        offset += last + 1 + draw(st.integers(0, 9))
    return b"".join(parts)


def scan(data: bytes) -> tuple[Any, int, int]:
    table = numpy.empty((16, kernels.BATCH_FIELDS), numpy.int64)
    count, position, fault = kernels.scan_batches(as_array(data), 0, table)
    return table[:count], position, fault


def rows_of(built: Iterable[pyarrow.RecordBatch]) -> list[Record]:
    """Record batches as the records that they should hold; also Arrow's own check of every buffer."""
    return [row for made in built for row in rows_in(made)]


def rows_in(made: pyarrow.RecordBatch) -> list[Record]:
    made.validate(full=True)
    assert set(made.column("topic").to_pylist()) == {PARTITION.topic}
    assert set(made.column("partition").to_pylist()) == {PARTITION.partition}
    rows = []
    columns = (
        made.column("offset").to_pylist(),
        made.column("timestamp").cast(pyarrow.int64()).to_pylist(),
        made.column("key").to_pylist(),
        made.column("value").to_pylist(),
        made.column("headers").to_pylist(),
    )
    for offset, timestamp, key, value, headers in zip(*columns, strict=True):
        assert timestamp % 1000 == 0
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        assert headers is None or headers
        rows.append(Record(offset, timestamp // 1000, key, value, pairs))
    return rows


@given(batches(), st.integers(-5, 40), st.integers(-5, 40))
@settings(max_examples=150)
def test_columns_are_the_records(data: bytes, start: int, length: int) -> None:
    table, position, fault = scan(data)
    assert (position, fault) == (len(data), kernels.SCANNED)
    expected = list(decode_all(data))
    first = table[0, kernels.BASE_OFFSET] if len(table) else 0
    low, high = first + start, first + start + length
    builder = ColumnBuilder(Shape.of(list(ARROW_TYPES)), PARTITION)
    inside = [found for found in expected if low <= found.offset < high]
    assert rows_of(builder.build(as_array(data), table, low, high)) == inside
    assert rows_of(builder.build(as_array(data), table, 0, 2**62)) == expected


@given(batches(), st.data())
@settings(max_examples=150)
def test_broken_bytes_are_a_fault_and_nothing_else(data: bytes, drawn: st.DataObject) -> None:
    broken = bytearray(data)
    for _ in range(drawn.draw(st.integers(1, 3))):
        if broken:
            broken[drawn.draw(st.integers(0, len(broken) - 1))] = drawn.draw(st.integers(0, 255))
    if drawn.draw(st.booleans()):  # else what is broken is hardly ever whole enough to be looked into
        broken = broken[: drawn.draw(st.integers(0, len(broken)))]
    table, position, _ = scan(bytes(broken))
    assert 0 <= position <= len(broken)
    counts = table[:, kernels.RECORD_COUNT]
    sizes = table[:, kernels.PAYLOAD_END] - table[:, kernels.PAYLOAD_START]
    possible = table[(counts >= 0) & (counts <= sizes // 7)]
    try:
        built = ColumnBuilder(Shape.of(list(ARROW_TYPES)), PARTITION).build(
            as_array(bytes(broken)), possible, 0, 2**62
        )
        rows = sum(made.num_rows for made in built)
    except CorruptBatch:
        pass
    else:
        assert rows <= possible[:, kernels.RECORD_COUNT].sum()


def test_a_large_batch_becomes_several_record_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a batch holds, rows and bytes of a record batch are bounded; one record is always taken."""
    data = encode_batch([(number, b"k", b"v" * 100, [("h", b"x")]) for number in range(25)])
    expected = list(decode_all(data))
    table, _, _ = scan(data)
    for rows, size, sizes in ((10, 2**20, [10, 10, 5]), (100, 1, [1] * 25), (100, 1000, [9, 9, 7])):
        monkeypatch.setattr(columns, "MAX_ROWS", rows)
        monkeypatch.setattr(columns, "MAX_BYTES", size)
        built = list(
            ColumnBuilder(Shape.of(list(ARROW_TYPES)), PARTITION).build(as_array(data), table, 0, 2**62)
        )
        assert [made.num_rows for made in built] == sizes
        assert rows_of(built) == expected


def test_times_beyond_those_of_spark() -> None:
    data = encode_batch([(2**62, None, b"v", ())])
    table, _, _ = scan(data)
    (made,) = ColumnBuilder(Shape.of(["timestamp"]), PARTITION).build(as_array(data), table, 0, 1)
    assert made.column("timestamp").cast(pyarrow.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000]


NUMBERS = [bytes([byte]) for byte in (0, 1, 2, 127, 128, 255)]
NUMBERS += [
    b"\xff\xff\x03",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\x80\x00",
]


@given(batches(), st.data())
@settings(max_examples=300)
def test_nothing_beyond_the_bytes_is_touched(data: bytes, drawn: st.DataObject) -> None:
    """Broken batches end right before, or begin right behind, a page that must not be read."""
    broken = bytearray(data)
    for _ in range(drawn.draw(st.integers(0, 3)) if broken else 0):
        number = drawn.draw(st.sampled_from(NUMBERS))
        position = drawn.draw(st.integers(0, len(broken) - 1))
        broken[position : position + len(number)] = number
    with guarded(bytes(broken), at_end=drawn.draw(st.booleans())) as placed:
        table = numpy.empty((16, kernels.BATCH_FIELDS), numpy.int64)
        count, _, _ = kernels.scan_batches(placed, 0, table)
        builder = ColumnBuilder(Shape.of(list(ARROW_TYPES)), PARTITION)
        with contextlib.suppress(CorruptBatch):
            for made in builder.build(placed, table[:count], 0, 2**62):
                assert made.num_rows


@contextlib.contextmanager
def guarded(data: bytes, at_end: bool) -> Iterator[Any]:
    """`data` as an array between two pages whose reading ends the process."""
    page = mmap.PAGESIZE
    middle = -(-max(len(data), 1) // page) * page
    area = mmap.mmap(-1, middle + 2 * page)
    view = numpy.frombuffer(area, numpy.uint8)
    address = view.ctypes.data
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    forbidden = (address, address + page + middle)
    for place in forbidden:
        assert protect(place, page, 0) == 0
    start = page + (middle - len(data) if at_end else 0)
    placed = view[start : start + len(data)]
    placed[:] = numpy.frombuffer(data, numpy.uint8)
    placed.flags.writeable = False
    try:
        yield placed
    finally:
        for place in forbidden:
            assert protect(place, page, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_a_scan_stops_at_a_full_table_and_at_a_cut_batch() -> None:
    batch = encode_batch([(1, b"k", b"v", ())])
    table = numpy.empty((2, kernels.BATCH_FIELDS), numpy.int64)
    assert kernels.scan_batches(as_array(batch * 3), 0, table) == (2, 2 * len(batch), kernels.SCANNED)
    assert kernels.scan_batches(as_array(batch * 2), len(batch), table)[0] == 1
    assert kernels.scan_batches(as_array((batch * 2)[:-1]), 0, table)[:2] == (1, len(batch))


@pytest.mark.parametrize(
    ("position", "value", "fault"), [(16, 1, kernels.WRONG_MAGIC), (10, 0xFF, kernels.SCANNED)]
)
def test_old_formats_and_absurd_lengths_are_told(position: int, value: int, fault: int) -> None:
    broken = bytearray(encode_batch([(1, b"k", b"v", ())]))
    broken[position] = value
    assert scan(bytes(broken))[1:] == (0, fault)


def test_the_arrow_schema_is_the_one_spark_compares_with() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructType,
        TimestampType,
    )

    pair = StructType().add("key", StringType()).add("value", BinaryType())
    spark = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
        .add("headers", ArrayType(pair))
    )
    assert ColumnBuilder(Shape.of(list(ARROW_TYPES)), PARTITION).schema.equals(
        to_arrow_schema(spark, timezone="UTC")
    )


def test_only_wanted_columns_are_built() -> None:
    data = encode_batch([(5, b"k", b"v", ())], codec=Codec.NONE)
    table, _, _ = scan(data)
    (made,) = ColumnBuilder(Shape.of(["value", "offset"]), PARTITION).build(as_array(data), table, 0, 1)
    assert made.to_pydict() == {"value": [b"v"], "offset": [0]}


def test_warming_up_goes_the_whole_way() -> None:
    warm_up.main()
