"""Every log that a test cleans is held against all invariants when the test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.file import SYSTEM_DISK, Disk
from storage.verify import verify_log
from tests.cleaner.world import World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """`make_world(slots=4, segment_bytes=300)` makes a log with a cleaner; it is verified at the end."""
    made: list[World] = []

    def make(slots: int = 4096, *, disk: Disk = SYSTEM_DISK, name: str = "orders-2", **config: Any) -> World:
        world = World(tmp_path / name, slots, disk, **config)
        made.append(world)
        return world

    yield make
    for world in made:
        if not world.is_damaged:
            assert verify_log(world.directory) == []
        if world.log.is_closed or world.is_damaged:
            world.log.abandon()
        else:
            world.log.close()
            assert verify_log(world.directory) == []


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A compacted log with the default settings."""
    return make_world()
