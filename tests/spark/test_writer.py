"""Goal: whatever happens on the way, every row is written once and in order, or the task says why not.

Method: `write_rows` as a task calls it, against a leader with real sockets that keeps producer sequences as
Kafka does and fails when told: error codes, connections cut before and after a write, batches too large,
forgotten producer ids; in chosen cases and in random ones.
"""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from protocol.batch import parse_header
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.kernel import Kernel
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from spark_connector import kafka_names, producer
from spark_connector.client import MISSING_TRIES, connect
from spark_connector.connection import Connection
from spark_connector.encoder import Encoder
from spark_connector.errors import ConnectorError, MissingTopicError
from spark_connector.offsets import TopicPartition
from spark_connector.refusals import Answer, refused_rows
from spark_connector.stream_writer import StreamWriter
from spark_connector.write_options import check_columns, parse_write_options
from spark_connector.writer import BatchWriter, Written, summary, write_rows
from tests.process import free_port
from tests.spark.conftest import close_clusters
from tests.spark.fake_broker import FakeLog
from tests.spark.fake_leader import CLOSE_AFTER, CLOSE_BEFORE, FakeLeader
from tests.waiting import wait_for

BINARY, TEXT = BinaryType(), StringType()


def schema_of(columns: dict[str, Any]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


KEYED = schema_of({"key": BINARY, "value": BINARY})


def options_of(leader: FakeLeader, **changed: str) -> dict[str, str]:
    """Small batches, so that a few rows make several requests; names with a dot are written with `__`."""
    given = {
        "kafka.bootstrap.servers": leader.bootstrap,
        "kafka.retry.backoff.ms": "1",
        "kafka.retry.backoff.max.ms": "10",
        "kafka.delivery.timeout.ms": "30000",
        "kafka.batch.size": "400",
        "kafka.max.request.size": "900",
        "topic": "t",
    }
    return {**given, **{name.replace("__", "."): value for name, value in changed.items()}}


def rows(count: int, first: int = 0) -> pyarrow.RecordBatch:
    """Row number n goes to partition n % 2 and says so."""
    numbers = range(first, first + count)
    return pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array([b"value %05d" % number for number in numbers], pyarrow.binary()),
            pyarrow.array([number % 2 for number in numbers], pyarrow.int32()),
        ],
        names=["value", "partition"],
    )


def write(leader: FakeLeader, *batches: pyarrow.RecordBatch, **changed: str) -> Written:
    return write_rows(parse_write_options(options_of(leader, **changed)), iter(batches))


