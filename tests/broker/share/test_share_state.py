"""Goal: where a share group stands is what was written down of it last, whatever ends, is lost, or is pruned.

Method: as in `test_share_trouble.py`, of what lies in `__share_group_state`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.partition import Partition
from broker.share import coordinator
from broker.share.partition import ShareKey
from broker.share.records import UPDATE, Contents, read_contents
from broker.topic import SHARE_STATE_TOPIC
from protocol.codegen import decode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest
from protocol.messages.internal_share_groups import ShareSnapshotValue, ShareUpdateValue
from protocol.messages.share_groups import AlterShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequest
from protocol.records import decode_batch
from storage.layout import TopicPartition
from storage.log import Log
from tests.broker.client import Client, until
from tests.broker.conftest import World
from tests.broker.share.test_share_groups import (
    ACCEPT,
    LOCK_MS,
    RELEASE,
    Member,
    client,
    produce,
    settings,
    stands,
    state_kind,
)

__all__ = ["client"]


@pytest.mark.parametrize("is_opened_anew", [True, False])
async def test_what_could_not_be_read_is_not_taken_for_replaced(
    make_world: Callable[..., Awaitable[World]], monkeypatch: pytest.MonkeyPatch, is_opened_anew: bool
) -> None:
    """As while it is being read: a broker that looked for what is replaced before it knew all deleted it."""
    world = await make_world(share_coordinator_state_topic_num_partitions="1")
    client = await world.connect()
    world.topic("t")
    await settings(client, auto_offset_reset="earliest")
    m = await Member.join(world)
    await produce(world, client, b"a", b"b")
    await m.fetch()
    await m.acknowledge((0, 0, [ACCEPT]))

    def unreadable(_: Log) -> Contents:
        raise OSError(errno.EIO, "the disk does not answer")

    with monkeypatch.context() as patches:
        patches.setattr(coordinator, "read_contents", unreadable)
        await world.restart()
    await world.broker.shares.prune()
    if is_opened_anew:
        world.broker.shares._topic._read = read_contents
        for place in (TopicPartition("t", 0), TopicPartition(SHARE_STATE_TOPIC, 0)):
            assert world.broker.shares._topic._unreadable == {0}
            await world.broker.shares.load_again(place)
    else:
        await world.restart()
    m = await Member.join(world)
    assert (await m.fetch())[1] == [b"b"]


async def test_what_nobody_reads_keeps_nothing_that_others_write(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    """And where nothing happens nothing is written."""
    world = await make_world(share_coordinator_state_topic_num_partitions="1")
    client = await world.connect()
    world.topic("t")
    world.topic("idle")
    await settings(client, auto_offset_reset="earliest")
    m = await Member.join(world, topics=["t", "idle"])
    log = world.broker.partitions[TopicPartition(SHARE_STATE_TOPIC, 0)].log
    for _ in range(6):
        await produce(world, client, b"a")
        ((first, last, _),) = (await m.fetch())[0]
        assert await m.acknowledge((first, last, [ACCEPT])) is ErrorCode.NONE
    await world.broker.shares.prune()
    assert log.log_start_offset >= log.log_end_offset - 2
    end_offset = log.log_end_offset
    for _ in range(2):
        await world.broker.shares.prune()
    assert log.log_end_offset == end_offset
    await world.restart()
    assert len(world.broker.shares.partitions) == 2


async def test_what_was_accepted_before_others_were_pruned_stays_so(world: World, client: Client) -> None:
    """All that is known is written where the group stands, not where it stood before the last words."""
    await produce(world, client, b"a")
    await produce(world, client, b"b")
    await produce(world, client, b"c")
    m = await Member.join(world)
    await m.fetch()
    assert await m.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT])) is ErrorCode.NONE
    await world.broker.shares.prune()
    world.broker.share_sessions.sessions.clear()  # as behind a kill: what it has is not given back
    await world.restart()
    m = await Member.join(world)
    assert (await m.fetch())[1] == [b"b"]


async def test_who_begins_or_is_forgotten_while_others_are_pruned(
    make_world: Callable[..., Awaitable[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two partitions the job waits for the disk."""
    world = await make_world(share_coordinator_state_topic_num_partitions="2")
    world.topic("t")
    shares = world.broker.shares
    await shares.ensure_topic()
    topic_id = world.broker.topics.get("t").topic_id  # type: ignore[union-attr]
    keys = [ShareKey(f"g{number}", topic_id, 0) for number in range(50)]
    first = next(key for key in keys if shares._topic.place_of(key.state_id).partition == 0)
    old, gone, new = [key for key in keys if shares._topic.place_of(key.state_id).partition == 1][:3]
    shares.begin([first, old, gone], 1, dict.fromkeys(keys, 0))
    for share in shares.partitions.values():
        share.stored.updates = 1
    all_flushed = Partition.all_flushed

    async def meanwhile(partition: Partition) -> None:
        if new not in shares.partitions:
            shares.begin([new], 1, {new: 7})
            shares.forget([gone])
        await all_flushed(partition)

    monkeypatch.setattr(Partition, "all_flushed", meanwhile)
    await shares.prune()
    await world.restart()
    assert set(world.broker.shares.partitions) == {first, old, new}
    assert world.broker.shares.partitions[new].stored.start_offset == 7


