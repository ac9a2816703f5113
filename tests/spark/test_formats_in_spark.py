"""Goal: values that became columns are what Spark takes them for, and text that is none fails no job.

Method: a Spark session reads a topic of Avro data with a map, a decimal and an enum, some of it broken, and a
topic of strings that are no UTF-8, in batch and as a stream; strings are held against Spark's own cast, times
in JSON, and random values that fit their columns in part, against its `from_json`.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import confluent_kafka
import fastavro
import pytest
from pyspark.sql.functions import col, from_json, get_json_object, unix_micros

from spark_connector.pipelines.change_log import apply_changes
from spark_connector.pipelines.keyed_table import KeyedTable
from tests.spark.test_spark import create_topic, run_stream

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("queries"),
]
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["BID", "ASK"]}},
        {"name": "offset", "type": "long"},  # and columns of the record
        {"name": "timestamp", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "topic", "type": "string"},
    ],
}
TEXTS = (
    "é€😀".encode(),
    None,
    b"",
    b"\xff\xfe",
    b"caf\xe9",  # Latin-1
    b"\xed\xa0\x80",  # half a surrogate pair
    b"\xc0\x80",  # an overlong zero
    b"cut \xe2\x82",
    b"a\0b",
)


def order(number: int) -> bytes:
    row = {
        "id": number,
        "counts": {"a": number, "b": -number},
        "price": Decimal(number).scaleb(-2),
        "kind": ("BID", "ASK")[number % 2],
        "offset": 1000 + number,
        "timestamp": number or 10**18,  # beyond Python's years
        "topic": "orders",
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), row)
    return b"\0\0\0\1\2" + stream.getvalue()


def send(bootstrap: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> str:
    """A topic with the values, in turn in its three partitions."""
    topic = create_topic(bootstrap)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, keys[number] if keys else None, partition=number % 3)
    assert producer.flush(60) == 0
    return topic


def test_avro_in_batch_and_stream(spark: Any, kompakt_broker: Any, tmp_path: Path) -> None:
    """The schema comes from `avroSchema`; Spark computes with the map, the decimal and the enum."""
    bootstrap = kompakt_broker.bootstrap
    given = [order(number) for number in range(60)]
    given[7] = b"\0\0\0\1\2broken"
    given[8] = order(8)[:-1]
    topic = send(bootstrap, given)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    options |= {"valueFormat": "avro", "avroSchema": json.dumps(ORDER)}
    frame = spark.read.format("kompakt").options(**options).load()
    assert frame.schema.simpleString() == (
        "struct<id:bigint,counts:map<string,int>,price:decimal(9,2),kind:string,"
        "offset:bigint,timestamp:timestamp,topic:string>"
    )
    good = [number for number in range(60) if number not in (7, 8)]
    expected = [(number, {"a": number, "b": -number}, number, "BA"[number % 2]) for number in good]

    def check(read: Any) -> None:
        rows = read.where("id IS NOT NULL").drop("timestamp").orderBy("id").collect()
        cents = [(row.id, row.counts, int(row.price * 100), row.kind[0]) for row in rows]
        assert cents == expected
        named = read.where("id IS NOT NULL").select("id", "offset", unix_micros("timestamp"), "topic")
        assert [tuple(row) for row in named.orderBy("id").collect()] == [
            (number, 1000 + number, number or 10**18, "orders") for number in good
        ]
        (sums,) = read.selectExpr("sum(price) AS price", "sum(counts['b']) AS b", "count(*) AS n").collect()
        assert (sums.price, sums.b, sums.n) == (Decimal(sum(good)).scaleb(-2), -sum(good), 60)

    check(frame)
    del options["kafka.bootstrap.servers"], options["subscribe"]
    run_stream(spark, bootstrap, topic, tmp_path, **options)
    check(spark.read.parquet(str(tmp_path / "rows")))


def test_strings_that_are_no_utf_8(spark: Any, kompakt_broker: Any, tmp_path: Path) -> None:
    """Their bytes stay, as in Spark's own `CAST(value AS STRING)`: to look at one fails no job."""
    bootstrap = kompakt_broker.bootstrap
    topic = send(bootstrap, TEXTS, TEXTS[::-1])
    binary = spark.read.format("kompakt").option("kafka.bootstrap.servers", bootstrap)
    binary = binary.option("subscribe", topic).load().orderBy("partition", "offset")
    looked_at = [f"{look}({name})" for name in ("key", "value") for look in ("hex", "length", "upper", "")]
    casts = binary.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    expected = casts.selectExpr(*looked_at).collect()
    assert [row.value for row in casts.collect()].count(None) == 1

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    options |= {"valueFormat": "string", "keyFormat": "string"}
    texts = spark.read.format("kompakt").options(**options).load().orderBy("partition", "offset")
    assert texts.selectExpr(*looked_at).collect() == expected
    run_stream(spark, bootstrap, topic, tmp_path, valueFormat="string", keyFormat="string")
    written = spark.read.parquet(str(tmp_path / "rows")).orderBy("partition", "offset")
    assert written.selectExpr(*looked_at).collect() == expected


