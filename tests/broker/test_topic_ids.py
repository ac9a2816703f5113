"""Goal: clients that ask by the topic's id are answered for every partition, whatever `partition.metadata`
says or does not say.

Method: the files of a stopped broker are taken away or changed; after the next start the ids are compared.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from storage import layout
from storage.checkpoint import write_topic_id
from storage.file import SYSTEM_DISK
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
    assert [one.log.offline_reason for one in partitions] == [None] * COUNT
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


async def test_a_flipped_bit_of_an_id_is_put_right(stopped: World, caplog: pytest.LogCaptureFixture) -> None:
    """The partition could not be read by clients that ask by id, and nothing was said."""
    path = file_of(stopped, 1)
    good = path.read_bytes()
    flipped = next(letter for bit in range(7) if chr(letter := good[-10] ^ 1 << bit).isalnum())
    path.write_bytes(good[:-10] + bytes([flipped]) + good[-9:])
    await stopped.start()
    assert f"{path} is damaged by one bit: put right" in caplog.text
    assert len(ids_of(stopped)) == 1
    assert path.read_bytes() == good


async def test_ids_that_a_power_cut_emptied_are_told_in_one_line(
    stopped: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It was a line for each partition, fifty behind a power cut."""
    good = file_of(stopped, 0).read_bytes()
    for partition in range(COUNT):
        file_of(stopped, partition).write_bytes(bytes(len(good)))
    await stopped.start()
    (line,) = (record.getMessage() for record in caplog.records if "partition.metadata" in record.message)
    assert line.startswith(
        f"partition.metadata is damaged, and made anew, in {COUNT} partitions: t-0 (no version 0), t-1"
    )
    assert len(ids_of(stopped)) == 1
    assert {file_of(stopped, partition).read_bytes() for partition in range(COUNT)} == {good}


async def test_an_id_of_another_topic_is_told(stopped: World, caplog: pytest.LogCaptureFixture) -> None:
    """It may be a directory that was put in the wrong place. What the line says helps."""
    path = file_of(stopped, 1)
    good = path.read_bytes()
    write_topic_id(SYSTEM_DISK, path.parent, uuid.uuid4())
    other = path.read_bytes()
    await stopped.start()
    assert f"{path} has the id " in caplog.text
    assert "stop the broker and delete the file" in caplog.text
    assert len(ids_of(stopped)) == 2
    await stopped.stop()
    assert path.read_bytes() == other
    path.unlink()
    await stopped.start()
    assert len(ids_of(stopped)) == 1
    assert path.read_bytes() == good


@pytest.mark.parametrize("is_adopted", [False, True])
async def test_a_file_that_cannot_be_read_costs_its_partition_alone(
    stopped: World, is_adopted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker did not start, and did not say which file it was."""
    path = file_of(stopped, 0)
    good = path.read_bytes()
    path.unlink()
    path.mkdir()
    if is_adopted:
        shutil.rmtree(stopped.directory / f"{layout.TopicPartition('__kompakt_metadata', 0)}")
    await stopped.start()
    client = await stopped.connect()
    assert (await stopped.produce(client, stopped.batch((b"k", b"v")))).error_code == (
        ErrorCode.KAFKA_STORAGE_ERROR
    )
    assert (await stopped.produce(client, stopped.batch((b"k", b"v")), partition=1)).error_code == 0
    assert str(path) in caplog.text
    await stopped.stop()
    path.rmdir()
    path.write_bytes(good)
    await stopped.start()
    assert len(ids_of(stopped)) == 1
