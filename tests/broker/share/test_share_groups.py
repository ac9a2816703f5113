"""Goal: a member of a share group gets the records that are its own, others get them when they are not any
more; what was delivered is delivered behind a restart too.

Method: requests of members to a whole broker whose clock stands still. Beside Apache Kafka the same is in
`tests/kafka/test_share_groups.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from broker.share.partition import ShareKey
from broker.topic import SHARE_STATE_TOPIC
from protocol.control import Marker
from protocol.errors import ErrorCode
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest, JoinGroupRequest
from protocol.messages.share_fetch import AcknowledgementBatch, ShareAcknowledgeRequest, ShareFetchRequest
from protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from protocol.records import decode_all, decode_batch
from storage.layout import TopicPartition
from storage.types import Origin
from tests.broker.client import Client, until
from tests.broker.conftest import World

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK_MS = 30_000
GROUP_RESOURCE = 32
Acks = list[tuple[int, int, list[int]]]


class Member:
    """One member of `g`, over a connection of its own, that reads t-0."""

    def __init__(self, world: World, client: Client, name: str, topic_id: UUID) -> None:
        self.world = world
        self.client = client
        self.name = name
        self.topic_id = topic_id
        self.epoch = 0
        self.session_epoch = 0

    @classmethod
    async def join(cls, world: World, name: str = "m", topics: list[str] | None = None) -> Member:
        topic = world.broker.topics.get("t")
        assert topic is not None
        member = cls(world, await world.connect(), name, topic.topic_id)
        await member.client.ask(FindCoordinatorRequest(key="g"), 3)
        answer = await member.beat(topics=topics or ["t"])
        assert answer.error_code == 0, answer
        return member

    async def beat(self, **more: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id="g",
            member_id=self.name,
            member_epoch=more.pop("epoch", self.epoch),
            subscribed_topic_names=more.pop("topics", None),
        )
        answer = await self.client.ask(request, 1)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def request(self, acks: Acks | None = None, **more: Any) -> ShareFetchRequest:
        topic = ShareFetchRequest.FetchTopic
        partition = topic.FetchPartition(partition_index=0, acknowledgement_batches=_batches(acks or []))
        usual = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500}
        return ShareFetchRequest(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.session_epoch,
            topics=[topic(topic_id=self.topic_id, partitions=[partition])],
            **{**usual, **more},
        )

    async def fetch(
        self, acks: Acks | None = None, **more: Any
    ) -> tuple[list[tuple[int, int, int]], list[Any]]:
        """What it acquired, and the values of the records."""
        answer = await self.client.ask(self.request(acks, **more), 2)
        return self.acquired(answer)

    def acquired(self, answer: Any) -> tuple[list[tuple[int, int, int]], list[Any]]:
        assert answer.error_code == 0, answer
        self.session_epoch += 1
        rows = [row for topic in answer.responses for row in topic.partitions]
        assert not any(row.error_code or row.acknowledge_error_code for row in rows), rows
        runs = [
            (run.first_offset, run.last_offset, run.delivery_count)
            for row in rows
            for run in row.acquired_records
        ]
        offsets = {offset for first, last, _ in runs for offset in range(first, last + 1)}
        records = [record for row in rows for record in decode_all(row.records or b"")]
        return runs, [record.value for record in records if record.offset in offsets]

    async def waiting_fetch(self, wait_ms: int = 10 * LOCK_MS, **more: Any) -> asyncio.Task[Any]:
        """A fetch that waits on the broker."""
        self.client.send(self.request(None, max_wait_ms=wait_ms, **more), 2)
        before = len(self.world.broker.purgatory)
        await until(lambda: len(self.world.broker.purgatory) > before)

        async def receive() -> Any:
            from protocol.messages.share_fetch import ShareFetchResponse

            return self.acquired((await self.client.receive(ShareFetchResponse, 2))[1])

        return asyncio.ensure_future(receive())

    async def acknowledge(
        self, *acks: tuple[int, int, list[int]], epoch: int | None = None, **more: Any
    ) -> Any:
        """The row of the partition, or the error of the request."""
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        partition = topic.AcknowledgePartition(
            partition_index=0, acknowledgement_batches=_batches(list(acks))
        )
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            topics=[topic(topic_id=self.topic_id, partitions=[partition])],
            **more,
        )
        answer = await self.client.ask(request, 2)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        self.session_epoch += 1
        return ErrorCode(answer.responses[0].partitions[0].error_code) if answer.responses else ErrorCode.NONE


def _batches(acks: Acks) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acks
    ]


def state_kind(key: bytes) -> int:
    """Whether a record of `__share_group_state` says all (0) or what has changed (1)."""
    return int.from_bytes(key[:2], "big")


async def settings(client: Client, **changed: str) -> None:
    asked = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        asked.AlterableConfig(name=f"share.{name.replace('_', '.')}", config_operation=0, value=value)
        for name, value in changed.items()
    ]
    resource = asked(resource_type=GROUP_RESOURCE, resource_name="g", configs=configs)
    (done,) = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    assert done.error_code == 0, done


async def stands(client: Client) -> tuple[int, int]:
    """Where the group stands in t-0, and its lag."""
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    answer = await client.ask(DescribeShareGroupOffsetsRequest(groups=[asked(group_id="g", topics=None)]), 1)
    (row,) = answer.groups[0].topics[0].partitions
    return row.start_offset, row.lag


@pytest.fixture
async def client(world: World) -> Client:
    client = await world.connect()
    world.topic("t")
    await settings(client, auto_offset_reset="earliest")
    return client


async def produce(world: World, client: Client, *values: bytes, topic: str = "t") -> None:
    answer = await world.produce(client, world.batch(*((None, value) for value in values)), topic)
    assert answer.error_code == 0


async def test_a_record_goes_to_one_member_and_no_further(world: World, client: Client) -> None:
    await produce(world, client, b"a", b"b")
    m, n = await Member.join(world), await Member.join(world, "n")
    assert await m.fetch() == ([(0, 1, 1)], [b"a", b"b"])
    assert await n.fetch() == ([], [])
    await produce(world, client, b"c")
    assert await n.fetch() == ([(2, 2, 1)], [b"c"])
    assert await m.acknowledge((0, 1, [ACCEPT])) is ErrorCode.NONE
    assert await n.acknowledge((2, 2, [ACCEPT])) is ErrorCode.NONE
    assert (await stands(client))[1] == 0
    await world.restart()
    m = await Member.join(world)
    assert await m.fetch() == ([], [])
    assert (await stands(m.client))[1] == 0


async def test_a_member_beyond_its_quota_has_what_it_acquired_and_waits(world: World, client: Client) -> None:
    """In Apache Kafka it is answered without the records, which nobody has until their locks are over."""
    await produce(world, client, b"a", b"b")
    m = await Member.join(world)
    quota = (("client-id", "test"),)
    world.broker.quotas.settings.set(quota, {"consumer_byte_rate": 1.0})
    answer = await m.client.ask(m.request(None), 2)
    assert answer.throttle_time_ms > 0
    assert world.broker.metrics_state.connections_throttled == 1
    assert m.acquired(answer) == ([(0, 1, 1)], [b"a", b"b"])
    world.broker.quotas.settings.set(quota, {})
    world.clock.advance(answer.throttle_time_ms)
    assert world.broker.metrics_state.connections_throttled == 0


async def test_the_first_heartbeat_says_what_a_member_has(world: World, client: Client) -> None:
    """In Kafka the second does, for partitions begin behind the first."""
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    member = Member(world, client, "m", UUID(int=0))
    answer = await member.beat(topics=["t"])
    assert [one.partitions for one in answer.assignment.topic_partitions] == [[0]]
    assert (await member.beat()).assignment is None
    world.topic("new", partitions=3)
    answer = await member.beat(topics=["t", "new"])
    assert sorted(one.partitions for one in answer.assignment.topic_partitions) == [[0], [0, 1, 2]]


async def test_what_takes_too_long_goes_to_another(world: World, client: Client) -> None:
    await produce(world, client, b"a", b"b")
    m, n = await Member.join(world), await Member.join(world, "n")
    await m.fetch()
    assert await m.acknowledge((0, 0, [RENEW]), is_renew_ack=True) is ErrorCode.NONE
    await n.fetch()
    waiting = await n.waiting_fetch()
    world.clock.advance(LOCK_MS)
    runs, _ = await waiting
    assert runs in ([(0, 1, 2)], [(1, 1, 2)])
    assert await m.acknowledge((1, 1, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


async def test_a_record_that_is_renewed_stays(world: World, client: Client) -> None:
    await produce(world, client, b"a", b"b")
    m, n = await Member.join(world), await Member.join(world, "n")
    await m.fetch()
    world.clock.advance(LOCK_MS // 2)
    assert await m.acknowledge((0, 0, [RENEW]), is_renew_ack=True) is ErrorCode.NONE
    world.clock.advance(LOCK_MS // 2)
    assert await n.fetch() == ([(1, 1, 2)], [b"b"])
    world.clock.advance(LOCK_MS // 2)
    assert await n.fetch() == ([(0, 0, 2)], [b"a"])


async def test_what_somebody_had_who_is_gone_goes_to_another(world: World, client: Client) -> None:
    await produce(world, client, b"a")
    m, n = await Member.join(world), await Member.join(world, "n")
    await m.fetch()
    await n.fetch()
    waiting = await n.waiting_fetch()
    await m.client.close()
    assert await waiting == ([(0, 0, 2)], [b"a"])
    assert await n.acknowledge((0, 0, [RELEASE]), epoch=-1) is ErrorCode.NONE
    assert await n.acknowledge((0, 0, [ACCEPT])) is ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_fetch_that_waits_is_answered_when_there_is_something(world: World, client: Client) -> None:
    m = await Member.join(world)
    await m.fetch()
    waiting = await m.waiting_fetch()
    await produce(world, client, b"a")
    assert await waiting == ([(0, 0, 1)], [b"a"])
    waiting = await m.waiting_fetch(wait_ms=500)
    world.clock.advance(500)
    assert await waiting == ([], [])
    waiting = await m.waiting_fetch(min_bytes=200)
    await produce(world, client, b"b")
    await produce(world, client, b"c" * 200)
    assert await waiting == ([(1, 2, 1)], [b"b", b"c" * 200])


async def test_whoever_hangs_up_while_waiting_gets_nothing(world: World, client: Client) -> None:
    m, n = await Member.join(world), await Member.join(world, "n")
    await m.fetch()
    waiting = await m.waiting_fetch()
    waiting.cancel()
    await m.client.close()
    await until(lambda: len(world.broker.purgatory) == 0)
    await produce(world, client, b"a")
    assert await n.fetch() == ([(0, 0, 1)], [b"a"])


async def test_what_fails_again_and_again_is_given_up(world: World, client: Client) -> None:
    await settings(client, delivery_count_limit="2")
    await produce(world, client, b"poison", b"good")
    m = await Member.join(world)
    assert (await m.fetch())[0] == [(0, 1, 1)]
    assert (await m.fetch([(0, 0, [RELEASE]), (1, 1, [ACCEPT])]))[0] == [(0, 0, 2)]
    assert await m.fetch([(0, 0, [RELEASE])]) == ([], [])
    assert (await stands(client))[1] == 0


async def test_a_start_delivers_again_what_nobody_acknowledged(world: World, client: Client) -> None:
    await produce(world, client, b"a", b"b")
    await produce(world, client, b"c")
    m = await Member.join(world)
    await m.fetch()
    await m.acknowledge((1, 1, [ACCEPT]), (2, 2, [RELEASE]))
    await world.restart()
    m = await Member.join(world)
    runs, values = await m.fetch()
    assert values == [b"a", b"c"]
    assert [run[:2] for run in runs] == [(0, 0), (2, 2)]
    await m.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]))
    assert (await stands(m.client))[1] == 0


async def test_all_is_written_once_in_a_while_and_older_words_are_deleted(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    world = await make_world(
        share_coordinator_snapshot_update_records_per_snapshot="3",
        share_coordinator_state_topic_num_partitions="1",
        share_coordinator_state_topic_segment_bytes="500",
        log_segment_delete_delay_ms="0",
    )
    client = await world.connect()
    world.topic("t")
    await settings(client, auto_offset_reset="earliest")
    m = await Member.join(world)
    for number in range(20):
        await produce(world, client, b"%d" % number)
        runs, _ = await m.fetch()
        assert (
            await m.acknowledge((number, number, [RELEASE if number % 5 == 4 else ACCEPT])) is ErrorCode.NONE
        )
        assert [run[:2] for run in runs[:1]] == [(number if number % 5 else max(0, number - 1),) * 2]
        if number % 5 == 0 and number:
            assert await m.acknowledge((number - 1, number - 1, [ACCEPT])) is ErrorCode.NONE
    log = world.broker.partition(SHARE_STATE_TOPIC, 0).log  # type: ignore[union-attr]
    assert log.log_end_offset > 20
    written = [record for _, data in log.scan(0) for record in decode_batch(data)]
    kinds = "".join("SU"[state_kind(record.key or b"")] for record in written)
    assert max(map(len, kinds.split("S"))) == 3, kinds
    await world.broker.shares.prune()
    assert log.log_start_offset == log.log_end_offset - 1, "the last record says all"
    await world.broker.background.expire_segments()
    assert log.segments[0].base_offset > 0
    before = await stands(client)
    await world.restart()
    m = await Member.join(world)
    assert await stands(m.client) == before
    assert (await m.fetch())[1] == [b"19"]


async def test_too_many_members_fetch_one_behind_the_other(
    make_world: Callable[..., Awaitable[World]],
) -> None:
    world = await make_world(group_share_max_share_sessions="1", group_share_max_size="1")
    client = await world.connect()
    world.topic("t")
    m = await Member.join(world)
    await m.fetch()
    n = Member(world, await world.connect(), "n", m.topic_id)
    answer = await n.beat(topics=["t"])
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 1 members.",
    )
    n.client.send(n.request(None, max_wait_ms=700), 2)
    await client.ask(ShareGroupHeartbeatRequest(group_id="g", member_id="x", member_epoch=1), 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await n.client.receive_frame()
    world.clock.advance(700)
    frame = await n.client.receive_frame()
    assert frame[9:11] == ErrorCode.SHARE_SESSION_LIMIT_REACHED.to_bytes(2, "big")


async def test_a_silent_member_is_one_no_more(world: World, client: Client) -> None:
    m, n = await Member.join(world), await Member.join(world, "n")
    world.clock.advance(44_000)
    assert (await n.beat()).error_code == 0
    world.clock.advance(2_000)
    assert (await m.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    group = world.broker.groups.shared.groups["g"]
    assert list(group.members) == ["n"]
    await world.restart()
    assert list(world.broker.groups.shared.groups["g"].members) == ["n"]
    world.clock.advance(46_000)
    assert world.broker.groups.shared.groups["g"].is_empty


async def test_what_cannot_be_written_down_has_not_been_delivered(world: World, client: Client) -> None:
    await produce(world, client, b"a")
    m = await Member.join(world)
    await m.fetch()
    place = world.broker.shares._topic.place_of(ShareKey("g", m.topic_id, 0).state_id)
    log = world.broker.partitions[place].log
    log.offline_reason = "the disk is gone"
    assert await m.acknowledge((0, 0, [ACCEPT])) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.offline_reason = None
    assert await m.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE


async def test_only_what_is_committed(world: World, client: Client) -> None:
    """The records of an aborted transaction go to nobody, and those of one that goes on wait."""
    await settings(client, isolation_level="read_committed")
    partition = world.broker.partition("t", 0)
    assert partition is not None

    def write(value: bytes, sequence: int) -> None:
        batch = world.batch(
            (None, value), producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        partition.append(batch, world.clock.now_ms(), Origin.COORDINATOR)

    write(b"aborted", 0)
    partition.end_transaction(Marker(is_commit=False), 7, 0, world.clock.now_ms())
    write(b"committed", 1)
    partition.end_transaction(Marker(is_commit=True), 7, 0, world.clock.now_ms())
    await produce(world, client, b"plain")
    write(b"goes on", 2)
    m = await Member.join(world)
    runs, values = await m.fetch()
    assert values[-2:] == [b"committed", b"plain"]
    assert b"aborted" not in values
    assert runs == [(1, 4, 1)]
    assert (
        await m.acknowledge((1, 1, [GAP]), (2, 2, [ACCEPT]), (3, 3, [GAP]), (4, 4, [ACCEPT]))
        is ErrorCode.NONE
    )
    assert await m.fetch() == ([], [])
    waiting = await m.waiting_fetch()
    partition.end_transaction(Marker(is_commit=True), 7, 0, world.clock.now_ms())
    assert (await waiting)[1] == [b"goes on"]


async def test_of_aborted_transactions_only_those_of_what_is_read_are_looked_up(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that was far behind looked through all that came since, with each fetch."""
    await settings(client, isolation_level="read_committed")
    for number in range(50):
        await produce(world, client, b"%d" % number)
    log = world.broker.partitions[TopicPartition("t", 0)].log
    asked = []
    find = log.aborted_transactions

    def spied(start: int, upper_offset: int) -> Any:
        asked.append((start, upper_offset))
        return find(start, upper_offset)

    monkeypatch.setattr(log, "aborted_transactions", spied)
    m = await Member.join(world)
    runs, _ = await m.fetch(max_bytes=100)
    assert asked == [(0, runs[-1][1] + 1)]


