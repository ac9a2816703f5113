"""Goal: values become columns, whatever is in them: good rows as they are, bad ones apart, no failed job.

Method: `ValueDecoder` through a fake broker and `BatchReader`; JSON against Python's own parser on random
and broken text, Avro against fastavro; then a stream through a Spark session.
"""

from __future__ import annotations

import builtins
import datetime
import io
import json
import random
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import confluent_kafka
import fastavro
import pytest

from protocol.records import encode_batch
from spark_connector.errors import ConnectorError
from spark_connector.offsets import TopicPartition
from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.shape import default_schema, shape_of
from tests.spark.conftest import options_for
from tests.spark.ddl import schema_of
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of
from tests.spark.test_spark import create_topic

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]
CONFLUENT = b"\0\0\0\1\2"  # schema 258
JSON_SCHEMA = (
    "id int, name string, at timestamp, day date, price decimal(9,2), tags array<string>, "
    "inner struct<x: double, day: date>, offset bigint, _corrupt_record string, _schema_id int"
)
AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "who", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "kinds", "type": {"type": "array", "items": "Kind"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "inner",
            "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]},
        },
    ],
}


def read(broker: FakeBroker, schema: str | None, **options: str) -> list[dict[str, Any]]:
    parsed = parse_options(options_for(broker, **options))
    shape = shape_of(schema_of(schema or default_schema(parsed)), parsed)
    chosen = BatchReader(parsed, shape)
    rows = []
    for partition in chosen.partitions():
        for made in chosen.read(partition):
            made.validate(full=True)
            rows += made.to_pylist()
    return rows


def values(start_broker: Start, *given: bytes | None) -> FakeBroker:
    return start_broker(logs_of([encode_batch([(1, b"k", value, ()) for value in given])]))


def test_json_fields(start_broker: Start) -> None:
    whole = {
        "id": 7,
        "name": 'a "quoted" \u00e9 {',
        "at": "2026-02-01T12:00:00.5Z",
        "day": "2026-02-01",
        "price": "1.25",
        "tags": ["x", None],
        "inner": {"x": 1.5, "day": "2026-02-02", "more": []},
        "unknown": {"a": [1, 2]},
    }
    broker = values(
        start_broker,
        json.dumps(whole).encode(),
        CONFLUENT + json.dumps({"id": 8}, indent=2).encode(),
        None,
        b"{}",
    )
    first, second, tombstone, empty = read(broker, JSON_SCHEMA, valueFormat="json")
    assert first == {
        **{name: whole[name] for name in ("id", "name", "tags")},
        "at": datetime.datetime(2026, 2, 1, 12, 0, 0, 500_000, datetime.UTC),
        "day": datetime.date(2026, 2, 1),
        "price": Decimal("1.25"),
        "inner": {"x": 1.5, "day": datetime.date(2026, 2, 2)},
        "offset": 0,
        "_corrupt_record": None,
        "_schema_id": None,
    }
    nothing = dict.fromkeys(first)
    assert second == {**nothing, "id": 8, "offset": 1, "_schema_id": 258}
    assert tombstone == {**nothing, "offset": 2}
    assert empty == {**nothing, "offset": 3}


BROKEN = (
    b"",
    b"no json",
    b'{"id": 1',
    b'{"id": 1}}',
    b'{"id": 1}{"id": 2}',
    b'{"id": ',
    b"2}",
    b'{"id": "text"}',
    b'{"id": 1e99}',
    b'{"id": "1", "day": "the first"}',
    b"[1]",
    b'"text"',
    b'{"name": "not closed}',
    b'{"name": "\\',
    b'{"id": 1, "name": "two\nlines"}',
    b'{"id": 1, "name": "two\rlines"}',
    b'{"id": "1", "id": "2"}',
    b'{"tags": [}',
    b"{" * 5000 + b"}" * 5000,
    b"\xff\xfe",
    b"\0\0\0",
)


def test_broken_json_is_a_row_of_its_own(start_broker: Start) -> None:
    """Halves that would make one object together, too: records stay apart."""
    chosen = random.Random(5)
    given = [b'{"id": %d, "name": "row"}' % number for number in range(300)] + list(BROKEN) * 3
    chosen.shuffle(given)
    schema = JSON_SCHEMA.replace("_corrupt_record string", "_corrupt_record binary")
    rows = read(values(start_broker, *given), schema, valueFormat="json")
    assert len(rows) == len(given)
    for value, row in zip(given, rows, strict=True):
        if value in BROKEN:
            assert row["id"] is row["name"] is row["tags"] is None
            assert row["_corrupt_record"] == value
        else:
            assert row["id"] == json.loads(value)["id"]
            assert row["_corrupt_record"] is None