def test_a_task_gives_back_what_loading_its_kernels_took(
    leader: FakeLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it returns: PySpark loads pandas then."""
    monkeypatch.setattr(Kernel, "has_loader", True)
    write(leader, rows(10))
    assert not Kernel.has_loader


def check_written(leader: FakeLeader, count: int) -> None:
    for partition in range(2):
        values = [record.value for record in leader.records(partition)]
        assert values == [b"value %05d" % number for number in range(partition, count, 2)]


def test_rows_arrive_in_order_and_are_counted(leader: FakeLeader) -> None:
    done = write(leader, rows(300), rows(100, first=300))
    check_written(leader, 400)
    assert done.rows == 400
    assert {place.partition: offset for place, offset in done.last_offsets.items()} == {0: 199, 1: 199}
    assert done.bytes == sum(len(batch) for log in leader.logs.values() for batch in log.batches)
    assert leader.produced > 10
    assert "400 rows" in summary([done, None])


@pytest.mark.parametrize("fault", [CLOSE_BEFORE, CLOSE_AFTER, ErrorCode.NOT_LEADER_OR_FOLLOWER])
@pytest.mark.parametrize("at", [0, 3, 9])
def test_one_fault(leader: FakeLeader, fault: Any, at: int) -> None:
    """An answer that was lost, a request that was, a leader that moved: with more on the way behind it."""
    leader.faults.extend([None] * at + [fault])
    write(leader, rows(400))
    check_written(leader, 400)


@pytest.mark.parametrize(("acks", "at"), [("all", 0), ("all", 3), ("1", 3), ("0", 0)])
def test_a_request_that_cannot_be_sent(
    leader: FakeLeader, acks: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a kept connection to a broker that was started again: no answer is owed for it."""
    requests = 0
    send = Connection._send

    def cut(connection: Connection, request: Any, version: int, response: type[Any]) -> None:
        nonlocal requests
        if isinstance(request, ProduceRequest):
            requests += 1
            if requests == at + 1:
                connection._socket.shutdown(socket.SHUT_WR)
        send(connection, request, version, response)

    monkeypatch.setattr(Connection, "_send", cut)
    assert write(leader, rows(300), kafka__acks=acks).rows == 300
    wait_for(lambda: sum(len(leader.records(partition)) for partition in range(2)) >= 300, "all records")
    check_written(leader, 300)


FAULTS = st.sampled_from(
    [
        None,
        CLOSE_BEFORE,
        CLOSE_AFTER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 100), st.lists(FAULTS, max_size=25), st.integers(0, 300), st.sampled_from([150, 300, None])
)
def test_any_faults(before: int, faults: list[Any], count: int, largest: int | None) -> None:
    """In a worker that wrote `before` rows to an earlier topic of the same name."""
    leader = FakeLeader()
    try:
        write(leader, rows(before))
        leader.recreate_topic()
        leader.faults.extend(faults)
        leader.largest_batch = largest
        done = write(leader, rows(count))
        check_written(leader, count)
        assert done.rows == count
    finally:
        close_clusters()
        producer._idle.clear()
        leader.close()


def test_a_batch_too_large_is_halved_and_the_next_ones_are_smaller(leader: FakeLeader) -> None:
    """Without asking for the topic's max.message.bytes, which takes a right of its own."""
    leader.largest_batch = 40_000
    changed = {"kafka__batch__size": "100000", "kafka__max__request__size": "1000000"}
    write(leader, *(rows(2000, first=first) for first in range(0, 40_000, 2000)), **changed)
    check_written(leader, 40_000)
    assert all(len(batch) <= 40_000 for log in leader.logs.values() for batch in log.batches)
    assert leader.produced < 100


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("column", ["value", "key", "headers"])
def test_a_record_too_large_for_its_topic_names_its_row(leader: FakeLeader, column: str, codec: str) -> None:
    """And the column that makes it so large."""
    noise = random.Random(column).randbytes(500)
    leader.largest_batch = 400
    headers = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
    large = {"key": noise, "value": noise, "headers": [{"key": "h", "value": noise}]}
    small = {"key": b"k", "value": None, "headers": None}
    table = pyarrow.Table.from_pylist(
        [small, small, {**small, column: large[column]}, small],
        pyarrow.schema({"key": pyarrow.binary(), "value": pyarrow.binary(), "headers": headers}),
    )
    expected = (
        rf"writing to t-\d: MESSAGE_TOO_LARGE; row 2 of the task, column {column}: a record of 5\d\d bytes "
        rf"is a batch of 5\d\d, more than the topic takes \(max.message.bytes, segment.bytes\)"
    )
    with pytest.raises(ConnectorError, match=expected):
        write(leader, *table.to_batches(), kafka__compression__type=codec)


@pytest.mark.parametrize(
    ("code", "text", "column"),
    [
        (ErrorCode.INVALID_TIMESTAMP, "Timestamp 5 is out of range", ", column timestamp"),
        (ErrorCode.INVALID_RECORD, "Compacted topic cannot accept message without key", ", column key"),
        (ErrorCode.INVALID_RECORD, "the record is strange", ""),
        (ErrorCode.INVALID_RECORD, None, ""),
    ],
)
def test_refused_records_name_their_column(code: ErrorCode, text: str | None, column: str) -> None:
    """As far as the broker's words tell it; a record that has a key was not refused for want of one."""
    made = []
    for key in (None, b"k"):
        table = pyarrow.Table.from_pylist(
            [{"key": key, "value": b"v"}] * 7,
            pyarrow.schema({"key": pyarrow.binary(), "value": pyarrow.binary()}),
        )
        options = parse_write_options({"kafka.bootstrap.servers": "a:1", "topic": "t"})
        encoder = Encoder(options, lambda _: 1)
        assert not list(encoder.encode(table.to_batches()[0], 0))
        made += encoder.flush()
    named = Answer.BatchIndexAndErrorMessage
    answer = Answer(error_code=code, record_errors=[named(batch_index=3, batch_index_error_message=text)])
    said = f" ({text})" if text else ""
    keyless, keyed = (refused_rows(batch, answer) for batch in made)
    assert keyless == f"refused: row 3 of the task{column}{said}"
    assert keyed == f"refused: row 3 of the task{column if 'time' in column else ''}{said}"


def test_many_refused_records_are_counted() -> None:
    table = pyarrow.Table.from_pylist([{"value": b"v"}] * 9, pyarrow.schema({"value": pyarrow.binary()}))
    encoder = Encoder(parse_write_options({"kafka.bootstrap.servers": "a:1", "topic": "t"}), lambda _: 1)
    list(encoder.encode(table.to_batches()[0], 0))
    (batch,) = encoder.flush()
    named = Answer.BatchIndexAndErrorMessage
    errors = [named(batch_index=index, batch_index_error_message="no key") for index in (*range(8), 99)]
    said = refused_rows(batch, Answer(error_code=ErrorCode.INVALID_RECORD, record_errors=errors))
    assert said.startswith("refused: row 0 of the task, column key (no key), row 1 ")
    assert said.endswith("row 4 of the task, column key (no key) and 3 more")


def test_an_error_code_from_the_future_names_its_rows(leader: FakeLeader) -> None:
    leader.faults.append(9999)
    expected = r"writing to t-0: the broker answered with the unknown error 9999; rows 0 to 0 of the task"
    with pytest.raises(ConnectorError, match=expected):
        write(leader, rows(1))


def test_records_that_the_broker_refuses_name_their_rows(leader: FakeLeader) -> None:
    """Rows 10, 12 ... are in the batch of partition 0; its record 2 is row 14 of the task."""
    leader.refused_records = [(2, "Compacted topic cannot accept message without key")]
    expected = (
        r"INVALID_RECORD; refused: row 14 of the task, column key \(Compacted topic cannot accept message "
        r"without key\)"
    )
    with pytest.raises(ConnectorError, match=expected):
        write(leader, rows(10).slice(0, 0), rows(10, first=1).slice(9, 0), padded(10, rows(20, first=10)))


def padded(count: int, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """`batch` behind `count` rows for the other partition."""
    before = pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array([b"value"] * count, pyarrow.binary()),
            pyarrow.array([1] * count, pyarrow.int32()),
        ],
        names=["value", "partition"],
    )
    return pyarrow.Table.from_batches([before, batch]).combine_chunks().to_batches()[0]