async def test_where_a_group_begins(world: World, client: Client) -> None:
    await produce(world, client, b"old")
    world.clock.advance(60_000)
    await produce(world, client, b"new")
    for reset, expected in {
        "earliest": [b"old", b"new"],
        "by_duration:PT30S": [b"new"],
        "latest": [],
    }.items():
        await settings(client, auto_offset_reset=reset)
        m = await Member.join(world)
        assert (await m.fetch())[1] == expected, reset
        await m.client.close()
        await until(lambda: not world.broker.share_sessions.sessions)
        await (await Member.join(world)).beat(epoch=-1)
        assert (await client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results[0].error_code == 0


async def test_where_a_group_has_begun_holds_behind_a_start(world: World, client: Client) -> None:
    """Though nothing is acknowledged yet: else records that come meanwhile would go to nobody."""
    await settings(client, auto_offset_reset="latest")
    m = await Member.join(world)
    await m.fetch()
    await produce(world, client, b"a")
    await world.restart()
    m = await Member.join(world)
    assert (await m.fetch())[1] == [b"a"]


async def test_a_topic_that_is_made_anew_is_another(world: World, client: Client) -> None:
    await produce(world, client, b"a")
    m = await Member.join(world)
    await m.fetch()
    await m.acknowledge((0, 0, [ACCEPT]))
    waiting = await m.waiting_fetch()
    await world.broker.deletions.delete("t")
    with pytest.raises(AssertionError, match="error_code=3"):
        await waiting
    assert world.broker.shares.partitions == {}
    assert world.broker.groups.shared.groups["g"].begun == {}
    world.topic("t")
    await produce(world, client, b"b")
    n = await Member.join(world, "n")
    assert (await n.fetch())[1] == [b"b"]


async def test_a_share_group_is_no_other_group(world: World, client: Client) -> None:
    await Member.join(world)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range")
    joins = [
        JoinGroupRequest(
            group_id=name, protocol_type="consumer", session_timeout_ms=10_000, protocols=[protocol]
        )
        for name in "gh"
    ]
    codes = [(await client.ask(join, 5)).error_code for join in joins]
    assert codes == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.MEMBER_ID_REQUIRED]
    beat = ShareGroupHeartbeatRequest(
        group_id="h", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    answer = await client.ask(beat, 1)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group h is not a share group.",
    )


async def test_only_an_empty_group_begins_elsewhere(world: World, client: Client) -> None:
    await produce(world, client, b"a", b"b", b"c")
    m = await Member.join(world)
    asked = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    part = asked.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=[asked(topic_name="t", partitions=[part])])
    assert (await client.ask(request, 0)).error_code == ErrorCode.NON_EMPTY_GROUP
    await m.beat(epoch=-1)
    assert (await client.ask(request, 0)).error_code == ErrorCode.NONE
    request.group_id = "new"
    assert (await client.ask(request, 0)).error_code == ErrorCode.NONE
    (described,) = (await client.ask(ShareGroupDescribeRequest(group_ids=["new"]), 1)).groups
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Empty", 1, 1)
    assert await stands(client) == (2, 1)
    m = await Member.join(world, "n")
    assert (await m.fetch())[1] == [b"c"]