async def test_a_group_whose_state_is_lost_begins_anew(world: World, client: Client) -> None:
    """A power cut keeps what one log says and not the other."""
    await produce(world, client, b"a")
    m = await Member.join(world)
    await m.fetch()
    key = ShareKey("g", m.topic_id, 0)
    world.broker.shares.forget([key])
    await world.restart()
    m = await Member.join(world, "n")
    assert await m.fetch() == ([(0, 0, 1)], [b"a"])


async def test_a_group_whose_state_is_lost_can_be_deleted(world: World, client: Client) -> None:
    m = await Member.join(world)
    world.broker.shares.forget([ShareKey("g", m.topic_id, 0)])
    await m.beat(epoch=-1)
    assert (await client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == 0
    assert world.broker.groups.shared.groups == {}


async def test_where_a_group_begins_and_that_it_is_forgotten_is_answered_once_durable(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic("t")
    shares = world.broker.shares
    await shares.ensure_topic()
    key = ShareKey("g", world.broker.topics.get("t").topic_id, 0)  # type: ignore[union-attr]
    flushed = asyncio.get_running_loop().create_future()
    with monkeypatch.context() as patches:
        patches.setattr(Partition, "when_flushed", lambda *_: flushed)
        assert shares.begin([key], 1, {key: 0}) == [flushed]
        assert shares.forget([key]) == [flushed]


async def set_to(client: Client, offset: int) -> ErrorCode:
    """Let the group, that is empty, begin in t-0 elsewhere."""
    asked = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    part = asked.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=[asked(topic_name="t", partitions=[part])])
    return ErrorCode((await client.ask(request, 0)).error_code)


async def test_where_a_group_is_set_to_holds_though_locks_of_before_end(world: World, client: Client) -> None:
    """Who is a member no more may still have records of where the group stood, and say how it went."""
    await produce(world, client, b"a")
    m, n = await Member.join(world), await Member.join(world, "n")
    await m.fetch()
    await settings(client, record_lock_duration_ms="15000")
    await produce(world, client, b"b", b"c")
    await n.fetch()
    for member in (m, n):
        await member.beat(epoch=-1)
    assert await set_to(client, 2) is ErrorCode.NONE
    assert await m.acknowledge((0, 0, [ACCEPT])) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await m.acknowledge(epoch=-1) is ErrorCode.NONE
    world.clock.advance(LOCK_MS)
    assert await stands(client) == (2, 1)
    await world.restart()
    n = await Member.join(world)
    assert await stands(n.client) == (2, 1)
    assert await n.fetch() == ([(2, 2, 1)], [b"c"])


@pytest.mark.parametrize("ends", ["session", "lock"])
async def test_what_is_given_back_goes_to_another_though_it_cannot_be_written_down(
    world: World, client: Client, ends: str
) -> None:
    await produce(world, client, b"a")
    m, n = await Member.join(world), await Member.join(world, "n")
    await m.fetch()
    assert await n.fetch() == ([], [])
    place = world.broker.shares._topic.place_of(ShareKey("g", m.topic_id, 0).state_id)
    world.broker.partitions[place].log.offline_reason = "the disk is gone"
    waiting = await n.waiting_fetch()
    if ends == "lock":
        world.clock.advance(LOCK_MS)
    else:
        await m.client.close()
    await until(waiting.done)
    assert await waiting == ([(0, 0, 2)], [b"a"])


async def test_the_leader_epoch_that_a_group_reads_in_is_told_behind_a_start_too(
    world: World, client: Client
) -> None:
    """Kafka writes a new one down when somebody reads, though nothing is said of any record."""

    async def epoch() -> Any:
        asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id="g", topics=None)])
        (row,) = (await world_client.ask(request, 1)).groups[0].topics[0].partitions
        return row.leader_epoch

    await produce(world, client, b"a", b"b")
    m, world_client = await Member.join(world), client
    await m.fetch()
    assert await m.acknowledge((0, 0, [RELEASE]), (1, 1, [ACCEPT])) is ErrorCode.NONE
    assert await epoch() == 0
    partition = world.broker.partition("t", 0)
    assert partition is not None
    partition.log.begin_epoch(3)  # as behind a power cut
    await world.restart()
    m = await Member.join(world)
    world_client = m.client
    state = world.broker.partitions[
        world.broker.shares._topic.place_of(ShareKey("g", m.topic_id, 0).state_id)
    ]
    state.log.offline_reason = "the disk is gone"
    with pytest.raises(AssertionError, match="error_code"):
        await m.fetch()
    assert await epoch() == 0
    state.log.offline_reason = None
    assert await m.fetch() == ([(0, 0, 2)], [b"a"])
    assert await epoch() == 3
    await world.restart()
    world_client = await world.connect()
    await world_client.ask(FindCoordinatorRequest(key="g"), 3)
    assert await epoch() == 3


