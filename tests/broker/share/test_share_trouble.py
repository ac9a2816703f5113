"""Goal: what goes wrong between two steps of a share group costs nobody a record, and nobody waits for ever.

Method: as in `test_share_groups.py`, with an event put where it hurts most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.security.acls import Acl, Operation, Pattern, Permission, Resource
from broker.share.partition import ShareKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.share_fetch import ShareFetchResponse
from protocol.messages.share_groups import AlterShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequest
from storage.log import Log
from storage.slice import Slice
from tests.broker.client import Client, until
from tests.broker.conftest import World, produce_request
from tests.broker.share.test_share_groups import (
    ACCEPT,
    LOCK_MS,
    RELEASE,
    Member,
    client,
    produce,
    settings,
    stands,
)
from tests.broker.transactions.producer import T, Transactional

__all__ = ["client"]
RULES = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
}


async def test_room_that_is_made_wakes_who_waits_for_it(world: World, client: Client) -> None:
    """With as many records on their way as may be, those that come after have to wait."""
    await settings(client, partition_max_record_locks="100")
    await produce(world, client, *(b"%d" % number for number in range(100)))
    await produce(world, client, b"next")
    m, n = await Member.join(world), await Member.join(world, "n")
    assert (await m.fetch(max_records=100))[0] == [(0, 99, 1)]
    assert await n.fetch() == ([], [])
    waiting = await n.waiting_fetch()
    assert await m.acknowledge((0, 99, [ACCEPT])) is ErrorCode.NONE
    await until(waiting.done)
    assert await waiting == ([(100, 100, 1)], [b"next"])


async def test_a_right_that_is_taken_back_ends_what_waits(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    """What comes then is not handed out, nor counted as delivered."""
    world = await make_world(**RULES)
    client = await world.connect()
    world.topic("t")
    await settings(client, auto_offset_reset="earliest")
    m = await Member.join(world)
    assert await m.fetch() == ([], [])
    m.client.send(m.request(None, max_wait_ms=LOCK_MS), 2)
    await until(lambda: len(world.broker.purgatory) == 1)
    rules = [
        Acl(Resource.TOPIC, "t", Pattern.LITERAL, "User:*", "*", operation, permission)
        for operation, permission in (
            (Operation.ALL, Permission.ALLOW),
            (Operation.READ, Permission.DENY),
        )
    ]
    assert world.broker.authorizer is not None
    world.broker.authorizer.add(rules)
    await produce(world, client, b"secret")
    answer = (await m.client.receive(ShareFetchResponse, 2))[1]
    (row,) = answer.responses[0].partitions
    assert (row.error_code, row.acquired_records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert not row.records
    m.session_epoch += 1
    world.broker.authorizer.remove(rules)
    assert await m.fetch() == ([(0, 0, 1)], [b"secret"])


async def test_what_was_aborted_takes_no_room_for_ever(world: World, client: Client) -> None:
    """With as many records on their way as may be, of which no member says anything, Kafka 4.3.1 gives the
    group nothing any more.
    """
    await settings(client, partition_max_record_locks="100", isolation_level="read_committed")
    await settings(client, auto_offset_reset="earliest")
    tx = await Transactional.begin(world)
    assert await tx.add(T) == [0]
    aborted = world.batch(*[(None, b"aborted")] * 100, base_sequence=0, **tx.batch_fields)
    request = produce_request([("t", 0, aborted)], transactional_id="tx")
    assert (await tx.client.ask(request, 9)).responses[0].partition_responses[0].error_code == 0
    assert await tx.end(is_commit=False) == 0
    await produce(world, client, b"good")
    m = await Member.join(world)
    assert await m.fetch() == ([], [])
    runs, values = await m.fetch()
    assert values == [b"good"]
    assert await m.acknowledge(*((first, last, [ACCEPT]) for first, last, _ in runs)) is ErrorCode.NONE
    assert await stands(client) == (100, 0)


async def test_what_is_compacted_away_takes_no_room_for_ever(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above: it was given back, and lies in the log no more."""
    await settings(client, partition_max_record_locks="100", auto_offset_reset="earliest")
    await produce(world, client, *[b"old"] * 100)
    m = await Member.join(world)
    assert (await m.fetch())[0] == [(0, 99, 1)]
    assert await m.acknowledge((0, 99, [RELEASE])) is ErrorCode.NONE
    await produce(world, client, b"good")
    read = Log.read

    def compacted(log: Log, offset: int, *place: Any, **more: Any) -> Any:
        return read(log, max(offset, 100) if log.topic_partition.topic == "t" else offset, *place, **more)

    monkeypatch.setattr(Log, "read", compacted)
    assert await m.fetch() == ([], [])
    assert await m.fetch() == ([(100, 100, 1)], [b"good"])