def test_decimals_with_too_many_digits_are_malformed(start_broker: Start) -> None:
    """Wherever they are: the parser lets some through that Spark then fails on, and the whole job with it."""
    good = (b"0", b"12.5", b"-999.99", b'"999.99"', b"null")
    bad = (b"1000", b"-1000", b'"1000"', b"1000.1", b"99999", b"1000000", b"999.995")
    places: dict[bytes, tuple[str, Any]] = {  # and what is left
        b'{"p": %s}': ("decimal(5,2)", None),
        b'{"p": {"d": %s, "s": {"e": 1}}}': (
            "struct<d: decimal(5,2), s: struct<e: decimal(3,1)>>",
            {"d": None, "s": {"e": Decimal(1)}},
        ),
        b'{"p": {"s": {"e": %s}}}': (
            "struct<d: decimal(5,2), s: struct<e: decimal(5,2)>>",
            {"d": None, "s": {"e": None}},
        ),
        b'{"p": [1, %s]}': ("array<decimal(5,2)>", None),
        b'{"p": [{"d": [%s]}]}': ("array<struct<d: array<decimal(5,2)>>>", [{"d": None}]),
    }
    for text, (kind, left) in places.items():
        given = [text % number for number in (*good, *bad, *good)]
        rows = read(values(start_broker, *given), f"p {kind}, _corrupt_record binary", valueFormat="json")
        found = [row["_corrupt_record"] for row in rows]
        assert found == [None] * len(good) + given[len(good) : -len(good)] + [None] * len(good), kind
        assert all(row["p"] == left for row in rows[len(good) : -len(good)])
    broker = values(start_broker, b'{"p": 1.5}', b'{"p": "-7"}')
    rows = read(broker, "p decimal(38,18)", valueFormat="json")
    assert rows == [{"p": Decimal("1.5")}, {"p": Decimal(-7)}]


TIME_CASES = [
    ("2026-02-01T12:00:00.1234567891Z", "Europe/Berlin", "2026-02-01T12:00:00.123456"),
    ("2026-02-01 12:00:00.9999999", "Europe/Berlin", "2026-02-01T11:00:00.999999"),
    ("2026-02-01T12:00:00", "", "2026-02-01T12:00:00"),
    ("2026-02-01", "UTC", "2026-02-01T00:00:00"),
    ("2026-02-01T12:00", "+5", "2026-02-01T07:00:00"),
    ("2026-02-01T12:00", "GMT-03:30", "2026-02-01T15:30:00"),
    ("2026-02-01T12:00", "UTC+01:00:00", "2026-02-01T11:00:00"),
    ("2026-02-01T12:00", "+1:5", "2026-02-01T10:55:00"),
    ("2026-07-01T12:00", "PST", "2026-07-01T19:00:00"),  # Java's short names, some of which are regions
    ("2026-07-01T12:00", "EST", "2026-07-01T17:00:00"),
    ("2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:30:00"),  # skipped; Java goes on by the gap
    ("2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30:00"),  # there twice; the first
]


@pytest.mark.parametrize(("text", "zone", "expected"), TIME_CASES)
def test_times_in_json(start_broker: Start, text: str, zone: str, expected: str) -> None:
    """Beside times of other forms, nulls and texts that are no times; also within arrays and structs."""
    moment = datetime.datetime.fromisoformat(f"{expected}Z")
    noon = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    schema = (
        "at timestamp, inner struct<at: timestamp, x: int>, list array<struct<at: timestamp>>, "
        "_corrupt_record string"
    )
    given = [
        {"at": text, "inner": {"at": text, "x": 1}, "list": [None, {"at": text}]},
        {"at": "2026-01-01T12:00:00Z", "inner": None, "list": None},
        {"at": None, "inner": {"at": None, "x": 2}, "list": []},
        {"at": "soon"},
        {"at": f"{text} or so"},
    ]
    broker = values(start_broker, *(json.dumps(value).encode() for value in given))
    rows = read(broker, schema, valueFormat="json", **({"timeZone": zone} if zone else {}))
    assert [row.pop("_corrupt_record") for row in rows] == [None] * 3 + [
        json.dumps(value) for value in given[3:]
    ]
    assert rows[:3] == [
        {"at": moment, "inner": {"at": moment, "x": 1}, "list": [None, {"at": moment}]},
        {"at": noon, "inner": None, "list": None},
        {"at": None, "inner": {"at": None, "x": 2}, "list": []},
    ]
    assert all(value is None for row in rows[3:] for value in row.values())


