"""Goal: a batch read gives exactly the visible records of its range, whatever the log looks like.

Method: `BatchReader.partitions()` and `.read()` against a fake broker with hand-made logs: holes, control
batches, aborted transactions, cut batches, codecs, retention, errors. No Spark session, no JVM.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from protocol.batch import parse_header
from protocol.compression import Codec
from protocol.control import Marker, marker_batch
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from protocol.records import encode_batch
from spark_connector import ranges, silence, unpacking
from spark_connector.connection import FETCH, Connection, Unavailable
from spark_connector.errors import ConnectorError, DataLossError
from spark_connector.offsets import EARLIEST, TopicPartition
from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.shape import Shape
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of
from tests.waiting import noted_sleeps

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]
COMMITTED = {"kafka__isolation__level": "read_committed"}


def batch(base_offset: int, count: int = 1, **fields: Any) -> bytes:
    """`count` records whose value is their own offset."""
    records = [
        (1000 + offset, b"k", str(offset).encode(), ()) for offset in range(base_offset, base_offset + count)
    ]
    return encode_batch(records, base_offset=base_offset, **fields)


def read(broker: FakeBroker, **options: str) -> list[int]:
    """The offsets that a batch read gives; each value must be that of its offset."""
    parsed = parse_options(options_for(broker, **options))
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    found = []
    for partition in reader.partitions():
        for made in reader.read(partition):
            made.validate(full=True)
            offsets = made.column("offset").to_pylist()
            assert made.column("value").to_pylist() == [str(offset).encode() for offset in offsets]
            found.extend(offsets)
    return found


def offsets_of(reader: BatchReader, tasks: Any) -> list[int]:
    return [
        offset for task in tasks for made in reader.read(task) for offset in made.column("offset").to_pylist()
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("check_crcs", ["true", "false"])
def test_broken_batches_are_named(start_broker: Start, codec: Codec, check_crcs: str) -> None:
    """Whatever is broken: an error that says where, or (unchecked) some other bytes. Nothing else happens."""
    chosen = random.Random(f"{codec} {check_crcs}")
    broker = start_broker(logs_of([]))
    log = broker.logs[TopicPartition("t", 0)]
    log.high_watermark = 30
    parsed = parse_options(options_for(broker, kafka__check__crcs=check_crcs, includeHeaders="true"))
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    (partition,) = reader.partitions()
    errors = 0
    for _ in range(150):
        whole = bytearray(batch(0, 10, codec=codec) + batch(10, 10, codec=codec) + batch(20, 10, codec=codec))
        for _ in range(chosen.randint(1, 3)):
            # Not the offsets and sizes: they decide where a batch is, and waiting for one is another test.
            position = chosen.choice([16, *range(17, 23), *range(57, 90)]) + len(whole) // 3
            whole[position] = chosen.choice([0, 1, 2, 127, 128, 255, chosen.randrange(256)])
        log.batches = [bytes(whole)]
        try:
            for made in reader.read(partition):
                assert made.num_rows
        except ConnectorError as problem:
            errors += 1
            assert re.search(r"t-0: the record batch at offset \d+ is corrupt: .", str(problem)), problem
    assert errors > 50


def test_all_of_a_topic(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 3), batch(3)], [batch(0, 2)], []))
    assert read(broker) == [0, 1, 2, 3, 0, 1]


def test_columns_and_their_values(start_broker: Start) -> None:
    plain = encode_batch([(7, b"k", None, [("h", b"1"), ("h", None)]), (-1, None, b"", ())])
    stamped = encode_batch([(8, b"", b"v", ())], base_offset=2, log_append_time_ms=99)
    broker = start_broker(logs_of([plain, stamped]))
    parsed = parse_options(options_for(broker, includeHeaders="true"))
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    (made,) = [made for partition in reader.partitions() for made in reader.read(partition)]
    columns = made.to_pydict()
    stamps = [round(moment.timestamp() * 1000) for moment in columns.pop("timestamp")]
    assert stamps == [7, -1, 99]
    assert columns == {
        "key": [b"k", None, b""],
        "value": [None, b"", b"v"],
        "topic": ["t"] * 3,
        "partition": [0] * 3,
        "offset": [0, 1, 2],
        "timestampType": [0, 0, 1],
        "headers": [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, None],
    }


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(start_broker: Start, codec: Codec) -> None:
    broker = start_broker(logs_of([batch(0, 50, codec=codec), batch(50, 7), batch(57, 9, codec=codec)]))
    assert read(broker) == list(range(66))


def test_batches_are_cut_to_the_range(start_broker: Start) -> None:
    """A batch that begins before the range or reaches beyond it gives its part only."""
    broker = start_broker(logs_of([batch(0, 10), batch(10, 10)]))
    ends = {"startingOffsets": '{"t":{"0":4}}', "endingOffsets": '{"t":{"0":13}}'}
    assert read(broker, **ends) == list(range(4, 13))
    assert read(broker, **{**ends, "endingOffsets": '{"t":{"0":6}}'}) == [4, 5]


def test_splits_read_each_record_once(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 10), batch(10, 10)]))
    parsed = parse_options(options_for(broker, minPartitions="3"))
    assert len(BatchReader(parsed, Shape.of(parsed.columns)).partitions()) == 3
    assert read(broker, minPartitions="3") == list(range(20))
    assert read(broker, maxRecordsPerPartition="3") == list(range(20))


def test_words_are_bound_when_the_task_runs(start_broker: Start) -> None:
    """What arrives between planning and reading is read."""
    broker = start_broker(logs_of([batch(0)]))
    parsed = parse_options(options_for(broker))
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    (partition,) = reader.partitions()
    broker.logs[TopicPartition("t", 0)].batches.append(batch(1))
    assert [made.num_rows for made in reader.read(partition)] == [2]


@pytest.mark.parametrize("split", [{"maxRecordsPerPartition": "3"}, {"minPartitions": "4"}])
def test_max_records_per_partition_must_not_force_a_split_of_unresolved_ranges(
    start_broker: Start, split: dict[str, str]
) -> None:
    """Ours does split them, and gives the rows that a read without a split does: the pieces at the edges are
    bound when their task runs, so that records that come are read, and records that go are no loss."""
    broker = start_broker(logs_of([batch(0, 10)]))
    log = broker.logs[TopicPartition("t", 0)]
    parsed = parse_options(options_for(broker, **split))
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    tasks = reader.partitions()
    assert len(tasks) == 4
    log.batches.append(batch(10, 5))
    log.log_start_offset = 1
    offsets = [
        number for task in tasks for made in reader.read(task) for number in made.column("offset").to_pylist()
    ]
    assert offsets == list(range(1, 15))
    assert read(broker, **split) == read(broker) == offsets


def test_edges_that_are_offsets_stay(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 10)]))
    begin, end = '{"t":{"0":2}}', '{"t":{"0":8}}'
    for options, expected in (
        ({"startingOffsets": begin}, range(2, 15)),
        ({"endingOffsets": end}, range(8)),
        ({"startingOffsets": begin, "endingOffsets": end}, range(2, 8)),
    ):
        parsed = parse_options(options_for(broker, **options, maxRecordsPerPartition="3"))
        reader = BatchReader(parsed, Shape.of(parsed.columns))
        log = broker.logs[TopicPartition("t", 0)]
        log.batches = [batch(0, 10)]
        tasks = reader.partitions()
        log.batches.append(batch(10, 5))
        assert offsets_of(reader, tasks) == list(expected)


def test_small_fetches_are_joined_into_large_record_batches(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(offset) for offset in range(300)]))
    parsed = parse_options(options_for(broker, kafka__max__partition__fetch__bytes="200"))
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    (made,) = [made for partition in reader.partitions() for made in reader.read(partition)]
    assert made.num_rows == 300
    assert len(broker.fetched) > 50


def test_large_answers_are_cut_into_several(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "TARGET_ROWS", 20)
    monkeypatch.setattr(ranges, "LEAST_ROWS", 10)
    for codec in (Codec.NONE, Codec.LZ4):
        broker = start_broker(logs_of([batch(offset, 5, codec=codec) for offset in range(0, 100, 5)]))
        parsed = parse_options(options_for(broker))
        reader = BatchReader(parsed, Shape.of(parsed.columns))
        sizes = [made.num_rows for partition in reader.partitions() for made in reader.read(partition)]
        assert sizes == [20] * 5
        assert read(broker) == list(range(100))


def test_holes_are_no_loss(start_broker: Start) -> None:
    """Compaction leaves holes between and within batches, failOnDataLoss is true."""
    holed = encode_batch(
        [(1, b"k", b"5", ()), (1, b"k", b"8", ())], base_offset=4, offset_deltas=[1, 4], last_offset_delta=6
    )
    empty = encode_batch([], base_offset=11, last_offset_delta=8)
    broker = start_broker(logs_of([batch(2), holed, empty, batch(40)]))
    assert read(broker, startingOffsets='{"t":{"0":0}}') == [2, 5, 8, 40]
    assert read(broker, startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":30}}') == []


@pytest.mark.parametrize("tail", [[], [encode_batch([], base_offset=3, last_offset_delta=4)]])
def test_an_end_behind_the_last_record_ends_the_read(
    start_broker: Start, tail: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last records of the range are compacted away: nothing more comes, the timeout is not waited for."""
    monkeypatch.setattr(silence, "HOLE_PATIENCE_S", 0.1)
    broker = start_broker(logs_of([batch(0, 3), *tail]))
    broker.logs[TopicPartition("t", 0)].high_watermark = 8
    assert read(broker) == [0, 1, 2]
    assert read(broker, startingOffsets='{"t":{"0":5}}') == []


