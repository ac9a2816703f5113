"""Goal: a Kafka that keeps its quorum log in a directory of its own (`metadata.log.dir`) is taken over whole:
users, rules, and settings of topics; where that directory is missing, nobody is served without them.

Method: a broker's own directories as those of a Kafka, a quorum log elsewhere; it starts on them. What a
real Kafka has left is in tests/kafka/test_secured_directories.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.adoption import AdoptionError
from broker.topic import KEEP_EVERYTHING
from tests.broker.conftest import World
from tests.broker.security.test_adoption import AUTHORIZER, FIRST, SECOND, rule, rules, user
from tests.broker.test_quorum_log import OWN, brought, log, overrides, setting, topic

MakeWorld = Callable[..., Awaitable[World]]
QUORUM_LOG = "__cluster_metadata-0"
REFUSED = "__cluster_metadata-0 is neither in .*apart .metadata.log.dir. nor in log.dirs: .*Put it there, or"


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    directory = tmp_path / "apart"
    directory.mkdir()
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*.*")}


@pytest.fixture
async def world(make_world: MakeWorld, apart: Path) -> World:
    made = await make_world(authorizer_class_name=AUTHORIZER)
    made.settings["metadata.log.dir"] = str(apart)
    return made


async def test_what_kafka_knew_is_read_from_there(world: World, apart: Path) -> None:
    topic_id = await brought(world)
    log(world.directory, topic("kafkas", topic_id), setting("kafkas", "segment.ms", "1"), rule(FIRST, "old"))
    log(apart, topic("kafkas", topic_id), setting("kafkas", "segment.ms", "77"), user("alice", "a"))
    log(apart, rule(SECOND, "kafkas"), base_offset=4)
    before = contents(apart)
    await world.start()
    assert overrides(world)["segment.ms"] == "77", "what is left in log.dirs is of before"
    shutil.rmtree(world.directory / QUORUM_LOG)
    for _ in range(2):
        assert world.broker.users.names() == ["alice"]
        assert rules(world) == ["kafkas"]
        await world.restart()
    assert contents(apart) == before, "nothing is written there"


async def test_a_first_start_without_it_is_refused(world: World, apart: Path) -> None:
    """Again and again, until it is there or the key is not."""
    topic_id = await brought(world)
    world.settings["metadata.log.dir"] = f"{apart}/not/mounted/apart"
    for _ in range(2):
        with pytest.raises(AdoptionError, match=REFUSED):
            await world.start()
        await world.broker.stop()
    world.settings["metadata.log.dir"] = str(apart)
    log(apart, topic("kafkas", topic_id), setting("kafkas", "segment.ms", "77"), rule(FIRST, "kafkas"))
    await world.start()
    assert overrides(world)["segment.ms"] == "77"
    assert rules(world) == ["kafkas"]
    shutil.rmtree(apart)  # what was taken over is ours now
    await world.restart()
    assert rules(world) == ["kafkas"]


async def test_without_the_key_it_starts_without_them(world: World) -> None:
    await brought(world)
    with pytest.raises(AdoptionError, match=REFUSED):
        await world.start()
    await world.broker.stop()
    del world.settings["metadata.log.dir"]
    await world.start()
    assert overrides(world) == KEEP_EVERYTHING


async def test_a_kafka_without_topics_has_users_as_well(world: World) -> None:
    await world.stop()
    shutil.rmtree(world.directory / OWN)
    (world.directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    (world.directory / "bootstrap.checkpoint").touch()
    with pytest.raises(AdoptionError, match=REFUSED):
        await world.start()
    await world.broker.stop()
    del world.settings["metadata.log.dir"]
    await world.start()


async def test_new_directories_need_none(make_world: MakeWorld, apart: Path) -> None:
    world = await make_world(metadata_log_dir=str(apart))
    world.topic("own")
    await world.restart()
    assert world.broker.topics.get("own") is not None


async def test_that_of_another_cluster_is_left_alone(
    world: World, apart: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await world.stop()
    log(apart, rule(FIRST, "theirs"))
    (apart / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n")
    await world.start()
    assert rules(world) == []
    assert f"{apart} is left alone: of cluster AAAAAAAAAAAAAAAAAAAAAA" in caplog.text
