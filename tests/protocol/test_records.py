"""Goal: records survive encoding and decoding in every shape, and no bytes whatever lead a kernel astray.

Method: round trips (hypothesis) through every codec, headers, nulls, holes, LogAppendTime and delete
horizons; each rule of validation broken alone; the same batches through the independent encoders of
kafka-python and aiokafka.
"""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from protocol import batch, control, record_kernels, records
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Columns, Record, decode_all, decode_batch, encode_batch, encode_record

times = st.integers(min_value=-(2**60), max_value=2**60)
maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=3)
items = st.lists(st.tuples(times, maybe_bytes, maybe_bytes, headers), min_size=1, max_size=40)

SHAPES: list[records.Item] = [
    (1000, b"key", b"value", ()),
    (900, None, b"value", ()),
    (1001, b"key", None, ()),
    (1002, b"", b"", ()),
    (-1, None, None, [("name", b"x"), ("name", None), ("", b"")]),
    (2**41, b"k" * 63, b"v" * 64, [("ä", bytes(200))]),
    (0, b"k" * 8191, b"v" * 8192, ()),
]


def expected(given_items: list[records.Item], base_offset: int = 0) -> list[Record]:
    return [
        Record(
            base_offset + index,
            time or 0,
            key,
            value,
            tuple((str(name), data) for name, data in given_headers),
        )
        for index, (time, key, value, given_headers) in enumerate(given_items)
    ]


@pytest.mark.parametrize("codec", range(5))
def test_every_shape_survives(codec: int) -> None:
    """T68, T70: headers, timestamps, null and empty values come back as they were, in all five codecs."""
    made = encode_batch(SHAPES, base_offset=40, codec=codec)
    assert decode_batch(made) == expected(SHAPES, 40)
    section = records.payload(made, 0, batch.parse_header(made))
    assert not section.flags.writeable
    assert records.validate_records(section, len(SHAPES), False) == (records.OK, -1, 2**41 - 1000)


@settings(max_examples=60)
@given(items, st.integers(0, 4))
def test_round_trip(given_items: list[records.Item], codec: int) -> None:
    made = encode_batch(given_items, base_offset=7, codec=codec)
    assert decode_batch(made) == expected(given_items, 7)
    header = batch.parse_header(made)
    assert header.max_timestamp == max(time or 0 for time, _, _, _ in given_items)
    section = records.payload(made, 0, header)
    fault, index, max_delta = records.validate_records(section, len(given_items), False)
    assert (fault, index) == (records.OK, -1)
    assert header.base_timestamp + max_delta == header.max_timestamp
    assert (
        records.validate_records(section, len(given_items) + 1, False)[0] == record_kernels.BAD_RECORD_COUNT
    )
    assert (
        records.validate_records(section, len(given_items) - 1, False)[0] == record_kernels.BAD_RECORD_COUNT
    )


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"offset_deltas": [0, 3, 8, 9, 12, 20], "last_offset_delta": 22},
        {"delete_horizon_ms": 2**42},
        {"log_append_time_ms": 123},
    ],
)
def test_offsets_and_timestamps_are_those_of_the_records(codec: int, fields: dict[str, Any]) -> None:
    chosen = SHAPES[:6]
    made = encode_batch(chosen, base_offset=40, codec=codec, **fields)
    offsets, timestamps = records.offsets_and_timestamps(made)
    assert list(zip(offsets.tolist(), timestamps.tolist(), strict=True)) == [
        (record.offset, record.timestamp) for record in decode_batch(b"before" + made, 6)
    ]
    with pytest.raises(KafkaError):
        records.offsets_and_timestamps(made[:-1] + bytes([made[-1] ^ 1]))


def test_an_empty_batch_has_no_offsets() -> None:
    offsets, timestamps = records.offsets_and_timestamps(encode_batch([], last_offset_delta=4))
    assert offsets.tolist() == timestamps.tolist() == []


def test_headers_that_are_not_utf8_survive() -> None:
    made = encode_batch([(1, None, None, [(b"\xff\xfe", b"v")])])
    record = decode_batch(made)[0]
    assert decode_batch(encode_batch([(1, None, None, record.headers)]))[0].headers == record.headers
    assert encode_batch([(1, None, None, record.headers)]) == made