def test_a_producer_id_serves_the_next_task(leader: FakeLeader) -> None:
    """One id for a worker, not one for a task: brokers remember each of them for a day."""
    for first in (0, 100, 200):
        write(leader, rows(100, first=first))
    check_written(leader, 300)
    assert leader.producer_ids == 1


def test_a_forgotten_producer_id_is_replaced(leader: FakeLeader) -> None:
    write(leader, rows(100))
    leader.forget_producers()
    write(leader, rows(100, first=100))
    check_written(leader, 200)
    assert leader.producer_ids == 2


@pytest.mark.parametrize("largest", [None, 300])
def test_a_recreated_topic_gets_the_first_batch_first(leader: FakeLeader, largest: int | None) -> None:
    """It knows no producer, and so takes the second batch where the first was refused for a moment."""
    write(leader, rows(100))
    leader.recreate_topic()
    leader.largest_batch = largest
    if largest is None:
        leader.faults.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    write(leader, rows(135))
    check_written(leader, 135)


def test_a_task_that_failed_leaves_its_producer_id_behind(leader: FakeLeader) -> None:
    leader.faults.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ConnectorError, match=r"writing to t-[01]: TOPIC_AUTHORIZATION_FAILED"):
        write(leader, rows(10))
    write(leader, rows(10))
    assert leader.producer_ids == 2
    check_written(leader, 10)


