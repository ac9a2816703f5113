"""Goal: what a group has consumed belongs to a topic, not to its name (KIP-516, v10 of both its APIs).

Method: requests by ids go to a whole broker, whose topics are deleted and made again; `tests/kafka` compares
all the answers with Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID

import pytest

from broker.handlers import group_offsets
from protocol.errors import ErrorCode
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import FindCoordinatorRequest
from protocol.schema import ZERO_UUID
from tests.broker.client import Client
from tests.broker.conftest import World

UNKNOWN = UUID(int=7)
RULES = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
MakeWorld = Callable[..., Awaitable[World]]
Rows = dict[UUID, list[tuple[int, int, int]]]
"""partition, error code and offset, by topic id"""


async def connected(world: World) -> Client:
    client = await world.connect()
    await client.ask(FindCoordinatorRequest(key="g"), 3)
    return client


async def commit(client: Client, topic_ids: Iterable[UUID], offset: int, index: int = 0) -> list[int]:
    """The error code of each topic."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
    topics = [topic(topic_id=topic_id, partitions=[partition]) for topic_id in topic_ids]
    answer = await client.ask(OffsetCommitRequest(group_id="g", topics=topics), 10)
    assert [row.topic_id for row in answer.topics] == list(topic_ids)
    return [row.partitions[0].error_code for row in answer.topics]


async def fetch(client: Client, topic_ids: Iterable[UUID] | None) -> Rows:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics: Any = None
    if topic_ids is not None:
        topics = [group.OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in topic_ids]
    answer = await client.ask(OffsetFetchRequest(groups=[group(group_id="g", topics=topics)]), 10)
    return {
        row.topic_id: [(one.partition_index, one.error_code, one.committed_offset) for one in row.partitions]
        for row in answer.groups[0].topics
    }


async def test_offsets_are_of_the_topic_that_has_the_id(world: World) -> None:
    known, other = world.topic("t").topic_id, world.topic("u").topic_id
    client = await connected(world)
    assert await commit(client, [known, UNKNOWN, ZERO_UUID], 3) == [0, *[ErrorCode.UNKNOWN_TOPIC_ID] * 2]
    assert await commit(client, [known], 3, index=5) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    unknown = [(0, ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert await fetch(client, [known, other, UNKNOWN, ZERO_UUID]) == {
        known: [(0, 0, 3)], other: [(0, 0, -1)], UNKNOWN: unknown, ZERO_UUID: unknown,
    }  # fmt: skip
    assert await fetch(client, None) == {known: [(0, 0, 3)]}


async def test_a_position_in_a_deleted_topic_is_none_in_its_successor(world: World) -> None:
    """G6: a consumer that has not heard of it yet commits where it was: the successor would be skipped."""
    before = world.topic("t").topic_id
    client = await connected(world)
    assert await commit(client, [before], 1_000) == [0]
    await world.broker.deletions.delete("t")
    after = world.topic("t").topic_id
    assert await commit(client, [before], 1_001) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert await fetch(client, [before, after]) == {
        before: [(0, ErrorCode.UNKNOWN_TOPIC_ID, -1)], after: [(0, 0, -1)],
    }  # fmt: skip
    assert await fetch(client, None) == {}
    assert await commit(client, [after], 0) == [0]
    assert await fetch(client, None) == {after: [(0, 0, 0)]}


@pytest.mark.parametrize("settings", [{}, RULES], ids=["open", "with rules"])
async def test_many_offsets_are_told_with_their_ids(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    """Their answer is made on a thread; where there are rules a guard looks at it behind that."""
    monkeypatch.setattr(group_offsets, "COMMITS_AT_ONCE", 0)
    world = await make_world(**settings)
    topic_id = world.topic("t").topic_id
    client = await connected(world)
    assert await commit(client, [topic_id], 3) == [0]
    for asked in ([topic_id], None):
        assert await fetch(client, asked) == {topic_id: [(0, 0, 3)]}
