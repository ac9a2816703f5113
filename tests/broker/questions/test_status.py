"""Goal: who asks how the broker is reads what holds: whether anything is cleaned at all, and by which setting
not.

Method: a broker in the loop with a manual clock; `kompakt status` is run beside it as a user runs it, and
what it says is held against what the other answers say.
"""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from broker.cli import app
from storage.layout import TopicPartition
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
    assert "log.cleaner" not in (await threadless.why("nothing_dirty"))["sentence"]
