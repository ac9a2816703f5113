"""Goal: what comes in the moment in which the copy of a log takes its place, or before its turn, is not lost,
and not late.

Method: the exchange is held up on its thread, or the copying by a limit of one byte a second.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from broker.moves import LAST_BYTES
from protocol.errors import ErrorCode
from storage.checkpoint import write_topic_id
from storage.file import SYSTEM_DISK
from storage.layout import TopicPartition
from storage.log_copy import LogCopy
from storage.moving import LogMover
from tests.broker.client import until
from tests.broker.test_moves import KEY, Disks, MakeWorld


class Exchange:
    """Of one move, held up when all is copied but what comes last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, disks: Disks) -> None:
        self._disks = disks
        self._begun, self._may_end = asyncio.Event(), asyncio.Event()
        loop, finish = asyncio.get_running_loop(), LogMover.finish

        def wait_and_finish(mover: LogMover, old: Any, copy: LogCopy) -> Any:
            loop.call_soon_threadsafe(self._begun.set)
            asyncio.run_coroutine_threadsafe(self._may_end.wait(), loop).result(60)
            return finish(mover, old, copy)

        monkeypatch.setattr(LogMover, "finish", wait_and_finish)

    async def begin(self, key: TopicPartition = KEY) -> None:
        assert await self._disks.ask_for(self._disks.other(key), key) is ErrorCode.NONE
        await self._begun.wait()

    async def end(self) -> None:
        self._may_end.set()
        await until(lambda: not self._disks.broker.moves.all())


@pytest.fixture
async def disks(make_world: MakeWorld, tmp_path: Path) -> Disks:
    paths = [tmp_path / "a", tmp_path / "b"]
    world = await make_world(log_dirs=",".join(map(str, paths)))
    world.topic("t", segment_bytes="1000000")
    return Disks(world, paths, await world.connect())


async def test_a_topic_that_is_deleted_meanwhile_is_gone(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = Exchange(monkeypatch, disks)
    await disks.world.produce(disks.client, disks.world.batch((b"k", b"old")))
    await exchange.begin()
    deleting = asyncio.create_task(disks.broker.topics.delete("t"))
    await until(lambda: KEY not in disks.broker.partitions)
    await exchange.end()
    await deleting
    assert KEY not in disks.broker.partitions
    assert KEY not in disks.broker.logs.logs
    await until(lambda: not [path for one in disks.paths for path in one.glob("t-0*")])
    disks.world.topic("t")
    assert await disks.world.values(disks.client) == []
    await disks.world.produce(disks.client, disks.world.batch((b"k", b"new")))
    assert await disks.world.values(disks.client) == [b"new"]


async def test_segments_that_expire_before_they_are_copied_do_not_end_the_move(disks: Disks) -> None:
    await disks.fill(3 * LAST_BYTES)
    target = await disks.begin_and_stand_still()
    log = disks.broker.partitions[KEY].log
    before = log.log_end_offset
    log.delete_records(before - 3)
    await disks.broker.background.expire_segments()
    assert log.segments[0].base_offset > 2
    await disks.moved()
    assert disks.place() == target
    log = disks.broker.partitions[KEY].log
    assert (log.log_start_offset, log.log_end_offset) == (before - 3, before)
    assert {int(path.stem) for path in log.directory.glob("*.log")} == {
        one.base_offset for one in log.segments
    }


async def test_what_is_left_of_a_move_of_an_earlier_topic_of_the_name_moves_nothing(disks: Disks) -> None:
    """The directory that it went to was not named when that topic was deleted."""
    await disks.fill(2 * LAST_BYTES)
    source, target = disks.place(), await disks.begin_and_stand_still()
    await disks.world.stop()
    (left,) = target.glob("*-future")
    write_topic_id(SYSTEM_DISK, left, uuid.uuid4())
    await disks.world.start()
    assert disks.broker.moves.all() == ()
    assert disks.place() == source
