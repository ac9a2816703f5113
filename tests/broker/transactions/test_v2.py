"""Goal: with transactions v2 (KIP-890) a transaction is all or nothing as before, and nothing of it is
answered before it is known for good where it takes part: whatever a power cut or a full disk takes, a commit
that was answered has all that was answered before it.

Method: a client as `Transactional`, that brings partitions along by its records; flushes that the test ends;
logs as a power cut leaves them. What a real Kafka answers is asked in tests/kafka.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

import pytest

from broker.partition import Partition
from broker.state_topic import Producer
from broker.topic import TRANSACTIONS_TOPIC
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.records import read_state, state_value
from broker.transactions.state import EXHAUSTED_EPOCH, MAX_EPOCH, V2, Status, TransactionState
from protocol.errors import ErrorCode
from protocol.messages.groups import FindCoordinatorRequest
from storage.layout import TopicPartition
from storage.types import Origin
from tests.broker.client import Client, until
from tests.broker.conftest import World, produce_request
from tests.broker.test_transactional_cleaning import ROWS, Transaction, committed_offset, read
from tests.broker.transactions.producer import T, Transactional
from tests.broker.transactions.test_ends import MINUTE_MS, full, knows, value_of

U = TopicPartition("u", 1)


async def values(client: Client, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in await read(client, 1, topic)]


def state_of(world: World, transactional_id: str = "tx") -> TransactionState:
    state = world.broker.transactions.find(transactional_id)
    assert state is not None
    return state


class HeldStates:
    """Flushes of `__transaction_state` that end when the test says so."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[tuple[Any, Callable[..., None]]] = []
        self._holds = True
        self._pass_on = world.broker.flusher.submit
        monkeypatch.setattr(world.broker.flusher, "submit", self._submit)

    def _submit(self, job: Any, done: Any) -> None:
        if self._holds and done.__self__.topic_partition.topic == TRANSACTIONS_TOPIC:
            self.held.append((job, done))
        else:
            self._pass_on(job, done)

    def let_go(self) -> None:
        """Those that are held, and all that come."""
        self._holds = False
        while self.held:
            self.end()

    def end(self, error: OSError | None = None) -> None:
        job, done = self.held.pop(0)
        if error is None:
            job.run()
        done(job, error)


async def test_records_bring_their_partitions_and_each_end_the_next_epoch(world: World) -> None:
    world.topic()
    world.topic("u", 2)
    tx = await Transactional.begin(world)
    first = tx.producer
    for place in (T, U, T):
        assert await tx.write(b"1", place, version=12) == 0
    assert state_of(world).partitions == {T, U}
    assert await values(tx.client) == []
    assert await tx.end_v2(is_commit=True) == 0
    assert tx.producer == Producer(first.producer_id, first.epoch + 1)
    assert await values(tx.client) == [b"1", b"1"]
    assert await tx.write(b"2", version=12) == 0
    assert await tx.end_v2(is_commit=False) == 0
    logs = [world.broker.partitions[place].log for place in (T, U)]
    assert [(log.log_end_offset, log.last_stable_offset) for log in logs] == [(5, 5), (2, 2)]
    assert [len(log.aborted_transactions(0, 5)) for log in logs] == [1, 0]


