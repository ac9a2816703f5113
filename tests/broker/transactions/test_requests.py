"""Goal: a producer's transaction is all or nothing for readers of committed records, in every version of its
requests; a producer whose id another one took is told so and writes nothing more.

Method: a small client speaks to a broker as transactional clients do, step by step, and as none of them
would.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from broker import producer_ids
from broker.state_topic import Producer, partition_for
from broker.topic import METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.transactions import markers
from broker.transactions.state import EXHAUSTED_EPOCH, Status, TransactionState
from protocol.errors import ErrorCode
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
)
from storage.layout import TopicPartition
from tests.broker.client import Client, until
from tests.broker.conftest import World, produce_request
from tests.broker.test_transactional_cleaning import read
from tests.broker.transactions.producer import T, Transactional, partitions_request

U = TopicPartition("u", 1)


async def values(client: Client, topic: str = "t", *, is_committed: bool = True) -> list[bytes | None]:
    """What readers have, aborted records among them: clients leave those out."""
    return [record.value for record in await read(client, int(is_committed), topic)]


def status_of(world: World, transactional_id: str = "tx") -> Status:
    state = world.broker.transactions.find(transactional_id)
    assert state is not None
    return state.status


@pytest.mark.parametrize("version", range(4))
async def test_a_commit_shows_all_partitions_at_once(world: World, version: int) -> None:
    world.topic()
    world.topic("u", 2)
    tx = await Transactional.begin(world)
    assert await tx.add(T, U, version=version) == [0, 0]
    for place in (T, U):
        assert await tx.write(b"1", place) == 0
    assert await values(tx.client) == []
    assert await values(tx.client, is_committed=False) == [b"1"]
    assert await tx.end(is_commit=True, version=version) == 0
    assert await values(tx.client) == [b"1"]
    logs = [world.broker.partitions[place].log for place in (T, U)]
    assert [(log.log_end_offset, log.last_stable_offset) for log in logs] == [(2, 2), (2, 2)]
    assert await tx.end(is_commit=True, version=version) == 0, "sent again"
    assert await tx.end(is_commit=False, version=version) == ErrorCode.INVALID_TXN_STATE
    assert status_of(world) is Status.COMPLETE_COMMIT


async def test_an_abort_lists_what_readers_leave_out(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    await tx.put(b"aborted")
    assert await tx.end(is_commit=False) == 0
    await tx.put(b"committed")
    assert await tx.end(is_commit=True) == 0
    log = world.broker.partitions[T].log
    assert [(one.producer_id, one.first_offset) for one in log.aborted_transactions(0, 4)] == [
        (tx.producer.producer_id, 0)
    ]
    assert await values(tx.client) == [b"aborted", b"committed"]
    assert await tx.end(is_commit=False) == ErrorCode.INVALID_TXN_STATE


async def test_a_partition_that_got_nothing_has_a_marker_too(world: World) -> None:
    """As in Kafka: offsets are the same."""
    world.topic()
    tx = await Transactional.begin(world)
    assert await tx.add(T) == [0]
    assert await tx.end(is_commit=True) == 0
    assert world.broker.partitions[T].log.log_end_offset == 1


@pytest.mark.parametrize(
    ("version", "fenced"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
)
async def test_a_second_producer_fences_the_first_and_aborts_its_transaction(
    world: World, version: int, fenced: ErrorCode
) -> None:
    world.topic()
    first = await Transactional.begin(world)
    await first.put(b"zombie's")
    second = await Transactional.begin(world)
    assert second.producer == Producer(first.producer.producer_id, 2), "1 aborted the transaction"
    assert status_of(world) is Status.EMPTY
    assert world.broker.partitions[T].log.last_stable_offset == 2
    assert await first.write(b"more") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await first.add(T, version=version) == [fenced]
    assert await first.add_offsets(version=version) == fenced
    assert await first.end(is_commit=True, version=version) == fenced
    code = await first.init(expected=first.producer, version=version + 2)
    assert code == fenced
    await second.put(b"2")
    assert await second.end(is_commit=True) == 0
    assert await values(second.client) == [b"zombie's", b"2"]


async def test_a_producer_that_goes_on_after_an_error_keeps_its_id(world: World) -> None:
    """KIP-360."""
    tx = await Transactional.begin(world)
    was = tx.producer
    for _ in range(2):  # the first answer was lost
        assert await tx.init(expected=was) == 0
        assert tx.producer == Producer(was.producer_id, was.epoch + 1)


async def test_a_stranger_that_goes_on_leaves_the_transaction_alone(world: World) -> None:
    """It is refused before anything is aborted."""
    world.topic()
    tx = await Transactional.begin(world)
    await tx.put(b"1")
    stranger = Transactional(world, tx.client)
    for who in (Producer(tx.producer.producer_id + 99, 3), Producer(1, 0)):
        assert await stranger.init(expected=who) == ErrorCode.PRODUCER_FENCED
        assert status_of(world) is Status.ONGOING
    assert await tx.write(b"2") == 0
    assert await tx.end(is_commit=True) == 0
    assert await values(tx.client) == [b"1", b"2"]


async def test_a_producer_goes_on_after_its_timeout(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """What it had not ended was aborted; the next transaction is its own. The log says why it was refused."""
    caplog.set_level("INFO")
    world.topic()
    tx = await Transactional.begin(world, timeout_ms=1000)
    await tx.put(b"too late")
    world.clock.advance(2000)
    await world.broker.transactions.end_due()
    was = tx.producer
    assert await tx.end(is_commit=True) == ErrorCode.PRODUCER_FENCED
    assert f"commit of 'tx' is refused to producer {was.producer_id} with epoch {was.epoch} " in caplog.text
    assert f"PRODUCER_FENCED: the epoch is {was.epoch + 1}, that of the request {was.epoch}" in caplog.text
    assert await tx.init(expected=was) == 0
    assert tx.producer == Producer(was.producer_id, was.epoch + 1)
    await tx.put(b"again")
    assert await tx.end(is_commit=True) == 0
    assert await values(tx.client) == [b"too late", b"again"], "to a reader who takes what was aborted, too"


async def test_an_id_whose_epochs_are_used_up_gets_another_producer_id(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    state = TransactionState(tx.producer.producer_id, EXHAUSTED_EPOCH, 60_000)
    world.broker.transactions.states["tx"] = state
    tx.producer = state.producer
    await tx.put(b"1")
    last = tx.producer
    assert await tx.init() == 0
    assert tx.producer.epoch == 0
    assert tx.producer.producer_id != last.producer_id
    await tx.put(b"2")
    assert await tx.end(is_commit=True) == 0
    aborted = world.broker.partitions[T].log.aborted_transactions(0, 4)
    assert [one.producer_id for one in aborted] == [last.producer_id]


async def test_a_producer_id_block_that_ends_is_followed_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_ids, "BLOCK", 1)
    ids = [(await Transactional.begin(world, f"tx-{number}")).producer.producer_id for number in range(3)]
    assert len(set(ids)) == 3


async def test_records_of_a_transaction_are_taken_only_where_it_takes_part(world: World) -> None:
    """KIP-890: what nobody ends would hold readers back for good."""
    world.topic()
    world.topic("u", 2)
    tx = await Transactional.begin(world)
    assert await tx.write(b"x", version=10) == ErrorCode.INVALID_TXN_STATE
    assert await tx.write(b"x", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    await tx.put(b"1")
    assert await tx.write(b"x", U, version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert await tx.end(is_commit=True) == 0
    assert await tx.write(b"late", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    batch = world.batch(
        (b"k", b"v"), producer_id=99, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for transactional_id, code in (
        ("tx", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("nobody", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ):
        request = produce_request([(*T, batch)], transactional_id=transactional_id)
        answer = await tx.client.ask(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == code
    assert await values(tx.client, is_committed=False) == [b"1"]


async def test_plain_records_under_a_transactional_id_are_plain(world: World) -> None:
    """As in Kafka. Not between two of a transaction."""
    world.topic()
    tx = await Transactional.begin(world)
    plain = world.batch((b"k", b"v"), producer_id=tx.producer.producer_id, producer_epoch=0, base_sequence=0)
    request = produce_request([(*T, plain)], transactional_id="tx")
    assert (await tx.client.ask(request, 9)).responses[0].partition_responses[0].error_code == 0
    assert await values(tx.client) == [b"v"]


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60_000 + 1])
async def test_t166_a_timeout_has_its_limits(world: World, timeout_ms: int) -> None:
    """transaction.max.timeout.ms."""
    tx = await Transactional.begin(world, timeout_ms=15 * 60_000)
    assert await tx.init(timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_what_cannot_be_is_refused_and_nothing_is_added(world: World) -> None:
    world.topic()
    tx = await Transactional.begin(world)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = [ErrorCode.OPERATION_NOT_ATTEMPTED, unknown, unknown]
    assert await tx.add(T, TopicPartition("t", 1), TopicPartition("none", 0)) == refused
    for topic in (METADATA_TOPIC, TRANSACTIONS_TOPIC):
        assert await tx.add(TopicPartition(topic, 0)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert status_of(world) is Status.EMPTY
    assert await tx.end(is_commit=True) == ErrorCode.INVALID_TXN_STATE
    stranger = Transactional(world, tx.client, "stranger")
    assert await stranger.add(T) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert await stranger.end(is_commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nameless = Transactional(world, tx.client, "")
    assert await nameless.init() == ErrorCode.INVALID_REQUEST
    assert await nameless.add(T) == [ErrorCode.INVALID_REQUEST]
    assert await nameless.add_offsets() == ErrorCode.INVALID_REQUEST
    assert await nameless.end(is_commit=True) == ErrorCode.INVALID_REQUEST
    endless = Transactional(world, tx.client, "x" * 32_768)
    assert await endless.init() == ErrorCode.INVALID_REQUEST
    half = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1, producer_id=5)
    assert (await tx.client.ask(half, 4)).error_code == ErrorCode.INVALID_REQUEST


async def test_brokers_ask_about_several_transactions_at_once(world: World) -> None:
    """Version 4 on: each by itself, and each is of transactions v2, or only looked at."""
    world.topic()
    world.topic("u", 2)
    tx, other = await Transactional.begin(world), await Transactional.begin(world, "other")
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING

    async def ask(*places: TopicPartition, is_verify: bool = False, version: int = 5) -> dict[str, list[int]]:
        topics = [AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition]) for place in places]
        row = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
        owners = {"tx": tx.producer, "other": other.producer, "nobody": tx.producer, "": tx.producer}
        request = AddPartitionsToTxnRequest(
            transactions=[
                row(
                    transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch,
                    verify_only=is_verify, topics=topics,
                )
                for name, producer in owners.items()
            ]
        )  # fmt: skip
        answer = await tx.client.ask(request, version)
        assert answer.error_code == 0
        return {
            row.transactional_id: [
                one.partition_error_code for topic in row.topic_results for one in topic.results_by_partition
            ]
            for row in answer.results_by_transaction
        }

    not_added = [ErrorCode.TRANSACTION_ABORTABLE]
    for version in (4, 5):
        found = await ask(T, is_verify=True, version=version)
        assert found == {"tx": not_added, "other": not_added, "nobody": [mapping], "": [42]}
        assert status_of(world) is not Status.ONGOING
        found = await ask(T, version=version)
        assert found == {"tx": [0], "other": [0], "nobody": [mapping], "": [42]}
        assert status_of(world) is Status.ONGOING
        found = await ask(T, U, is_verify=True, version=version)
        assert found["tx"] == found["other"] == [0, *not_added]
        nowhere = await ask(T, TopicPartition("none", 0), version=version)
        assert set(map(tuple, nowhere.values())) == {(ErrorCode.OPERATION_NOT_ATTEMPTED, 3)}
        assert await tx.write(b"1") == 0
        for one in (tx, other):
            assert await one.end(is_commit=True) == 0
    tx.producer = Producer(tx.producer.producer_id, tx.producer.epoch + 1)
    for is_verify in (True, False):
        assert (await ask(T, is_verify=is_verify))["tx"] == [ErrorCode.PRODUCER_FENCED]
    assert (await tx.client.ask(AddPartitionsToTxnRequest(), 5)).results_by_transaction == []


async def test_requests_that_come_together_are_carried_out_one_after_another(world: World) -> None:
    """librdkafka sends AddOffsetsToTxn and AddPartitionsToTxn at once; Kafka reads one request of a
    connection at a time.
    """
    world.topic()
    tx = await Transactional.begin(world)
    await tx.client.ask(FindCoordinatorRequest(key="g"), 2)
    part = AddPartitionsToTxnTopic(name="t", partitions=[0])
    tx.client.send(AddOffsetsToTxnRequest(group_id="g", **tx.who), 3)
    tx.client.send(partitions_request([part], tx.who), 3)
    tx.client.send(EndTxnRequest(committed=True, **tx.who), 3)
    tx.client.send(partitions_request([part], tx.who), 3)
    assert (await tx.client.receive(AddOffsetsToTxnResponse, 3))[1].error_code == 0
    for response in (AddPartitionsToTxnResponse, EndTxnResponse, AddPartitionsToTxnResponse):
        answer: Any = (await tx.client.receive(response, 3))[1]
        rows = getattr(answer, "results_by_topic_v3_and_below", [])
        assert not getattr(answer, "error_code", 0)
        assert [one.partition_error_code for row in rows for one in row.results_by_partition] in ([], [0])
    assert status_of(world) is Status.ONGOING
    log = world.broker.partitions[T].log
    assert log.log_end_offset == 1, "the marker of the first"


async def test_a_client_that_goes_away_leaves_nothing_half_done(world: World) -> None:
    """Its request is carried out all the same."""
    world.topic()
    tx = await Transactional.begin(world)
    await tx.put(b"1")
    gone = asyncio.create_task(tx.end(is_commit=True))
    await asyncio.sleep(0)
    await tx.client.close()
    gone.cancel()
    async with asyncio.timeout(60):
        while status_of(world) is not Status.COMPLETE_COMMIT:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert await values(await world.connect()) == [b"1"]


async def test_an_error_that_nobody_waits_for_is_no_news(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The client went away before it could be told."""
    transactions = world.broker.transactions
    async with transactions._turn("x"):
        end = transactions.end("x", Producer(1, 0), is_commit=True)
        waiting = asyncio.create_task(transactions.shielded(end))
        await until(lambda: len(transactions._tasks) == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    del waiting
    await until(lambda: not transactions._tasks)
    await asyncio.sleep(0)
    gc.collect()
    assert not caplog.records


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_of_transactions_is_this_node(world: World, version: int) -> None:
    """The first search makes `__transaction_state`."""
    request = FindCoordinatorRequest(key_type=1, key="tx", coordinator_keys=["tx"] if version >= 4 else [])
    if version == 0:
        request = FindCoordinatorRequest(key="tx")
    client = await world.connect()
    answer = await client.ask(request, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (0, 1)
    topic = world.broker.topics.get(TRANSACTIONS_TOPIC if version else OFFSETS_TOPIC)
    assert topic is not None
    assert (topic.overrides["cleanup.policy"], topic.partition_count) == ("compact", 50 if version else 2)


async def test_markers_of_a_large_transaction_leave_others_their_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "MARKERS_A_TURN", 2)
    world.topic("u", 5)
    tx = await Transactional.begin(world)
    places = [TopicPartition("u", index) for index in range(5)]
    assert await tx.add(*places) == [0] * 5
    assert await tx.end(is_commit=True) == 0
    assert [world.broker.partitions[place].log.log_end_offset for place in places] == [1] * 5


async def test_the_states_of_an_id_lie_where_kafka_looks_for_them(world: World) -> None:
    world.topic()
    await Transactional.begin(world, "some-id")
    place = TopicPartition(TRANSACTIONS_TOPIC, partition_for("some-id", 50))
    assert world.broker.partitions[place].log.log_end_offset == 1
