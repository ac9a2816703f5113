"""Goal: clients learn the one node, its topics and partitions, in every version and by every way of asking.

Method: a broker in the loop; Metadata, DescribeCluster and DescribeTopicPartitions are asked over a
connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import pytest

from broker.handlers.metadata import TOPIC_OPERATIONS
from broker.topic import CLUSTER_METADATA_TOPIC, METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from storage.layout import TopicPartition
from tests.broker.client import until
from tests.broker.conftest import World

Asked = MetadataRequest.MetadataRequestTopic
MakeWorld = Callable[..., Awaitable[World]]
NO_ID = UUID(int=0)


def by_name(*names: str, **fields: bool) -> MetadataRequest:
    return MetadataRequest(topics=[Asked(name=name) for name in names], **fields)


@pytest.mark.parametrize("version", range(14))
async def test_g34_every_version_names_node_cluster_and_controller(world: World, version: int) -> None:
    """G34: an admin client waits for a controller. G10: the leader epoch. G33: the listener's
    address.
    """
    topic = world.topic("t", 3)
    client = await world.connect()
    answer = await client.ask(by_name("t"), version)
    listener = world.broker.listeners[0]
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [
        (1, "127.0.0.1", listener.port)
    ]
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert answer.cluster_id == world.broker.cluster_id
    described = answer.topics[0]
    assert (described.name, described.error_code) == ("t", 0)
    assert [partition.partition_index for partition in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert partition.leader_id == 1
        assert list(partition.replica_nodes) == list(partition.isr_nodes) == [1]
        assert not partition.offline_replicas
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert described.topic_id == (topic.topic_id if version >= 10 else NO_ID)


async def test_g31_null_is_all_topics_and_empty_is_none(world: World) -> None:
    world.topic("a")
    client = await world.connect()
    for version in (1, 13):
        assert (await client.ask(MetadataRequest(topics=[]), version)).topics == []
        answer = await client.ask(MetadataRequest(topics=None), version)
        assert [(topic.name, topic.is_internal) for topic in answer.topics] == [
            (METADATA_TOPIC, True),
            ("a", False),
        ]
    assert len((await client.ask(MetadataRequest(topics=[]), 0)).topics) == 2


async def test_g19_topics_are_made_on_demand(make_world: MakeWorld) -> None:
    world = await make_world(num_partitions="2")
    client = await world.connect()
    answer = await client.ask(by_name("fresh", "bad name"), 4)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("fresh", 0),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert len(answer.topics[0].partitions) == 2
    assert world.broker.topics.get("fresh") is not None


async def test_g19_collisions_are_told(world: World) -> None:
    world.topic("a.b")
    client = await world.connect()
    answer = await client.ask(by_name("a_b"), 4)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_g19_a_topic_that_is_being_made_or_deleted_is_asked_for_again(world: World) -> None:
    """No client takes TOPIC_ALREADY_EXISTS for an answer that passes."""
    client, admin = await world.connect(), await world.connect()
    creatable = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=200, replication_factor=1)
    admin.send(CreateTopicsRequest(topics=[creatable]), 7)
    await until(lambda: TopicPartition("t", 0) in world.broker.partitions)
    assert world.broker.topics.get("t") is None
    answer = await client.ask(by_name("t"), 12)
    assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    await admin.receive(CreateTopicsResponse, 7)
    assert (await client.ask(by_name("t"), 12)).topics[0].error_code == 0
    admin.send(DeleteTopicsRequest(topic_names=["t"]), 5)
    await until(lambda: world.broker.topics.get("t") is None)
    answer = await client.ask(by_name("t"), 12)
    assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    await admin.receive(DeleteTopicsResponse, 5)
    assert (await client.ask(by_name("t"), 12)).topics[0].error_code == 0


async def test_topics_are_not_made_unasked(world: World, make_world: MakeWorld) -> None:
    client = await world.connect()
    answer = await client.ask(by_name("fresh", allow_auto_topic_creation=False), 4)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = await client.ask(by_name("__consumer_offsets"), 4)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[0].is_internal
    answer = await client.ask(by_name(CLUSTER_METADATA_TOPIC), 4)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_broker_may_forbid_it(make_world: MakeWorld) -> None:
    world = await make_world(auto_create_topics_enable="false")
    client = await world.connect()
    answer = await client.ask(by_name("fresh"), 13)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_g6_topics_by_id(world: World) -> None:
    topic = world.topic("t")
    unknown = uuid4()
    client = await world.connect()
    request = MetadataRequest(
        topics=[Asked(topic_id=topic.topic_id, name=None), Asked(topic_id=unknown, name=None)]
    )
    answer = await client.ask(request, 12)
    assert [(found.name, found.topic_id, found.error_code) for found in answer.topics] == [
        ("t", topic.topic_id, 0),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    early = MetadataRequest(topics=[Asked(topic_id=topic.topic_id, name="t")])
    told = await client.ask(early, 10)
    assert (told.topics[0].error_code, told.brokers, told.controller_id) == (
        ErrorCode.INVALID_REQUEST, [], -1,
    )  # fmt: skip


async def test_operations_are_told_on_request(world: World) -> None:
    world.topic("t")
    client = await world.connect()
    answer = await client.ask(by_name("t"), 8)
    assert answer.topics[0].topic_authorized_operations == answer.cluster_authorized_operations == -(2**31)
    answer = await client.ask(
        by_name("t", include_topic_authorized_operations=True, include_cluster_authorized_operations=True), 8
    )
    assert answer.topics[0].topic_authorized_operations > 0
    assert answer.cluster_authorized_operations > 0


async def test_an_offline_log_is_an_offline_replica(world: World) -> None:
    world.topic("t", 2)
    log = world.broker.partitions[TopicPartition("t", 1)].log
    log.take_offline("its disk failed")
    client = await world.connect()
    answer = await client.ask(by_name("t"), 13)
    offline = [list(partition.offline_replicas) for partition in answer.topics[0].partitions]
    assert offline == [[], [1]]


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster(world: World, version: int) -> None:
    client = await world.connect()
    answer = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert (answer.cluster_id, answer.controller_id) == (world.broker.cluster_id, 1)
    assert [(node.broker_id, node.port) for node in answer.brokers] == [(1, world.broker.listeners[0].port)]
    assert answer.cluster_authorized_operations > 0
    if version >= 1:
        for endpoint, code in (
            (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        ):
            wrong = await client.ask(DescribeClusterRequest(endpoint_type=endpoint), version)
            assert wrong.error_code == code


async def test_partitions_are_described_in_pages(world: World) -> None:
    world.topic("a", 3)
    world.topic("b", 2)
    client = await world.connect()
    names = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("b", "a", "none")]
    seen = []
    cursor = None
    pages = 0
    while True:
        request = DescribeTopicPartitionsRequest(topics=names, response_partition_limit=2, cursor=cursor)
        answer = await client.ask(request, 0)
        pages += 1
        for topic in answer.topics:
            if topic.error_code:
                seen.append((topic.name, ErrorCode(topic.error_code).name))
            seen += [(topic.name, partition.partition_index) for partition in topic.partitions]
        if answer.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
    assert seen == [
        ("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("none", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]  # fmt: skip
    assert pages >= 3


@pytest.mark.parametrize("limit", [1, 0, -5])
async def test_a_page_has_a_partition_at_least(world: World, limit: int) -> None:
    """As in Kafka, whatever the client asks for."""
    world.topic("t", 2)
    client = await world.connect()
    for topics in ([], [DescribeTopicPartitionsRequest.TopicRequest(name="t")]):
        cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=0)
        asked = DescribeTopicPartitionsRequest(topics=topics, cursor=cursor, response_partition_limit=limit)
        answer = await client.ask(asked, 0)
        (described,) = answer.topics
        assert [partition.partition_index for partition in described.partitions] == [0]
        assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 1)


@pytest.mark.parametrize(
    ("topics", "name", "index", "answered"),
    [
        (["t", "u"], "t", -1, [("t", ErrorCode.INVALID_REQUEST), ("u", ErrorCode.INVALID_REQUEST)]),
        (["t", "z"], "u", 0, [("t", ErrorCode.INVALID_REQUEST), ("z", ErrorCode.INVALID_REQUEST)]),
        (["t"], "a", 3, [("t", ErrorCode.INVALID_REQUEST)]),
        (["a"], "t", 0, [("a", ErrorCode.INVALID_REQUEST)]),
        (["a", "t"], "t", 1, [("t", 0)]),
        (["t"], "t", 9, [("t", 0)]),
        (["u", "z"], "z", 0, [("z", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
        ([], "t", -1, []),
        ([], "t1", 0, [("u", 0)]),
        ([], "z", 0, []),
    ],
)
async def test_where_a_page_may_begin(
    world: World, topics: list[str], name: str, index: int, answered: list[tuple[str, int]]
) -> None:
    """Kafka's answers, one by one."""
    world.topic("t", 2)
    world.topic("u")
    client = await world.connect()
    answer = await client.ask(
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic) for topic in topics],
            cursor=DescribeTopicPartitionsRequest.Cursor(topic_name=name, partition_index=index),
        ),
        0,
    )
    assert [(topic.name, topic.error_code) for topic in answer.topics] == answered


async def test_no_names_describe_every_topic(world: World) -> None:
    world.topic("a")
    client = await world.connect()
    answer = await client.ask(DescribeTopicPartitionsRequest(), 0)
    assert [topic.name for topic in answer.topics] == [METADATA_TOPIC, "a"]
    assert answer.topics[1].topic_id == world.broker.topics.get("a").topic_id  # type: ignore[union-attr]


async def test_what_may_be_done_to_a_described_topic_is_told_of_every_name(world: World) -> None:
    """As by Apache Kafka, which tells it of names that no topic has, too."""
    world.topic("a")
    client = await world.connect()
    named = DescribeTopicPartitionsRequest.TopicRequest
    answer = await client.ask(
        DescribeTopicPartitionsRequest(topics=[named(name=name) for name in ("a", "none", "no good")]), 0
    )
    assert [(topic.name, topic.error_code, topic.topic_authorized_operations) for topic in answer.topics] == [
        ("a", 0, TOPIC_OPERATIONS),
        ("no good", ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC_OPERATIONS),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TOPIC_OPERATIONS),
    ]