def test_lost_records_end_the_task(leader: FakeLeader) -> None:
    """A gap behind batches that were acknowledged: only writing all rows again can fill it."""

    def batches() -> Iterator[pyarrow.RecordBatch]:
        yield rows(400)
        leader.forget_producers()
        yield rows(400, first=400)

    with pytest.raises(ConnectorError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        write_rows(parse_write_options(options_of(leader)), batches())


def test_time_runs_out(leader: FakeLeader) -> None:
    leader.faults.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000)
    expected = r"writing to t failed for 0.2 s \(kafka.delivery.timeout.ms\) at .*NOT_ENOUGH_REPLICAS"
    with pytest.raises(ConnectorError, match=expected):
        write(leader, rows(4), kafka__delivery__timeout__ms="200")


def test_time_runs_out_for_a_leader_that_nobody_reaches(leader: FakeLeader) -> None:
    """As with wrong advertised listeners: the bootstrap server answers, and names another address."""
    options = parse_write_options(options_of(leader, kafka__delivery__timeout__ms="200"))
    leader.port = free_port()
    expected = r"writing to t failed for 0.2 s \(kafka.delivery.timeout.ms\) at .*no connection to"
    with pytest.raises(ConnectorError, match=expected):
        write_rows(options, iter([rows(4)]))


@pytest.mark.parametrize("acks", ["1", "0"])
def test_fewer_acks_mean_no_idempotence(leader: FakeLeader, acks: str) -> None:
    """What nobody acknowledges is written a moment later."""
    done = write(leader, rows(300), kafka__acks=acks)
    assert done.rows == 300
    wait_for(lambda: sum(len(leader.records(partition)) for partition in range(2)) == 300, "all records")
    check_written(leader, 300)
    assert leader.producer_ids == 0
    assert bool(done.last_offsets) == (acks == "1")
    batches = [batch for log in leader.logs.values() for batch in log.batches]
    assert {parse_header(batch).producer_id for batch in batches} == {-1}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(leader: FakeLeader, codec: str) -> None:
    write(leader, rows(300), kafka__compression__type=codec)
    check_written(leader, 300)
    batches = [batch for log in leader.logs.values() for batch in log.batches]
    assert {parse_header(batch).codec for batch in batches} == {Codec[codec.upper()]}


def test_batches_of_one_record(leader: FakeLeader) -> None:
    """kafka.batch.size=0 is how Kafka's producers are told to make none larger."""
    write(leader, rows(40), kafka__batch__size="0", kafka__retry__backoff__ms="0")
    check_written(leader, 40)
    assert {len(log.batches) for log in leader.logs.values()} == {20}


def test_nothing_to_write_asks_nobody() -> None:
    """Spark starts tasks for empty partitions; they need no broker."""
    options = parse_write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    assert write_rows(options, iter(())) == Written(0, 0, {})
    assert write_rows(options, iter([rows(3).slice(1, 0)])) == Written(0, 0, {})


def test_a_missing_topic_names_option_or_row(leader: FakeLeader) -> None:
    advice = r"absent: UNKNOWN_TOPIC_OR_PARTITION; create the topic, or let the broker do it \(auto.create"
    with pytest.raises(ConnectorError, match=f"^option topic: .*{advice}"):
        write(leader, rows(3), topic="absent")
    batch = rows(3).append_column("topic", pyarrow.array(["t", "absent", "t"]))
    given = {name: value for name, value in options_of(leader).items() if name != "topic"}
    with pytest.raises(ConnectorError, match=f"^row 1 of the task, column topic: .*{advice}"):
        write_rows(parse_write_options(given), iter([batch]))


def test_a_broker_that_nobody_reaches_is_not_blamed_on_the_topic(leader: FakeLeader) -> None:
    given = options_of(leader, kafka__bootstrap__servers=f"127.0.0.1:{free_port()}")
    options = parse_write_options({**given, "kafka.default.api.timeout.ms": "200"})
    with pytest.raises(ConnectorError, match=r"^looking up topics failed for .* no connection to"):
        write_rows(options, iter([rows(3)]))


