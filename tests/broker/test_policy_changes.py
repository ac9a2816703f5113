"""Goal: a topic's policy may change while retention or a cleaning is at work on its log (T29): no record that
counts is lost, none that is gone comes back, and nothing waits for a restart.

Method: a broker in the loop; the part of the work that is done on a thread is held there, the policy changed,
the other one let run to its end meanwhile, and the log read again, at once and after a restart.

As in Kafka a log that is being cleaned is left alone by retention, whatever its policy became meanwhile. The
reverse is not needed: what retention does to the list of segments it does in one step of the event loop,
before a cleaning looks at it or after. What it does on a thread, the looking up of ages before and the
removal of files after, does not need the log to be left alone.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import background
from cleaner.states import Phase
from protocol.messages.offsets import DeleteRecordsRequest
from storage.jobs import Expired
from storage.layout import TopicPartition
from storage.log import Log
from tests.broker.client import until
from tests.broker.conftest import World

HOUR_MS = 3_600_000
KEY = TopicPartition("t", 0)
DELETE = {"cleanup.policy": "delete", "retention.ms": str(HOUR_MS)}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "retention.ms": str(HOUR_MS)}
BOTH = {**COMPACT, "cleanup.policy": "compact,delete"}
Kept = list[tuple[int, bytes | None, bytes | None]]


all_held: list[Held] = []


@pytest.fixture(autouse=True)
def released(make_world: object) -> Iterator[None]:
    """Nothing is held any more when the broker is stopped, whatever came of the test."""
    yield
    for held in all_held:
        held.go_on.set()
    all_held.clear()


class Held:
    """A function that waits in its thread until it may go on."""

    def __init__(self, function: Callable[..., Any], skip: int = 0) -> None:
        self._function = function
        self._skip = skip
        self.reached, self.go_on = threading.Event(), threading.Event()
        all_held.append(self)

    def __call__(self, *arguments: Any) -> Any:
        if self._skip:
            self._skip -= 1
        else:
            self.reached.set()
            assert self.go_on.wait(60)
        return self._function(*arguments)


async def filled(world: World, policy: dict[str, str]) -> Log:
    """Two segments that are past their retention, a young one, and the active one. The clock stands still: it
    would set off the broker's own retention, which might come first.
    """
    world.broker.topics.create("t", 1, policy)
    partition = world.broker.partitions[KEY]
    young_ms = world.clock.now_ms()
    for number, pairs in enumerate(([b"a1", b"b1"], [b"a2", b"c1"], [b"a3", b"b2"], [b"d1"])):
        written_ms = young_ms if number >= 2 else young_ms - 2 * HOUR_MS
        for pair in pairs:
            partition.append(world.batch((pair[:1], pair), now_ms=written_ms), young_ms)
        if number < 3:
            partition.log.roll(world.clock.now_ms())
    waited = partition.when_flushed(partition.log.log_end_offset)
    if waited is not None:
        await waited
    return partition.log


async def kept(world: World, offset: int) -> Kept:
    """Fetch by fetch, from `offset` to the log's end."""
    client = await world.connect()
    found: Kept = []
    while offset < world.broker.partitions[KEY].log.log_end_offset:
        records = await world.records(client, offset=offset)
        assert records, f"nothing at {offset}"
        found += [(one.offset, one.key, one.value) for one in records]
        offset = records[-1].offset + 1
    return found


async def check_for_good(world: World, start: int, records: Kept, uncleaned: Kept | None = None) -> None:
    """Now and after a restart; and the log is worked on as ever. Until it is cleaned it holds `uncleaned`."""
    for _ in range(2):
        partition = world.broker.partitions[KEY]
        assert partition.log.offline_reason is None
        assert partition.log.log_start_offset == start
        assert await kept(world, start) == (records if uncleaned is None else uncleaned)
        assert world.broker.cleaner.uncleanable(KEY) is None
        assert world.broker.cleaner.state_of(KEY).phase is Phase.IDLE
        await world.restart()
    world.broker.topics.set_overrides("t", COMPACT)
    await world.broker.run_blocking(world.broker.cleaner.clean_now, KEY)
    assert await kept(world, start) == records


def clean(world: World) -> None:
    """What a cleaner thread does once."""
    cleaner = world.broker.cleaner
    work = cleaner.grab()
    assert work is not None
    assert work.log.topic_partition == KEY
    cleaner.clean(cleaner.make_cleaner(lambda size: None), work)


YOUNG: Kept = [(4, b"a", b"a3"), (5, b"b", b"b2"), (6, b"d", b"d1")]


