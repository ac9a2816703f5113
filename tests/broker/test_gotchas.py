"""Goal: what clients trip over when a broker is not Kafka in every detail, one test for each trap that no
other file shows.

Method: a whole broker and raw requests; what librdkafka makes of it is in `clients/test_features.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.api import Api, apis
from broker.handlers.metadata import MOST_MADE_AT_ONCE
from protocol.batch import iterate_headers
from protocol.control import Marker, marker_batch
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import FindCoordinatorRequest, JoinGroupRequest
from protocol.messages.metadata import ApiVersionsRequest, DescribeTopicPartitionsRequest, MetadataRequest
from protocol.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.records import decode_batch
from storage.layout import TopicPartition
from storage.types import Origin
from tests.broker.client import Client, until
from tests.broker.conftest import Fetched, World, fetch_request, produce_request

ONE = (b"k", b"v")
JAVA_4_MINIMUM = {
    "Produce": 3, "Fetch": 4, "ListOffsets": 1, "Metadata": 0, "OffsetCommit": 2, "OffsetFetch": 1,
    "FindCoordinator": 0, "JoinGroup": 2, "Heartbeat": 0, "LeaveGroup": 0, "SyncGroup": 0,
    "DescribeGroups": 0, "ListGroups": 0, "ApiVersions": 0, "CreateTopics": 2, "DeleteTopics": 1,
    "DeleteRecords": 0, "InitProducerId": 0, "OffsetForLeaderEpoch": 2, "DescribeConfigs": 1,
    "AlterConfigs": 0, "DescribeLogDirs": 1, "CreatePartitions": 0, "DeleteGroups": 0, "ElectLeaders": 0,
    "IncrementalAlterConfigs": 0, "ListPartitionReassignments": 0, "OffsetDelete": 0, "DescribeCluster": 0,
    "DescribeTopicPartitions": 0, "ListConfigResources": 0, "DescribeAcls": 1, "CreateAcls": 1,
    "DeleteAcls": 1, "WriteTxnMarkers": 1, "DescribeProducers": 0, "ListTransactions": 0,
    "ConsumerGroupHeartbeat": 0, "ConsumerGroupDescribe": 0, "ShareGroupHeartbeat": 1,
    "ShareGroupDescribe": 1, "ShareFetch": 1, "ShareAcknowledge": 1, "DescribeShareGroupOffsets": 0,
    "AlterShareGroupOffsets": 0, "DeleteShareGroupOffsets": 0, "StreamsGroupHeartbeat": 0,
    "StreamsGroupDescribe": 0,
    "DescribeQuorum": 0, "SaslHandshake": 0, "SaslAuthenticate": 0, "AlterUserScramCredentials": 0,
    "DescribeClientQuotas": 0, "DescribeUserScramCredentials": 0, "AddPartitionsToTxn": 0,
    "AlterPartitionReassignments": 0, "AlterReplicaLogDirs": 1,
    "AddOffsetsToTxn": 0, "EndTxn": 0, "TxnOffsetCommit": 0, "DescribeTransactions": 0,
    "AlterClientQuotas": 0, "CreateDelegationToken": 1, "RenewDelegationToken": 1,
    "ExpireDelegationToken": 1, "DescribeDelegationToken": 1,
    "UpdateFeatures": 0, "UnregisterBroker": 0,
}  # fmt: skip
"""the lowest version of each API that the Java client of Kafka 4 knows (KIP-896)"""


async def advertised(client: Client) -> dict[int, tuple[int, int]]:
    answer = await client.ask(ApiVersionsRequest(), 0)
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


async def test_g2_old_produces_are_advertised_and_refused(world: World) -> None:
    """Else librdkafka below 2.11.1 does not compress; nobody uses them, so that the refusal hurts nobody."""
    client = await world.connect()
    assert (await advertised(client))[0][0] == 0
    for version in (0, 1, 2):
        old = await world.connect()
        old.send_bytes(b"\0\0\0\x12\0\0" + bytes([0, version]) + b"\0\0\0\1\0\1x\0\1\0\0\0\1\0\0\0\0"[:14])
        assert await old.is_closed_by_peer()


async def test_g3_what_librdkafka_asks_of_versions(world: World) -> None:
    ranges = await advertised(await world.connect())
    assert ranges[0][1] >= 7, "message format 2 and zstd"
    assert ranges[1][1] >= 10, "message format 2 and zstd"
    assert ranges[10][1] >= 0
    assert ranges[8][0] <= 2 <= ranges[8][1]
    assert ranges[9][0] <= 1 <= ranges[9][1]
    assert {11, 12, 13, 14} <= ranges.keys(), "balanced groups"
    assert ranges[22][1] >= 0, "idempotent producers"


async def test_g4_join_group_of_the_oldest_clients(world: World) -> None:
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="old"), 0)
    assert (await advertised(client))[11][0] == 0
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    for version in (0, 1):
        request = JoinGroupRequest(
            group_id=f"old-{version}",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        asked = asyncio.ensure_future(client.ask(request, version))
        while not asked.done():
            world.clock.advance(100)
            await asyncio.sleep(0)
        answer = asked.result()
        assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
        assert answer.leader == answer.member_id


class Transactions:
    """Transactional batches in t-0, put there as the coordinator will."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.partition = world.broker.partitions[TopicPartition("t", 0)]

    async def _append(self, batch: bytes) -> int:
        offset = self.partition.append(batch, self.world.clock.now_ms(), Origin.COORDINATOR).base_offset
        flushed = self.partition.when_flushed(offset + 1)
        if flushed is not None:
            await flushed
        return offset

    async def write(self, producer_id: int, sequence: int, count: int = 2) -> int:
        return await self._append(
            self.world.batch(
                *[(b"k", b"%d" % producer_id)] * count,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
        )

    async def end(self, producer_id: int, *, is_commit: bool) -> int:
        now_ms = self.world.clock.now_ms()
        marker = Marker(is_commit=is_commit)
        return await self._append(
            marker_batch(marker, producer_id=producer_id, producer_epoch=0, now_ms=now_ms)
        )


async def committed(client: Client, offset: int, version: int = 12, **fields: Any) -> Fetched:
    answer = await client.ask(fetch_request([("t", 0, offset)], isolation_level=1, **fields), version)
    partition: Fetched = answer.responses[0].partitions[0]
    assert partition.error_code == 0
    return partition


def aborted(partition: Fetched) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in partition.aborted_transactions or ()]


