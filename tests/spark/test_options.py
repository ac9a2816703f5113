"""Goal: options have the names, defaults and refusals of Spark's own Kafka source, and say what is wrong.

Method: option maps in, the frozen value or the message out. No broker.
"""

from __future__ import annotations

import pickle

import pytest

from spark_connector.errors import ConnectorError
from spark_connector.offsets import EARLIEST, LATEST, TopicPartition
from spark_connector.options import PLAIN_COLUMNS, Position, parse_options, parse_servers
from spark_connector.reader import BatchReader
from spark_connector.shape import Shape
from spark_connector.source import KompaktDataSource
from spark_connector.stream import StreamReader

BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def test_defaults() -> None:
    options = parse_options(BASE)
    assert options.starting is None
    assert options.ending is None
    assert options.fail_on_data_loss
    assert options.columns == PLAIN_COLUMNS
    assert not options.client.read_committed
    assert options.client.bootstrap_servers == (("a", 1),)
    assert options.min_partitions is options.max_offsets_per_trigger is None
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_are_known_in_any_case() -> None:
    options = parse_options({**BASE, "StartingOffsets": " Earliest ", "FAILONDATALOSS": "FALSE"})
    assert options.starting == Position("startingOffsets", EARLIEST)
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers is needed"),
        ({"kafka.bootstrap.servers": "a:1"}, "exactly one of assign, subscribe and subscribePattern"),
        ({**BASE, "assign": '{"t":[0]}'}, "assign and subscribe was given"),
        ({**BASE, "kafka.bootstrap.servers": "a"}, "host:port"),
        ({**BASE, "kafka.bootstrap.servers": "a:99999"}, "host:port"),
        ({**BASE, "subscribe": " , "}, "subscribe names no topic"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, "not a regular expression"),
        ({**BASE, "startingOffsets": "soon"}, "startingOffsets is neither"),
        ({**BASE, "startingOffsets": '{"t":{"0":-3}}'}, "below -2"),
        ({**BASE, "startingTimestamp": "-3"}, "startingTimestamp must be ms since 1970, -1 .* not -3"),
        ({**BASE, "endingTimestamp": "noon"}, "endingTimestamp must be ms since 1970, -1 .* not noon"),
        (
            {**BASE, "startingOffsetsByTimestamp": '{"t":{"0":-3}}'},
            r"startingOffsetsByTimestamp must be ms since 1970, -1 \(latest\) or -2 \(earliest\), not -3",
        ),
        (
            {
                **BASE,
                "startingOffsetsByTimestamp": '{"t":{"0":-1,"1":5,"2":8}}',
                "endingOffsetsByTimestamp": '{"t":{"0":3,"1":-1,"2":7}}',
            },
            "t-2: startingOffsetsByTimestamp 8 is behind endingOffsetsByTimestamp 7",
        ),
        ({**BASE, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be positive"),
        ({**BASE, "minOffsetsPerTrigger": "some"}, "minOffsetsPerTrigger must be a number"),
        ({**BASE, "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({**BASE, "failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({**BASE, "minPartitions": "0"}, "minPartitions must be positive"),
        ({**BASE, "minPartitions": "many"}, "minPartitions must be a number"),
        ({**BASE, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "must not be above"),
        ({**BASE, "maxTriggerDelay": "a while"}, "maxTriggerDelay must be a duration"),
        ({**BASE, "maxTriggerDelay": "2 weeks"}, "maxTriggerDelay must be a duration"),
        ({**BASE, "startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({**BASE, "columns": "key,vaule"}, "there is no column vaule"),
        ({**BASE, "columns": "key,key"}, "each column once"),
        ({**BASE, "kafka.isolation.level": "serializable"}, "read_committed or read_uncommitted"),
        ({**BASE, "kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({**BASE, "kafka.key.deserializer": "x"}, "cast them in the query"),
        ({**BASE, "kafka.value.deserializer": "x"}, "cast them in the query"),
        ({**BASE, "kafka.enable.auto.commit": "true"}, "finished: commitOffsets"),
        ({**BASE, "kafka.interceptor.classes": "x"}, "interceptors"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConnectorError, match=message):
        parse_options(options)


def test_times_beat_offsets() -> None:
    given = {"startingOffsets": "latest", "startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    starting = parse_options({**BASE, **given}).starting
    assert starting == Position("startingOffsetsByTimestamp", timestamps=((TopicPartition("t", 0), 5),))
    everywhere = parse_options({**BASE, **given, "startingTimestamp": "9"}).starting
    assert everywhere == Position("startingTimestamp", timestamp_ms=9)


def test_times_may_be_the_words_of_list_offsets() -> None:
    """-1 and -2 go to the broker as they are, which takes them for the end and the start of a log."""
    options = parse_options({**BASE, "startingTimestamp": " -2 ", "endingTimestamp": "-1"})
    assert options.starting == Position("startingTimestamp", timestamp_ms=EARLIEST)
    assert options.ending == Position("endingTimestamp", timestamp_ms=LATEST)
    for side in ("starting", "ending"):
        name = f"{side}OffsetsByTimestamp"
        options = parse_options({**BASE, name: '{"t":{"0":-1,"1":-2}}'})
        times = ((TopicPartition("t", 0), LATEST), (TopicPartition("t", 1), EARLIEST))
        assert getattr(options, side) == Position(name, timestamps=times)


def test_a_time_before_1970_is_no_word() -> None:
    for text in ("1969-12-31T23:59:59.998Z", "1969-12-31T23:59:59.997Z", "1950-01-01T00:00:00Z"):
        assert parse_options({**BASE, "asOf": text}).ending == Position("asOf", timestamp_ms=0)


@pytest.mark.parametrize("least", ["0", "-1"])
def test_a_trigger_may_wait_for_nothing(least: str) -> None:
    """As with Spark's own source: 0 and less are no minimum, and none is above maxOffsetsPerTrigger."""
    options = parse_options({**BASE, "minOffsetsPerTrigger": least, "maxOffsetsPerTrigger": "4"})
    assert options.min_offsets_per_trigger is None


def test_servers() -> None:
    assert parse_servers("a:1, [::1]:2 ,") == (("a", 1), ("::1", 2))
    assert parse_servers("PLAINTEXT://a:1, SASL_SSL://[::1]:2") == (("a", 1), ("::1", 2))
    for wrong in ("PLAINTEXT://a", "PLAINTEXT://:1", "a:b://c"):
        with pytest.raises(ConnectorError, match=f"must be host:port,..., not {wrong}"):
            parse_servers(wrong)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500", 500), ("90s", 90_000), ("15m", 900_000), ("2 h", 7_200_000), ("-1", -1), ("-2s", -2000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_options({**BASE, "maxTriggerDelay": text}).max_trigger_delay_ms == milliseconds


def test_fetch_sizes_follow_the_consumer_settings() -> None:
    sizes = {"kafka.max.partition.fetch.bytes": "2000", "kafka.fetch.max.bytes": "1000"}
    assert parse_options({**BASE, **sizes}).client.fetch_bytes == 1000


def test_values_that_kafka_takes_for_no_limit() -> None:
    """0 is one batch at a time, and a pause that is none; -1 the system's buffer."""
    names = ("retry.backoff.ms", "retry.backoff.max.ms", "fetch.max.bytes")
    client = parse_options({**BASE, **{f"kafka.{name}": "0" for name in names}}).client
    assert (client.retry_backoff_ms, client.retry_backoff_max_ms, client.fetch_bytes) == (1, 1, 1)
    assert parse_options({**BASE, "kafka.max.partition.fetch.bytes": "0"}).client.fetch_bytes == 1
    for text, expected in (("-1", -1), ("65536", 65536)):
        client = parse_options({**BASE, "kafka.receive.buffer.bytes": text}).client
        assert client.receive_buffer_bytes == expected
    for name, text in (
        ("receive.buffer.bytes", "0"),
        ("receive.buffer.bytes", "-2"),
        ("fetch.max.bytes", "-1"),
    ):
        with pytest.raises(ConnectorError, match=f"kafka.{name} must be"):
            parse_options({**BASE, f"kafka.{name}": text})


def test_schemas() -> None:
    def schema(**options: str) -> str:
        return KompaktDataSource({**BASE, **options}).schema()

    plain = (
        "key binary, value binary, topic string, partition int, offset bigint, "
        "timestamp timestamp_ltz, timestampType int"
    )
    assert schema() == plain
    assert schema(includeHeaders="true") == f"{plain}, headers array<struct<key:string,value:binary>>"
    assert schema(columns="VALUE, offset") == "value binary, offset bigint"


def test_a_schema_of_the_user_is_a_projection() -> None:
    from pyspark.sql.types import BinaryType, LongType, StringType, StructType

    source = KompaktDataSource(BASE)
    wanted = StructType().add("value", BinaryType()).add("offset", LongType())
    assert isinstance(source.reader(wanted), BatchReader)
    assert isinstance(source.streamReader(wanted), StreamReader)
    for wrong, message in (
        (StructType().add("Value", BinaryType()), "did you mean value"),
        (StructType().add("value", StringType()), "has type binary, not string"),
        (StructType().add("value", BinaryType(), nullable=False), "must be nullable"),
        (StructType().add("value", BinaryType()).add("value", BinaryType()), "value is there twice"),
        (StructType(), "the schema has no column"),
    ):
        with pytest.raises(ConnectorError, match=message):
            source.reader(wrong)


@pytest.mark.parametrize("value_format", ["json", "avro"])
def test_malformed_values_are_told_from_good_ones_by_their_fields(value_format: str) -> None:
    """Without one nothing is parsed, and no value would ever be called malformed."""
    from pyspark.sql.types import LongType, StringType, StructType

    more = {"avroSchema": '{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'}
    source = KompaktDataSource(
        {**BASE, "valueFormat": value_format, **(more if value_format == "avro" else {})}
    )
    alone = StructType().add("offset", LongType()).add("_corrupt_record", StringType())
    with pytest.raises(ConnectorError, match="_corrupt_record and no field of the value"):
        source.reader(alone)
    source.reader(alone.add("a", StringType()))


def test_no_null_is_forbidden_within_a_column() -> None:
    """One that comes all the same, as any field of a value may, would fail the whole job in the JVM."""
    from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType

    source = KompaktDataSource({**BASE, "valueFormat": "json"})
    numbers = ArrayType(IntegerType(), containsNull=False)
    inner = StructType().add("x", IntegerType(), nullable=False)
    for kind in (
        numbers,
        inner,
        ArrayType(inner),
        StructType().add("deeper", ArrayType(numbers)),
        MapType(StringType(), IntegerType(), valueContainsNull=False),
        MapType(StringType(), inner),
    ):
        with pytest.raises(ConnectorError, match="column made must be nullable all through"):
            source.reader(StructType().add("made", kind))
    source.reader(StructType().add("made", ArrayType(StructType().add("x", IntegerType()))))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("startingOffsets", "latest", "must not be latest"),
        ("startingOffsets", '{"t":{"0":-1}}', "must not be latest"),
        ("endingOffsets", "earliest", "must not be earliest"),
        ("endingOffsets", '{"t":{"0":-2}}', "must not be earliest"),
    ],
)
def test_a_batch_that_could_read_nothing_is_refused(option: str, value: str, message: str) -> None:
    with pytest.raises(ConnectorError, match=message):
        BatchReader(parse_options({**BASE, option: value}), Shape.of(["value"]))


def test_a_batch_ignores_limits_and_a_stream_refuses_ends() -> None:
    BatchReader(parse_options({**BASE, "maxOffsetsPerTrigger": "5"}), Shape.of(["value"]))
    with pytest.raises(ConnectorError, match="a stream has no end"):
        StreamReader(parse_options({**BASE, "endingOffsets": "latest"}), Shape.of(["value"]))


def test_latest_is_a_default_of_the_end_only() -> None:
    BatchReader(
        parse_options({**BASE, "startingOffsets": "earliest", "endingOffsets": "latest"}), Shape.of(["value"])
    )
    assert parse_options({**BASE, "endingOffsets": "latest"}).ending == Position("endingOffsets", LATEST)
