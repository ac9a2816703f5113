"""Goal: topics grow and never shrink, and what else is asked of a topic meanwhile is done afterwards.

Method: a broker in the loop; CreatePartitions over a connection, and other changes over others before its
answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker import topics
from broker.topic import METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsResponse,
)
from storage.layout import TopicPartition
from tests.broker.client import until
from tests.broker.conftest import World
from tests.broker.test_topics import delete

MakeWorld = Callable[..., Awaitable[World]]
Growable = CreatePartitionsRequest.CreatePartitionsTopic


def grow(name: str, count: int, **fields: Any) -> CreatePartitionsRequest:
    validate_only = fields.pop("validate_only", False)
    topics = [Growable(name=name, count=count, **{"assignments": None, **fields})]
    return CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)


@pytest.mark.parametrize("version", range(4))
async def test_s20_topics_grow(world: World, version: int) -> None:
    """S20, G22: the count grows, old records stay, the new partitions serve, also after a restart."""
    world.topic("t", 1)
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")))
    answer = await client.ask(grow("t", 3), version)
    assert [(result.name, result.error_code) for result in answer.results] == [("t", 0)]
    assert (await world.produce(client, world.batch((b"k", b"v")), partition=2)).error_code == 0
    await world.restart()
    client = await world.connect()
    assert await world.values(client) == [b"v"]
    assert await world.values(client, partition=2) == [b"v"]


async def test_s20_topics_never_shrink(world: World) -> None:
    world.topic("t", 2)
    client = await world.connect()
    refusals = [
        (grow("t", 1), ErrorCode.INVALID_PARTITIONS),
        (grow("t", 2), ErrorCode.INVALID_PARTITIONS),
        (grow("t", 1_000_000), ErrorCode.INVALID_PARTITIONS),
        (grow("none", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (grow(METADATA_TOPIC, 2), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (grow("t", 3, assignments=[]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            grow("t", 3, assignments=[Growable.CreatePartitionsAssignment(broker_ids=[7])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ]
    for request, code in refusals:
        answer = await client.ask(request, 3)
        assert [result.error_code for result in answer.results] == [code]
        assert answer.results[0].error_message
    topic = world.broker.topics.get("t")
    assert topic is not None
    assert topic.partition_count == 2


def set_retention(name: str, retention_ms: int) -> IncrementalAlterConfigsRequest:
    asked = IncrementalAlterConfigsRequest.AlterConfigsResource
    entry = asked.AlterableConfig(name="retention.ms", config_operation=0, value=str(retention_ms))
    return IncrementalAlterConfigsRequest(
        resources=[asked(resource_type=2, resource_name=name, configs=[entry])]
    )


async def test_changes_wait_for_a_growing_topic(world: World) -> None:
    """Kafka's controller does one thing after the other, and clients do not try again what was refused."""
    topic = world.topic("t", 1)
    clients = [await world.connect() for _ in range(6)]
    clients[0].send(grow("t", 100), 3)
    await until(lambda: TopicPartition("t", 1) in world.broker.partitions)
    assert world.broker.topics.get("t") is topic
    clients[1].send(grow("t", 50), 3)
    clients[2].send(grow("t", 110), 3)
    clients[3].send(set_retention("t", 5000), 1)
    asked = AlterConfigsRequest.AlterConfigsResource
    entry = asked.AlterableConfig(name="max.message.bytes", value="5000")
    alter = AlterConfigsRequest(resources=[asked(resource_type=2, resource_name="t", configs=[entry])])
    clients[4].send(alter, 1)
    clients[5].send(delete("t"), 5)
    received = [
        (await client.receive(response, version))[1]
        for client, response, version in zip(
            clients,
            [CreatePartitionsResponse] * 3
            + [IncrementalAlterConfigsResponse, AlterConfigsResponse, DeleteTopicsResponse],
            [3, 3, 3, 1, 1, 5],
            strict=True,
        )
    ]
    codes = [received[index].results[0].error_code for index in range(3)]
    codes += [answer.responses[0].error_code for answer in received[3:]]
    assert codes[:2] == [0, ErrorCode.INVALID_PARTITIONS]
    assert codes[5] == 0
    # The second growth goes on beside the others, and may find the topic gone.
    assert set(codes[2:5]) <= {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    await until(lambda: world.broker.topics.get("t") is None)


async def test_settings_set_while_a_topic_grows_hold_for_all_of_it(world: World) -> None:
    world.topic("t", 1)
    growing, client = await world.connect(), await world.connect()
    growing.send(grow("t", 100), 3)
    await until(lambda: TopicPartition("t", 1) in world.broker.partitions)
    answer = await client.ask(set_retention("t", 5000), 1)
    assert (answer.responses[0].error_code, answer.responses[0].error_message) == (0, None)
    partitions = world.broker.partitions
    assert {partitions[TopicPartition("t", index)].log.config.retention_ms for index in range(100)} == {5000}


async def test_a_growth_that_takes_too_long_is_told_to_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "GROWTH_LIMIT_SECONDS", 0.0)
    world.topic("t", 1)
    growing, client = await world.connect(), await world.connect()
    growing.send(grow("t", 2000), 3)
    await until(lambda: TopicPartition("t", 1) in world.broker.partitions)
    (result,) = (await client.ask(delete("t"), 5)).responses
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    await growing.receive(CreatePartitionsResponse, 3)


async def test_a_topic_that_is_being_made_can_be_deleted(world: World) -> None:
    making, client = await world.connect(), await world.connect()
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=500, replication_factor=1)
    making.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    await until(lambda: TopicPartition("t", 1) in world.broker.partitions)
    assert world.broker.topics.get("t") is None
    (deleted,) = (await client.ask(delete("t"), 5)).responses
    assert deleted.error_code == 0
    assert (await making.receive(CreateTopicsResponse, 5))[1].topics[0].error_code == 0
    assert world.broker.topics.get("t") is None


async def test_growth_may_be_tried(world: World) -> None:
    world.topic("t", 2)
    client = await world.connect()
    answer = await client.ask(grow("t", 3, validate_only=True), 3)
    assert answer.results[0].error_code == 0
    assert TopicPartition("t", 2) not in world.broker.partitions