def offsets(partition: Fetched) -> list[int]:
    data = partition.records or b""
    return [one.offset for position, _ in iterate_headers(data) for one in decode_batch(data, position)]


@pytest.mark.parametrize("version", [4, 5, 11, 12])
async def test_g9_read_committed(world: World, version: int) -> None:
    """T99, T101: nothing at or beyond the last stable offset; the aborted transactions of what is there."""
    world.topic()
    client = await world.connect()
    transactions = Transactions(world)
    await world.produce(client, world.batch(ONE))  # 0
    assert await transactions.write(7, 0) == 1  # 1, 2
    await world.produce(client, world.batch(ONE))  # 3
    assert await transactions.write(8, 0) == 4  # 4, 5
    partition = await committed(client, 0, version)
    assert (partition.high_watermark, partition.last_stable_offset) == (6, 1)
    assert (offsets(partition), aborted(partition)) == ([0], [])
    everything = await client.ask(fetch_request([("t", 0, 0)]), version)
    assert offsets(everything.responses[0].partitions[0]) == [0, 1, 2, 3, 4, 5]
    assert everything.responses[0].partitions[0].aborted_transactions is None

    assert await transactions.end(7, is_commit=False) == 6
    partition = await committed(client, 0, version)
    assert partition.last_stable_offset == 4
    assert (offsets(partition), aborted(partition)) == ([0, 1, 2, 3], [(7, 1)])

    assert await transactions.end(8, is_commit=True) == 7
    assert await transactions.write(7, 2) == 8  # 8, 9
    assert await transactions.end(7, is_commit=False) == 10
    partition = await committed(client, 0, version)
    assert partition.last_stable_offset == 11
    assert offsets(partition) == list(range(11))
    assert aborted(partition) == [(7, 1), (7, 8)]
    assert aborted(await committed(client, 7, version)) == [(7, 8)], "of the range that is returned only"
    asked = ListOffsetsRequest.ListOffsetsTopic
    for isolation_level in (0, 1):
        latest = asked.ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            isolation_level=isolation_level, topics=[asked(name="t", partitions=[latest])]
        )
        assert (await client.ask(request, 5)).topics[0].partitions[0].offset == 11