@pytest.mark.parametrize("answer", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
@pytest.mark.parametrize("looks", [0, 1, 6])
def test_a_missing_topic_is_made(leader: FakeLeader, answer: ErrorCode, looks: int) -> None:
    """By the broker, which does so only where it is asked to, and is not done at once."""
    plain = leader._metadata
    left = looks

    def metadata(request: MetadataRequest) -> Any:
        nonlocal left
        if TopicPartition("new", 0) not in leader.logs and request.allow_auto_topic_creation:
            left -= 1
            if left < 0:
                leader.logs |= {TopicPartition("new", number): FakeLog() for number in range(2)}
        answered = plain(request)
        for topic in answered.topics:
            topic.error_code = topic.error_code and answer
        return answered

    leader._metadata = metadata  # type: ignore[method-assign]
    write(leader, rows(30), topic="new")
    assert [len(leader.records(partition, "new")) for partition in range(2)] == [15, 15]


def test_only_the_look_ups_of_writers_make_topics(leader: FakeLeader) -> None:
    write(leader, rows(3))
    cluster = connect(parse_write_options(options_of(leader)).client)
    with pytest.raises(MissingTopicError):
        cluster.describe(["absent"])
    asked = [request for request in leader.requests if isinstance(request, MetadataRequest)]
    assert [
        (*(topic.name for topic in request.topics or ()), request.allow_auto_topic_creation)
        for request in asked
    ] == [("t", True), *[("absent", False)] * MISSING_TRIES]


# --- planning


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kafka__acks": "2"}, "kafka.acks must be all, 1 or 0, not 2"),
        ({"kafka__compression__type": "brotli"}, "kafka.compression.type must be none, gzip"),
        ({"kafka__acks": "1", "kafka__enable__idempotence": "true"}, "needs kafka.acks=all"),
        ({"kafka__max__in__flight__requests__per__connection": "6"}, "at most 5 for an idempotent"),
        ({"partitioner": "random"}, "partitioner must be murmur2 or crc32, not random"),
        ({"partitoner": "crc32"}, "unknown option partitoner; did you mean partitioner"),
        ({"kafka__value__serializer": "x"}, "kafka.value.serializer is not supported"),
        ({"kafka__partitioner__class": "x"}, "use the option partitioner"),
        ({"kafka__transactional__id": "x"}, "writes no transactions"),
        ({"kafka__compression__zstd__level": "x", "kafka__compression__type": "zstd"}, "must be a number"),
        (
            {"kafka__compression__gzip__level": "0"},
            "kafka.compression.gzip.level must be 1 to 9 or -1, not 0",
        ),
        ({"kafka__compression__gzip__level": "10", "kafka__compression__type": "gzip"}, "not 10"),
        ({"kafka__compression__lz4__level": "18"}, "kafka.compression.lz4.level must be 1 to 17, not 18"),
        ({"kafka__compression__lz4__level": "-3", "kafka__compression__type": "lz4"}, "not -3"),
        ({"kafka__compression__zstd__level": "23"}, "zstd.level must be -131072 to 22, not 23"),
    ],
)
def test_options_are_refused_when_planned(changed: dict[str, str], message: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    given.update({name.replace("__", "."): value for name, value in changed.items()})
    with pytest.raises(ConnectorError, match=message):
        BatchWriter(given, KEYED, False)


@pytest.mark.parametrize(
    "level", ["gzip -1", "gzip 1", "gzip +9", "lz4 1", "lz4 17", "zstd -131072", "zstd 22"]
)
def test_levels_that_the_java_producer_takes(leader: FakeLeader, level: str) -> None:
    """As its ProducerConfig (4.3.1) has them; gzip's -1 is its own default and failed every task."""
    codec, number = level.split()
    write(leader, rows(20), kafka__compression__type=codec, **{f"kafka__compression__{codec}__level": number})
    check_written(leader, 20)


@pytest.mark.parametrize("changed", [{"acks": "1"}, {"acks": "0"}, {"enable.idempotence": "false"}])
def test_what_is_not_idempotent_may_have_more_in_flight(changed: dict[str, str]) -> None:
    """Asked for or not, as with the Java producer of Spark's own sink (3.9.2)."""
    given = {"bootstrap.servers": "127.0.0.1:1", "max.in.flight.requests.per.connection": "10", **changed}
    options = parse_write_options({f"kafka.{name}": value for name, value in given.items()})
    assert (options.max_in_flight, options.is_idempotent) == (10, False)


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": BINARY}, "t", "column value is needed"),
        ({"value": IntegerType()}, "t", "column value must be binary or string, not int"),
        ({"value": BINARY, "partition": LongType()}, "t", "column partition must be int, not bigint"),
        (
            {"value": BINARY, "headers": ArrayType(TEXT)},
            "t",
            "column headers must be array<struct<key:string,",
        ),
        ({"value": BINARY}, None, "neither a column topic nor an option topic"),
        ({"value": BINARY, "topic": LongType()}, None, "column topic must be string, not bigint"),
        ({"value": BINARY, "timestamp": TEXT}, "t", "column timestamp must be timestamp, not string"),
        ({"value": BINARY, "Value": BINARY}, "t", "column value is there 2 times"),
    ],
)
def test_columns_are_refused_when_planned(columns: dict[str, Any], topic: str | None, message: str) -> None:
    with pytest.raises(ConnectorError, match=message):
        check_columns(schema_of(columns), topic)


