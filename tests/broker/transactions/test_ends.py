"""Goal: every transaction ends, whatever happens: as was decided before a stop or a crash, when its timeout
is over, or when an administrator says so; in the directory of an Apache Kafka as in our own.

Method: a broker is stopped, its disk refuses, its clock moves, between the steps of a transaction; values of
`__transaction_state` as Kafka writes them lie in its logs. What a real Kafka leaves is in
tests/kafka/test_hanging.py.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.partition import Partition
from broker.state_topic import Producer, StateTopic, partition_for
from broker.topic import METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.transactions.records import state_key
from broker.transactions.state import Status
from protocol.codegen import encode
from protocol.control import Marker
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.internal import TransactionLogValue
from protocol.messages.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from protocol.records import encode_batch
from storage.layout import TopicPartition
from storage.types import Origin
from tests.broker.client import Client, until
from tests.broker.conftest import World
from tests.broker.test_offsets import HeldFlushes
from tests.broker.test_questions import Asker
from tests.broker.test_transactional_cleaning import ROWS, T, Transaction, commit_record, read
from tests.broker.test_transactional_cleaning import committed_offset as committed
from tests.broker.transactions.producer import Transactional

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
        key = state_key(f"t{number}")
        batch = encode_batch([(now_ms, key, raw, ())], now_ms=now_ms)
        world.broker.partitions[TopicPartition(TRANSACTIONS_TOPIC, 0)].append(
            batch, now_ms, Origin.COORDINATOR
        )


async def values_of(client: Client, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in await read(client, 1, topic)]


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
    assert [row.transaction_state for row in answer.transaction_states] == ["CompleteAbort"]
    aborted = world.broker.partitions[T].log.aborted_transactions(0, 3)
    assert [(one.producer_id, one.first_offset) for one in aborted] == [(7, 0)]


async def test_what_was_going_on_is_aborted_when_its_timeout_is_over(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before: as by a Kafka that starts again. What cannot be written is tried again."""
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
    answer = await asker.why(
        "last_stable_offset", "(offset 0, aborted at ", "UTC): the last", "`kompakt transactions` tells whose"
    )
    assert "topics abort" not in answer["sentence"]
    assert answer["open_transactions"][0]["aborted_ms"] == began_ms + MINUTE_MS
    transactions = world.broker.transactions
    world.clock.advance(MINUTE_MS - 1)
    await transactions.end_due()
    assert partition.log.last_stable_offset == 0
    world.clock.advance(1)
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append", full)
        await transactions.end_due()
    assert transactions.states["t0"].status is Status.ONGOING
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "end_transaction", full)
        await transactions.end_due()
    assert partition.log.producers.open_transactions() == {7: 0}
    assert transactions.states["t0"].status is Status.PREPARE_ABORT
    await transactions.end_due()
    assert partition.log.last_stable_offset == 2
    await transactions.end_due()
    assert partition.log.log_end_offset == 2, "once"


def full(*arguments: object, **fields: object) -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")