async def test_what_comes_late_is_no_part_of_the_next_transaction(world: World) -> None:
    world.topic()
    world.topic("u", 2)
    tx = await Transactional.begin(world)
    late = await Transactional.begin(world, "other")
    late.transactional_id, late.producer = tx.transactional_id, tx.producer
    assert await tx.write(b"1", version=12) == 0
    assert await tx.end_v2(is_commit=True) == 0
    assert await tx.write(b"2", version=12) == 0
    for place in (T, U):
        assert await late.write(b"late", place, version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await tx.end_v2(is_commit=True) == 0
    assert await values(tx.client) == [b"1", b"2"]
    assert state_of(world).status is Status.COMPLETE_COMMIT


@pytest.mark.parametrize("acks", [1, -1])
async def test_nothing_is_answered_before_it_is_known_where_the_transaction_takes_part(
    world: World, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """The second one finds the partition there, and waits all the same: a commit would not reach it."""
    world.topic()
    tx = await Transactional.begin(world)
    states = HeldStates(world, monkeypatch)
    asked = []
    for sequence in range(2):
        batch = world.batch((b"k", b"v"), base_sequence=sequence, **tx.batch_fields)
        request = produce_request([(*T, batch)], acks=acks, transactional_id="tx")
        client = await world.connect()
        asked.append(asyncio.create_task(client.ask(request, 12)))
        await until(lambda: world.broker.partitions[T].log.log_end_offset == len(asked))
    await until(lambda: not world.broker.partitions[T].is_flushing)
    assert not [one for one in asked if one.done()]
    states.let_go()
    answers = await asyncio.gather(*asked)
    assert [one.responses[0].partition_responses[0].error_code for one in answers] == [0, 0]


async def test_where_that_cannot_be_written_down_nothing_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    with monkeypatch.context() as patch:
        patch.setattr(world.broker.transactions, "_append", full)
        assert await tx.write(b"1", version=12) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await tx.commit_offsets({T: 1}, version=5) == [ErrorCode.NOT_COORDINATOR]
    assert world.broker.partitions[T].log.log_end_offset == 0
    assert await tx.write(b"1", version=12) == 0


async def test_where_it_may_not_be_on_disk_it_is_written_down_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush that failed: the next one to ask finds the partition there, and is not answered for that."""
    world.topic()
    tx = await Transactional.begin(world)
    states = HeldStates(world, monkeypatch)
    writing = asyncio.create_task(tx.write(b"1", version=12))
    await until(lambda: states.held)
    states.end(OSError(errno.EIO, "as a test says"))
    assert await writing == ErrorCode.KAFKA_STORAGE_ERROR
    assert await tx.write(b"1", version=12) == ErrorCode.NOT_ENOUGH_REPLICAS, "its log is offline"
    monkeypatch.undo()
    for _ in range(2):
        world.clock.advance(10_000)
        await world.broker.reopening.run()
    place = world.broker.transactions.place_of("tx")
    await until(lambda: world.broker.partitions[place].log.offline_reason is None)
    end = world.broker.partitions[place].log.log_end_offset
    assert await tx.write(b"1", version=12) == 0, "known there: sent again"
    assert world.broker.partitions[place].log.log_end_offset == end + 1
    assert await tx.end_v2(is_commit=True) == 0
    assert await values(tx.client) == [b"1"]


@pytest.mark.parametrize(
    ("status", "client_version"), [(Status.EMPTY, 0), (Status.COMPLETE_ABORT, V2), (Status.ONGOING, V2)]
)
async def test_what_a_power_cut_took_the_begin_of_is_aborted_and_not_taken_for_written(
    world: World, status: Status, client_version: int
) -> None:
    """The records are on disk, that the transaction takes part there is not, and nobody was answered: who
    sends them again must not be told that they are there, for they are aborted.
    """
    world.topic()
    world.topic("u", 2)
    await Transaction(world, T).write((b"k", b"1"))
    begun = [U] if status is Status.ONGOING else []
    knows(
        world,
        value_of(
            status, *begun, client_transaction_version=client_version, transaction_timeout_ms=MINUTE_MS,
            transaction_start_timestamp_ms=world.clock.now_ms(),
        ),
    )  # fmt: skip
    await world.restart()
    tx = Transactional(world, await world.connect(), "t0")
    tx.producer = Producer(7, 0)
    assert await tx.write(b"1", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await tx.end_v2(is_commit=False) == 0
    assert tx.producer == Producer(7, 1)
    assert await tx.write(b"1", version=12) == 0
    assert await tx.end_v2(is_commit=True) == 0
    log = world.broker.partitions[T].log
    (aborted,) = log.aborted_transactions(0, log.log_end_offset)
    assert (aborted.first_offset, aborted.last_offset) == (0, 1)
    assert await values(tx.client) == [b"1", b"1"], "the first is left out by clients"
    assert log.last_stable_offset == log.log_end_offset


async def write_open(world: World, producer: Producer, place: TopicPartition = T) -> None:
    """Records of a transaction that its coordinator knows nothing of."""
    batch = world.batch(
        (b"k", b"next"), base_sequence=0, producer_id=producer.producer_id, producer_epoch=producer.epoch,
        is_transactional=True,
    )  # fmt: skip
    world.broker.partitions[place].append(batch, world.clock.now_ms(), Origin.COORDINATOR)


async def test_what_a_log_lost_that_was_offline_at_the_start_is_aborted_when_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    await Transaction(world, T).write((b"k", b"1"))
    knows(world, value_of(Status.EMPTY))
    with monkeypatch.context() as patch:
        patch.setattr(TransactionCoordinator, "abort_lost", lambda self: None)
        await world.restart()
    log = world.broker.partitions[T].log
    log.take_offline("as a test says")
    assert log.last_stable_offset == 0
    await world.broker.reopening.reopen(world.broker.partitions[T])
    log = world.broker.partitions[T].log
    await until(lambda: log.last_stable_offset == log.log_end_offset == 2)


@pytest.mark.parametrize("next_id", [-1, 8], ids=["next epoch", "next producer id"])
@pytest.mark.parametrize("place", [T, U], ids=["in its partition", "elsewhere"])
async def test_what_is_ending_does_not_reach_what_came_behind_it(
    world: World, next_id: int, place: TopicPartition
) -> None:
    """Its end was answered, its last record and what was joined next are lost, the records of the next
    transaction are there: they are not committed by the marker that is written once more.
    """
    world.topic()
    world.topic("u", 2)
    await Transaction(world, T).write((b"k", b"1"))
    next_one = Producer(8, 0) if next_id > 0 else Producer(7, 1)
    world.broker.partitions[T].end_transaction_of(7, 1, world.clock.now_ms(), is_commit=True)
    await write_open(world, next_one, place)
    ending = value_of(
        Status.PREPARE_COMMIT, T, producer_epoch=1, client_transaction_version=V2, next_producer_id=next_id,
        transaction_timeout_ms=MINUTE_MS,
    )  # fmt: skip
    knows(world, ending)
    await world.restart()
    log = world.broker.partitions[place].log
    await until(lambda: log.last_stable_offset == log.log_end_offset)
    assert [one.producer_id for one in log.aborted_transactions(0, 9)] == [next_one.producer_id]
    assert world.broker.partitions[T].log.aborted_transactions(0, 2) == []
    tx = Transactional(world, await world.connect(), "t0")
    tx.producer = next_one
    assert state_of(world, "t0").producer == next_one
    assert await tx.write(b"next", place, version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await tx.end_v2(is_commit=False) == 0
    assert await tx.write(b"next", place, version=12) == 0
    assert await tx.end_v2(is_commit=True) == 0


async def test_the_first_one_behind_an_older_clients_is_written_down_before_its_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have one epoch: a producer that goes on behind an upgrade of its broker. Of records without their
    transaction a start could not say that they are no part of the one that has ended.
    """
    world.topic()
    world.topic("u", 2)
    tx = await Transactional.begin(world)
    await tx.client.ask(FindCoordinatorRequest(key="g"), 2)
    await tx.put(b"1")
    assert await tx.end(is_commit=True) == 0
    with monkeypatch.context() as patch:
        states = HeldStates(world, patch)
        assert await tx.write(b"2", U, version=12) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await tx.commit_offsets({T: 1}, version=5) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert world.broker.partitions[U].log.log_end_offset == 0
        states.let_go()
    await until(lambda: state_of(world).partitions == {U})
    assert await tx.write(b"2", U, version=12) == 0
    assert await tx.write(b"2", version=12) == 0
    assert await tx.end_v2(is_commit=True) == 0
    assert await values(tx.client) == [b"1", b"2"]
    assert await tx.write(b"3", version=12) == 0, "at once"


async def test_an_end_that_was_lost_is_not_made_up_for_by_the_next_one(world: World) -> None:
    """A log that is not flushed each time lost an abort, and the next transaction takes part there."""
    world.topic()
    await Transaction(world, T).write((b"k", b"aborted"))
    begun = value_of(
        Status.ONGOING, T, producer_epoch=1, client_transaction_version=V2, transaction_timeout_ms=MINUTE_MS,
        transaction_start_timestamp_ms=world.clock.now_ms(),
    )  # fmt: skip
    knows(world, begun)
    await world.restart()
    tx = Transactional(world, await world.connect(), "t0")
    tx.producer = Producer(7, 1)
    assert await tx.write(b"2", version=12) == 0
    assert await tx.end_v2(is_commit=True) == 0
    (aborted,) = world.broker.partitions[T].log.aborted_transactions(0, 9)
    assert (aborted.first_offset, aborted.last_offset) == (0, 1)


async def test_offsets_are_a_part_without_being_announced(world: World) -> None:
    world.topic()
    world.topic("rows")
    tx = await Transactional.begin(world)
    await tx.client.ask(FindCoordinatorRequest(key="g"), 2)
    for offset, is_commit, expected in ((5, True, 5), (9, False, 5)):
        assert await tx.commit_offsets({ROWS: offset}, version=5) == [0]
        assert await committed_offset(tx.client) == (-1 if is_commit else 5)
        assert await tx.end_v2(is_commit=is_commit) == 0
        assert await committed_offset(tx.client) == expected
    late = Producer(tx.producer.producer_id, tx.producer.epoch - 1)
    tx.producer, now = late, tx.producer
    assert await tx.commit_offsets({T: 11}, version=5) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    tx.producer = now
    assert await tx.commit_offsets({T: 11}, version=5, group_id="") == [ErrorCode.INVALID_GROUP_ID]


async def test_offsets_of_what_is_not_there_begin_nothing(world: World) -> None:
    """As in Kafka, which looks at nothing else then."""
    tx = await Transactional.begin(world)
    await tx.client.ask(FindCoordinatorRequest(key="g"), 2)
    nowhere = TopicPartition("none", 0)
    for fields in ({}, {"group_id": ""}, {"producer_epoch": 7}, {"transactional_id": "nobody"}):
        answer = await tx.commit_offsets({nowhere: 5}, version=5, **fields)
        assert answer == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await tx.commit_offsets({}, version=5) == []
    assert world.broker.transactions.states["tx"].status is Status.EMPTY


async def test_offsets_wait_for_what_they_are_a_part_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    await tx.client.ask(FindCoordinatorRequest(key="g"), 2)
    states = HeldStates(world, monkeypatch)
    committing = asyncio.create_task(tx.commit_offsets({T: 5}, version=5))
    await until(lambda: states.held)
    assert not committing.done()
    states.end(OSError(errno.EIO, "as a test says"))
    assert await committing == [ErrorCode.NOT_COORDINATOR]


async def test_an_end_is_answered_again_as_before(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    assert await tx.end_v2(is_commit=True) == ErrorCode.INVALID_TXN_STATE
    for is_commit in (True, False):
        assert await tx.write(b"1", version=12) == 0
        before = tx.producer
        assert await tx.end_v2(is_commit=is_commit) == 0
        after, tx.producer = tx.producer, before
        assert await tx.end_v2(is_commit=not is_commit) == ErrorCode.INVALID_TXN_STATE
        assert await tx.end_v2(is_commit=is_commit) == 0
        assert tx.producer == after, "and once"
    assert await tx.end_v2(is_commit=False) == 0, "of nothing"
    assert tx.producer.epoch == after.epoch + 1
    tx.producer = before
    assert await tx.end_v2(is_commit=False) == ErrorCode.PRODUCER_FENCED


async def test_what_is_ending_is_answered_when_it_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    assert await tx.write(b"1", version=12) == 0
    before = tx.producer
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "end_transaction_of", full)
        assert await tx.end_v2(is_commit=True) == 0
        assert await tx.write(b"2", version=12) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await tx.commit_offsets({T: 1}, version=5) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        after, tx.producer = tx.producer, before
        assert await tx.end_v2(is_commit=True) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await tx.end_v2(is_commit=False) == ErrorCode.INVALID_TXN_STATE
    await world.broker.transactions.end_due()
    assert await tx.end_v2(is_commit=True) == 0
    assert tx.producer == after
    assert await tx.write(b"2", version=12) == 0


async def test_epochs_that_are_used_up_are_followed_by_a_new_producer_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    transactions = world.broker.transactions
    worn = Producer(tx.producer.producer_id, EXHAUSTED_EPOCH)
    await transactions._move("tx", TransactionState(*worn, MINUTE_MS))
    tx.producer = worn
    assert await tx.write(b"1", version=12) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "end_transaction_of", full)
        assert await tx.end_v2(is_commit=True) == 0
        assert await tx.write(b"2", version=12) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert tx.producer.producer_id != worn.producer_id
    assert tx.producer.epoch == 0
    await world.restart()
    tx.client = await world.connect()
    assert world.broker.partitions[T].log.producers.producers[worn.producer_id].epoch == MAX_EPOCH
    fresh = tx.producer
    for _ in range(2):
        tx.producer = worn
        assert await tx.end_v2(is_commit=True) == 0, "sent again"
        assert tx.producer == fresh
    assert await tx.write(b"2", version=12) == 0
    assert await tx.end_v2(is_commit=True) == 0
    assert tx.producer == Producer(fresh.producer_id, 1)
    assert await values(tx.client) == [b"1", b"2"]


async def test_a_producer_whose_time_is_over_learns_so_and_goes_on(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world, timeout_ms=1_000)
    assert await tx.write(b"1", version=12) == 0
    world.clock.advance(2_000)
    await world.broker.transactions.end_due()
    assert await tx.write(b"2", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await tx.end_v2(is_commit=True) == ErrorCode.INVALID_TXN_STATE
    assert await tx.end_v2(is_commit=False) == 0
    assert await tx.write(b"3", version=12) == 0
    assert await tx.end_v2(is_commit=True) == 0


async def test_a_worn_producer_whose_time_is_over_gets_a_new_id(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    worn = Producer(tx.producer.producer_id, EXHAUSTED_EPOCH)
    await world.broker.transactions._move("tx", TransactionState(*worn, 1_000))
    tx.producer = worn
    assert await tx.write(b"1", version=12) == 0
    world.clock.advance(2_000)
    await world.broker.transactions.end_due()
    assert await tx.end_v2(is_commit=False) == 0
    assert tx.producer.producer_id != worn.producer_id
    assert await tx.write(b"2", version=12) == 0


async def test_a_partition_that_knows_nothing_of_a_producer_begins_with_its_first_sequence(
    world: World,
) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    tx.sequences[T] = 3
    assert await tx.write(b"1", version=12) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    del tx.sequences[T]
    assert await tx.write(b"1", version=12) == 0


async def test_what_a_log_knows_a_later_epoch_of_begins_nothing(world: World) -> None:
    """As in Kafka: nobody waits for the end of what was refused for good."""
    world.topic()
    world.topic("u", 2)
    tx = await Transactional.begin(world)
    await tx.client.ask(FindCoordinatorRequest(key="g"), 2)
    now_ms, epoch = world.clock.now_ms(), tx.producer.epoch + 1
    for place in (T, world.broker.groups.place_of("g")):
        world.broker.partitions[place].end_transaction_of(
            tx.producer.producer_id, epoch, now_ms, is_commit=False
        )
    for version in (11, 12):
        assert await tx.write(b"1", version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
    for version in (4, 5):
        assert await tx.commit_offsets({T: 1}, version=version) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert state_of(world).status is Status.EMPTY
    assert await tx.write(b"1", U, version=12) == 0
    assert state_of(world).partitions == {U}


async def test_something_else_that_is_done_with_the_id_is_waited_for(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    async with world.broker.transactions._turn("tx"):
        assert await tx.write(b"1", version=12) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert await tx.write(b"1", version=12) == 0


async def test_records_wait_while_the_log_of_states_is_moved(world: World) -> None:
    """From one disk to another: nothing can be written there for a moment."""
    world.topic()
    tx = await Transactional.begin(world)
    moves, place = world.broker.moves, world.broker.transactions.place_of("tx")
    over = moves.ending[place] = asyncio.get_running_loop().create_future()
    writing = asyncio.create_task(tx.write(b"1", version=12))
    other = await world.connect()
    await world.produce(other, world.batch((b"k", b"v")))
    assert not writing.done()
    del moves.ending[place]
    over.set_result(None)
    assert await writing == 0
    assert await tx.end_v2(is_commit=True) == 0


async def test_a_move_of_the_log_of_states_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It was a warning for each transaction that is tried again, though nothing is wrong."""
    world.topic()
    tx = await Transactional.begin(world)
    moves, place = world.broker.moves, world.broker.transactions.place_of("tx")
    log = world.broker.partitions[place].log
    caplog.set_level(logging.INFO)
    for _ in range(2):
        over = moves.ending[place] = asyncio.get_running_loop().create_future()
        log.hold()
        for _ in range(3):
            assert await tx.init() == ErrorCode.NOT_COORDINATOR
        log.hold(False)
        del moves.ending[place]
        over.set_result(None)
    told = [(record.levelname, record.getMessage()) for record in caplog.records if "move" in record.message]
    assert told == [("INFO", f"{place} takes no states while it ends its move: they are tried again")] * 2
    assert await tx.init() == 0


async def test_without_acks_nothing_is_answered(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    batch = world.batch((b"k", b"v"), base_sequence=0, **tx.batch_fields)
    tx.client.send(produce_request([(*T, batch)], acks=0, transactional_id="tx"), 12)
    assert await tx.end_v2(is_commit=True) == 0, "the next answer is of the next request"
    assert await values(tx.client) == [b"v"]


def test_what_kafka_keeps_of_v2_is_kept() -> None:
    state = TransactionState(
        7, 3, 60_000, Status.PREPARE_COMMIT, frozenset({T}), 1_000, 2_000,
        previous_producer_id=6, next_producer_id=8, client_version=V2,
    )  # fmt: skip
    value = state_value(state)
    assert value[:2] == b"\0\1"
    assert read_state(value) == state
    assert state_value(TransactionState(7, 3, 60_000))[:2] == b"\0\0", "of clients that know nothing of it"