async def test_who_tells_of_what_the_group_has_nothing_of_any_more_is_told_so(
    world: World, client: Client
) -> None:
    await produce(world, client, b"a")
    m = await Member.join(world)
    await m.fetch()
    world.broker.shares.forget([ShareKey("g", m.topic_id, 0)])
    assert await m.acknowledge((0, 0, [ACCEPT])) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_where_a_group_is_set_to_holds_though_somebody_was_about_to_begin(
    world: World, client: Client
) -> None:
    """The look-up of a time takes a while."""
    await settings(client, auto_offset_reset="by_duration:PT30S")
    await produce(world, client, b"a", b"b")
    m = await Member.join(world)
    shares = world.broker.shares
    key = ShareKey("g", m.topic_id, 0)
    partition = world.broker.partition("t", 0)
    assert partition is not None
    opening = asyncio.ensure_future(shares.open(shares.partitions[key], partition))
    await asyncio.sleep(0)
    shares.begin([key], 1, {key: 1})
    with pytest.raises(KafkaError):
        await opening
    await world.restart()
    assert world.broker.shares.partitions[key].stored.start_offset == 1


async def test_members_that_begin_at_the_same_time_begin_in_one_place(world: World, client: Client) -> None:
    """Each would give the same records out."""
    await settings(client, auto_offset_reset="by_duration:PT30S")
    await produce(world, client, b"a", b"b")
    m = await Member.join(world)
    shares, partition = world.broker.shares, world.broker.partition("t", 0)
    assert partition is not None
    share = shares.partitions[ShareKey("g", m.topic_id, 0)]
    first, second = await asyncio.gather(*(shares.open(share, partition) for _ in range(2)))
    assert first is second is share.in_flight
    assert await m.fetch() == ([(0, 1, 1)], [b"a", b"b"])


async def test_sessions_that_ended_leave_nothing(world: World, client: Client) -> None:
    await produce(world, client, b"a")
    m = await Member.join(world)
    for number in range(5):
        m.name, m.session_epoch = f"m{number}", 0
        await m.fetch()
        assert await m.acknowledge(epoch=-1) is ErrorCode.NONE
    sessions = world.broker.share_sessions
    assert not sessions.sessions
    assert not any(sessions._members.values())


async def test_a_shorter_lock_ends_in_its_time(world: World, client: Client) -> None:
    """Though a longer one that was given before still goes on."""
    await produce(world, client, b"a")
    m, n = await Member.join(world), await Member.join(world, "n")
    await m.fetch()
    await settings(client, record_lock_duration_ms="15000")
    await produce(world, client, b"b")
    assert (await n.fetch())[1] == [b"b"]
    world.clock.advance(15_000)
    assert await m.fetch() == ([(1, 1, 2)], [b"b"])
    assert await n.fetch() == ([], [])
    world.clock.advance(LOCK_MS - 15_000)
    assert await n.fetch() == ([(0, 0, 2), (1, 1, 3)], [b"a", b"b"])


async def test_a_lock_ends_though_one_before_has_ended(world: World, client: Client) -> None:
    await produce(world, client, b"a")
    m, n = await Member.join(world), await Member.join(world, "n")
    for count in (1, 2):
        assert (await m.fetch())[0] == [(0, 0, count)]
        world.clock.advance(LOCK_MS)
    assert await n.fetch() == ([(0, 0, 3)], [b"a"])


async def test_a_group_that_is_set_nowhere_does_not_come_into_being(world: World, client: Client) -> None:
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    asked = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    part = asked.AlterShareGroupOffsetsRequestPartition(partition_index=7, start_offset=2)
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=[asked(topic_name="t", partitions=[part])])
    answer = await client.ask(request, 0)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.broker.groups.shared.groups == {}


async def test_a_group_id_that_cannot_be_stored_is_refused(world: World, client: Client) -> None:
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    asked = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    part = asked.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topic = asked(topic_name="t", partitions=[part])
    request = AlterShareGroupOffsetsRequest(group_id="g" * 40_000, topics=[topic])
    assert (await client.ask(request, 0)).error_code == ErrorCode.INVALID_GROUP_ID
    assert world.broker.metrics_state.internal_errors == 0