async def test_a_producer_that_is_too_late_is_fenced(world: World) -> None:
    """transaction.timeout.ms."""
    world.topic()
    tx = await Transactional.begin(world, timeout_ms=MINUTE_MS)
    await tx.put(b"1")
    world.clock.advance(MINUTE_MS)
    await world.broker.transactions.end_due()
    assert world.broker.partitions[T].log.last_stable_offset == 2
    assert await tx.write(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await tx.end(is_commit=True) == ErrorCode.PRODUCER_FENCED
    was = tx.producer
    assert await tx.init() == 0
    assert tx.producer == Producer(was.producer_id, was.epoch + 2)


async def test_a_transaction_goes_on_over_a_restart(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    await tx.put(b"1")
    await world.restart()
    tx.client = await world.connect()
    assert await tx.write(b"2") == 0
    assert await values_of(tx.client) == []
    assert await tx.end(is_commit=True) == 0
    assert await values_of(tx.client) == [b"1", b"2"]


async def test_what_could_not_be_carried_out_before_a_stop_is_at_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is decided, so the producer hears no error; until then it cannot begin another one."""
    world.topic()
    tx = await Transactional.begin(world)
    await tx.put(b"1")
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "end_transaction", full)
        assert await tx.end(is_commit=True) == 0
        assert await tx.add(T) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert await tx.write(b"late") == ErrorCode.NOT_ENOUGH_REPLICAS, "though the log has it open"
        assert await tx.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert "the transaction of 'tx', in t-0: KAFKA_STORAGE_ERROR: the disk is full" in caplog.text
    await world.restart()
    tx.client = await world.connect()
    assert await values_of(tx.client) == [b"1"]
    assert await tx.add(T) == [0]


async def test_a_state_that_cannot_be_stored_is_not_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client looks for its coordinator and tries again."""
    world.topic()
    tx = await Transactional.begin(world)
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append", full)
        assert await tx.add(T) == [ErrorCode.NOT_COORDINATOR]
        assert await tx.init() == ErrorCode.NOT_COORDINATOR
    await tx.put(b"1")
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append", full)
        assert await tx.end(is_commit=True) == ErrorCode.NOT_COORDINATOR
    assert await values_of(tx.client) == []
    assert await tx.end(is_commit=True) == 0
    assert await values_of(tx.client) == [b"1"]


async def test_a_last_record_that_cannot_be_stored_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    await tx.put(b"1")
    append = world.broker.transactions._append

    def refuses_the_last(transactional_id: str, state: Any) -> Any:
        return full() if state.status is Status.COMPLETE_COMMIT else append(transactional_id, state)

    monkeypatch.setattr(world.broker.transactions, "_append", refuses_the_last)
    assert await tx.end(is_commit=True) == 0
    assert await values_of(tx.client) == [b"1"]
    monkeypatch.undo()
    await world.broker.transactions.end_due()
    assert world.broker.transactions.states["tx"].status is Status.COMPLETE_COMMIT
    assert world.broker.partitions[T].log.log_end_offset == 2, "one marker"


async def test_a_marker_that_is_not_durable_is_written_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    await tx.put(b"1")
    flushes = HeldFlushes(world, monkeypatch)
    ending = asyncio.create_task(tx.end(is_commit=True))
    await until(lambda: flushes.held)
    flushes.end(OSError(errno.EIO, "as a test says"))
    assert await ending == 0
    monkeypatch.undo()
    assert world.broker.transactions._unmarked == {"tx": {T}}
    world.clock.advance(10_000)
    await world.broker.reopening.run()
    world.clock.advance(10_000)
    await world.broker.reopening.run()
    await until(lambda: world.broker.partitions[T].log.offline_reason is None)
    await world.broker.transactions.end_due()
    assert await values_of(tx.client) == [b"1"]


async def test_a_log_that_knows_a_later_epoch_needs_no_marker(world: World) -> None:
    """Of somebody who wrote one by hand."""
    world.topic()
    tx = await Transactional.begin(world)
    await tx.put(b"1")
    world.broker.partitions[T].end_transaction_of(tx.producer.producer_id, 9, 0, is_commit=False)
    assert await tx.end(is_commit=True) == 0
    assert world.broker.transactions.states["tx"].status is Status.COMPLETE_COMMIT


async def test_a_topic_that_is_gone_meanwhile_has_no_transaction(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    await tx.put(b"1")
    await world.broker.deletions.delete("t")
    assert await tx.end(is_commit=True) == 0


async def test_ids_that_nobody_uses_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """transactional.id.expiration.ms; one whose transaction goes on is in use."""
    world.topic()
    idle, busy = await Transactional.begin(world, "idle"), await Transactional.begin(world, "busy")
    await busy.put(b"1")
    week_ms = 7 * 24 * 3_600_000
    world.clock.advance(week_ms - 1)
    await world.broker.transactions.expire()
    assert set(world.broker.transactions.states) == {"idle", "busy"}
    world.clock.advance(1)
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append", full)
        await world.broker.transactions.expire()
    assert "idle" in world.broker.transactions.states
    await world.broker.transactions.expire()
    assert set(world.broker.transactions.states) == {"busy"}
    await world.restart()
    assert "idle" not in world.broker.transactions.states
    idle.client = await world.connect()
    assert await idle.end(is_commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_an_id_that_is_used_while_others_are_forgotten_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk over all of them gives way to requests."""
    monkeypatch.setattr("broker.transactions.coordinator.FORGOTTEN_A_TURN", 1)
    await Transactional.begin(world, "first")
    second = await Transactional.begin(world, "second")
    world.clock.advance(7 * 24 * 3_600_000)
    walk = world.broker.transactions.expire()
    walk.send(None)
    assert set(world.broker.transactions.states) == {"second"}
    assert await second.init() == 0
    with pytest.raises(StopIteration):
        while True:
            walk.send(None)
    assert set(world.broker.transactions.states) == {"second"}
    world.topic()
    await second.put(b"1")
    assert await second.end(is_commit=True) == 0


async def test_beyond_a_number_of_ids_the_longest_unused_are_forgotten(make_world: MakeWorld) -> None:
    """max.transactional.ids; none of which anything goes on."""
    world = await make_world(max_transactional_ids="3")
    world.topic()
    for number in range(3):
        tx = await Transactional.begin(world, f"tx-{number}")
        if number == 0:
            await tx.put(b"1")
        world.clock.advance(1)
    for number, left in ((3, {"tx-0", "tx-2", "tx-3"}), (4, {"tx-0", "tx-3", "tx-4"})):
        world.clock.advance(1)
        await Transactional.begin(world, f"tx-{number}")
        assert set(world.broker.transactions.states) == left
    assert await (await Transactional.begin(world, "tx-4")).end(is_commit=True) == ErrorCode.INVALID_TXN_STATE
    await world.restart()
    assert set(world.broker.transactions.states) == {"tx-0", "tx-3", "tx-4"}


async def test_a_producer_that_is_quicker_than_its_timeout_is_left_alone(world: World) -> None:
    """What was due when it was looked for may have ended when its turn comes."""
    world.topic()
    tx = await Transactional.begin(world, timeout_ms=MINUTE_MS)
    await tx.put(b"1")
    world.clock.advance(MINUTE_MS)
    transactions = world.broker.transactions
    await asyncio.gather(
        transactions.end("tx", tx.producer, is_commit=True),
        transactions._end_due("tx"),
    )
    assert transactions.states["tx"].status is Status.COMPLETE_COMMIT
    transactions.states.clear()
    await transactions._end_due("tx")


@pytest.mark.parametrize("status", [Status.EMPTY, Status.COMPLETE_COMMIT, Status.ONGOING])
async def test_what_a_power_cut_took_the_end_of_is_aborted(
    world: World, status: Status, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that is not flushed each time may lose a marker that its coordinator has seen on the way to
    disk. One that goes on elsewhere takes no part here.
    """
    world.topic()
    world.topic("rows")
    await Transaction(world, T).write((b"a", b"1"))
    place = () if status is not Status.ONGOING else (ROWS,)
    knows(world, value_of(status, *place, transaction_start_timestamp_ms=world.clock.now_ms() + MINUTE_MS))
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "end_transaction", full)
        await world.restart()
    assert "a transaction of t-0 stays open" in caplog.text
    await world.restart()
    assert "t-0: the transaction of producer 7 is aborted: its end was lost" in caplog.text
    await until(lambda: world.broker.partitions[T].log.last_stable_offset == 2)
    assert len(world.broker.partitions[T].log.aborted_transactions(0, 2)) == 1


async def test_producer_ids_that_a_coordinator_knows_are_not_given_again(world: World) -> None:
    """Of a directory of Kafka's, where no log has written of them."""
    knows(world, value_of(Status.EMPTY, producer_id=0), value_of(Status.EMPTY, producer_id=1))
    await world.restart()
    tx = await Transactional.begin(world)
    assert tx.producer.producer_id == 2


async def test_what_cannot_be_read_is_told_and_the_rest_counts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic()
    await Transaction(world, T).write((b"a", b"1"))
    good = value_of(Status.PREPARE_COMMIT, T)
    knows(world, b"\x00\x09new", b"", b"\x00\x01cut", None, good, value_of(Status.DEAD, T))
    await world.restart()
    unreadable = [text for text in caplog.messages if "unreadable record of __transaction_state" in text]
    assert len(unreadable) == 3
    assert await values_of(await world.connect()) == [b"1"]
    assert set(world.broker.transactions.states) == {"t4"}


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


async def marked(client: Client, topic: str, *, index: int = 0, is_commit: bool = False) -> int:
    """The error of a marker for producer 7."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    place = marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
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


async def test_markers_that_are_not_anybodys_are_refused(world: World) -> None:
    world.topic()
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 2)
    for topic in (METADATA_TOPIC, TRANSACTIONS_TOPIC):
        await client.ask(FindCoordinatorRequest(key_type=1, key="tx"), 2)
        assert await marked(client, topic) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await marked(client, OFFSETS_TOPIC) == 0
    assert await marked(client, "t", is_commit=True) == 0


async def test_offsets_that_a_marker_commits_are_there_at_once(world: World) -> None:
    """Of a transaction that an administrator ends."""
    world.topic("rows")
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 2)
    offsets = TopicPartition(OFFSETS_TOPIC, partition_for("g", 2))
    await Transaction(world, offsets).write(commit_record("g", 9))
    await world.restart()
    client = await world.connect()
    assert await committed(client) == -1
    assert await marked(client, OFFSETS_TOPIC, index=offsets.partition, is_commit=True) == 0
    assert await committed(client) == 9


async def test_who_is_aborted_by_an_administrator_is_fenced_everywhere(asker: Asker) -> None:
    """`kompakt topics abort` of one partition ends what a coordinator knows in all of them."""
    world = asker.world
    world.topic()
    world.topic("rows")
    tx = await Transactional.begin(world)
    for place in (T, ROWS):
        await tx.put(b"1", place)
    answer = await asker.post("t/abort", {})
    assert answer["partitions"][0]["last_stable_offset"] == 2
    assert world.broker.partitions[ROWS].log.last_stable_offset == 2
    assert await tx.end(is_commit=True) == ErrorCode.PRODUCER_FENCED


async def test_transactions_are_listed_and_described(world: World) -> None:
    world.topic()
    one, two = await Transactional.begin(world, "one"), await Transactional.begin(world, "two")
    began_ms = world.clock.now_ms()
    await two.put(b"1")
    world.clock.advance(500)

    async def listed(version: int = 1, **fields: Any) -> list[tuple[str, int, str]]:
        answer = await one.client.ask(ListTransactionsRequest(**fields), version)
        assert answer.error_code == 0
        rows = answer.transaction_states
        return [(row.transactional_id, row.producer_id, row.transaction_state) for row in rows]

    first = ("one", one.producer.producer_id, "Empty")
    second = ("two", two.producer.producer_id, "Ongoing")
    assert await listed(0) == [first, second]
    assert await listed(state_filters=["Ongoing"]) == [second]
    assert await listed(producer_id_filters=[one.producer.producer_id]) == [first]
    assert await listed(duration_filter=499) == [first, second], "what never began has no time, as in Kafka"
    assert await listed(duration_filter=500) == [first]
    for pattern, expected in (("t.*", [second]), ("t", []), ("", [first, second]), (None, [first, second])):
        assert await listed(2, transactional_id_pattern=pattern) == expected, "as a whole, as in Kafka"
    bad = await one.client.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert (bad.error_code, bad.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])
    unknown = await one.client.ask(ListTransactionsRequest(state_filters=["PrepareEpochFence", "x"]), 0)
    assert unknown.unknown_state_filters == ["x"]
    asked = DescribeTransactionsRequest(transactional_ids=["two", "none", ""])
    answer = (await one.client.ask(asked, 0)).transaction_states
    codes = [0, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST]
    assert [row.error_code for row in answer] == codes
    row = answer[0]
    assert (row.transaction_state, row.transaction_timeout_ms, row.transaction_start_time_ms) == (
        "Ongoing", MINUTE_MS, began_ms,
    )  # fmt: skip
    assert Producer(row.producer_id, row.producer_epoch) == two.producer
    assert [(topic.topic, topic.partitions) for topic in row.topics] == [("t", [0])]


async def test_a_log_of_transactions_that_cannot_be_read_says_so_until_it_can(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To say that nobody has the id would let two producers write under it."""
    world.topic()
    tx = await Transactional.begin(world)
    await world.stop()
    real = StateTopic._load_one

    async def fails(self: Any, index: int, apply: Any) -> None:
        if self.name == TRANSACTIONS_TOPIC:
            raise OSError(errno.EIO, "as a test says")
        await real(self, index, apply)

    with monkeypatch.context() as patch:
        patch.setattr(StateTopic, "_load_one", fails)
        await world.start()
    tx.client = await world.connect()
    assert await tx.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await tx.add(T) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    place = TopicPartition(TRANSACTIONS_TOPIC, partition_for("tx", 50))
    await world.broker.transactions.load_again(place)
    assert await tx.add(T) == [0]


async def test_a_marker_that_was_there_before_ends_the_transaction_all_the_same(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """An administrator's, of a later epoch: nothing is left open, and it is no error of the broker (found by
    the siege).
    """
    world.topic()
    producer = await Transactional.begin(world, "pay")
    assert await producer.add(T) == [0]
    assert await producer.write(b"v") == 0
    log = world.broker.partitions[T].log
    waited = world.broker.partitions[T].end_transaction(
        Marker(is_commit=False),
        producer.producer.producer_id,
        producer.producer.epoch + 5,
        world.clock.now_ms(),
    )
    if waited is not None:
        await waited
    assert await producer.end(is_commit=True) == 0
    await until(lambda: world.broker.transactions.states["pay"].status is Status.COMPLETE_COMMIT)
    assert log.producers.open_transactions() == {}
    (told,) = [one for one in caplog.records if "the transaction of 'pay'" in one.getMessage()]
    assert (told.levelname, "INVALID_PRODUCER_EPOCH" in told.getMessage()) == ("WARNING", True)
