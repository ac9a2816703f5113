"""Goal: offsets that a transaction commits are seen when it is committed, and never when it is not (T195); a
consumer that has to know waits for them (T194).

Method: a small client commits offsets by TxnOffsetCommit and reads them by OffsetFetch, through restarts.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest, JoinGroupRequest
from storage.layout import TopicPartition
from tests.broker.client import Client, until
from tests.broker.conftest import World
from tests.broker.transactions.producer import T, Transactional

T1 = TopicPartition("t", 1)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


async def fetched(
    client: Client, *, stable: bool = False, version: int = 8, wants_all: bool = False
) -> list[tuple[int, int]]:
    """(offset, error) of the partitions 0 and 1, or of whatever is committed."""
    indexes = [0, 1]
    if version < 8:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=indexes)]
        request = OffsetFetchRequest(
            group_id="g", topics=None if wants_all else topics, require_stable=stable
        )
        found = (await client.ask(request, version)).topics
    else:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        asked = [group.OffsetFetchRequestTopics(name="t", partition_indexes=indexes)]
        request = OffsetFetchRequest(
            groups=[group(group_id="g", topics=None if wants_all else asked)], require_stable=stable
        )
        found = (await client.ask(request, version)).groups[0].topics
    return [(one.committed_offset, one.error_code) for topic in found for one in topic.partitions]


async def begun(world: World) -> Transactional:
    world.topic("t", 2)
    tx = await Transactional.begin(world)
    await tx.client.ask(FindCoordinatorRequest(key="g"), 2)
    return tx


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("is_commit", [True, False], ids=["committed", "aborted"])
async def test_t195_offsets_count_when_the_transaction_is_committed(
    world: World, version: int, is_commit: bool
) -> None:
    tx = await begun(world)
    assert await tx.add_offsets(version=min(version, 4)) == 0
    assert await tx.commit_offsets({T: 5}, version=version) == [0]
    assert await fetched(tx.client) == [(-1, 0), (-1, 0)]
    assert await tx.end(is_commit=is_commit) == 0
    assert await fetched(tx.client) == [(5 if is_commit else -1, 0), (-1, 0)]
    await world.restart()
    assert await fetched(await world.connect()) == [(5 if is_commit else -1, 0), (-1, 0)]


@pytest.mark.parametrize("version", [7, 8, 9])
async def test_t194_who_requires_stable_offsets_is_told_to_wait(world: World, version: int) -> None:
    """Who asks for all is told of what was committed before only."""
    tx = await begun(world)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    plain = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=2)
    request = OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[plain])])
    assert (await tx.client.ask(request, 7)).topics[0].partitions[0].error_code == 0
    assert await tx.add_offsets() == 0
    assert await tx.commit_offsets({T: 5, T1: 6}) == [0, 0]
    fields: dict[str, Any] = {"version": version}
    assert await fetched(tx.client, **fields) == [(2, 0), (-1, 0)]
    assert await fetched(tx.client, stable=True, **fields) == [(-1, UNSTABLE), (-1, UNSTABLE)]
    assert await fetched(tx.client, stable=True, wants_all=True, **fields) == [(-1, UNSTABLE)]
    assert await tx.end(is_commit=True) == 0
    assert await fetched(tx.client, stable=True, **fields) == [(5, 0), (6, 0)]


async def test_what_is_undecided_is_known_after_a_restart(world: World) -> None:
    tx = await begun(world)
    assert await tx.add_offsets() == 0
    assert await tx.commit_offsets({T: 5}) == [0]
    await world.restart()
    tx.client = await world.connect()
    assert await fetched(tx.client, stable=True) == [(-1, UNSTABLE), (-1, 0)]
    assert await tx.end(is_commit=True) == 0
    assert await fetched(tx.client, stable=True) == [(5, 0), (-1, 0)]


async def test_a_later_commit_outlives_the_transaction(world: World) -> None:
    """The newest one wins: by its place, not by when it is decided."""
    tx = await begun(world)
    assert await tx.add_offsets() == 0
    assert await tx.commit_offsets({T: 5}) == [0]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    plain = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=9)
    request = OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[plain])])
    assert (await tx.client.ask(request, 7)).topics[0].partitions[0].error_code == 0
    assert await tx.end(is_commit=True) == 0
    assert await fetched(tx.client) == [(9, 0), (-1, 0)]
    await world.restart()
    assert await fetched(await world.connect()) == [(9, 0), (-1, 0)]


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_what_was_removed_meanwhile_does_not_come_back(world: World, is_restarted: bool) -> None:
    """With its topic: the offset of another one of that name would be skipped to. Neither at once nor at a
    start, before or after the transaction's end.
    """
    tx = await begun(world)
    assert await tx.add_offsets() == 0
    assert await tx.commit_offsets({T: 7}) == [0]
    await world.broker.deletions.delete("t")
    for _ in world.broker.groups.on_topics_deleted(["t"]):
        pass
    world.topic("t", 2)
    if is_restarted:
        await world.restart()
        tx.client = await world.connect()
    assert await fetched(tx.client, stable=True) == [(-1, 0), (-1, 0)]
    assert await tx.end(is_commit=True) == 0
    assert await fetched(tx.client) == [(-1, 0), (-1, 0)]
    await world.restart()
    assert await fetched(await world.connect()) == [(-1, 0), (-1, 0)]


async def test_a_group_that_was_deleted_meanwhile_does_not_come_back(world: World) -> None:
    tx = await begun(world)
    assert await tx.add_offsets() == 0
    assert await tx.commit_offsets({T: 7}) == [0]
    (deleted,) = (await tx.client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert deleted.error_code == 0
    await world.restart()
    tx.client = await world.connect()
    assert await tx.end(is_commit=True) == 0
    assert await fetched(tx.client) == [(-1, 0), (-1, 0)]
    assert world.broker.groups.find("g") is None


async def test_offsets_are_taken_only_where_the_group_takes_part(world: World) -> None:
    """KIP-890."""
    tx = await begun(world)
    assert await tx.commit_offsets({T: 5}, version=3) == [ErrorCode.INVALID_TXN_STATE]
    assert await tx.commit_offsets({T: 5}, version=4) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert await tx.commit_offsets({T: 5}, transactional_id="") == [ErrorCode.INVALID_REQUEST]
    assert await tx.add_offsets() == 0
    assert await tx.commit_offsets({T: 5, TopicPartition("none", 0): 1}) == [
        0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    zombie = Transactional(world, tx.client)
    zombie.producer = tx.producer
    assert await tx.init() == 0
    assert await zombie.commit_offsets({T: 7}) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await fetched(tx.client, stable=True) == [(-1, 0), (-1, 0)]


async def test_a_member_that_lost_its_place_commits_nothing(world: World) -> None:
    """KIP-447: the consumer's generation fences, not the producer's id. Without one everybody may, as
    before.
    """
    tx = await begun(world)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip
    other = await world.connect()
    asked = asyncio.create_task(other.ask(join, 2))
    await until(lambda: world.broker.groups.find("g"))
    world.clock.advance(1_000)
    joined = await asked
    assert joined.error_code == 0
    assert await tx.add_offsets() == 0
    mine = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assert await tx.commit_offsets({T: 1}, **mine) == [0]
    stale = {**mine, "generation_id": joined.generation_id - 1}
    assert await tx.commit_offsets({T: 2}, **stale) == [ErrorCode.ILLEGAL_GENERATION]
    assert await tx.commit_offsets({T: 2}, **{**mine, "member_id": "x"}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await tx.commit_offsets({T: 3}, version=2) == [0]
    assert await tx.end(is_commit=True) == 0
    assert await fetched(tx.client) == [(3, 0), (-1, 0)]


async def test_an_offset_that_is_undecided_keeps_its_group(world: World) -> None:
    tx = await begun(world)
    assert await tx.add_offsets() == 0
    assert await tx.commit_offsets({T: 5}) == [0]
    world.clock.advance(8 * 24 * 3_600_000)
    await world.broker.background.expire_offsets()
    assert world.broker.groups.find("g") is not None
    await world.broker.deletions.delete("t")
    for _ in world.broker.groups.on_topics_deleted(["t"]):
        pass
    assert world.broker.groups.undecided_offsets("g") == set()


@pytest.mark.parametrize("is_commit", [True, False], ids=["committed", "aborted"])
async def test_a_transaction_ends_for_groups_of_every_partition(world: World, is_commit: bool) -> None:
    """The commits of g and h lie in different partitions of `__consumer_offsets`, each with a marker."""
    tx = await begun(world)
    await tx.client.ask(FindCoordinatorRequest(key="h"), 2)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    for group_id in ("g", "h"):
        assert await tx.add_offsets(group_id) == 0
        assert await tx.commit_offsets({T: 5}, group_id=group_id) == [0]
    assert await tx.end(is_commit=is_commit) == 0
    for group_id in ("g", "h"):
        topics = [group.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        asked = OffsetFetchRequest(groups=[group(group_id=group_id, topics=topics)], require_stable=True)
        found = (await tx.client.ask(asked, 8)).groups[0].topics[0].partitions[0]
        assert (found.committed_offset, found.error_code) == (5 if is_commit else -1, 0)
