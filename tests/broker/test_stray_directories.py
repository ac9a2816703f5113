"""Goal: a directory whose name only looks like that of a partition becomes no topic, least of all one of
thousands of partitions; it stays as it is, and a line says why.

Method: copies and others are put among the partitions of a stopped broker.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.topics import METADATA_TOPIC
from storage import layout
from storage.layout import TopicPartition
from tests.broker.conftest import World


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
async def stopped(world: World) -> World:
    world.topic("t")
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v")))
    await world.stop()
    return world


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize(
    ("name", "is_copy", "reason"),
    [
        ("t-0-20261123", True, "its number is not below max.partitions.per.topic"),
        ("t-0-17", True, "partition.metadata says that it is a copy of one of t"),
        ("backup-17", False, "no file of a log is in it"),
        ("t-00", True, "is no partition and left alone"),
    ],
)
async def test_what_only_has_the_name_of_a_partition_is_left_alone(
    stopped: World, caplog: pytest.LogCaptureFixture, name: str, is_copy: bool, reason: str, was_killed: bool
) -> None:
    stray = stopped.directory / name
    if is_copy:
        shutil.copytree(stopped.directory / "t-0", stray)
    else:
        stray.mkdir()
        (stray / "notes.txt").write_text("not a log")
    before = contents(stray)
    if was_killed:
        (stopped.directory / ".kafka_cleanshutdown").unlink()
    for _ in range(2):
        caplog.clear()
        await stopped.start()
        assert reason in caplog.text
        assert str(stray) in caplog.text
        assert [topic.name for topic in stopped.broker.topics.all()] == [METADATA_TOPIC, "t"]
        assert await stopped.values(await stopped.connect()) == [b"v"]
        await stopped.stop()
        assert contents(stray) == before
        assert (stopped.directory / ".kafka_cleanshutdown").exists()
    await stopped.start()


async def test_a_directory_of_a_known_topic_is_its_partition_whatever_a_power_cut_left_in_it(
    stopped: World,
) -> None:
    (stopped.directory / ".kafka_cleanshutdown").unlink()
    for path in (stopped.directory / "t-0").iterdir():
        path.unlink()
    await stopped.start()
    assert await stopped.values(await stopped.connect()) == []


async def test_a_file_with_the_name_of_a_deleted_directory_is_left_alone(
    stopped: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The job that removes deleted partitions failed over it at each turn, with a traceback."""
    stray = stopped.directory / layout.deleted_directory_name(TopicPartition("t", 0))
    stray.write_text("notes")
    await stopped.start()
    assert f"{stray} is unknown and left alone" in caplog.text
    assert stopped.broker.logs.deleted.remove() == 0
    assert stray.read_text() == "notes"
    assert await stopped.values(await stopped.connect()) == [b"v"]


async def test_a_deleted_partition_that_was_a_link_goes(stopped: World, tmp_path: Path) -> None:
    far = (stopped.directory / "t-0").rename(tmp_path / "far")
    (stopped.directory / "t-0").symlink_to(far)
    await stopped.start()
    assert await stopped.values(await stopped.connect()) == [b"v"]
    stopped.broker.logs.delete(TopicPartition("t", 0))
    await stopped.broker.run_blocking(stopped.broker.logs.deleted.remove)
    assert not far.exists()
    assert not [path for path in stopped.directory.iterdir() if path.name.startswith("t-0")]


async def test_a_deleted_partition_beside_it_goes(stopped: World) -> None:
    left = stopped.directory / layout.deleted_directory_name(TopicPartition("gone", 0))
    left.mkdir()
    (left / "file").touch()
    await stopped.start()
    await stopped.broker.run_blocking(stopped.broker.logs.deleted.remove)
    assert not left.exists()