def test_offsets_with_holes_as_cleaning_leaves_them() -> None:
    """T48, T57: records keep their offsets, the batch its range."""
    made = encode_batch(
        [(1, b"a", b"", ()), (2, b"b", b"", ())], base_offset=100, offset_deltas=[3, 8], last_offset_delta=9
    )
    assert [record.offset for record in decode_batch(made)] == [103, 108]
    assert batch.parse_header(made).last_offset == 109
    assert (
        records.validate_records(records.as_array(made[61:]), 2, False)[0] == record_kernels.BAD_OFFSET_DELTA
    )


def test_delete_horizon_leaves_timestamps_alone() -> None:
    """T73, T82: the base timestamp is a time to come, the deltas are negative, the times unchanged."""
    made = encode_batch([(50, b"a", None, ()), (60, b"b", None, ())], delete_horizon_ms=10_000)
    assert [record.timestamp for record in decode_batch(made)] == [50, 60]
    assert batch.parse_header(made).delete_horizon_ms == 10_000
    assert batch.parse_header(made).max_timestamp == 60


def test_log_append_time_wins_over_the_records_own() -> None:
    made = encode_batch([(5, b"a", b"", ()), (6, b"b", b"", ())], log_append_time_ms=123)
    assert [record.timestamp for record in decode_batch(made)] == [123, 123]


def test_missing_timestamps_take_now() -> None:
    assert [
        record.timestamp for record in decode_batch(encode_batch([(None, None, b"", ())], now_ms=77))
    ] == [77]


def test_decode_all_skips_control_batches() -> None:
    marker = control.marker_batch(
        control.Marker(True, 6), producer_id=3, producer_epoch=1, now_ms=9, base_offset=1
    )
    log = encode_batch([(1, None, b"a", ())]) + marker + encode_batch([(2, None, b"b", ())], base_offset=2)
    assert [record.offset for record in decode_all(log)] == [0, 2]
    [found] = decode_batch(marker)
    assert found.offset == 1
    assert control.decode_marker(found.key, found.value) == control.Marker(True, 6)
    header = next(header for _, header in batch.iterate_headers(marker))
    assert (header.is_control, header.is_transactional, header.producer_id) == (True, True, 3)


def test_control_records_of_other_kinds_are_no_markers() -> None:
    assert control.decode_marker(b"\x00\x00\x00\x02", b"") is None
    assert control.decode_marker(b"\x00\x00\x03\xe7", b"") is None
    assert control.decode_marker(b"\x00\x01\x00\x00", b"\x00\x01\x00\x00\x00\x09tail") == control.Marker(
        False, 9
    )
    for key, value in (
        (None, b""),
        (b"\x00", b""),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00"),
    ):
        with pytest.raises(KafkaError):
            control.decode_marker(key, value)


# ---- validation, one rule at a time


def record(body: str, length: int | None = None) -> bytes:
    """A record of the hex `body`, its length right unless given."""
    data = bytes.fromhex(body.replace(" ", ""))
    return bytes([2 * (len(data) if length is None else length)]) + data


