"""Goal: a closed segment gets its statistics soon, but after the cleanings of that moment, and not never.

Method: a broker whose clock stands still and a keeper of its own; the test says whether a cleaning runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.questions.keeping import LOOK_MS, PATIENCE_MS, StatisticsKeeper
from cleaner.manager import CleanerManager
from storage.layout import TopicPartition
from storage.sidecar import path_of
from tests.broker.conftest import World

Make = Callable[..., Awaitable[World]]
TURNS = 20


class Kept:
    """A log with a segment that has just been closed, and a keeper that has seen neither."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.keeper = StatisticsKeeper(world.broker)
        world.topic("t", cleanup_policy="compact")
        self.partition = world.broker.partitions[TopicPartition("t", 0)]
        now_ms = world.clock.now_ms()
        self.partition.append(world.batch((b"key", b"value")), now_ms)
        self.partition.log.roll(now_ms)
        self.statistics: Path = path_of(self.partition.log.segments[0])


@pytest.fixture
def is_cleaning(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    said = [True]
    monkeypatch.setattr(CleanerManager, "is_cleaning", property(lambda manager: said[0]))
    return said


async def pass_time(world: World, ms: int) -> None:
    """Second by second, before each some turns of the loop for what has fallen due."""
    for _ in range(ms // LOOK_MS):
        for _ in range(TURNS):
            await asyncio.sleep(0)
        world.clock.advance(LOOK_MS)


async def test_statistics_are_made_at_once_when_nothing_is_cleaned(world: World) -> None:
    kept = Kept(world)
    assert not world.broker.cleaner.is_cleaning
    await kept.keeper.run()
    assert kept.statistics.exists()


async def test_a_cleaning_goes_first(world: World, is_cleaning: list[bool]) -> None:
    kept = Kept(world)
    look = asyncio.ensure_future(kept.keeper.run())
    await pass_time(world, PATIENCE_MS // 2)
    assert not look.done()
    assert not kept.statistics.exists()
    is_cleaning[0] = False
    await pass_time(world, LOOK_MS)
    await look
    assert kept.statistics.exists()


async def test_cleanings_that_never_end_are_not_waited_for(world: World, is_cleaning: list[bool]) -> None:
    kept = Kept(world)
    look = asyncio.ensure_future(kept.keeper.run())
    await pass_time(world, PATIENCE_MS - LOOK_MS)
    assert not look.done()
    await pass_time(world, LOOK_MS)
    await look
    assert kept.statistics.exists()
    assert is_cleaning[0]
