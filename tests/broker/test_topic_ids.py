"""Goal: clients that ask by the topic's id are answered for every partition, whatever `partition.metadata`
says or does not say.

Method: the files of a stopped broker are taken away or changed; after the next start the ids are compared.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage import layout
from tests.broker.conftest import World

COUNT = 3


@pytest.fixture
async def stopped(world: World) -> World:
    world.topic("t", COUNT)
    await world.stop()
    return world


def file_of(world: World, partition: int) -> Path:
    return world.directory / f"t-{partition}" / layout.PARTITION_METADATA


def ids_of(world: World) -> set[object]:
    """Those of the topic, of its logs and in their files: one, if all is well."""
    topic = world.broker.topics.get("t")
    assert topic is not None
    partitions = [world.broker.partitions[one] for one in topic.partitions()]
    assert len(partitions) == COUNT
    return {topic.topic_id, *(one.topic_id for one in partitions), *(one.log.topic_id for one in partitions)}


@pytest.mark.parametrize("missing", [range(COUNT), (0, 1), (2,)])
async def test_partitions_of_an_adopted_topic_that_have_no_id_get_the_same(
    stopped: World, missing: tuple[int, ...]
) -> None:
    """As Kafka made them before 2.8: each got an id of its own, and only the first could be read."""
    shutil.rmtree(stopped.directory / f"{layout.TopicPartition('__kompakt_metadata', 0)}")
    for partition in missing:
        file_of(stopped, partition).unlink()
    for _ in range(2):
        await stopped.start()
        assert len(ids_of(stopped)) == 1
        await stopped.stop()
        assert len({file_of(stopped, partition).read_bytes() for partition in range(COUNT)}) == 1
    await stopped.start()
