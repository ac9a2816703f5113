"""Goal: partitions whose directories are there are served, whatever of them is not known: none is hidden, and
none is removed for being in the way; copies of directories do not pass for what they are copies of.

Method: `__kompakt_metadata` of a stopped broker is put back to an earlier state, or taken away, and
directories are copied or renamed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from broker.topic import KEEP_EVERYTHING, METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteTopicsRequest,
)
from protocol.records import decode_all
from storage.file import Disk
from storage.layout import PARTITION_METADATA
from tests.broker.client import Client
from tests.broker.conftest import World, fetch_request

METADATA = f"{METADATA_TOPIC}-0"


async def grow(client: Client, count: int) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=count, assignments=None)
    answer = await client.ask(CreatePartitionsRequest(topics=[topic]), 3)
    result: CreatePartitionsResponse.CreatePartitionsTopicResult = answer.results[0]
    return result


async def delete(client: Client, name: str) -> int:
    topic = DeleteTopicsRequest.DeleteTopicState(name=name)
    answer = await client.ask(DeleteTopicsRequest(topics=[topic]), 6)
    code: int = answer.responses[0].error_code
    return code


async def fetch_by_id(client: Client, topic_id: UUID) -> list[bytes | None]:
    answer = await client.ask(fetch_request([(topic_id, 0, 0)]), 13)
    found = answer.responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return [record.value for record in decode_all(found.records or b"")]


@pytest.fixture
async def stopped(world: World, tmp_path: Path) -> World:
    """A broker whose topic t has grown from one partition to three, with a record in each; what it knows is
    put back to before that.
    """
    world.topic("t")
    await world.stop()
    shutil.copytree(world.directory / METADATA, tmp_path / "before")
    await world.start()
    client = await world.connect()
    assert (await grow(client, 3)).error_code == ErrorCode.NONE
    for index in range(3):
        await world.produce(client, world.batch((b"k", b"%d" % index)), partition=index)
    await world.stop()
    shutil.rmtree(world.directory / METADATA)
    shutil.copytree(tmp_path / "before", world.directory / METADATA)
    return world


async def test_partitions_that_nobody_knows_of_a_topic_are_its_own(stopped: World) -> None:
    """They were hidden, and removed with their records when the topic was to grow."""
    for _ in range(2):
        await stopped.start()
        client = await stopped.connect()
        assert [await stopped.values(client, partition=index) for index in range(3)] == [
            [b"0"],
            [b"1"],
            [b"2"],
        ]
        await stopped.stop()
    await stopped.start()


async def test_what_does_not_follow_on_the_known_partitions_is_left_and_never_removed(
    stopped: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Another topic's, by its id, most likely a copy."""
    path = stopped.directory / "t-1" / PARTITION_METADATA
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    await stopped.start()
    assert f"{stopped.directory / 't-1'} is not known to be of its topic" in caplog.text
    client = await stopped.connect()
    topic = stopped.broker.topics.get("t")
    assert topic is not None
    assert topic.partition_count == 1
    for _ in range(2):
        refused = await grow(client, 3)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "t-1 exists" in (refused.error_message or "")
    assert {"t-0", "t-1", "t-2"} <= {one.name for one in stopped.directory.iterdir()}
    path.unlink()  # by which nothing speaks against it any more
    await stopped.restart()
    assert await stopped.values(await stopped.connect(), partition=1) == [b"1"]


async def test_a_copy_under_another_name_has_an_id_of_its_own(world: World) -> None:
    """Who asked by id was given the records of whichever was adopted last, and a deletion ended in a bug."""
    world.topic("orders")
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"old")), "orders")
    await world.stop()
    shutil.copytree(world.directory / "orders-0", world.directory / "orders-bak-0")
    shutil.rmtree(world.directory / METADATA)
    await world.start()
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"new")), "orders")
    await world.restart()
    client = await world.connect()
    topics = {topic.name: topic for topic in world.broker.topics.all()}
    assert dict(topics["orders-bak"].overrides) == KEEP_EVERYTHING
    assert await fetch_by_id(client, topics["orders"].topic_id) == [b"old", b"new"]
    assert await fetch_by_id(client, topics["orders-bak"].topic_id) == [b"old"]
    assert [await delete(client, name) for name in ("orders-bak", "orders")] == [ErrorCode.NONE] * 2


async def test_topics_that_could_not_have_been_made_beside_each_other_can_be_deleted(world: World) -> None:
    """The second of the two was deleted by half, with a bug for an answer."""
    world.topic("a.b")
    world.topic("other")
    await world.stop()
    (world.directory / "other-0").rename(world.directory / "a_b-0")
    shutil.rmtree(world.directory / METADATA)
    await world.start()
    client = await world.connect()
    assert [await delete(client, name) for name in ("a.b", "a_b")] == [ErrorCode.NONE] * 2
    assert world.broker.metrics_state.internal_errors == 0
    assert not [path for path in world.directory.iterdir() if path.name in ("a.b-0", "a_b-0")]


async def test_a_deletion_that_the_next_start_cannot_end_either_keeps_nobody_from_starting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start failed with the error of the disk."""
    world.topic("bad", 2)
    world.topic("good")
    real = Disk.rename

    def rename(disk: Disk, source: Path, target: Path) -> None:
        if source.name == "bad-1":
            raise OSError(16, "Device or resource busy")
        real(disk, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rename", rename)
        assert await delete(await world.connect(), "bad") == ErrorCode.KAFKA_STORAGE_ERROR
        await world.restart()
        assert [topic.name for topic in world.broker.topics.all()] == [METADATA_TOPIC, "good"]
        assert (world.directory / "bad-1").is_dir()
    await world.restart()
    assert not (world.directory / "bad-1").exists()
    world.topic("bad", 2)
