"""Goal: a transaction that an Apache Kafka left open in a directory ends: as its coordinator had decided, or
when its timeout is over, or when an administrator says so.

Method: transactional batches, and values of `__transaction_state` as Kafka writes them, lie in the logs of a
broker that is started again; clients and the HTTP questions see what became of them. What a real Kafka
leaves is in tests/kafka/test_hanging.py.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.groups.store import partition_for
from broker.left_transactions import Left, Status, left_open
from broker.partition import Partition
from broker.topic import METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.codegen import encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.internal import TransactionLogValue
from protocol.messages.transactions import ListTransactionsRequest, WriteTxnMarkersRequest
from protocol.records import encode_batch
from storage.layout import TopicPartition
from storage.types import Origin
from tests.broker.client import Client, until
from tests.broker.conftest import World
from tests.broker.test_offsets import HeldFlushes
from tests.broker.test_questions import Asker
from tests.broker.test_transactional_cleaning import ROWS, T, Transaction, commit_record, read
from tests.broker.test_transactional_cleaning import committed_offset as committed

MakeWorld = Callable[..., Awaitable[World]]
MINUTE_MS = 60_000


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


def value_of(
    status: int, *places: TopicPartition, producer_id: int = 7, **fields: Any
) -> TransactionLogValue:
    partitions = [
        TransactionLogValue.PartitionsSchema(topic=place.topic, partition_ids=[place.partition])
        for place in places
    ]
    return TransactionLogValue(
        producer_id=producer_id, transaction_status=status, transaction_partitions=partitions, **fields
    )


def knows(world: World, *values: TransactionLogValue | bytes | None, version: int = 1) -> None:
    """`__transaction_state` as a Kafka left it, each value that of another transactional id."""
    if world.broker.topics.get(TRANSACTIONS_TOPIC) is None:
        world.topic(TRANSACTIONS_TOPIC, cleanup_policy="compact")
    now_ms = world.clock.now_ms()
    for number, value in enumerate(values):
        raw = value
        if isinstance(value, TransactionLogValue):
            raw = version.to_bytes(2, "big") + b"".join(map(bytes, encode(value, version)))
        key = b"\x00\x00\x00\x02t%d" % number
        batch = encode_batch([(now_ms, key, raw, ())], now_ms=now_ms)
        world.broker.partitions[TopicPartition(TRANSACTIONS_TOPIC, 0)].append(
            batch, now_ms, Origin.COORDINATOR
        )


async def values_of(client: Client, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in await read(client, 1, topic)]


@pytest.mark.parametrize(
    ("status", "is_commit", "due_ms"),
    [
        (Status.EMPTY, None, 0), (Status.ONGOING, False, 1_060_000), (Status.PREPARE_COMMIT, True, 0),
        (Status.PREPARE_ABORT, False, 0), (Status.COMPLETE_COMMIT, None, 0), (Status.COMPLETE_ABORT, None, 0),
        (Status.DEAD, None, 0), (Status.PREPARE_EPOCH_FENCE, False, 0), (99, None, 0),
    ],
)  # fmt: skip
def test_what_a_coordinator_knew_decides(status: int, is_commit: bool | None, due_ms: int) -> None:
    value = value_of(
        status, T, ROWS, transaction_timeout_ms=MINUTE_MS, transaction_start_timestamp_ms=1_000_000
    )
    elsewhere = TopicPartition("t", 1)
    found = list(left_open([value], {T: [7, 8], elsewhere: [7], ROWS: [9]}))
    assert found == ([] if is_commit is None else [Left(T, 7, is_commit, due_ms)])


def test_a_value_without_partitions_decides_nothing() -> None:
    value = value_of(Status.PREPARE_COMMIT)
    value.transaction_partitions = None
    assert list(left_open([value], {T: [7]})) == []


@pytest.mark.parametrize("version", [0, 1])
async def test_a_commit_that_was_decided_is_written_at_start(world: World, version: int) -> None:
    """Its records are there for readers of committed ones, and its offsets are its group's."""
    world.topic()
    world.topic("rows")
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 2)
    offsets = TopicPartition(OFFSETS_TOPIC, partition_for("g", 2))
    await Transaction(world, T).write((b"a", b"1"))
    await Transaction(world, offsets).write(commit_record("g", 9))
    knows(world, value_of(Status.PREPARE_COMMIT, T, offsets), version=version)
    await world.restart()
    client = await world.connect()
    await until(lambda: not world.broker.partitions[T].is_flushing)
    assert await values_of(client) == [b"1"]
    assert await committed(client) == 9
    before = world.broker.partitions[T].log.log_end_offset
    await world.restart()
    assert world.broker.partitions[T].log.log_end_offset == before, "once"


async def test_an_abort_that_was_decided_is_written_at_start(world: World) -> None:
    world.topic()
    await Transaction(world, T).write((b"a", b"1"))
    await world.produce(await world.connect(), world.batch((b"a", b"2")))
    knows(world, value_of(Status.PREPARE_ABORT, T))
    await world.restart()
    client = await world.connect()
    await until(lambda: world.broker.partitions[T].log.last_stable_offset == 3)
    answer = await client.ask(ListTransactionsRequest(), 1)
    assert answer.transaction_states == []
    aborted = world.broker.partitions[T].log.aborted_transactions(0, 3)
    assert [(one.producer_id, one.first_offset) for one in aborted] == [(7, 0)]


