"""Goal: a start without one of the disks loses nothing: neither do topics begin anew where their records are
missing, nor do settings; while a directory that was added to `log.dirs` is simply taken.

Method: brokers on two data directories, of which one is moved away and an empty one is in its place, as below
a mount point, or one is left out of `log.dirs`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from storage.checkpoint import read_properties
from storage.data_directory import DataDirectoryError
from storage.directory_set import TOGETHER
from storage.file import SYSTEM_DISK
from tests.broker.conftest import World

META = "meta.properties"
METADATA = "__kompakt_metadata-0"


class Disks:
    """Two data directories, with records of topic t in both."""

    def __init__(self, root: Path, world: World) -> None:
        self.world = world
        self.paths = [root / "data", root / "b"]
        self.away = root / "away"

    def of(self, partition: str) -> Path:
        return next(path for path in self.paths if (path / partition).is_dir())

    def unmount(self, path: Path) -> None:
        path.rename(self.away)
        path.mkdir()

    def mount(self, path: Path) -> None:
        path.rename(path.with_name("below"))
        self.away.rename(path)

    async def start_in_vain(self) -> str:
        with pytest.raises(DataDirectoryError) as refused:
            await self.world.start()
        await self.world.broker.stop()
        return str(refused.value)

    async def lengths(self) -> list[int]:
        client = await self.world.connect()
        return [len(await self.world.records(client, "t", index)) for index in range(4)]


@pytest.fixture
async def disks(make_world: Callable[..., Awaitable[World]], tmp_path: Path) -> Disks:
    world = await make_world(log_dirs=f"{tmp_path / 'data'},{tmp_path / 'b'}")
    world.topic("t", 4)
    client = await world.connect()
    for index in range(4):
        await world.produce(client, world.batch((b"k", b"v")), partition=index)
    await world.stop()
    return Disks(tmp_path, world)


@pytest.mark.parametrize("partition", [METADATA, "t-0", "t-1", "t-2", "t-3"])
async def test_a_disk_that_is_not_mounted_is_missed(disks: Disks, partition: str) -> None:
    path = disks.of(partition)
    before = sorted(one.name for one in (disks.paths[1 - disks.paths.index(path)]).iterdir())
    disks.unmount(path)
    for _ in range(2):
        told = await disks.start_in_vain()
        assert f"{path} is empty" in told
        assert "mount the disk that has them" in told
    assert not (path / META).exists(), "it belongs to nobody"
    assert not [one for one in path.iterdir() if one.is_dir()]
    assert sorted(one.name for one in (disks.paths[1 - disks.paths.index(path)]).iterdir()) == before
    disks.mount(path)
    await disks.world.start()
    assert await disks.lengths() == [1] * 4


async def test_a_disk_that_is_lost_is_begun_anew_as_told(disks: Disks) -> None:
    kept, lost = disks.of(METADATA), next(path for path in disks.paths if path != disks.of(METADATA))
    there = sum((kept / f"t-{index}").is_dir() for index in range(4))
    disks.unmount(lost)
    assert f"copy {kept / META} to {lost}" in await disks.start_in_vain()
    (lost / META).write_bytes((kept / META).read_bytes())
    await disks.world.start()
    assert sum(await disks.lengths()) == there < 4
    ids = {(read_properties(SYSTEM_DISK, path / META) or {})["directory.id"] for path in disks.paths}
    assert len(ids) == 2, "the copy's is its own"


async def test_each_directory_that_may_be_the_one_is_named(disks: Disks, tmp_path: Path) -> None:
    disks.world.settings["log.dirs"] = f"{tmp_path / 'c'}," + disks.world.settings["log.dirs"]
    path = disks.of("t-0")
    disks.unmount(path)
    assert f"{tmp_path / 'c'} and {path} are empty" in await disks.start_in_vain()
    disks.mount(path)
    await disks.world.start()
    assert await disks.lengths() == [1] * 4


async def test_a_directory_that_was_added_is_taken(disks: Disks, tmp_path: Path) -> None:
    disks.world.settings["log.dirs"] += f",{tmp_path / 'c'}"
    await disks.world.start()
    assert await disks.lengths() == [1] * 4
    assert (read_properties(SYSTEM_DISK, tmp_path / "c" / META) or {})["cluster.id"] == (
        disks.world.broker.logs.cluster_id
    )
    disks.world.topic("new", 1)
    assert (tmp_path / "c" / "new-0").is_dir()
    await disks.world.restart()
    assert await disks.lengths() == [1] * 4


@pytest.mark.parametrize("partition", [METADATA, "t-0", "t-1", "t-2", "t-3"])
@pytest.mark.parametrize("has_another", [False, True])
async def test_a_directory_that_was_left_out_of_log_dirs_is_missed(
    disks: Disks, tmp_path: Path, partition: str, has_another: bool
) -> None:
    left_out = disks.of(partition)
    kept = next(path for path in disks.paths if path != left_out)
    before = sorted(one.name for one in kept.iterdir())
    all_of_them = disks.world.settings["log.dirs"]
    disks.world.settings["log.dirs"] = f"{kept},{tmp_path / 'c'}" if has_another else str(kept)
    for _ in range(2):
        told = await disks.start_in_vain()
        assert f"log.dirs does not name {left_out}, which this broker had" in told
        assert f"delete the line {TOGETHER} from {kept / META}" in told
    assert sorted(one.name for one in kept.iterdir()) == before
    disks.world.settings["log.dirs"] = all_of_them
    await disks.world.start()
    assert await disks.lengths() == [1] * 4


async def test_a_directory_that_was_left_out_and_is_lost_is_begun_anew_as_told(disks: Disks) -> None:
    kept = disks.of(METADATA)
    there = sum((kept / f"t-{index}").is_dir() for index in range(4))
    disks.world.settings["log.dirs"] = str(kept)
    await disks.start_in_vain()
    lines = (kept / META).read_text().splitlines(keepends=True)
    (kept / META).write_text("".join(line for line in lines if not line.startswith(TOGETHER)))
    await disks.world.start()
    assert sum(await disks.lengths()) == there < 4
    await disks.world.restart()


async def test_a_directory_that_was_emptied_may_be_left_out_and_one_may_be_mounted_elsewhere(
    disks: Disks, tmp_path: Path
) -> None:
    kept, other = disks.of(METADATA), next(path for path in disks.paths if path != disks.of(METADATA))
    moved = other.rename(tmp_path / "elsewhere")
    disks.world.settings["log.dirs"] = f"{kept},{moved}"
    await disks.world.start()
    assert await disks.lengths() == [1] * 4
    await disks.world.stop()
    for directory in [one for one in moved.iterdir() if one.is_dir()]:
        directory.rename(kept / directory.name)
    disks.world.settings["log.dirs"] = str(kept)
    await disks.world.start()
    assert await disks.lengths() == [1] * 4
    await disks.world.restart()
    assert TOGETHER not in (read_properties(SYSTEM_DISK, kept / META) or {})