async def test_g9_a_long_poll_waits_for_the_last_stable_offset(world: World) -> None:
    """More records of the open transaction do not wake it; the marker does."""
    world.topic()
    transactions = Transactions(world)
    await transactions.write(7, 0)
    client = await world.connect()
    client.send(fetch_request([("t", 0, 0)], isolation_level=1, max_wait_ms=60_000), 12)
    await until(lambda: len(world.broker.purgatory) == 1)
    await transactions.write(7, 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(world.broker.purgatory) == 1
    await transactions.end(7, is_commit=True)
    answer = (await client.receive(FetchResponse, 12))[1]
    assert offsets(answer.responses[0].partitions[0]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("of_log", [0, 3])
async def test_g10_librdkafka_validates_with_the_same_epoch_everywhere(world: World, of_log: int) -> None:
    """Metadata, Fetch, ListOffsets, committed offsets and OffsetForLeaderEpoch v2 tell one story, that of
    the log: one of Apache Kafka's has a new epoch at each of its starts.
    """
    world.topic()
    client = await world.connect()
    world.broker.partitions[TopicPartition("t", 0)].log.leader_epoch = of_log
    await world.produce(client, world.batch(ONE, ONE))
    metadata = await client.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9)
    epoch = metadata.topics[0].partitions[0].leader_epoch
    assert epoch == of_log
    named = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")])
    assert (await client.ask(named, 0)).topics[0].partitions[0].leader_epoch == epoch
    fetched = await client.ask(fetch_request([("t", 0, 0)], current_leader_epoch=epoch), 12)
    assert fetched.responses[0].partitions[0].error_code == 0
    asked = ListOffsetsRequest.ListOffsetsTopic
    latest = asked.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
    listed = await client.ask(ListOffsetsRequest(topics=[asked(name="t", partitions=[latest])]), 5)
    assert (listed.topics[0].partitions[0].offset, listed.topics[0].partitions[0].leader_epoch) == (2, epoch)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[topic(topic="t", partitions=[partition])])
    end = (await client.ask(request, 2)).topics[0].partitions[0]
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, epoch, 2)


async def test_g11_leader_hints_are_absent(world: World) -> None:
    """There is no other node to point to."""
    topic = world.topic()
    client = await world.connect()
    for version in (10, 11):
        answer = await client.ask(produce_request([("t", 7, world.batch(ONE))]), version)
        assert answer.node_endpoints == []
        assert answer.responses[0].partition_responses[0].current_leader is None
    for version in (16, 17):
        request = fetch_request([(topic.topic_id, 7, 0)])
        answer = await client.ask(request, version)
        assert answer.node_endpoints == []
        assert answer.responses[0].partitions[0].current_leader is None


@pytest.mark.parametrize("version", range(7))
async def test_g12_coordinators_of_many_keys(world: World, version: int) -> None:
    client = await world.connect()
    request = FindCoordinatorRequest(key="a", coordinator_keys=["a", "b", "c"])
    answer = await client.ask(request, version)
    address = ("127.0.0.1", world.broker.listeners[0].port, world.broker.node_id)
    if version < 4:
        assert (answer.host, answer.port, answer.node_id) == address
        return
    assert [found.key for found in answer.coordinators] == ["a", "b", "c"]
    assert {(found.host, found.port, found.node_id) for found in answer.coordinators} == {address}