def test_control_batches_are_skipped(start_broker: Start) -> None:
    marker = marker_batch(Marker(True), producer_id=9, producer_epoch=0, now_ms=1, base_offset=2)
    data = batch(0, 2, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    broker = start_broker(logs_of([data, marker, batch(3)]))
    assert read(broker) == [0, 1, 3]
    assert read(broker, **COMMITTED) == [0, 1, 3]


def test_aborted_transactions_are_filtered_when_asked(start_broker: Start) -> None:
    """Two producers interleaved: one aborts and then commits, the other commits; plain records between."""

    def data(offset: int, producer_id: int) -> bytes:
        return batch(
            offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )

    def marker(offset: int, producer_id: int, is_commit: bool) -> bytes:
        return marker_batch(
            Marker(is_commit), producer_id=producer_id, producer_epoch=0, now_ms=1, base_offset=offset
        )

    batches = [data(0, 1), data(1, 2), batch(2), data(3, 1), marker(4, 1, False), data(5, 1)]
    batches += [marker(6, 2, True), marker(7, 1, True), data(8, 3), marker(9, 3, False)]
    log = FakeLog(batches, aborted=[(3, 8), (1, 0)])
    broker = start_broker({TopicPartition("t", 0): log})
    assert read(broker, **COMMITTED) == [1, 2, 5]
    assert read(broker) == [0, 1, 2, 3, 5, 8]


def test_an_open_transaction_ends_a_committed_read(start_broker: Start) -> None:
    open_data = batch(1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log = FakeLog([batch(0)], high_watermark=2, last_stable_offset=1)
    broker = start_broker({TopicPartition("t", 0): log})
    assert read(broker, **COMMITTED) == [0]
    log.batches.append(open_data)
    assert read(broker) == [0, 1]


def test_a_checksum_that_does_not_fit_names_the_place(start_broker: Start) -> None:
    for broken_byte in (70, 40):
        bad = bytearray(batch(3, 2))
        bad[broken_byte] ^= 1
        broker = start_broker(logs_of([batch(0, 3), bytes(bad)]))
        with pytest.raises(
            ConnectorError, match="t-0: the record batch at offset 3 is corrupt: its checksum"
        ):
            read(broker)


def test_broken_records_with_a_right_checksum_name_the_place(start_broker: Start) -> None:
    """Wrong counts must neither size an allocation nor shift the records behind them."""
    for count, message in (
        (2**31 - 1, "cannot hold"),
        (-1, "cannot hold"),
        (9, "not as many"),
        (7, "not as"),
    ):
        bad = bytearray(batch(3, 8))
        bad[57:61] = count.to_bytes(4, "big", signed=True)
        broker = start_broker(logs_of([batch(0, 3), bytes(bad)]))
        with pytest.raises(ConnectorError, match=f"offset 3 is corrupt: .*{message}"):
            read(broker, kafka__check__crcs="false")


def test_old_formats_and_broken_codecs_are_told(start_broker: Start) -> None:
    old = bytearray(batch(0))
    old[16] = 1
    with pytest.raises(ConnectorError, match="message format is 1"):
        read(start_broker(logs_of([bytes(old)])), endingOffsets='{"t":{"0":1}}')
    bad = bytearray(batch(0, 9, codec=Codec.ZSTD))
    bad[61:66] = b"\0\0\0\0\0"
    with pytest.raises(ConnectorError, match="offset 0 is corrupt: zstd"):
        read(start_broker(logs_of([bytes(bad)])), kafka__check__crcs="false")


def test_a_cut_first_batch_is_asked_for_again(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers before KIP-74 return part of a batch that is larger than the fetch."""
    whole = FakeLog.read
    monkeypatch.setattr(FakeLog, "read", lambda log, offset, size: whole(log, offset, size)[:size])
    broker = start_broker(logs_of([batch(0, 100)]))
    assert read(broker, kafka__max__partition__fetch__bytes="100") == list(range(100))


# --- lost data


def test_offsets_below_the_log_start_are_lost(start_broker: Start) -> None:
    logs = logs_of([batch(0, 10), batch(10, 10)])
    logs[TopicPartition("t", 0)].log_start_offset = 5
    broker = start_broker(logs)
    assert read(broker) == list(range(5, 20))
    start = {"startingOffsets": '{"t":{"0":2}}'}
    with pytest.raises(DataLossError, match=r"t-0: offsets 2 to 4 are gone, the log starts at 5"):
        read(broker, **start)
    assert read(broker, **start, failOnDataLoss="false") == list(range(5, 20))


def test_a_start_behind_the_end_of_the_log(start_broker: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Where minPartitions cuts, Spark's own source drops such a range; ours if told to go on, and warns."""
    broker = start_broker(logs_of(*([batch(0, 10)] for _ in range(3))))
    begin = {"startingOffsets": '{"t":{"0":1000,"1":-2,"2":-2}}'}
    said = "t-0: startingOffsets 1000 is behind endingOffsets 10"
    patient = {**begin, "failOnDataLoss": "false"}
    for last, left in (("-1", range(10)), ("2000", range(10))):
        ends = {"endingOffsets": f'{{"t":{{"0":{last},"1":-1,"2":10}}}}'}
        assert read(broker, **patient, **ends, minPartitions="9") == [*left, *left]
    caplog.clear()
    assert read(broker, **patient, minPartitions="9") == [*range(10), *range(10)]
    assert caplog.messages == [f"{said}; reading nothing of it, as failOnDataLoss is false"]
    for refused in (
        {**begin, "minPartitions": "9"},
        {**patient, "maxRecordsPerPartition": "3"},
        {**patient, "minPartitions": "9", "endingOffsets": '{"t":{"0":8,"1":-1,"2":10}}'},
    ):
        with pytest.raises(
            ConnectorError, match=r"t-0: startingOffsets 1000 is behind endingOffsets (10|8)$"
        ):
            read(broker, **refused)
    with pytest.raises(ConnectorError, match="t-0: the read starts at 1000, behind its end 10"):
        read(broker, **patient, minPartitions="3")


def test_going_on_stays_within_the_plan(start_broker: Start) -> None:
    """All of the range is gone: nothing behind its end is read in its place."""
    logs = logs_of([batch(0, 10), batch(10, 10)])
    logs[TopicPartition("t", 0)].log_start_offset = 12
    broker = start_broker(logs)
    plan = {"startingOffsets": '{"t":{"0":2}}', "endingOffsets": '{"t":{"0":6}}'}
    with pytest.raises(DataLossError, match="offsets 2 to 5 are gone"):
        read(broker, **plan)
    assert read(broker, **plan, failOnDataLoss="false") == []


def test_a_log_that_loses_its_head_during_the_read(start_broker: Start) -> None:
    """A retention gap in the middle is a loss under failOnDataLoss=true, a step forward otherwise."""
    for fail in ("true", "false"):
        broker = start_broker(logs_of([batch(offset) for offset in range(20)]))
        log = broker.logs[TopicPartition("t", 0)]
        parsed = parse_options(
            options_for(broker, kafka__max__partition__fetch__bytes="1", failOnDataLoss=fail)
        )
        whole = log.read

        def shorten(offset: int, size: int, log: FakeLog = log, whole: Any = whole) -> bytes:
            if offset == 3:
                log.log_start_offset = 10
            return whole(offset, size)

        log.read = shorten  # type: ignore[method-assign]
        reader = BatchReader(parsed, Shape.of(parsed.columns))
        (partition,) = reader.partitions()
        if fail == "true":
            with pytest.raises(DataLossError, match="offsets 4 to 9 are gone"):
                list(reader.read(partition))
        else:
            offsets = [
                number for made in reader.read(partition) for number in made.column("offset").to_pylist()
            ]
            assert offsets == [0, 1, 2, 3, *range(10, 20)]


@pytest.mark.parametrize("view", [{}, {"view": "latest"}])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_deleted_while_its_log_start_is_looked_up(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, view: dict[str, str], fail: str
) -> None:
    """Out of range, and no topic to ask where its log begins: as lost as a topic that is gone before that."""
    broker = start_broker(logs_of([batch(0, 10)]))
    options = options_for(broker, failOnDataLoss=fail, fetchOffset__retryIntervalMs="1", **view)
    parsed = parse_options(options)
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    (partition,) = reader.partitions()
    answer = broker.answer

    def delete(request: Any) -> Any:
        if isinstance(request, FetchRequest):
            broker.fetch_errors.append(ErrorCode.OFFSET_OUT_OF_RANGE)
            broker.topic_errors["t"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            broker.logs[TopicPartition("t", 0)].error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer(request)

    monkeypatch.setattr(broker, "answer", delete)
    if fail == "true":
        with pytest.raises(DataLossError, match=r"t-0: .*UNKNOWN_TOPIC_OR_PARTITION.*failOnDataLoss"):
            list(reader.read(partition))
    else:
        assert [made for made in reader.read(partition) if made.num_rows] == []


def test_an_end_beyond_the_log(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 3)]))
    end = {"endingOffsets": '{"t":{"0":5}}'}
    with pytest.raises(DataLossError, match="beyond the log's end 3"):
        read(broker, **end)
    assert read(broker, **end, failOnDataLoss="false") == [0, 1, 2]


def test_no_piece_of_a_split_waits_for_an_end_beyond_the_log(start_broker: Start) -> None:
    """Two minutes (kafkaConsumer.pollTimeoutMs) for each partition, before it goes on all the same."""
    broker = start_broker(logs_of([batch(0, 3)]))
    plan = {"endingOffsets": '{"t":{"0":5}}', "minPartitions": "2", "failOnDataLoss": "false"}
    parsed = parse_options(options_for(broker, **plan))
    tasks = BatchReader(parsed, Shape.of(parsed.columns)).partitions()
    pieces = [piece for task in tasks for piece in task.value.ranges]
    assert [(piece.start, piece.end) for piece in pieces] == [(EARLIEST, 1), (1, 3)]


def test_a_log_that_shrinks_under_the_plan(start_broker: Start) -> None:
    """Planned to 6, truncated to 3: waited for, then told."""
    broker = start_broker(logs_of([batch(0, 3)]))
    log = broker.logs[TopicPartition("t", 0)]
    for fail in ("true", "false"):
        log.high_watermark = 6
        plan = {"endingOffsets": '{"t":{"0":6}}', "minPartitions": "2", "kafkaConsumer__pollTimeoutMs": "20"}
        parsed = parse_options(options_for(broker, failOnDataLoss=fail, **plan))
        reader = BatchReader(parsed, Shape.of(parsed.columns))
        tasks = reader.partitions()
        log.high_watermark = 3
        offsets = []
        try:
            for task in tasks:
                for made in reader.read(task):
                    offsets.extend(made.column("offset").to_pylist())
        except DataLossError as problem:
            assert fail == "true"
            assert "the log ends at 3" in str(problem)
        else:
            assert fail == "false"
        assert offsets == [0, 1, 2]


def test_a_start_behind_the_end_is_an_error(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 9)]))
    with pytest.raises(ConnectorError, match="startingOffsets 5 is behind endingOffsets 3"):
        read(broker, startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":3}}')
    with pytest.raises(ConnectorError, match="the read starts at 12, behind its end 9"):
        read(broker, startingOffsets='{"t":{"0":12}}')
    latest = {"startingTimestamp": "9000000000000", "startingOffsetsByTimestampStrategy": "latest"}
    for more in ({}, {"minPartitions": "6"}, {"maxRecordsPerPartition": "7"}):
        with pytest.raises(ConnectorError, match=r"9(, behind its end| is behind endingOffsets) 3"):
            read(broker, **latest, endingOffsets='{"t":{"0":3}}', **more)
        assert read(broker, **latest, endingOffsets='{"t":{"0":9}}', **more) == []
        assert read(broker, **latest, **more) == []


@pytest.mark.parametrize("more", [{}, {"minPartitions": "6"}, {"maxRecordsPerPartition": "7"}])
def test_an_end_that_the_log_has_left_behind(
    start_broker: Start, caplog: pytest.LogCaptureFixture, more: dict[str, str]
) -> None:
    """From the earliest offset to one below it: lost data, and told as such however the read is cut."""
    logs = logs_of([batch(10, 5)], [batch(0, 5)])
    logs[TopicPartition("t", 0)].log_start_offset = 10
    broker = start_broker(logs)
    ends = {"endingOffsets": '{"t":{"0":5,"1":5}}', **more}
    with pytest.raises(DataLossError, match="t-0 begins at offset 10: what was to be read up to 5 is gone"):
        read(broker, **ends)
    assert read(broker, **ends, failOnDataLoss="false") == list(range(5))
    assert "what was to be read up to 5 is gone; going on, as failOnDataLoss is false" in caplog.text


# --- trouble on the way


def test_transient_errors_are_tried_again(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 3), batch(3, 3)]))
    broker.fetch_errors.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
    assert read(broker, kafka__max__partition__fetch__bytes="1") == list(range(6))