def test_all_columns_there_are() -> None:
    pair = StructType([StructField("key", TEXT), StructField("value", BINARY)])
    every = {"key": TEXT, "value": TEXT, "topic": TEXT, "partition": IntegerType()}
    check_columns(schema_of({**every, "timestamp": TimestampType(), "headers": ArrayType(pair)}), None)
    check_columns(schema_of({"Value": TEXT, "KEY": BINARY}), "t")
    upper = StructType([StructField("Key", TEXT), StructField("VALUE", BINARY)])
    check_columns(schema_of({"value": BINARY, "headers": ArrayType(upper)}), "t")


def test_columns_without_a_place_are_warned_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are, in one message; a whole topic has two of them."""
    monkeypatch.setattr(kafka_names, "_warned", set())
    pair = StructType([StructField("key", TEXT), StructField("value", BINARY)])
    every = {"value": BINARY, "offset": LongType(), "day": DateType(), "headers": ArrayType(pair)}
    with caplog.at_level(logging.WARNING, "kompakt.spark"):
        for _ in range(2):
            check_columns(schema_of(every), "t")
        check_columns(KEYED, "t")
    assert caplog.messages == [
        "the write ignores columns that have no place in a record: offset, day; a record is made of key, "
        "value, topic, partition, headers, timestamp"
    ]


def test_the_option_topic_passes_over_a_column_of_any_type(leader: FakeLeader) -> None:
    """And what has no place in a record goes by unread."""
    columns = {"topic": pyarrow.array([7, 8, None]), "offset": pyarrow.array([1, None, 3])}
    batch = rows(3)
    for name, column in columns.items():
        batch = batch.append_column(name, column)
    check_columns(schema_of({"value": BINARY, "topic": LongType(), "offset": LongType()}), "t")
    assert write(leader, batch).rows == 3
    check_written(leader, 3)


def test_rows_that_reach_no_task_are_not_committed() -> None:
    """What Spark makes of a continuous trigger: tasks that end well and have nothing to say."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    made = StreamWriter(given, KEYED)
    made.commit([Written(0, 0, {})], 0)
    with pytest.raises(ConnectorError, match=r"^nothing was written: .*use trigger\(processingTime=...\) or"):
        made.commit([Written(0, 0, {}), None], 0)


def test_overwrite_is_refused_and_a_complete_stream_is_not() -> None:
    """Spark's own sink takes output mode complete as well, and appends its rows."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    with pytest.raises(ConnectorError, match="cannot be overwritten, only appended to"):
        BatchWriter(given, KEYED, True)
    make: Callable[..., Any] = StreamWriter
    assert make(given, KEYED)