async def test_what_was_going_on_is_aborted_when_its_timeout_is_over(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before: as by a Kafka that starts again. One that cannot be written is tried again."""
    world = asker.world
    world.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    await Transaction(world, T).write((b"a", b"1"))
    began_ms = world.clock.now_ms()
    knows(
        world,
        value_of(
            Status.ONGOING, T, transaction_timeout_ms=MINUTE_MS, transaction_start_timestamp_ms=began_ms
        ),
    )
    await world.restart()
    partition = world.broker.partitions[T]
    partition.log.roll(world.clock.now_ms())
    answer = await asker.why("last_stable_offset", "(offset 0), aborted at ")
    assert "topics abort" not in answer["sentence"]
    assert answer["open_transactions"][0]["aborted_ms"] == began_ms + MINUTE_MS
    left = world.broker.left_transactions
    world.clock.advance(MINUTE_MS - 1)
    await left.end_due()
    assert partition.log.last_stable_offset == 0
    world.clock.advance(1)

    def refused(*arguments: object, **fields: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "end_open_transaction", refused)
        await left.end_due()
    assert partition.log.producers.open_transactions() == {7: 0}
    await left.end_due()
    await until(lambda: partition.log.last_stable_offset == 2)
    await left.end_due()
    assert partition.log.log_end_offset == 2, "once"


async def test_a_topic_that_is_gone_meanwhile_has_no_transaction(world: World) -> None:
    world.topic()
    await Transaction(world, T).write((b"a", b"1"))
    knows(world, value_of(Status.ONGOING, T, transaction_start_timestamp_ms=world.clock.now_ms() + 1))
    await world.restart()
    await world.broker.topics.delete("t")
    world.clock.advance(MINUTE_MS)
    await world.broker.left_transactions.end_due()
    assert world.broker.left_transactions.due_ms(T, 7) is None


async def test_what_cannot_be_read_is_told_and_the_rest_counts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic()
    await Transaction(world, T).write((b"a", b"1"))
    good = value_of(Status.PREPARE_COMMIT, T)
    knows(world, b"\x00\x09new", b"", b"\x00\x01cut", None, good)
    with caplog.at_level(logging.INFO, "broker.left_transactions"):
        await world.restart()
    unreadable = [text for text in caplog.messages if "unreadable record of __transaction_state" in text]
    assert len(unreadable) == 3
    assert "t-0: the transaction of producer 7, open since offset 0, was committed" in caplog.text


async def test_what_no_coordinator_knows_of_is_aborted_by_who_is_asked_to(asker: Asker) -> None:
    world = asker.world
    world.topic("t", 2, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    client = await world.connect()
    for producer_id in (7, 8):
        await Transaction(world, T, producer_id).write((b"a", b"%d" % producer_id))
    world.broker.partitions[T].log.roll(world.clock.now_ms())
    await asker.why("last_stable_offset", "Nobody here ends it by itself: `kompakt topics abort` does.")
    answer = await asker.post("t/abort", {"partition": 0, "start_offset": 1})
    assert answer["partitions"] == [
        {"partition": 0, "aborted": [{"producer_id": 8, "first_offset": 1}], "last_stable_offset": 0}
    ]
    answer = await asker.post("t/abort", {"partition": 0, "start_offset": 1})
    assert answer["partitions"][0]["error"] == "no transaction that is open began at offset 1"
    answer = await asker.post("t/abort", {})
    assert [(one["partition"], len(one["aborted"])) for one in answer["partitions"]] == [(0, 1), (1, 0)]
    assert answer["partitions"][0]["last_stable_offset"] == 4
    assert [record.value for record in await read(client, 1)] == [b"7", b"8"], "with the aborted ones listed"
    await asker.post("t/abort", {"start_offset": 1}, status=400)
    await asker.post("none/abort", {}, status=404)


async def test_an_abort_that_is_not_durable_is_told(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    world = asker.world
    world.topic()
    await Transaction(world, T).write((b"a", b"1"))
    flushes = HeldFlushes(world, monkeypatch)
    asked = asyncio.create_task(asker.post("t/abort", {}))
    await until(lambda: flushes.held)
    flushes.end(OSError(errno.EIO, "as a test says"))
    assert "as a test says" in (await asked)["partitions"][0]["error"]


async def marked(client: Client, topic: str, *, is_commit: bool = False) -> int:
    """The error of a marker for producer 7."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    place = marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])
    wanted = marker(producer_id=7, transaction_result=is_commit, topics=[place])
    answer = await client.ask(WriteTxnMarkersRequest(markers=[wanted]), 1)
    code: int = answer.markers[0].topics[0].partitions[0].error_code
    return code


async def test_a_marker_is_answered_when_it_is_on_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topic()
    client = await world.connect()
    for failure, code in ((None, 0), (OSError(errno.EIO, "as a test says"), ErrorCode.KAFKA_STORAGE_ERROR)):
        with monkeypatch.context() as patch:
            flushes = HeldFlushes(world, patch)
            asked = asyncio.create_task(marked(client, "t"))
            await until(lambda held=flushes: held.held)
            assert not asked.done()
            flushes.end(failure)
            assert await asked == code
    assert await marked(client, "t") == ErrorCode.KAFKA_STORAGE_ERROR, "the log is offline"


async def test_markers_that_would_not_be_seen_or_are_not_anybodys_are_refused(world: World) -> None:
    world.topic()
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 2)
    assert await marked(client, METADATA_TOPIC) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await marked(client, OFFSETS_TOPIC, is_commit=True) == ErrorCode.INVALID_TXN_STATE
    assert await marked(client, OFFSETS_TOPIC) == 0
    assert await marked(client, "t", is_commit=True) == 0


async def test_no_transaction_is_known_by_name(world: World) -> None:
    client = await world.connect()
    answer = await client.ask(ListTransactionsRequest(state_filters=["Ongoing", "PrepareEpochFence", "x"]), 0)
    assert (answer.error_code, answer.transaction_states, answer.unknown_state_filters) == (0, [], ["x"])