GOOD = record("00 00 00 026b 0276 00")
BROKEN = {
    "a length beyond the end": (record("00 00 00 026b 0276 00", 9), record_kernels.TRUNCATED),
    "a length short of the record": (record("00 00 00 026b 0276 00", 7), record_kernels.BAD_HEADERS),
    "a length of more than the record": (
        record("00 00 00 026b 0276 00 00"),
        record_kernels.BAD_RECORD_LENGTH,
    ),
    "a negative length": (b"\x01" + GOOD[1:], record_kernels.BAD_RECORD_LENGTH),
    "a zero length": (b"\x00" + GOOD[1:], record_kernels.BAD_RECORD_LENGTH),
    "offset delta 1 first": (record("00 00 02 026b 0276 00"), record_kernels.BAD_OFFSET_DELTA),
    "a negative offset delta": (record("00 00 01 026b 0276 00"), record_kernels.BAD_OFFSET_DELTA),
    "a key beyond the record": (record("00 00 00 186b 0276 00"), record_kernels.BAD_KEY),
    "a key of -2 bytes": (record("00 00 00 03 0276 00 00"), record_kernels.BAD_KEY),
    "a value beyond the record": (record("00 00 00 026b 1876 00"), record_kernels.BAD_VALUE),
    "a value of -2 bytes": (record("00 00 00 026b 03 00 00"), record_kernels.BAD_VALUE),
    "a negative header count": (record("00 00 00 026b 0276 01"), record_kernels.BAD_HEADERS),
    "more headers than bytes": (record("00 00 00 026b 0276 feffffff0f"), record_kernels.BAD_HEADERS),
    "a null header key": (record("00 00 00 026b 0276 02 01 0278"), record_kernels.BAD_HEADERS),
    "a header value of -2 bytes": (record("00 00 00 026b 0276 02 0278 03"), record_kernels.BAD_HEADERS),
    "a varint of six bytes": (record("00 00 808080808000 026b 0276 00"), record_kernels.BAD_VARINT),
    "a varlong of eleven bytes": (record("00 8080808080808080808000 00 01 01 00"), record_kernels.BAD_VARINT),
    "bytes behind the records": (GOOD + b"\x00", record_kernels.BAD_RECORD_COUNT),
    "nothing": (b"", record_kernels.BAD_RECORD_COUNT),
}


def test_the_record_that_the_broken_ones_are_made_of_is_good() -> None:
    assert records.validate_records(records.as_array(GOOD), 1, True) == (records.OK, -1, 0)


@pytest.mark.parametrize("name", BROKEN)
def test_t150_each_fault_is_found(name: str) -> None:
    section, fault = BROKEN[name]
    found, _, _ = records.validate_records(records.as_array(section), 1, False)
    assert record_kernels.FAULTS[found] == record_kernels.FAULTS[fault]
    if fault != record_kernels.BAD_OFFSET_DELTA:
        assert records.locate_records(records.as_array(section), 1).size == 0
        with pytest.raises(KafkaError) as problem:
            records.locate(records.as_array(section), 1)
        assert problem.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("count", [-1, -(2**31), 2, 2**31 - 1])
def test_a_count_that_the_bytes_cannot_hold_is_refused_at_once(count: int) -> None:
    assert (
        records.validate_records(records.as_array(GOOD), count, False)[0] == record_kernels.BAD_RECORD_COUNT
    )
    assert records.locate_records(records.as_array(GOOD), count).size == 0


def test_the_faulty_record_is_named() -> None:
    section = GOOD + encode_record(1, 5, b"a", b"b") + encode_record(3, 0, b"a", b"b")
    found = records.validate_records(records.as_array(section), 3, False)
    assert found[:2] == (record_kernels.BAD_OFFSET_DELTA, 2)


@pytest.mark.parametrize("codec", range(5))
def test_t144_keyless_records_are_named_each(codec: int) -> None:
    keys = [b"a", None, b"", None, None, b"z"]
    made = encode_batch([(index, key, b"", ()) for index, key in enumerate(keys)], codec=codec)
    section = records.payload(made, 0, batch.parse_header(made))
    assert records.validate_records(section, 6, True) == (records.KEYLESS, 1, 5)
    assert records.keyless_records(section, 6).tolist() == [1, 3, 4]
    assert records.validate_records(section, 6, False) == (records.OK, -1, 5)
    assert records.FAULTS[records.KEYLESS].startswith("Compacted topic cannot accept message without key")


def test_broken_structure_wins_over_a_missing_key() -> None:
    section = encode_record(0, 0, None, b"") + encode_record(5, 0, b"k", b"")
    assert records.validate_records(records.as_array(section), 2, True)[0] == record_kernels.BAD_OFFSET_DELTA


