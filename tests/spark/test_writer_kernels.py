"""Goal: what the kernels make of Arrow columns is, byte for byte, what `encode_batch` makes of the same rows.

Method: random rows (null and empty keys and values, headers, null headers, timestamps, large values) as Arrow
batches, whole and as slices of longer ones, in several pieces, through an `Encoder` of two topics; every
batch that comes out is compared with the batch that the plain encoder makes of the rows it says it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records import decode_batch, encode_batch
from spark_connector.encoder import MIN_SLOT_BYTES, Encoder, SealedBatch, split
from spark_connector.errors import ConnectorError, MissingTopicError
from spark_connector.options import ClientSettings
from spark_connector.write_options import WriteOptions

NOW_MS = 1_800_000_000_000
PARTITIONS = {"t": 3, "u": 2}
CLIENT = ClientSettings((("127.0.0.1", 1),))
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))

NO_TIMESTAMP = -1000  # -1 ms

Row = dict[str, Any]


def batch_of(rows: Sequence[Row], *, text: bool = False, large: bool = False) -> pyarrow.RecordBatch:
    """The rows as Spark would hand them over; `large` as with useLargeVarTypes."""
    binary = pyarrow.large_binary() if large else pyarrow.binary()
    string = pyarrow.large_string() if large else pyarrow.string()
    types = {
        "key": string if text else binary,
        "value": binary,
        "topic": string,
        "partition": pyarrow.int32(),
        "headers": HEADERS,
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
    }
    names = [name for name in types if name in rows[0]]
    arrays = [pyarrow.array([row[name] for row in rows], types[name]) for name in names]
    return pyarrow.RecordBatch.from_arrays(arrays, names=names)


def encoder_of(**changed: Any) -> Encoder:
    def partitions_of(topic: str) -> int:
        if topic not in PARTITIONS:
            raise MissingTopicError(f"topic {topic}: UNKNOWN_TOPIC_OR_PARTITION")
        return PARTITIONS[topic]

    return Encoder(WriteOptions(CLIENT, **changed), partitions_of)


def encoded(batches: Sequence[pyarrow.RecordBatch], **changed: Any) -> list[SealedBatch]:
    encoder = encoder_of(**changed)
    made = [sealed for batch in batches for sealed in encoder.encode(batch, NOW_MS)]
    return made + list(encoder.flush())


def plain(rows: Sequence[Row], codec: int, sequence: int) -> bytes:
    """The same rows by the encoder that makes one Python object after another."""
    items = []
    for row in rows:
        key = row.get("key")
        time = row.get("timestamp")
        headers = [(pair["key"], pair["value"]) for pair in row.get("headers") or ()]
        items.append(
            (
                None if time is None else time // 1000,
                key.encode() if isinstance(key, str) else key,
                row["value"],
                headers,
            )
        )
    return encode_batch(
        items, codec=codec, producer_id=5, producer_epoch=1, base_sequence=sequence, now_ms=NOW_MS
    )


def compare(made: Sequence[SealedBatch], rows: Sequence[Row], codec: int = 0) -> None:
    """Every batch is the plain one of its rows; every row is in one batch, in order within its partition."""
    seen: list[int] = []
    last: dict[Any, int] = {}
    for number, sealed in enumerate(made):
        sealed.number(5, 1, number)
        held = [rows[index] for index in sealed.rows.tolist()]
        assert b"".join(sealed.parts) == plain(held, codec, number)
        assert sealed.size_bytes == len(b"".join(sealed.parts))
        indices = sealed.rows.tolist()
        assert indices == sorted(indices)
        assert indices[0] > last.get(sealed.topic_partition, -1)
        last[sealed.topic_partition] = indices[-1]
        seen += indices
        for row in held:
            assert row.get("topic", "t") == sealed.topic_partition.topic
            if row.get("partition") is not None:
                assert row["partition"] == sealed.topic_partition.partition
    assert sorted(seen) == list(range(len(rows)))


pairs = st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=80)})
maybe_bytes = st.none() | st.binary(max_size=300) | st.just(b"x" * 9000)


@st.composite
def many_rows(draw: st.DrawFn) -> list[Row]:
    """Rows with the same columns, of which only the value has to be there."""
    columns: dict[str, st.SearchStrategy[Any]] = {"value": maybe_bytes}
    optional = {
        "key": maybe_bytes,
        "topic": st.sampled_from(["t", "u"]),
        "partition": st.none() | st.integers(0, 1),
        "headers": st.none() | st.lists(pairs, max_size=3),
        "timestamp": st.none() | st.integers(0, 2**52) | st.just(NO_TIMESTAMP),
    }
    for name, strategy in optional.items():
        if draw(st.booleans()):
            columns[name] = strategy
    return draw(st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=40))


@given(many_rows(), st.integers(1, 20), st.booleans(), st.sampled_from([300, 5000, 512 * 1024]))
def test_batches_are_those_of_the_plain_encoder(
    rows: list[Row], piece: int, large: bool, batch_bytes: int
) -> None:
    """Slices of one Arrow batch have offsets and shifted validity bits."""
    whole = batch_of(rows, large=large)
    pieces = [whole.slice(start, piece) for start in range(0, len(rows), piece)]
    topic = None if "topic" in rows[0] else "t"
    made = encoded(pieces, topic=topic, batch_bytes=batch_bytes)
    compare(made, rows)
    assert all(sealed.size_bytes <= batch_bytes or sealed.record_count == 1 for sealed in made)


@pytest.mark.parametrize("codec", range(5))
def test_codecs(codec: int) -> None:
    rows: list[Row] = [{"key": b"%d" % (number % 9), "value": b"value " * 20} for number in range(3000)]
    made = encoded([batch_of(rows)], topic="t", codec=codec)
    assert {sealed.codec for sealed in made} == {codec}
    compare(made, rows, codec)


def test_headers_whose_pairs_are_a_slice() -> None:
    """Arrow may keep the offset in the pairs themselves, not in the list over them."""
    pairs = pyarrow.array([{"key": name, "value": name.encode()} for name in "xabc"], HEADERS.value_type)
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, 1, 3], pyarrow.int32()), pairs[1:])
    values = pyarrow.array([b"v", b"w"])
    (made,) = encoded(
        [pyarrow.RecordBatch.from_arrays([values, lists], names=["value", "headers"])], topic="u"
    )
    made.number(-1, -1, -1)
    headers = [record.headers for record in decode_batch(b"".join(made.parts))]
    assert headers == [(("a", b"a"),), (("b", b"b"), ("c", b"c"))]


@pytest.mark.parametrize("codec", [0, 3])
def test_minus_one_ms_is_no_timestamp(codec: int) -> None:
    """As such a record is read. First, between others, alone, and beside rows whose time is now (null)."""
    times = [NO_TIMESTAMP, 0, 5000, NO_TIMESTAMP, None, NO_TIMESTAMP]
    rows: list[Row] = [{"value": b"v", "topic": "t", "partition": 0, "timestamp": time} for time in times]
    compare(encoded([batch_of(rows[:2]), batch_of(rows[2:])], codec=codec), rows, codec)
    (alone,) = encoded([batch_of(rows[:1])], codec=codec)
    compare([alone], rows[:1], codec)
    assert (alone.base_timestamp, alone.max_timestamp) == (-1, -1)
    (large,) = encoded([batch_of([{**rows[0], "value": b"v" * 2000}])], batch_bytes=500)
    assert (large.base_timestamp, large.max_timestamp) == (-1, -1)


def test_text_keys_are_utf8_and_an_option_beats_the_column() -> None:
    rows: list[Row] = [{"key": "schlüssel", "value": b"v", "topic": "nowhere"}]
    (made,) = encoded([batch_of(rows, text=True)], topic="u")
    made.number(-1, -1, -1)
    assert made.topic_partition.topic == "u"
    assert decode_batch(b"".join(made.parts))[0].key == "schlüssel".encode()


def test_records_without_a_key_go_round() -> None:
    """Every partition gets about as much as the others, in runs: small batches would cost more."""
    rows: list[Row] = [{"value": b"v" * 100} for _ in range(10_000)]
    made = encoded([batch_of(rows)], topic="t")
    sizes = sorted(sealed.record_count for sealed in made)
    assert len(sizes) == 3
    assert sizes[-1] - sizes[0] <= 16 * 1024 / 100
    compare(made, rows)


def test_a_slot_is_no_larger_than_its_share_of_the_memory() -> None:
    rows: list[Row] = [{"value": b"v" * 100, "partition": number % 3} for number in range(3000)]
    made = encoded([batch_of(rows)], topic="t", buffer_bytes=1)
    assert max(sealed.size_bytes for sealed in made) <= MIN_SLOT_BYTES
    compare(made, rows)


@given(many_rows(), st.sampled_from([0, 3]))
def test_halves_of_a_batch(rows: list[Row], codec: int) -> None:
    """A batch that was too large for its topic is sent as two with the same records and sequences."""
    rows = [{**row, "topic": "t", "partition": 0} for row in rows]
    (whole,) = encoded([batch_of(rows)], codec=codec, max_request_bytes=1 << 20)
    whole.number(5, 1, 2**31 - 3)
    before = decode_batch(b"".join(whole.parts))
    if whole.record_count == 1:
        return
    first, second = split(whole, None)
    assert first.base_sequence == 2**31 - 3
    assert second.base_sequence == (2**31 - 3 + first.record_count) % 2**31
    after = decode_batch(b"".join(first.parts)) + decode_batch(b"".join(second.parts))
    assert [record[1:] for record in after] == [record[1:] for record in before]
    assert [*first.rows, *second.rows] == list(whole.rows)
    assert {first.producer_id, second.producer_id} == {5}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"topic": None}, "row 12 of the task, column topic: null, and there is no option topic"),
        ({"topic": "absent"}, "row 12 of the task, column topic: topic absent: UNKNOWN_TOPIC_OR_PARTITION"),
        (
            {"partition": 3},
            "row 12 of the task, column partition: 3, but topic t has partitions 0 to 2: add partitions",
        ),
        ({"partition": -1}, "row 12 of the task, column partition: -1, but topic t has partitions 0 to 2$"),
        ({"timestamp": -1}, "row 12 of the task, column timestamp: before 1970"),
        ({"timestamp": NO_TIMESTAMP - 1}, "row 12 of the task, column timestamp: before 1970"),
        ({"timestamp": NO_TIMESTAMP + 1}, "row 12 of the task, column timestamp: before 1970"),
        ({"timestamp": -(2**62)}, "row 12 of the task, column timestamp: before 1970"),
        ({"headers": [None]}, "row 12 of the task, column headers: a header and its key must not be null"),
        (
            {"headers": [{"key": None, "value": b""}]},
            "row 12 of the task, column headers: a header and its key must not be null",
        ),
        ({"value": b"v" * 2000}, r"row 12 of the task, column value: the record takes \d+ bytes, more than"),
        ({"key": b"k" * 2000}, "row 12 of the task, column key: the record takes"),
        (
            {"headers": [{"key": "h", "value": b"v" * 2000}]},
            "row 12 of the task, column headers: the record takes",
        ),
    ],
)
def test_refused_rows_are_named(row: Row, message: str) -> None:
    """The second Arrow batch of the task: rows are counted over all of them."""
    good: Row = {"key": None, "value": b"v", "topic": "t", "partition": 1, "headers": None, "timestamp": 0}
    encoder = encoder_of(max_request_bytes=1000, batch_bytes=500)
    list(encoder.encode(batch_of([good] * 10), NOW_MS))
    with pytest.raises(ConnectorError, match=message):
        list(encoder.encode(batch_of([good, good, {**good, **row}, good]), NOW_MS))


def test_a_task_without_any_topic() -> None:
    """Nor one that was seen before."""
    with pytest.raises(ConnectorError, match="row 0 of the task, column topic: null, and there is no option"):
        list(encoder_of().encode(batch_of([{"value": b"v", "topic": None}] * 3), NOW_MS))
