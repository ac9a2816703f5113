"""Goal: who asks how the broker is reads what holds: whether anything is cleaned at all, and by which setting
not; when the disk is full, and what was cleaned last.

Method: a broker in the loop with a manual clock; `kompakt status` is run beside it as a user runs it, and
what it says is held against what the other answers say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from broker.cli import app
from broker.questions.words import moment
from storage.layout import TopicPartition
from storage.segment import Segment
from tests.broker.client import until
from tests.broker.conftest import World
from tests.broker.questions.test_forecast import directory, look, write
from tests.broker.questions.test_overview import get
from tests.broker.test_configs import BROKER, SET, alter, incremental
from tests.broker.test_metrics_table import scrape, value
from tests.broker.test_questions import Asker, MakeWorld, compacted, log_of, put

SILENT = "kafka_log_logcleanermanager_time_since_last_run_ms"


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


async def said(world: World, *arguments: str) -> str:
    """What a command prints; it runs beside the broker's loop."""
    command = [*arguments, "--http", f"127.0.0.1:{world.broker.http.port}"]
    result = await asyncio.to_thread(CliRunner().invoke, app, command)
    return result.output


# No thread


@pytest.fixture
async def threadless(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0", log_cleaner_enable="true", log_cleaner_threads="0"))


async def test_without_a_thread_nothing_is_cleaned_and_every_answer_says_so(threadless: Asker) -> None:
    """Kafka takes log.cleaner.threads=0 as well, and cleans nothing then."""
    world = threadless.world
    compacted(world)
    await put(world, ("k", "1"), ("k", "2"), roll=True)
    answer = await threadless.why("eligible", "The cleaner is off (log.cleaner.threads=0)")
    assert answer["is_cleaner_running"] is False
    assert "retention then" not in answer["sentence"]
    world.broker.topics.set_overrides("t", {"cleanup.policy": "compact,delete"})
    await threadless.why("eligible", "Nor does anything delete by retention then")
    cleaner = (await get(threadless, "broker"))["cleaner"]
    assert (cleaner["is_running"], cleaner["off_by"]) == (False, "log.cleaner.threads=0")
    assert "cleaner: off (log.cleaner.threads=0), " in await said(world, "status")


async def test_without_a_thread_a_compacted_topic_levels_off_nowhere(threadless: Asker) -> None:
    world = threadless.world
    compacted(world)
    await look(world)
    await write(world, 60)
    await look(world)
    told = (await directory(threadless))["forecast"]
    assert "full in" in told["sentence"]
    assert told["levels_off_at_bytes"] is None


@pytest.mark.parametrize(("is_wanted", "silent_ms"), [("true", 601_000), ("false", 0)])
async def test_that_no_thread_looks_for_work_is_counted_from_the_start(
    make_world: MakeWorld, is_wanted: str, silent_ms: int
) -> None:
    """As in Kafka, whose gauge begins with the cleaner; one that is not wanted is not missed."""
    world = await make_world(http_port="0", log_cleaner_enable=is_wanted, log_cleaner_threads="0")
    world.clock.advance(601_000)
    assert value(await scrape(world), SILENT) == silent_ms


async def test_a_first_thread_is_taken_while_it_runs(threadless: Asker) -> None:
    """Twice nothing is nothing: Kafka, which allows no more than twice as many, has to be restarted."""
    world = threadless.world
    client = await world.connect()
    compacted(world)
    await put(world, ("k", "1"), ("k", "2"), roll=True)
    too_many = incremental(BROKER, "1", ("log.cleaner.threads", SET, "2"))
    assert await alter(client, too_many) != 0
    assert await alter(client, incremental(BROKER, "1", ("log.cleaner.threads", SET, "1"))) == 0
    world.broker.cleaner_pool.wake()
    await until(lambda: world.broker.cleanings.runs(TopicPartition("t", 0), log_of(world).topic_id))
    assert "1 of 1 threads at work" in await said(world, "status")
    await until(lambda: not world.broker.cleaner.is_cleaning)  # what it did is told before it ends
    assert "log.cleaner" not in (await threadless.why("nothing_dirty"))["sentence"]


# One file system under several directories


async def two_that_grow(make_world: MakeWorld, tmp_path: Path) -> Asker:
    """Partition 0 of t grows in one directory, partition 1 twice as fast in another."""
    paths = tmp_path / "a", tmp_path / "b"
    world = await make_world(http_port="0", log_dirs=",".join(map(str, paths)))
    world.topic("t", 2, **{"retention.ms": "-1"})
    await look(world)
    for partition in (0, 1):
        await put(world, *(("k", "v" * 1000) for _ in range(60 + 60 * partition)), partition=partition)
    await look(world)
    return Asker(world)


async def rows_of(asker: Asker) -> list[dict[str, Any]]:
    """What is said of the directories: that of partition 0 first."""
    rows: list[dict[str, Any]] = (await get(asker, "broker"))["directories"]
    first = str(log_of(asker.world).directory.parent)
    return sorted(rows, key=lambda row: row["path"] != first)


async def test_directories_on_one_file_system_fill_it_together(make_world: MakeWorld, tmp_path: Path) -> None:
    """Each of two was told the time in which its own logs fill what is free: twice too late."""
    asker = await two_that_grow(make_world, tmp_path)
    first, second = await rows_of(asker)
    one, other = first["forecast"], second["forecast"]
    assert other["bytes_per_second"] == pytest.approx(2 * one["bytes_per_second"], rel=0.01)
    together = one["bytes_per_second"] + other["bytes_per_second"]
    for row in (first, second):
        due_ms = row["free_bytes"] / together * 1000
        assert row["forecast"]["full_in_ms"] == pytest.approx(due_ms, rel=0.01)
    assert (
        one["sentence"]
        .partition(" (watched")[0]
        .endswith(f", together with those of {second['path']} on the same file system")
    )
    assert [topic["bytes_per_second"] for topic in one["topics"]] == [one["bytes_per_second"]]
    found = await scrape(asker.world)
    for row in (first, second):
        seconds = value(found, "kompakt_log_directory_full_seconds", logDirectory=row["path"])
        assert seconds == pytest.approx(row["free_bytes"] / together, rel=0.01)


async def test_directories_on_file_systems_of_their_own_fill_each_its_own(
    make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = await two_that_grow(make_world, tmp_path)
    monkeypatch.setattr("broker.questions.disks.file_system_of", lambda path: path)
    for row in await rows_of(asker):
        told = row["forecast"]
        due_ms = row["free_bytes"] / told["bytes_per_second"] * 1000
        assert told["full_in_ms"] == pytest.approx(due_ms, rel=0.01)
        assert "file system" not in told["sentence"]


# The last cleaning


async def test_the_last_cleaning_is_one_that_cleaned_something(asker: Asker) -> None:
    """A failure was called one, and so was a look that found nothing to clean."""
    world = asker.world
    compacted(world)
    await put(world, ("k", "1"), ("k", "2"), roll=True)
    await asker.compact()
    told = f"last cleaning: t-0 at {moment(world.clock.now_ms())}\n"
    assert told in await said(world, "status")
    world.clock.advance(60_000)
    assert (await asker.compact())["dirty_records"] == 0
    assert told in await said(world, "status")
    world.clock.advance(60_000)
    await put(world, ("k", "3"), roll=True)
    with damaged(log_of(world).segments[1]):
        assert "error" in await asker.compact()
        output = await said(world, "status")
    assert told in output
    assert f"last cleaning failed: t-0 at {moment(world.clock.now_ms())}: " in output
    world.clock.advance(60_000)
    await asker.compact()
    output = await said(world, "status")
    assert f"last cleaning: t-0 at {moment(world.clock.now_ms())}\n" in output
    assert "failed" not in output


@contextlib.contextmanager
def damaged(segment: Segment) -> Iterator[None]:
    path = segment.file.path
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    yield
    path.write_bytes(content)