def test_locate_says_where_everything_is() -> None:
    made = encode_batch(SHAPES)
    section = records.payload(made, 0, batch.parse_header(made))
    table = records.locate_records(section, len(SHAPES))
    assert table.shape == (records.LOCATED_ROWS, len(SHAPES))
    data = section.tobytes()
    for index, (time, key, value, _) in enumerate(SHAPES):
        row = table[:, index].tolist()
        assert (row[records.OFFSET_DELTA], row[records.TIMESTAMP_DELTA]) == (index, (time or 0) - 1000)
        for position, size, wanted in (
            (row[records.KEY_POSITION], row[records.KEY_BYTES], key),
            (row[records.VALUE_POSITION], row[records.VALUE_BYTES], value),
        ):
            assert (None if size < 0 else data[position : position + size]) == wanted
        start, size = row[records.RECORD_POSITION], row[records.RECORD_BYTES]
        assert data[start : start + size] == encode_record(
            index, (time or 0) - 1000, key, value, SHAPES[index][3]
        )
    assert int(table[records.RECORD_BYTES].sum()) == section.size


# ---- columns


def columns_of(given_items: list[records.Item]) -> Columns:
    def column(parts: list[bytes]) -> tuple[Any, Any]:
        ends = numpy.cumsum([0, *map(len, parts)], dtype=numpy.int64)
        return numpy.frombuffer(b"".join(parts), numpy.uint8), ends

    keys, key_offsets = column([key or b"" for _, key, _, _ in given_items])
    values, value_offsets = column([value or b"" for _, _, value, _ in given_items])
    encoded = [
        records.encode_headers(list(given_headers)) if given_headers else b""
        for *_, given_headers in given_items
    ]
    header_bytes, header_offsets = column(encoded)
    return Columns(
        keys,
        key_offsets,
        numpy.array([key is None for _, key, _, _ in given_items], numpy.uint8),
        values,
        value_offsets,
        numpy.array([value is None for _, _, value, _ in given_items], numpy.uint8),
        header_bytes,
        header_offsets,
        numpy.array([time for time, *_ in given_items], numpy.int64),
    )


@settings(max_examples=60)
@given(items, st.integers(0, 4))
def test_columns_make_the_same_bytes(given_items: list[records.Item], codec: int) -> None:
    columns = columns_of(given_items)
    assert records.encode_column_batch(columns, codec=codec) == encode_batch(given_items, codec=codec)
    section = encode_batch(given_items)[batch.HEADER_BYTES :]
    table = records.locate(records.as_array(section), len(given_items))
    assert (columns.sizes() >= table[records.RECORD_BYTES]).all()


def test_slices_of_columns_are_batches_of_their_own() -> None:
    columns = columns_of(SHAPES)
    for cut in range(1, len(SHAPES)):
        made = records.encode_column_batch(columns.rows(0, cut)) + records.encode_column_batch(
            columns.rows(cut, len(SHAPES)), base_offset=cut
        )
        assert list(decode_all(made)) == expected(SHAPES)
    with pytest.raises(ValueError, match="no rows"):
        records.encode_column_batch(columns.rows(2, 2))


# ---- other encoders


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("builder", [DefaultRecordBatchBuilder, AiokafkaBuilder])
def test_batches_of_other_clients_are_read(builder: Any, codec: int) -> None:
    theirs = builder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for index, (time, key, value, given_headers) in enumerate(SHAPES):
        theirs.append(index, timestamp=time, key=key, value=value, headers=list(given_headers))
    made = bytes(theirs.build())
    assert decode_batch(made) == expected(SHAPES)
    section = records.payload(made, 0, batch.parse_header(made))
    assert records.validate_records(section, len(SHAPES), False)[0] == records.OK
    if codec == 0:
        assert made[61:] == encode_batch(SHAPES)[61:]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("reader", [DefaultRecordBatch, AiokafkaBatch])
def test_other_clients_read_our_batches(reader: Any, codec: int) -> None:
    made = encode_batch(SHAPES, base_offset=11, codec=codec)
    theirs = reader(made)
    assert theirs.validate_crc()
    found = [
        Record(
            one.offset, one.timestamp, one.key, one.value, tuple((name, data) for name, data in one.headers)
        )
        for one in theirs
    ]
    assert [tuple(one) for one in found] == [tuple(one) for one in expected(SHAPES, 11)]
