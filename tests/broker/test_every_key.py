"""Goal: keys of the broker that are read once, at its start, have the effect that REFERENCE.md tells.

Method: a broker with an unusual value for each, and what a client or the clock sees of it; where that would
take thousands of requests, the limit that they would meet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from broker.busy_poll import BusyPoll
from broker.door import Limits
from config.broker import BrokerConfig
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.messages.groups import FindCoordinatorRequest, JoinGroupRequest
from protocol.messages.metadata import DescribeTopicPartitionsRequest, MetadataRequest
from storage.file import POOL
from storage.layout import TopicPartition
from tests.broker.client import passes_in
from tests.broker.conftest import World, fetch_request
from tests.broker.test_configs import BROKER, SET, alter, incremental

MakeWorld = Callable[..., Awaitable[World]]
ONE = (b"k", b"v")


def test_the_limits_of_a_connection() -> None:
    texts = {
        "socket.request.max.bytes": "20000",
        "max.request.bytes.without.records": "10000",
        "max.request.elements": "1001",
        "connection.max.in.flight.requests": "11",
        "connection.max.queued.bytes": "12",
        "connection.max.unread.bytes": "13",
        "fetch.max.bytes": "1400",
        "connections.max.idle.ms": "17",
    }
    assert Limits.of(BrokerConfig.parse(texts)) == Limits(
        frame_bytes=20_000,
        frame_bytes_without_records=10_000,
        elements=1001,
        in_flight_requests=11,
        queued_bytes=12,
        unread_bytes=13,
        fetch_bytes=1400,
        idle_ms=17,
    )
    texts["socket.request.max.bytes"] = "5000"
    assert Limits.of(BrokerConfig.parse(texts)).frame_bytes_without_records == 5000


@pytest.mark.parametrize(
    ("key", "is_produce", "is_closed"),
    [
        ("socket_request_max_bytes", False, True),
        ("socket_request_max_bytes", True, True),
        ("max_request_bytes_without_records", False, True),
        ("max_request_bytes_without_records", True, False),
    ],
)
async def test_a_request_that_is_too_large(
    make_world: MakeWorld, key: str, is_produce: bool, is_closed: bool
) -> None:
    world = await make_world(**{key: "2000"})
    world.topic()
    client = await world.connect()
    asked = MetadataRequest.MetadataRequestTopic

    async def ask() -> None:
        if is_produce:
            await world.produce(client, world.batch((b"k", b"v" * 3000)))
        else:
            await client.ask(MetadataRequest(topics=[asked(name="t" * 200)] * 15), 9)

    if is_closed:
        with pytest.raises((ConnectionError, EOFError)):
            await ask()
    else:
        await ask()


async def test_how_much_one_fetch_answers(make_world: MakeWorld) -> None:
    world = await make_world(fetch_max_bytes="2000")
    world.topic(partitions=3)
    client = await world.connect()
    for partition in range(3):
        await world.produce(client, world.batch((b"k", b"v" * 1500)), partition=partition)
    answer: FetchResponse = await client.ask(fetch_request([("t", number, 0) for number in range(3)]), 12)
    assert len([part for part in answer.responses[0].partitions if part.records]) < 3


async def test_threads_files_and_wakefulness(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOL, "capacity", POOL.capacity)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    world = await make_world(background_threads="3", max_open_files="77", busy_poll_us="7")
    assert world.broker.io._max_workers == 3
    assert POOL.capacity == 77
    assert vars(world.broker.busy_poll) | {"_now_ns": None} == vars(BusyPoll(7)) | {"_now_ns": None}


async def test_how_many_partitions_one_answer_lists(make_world: MakeWorld) -> None:
    world = await make_world(max_request_partition_size_limit="2")
    world.topic(partitions=3)
    client = await world.connect()
    topic = DescribeTopicPartitionsRequest.TopicRequest(name="t")
    answer = await client.ask(DescribeTopicPartitionsRequest(topics=[topic]), 0)
    assert len(answer.topics[0].partitions) == 2
    assert answer.next_cursor.partition_index == 2


async def test_how_many_producers_are_remembered_and_how_long(make_world: MakeWorld) -> None:
    world = await make_world(
        max_producers_per_partition="2",
        producer_id_expiration_ms="5000",
        producer_id_expiration_check_interval_ms="1000",
    )
    world.topic()
    client = await world.connect()
    for number in (1, 2, 3):
        batch = world.batch(ONE, producer_id=number, producer_epoch=0, base_sequence=0)
        assert (await world.produce(client, batch)).error_code == 0
    producers = world.broker.partitions[TopicPartition("t", 0)].log.producers.producers
    assert set(producers) == {2, 3}
    assert await passes_in(world.clock, 20_000, lambda: not producers) >= 5_000


async def test_how_long_producers_are_remembered_is_changed_while_they_are(make_world: MakeWorld) -> None:
    """Also for logs that are there, and for those of the next start."""
    world = await make_world(producer_id_expiration_check_interval_ms="1000")
    world.topic()
    client = await world.connect()
    shorter = incremental(BROKER, "", ("producer.id.expiration.ms", SET, "5000"))
    assert await alter(client, shorter) is ErrorCode.NONE

    async def are_kept() -> int:
        """For how long, ms."""
        client, log = await world.connect(), world.broker.partitions[TopicPartition("t", 0)].log
        batch = world.batch(ONE, producer_id=7, producer_epoch=0, base_sequence=0)
        assert (await world.produce(client, batch)).error_code == 0
        assert 7 in log.producers.producers
        return await passes_in(world.clock, 20_000, lambda: not log.producers.producers)

    assert await are_kept() >= 5_000
    await world.restart()
    assert await are_kept() >= 5_000


async def test_how_long_offsets_are_kept(make_world: MakeWorld) -> None:
    world = await make_world(offsets_retention_minutes="2", offsets_retention_check_interval_ms="1000")
    world.topic()
    client = await world.connect()
    await world.commit(client)
    groups = world.broker.groups.groups
    assert await passes_in(world.clock, 240_000, lambda: "g" not in groups) >= 120_000


@pytest.mark.parametrize(
    ("session_ms", "is_good"), [(2999, False), (3000, True), (4000, True), (4001, False)]
)
async def test_the_sessions_that_members_may_ask_for(
    make_world: MakeWorld, session_ms: int, is_good: bool
) -> None:
    world = await make_world(group_min_session_timeout_ms="3000", group_max_session_timeout_ms="4000")
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    code = (await client.ask(request, 4)).error_code
    assert code == (ErrorCode.MEMBER_ID_REQUIRED if is_good else ErrorCode.INVALID_SESSION_TIMEOUT)


@pytest.mark.parametrize(("limit", "kept"), [("0", 0), ("415", 0), ("832", 2), ("33554432", 3)])
async def test_how_much_memory_the_keys_of_compressed_batches_take(
    make_world: MakeWorld, limit: str, kept: int
) -> None:
    world = await make_world(log_cleaner_key_hashes_bytes=limit)
    world.topic(cleanup_policy="compact")
    client = await world.connect()
    for _ in range(3):
        assert (await world.produce(client, world.batch(ONE, codec=Codec.LZ4))).error_code == 0
    assert world.broker.logs.key_hashes.used_bytes == kept * 416
