"""Goal: a fetch gives whole batches up to the high watermark, within its limits, and waits no longer than
it must.

Method: a whole broker with a clock that stands still, so that a long poll ends by the clock or by an append
and by nothing else.
"""

from __future__ import annotations

import asyncio
import errno
import uuid
from typing import Any

import pytest

from broker.fetch_session import FetchedPartition
from broker.handlers.fetch import Fetch
from protocol.batch import iterate_headers
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.messages.offsets import DeleteRecordsRequest
from protocol.records import decode_all
from storage.file import DataFile
from storage.layout import TopicPartition
from storage.log import Log
from storage.segment import Segment
from storage.slice import Slice
from tests.broker.client import Client, until
from tests.broker.conftest import Fetched, World, fetch_request
from tests.broker.test_produce import HeldFlushes

ONE = (b"k", b"v")


async def fetch(
    client: Client, topic: Any = "t", offset: int = 0, version: int = 12, **fields: Any
) -> Fetched:
    response = await client.ask(fetch_request([(topic, 0, offset)], **fields), version)
    answer: Fetched = response.responses[0].partitions[0]
    return answer


async def fill(
    world: World, client: Client, batches: int, topic: str = "t", size: int = 10, per_batch: int = 1
) -> None:
    for number in range(batches):
        records = [(b"k", b"%d" % number * size)] * per_batch
        assert (await world.produce(client, world.batch(*records), topic)).error_code == 0


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version(world: World, version: int) -> None:
    topic = world.topic()
    client = await world.connect()
    await fill(world, client, 3)
    answer = await fetch(client, topic.topic_id if version >= 13 else "t", version=version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
    assert len(list(decode_all(answer.records or b""))) == 3


async def test_edges_of_the_log(world: World) -> None:
    """T137, T138."""
    world.topic()
    client = await world.connect()
    await fill(world, client, 3)
    at_end = await fetch(client, offset=3)
    assert (at_end.error_code, at_end.records) == (0, b"")
    assert (await fetch(client, offset=4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    world.broker.partitions[TopicPartition("t", 0)].log.delete_records(2)
    below = await fetch(client, offset=1)
    told = below.high_watermark, below.last_stable_offset, below.log_start_offset
    assert (below.error_code, told) == (ErrorCode.OFFSET_OUT_OF_RANGE, (-1, -1, -1)), "as Kafka tells it"
    assert (await fetch(client, offset=2)).error_code == 0


async def test_a_negative_leader_epoch_is_none(world: World) -> None:
    world.topic()
    client = await world.connect()
    for epoch in (-1, -2, -(2**31)):
        assert (await fetch(client, current_leader_epoch=epoch)).error_code == 0


async def test_the_middle_of_a_batch_gives_the_whole_batch(world: World) -> None:
    """T140."""
    world.topic()
    client = await world.connect()
    await fill(world, client, 2, per_batch=5)
    answer = await fetch(client, offset=7)
    assert [record.offset for record in decode_all(answer.records or b"")] == [5, 6, 7, 8, 9]


async def test_limits_and_at_least_one_batch(world: World) -> None:
    """G8, KIP-74."""
    world.topic("a")
    world.topic("b")
    client = await world.connect()
    for topic in ("a", "b"):
        await fill(world, client, 4, topic, size=1000)

    async def counts(**fields: Any) -> list[int]:
        response = await client.ask(fetch_request([("a", 0, 0), ("b", 0, 0)], **fields), 12)
        return [len(list(decode_all(topic.partitions[0].records or b""))) for topic in response.responses]

    assert await counts(max_bytes=1) == [1, 0]
    assert await counts(partition_max_bytes=1) == [1, 0]
    assert await counts(partition_max_bytes=0) == [1, 0]
    assert await counts(partition_max_bytes=-5) == [1, 0]
    assert await counts(max_bytes=-5) == [1, 0]
    assert await counts(partition_max_bytes=2500) == [2, 2]
    assert await counts(max_bytes=3500) == [3, 0]
    assert await counts() == [4, 4]


async def test_nothing_beyond_the_flushed_end_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topic()
    client = await world.connect()
    await fill(world, client, 1)
    flushes = HeldFlushes(world, monkeypatch)
    await world.produce(client, world.batch(ONE), acks=1)
    answer = await fetch(client)
    assert answer.high_watermark == 1
    assert len(list(decode_all(answer.records or b""))) == 1
    assert (await fetch(client, offset=1)).error_code == 0
    waiting = await world.connect()
    waiting.send(fetch_request([("t", 0, 1)], max_wait_ms=10_000), 12)
    await until(lambda: flushes.held)  # somebody waits: no lingering
    flushes.end()
    answer = (await waiting.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert answer.high_watermark == 2
    assert len(list(decode_all(answer.records or b""))) == 1


async def test_a_reader_that_polls_ends_the_lingering(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """max_wait_ms=0 at the end of the log is a reader that waits, as Kafka's end-to-end tool does."""
    world.topic()
    client = await world.connect()
    await world.hold_lingering(monkeypatch)
    flushes = HeldFlushes(world, monkeypatch)
    assert (await fetch(client)).high_watermark == 0
    assert not flushes.held  # nothing is unflushed yet
    await world.produce(client, world.batch(ONE), acks=1)
    assert not flushes.held
    assert (await fetch(client)).high_watermark == 0
    assert len(flushes.held) == 1
    flushes.end()
    assert (await fetch(client)).high_watermark == 1
    assert not flushes.held


async def test_a_long_poll_wakes_for_its_partition_only(world: World) -> None:
    world.topic("a")
    world.topic("b")
    client, producer = await world.connect(), await world.connect()
    client.send(fetch_request([("a", 0, 0)], max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await fill(world, producer, 1, "b")
    assert len(world.broker.purgatory) == 1
    await fill(world, producer, 1, "a")
    answer = (await client.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert len(list(decode_all(answer.records or b""))) == 1
    assert len(world.broker.purgatory) == 0
    assert not world.broker.partitions[TopicPartition("a", 0)].high_watermark_waiters


async def test_a_wait_for_many_bytes_looks_only_at_what_moved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append must not pay for all partitions of all who wait; what it adds is counted all the same."""
    count = 50
    world.topic("t", count)
    client, producer = await world.connect(), await world.connect()
    await world.produce(producer, world.batch(ONE), partition=0)
    wanted = [("t", index, 0) for index in range(count)]
    one = len(world.batch((b"k", b"v" * 100)))
    min_bytes = len(world.batch(ONE)) + 10 * one
    client.send(fetch_request(wanted, max_wait_ms=60_000, min_bytes=min_bytes), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    looked: list[FetchedPartition] = []
    locate = Fetch._locate_one

    def locate_one(self: Fetch, log: Log, wanted: FetchedPartition, *rest: Any, **more: Any) -> Any:
        looked.append(wanted)
        return locate(self, log, wanted, *rest, **more)

    monkeypatch.setattr(Fetch, "_locate_one", locate_one)
    for number in range(9):
        await world.produce(producer, world.batch((b"k", b"v" * 100)), partition=1 + number % 3)
    assert len(world.broker.purgatory) == 1
    assert {one.partition for one in looked} == {1, 2, 3}
    assert len(looked) == 9
    await world.produce(producer, world.batch((b"k", b"v" * 100)), partition=4)
    response = (await client.receive(FetchResponse, 12))[1]
    sizes = [len(answer.records or b"") for answer in response.responses[0].partitions]
    assert sizes[:5] == [len(world.batch(ONE)), 3 * one, 3 * one, 3 * one, one]
    assert len(looked) == 10 + count


async def test_a_limit_that_cuts_a_batch_is_reached_all_the_same(world: World) -> None:
    """`fetch.min.bytes` of just what a partition may give (1 MiB for many): whole batches never add up to it,
    and the fetch would wait its full time beside megabytes. As in Kafka the cut one counts.
    """
    world.topic("t", 2)
    client, producer = await world.connect(), await world.connect()
    one = len(world.batch((b"k", b"v" * 100)))
    limit = 2 * one + one // 2
    for _ in range(3):
        await world.produce(producer, world.batch((b"k", b"v" * 100)))
    at_once = fetch_request([("t", 0, 0)], max_wait_ms=60_000, min_bytes=limit, partition_max_bytes=limit)
    response = await client.ask(at_once, 12)
    assert len(response.responses[0].partitions[0].records) == 2 * one
    waiting = fetch_request([("t", 1, 0)], max_wait_ms=60_000, min_bytes=limit, partition_max_bytes=limit)
    client.send(waiting, 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    for _ in range(2):
        await world.produce(producer, world.batch((b"k", b"v" * 100)), partition=1)
    assert len(world.broker.purgatory) == 1
    await world.produce(producer, world.batch((b"k", b"v" * 100)), partition=1)
    response = (await client.receive(FetchResponse, 12))[1]
    assert len(response.responses[0].partitions[0].records or b"") == 2 * one


@pytest.mark.parametrize("min_bytes", [1, 1000])
async def test_a_log_that_goes_offline_ends_the_long_poll(
    world: World, monkeypatch: pytest.MonkeyPatch, min_bytes: int
) -> None:
    """Nothing will come that could: the answer says why."""
    world.topic()
    client, reader = await world.connect(), await world.connect()
    await fill(world, client, 3)
    flushes = HeldFlushes(world, monkeypatch)
    reader.send(fetch_request([("t", 0, 3)], max_wait_ms=60_000, min_bytes=min_bytes), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await world.produce(client, world.batch(ONE), acks=1)
    flushes.end(OSError(errno.EIO, "as a test says"))
    answer = (await reader.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_write_that_fails_ends_the_long_poll(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topic()
    client, reader = await world.connect(), await world.connect()
    await fill(world, client, 3)
    reader.send(fetch_request([("t", 0, 3)], max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)

    def failing(*arguments: Any) -> None:
        raise OSError(errno.EIO, "as a test says")

    monkeypatch.setattr(DataFile, "write", failing)
    assert (await world.produce(client, world.batch(ONE))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answer = (await reader.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()


async def test_a_log_that_starts_later_now_ends_the_long_poll(world: World) -> None:
    world.topic()
    client, reader = await world.connect(), await world.connect()
    await fill(world, client, 3)
    reader.send(fetch_request([("t", 0, 1)], max_wait_ms=60_000, min_bytes=1000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = topic.DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(topics=[topic(name="t", partitions=[wanted])], timeout_ms=1000)
    assert (await client.ask(request, 2)).topics[0].partitions[0].error_code == 0
    answer = (await reader.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_nothing_is_waited_for_at_the_end_of_a_segment(world: World) -> None:
    """A fetch gives batches of one segment. What is left of a closed one does not become more by waiting, so
    that each segment of a log that is read through would cost `fetch.max.wait.ms`. As in Kafka, which answers
    whoever asks for an older segment than the log's end is in.
    """
    world.topic("t", segment_bytes="1000")
    client, producer = await world.connect(), await world.connect()
    while len((log := world.broker.partitions[TopicPartition("t", 0)].log).segments) < 3:
        await fill(world, producer, 1, size=50)
    last_of_first = log.segments[1].base_offset - 1
    wanted = [("t", 0, last_of_first)]
    response = await client.ask(fetch_request(wanted, max_wait_ms=60_000, min_bytes=500), 12)
    records = decode_all(response.responses[0].partitions[0].records)
    assert [record.offset for record in records] == [last_of_first]
    client.send(fetch_request([("t", 0, log.log_end_offset)], max_wait_ms=60_000, min_bytes=5000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    while len(log.segments) < 4:  # the one in which it waits is closed, and followed
        assert len(world.broker.purgatory) == 1
        await fill(world, producer, 1, size=50)
    assert len(world.broker.purgatory) == 0


async def test_a_wait_for_many_bytes_counts_no_more_than_a_partition_may_give(world: World) -> None:
    world.topic("t", 2)
    client, producer = await world.connect(), await world.connect()
    one = len(world.batch((b"k", b"v" * 100)))
    wanted = [("t", 0, 0), ("t", 1, 0)]
    client.send(fetch_request(wanted, max_wait_ms=60_000, min_bytes=4 * one, partition_max_bytes=2 * one), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    for _ in range(5):
        await world.produce(producer, world.batch((b"k", b"v" * 100)))
    await world.produce(producer, world.batch((b"k", b"v" * 100)), partition=1)
    assert len(world.broker.purgatory) == 1
    await world.produce(producer, world.batch((b"k", b"v" * 100)), partition=1)
    response = (await client.receive(FetchResponse, 12))[1]
    assert [len(answer.records or b"") for answer in response.responses[0].partitions] == [2 * one] * 2


async def test_a_waiting_fetch_ends_with_its_connection(world: World) -> None:
    """Else every append pays for it until its time is up, which may be weeks."""
    world.topic("t", 2)
    clients = [await world.connect() for _ in range(5)]
    for client in clients:
        client.send(fetch_request([("t", 0, 0), ("t", 1, 0)], max_wait_ms=2**31 - 1), 12)
        await client.writer.drain()
    purgatory = world.broker.purgatory
    await until(lambda: len(purgatory) == 5)
    timers: list[Any] = [waiting._timer for waiting in purgatory.fetches]
    for client in clients[1:]:
        await client.close()
    await until(lambda: len(purgatory) == 1)
    for index in range(2):
        assert len(world.broker.partitions[TopicPartition("t", index)].high_watermark_waiters) == 1
    assert sum(timer.is_cancelled for timer in timers) == 4
    await world.produce(await world.connect(), world.batch(ONE))
    answer = (await clients[0].receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert len(list(decode_all(answer.records or b""))) == 1


@pytest.mark.parametrize("flush_messages", ["1", "1000"])
async def test_a_long_poll_at_the_end_is_answered_without_a_search(
    world: World, monkeypatch: pytest.MonkeyPatch, flush_messages: str
) -> None:
    """Where it waits is where it reads on, whoever moves the high watermark: the append or the flush."""
    world.topic(flush_messages=flush_messages)
    client, reader = await world.connect(), await world.connect()
    await world.produce(client, world.batch(ONE))
    reader.send(fetch_request([("t", 0, 1)], max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    searched: list[int] = []
    monkeypatch.setattr(Segment, "_find", lambda segment, offset, *rest: searched.append(offset))
    await world.produce(client, world.batch((b"k", b"second")))
    answer = (await reader.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert [record.value for record in decode_all(answer.records)] == [b"second"]
    assert searched == []


async def test_a_long_poll_ends_by_the_clock(world: World) -> None:
    world.topic()
    client = await world.connect()
    client.send(fetch_request([("t", 0, 0)], max_wait_ms=500), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    world.clock.advance(499)
    await asyncio.sleep(0)
    assert len(world.broker.purgatory) == 1
    world.clock.advance(1)
    answer = (await client.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert (answer.error_code, answer.records) == (0, b"")


async def test_a_fetch_of_nothing_has_nothing_to_wait_for(world: World) -> None:
    """As in Kafka's `KafkaApis`: the clock stands still here."""
    client = await world.connect()
    response = await client.ask(fetch_request([], max_wait_ms=10_000), 12)
    assert (response.error_code, response.responses) == (0, [])
    assert len(world.broker.purgatory) == 0


async def test_a_reader_of_committed_records_is_told_that_none_was_aborted(world: World) -> None:
    """An empty list, also where there is nothing to read; to others none is told (Kafka's `LocalLog`)."""
    world.topic()
    client = await world.connect()
    await fill(world, client, 1)
    for offset in (0, 1):
        assert (await fetch(client, offset=offset, isolation_level=1)).aborted_transactions == []
        assert (await fetch(client, offset=offset)).aborted_transactions is None


async def test_min_bytes_counts_over_all_partitions(world: World) -> None:
    world.topic("a")
    world.topic("b")
    client, producer = await world.connect(), await world.connect()
    client.send(fetch_request([("a", 0, 0), ("b", 0, 0)], max_wait_ms=60_000, min_bytes=250), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await fill(world, producer, 1, "a", size=50)
    assert len(world.broker.purgatory) == 1
    await fill(world, producer, 1, "b", size=100)
    response = (await client.receive(FetchResponse, 12))[1]
    assert [len(list(decode_all(topic.partitions[0].records or b""))) for topic in response.responses] == [
        1,
        1,
    ]


async def test_a_client_that_leaves_its_long_poll_leaves_nothing_behind(world: World) -> None:
    world.topic()
    client, producer = await world.connect(), await world.connect()
    client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await client.close()
    await until(lambda: world.broker.metrics_state.connections_open == 1)
    await fill(world, producer, 1)
    assert len(world.broker.purgatory) == 0
    assert world.broker.metrics_state.internal_errors == 0


async def test_deleting_the_topic_ends_the_long_poll(world: World) -> None:
    world.topic()
    client = await world.connect()
    client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await world.broker.deletions.delete("t")
    answer = (await client.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_long_poll_looks_a_partition_up_once_unless_it_went(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found when the wait began is taken when it ends; a topic that was deleted meanwhile is not."""
    ids = [world.topic(name, 3).topic_id for name in ("a", "b")]
    client = await world.connect()
    looked_up: list[FetchedPartition] = []
    resolve = Fetch._resolve

    def resolved(self: Fetch, wanted: FetchedPartition) -> Any:
        looked_up.append(wanted)
        return resolve(self, wanted)

    monkeypatch.setattr(Fetch, "_resolve", resolved)
    wanted = [(topic_id, index, 0) for topic_id in ids for index in range(3)]
    for ends in ("by a record", "by the end of a topic"):
        looked_up.clear()
        client.send(fetch_request(wanted, max_wait_ms=60_000), 13)
        await until(lambda: len(world.broker.purgatory) == 1)
        assert len(looked_up) == 6
        if ends == "by a record":
            await fill(world, await world.connect(), 1, "b")
            wanted[3] = (ids[1], 0, 1)
            expected, more = [[0, 0, 0], [0, 0, 0]], 0
        else:
            await world.broker.deletions.delete("a")
            expected, more = [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3, [0, 0, 0]], 3
        response = (await client.receive(FetchResponse, 13))[1]
        assert [[one.error_code for one in topic.partitions] for topic in response.responses] == expected
        assert len(looked_up) == 6 + more


async def test_topic_ids(world: World) -> None:
    """G6: an id that is gone is unknown even when a topic of the old name exists."""
    old = world.topic()
    client = await world.connect()
    assert (await fetch(client, uuid.uuid4(), version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    await world.broker.deletions.delete("t")
    new = world.topic()
    await fill(world, client, 1)
    assert (await fetch(client, old.topic_id, version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    answer = await fetch(client, new.topic_id, version=13)
    assert (answer.error_code, answer.high_watermark) == (0, 1)


async def test_leader_epochs(world: World) -> None:
    """KIP-320: an older epoch is fenced, a newer one unknown; KIP-595: where histories part."""
    world.topic()
    client = await world.connect()
    await fill(world, client, 2)
    log = world.broker.partitions[TopicPartition("t", 0)].log
    log.leader_epoch = epoch = 3
    log.update_config(log.config)  # nothing is taken for usual that was before
    await fill(world, client, 1)
    assert (await fetch(client, current_leader_epoch=epoch)).error_code == 0
    assert (await fetch(client, current_leader_epoch=epoch + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await fetch(client, current_leader_epoch=epoch - 1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    parted = (await fetch(client, offset=3, last_fetched_epoch=epoch - 1)).diverging_epoch
    assert (parted.epoch, parted.end_offset) == (0, 2)
    assert (await fetch(client, offset=2, last_fetched_epoch=0)).diverging_epoch is None
    assert (await fetch(client, offset=1, last_fetched_epoch=epoch)).diverging_epoch is None


async def test_unknown_partitions(world: World) -> None:
    world.topic()
    client = await world.connect()
    assert (await fetch(client, "missing")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = await client.ask(fetch_request([("t", 7, 0)], max_wait_ms=60_000), 12)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("topic_codec", ["producer", "zstd"])
async def test_zstd_is_given_to_clients_of_every_version(world: World, topic_codec: str) -> None:
    """T151b: as by Apache Kafka from 4.0 on; rskafka asks with v4 and knows zstd."""
    world.topic(compression_type=topic_codec)
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v" * 100), codec=Codec.ZSTD))
    for version in (4, 9, 10, 12):
        found = await fetch(client, version=version)
        assert found.error_code == 0, version
        records = bytes(found.records or b"")
        assert [header.codec for _, header in iterate_headers(records)] == [Codec.ZSTD], version
        assert [record.value for record in decode_all(records)] == [b"v" * 100], version


async def test_cold_reads_run_on_a_thread_and_keep_the_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    client = await world.connect()
    await fill(world, client, 3)
    monkeypatch.setattr(Slice, "send_now", lambda self: None)
    client.send(fetch_request([("t", 0, 1)]), 12)
    client.send(fetch_request([("t", 0, 5)]), 12)
    cold = (await client.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert [record.offset for record in decode_all(cold.records or b"")] == [1, 2]
    failed = (await client.receive(FetchResponse, 12))[1].responses[0].partitions[0]
    assert failed.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_unreadable_segment_is_the_readers_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Slice) -> bytes:
        raise OSError(5, "Input/output error")

    world.topic()
    client = await world.connect()
    await fill(world, client, 1)
    monkeypatch.setattr(Slice, "send_now", lambda self: None)
    monkeypatch.setattr(Slice, "read", fail)
    assert (await fetch(client)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