def test_json_as_python_reads_it(start_broker: Start) -> None:
    chosen = random.Random(3)
    alphabet = ["{", "}", "[", "]", '"', "\\", ",", ":", " ", "\n", "1", "é", "name", "null", "\\u0041"]
    texts = ["".join(chosen.choices(alphabet, k=chosen.randrange(1, 9))) for _ in range(500)]
    texts += [json.dumps({"name": text}, ensure_ascii=chosen.random() < 0.5) for text in texts]
    schema = "name string, _corrupt_record binary"
    rows = read(values(start_broker, *(text.encode() for text in texts)), schema, valueFormat="json")
    good = 0
    for text, row in zip(texts, rows, strict=True):
        try:
            expected = json.loads(text)
        except ValueError:
            expected = None
        if isinstance(expected, dict) and isinstance(expected.get("name"), str):
            good += 1
            assert row == {"name": expected["name"], "_corrupt_record": None}, text
        else:
            assert row["name"] is None
    assert good >= 500


def encoded(**changes: Any) -> bytes:
    row = {
        "id": 1,
        "name": "n",
        "at": datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC),
        "day": datetime.date(2026, 2, 1),
        "price": Decimal("12.50"),
        "who": str(uuid.UUID(int=5)),
        "kind": "B",
        "kinds": ["A", "B"],
        "counts": {"a": 1},
        "inner": {"x": 0.5},
        **changes,
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO_SCHEMA), row)
    return stream.getvalue()


def test_avro_fields(start_broker: Start) -> None:
    """The columns come from the schema; what is not one whole datum is a malformed row."""
    bare = encoded(name=None)
    given = [
        CONFLUENT + encoded(),
        None,
        CONFLUENT + bare,
        bare,
        CONFLUENT + bare + b"x",
        CONFLUENT + bare[:-3],
    ]
    options = {"valueFormat": "avro", "avroSchema": json.dumps(AVRO_SCHEMA)}
    broker = values(start_broker, *given, CONFLUENT, b"")
    rows = read(broker, None, **options)
    assert list(rows[0]) == [field["name"] for field in AVRO_SCHEMA["fields"]]
    assert rows[0] == {
        "id": 1,
        "name": "n",
        "at": datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC),
        "day": datetime.date(2026, 2, 1),
        "price": Decimal("12.50"),
        "who": str(uuid.UUID(int=5)),
        "kind": "B",
        "kinds": ["A", "B"],
        "counts": [("a", 1)],
        "inner": {"x": 0.5},
    }
    nothing = dict.fromkeys(rows[0])
    assert rows[2] == {**rows[0], "name": None}
    assert [rows[1], *rows[3:]] == [nothing] * 6
    schema = "key binary, id bigint, _corrupt_record binary, _schema_id int"
    some = read(broker, schema, **options)
    assert some[0] == {"key": b"k", "id": 1, "_corrupt_record": None, "_schema_id": 258}
    assert [row["_corrupt_record"] for row in some] == [None] * 3 + [*given[3:], CONFLUENT, b""]
    plain = read(values(start_broker, bare), "id int", **options, valuePrefix="none")
    assert plain == [{"id": 1}]
    large = read(values(start_broker, encoded(id=2**40), bare), "id int", **options, valuePrefix="none")
    assert large == [{"id": None}, {"id": 1}]


def test_broken_avro_breaks_nothing(start_broker: Start) -> None:
    chosen = random.Random(9)
    whole = encoded()
    given = []
    for _ in range(300):
        broken = bytearray(whole)
        broken[chosen.randrange(len(broken))] = chosen.randrange(256)
        given.append(bytes(broken[: chosen.choice([len(broken), chosen.randrange(len(broken))])]))
    options = {"valueFormat": "avro", "avroSchema": json.dumps(AVRO_SCHEMA), "valuePrefix": "none"}
    rows = read(values(start_broker, whole, *given), None, **options)
    assert len(rows) == 301
    assert rows[0]["id"] == 1


def test_strings(start_broker: Start) -> None:
    broker = values(start_broker, "é".encode(), None, CONFLUENT + b"text")
    rows = read(broker, None, valueFormat="string", keyFormat="string", columns="key,value,offset")
    assert rows[:2] == [{"key": "k", "value": "é", "offset": 0}, {"key": "k", "value": None, "offset": 1}]
    stripped = read(
        broker,
        "value string, _schema_id int, _corrupt_record string",
        valueFormat="string",
        valuePrefix="confluent",
    )
    assert stripped[1:] == [
        {"value": None, "_schema_id": None, "_corrupt_record": None},
        {"value": "text", "_schema_id": 258, "_corrupt_record": None},
    ]
    assert stripped[0] == {"value": None, "_schema_id": None, "_corrupt_record": "é"}


