"""Goal: an Avro schema has the columns that Spark's `from_avro` makes of it.

Method: schemas in, DDL out; what names mean is held against fastavro, which reads the values, and what unions
become against data that it wrote.
"""

from __future__ import annotations

import datetime
import io
import json
from typing import Any

import fastavro
import pyarrow
import pytest

from spark_connector.avro_schema import ddl_of_record, readable
from spark_connector.errors import ConnectorError
from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.shape import shape_of
from tests.spark.conftest import options_for
from tests.spark.ddl import schema_of
from tests.spark.test_value_formats import Start, read, values


def record(*types: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record whose fields are a, b, c."""
    fields = [{"name": field, "type": kind} for field, kind in zip("abc", types, strict=False)]
    return {"type": "record", "name": name, "fields": fields, **more}


def kind(name: str = "Kind", **more: str) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": ["A"], **more}


NAMES = {
    "a bare name": record(kind(), "Kind"),
    "the full name of an inner type": record(kind(), "com.x.Kind", namespace="com.x"),
    "the short name of an inner type": record(kind(), "Kind", namespace="com.x"),
    "the short name of a dotted one": record(kind("com.x.Kind"), "Kind", name="com.x.R"),
    "a dotted name beats a namespace": record(kind("com.x.Kind"), "com.x.Kind", namespace="com.y"),
    "a namespace of its own": record(
        {"type": "array", "items": kind(namespace="m")}, {"type": "map", "values": "m.Kind"}, namespace="n"
    ),
    "inherited over two records": record(
        record(record(kind(), "Kind", name="Third"), "Kind", "m.Kind", name="m.Second"),
        "m.Kind",
        ["null", "m.Third"],
        name="n.First",
    ),
    "the same name twice": record(
        kind(),
        record({"type": "fixed", "size": 2, "name": "Kind"}, "Kind", name="m.I"),
        "Kind",
        namespace="n",
    ),
}
COLUMNS = {
    "a namespace of its own": ["`a` array<string>", "`b` map<string, string>"],
    "inherited over two records": [
        "`a` struct<`a`: struct<`a`: string, `b`: string>, `b`: string, `c`: string>",
        "`b` string",
        "`c` struct<`a`: string, `b`: string>",
    ],
    "the same name twice": ["`a` string", "`b` struct<`a`: binary, `b`: binary>", "`c` string"],
}


@pytest.mark.parametrize("case", NAMES)
def test_names_are_found(case: str) -> None:
    schema = NAMES[case]
    fastavro.parse_schema(readable(schema))
    assert ddl_of_record(json.dumps(schema)) == COLUMNS.get(case, ["`a` string", "`b` string"])


@pytest.mark.parametrize(
    "schema",
    [
        record(kind(), "Kind2"),
        record(kind(namespace="m"), "Kind", namespace="n"),
        record(record(kind(), name="m.I"), "Kind"),
    ],
)
def test_names_that_mean_nothing_are_refused(schema: Any) -> None:
    """As by fastavro, so that no query is planned that its tasks would refuse."""
    with pytest.raises(fastavro.schema.UnknownType):
        fastavro.parse_schema(readable(schema))
    with pytest.raises(ConnectorError, match=r"avroSchema: Kind2? is no type that Spark has"):
        ddl_of_record(json.dumps(schema))


def test_a_type_within_itself_is_refused() -> None:
    with pytest.raises(ConnectorError, match="a type contains itself"):
        ddl_of_record(json.dumps(record("int", ["null", "n.R"], namespace="n")))


UNIONS: list[tuple[list[str], str, list[Any]]] = [
    (["null", "int", "long"], "bigint", [None, 1, 2**40]),
    (["long", "int"], "bigint", [2**40, 1, -1]),
    (["null", "float", "double"], "double", [None, 0.5, 1e300]),
    (["double", "null", "float"], "double", [0.25, None, 3.0]),
    (["string", "null"], "string", ["x", None, ""]),
]


@pytest.mark.parametrize(("union", "expected", "given"), UNIONS)
def test_unions_of_numbers_are_the_wider_one(
    start_broker: Start, union: list[str], expected: str, given: list[Any]
) -> None:
    schema = record(union)
    assert ddl_of_record(json.dumps(schema)) == [f"`a` {expected}"]
    texts = []
    for value in given:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"a": value})
        texts.append(stream.getvalue())
    options = {"valueFormat": "avro", "avroSchema": json.dumps(schema), "valuePrefix": "none"}
    rows = read(values(start_broker, *texts), None, **options)
    assert [row["a"] for row in rows] == given


@pytest.mark.parametrize(
    "union", [["int", "string"], ["null", "int", "double"], ["int", "long", "float"], ["null"]]
)
def test_other_unions_are_refused(union: list[str]) -> None:
    with pytest.raises(
        ConnectorError, match=r"a union of \d types is no column here .* name the columns without the field"
    ):
        ddl_of_record(json.dumps(record(union)))


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
NEVER = {
    "a number as text": ("int", "string"),
    "text as a number": (["null", "string"], "bigint"),
    "a decimal, whose digits would go": (DECIMAL, "int"),
    "a time, whose hours would go": (MILLIS, "date"),
    "a long, in from_avro milliseconds": ("long", "timestamp"),
    "a decimal within": ({"type": "array", "items": record(DECIMAL, name="I")}, "array<struct<a: bigint>>"),
    "a field that is not within": (record("int", name="I"), "struct<b: int>"),
    "a map as a struct": ({"type": "map", "values": "int"}, "struct<a: int>"),
    "every branch": (["null", "int", "double"], "string"),
    "a branch that would be cut": (["null", "int", "double"], "bigint"),
    "a decimal branch": (["long", DECIMAL], "bigint"),
    "a day as a number": (["int", {"type": "int", "logicalType": "date"}], "int"),
    "a number as a time": (["null", MILLIS, "long"], "timestamp"),
    "a time as a day": ([{"type": "int", "logicalType": "date"}, MILLIS], "date"),
    "a boolean as a number": (["boolean", "double"], "double"),
    "a text as its letters": (["string", {"type": "array", "items": "string"}], "array<string>"),
    "a map whose keys would go": (
        [{"type": "map", "values": "int"}, record("int", name="I")],
        "struct<a: int>",
    ),
    "a branch within a branch": (
        ["null", record(["int", "float"], name="I"), record("int", name="J")],
        "struct<a: int>",
    ),
    "a branch of lists": (
        [{"type": "array", "items": "int"}, {"type": "array", "items": ["null", "double"]}],
        "array<int>",
    ),
}


@pytest.mark.parametrize("case", NEVER)
def test_a_column_that_no_value_fits_is_refused(start_broker: Start, case: str) -> None:
    """Each gave rows of nulls, or numbers and times cut short, and no error."""
    schema, wanted = NEVER[case]
    options = {"valueFormat": "avro", "avroSchema": json.dumps(record(schema)), "valuePrefix": "none"}
    with pytest.raises(ConnectorError, match=r"column a cannot be .*: in avroSchema it is .*cast it"):
        read(values(start_broker), f"a {wanted}", **options)


PASSED_OVER: list[tuple[dict[str, Any], str, Any]] = [
    ({"type": "int", "logicalType": "timestamp-millis"}, "int", 5),
    ({"type": "int", "logicalType": "local-timestamp-micros"}, "int", -5),
    ({"type": "long", "logicalType": "date"}, "bigint", 2**40),
    ({"type": "string", "logicalType": "date"}, "string", "x"),
    ({"type": "array", "items": "int", "logicalType": "date"}, "array<int>", [1]),
    ({"type": "int", "logicalType": ["date"]}, "int", 5),
    ({"type": "string", "logicalType": "decimal", "precision": 4}, "string", "x"),
    ({"type": "bytes", "logicalType": "decimal"}, "binary", b"\1"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 0}, "binary", b"\1"),
    ({"type": "bytes", "logicalType": "decimal", "precision": "4"}, "binary", b"\1"),
    ({"type": "bytes", "logicalType": "decimal", "precision": True}, "binary", b"\1"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, "binary", b"\1"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": -1}, "binary", b"\1"),
    ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5}, "binary", b"\0\1"),
    ({"type": "fixed", "name": "F", "size": 0, "logicalType": "decimal", "precision": 1}, "binary", b""),
]
"""logical types beside what they do not belong to; `from_avro` of Spark 4.3 was seen to make these columns"""
TIMES_OF_DAY: list[tuple[dict[str, Any], str, Any]] = [
    ({"type": "int", "logicalType": "time-millis"}, "int", 86_399_999),
    ({"type": "long", "logicalType": "time-micros"}, "bigint", 86_399_999_999),
]
"""the first as from_avro has it, which makes time(6) of the second from Spark 4.2 on"""


@pytest.mark.parametrize(("schema", "expected", "value"), [*PASSED_OVER, *TIMES_OF_DAY])
def test_a_logical_type_where_it_does_not_belong_is_passed_over(
    start_broker: Start, schema: dict[str, Any], expected: str, value: Any
) -> None:
    """Each was believed: a time or a day of other numbers, nulls, or KeyError: 'precision'."""
    whole = record(schema)
    assert ddl_of_record(json.dumps(whole)) == [f"`a` {expected}"]
    plain = {name: part for name, part in schema.items() if name != "logicalType"}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(record(plain)), {"a": value})
    options = {"valueFormat": "avro", "avroSchema": json.dumps(whole), "valuePrefix": "none"}
    broker = values(start_broker, stream.getvalue())
    for ddl in (None, f"a {expected}"):
        assert read(broker, ddl, **options) == [{"a": value}]
    wrong = "decimal(4,0)" if schema["logicalType"] == "decimal" else "timestamp"
    with pytest.raises(ConnectorError, match="name it as what it is"):
        read(broker, f"a {wrong}", **options)


@pytest.mark.parametrize(("size", "digits"), [(1, 2), (2, 4), (8, 18), (16, 38), (5000, 12040)])
def test_a_decimal_has_as_many_digits_as_its_bytes_hold(size: int, digits: int) -> None:
    fixed = {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal", "precision": digits}
    assert ddl_of_record(json.dumps(record(fixed))) == [f"`a` decimal({digits},0)"]
    assert ddl_of_record(json.dumps(record({**fixed, "precision": digits + 1}))) == ["`a` binary"]


DAY = {"type": "int", "logicalType": "date"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
FAR = (253402300800000, -62135596800001, -(2**53), 0)  # the year 10000, and the one before the first


def without_times(schema: Any) -> Any:
    """The same schema of plain numbers, to write what fastavro takes for no time."""
    text = json.dumps(schema)
    for one in (DAY, MILLIS, LOCAL, MICROS):
        text = text.replace(json.dumps(one), json.dumps(one["type"]))
    return json.loads(text)


def test_days_and_times_beyond_those_of_python(start_broker: Start) -> None:
    """One made the whole row null; `from_avro` reads it. A time of 65 bits is null, and the rest stays."""
    inner = record(["null", MILLIS], {"type": "map", "values": LOCAL}, name="I")
    schema = record(MILLIS, ["null", DAY], {"type": "array", "items": ["null", inner]})
    schema["fields"] += [{"name": "d", "type": LOCAL}, {"name": "e", "type": ["null", MICROS]}]
    writer = fastavro.parse_schema(without_times(schema))
    texts = []
    days = [2932897, -719163, 2**31 - 1, -(2**31), 0]
    for ms, day in zip((*FAR, 2**60), days, strict=True):
        row = {"a": ms, "b": day, "c": [None, {"a": ms, "b": {"k": ms}}, {"a": None, "b": {}}]}
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, writer, {**row, "d": ms, "e": ms})
        texts.append(stream.getvalue())
    options = {"valueFormat": "avro", "avroSchema": json.dumps(schema), "valuePrefix": "none"}
    parsed = parse_options(options_for(values(start_broker, *texts), **options))
    ddl = f"{', '.join(ddl_of_record(json.dumps(schema)))}, _corrupt_record binary"
    chosen = BatchReader(parsed, shape_of(schema_of(ddl), parsed))
    (made,) = [made for task in chosen.partitions() for made in chosen.read(task)]
    assert made.column("_corrupt_record").to_pylist() == [None] * len(FAR) + [texts[-1]]
    plain = pyarrow.int64()  # Python's own times are not as many
    within = pyarrow.list_(pyarrow.struct([("a", plain), ("b", pyarrow.map_(pyarrow.string(), plain))]))
    kinds = {"a": plain, "b": pyarrow.int32(), "c": within, "d": plain, "e": plain}
    a, b, c, d, e = (made.column(name).cast(kind).to_pylist() for name, kind in kinds.items())
    assert a == d == [*(ms * 1000 for ms in FAR), None]
    assert b == days
    assert c == [
        *([None, {"a": ms * 1000, "b": [("k", ms * 1000)]}, {"a": None, "b": []}] for ms in FAR),
        None,
    ]
    assert e == [*FAR, 2**60]


def test_a_branch_that_is_refused_by_row_leaves_the_others(start_broker: Start) -> None:
    """The values of a union that cannot be mistaken for the column's are malformed, and plain to see."""
    schema = record(["null", "string", "int"], [record("int", name="I"), record("string", name="J"), "int"])
    texts = []
    for row in ({"a": 7, "b": ("I", {"a": 1})}, {"a": "x", "b": ("J", {"a": "y"})}, {"a": None, "b": 5}):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
        texts.append(stream.getvalue())
    options = {"valueFormat": "avro", "avroSchema": json.dumps(schema), "valuePrefix": "none"}
    rows = read(
        values(start_broker, *texts), "a bigint, b struct<a: double>, _corrupt_record binary", **options
    )
    assert rows == [
        {"a": 7, "b": {"a": 1.0}, "_corrupt_record": None},
        {"a": None, "b": None, "_corrupt_record": texts[1]},
        {"a": None, "b": None, "_corrupt_record": texts[2]},
    ]


def test_a_column_may_be_a_wider_type(start_broker: Start) -> None:
    """And fields that are not named may be of any type, unions too."""
    named = record("int", name="I")
    schema = record(["null", "int"], {"type": "map", "values": {"type": "array", "items": named}}, "I")
    schema["fields"].append({"name": "d", "type": ["int", "string"]})
    stream = io.BytesIO()
    row = {"a": 7, "b": {"k": [{"a": 1}]}, "c": {"a": 2}, "d": "x"}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    options = {"valueFormat": "avro", "avroSchema": json.dumps(schema), "valuePrefix": "none"}
    ddl = "a double, b map<string, array<struct<a: bigint>>>, c struct<a: double>"
    rows = read(values(start_broker, stream.getvalue()), ddl, **options)
    assert rows == [{"a": 7.0, "b": [("k", [{"a": 1}])], "c": {"a": 2.0}}]


CLASHING = record()
CLASHING["fields"] = [
    {"name": "topic", "type": "string"},
    {"name": "offset", "type": "long"},
    {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "key", "type": ["null", "bytes"]},
    {"name": "value", "type": {"type": "map", "values": record("int", "Kind", "long", name="In")}},
]
CLASHING["fields"][4]["type"]["values"]["fields"][1]["type"] = kind()
CLASHING["fields"].append({"name": "timestampType", "type": "int"})


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "topic string, offset bigint, timestamp timestamp, key binary, "
        "value map<string, struct<a: int, b: string, c: bigint>>, timestampType int",
    ],
)
def test_a_field_called_as_a_column_of_the_record_is_a_field(start_broker: Start, schema: str | None) -> None:
    """Without a schema of the user; each was the record's own topic, offset and time, and no word of it."""
    row = {"topic": "weather", "offset": 4711, "timestamp": 5, "key": b"in", "timestampType": 9}
    inner = {"a": 1, "b": "A", "c": 2}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(CLASHING), {**row, "value": {"k": inner}})
    options = {"valueFormat": "avro", "avroSchema": json.dumps(CLASHING), "valuePrefix": "none"}
    broker = values(start_broker, stream.getvalue())
    (found,) = read(broker, schema, **options)
    assert found.pop("timestamp") == datetime.datetime(1970, 1, 1, microsecond=5000, tzinfo=datetime.UTC)
    del row["timestamp"]
    assert found == {**row, "value": [("k", inner)]}
    some = read(broker, "offset bigint, key binary, timestampType int", **options)
    assert some == [{"offset": 0, "key": b"k", "timestampType": 0}]
    fields = read(broker, "offset bigint, topic string", **options, columns="topic")
    assert fields == [{"offset": 4711, "topic": "t"}]


@pytest.mark.parametrize("name", ["_schema_id", "_corrupt_record"])
def test_a_field_called_as_what_tells_of_the_value_is_refused(start_broker: Start, name: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"}]}
    options = {"valueFormat": "avro", "avroSchema": json.dumps(schema), "valuePrefix": "none"}
    with pytest.raises(ConnectorError, match=f"avroSchema has a field {name}, .*name the columns without it"):
        read(values(start_broker), None, **options)


def test_values_without_a_prefix_say_what_to_do(
    start_broker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Avro without Confluent's five bytes was all nulls, and the warning said nothing of the prefix."""
    options = {"valueFormat": "avro", "avroSchema": json.dumps(record("int"))}
    assert read(values(start_broker, b"\2"), "a int", **options) == [{"a": None}]
    assert "valuePrefix=none is for those" in caplog.text