@pytest.mark.parametrize("trouble", ["loading", "unreadable", "closed", "offline"])
async def test_a_member_is_told_of_nothing_that_ends_it(world: World, client: Client, trouble: str) -> None:
    """KafkaShareConsumer throws IllegalStateException where it finds an error that it does not expect."""
    await produce(world, client, b"a")
    m = await Member.join(world)
    topic = world.broker.shares._topic
    place = topic.place_of(ShareKey("g", m.topic_id, 0).state_id)
    if trouble == "closed":
        topic.close()
    elif trouble == "offline":
        world.broker.partitions[place].log.offline_reason = "the disk is gone"
    else:
        (topic._loading if trouble == "loading" else topic._unreadable).add(place.partition)
    with pytest.raises(AssertionError, match=f"error_code={ErrorCode.NOT_LEADER_OR_FOLLOWER:d},"):
        await m.fetch()
    topic._is_closed = False
    topic._loading.clear()
    topic._unreadable.clear()
    world.broker.partitions[place].log.offline_reason = None
    assert (await m.fetch())[1] == [b"a"]


async def test_where_a_group_stands_is_told_whole_or_not_yet(world: World, client: Client) -> None:
    """Kafka's Admin leaves out what has an error."""
    m = await Member.join(world)
    topic = world.broker.shares._topic
    topic._loading.add(topic.place_of(ShareKey("g", m.topic_id, 0).state_id).partition)
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id="g", topics=None)])
    (row,) = (await client.ask(request, 1)).groups
    assert (row.error_code, row.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


async def test_a_lock_ends_in_its_time_though_the_clock_is_put_back(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(world, client, b"a")
    m, n = await Member.join(world), await Member.join(world, "n")
    await m.fetch()
    now_ms = world.clock.now_ms
    monkeypatch.setattr(world.clock, "now_ms", lambda: now_ms() - 3_600_000)
    world.clock.advance(LOCK_MS)
    assert await n.fetch() == ([(0, 0, 2)], [b"a"])


async def test_who_hangs_up_while_the_disk_is_read_for_it_gets_nothing(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records would be with nobody until the lock ends."""
    await settings(client, auto_offset_reset="earliest")
    await produce(world, client, b"a", b"b")
    m, n = await Member.join(world), await Member.join(world, "n")
    reading: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    with monkeypatch.context() as patches:
        patches.setattr(Slice, "read_now", lambda _: None)
        patches.setattr(world.broker, "run_blocking", lambda *_: reading)
        m.client.send(m.request(), 2)
        await until(lambda: bool(world.broker.share_sessions.sessions))
        await m.client.close()
        await until(lambda: not world.broker.share_sessions.sessions)
    assert reading.cancelled()
    assert await n.fetch() == ([(0, 1, 1)], [b"a", b"b"])


async def test_members_may_share_a_connection(world: World, client: Client) -> None:
    """Each has a session of its own, and all end with it: Apache Kafka ends one."""
    await settings(client, auto_offset_reset="earliest")
    await produce(world, client, b"a")
    await produce(world, client, b"b")
    m, n, other = [await Member.join(world, name) for name in ("m", "n", "o")]
    n.client = m.client
    assert await m.fetch(max_records=1) == ([(0, 0, 1)], [b"a"])
    assert await n.fetch(max_records=1) == ([(1, 1, 1)], [b"b"])
    assert await n.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
    waiting = await other.waiting_fetch()
    await m.client.close()
    assert await waiting == ([(0, 0, 2), (1, 1, 2)], [b"a", b"b"])


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.CORRUPT_MESSAGE), RuntimeError("a mistake")])
async def test_what_a_waiting_member_cannot_read_stops_no_producer(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whether there is enough for it is looked at in the middle of what follows a flush."""
    await produce(world, client, b"a")
    m = await Member.join(world)
    await m.fetch()
    waiting = await m.waiting_fetch(min_bytes=1000)
    read = Log.read

    def unreadable(log: Log, *place: Any, **more: Any) -> Any:
        if log.topic_partition.topic == "t":
            raise error
        return read(log, *place, **more)

    with monkeypatch.context() as patches:
        patches.setattr(Log, "read", unreadable)
        producers = [await world.connect() for _ in range(3)]
        sent = [world.produce(one, world.batch((None, b"x"))) for one in producers]
        assert [one.error_code for one in await asyncio.gather(*sent)] == [ErrorCode.NONE] * 3
        await until(waiting.done)
    waiting.exception()  # it is told an error
    n = await Member.join(world, "n")
    assert (await n.fetch())[1] == [b"x"] * 3