async def test_what_stops_writes_nothing_more(world: World, client: Client) -> None:
    await produce(world, client, b"a")
    m = await Member.join(world)
    await m.fetch()
    key = ShareKey("g", m.topic_id, 0)
    log = world.broker.partitions[world.broker.shares._topic.place_of(key.state_id)].log
    end_offset = log.log_end_offset
    world.broker.shares.stop()
    world.clock.advance(LOCK_MS)
    assert log.log_end_offset == end_offset
    with pytest.raises(KafkaError):
        world.broker.shares.find(key)


async def test_all_that_is_written_at_once_is_numbered(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    """As Kafka does, so that who reads `__share_group_state` sees what belongs together; what was created
    before it was written was written anew by the broker itself.
    """
    world = await make_world(
        share_coordinator_snapshot_update_records_per_snapshot="1",
        share_coordinator_state_topic_num_partitions="1",
    )
    client = await world.connect()
    world.topic("t")
    await settings(client, auto_offset_reset="earliest")
    await produce(world, client, b"a", b"b", b"c")
    m = await Member.join(world)
    began_ms, state_epoch = world.clock.now_ms(), m.epoch
    await m.fetch()
    for number in range(3):
        world.clock.advance(10)
        assert await m.acknowledge((number, number, [ACCEPT])) is ErrorCode.NONE
    world.clock.advance(10)
    await m.beat(epoch=-1)
    await world.restart()
    world.broker.shares.partitions[ShareKey("g", m.topic_id, 0)].stored.updates = 1
    await world.broker.shares.prune()
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    world.clock.advance(10)
    assert await set_to(client, 1) is ErrorCode.NONE
    log = world.broker.partitions[TopicPartition(SHARE_STATE_TOPIC, 0)].log
    found: list[tuple[Any, ...]] = []
    for record in (record for _, data in log.scan(0) for record in decode_batch(data)):
        assert record.value is not None
        value = bytes(record.value)
        if state_kind(record.key or b"") == UPDATE:
            change = decode(ShareUpdateValue, 0, value, 2)
            found.append(("U", change.snapshot_epoch, change.start_offset))
        else:
            said = decode(ShareSnapshotValue, 0, value, 2)
            times = said.create_timestamp - began_ms, said.write_timestamp - began_ms
            found.append(
                ("S", said.snapshot_epoch, said.start_offset, said.state_epoch - state_epoch, *times)
            )
    assert found == [
        ("S", 0, -1, 0, 0, 0),
        ("U", 0, 0),
        ("S", 1, 0, 0, 10, 10),
        ("U", 1, 1),
        ("S", 2, 2, 0, 30, 30),
        ("S", 3, 2, 0, 30, 40),
        ("S", 4, 1, 1, 50, 50),
    ]