async def test_t29_it_becomes_compacted_while_expired_segments_are_being_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal is held on its thread; the segments are out of the log before it begins."""
    log = await filled(world, DELETE)
    expire = log.expire
    removal: list[Held] = []

    def held_expire(now_ms: int) -> Any:
        expired = expire(now_ms)
        if expired.removed_segments:
            removal.append(Held(expired.run))
            expired = Expired(expired.removed_segments, expired.removed_bytes, removal[0])
        return expired

    monkeypatch.setattr(log, "expire", held_expire)
    expiring = asyncio.ensure_future(world.broker.background.expire_segments())
    await until(lambda: removal and removal[0].reached.is_set())
    world.broker.topics.set_overrides("t", COMPACT)
    await world.broker.run_blocking(clean, world)
    assert world.broker.cleaner.statistics.runs == 1
    assert not expiring.done()
    assert await kept(world, 4) == YOUNG
    removal[0].go_on.set()
    await expiring
    await check_for_good(world, 4, YOUNG)


async def test_t29_it_becomes_compacted_while_ages_are_looked_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention goes by the policy that holds when it comes to act: then nothing expires any more."""
    log = await filled(world, DELETE)
    held = Held(background._look_up_ages)
    monkeypatch.setattr(background, "_look_up_ages", held)
    expiring = asyncio.ensure_future(world.broker.background.expire_segments())
    await until(held.reached.is_set)
    world.broker.topics.set_overrides("t", COMPACT)
    await world.broker.run_blocking(clean, world)
    held.go_on.set()
    await expiring
    assert log.log_start_offset == 0
    await check_for_good(world, 0, [(3, b"c", b"c1"), *YOUNG])


async def cleaning_held(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Held, asyncio.Future[None]]:
    """A cleaning that stands still after its mapping, before anything is swapped."""
    held = Held(lambda size, check: None, skip=3)
    monkeypatch.setattr(world.broker.cleaner.throttle, "take", held)
    cleaner = world.broker.cleaner
    work = cleaner.grab()
    assert work is not None

    def account(size: int) -> None:
        cleaner.throttle.take(size, lambda: cleaner.check(KEY))

    running = world.broker.run_blocking(lambda: cleaner.clean(cleaner.make_cleaner(account), work))
    await until(held.reached.is_set)
    return held, asyncio.ensure_future(running)  # type: ignore[arg-type]


async def test_t29_who_turns_compaction_off_keeps_what_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaning that runs swaps nothing any more; it is aborted, as by Kafka."""
    log = await filled(world, COMPACT)
    before = await kept(world, 0)
    held, cleaning = await cleaning_held(world, monkeypatch)
    world.broker.topics.set_overrides("t", {"cleanup.policy": "delete"})
    held.go_on.set()
    await cleaning
    assert await kept(world, 0) == before
    assert (world.broker.cleaner.statistics.runs, world.broker.cleaner.statistics.aborted_runs) == (0, 1)
    assert world.broker.cleaner.uncleanable(KEY) is None
    assert world.broker.cleaner.checkpoints.offset_of(log.directory.parent, KEY) is None
    await check_for_good(world, 0, [(3, b"c", b"c1"), *YOUNG], before)


async def test_t29_it_is_not_compacted_for_a_while_during_a_cleaning(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Retention leaves the segments to the cleaning until it has ended; and what was deleted stays so if the
    broker is killed right behind the swap: the file that it brings begins where the first of them began.
    """
    log = await filled(world, COMPACT)
    held, cleaning = await cleaning_held(world, monkeypatch)
    world.broker.topics.set_overrides("t", DELETE)
    await delete_records(world, 4)
    await world.broker.background.expire_segments()
    await world.broker.background.checkpoint()
    assert world.broker.cleaner.state_of(KEY).phase is Phase.IN_PROGRESS
    assert await kept(world, 4) == YOUNG
    world.broker.topics.set_overrides("t", COMPACT)
    held.go_on.set()
    await cleaning
    assert world.broker.cleaner.statistics.runs == 1
    world.broker.topics.set_overrides("t", DELETE)
    shutil.copytree(world.directory, tmp_path / "killed")
    killed = World(tmp_path / "killed", {})
    await killed.start()
    try:
        assert killed.broker.partitions[KEY].log.log_start_offset == 4
        assert await kept(killed, 4) == YOUNG
    finally:
        await killed.stop()
    world.clock.advance(2 * HOUR_MS)
    await world.broker.background.expire_segments()
    assert log.log_start_offset == log.log_end_offset == 7
    await check_for_good(world, 7, [])


async def delete_records(world: World, before_offset: int) -> None:
    """By a client, who is told that it is done."""
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    partition = asked.DeleteRecordsPartition(partition_index=0, offset=before_offset)
    client = await world.connect()
    response = await client.ask(DeleteRecordsRequest(topics=[asked(name="t", partitions=[partition])]), 2)
    assert response.topics[0].partitions[0].error_code == 0


async def test_t29_compacted_and_deleted_waits_for_the_cleaning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There retention is the cleaner's own (T133): it leaves a log alone that is being cleaned."""
    log = await filled(world, COMPACT)
    held, cleaning = await cleaning_held(world, monkeypatch)
    world.broker.topics.set_overrides("t", BOTH)
    await world.broker.background.expire_segments()
    assert await world.broker.run_blocking(world.broker.cleaner.expire) == 0
    assert log.log_start_offset == 0
    held.go_on.set()
    await cleaning
    assert await kept(world, 0) == [(3, b"c", b"c1"), *YOUNG]
    world.clock.advance(2 * HOUR_MS)
    assert await world.broker.run_blocking(world.broker.cleaner.expire) > 0
    assert log.log_start_offset == log.log_end_offset == 7
    await check_for_good(world, 7, [])