def test_names_of_fields_and_of_columns(start_broker: Start) -> None:
    """A name with the type of the record's column is that column; `columns` settles what is meant."""
    broker = values(start_broker, b'{"key": "from the value", "offset": 55, "value": 1.5}')
    assert read(broker, "key string, offset int, value double", valueFormat="json") == [
        {"key": "from the value", "offset": 55, "value": 1.5}
    ]
    assert read(broker, "key binary, offset bigint, value double", valueFormat="json") == [
        {"key": b"k", "offset": 0, "value": 1.5}
    ]
    assert read(broker, "key binary, offset bigint", valueFormat="json", columns="key") == [
        {"key": b"k", "offset": 55}
    ]


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (None, {"valueFormat": "json"}, "valueFormat=json needs the fields"),
        ("a map<string,int>", {"valueFormat": "json"}, "cannot make a map<string,int>"),
        ("a int not null", {"valueFormat": "json"}, "column a must be nullable"),
        ("key int", {"valueFormat": "json", "columns": "key"}, "column key has type binary, not int"),
        ("_schema_id string", {"valueFormat": "json"}, "column _schema_id has type int"),
        ("_schema_id int", {}, "there is no column _schema_id"),
        ("value binary", {"valueFormat": "string"}, "column value has type string, not binary"),
        ("id int", {"valueFormat": "protobuf"}, "valueFormat must be one of binary, string, json, avro"),
        ("id int", {"valueFormat": "avro"}, "valueFormat=avro and avroSchema need each other"),
        ("value binary", {"timeZone": "Europe/Berlin"}, "timeZone is for valueFormat=json"),
        (
            "id int",
            {"valueFormat": "json", "timeZone": "Berlin"},
            "timeZone must be a region such as .*, not Berlin",
        ),
        ("id int", {"avroSchema": "{}"}, "valueFormat=avro and avroSchema need each other"),
        ("id int", {"valueFormat": "avro", "avroSchema": "{"}, "avroSchema is not JSON"),
        (None, {"valueFormat": "avro", "avroSchema": '"int"'}, "must be the schema of a record"),
        ("value binary", {"valuePrefix": "confluent"}, "valuePrefix needs a valueFormat"),
    ],
)
def test_what_cannot_be_made_is_refused(schema: str | None, options: dict[str, str], message: str) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options}
    with pytest.raises(ConnectorError, match=message):
        parsed = parse_options(given)
        shape_of(schema_of(schema or default_schema(parsed)), parsed)


def test_a_union_has_no_type() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]}
    options = {"valueFormat": "avro", "avroSchema": json.dumps(schema)}
    parsed = parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options})
    with pytest.raises(ConnectorError, match="a union of 2 types"):
        default_schema(parsed)


def test_avro_says_what_to_install(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "fastavro":
            raise ImportError(name)
        return real_import(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    options = {"valueFormat": "avro", "avroSchema": json.dumps(AVRO_SCHEMA)}
    with pytest.raises(ConnectorError, match=r"pip install 'pyspark-kompakt\[avro\]'"):
        read(values(start_broker, encoded()), "id bigint", **options)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_json_in_batch_and_stream(spark: Any, kompakt_broker: Any) -> None:
    """Spark itself sees the fields, and a stream of them; a projection reaches the stream as well."""
    bootstrap = kompakt_broker.bootstrap
    topic = create_topic(bootstrap)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(90):
        value = b"broken" if number % 30 == 0 else b'{"id": %d, "inner": {"day": "2026-02-01"}}' % number
        producer.produce(topic, value, b"k", partition=number % 3)
    assert producer.flush(30) == 0
    schema = "id bigint, inner struct<day: date>, key binary, _corrupt_record string"
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "valueFormat": "json"}
    frame = spark.read.format("kompakt").options(**options).schema(schema).load()
    sums = "sum(id) AS total, count(_corrupt_record) AS bad, count(inner.day) AS days, count(key) AS keys"
    good = [number for number in range(90) if number % 30]
    row = frame.selectExpr(*sums.split(", ")).collect()[0]
    assert (row.total, row.bad, row.days, row.keys) == (sum(good), 3, 87, 90)
    stream = spark.readStream.format("kompakt").options(**options, startingOffsets="earliest")
    name = f"rows_{uuid.uuid4().hex}"
    writer = stream.schema(schema).load().writeStream.format("memory").queryName(name)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert spark.table(name).columns == ["id", "inner", "key", "_corrupt_record"]
    row = spark.table(name).selectExpr(*sums.split(", ")).collect()[0]
    assert (row.total, row.bad, row.days, row.keys) == (sum(good), 3, 87, 90)