TIMES = (
    "2026-01-01 12:00:00",
    "2026-07-01T12:00:00",
    "2026-07-01T12:00:00Z",
    "2026-01-01T12:00:00+02:00",
    "2026-01-01T12:00:00.5-0530",
    "2026-01-01T12:00",
    "2026-01-01",
    "2026-01-01T12:00:00.123456789",
    "2026-01-01T12:00:00.9999999Z",
    "2026-03-08T02:30:00",  # skipped in New York
    "2026-11-01T01:30:00",  # there twice in New York
    "1969-12-31T23:59:59.999",
    "2037-07-01T00:00:00",  # Arrow's last summer time
    "2050-03-13T02:30:00",  # skipped in New York
    "2050-07-01T12:00:00",
    "2050-11-06T01:30:00",  # there twice in New York
    "2050-12-01T12:00:00",
    "0001-01-02T00:00:00",
    "9999-12-30T00:00:00",
    "2024-01-01 10:00:00 UTC",
    "2024-01-01T10:00:00 Europe/Berlin",
    "2024-07-01T10:00:00America/New_York",
    "2024-03-31 02:30:00 Europe/Berlin",  # skipped
    "2024-10-27 02:30:00 Europe/Berlin",  # there twice
    "2024-01-01 10:00:00.5 +01:00",
    "2024-01-01T10:00:00 Z",
    "2024-01-01T10:00:00z",
    "2024-01-01T10:00:00 PST",
    "2024-01-01T10:00:00+1",
    "2024-01-01T10:00:00 +1:30",
    "2024-01-01T10:00:00+01:00:00",
    "2024-01-01T10:00:00 +130",
    "2024-01-01T10:00:00 +18:30",
    "2024-01-01T10:00:00 Nowhere/Else",
    "2024-01-01T10:00:00GMT+1",
    "2024-01-01T10:00:00.",
    "2024-01-01T10:00:00,5",
    "2024-01-01T10:00:00.1234567 Z",
    "\t 2024-01-01T10:00:00Z",
    "2024-01-01T10:00:00Z  ",
    " 2024-01-01 ",
    "2024",
    "2024-05",
    "2024-5-7 1:2:3",
    "2024-01-01T",
    "2024-01-01T10",
    "2024-01-01T10:",
    "2024-02-30T10:00:00 Z",
    "2024-01-01T24:00:00 Z",
    "202401",
    "0000-01-01T00:00:00Z",
    "+10000-01-01T00:00:00Z",
    "-0001-01-01T00:00:00Z",
    "-0001-01-01T00:00:00",
    "12024-01-01",
    "12024-07-01T12:00:00 America/New_York",
    "12024-07-01T12:00:00",
    "250000-02-29T00:00:00",
    "294248-01-01T00:00:00Z",  # of 65 bits
    "#5",
)
TIME_FIELDS = (
    "at timestamp, local timestamp_ntz, inner struct<at: timestamp, day: date>, list array<timestamp>"
)