def test_a_closed_connection_is_opened_again_without_a_record_twice(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(offset) for offset in range(9)]))
    parsed = parse_options(options_for(broker, kafka__max__partition__fetch__bytes="1"))
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    (partition,) = reader.partitions()
    broker.closes = 3
    offsets = [number for made in reader.read(partition) for number in made.column("offset").to_pylist()]
    assert offsets == list(range(9))


def test_a_connection_that_is_reset_behind_an_answer_loses_none_of_it(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request is what fails, before the records of the answer have been given."""
    whole = Connection.send
    fetches = 0

    def send(connection: Connection, request: Any, api_key: int, response: type[Any]) -> None:
        nonlocal fetches
        fetches += api_key == FETCH
        if api_key == FETCH and fetches in (2, 4, 7):
            raise Unavailable("reset by peer")
        whole(connection, request, api_key, response)

    monkeypatch.setattr(Connection, "send", send)
    broker = start_broker(logs_of([batch(offset, 2) for offset in range(0, 12, 2)]))
    assert read(broker, kafka__max__partition__fetch__bytes="1") == list(range(12))
    assert fetches > 7


def test_lasting_trouble_is_one_clear_error(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0)]))
    broker.fetch_errors.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000)
    with pytest.raises(ConnectorError, match=r"reading t-0 at offset 0 failed for 0.2 s .*NOT_LEADER"):
        read(broker, kafka__default__api__timeout__ms="200")


def test_a_throttled_answer_is_no_hole(start_broker: Start) -> None:
    """An answer without records tells nothing of the log while a quota holds them back."""
    broker = start_broker(logs_of([batch(0, 3), batch(3, 3)]))
    broker.throttles.extend([1, 1, 1])
    assert read(broker) == list(range(6))
    assert not broker.throttles


def test_a_throttle_is_borne_no_longer_than_an_answer_may_take(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker out of its mind asks for 24 days."""
    slept = noted_sleeps(monkeypatch)
    broker = start_broker(logs_of([batch(0, 3)]))
    broker.throttles.extend([2**31 - 1, 250])
    assert read(broker, kafka__request__timeout__ms="20000") == [0, 1, 2]
    assert slept == [20.0, 0.25]


def test_a_throttle_without_end_is_told(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0, 3)]))
    broker.throttles.extend([1] * 10_000)
    with pytest.raises(ConnectorError, match=r"t-0: .* throttles .* at offset 0 for 0.02 s \(kafkaConsumer"):
        read(broker, kafkaConsumer__pollTimeoutMs="20")