async def test_g13_offsets_of_many_groups_and_members(world: World) -> None:
    """A classic group overlooks member epochs in fetches; commits of strangers are refused by name."""
    world.topic()
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(coordinator_keys=["a"]), 4)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    for group_id in ("a", "b"):
        request = OffsetCommitRequest(group_id=group_id, topics=[topic(name="t", partitions=[partition])])
        assert (await client.ask(request, 9)).topics[0].partitions[0].error_code == 0
    for member_id, generation, code in (
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 5, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        request = OffsetCommitRequest(
            group_id="a",
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            topics=[topic(name="t", partitions=[partition])],
        )
        assert (await client.ask(request, 9)).topics[0].partitions[0].error_code == code
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    asked = group.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
    for version in (8, 9):
        groups = [group(group_id=name, topics=[asked]) for name in ("a", "b", "absent")]
        if version == 9:
            groups[0].member_id, groups[0].member_epoch = "anybody", 77
        answer = await client.ask(OffsetFetchRequest(groups=groups), version)
        found = {
            each.group_id: [place.committed_offset for place in each.topics[0].partitions]
            for each in answer.groups
        }
        assert found == {"a": [3, -1], "b": [3, -1], "absent": [-1, -1]}
        answer = await client.ask(OffsetFetchRequest(groups=[group(group_id="a", topics=None)]), version)
        assert [place.partition_index for place in answer.groups[0].topics[0].partitions] == [0]


async def test_g14_the_new_group_protocols_are_advertised(world: World) -> None:
    """librdkafka asks for the consumers' in version 1 only; clients know no version 0 of share groups."""
    found = await advertised(await world.connect())
    assert found[68] == found[69] == (0, 1)
    assert [found[key] for key in (76, 77, 78, 79)] == [(1, 1), (1, 1), (1, 2), (1, 2)]
    assert found[88] == found[89] == (0, 0)


async def test_g19_one_request_makes_so_many_topics_and_the_next_one_the_rest(world: World) -> None:
    """LEADER_NOT_AVAILABLE is what a client waits at for a topic that is being made."""
    client = await world.connect()
    count = MOST_MADE_AT_ONCE + 20
    asked = [MetadataRequest.MetadataRequestTopic(name=f"made-{index}") for index in range(count)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
    codes = [topic.error_code for topic in (await client.ask(request, 9)).topics]
    assert codes == [0] * MOST_MADE_AT_ONCE + [ErrorCode.LEADER_NOT_AVAILABLE] * 20
    assert {topic.error_code for topic in (await client.ask(request, 9)).topics} == {0}


async def test_g30_every_api_overlaps_with_kafka_4s_java_client(world: World) -> None:
    ranges = await advertised(await world.connect())
    for key, (lowest, highest) in ranges.items():
        name = apis[key].name
        assert lowest <= highest
        assert JAVA_4_MINIMUM[name] <= highest, name
        assert lowest <= JAVA_4_MINIMUM[name], f"{name}: what Java 4 falls back to is there"


def harmless(api: Api) -> Any:
    """A request that asks for nothing, answered at once."""
    request = api.request()
    if isinstance(request, ProduceRequest):
        request.acks = 1
    return request


@pytest.mark.parametrize("name", [api.name for api in sorted(apis.values())])
async def test_g32_nobody_is_throttled(world: World, name: str) -> None:
    """In every version that has the field."""
    api = next(api for api in apis.values() if api.name == name)
    client = await world.connect()
    for version in range(api.min_version, api.max_version + 1):
        answer = await client.ask(harmless(api), version)
        assert getattr(answer, "throttle_time_ms", 0) == 0