@pytest.fixture
def session_setting(spark: Any) -> Iterator[Callable[[str, str], None]]:
    """Sets something in the session for the test."""
    before: dict[str, str] = {}

    def change(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name))
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def session_zone(session_setting: Callable[[str, str], None]) -> Callable[[str], None]:
    """Sets the session's time zone for the test."""
    return lambda zone: session_setting("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize("how", ["session", "option", "stream"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "+05:30", "GMT+1"])
def test_times_are_those_of_from_json(
    spark: Any,
    kompakt_broker: Any,
    tmp_path: Path,
    session_zone: Callable[[str], None],
    zone: str,
    how: str,
) -> None:
    """A time without a zone is one of the session's, or of that in the option `timeZone`."""
    bootstrap = kompakt_broker.bootstrap
    given = [
        {
            "at": text,
            "local": text,
            "inner": {"at": text, "day": text} if number % 3 else None,
            "list": [None, text],
        }
        for number, text in enumerate(TIMES)
    ]
    topic = send(bootstrap, [json.dumps(value).encode() for value in given])
    options = {"timeZone": zone} if how == "option" else {}
    session_zone("UTC" if how == "option" else zone)
    reader = spark.readStream if how == "stream" else spark.read
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    schema = f"{TIME_FIELDS}, partition int, offset bigint"
    frame = reader.format("kompakt").options(**source, **options, valueFormat="json").schema(schema).load()
    if how == "stream":
        sink = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start(str(tmp_path / "rows"))
        assert query.awaitTermination(120)
        frame = spark.read.parquet(str(tmp_path / "rows"))
    binary = spark.read.format("kompakt").options(**source).load()
    parsed = from_json(col("value").cast("string"), TIME_FIELDS, options).alias("parsed")
    text = get_json_object(col("value").cast("string"), "$.at").alias("text")
    theirs = binary.select(parsed, text, "partition", "offset").orderBy("partition", "offset")
    shown = [f"to_json(struct({name}))" for name in ("at", "local", "inner", "list")]
    ours = frame.orderBy("partition", "offset").selectExpr(*shown).collect()
    texts = [row.text for row in theirs.select("text").collect()]
    expected = theirs.select("parsed.*").selectExpr(*shown).collect()
    rows = zip(texts, ours, expected, strict=True)
    assert {text: (one, other) for text, one, other in rows if one != other} == {}
    assert len(ours) == len(TIMES)


JSON_FIELDS = (
    "a string, n int, sh smallint, by tinyint, d double, f float, p decimal(5,2), at timestamp, day date, "
    "b boolean, s struct<a: string, n: int, s: struct<d: date, l: array<int>>>, l array<int>, "
    "ll array<array<string>>, ls array<struct<n: int, at: timestamp>>, _corrupt_record string"
)
JSON_NAMES = ("a", "n", "sh", "by", "d", "f", "p", "at", "day", "b", "s", "l", "ll", "ls", "unknown")
JSON_SCALARS = (
    *("null", "true", "false", "1", "-7", "0", "70000", "1.5", "99.995", "999.996", "1700000000", "1" * 25),
    *('""', '"x"', '"1.25"', '"true"', '"NaN"', '"-INF"', '"é\\u00e9\\n"'),
    *('"2026-02-01"', '"2026-2-1"', '"2026-02-30"', '"2026-02-01 12:00:00.5"', '"2026-02-01T12:00:00+01:00"'),
)


def random_json(chosen: random.Random, depth: int) -> str:
    """Values of any type under names of any field; some names twice."""
    kind = chosen.random()
    if depth and kind < 0.6:
        return chosen.choice(JSON_SCALARS)
    if depth and (kind < 0.8 or depth > 3):
        parts = [random_json(chosen, depth + 1) if depth < 4 else "1" for _ in range(chosen.randrange(3))]
        return f"[{', '.join(parts)}]"
    names = chosen.choices(JSON_NAMES, k=chosen.randrange(1, 5))
    return "{" + ", ".join(f'"{name}": {random_json(chosen, depth + 1)}' for name in names) + "}"


def test_json_that_fits_in_part_is_that_of_from_json(spark: Any, kompakt_broker: Any) -> None:
    bootstrap = kompakt_broker.bootstrap
    chosen = random.Random(11)
    given = [random_json(chosen, 0) for _ in range(3000)]
    topic = send(bootstrap, [text.encode() for text in given])
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    places = "partition int, offset bigint"
    ours = spark.read.format("kompakt").options(**source, valueFormat="json", columns="partition,offset")
    binary = spark.read.format("kompakt").options(**source).load()
    text = col("value").cast("string")
    parsed = from_json(text, JSON_FIELDS).alias("parsed")
    theirs = binary.select(parsed, text.alias("text"), "partition", "offset")
    shown = [f"to_json(struct({name})) AS {name}" for name in (*JSON_NAMES[:-1], "_corrupt_record")]
    expected = theirs.select("parsed.*", "text", "partition", "offset").orderBy("partition", "offset")
    found = ours.schema(f"{JSON_FIELDS}, {places}").load().orderBy("partition", "offset")
    texts = [row.text for row in expected.select("text").collect()]
    rows = zip(texts, found.selectExpr(*shown).collect(), expected.selectExpr(*shown).collect(), strict=True)
    different = {json_text: (one, other) for json_text, one, other in rows if one != other}
    assert different == {}
    malformed = found.where("_corrupt_record IS NOT NULL").count()
    assert 1000 < malformed < 2900


def test_times_of_records_are_instants_in_a_session_of_times_without_a_zone(
    spark: Any, kompakt_broker: Any, tmp_path: Path, session_setting: Callable[[str, str], None]
) -> None:
    """As Spark's own source has them, whatever a session takes a plain `timestamp` for."""
    bootstrap = kompakt_broker.bootstrap
    fields = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]
    schema = {"type": "record", "name": "R", "fields": fields}
    topic = send(bootstrap, [b"\0\0\0\1\2\x0a", None, None])  # 5 ms
    changes = send(bootstrap, [b'{"at": "2026-02-01T12:00:00"}'], [b"k"])
    session_setting("spark.sql.timestampType", "TIMESTAMP_NTZ")
    reader = (
        spark.read.format("kompakt").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    )
    plain = reader.load()
    assert plain.schema["timestamp"].dataType.typeName() == "timestamp"
    assert plain.count() == 3
    avro = reader.options(valueFormat="avro", avroSchema=json.dumps(schema)).load().where("at IS NOT NULL")
    assert avro.schema.simpleString() == "struct<at:timestamp>"
    assert [row.ms for row in avro.selectExpr("unix_millis(at) AS ms").collect()] == [5]
    source = {"kafka.bootstrap.servers": bootstrap}
    for is_full in (True, False):  # each counts the rows in the files
        apply_changes(spark, changes, source, tmp_path / "table", "at timestamp", is_full=is_full)
    table = KeyedTable(tmp_path / "table").read(spark)
    assert [table.schema[name].dataType.typeName() for name in ("timestamp", "at")] == [
        "timestamp",
        "timestamp_ntz",
    ]
    assert table.count() == 1