def test_final_errors_are_told_at_once(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0)]))
    broker.fetch_errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ConnectorError, match="fetching t-0: TOPIC_AUTHORIZATION_FAILED"):
        read(broker)


def test_a_reader_that_is_left_early_leaves_no_answer_for_the_next(start_broker: Start) -> None:
    """LIMIT closes the iterator in the middle: its connection, an answer under way, is not used again."""
    big = [batch(offset, 10_000) for offset in range(0, 60_000, 10_000)]
    broker = start_broker(logs_of(big))
    parsed = parse_options(options_for(broker, kafka__max__partition__fetch__bytes="1"))
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    (partition,) = reader.partitions()
    for _ in range(3):
        first = iter(reader.read(partition))
        assert next(first).column("offset")[0].as_py() == 0
        first.close()  # type: ignore[attr-defined]
    assert read(broker) == list(range(60_000))


def test_connections_are_kept_between_tasks(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0)], [batch(0)]))
    for _ in range(3):
        assert read(broker) == [0, 0]
    assert broker.connections == 1


def test_the_isolation_level_reaches_the_broker(start_broker: Start) -> None:
    broker = start_broker(logs_of([batch(0)]))
    read(broker, **COMMITTED)
    levels = {request.isolation_level for request in broker.requests if hasattr(request, "isolation_level")}
    assert levels == {1}


def test_the_offsets_are_those_of_the_header(start_broker: Start) -> None:
    """The test's own logs are what they seem: a batch of 3 at 5 ends at 8."""
    assert parse_header(batch(5, 3)).next_offset == 8


def test_large_records_wait_for_no_more_than_a_mebibyte(start_broker: Start) -> None:
    """Answers of one record each: they are joined, and what is joined does not grow with the range."""
    records = [encode_batch([(1000, None, bytes(200_000), ())], base_offset=offset) for offset in range(12)]
    broker = start_broker(logs_of(records))
    parsed = parse_options(options_for(broker, kafka__max__partition__fetch__bytes="1"))
    reader = BatchReader(parsed, Shape.of(["offset", "value"]))
    (partition,) = reader.partitions()
    assert [made.num_rows for made in reader.read(partition)] == [6, 6]
