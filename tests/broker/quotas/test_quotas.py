"""Goal: who does more than its quota allows is answered at once, told to wait, and not read for so long; then
all goes on, nothing lost and nothing done twice.

Method: a broker whose clock stands still until the test moves it; what is not read is seen in the log, and in
what another client is answered meanwhile. `tests/kafka/test_quotas.py` compares with Apache Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.quotas import usage as usage_of
from protocol.errors import ErrorCode
from protocol.framing import encode_request
from protocol.kernel import load_numba
from protocol.messages.groups import ListGroupsRequest
from protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from protocol.messages.offsets import DeleteRecordsRequest
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from storage.layout import TopicPartition
from tests.broker.client import Client, until
from tests.broker.conftest import World, fetch_request, produce_request
from tests.broker.security.test_sessions import BOB, SECURE, enter
from tests.broker.test_produce import HeldFlushes

MakeWorld = Callable[..., Awaitable[World]]
Names = dict[str, str | None]
WRITTEN, READ, ASKED, CHANGED, CONNECTED = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
)  # fmt: skip
TEST: Names = {"client-id": "test"}
ASKS_NOTHING = ListGroupsRequest()


async def set_quota(world: World, names: Names, key: str, value: float | None) -> None:
    """By a client that has no quota, and whose connection is gone then."""
    listener = world.broker.listeners[0]
    client = await Client.connect("127.0.0.1", listener.port, "admin")
    entry = AlterClientQuotasRequest.EntryData
    change = entry.OpData(key=key, value=value or 0.0, remove=value is None)
    parts = [entry.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()]
    request = AlterClientQuotasRequest(entries=[entry(entity=parts, ops=[change])])
    (told,) = (await client.ask(request, 1)).entries
    assert (told.error_code, told.error_message) == (ErrorCode.NONE, None)
    await client.close()


async def others_are_served(world: World) -> None:
    """Whatever was sent before this has been looked at when it returns."""
    client = await Client.connect("127.0.0.1", world.broker.listeners[0].port, "other")
    for _ in range(3):
        assert (await client.ask(ASKS_NOTHING, 3)).throttle_time_ms == 0
    await client.close()


def request_of(world: World, unit: int, acks: int = -1, version: int = 9) -> tuple[ProduceRequest, int]:
    """One whose frame has a multiple of `unit` bytes, and how many."""
    for more in range(unit):
        request = produce_request([("t", 0, world.batch((b"k", bytes(1000 + more))))], acks)
        size_bytes = len(b"".join(encode_request(request, version, 1, "test"))) - 4
        if size_bytes % unit == 0:
            return request, size_bytes
    raise AssertionError("lengths are written in more bytes there")


def batches(world: World) -> int:
    return world.broker.metrics_state.topics["t"].produce_requests


@pytest.mark.parametrize("before", [0, 4], ids=["decoded", "recognised"])
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [3, 7, 8, 9, 11])
async def test_a_producer_waits_and_goes_on(world: World, version: int, acks: int, before: int) -> None:
    load_numba()
    world.topic()
    client = await world.connect()
    request, size_bytes = request_of(world, 20, acks, version)
    for _ in range(before):
        assert (await client.ask(request, version)).throttle_time_ms == 0
    await set_quota(world, TEST, WRITTEN, size_bytes // 20)
    answer = await client.ask(request, version)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert answer.responses[0].partition_responses[0].base_offset == before
    assert answer.throttle_time_ms == 10_000
    assert batches(world) == before + 1
    assert world.broker.metrics_state.connections_throttled == 1

    client.send(request, version)
    await others_are_served(world)
    world.clock.advance(9_999)
    await others_are_served(world)
    assert batches(world) == before + 1
    world.clock.advance(1)
    _, answer = await client.receive(ProduceResponse, version)
    assert answer.throttle_time_ms == 30_000
    assert batches(world) == before + 2
    assert world.broker.metrics_state.throttled[WRITTEN] == 2
    assert world.broker.metrics_state.throttled_ms[WRITTEN] == 40_000


async def test_requests_that_came_with_it_wait_too(world: World) -> None:
    world.topic()
    await set_quota(world, TEST, WRITTEN, 1)
    client = await world.connect()
    request = produce_request([("t", 0, world.batch((b"k", b"v")))], acks=1)
    client.send_bytes(
        b"".join(b"".join(encode_request(request, 9, number, "test")) for number in range(3)) + b"\0\0"
    )
    waits = []
    for number in range(3):
        await others_are_served(world)
        assert batches(world) == number + 1
        _, answer = await client.receive(ProduceResponse, 9)
        waits.append(answer.throttle_time_ms)
        world.clock.advance(answer.throttle_time_ms)
    assert waits[0] > 0


async def test_a_large_request_is_taken_once(world: World) -> None:
    """One that has a buffer of its own."""
    world.topic()
    await set_quota(world, TEST, WRITTEN, 1000)
    client = await world.connect()
    request = produce_request([("t", 0, world.batch((b"k", bytes(500_000))))], acks=1)
    answer = await client.ask(request, 9)
    client.send(request, 9)
    await others_are_served(world)
    assert batches(world) == 1
    world.clock.advance(answer.throttle_time_ms)
    await client.receive(ProduceResponse, 9)
    assert batches(world) == 2
    assert world.broker.partitions[TopicPartition("t", 0)].log.log_end_offset == 2


async def test_without_acknowledgements_the_client_is_not_told_but_waits(world: World) -> None:
    world.topic()
    await set_quota(world, TEST, WRITTEN, 1)
    client = await world.connect()
    request = produce_request([("t", 0, world.batch((b"k", b"v")))], acks=0)
    client.send(request, 9)
    client.send(request, 9)
    await until(lambda: world.broker.metrics_state.connections_throttled)
    await others_are_served(world)
    assert batches(world) == 1
    world.clock.advance(1_000_000)
    await until(lambda: batches(world) == 2)


async def test_a_consumer_is_answered_nothing_and_then_all(world: World) -> None:
    world.topic()
    client = await world.connect()
    for _ in range(3):
        await world.produce(client, world.batch((b"k", bytes(1000))))
    await set_quota(world, TEST, READ, 120)
    wanted = [("t", 0, 0)]
    answer = await client.ask(fetch_request(wanted, session_epoch=0), 12)
    assert answer.session_id != 0
    assert len(answer.responses[0].partitions[0].records) > 1000, "no more than the windows hold"
    assert len(answer.responses[0].partitions[0].records) < 1200
    assert answer.throttle_time_ms == 0

    other = await world.connect()
    refused = await other.ask(fetch_request(wanted, session_epoch=0), 12)
    assert (refused.error_code, refused.session_id, refused.responses) == (ErrorCode.NONE, 0, [])
    assert refused.throttle_time_ms > 5000
    assert len(world.broker.fetch_sessions) == 1, "the one that was not told of is none"
    other.send(fetch_request(wanted), 12)
    await others_are_served(world)
    assert world.broker.metrics_state.throttled[READ] == 1
    world.clock.advance(refused.throttle_time_ms + 11_000)
    await until(lambda: world.broker.metrics_state.connections_throttled == 0)


async def test_what_a_session_had_to_tell_it_tells_when_the_time_is_over(world: World) -> None:
    world.topic()
    client = await world.connect()
    for _ in range(2):
        await world.produce(client, world.batch((b"k", bytes(1000))))
    first = await client.ask(fetch_request([("t", 0, 2)], session_epoch=0), 12)
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    asked = topic.DeleteRecordsPartition(partition_index=0, offset=1)
    await client.ask(DeleteRecordsRequest(topics=[topic(name="t", partitions=[asked])]), 2)
    await set_quota(world, TEST, READ, 1)
    refused = await client.ask(fetch_request([("t", 0, 1)], session_id=first.session_id, session_epoch=1), 12)
    assert (refused.session_id, refused.responses) == (first.session_id, [])
    assert refused.throttle_time_ms > 0
    await set_quota(world, TEST, READ, None)
    world.clock.advance(refused.throttle_time_ms)
    told = await client.ask(fetch_request([], session_id=first.session_id, session_epoch=2), 12)
    assert told.responses[0].partitions[0].log_start_offset == 1
    assert told.responses[0].partitions[0].records


@pytest.mark.parametrize("version", [4, 11, 13, 17])
async def test_a_fetch_that_waited_counts_when_it_is_answered(world: World, version: int) -> None:
    topic = world.topic()
    await set_quota(world, TEST, READ, 1)
    reader, writer = await world.connect(), await Client.connect(
        "127.0.0.1", world.broker.listeners[0].port, "writer"
    )  # fmt: skip
    name = "t" if version < 13 else topic.topic_id
    waits = fetch_request([(name, 0, 0)], max_wait_ms=1_000_000, partition_max_bytes=1 << 20)
    reader.send(waits, version)
    await until(lambda: len(world.broker.purgatory))
    await world.produce(writer, world.batch((b"k", bytes(1000))))
    _, answer = await reader.receive(world.broker.apis[1].response, version)
    assert answer.throttle_time_ms > 1_000_000
    assert answer.responses == []
    await writer.close()


async def test_time_is_a_quota_too(world: World) -> None:
    """Whatever is asked; nobody waits longer than a window for it."""
    world.topic()
    client = await world.connect()
    await set_quota(world, {"user": None}, ASKED, 1e-9)
    for request, version in (
        (MetadataRequest(topics=None), 12),
        (ASKS_NOTHING, 4),
        (produce_request([("t", 0, world.batch((b"k", b"v")))]), 9),
        (fetch_request([("t", 0, 0)]), 12),
    ):
        answer = await client.ask(request, version)
        assert answer.throttle_time_ms == 1000, request
        world.clock.advance(1000)
    assert answer.responses == [], "a Fetch has no records then"
    assert world.broker.metrics_state.throttled[ASKED] >= 4
    await set_quota(world, {"user": None}, ASKED, None)
    assert not world.broker.quotas.is_active
    assert (await client.ask(ASKS_NOTHING, 4)).throttle_time_ms == 0


async def test_work_is_counted_without_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 1
    monkeypatch.setattr(usage_of, "perf_counter_ns", lambda: now_ns)
    loop = asyncio.get_running_loop()
    waits: list[asyncio.Future[None]] = [loop.create_future() for _ in range(3)]

    async def work() -> str:
        nonlocal now_ns
        for wait in waits:
            now_ns += 5
            with contextlib.suppress(KeyError):
                await wait
        now_ns += 7
        return "done"

    usage = usage_of.Usage(0, now_ns)
    usage.pause()
    task = asyncio.ensure_future(usage_of.Timed(work(), usage))
    for number, wait in enumerate(waits):
        await asyncio.sleep(0)
        now_ns += 1000
        if number == 1:
            wait.set_exception(KeyError())
        else:
            wait.set_result(None)
    assert await task == "done"
    assert usage.worked_ns() == 3 * 5 + 7

    other = asyncio.ensure_future(usage_of.Timed(asyncio.sleep(1000), usage))
    await asyncio.sleep(0)
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other


async def test_who_does_not_wait_for_its_answer_has_written_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic()
    client = await world.connect()
    await set_quota(world, TEST, WRITTEN, 1)
    held = HeldFlushes(world, monkeypatch)
    client.send(produce_request([("t", 0, world.batch((b"k", b"v")))]), 9)
    await until(lambda: held.held)
    await client.close()
    await until(lambda: world.broker.metrics_state.throttled[WRITTEN])
    held.end()
    assert world.broker.metrics_state.connections_throttled == 0


async def test_quotas_are_of_who_has_said_who_it_is(make_world: MakeWorld) -> None:
    world = await make_world(**SECURE)
    client = await world.connect()
    await enter(client)
    entry = AlterClientQuotasRequest.EntryData
    for name in ("bob", "ANONYMOUS"):
        part = entry.EntityData(entity_type="user", entity_name=name)
        change = entry.OpData(key=ASKED, value=1e-9)
        request = AlterClientQuotasRequest(entries=[entry(entity=[part], ops=[change])])
        assert (await client.ask(request, 1)).entries[0].error_code == ErrorCode.NONE
    assert (await client.ask(ASKS_NOTHING, 3)).throttle_time_ms == 0
    other = await world.connect()
    assert (await other.ask(ApiVersionsRequest(), 3)).throttle_time_ms == 0, "a stranger"
    await enter(other, BOB)
    assert (await other.ask(ASKS_NOTHING, 3)).throttle_time_ms == 1000


@pytest.mark.parametrize("limit", [5e-324, 1e-9, 1e300, float("inf"), float("nan")])
async def test_odd_numbers_harm_nobody(world: World, limit: float) -> None:
    """Kafka takes them all where a quota need not be whole, and what is nearly whole else."""
    world.topic()
    client = await world.connect()
    await set_quota(world, TEST, CHANGED, limit)
    await set_quota(world, TEST, ASKED, limit)
    if limit < 1:
        await set_quota(world, TEST, WRITTEN, limit)
        await set_quota(world, TEST, READ, limit)
    topic = CreateTopicsRequest.CreatableTopic(name="a", num_partitions=5, replication_factor=1)
    for request, version in (
        (produce_request([("t", 0, world.batch((b"k", b"v")))]), 9),
        (fetch_request([("t", 0, 0)]), 12),
        (CreateTopicsRequest(topics=[topic]), 5),
        (CreateTopicsRequest(topics=[topic]), 7),
    ):
        other = await world.connect()
        assert ((await other.ask(request, version)).throttle_time_ms > 0) == (limit < 1)
    await client.close()
    await world.restart()
    assert world.broker.metrics_state.internal_errors == 0


async def test_changes_of_topics_are_refused_when_there_were_too_many(world: World) -> None:
    await set_quota(world, TEST, CHANGED, 1)
    client = await world.connect()

    def creation(name: str, partitions: int, **more: Any) -> CreateTopicsRequest:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        return CreateTopicsRequest(topics=[topic], **more)

    made = await client.ask(creation("a", 21), 7)
    assert (made.topics[0].error_code, made.throttle_time_ms) == (ErrorCode.NONE, 0)
    growth = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=22, assignments=None)
    deletion = DeleteTopicsRequest.DeleteTopicState(name="a")
    for request, version, rows in (
        (creation("b", 1), 7, "topics"),
        (creation("b", 1, validate_only=True), 7, "topics"),
        (CreatePartitionsRequest(topics=[growth]), 3, "results"),
        (DeleteTopicsRequest(topics=[deletion]), 6, "responses"),
    ):
        other = await world.connect()
        refused = await other.ask(request, version)
        assert getattr(refused, rows)[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert refused.throttle_time_ms == 10_000
        await other.close()
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="by-itself")])
    assert (await client.ask(asked, 12)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.name for topic in world.broker.topics.all() if not topic.is_internal] == ["a"]

    old = await client.ask(creation("c", 1), 5)
    assert (old.topics[0].error_code, old.throttle_time_ms) == (ErrorCode.NONE, 11_000)
    client.send(asked, 12)
    await others_are_served(world)
    world.clock.advance(11_000)
    _, answer = await client.receive(world.broker.apis[3].response, 12)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert world.broker.metrics_state.throttled[CHANGED] == 5


async def test_who_connects_too_often_is_closed_when_the_time_is_over(world: World) -> None:
    listener = world.broker.listeners[0]
    await set_quota(world, {"ip": "localhost"}, CONNECTED, 1)
    counters = world.broker.metrics_state
    clients = [await Client.connect("127.0.0.1", listener.port) for _ in range(11)]
    for client in clients[:10]:
        await client.ask(ASKS_NOTHING, 3)
    await until(lambda: counters.connections_throttled == 1)
    clients[10].send(ASKS_NOTHING, 3)
    await asyncio.sleep(0)
    assert (counters.throttled[CONNECTED], counters.throttled_ms[CONNECTED]) == (1, 1000)
    world.clock.advance(1000)
    assert await clients[10].is_closed_by_peer()
    assert counters.connections_throttled == 0
    world.clock.advance(11_000)
    clients.append(await Client.connect("127.0.0.1", listener.port))
    assert (await clients[11].ask(ASKS_NOTHING, 3)).throttle_time_ms == 0
    for client in clients:
        await client.close()
    assert [world.broker.quotas.connect(host) for host in ("", "fe80::1%eth0", "::ffff:10.0.0.1")] == [
        0,
        0,
        0,
    ]


async def test_who_goes_away_waits_no_more(world: World) -> None:
    world.topic()
    await set_quota(world, TEST, WRITTEN, 1)
    client = await world.connect()
    answer = await client.ask(produce_request([("t", 0, world.batch((b"k", b"v")))]), 9)
    assert world.broker.metrics_state.connections_throttled == 1
    world.broker.servers[0].connections.copy().pop().expire()
    await until(lambda: not world.broker.metrics_state.connections_open)
    assert world.broker.metrics_state.connections_throttled == 0
    world.clock.advance(answer.throttle_time_ms)
    assert world.broker.metrics_state.connections_throttled == 0


async def test_a_stop_waits_for_nobody_who_has_to_wait(world: World) -> None:
    world.topic()
    await set_quota(world, TEST, WRITTEN, 1)
    client = await world.connect()
    await client.ask(produce_request([("t", 0, world.batch((b"k", b"v")))]), 9)
    client.send(ASKS_NOTHING, 3)
    async with asyncio.timeout(30):
        await world.restart()


async def test_quotas_are_there_after_a_restart(world: World) -> None:
    entities: list[tuple[Names, str]] = [
        ({"client-id": "c"}, WRITTEN), ({"user": None}, READ), ({"user": "u", "client-id": None}, ASKED),
        ({"ip": "10.0.0.1"}, CONNECTED), ({"ip": None}, CONNECTED), ({"client-id": "gone"}, WRITTEN),
    ]  # fmt: skip
    for number, (names, key) in enumerate(entities):
        await set_quota(world, names, key, number + 1)
    await set_quota(world, {"client-id": "c"}, READ, 7)
    await set_quota(world, {"client-id": "gone"}, WRITTEN, None)
    client = await world.connect()
    before = await client.ask(DescribeClientQuotasRequest(components=[]), 1)
    assert len(before.entries) == 5
    await world.restart()
    client = await world.connect()
    after = await client.ask(DescribeClientQuotasRequest(components=[]), 1)
    assert sorted(map(str, after.entries)) == sorted(map(str, before.entries))
    assert world.broker.quotas.is_active
    assert world.broker.quotas.fetched.limit("v", "c") == 2
    assert world.broker.quotas.connected.limit("10.0.0.1", "") == 4


async def test_windows_are_as_they_are_set(make_world: MakeWorld) -> None:
    world = await make_world(
        quota_window_num="3", quota_window_size_seconds="7", controller_quota_window_num="1",
        controller_quota_window_size_seconds="5",
    )  # fmt: skip
    world.topic()
    request, size_bytes = request_of(world, 28)
    await set_quota(world, TEST, WRITTEN, size_bytes // 28)
    await set_quota(world, TEST, CHANGED, 1)
    client = await world.connect()
    assert (await client.ask(request, 9)).throttle_time_ms == 14_000, "two windows of seven seconds"
    world.clock.advance(14_000)
    topic = CreateTopicsRequest.CreatableTopic(name="a", num_partitions=6, replication_factor=1)
    assert (await client.ask(CreateTopicsRequest(topics=[topic]), 7)).throttle_time_ms == 0
    deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="a")])
    assert (await client.ask(deletion, 6)).throttle_time_ms == 1000, "five tokens at most"


async def test_who_was_told_to_connect_later_did_not_connect(world: World) -> None:
    """As in Kafka: else who tries again and again would never have a turn."""
    await set_quota(world, {"ip": "10.0.0.1"}, CONNECTED, 1)
    quotas = world.broker.quotas
    assert [quotas.connect("10.0.0.1") for _ in range(11)] == [0] * 10 + [1000]
    world.clock.advance(5000)
    assert [quotas.connect("10.0.0.1") for _ in range(5)] == [1000] * 5
    world.clock.advance(6000)
    assert [quotas.connect("10.0.0.1") for _ in range(11)] == [0] * 10 + [1000]


async def test_a_host_without_a_quota_is_looked_up_whenever_it_is_to_get_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have another address by then."""
    quotas, seen = world.broker.quotas, []

    async def look_up(function: Callable[[str], str], host: str) -> str:
        seen.append(host)
        return function(host)

    monkeypatch.setattr(quotas, "_run_blocking", look_up)
    for _ in range(2):
        assert await quotas.resolve({"10.0.0.1"}) == {"10.0.0.1"}
    await set_quota(world, {"ip": "10.0.0.1"}, CONNECTED, 1)
    assert await quotas.resolve({"10.0.0.1"}) == {"10.0.0.1"}
    assert seen == ["10.0.0.1"] * 3, "the last time it had one"


async def test_a_look_up_leaves_alone_what_another_has_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas, hosts = world.broker.quotas, {"10.0.0.1", "10.0.0.2"}

    async def look_up(function: Callable[[str], str], host: str) -> str:
        if host in hosts:
            assert await quotas.resolve({"10.0.0.9"}) == {"10.0.0.9"}
        return function(host)

    monkeypatch.setattr(quotas, "_run_blocking", look_up)
    assert await quotas.resolve(hosts) == hosts
