"""Goal: who asks how long the disk lasts is told what will happen: how fast logs grow, where retention and
compaction stop them, and when the disk is full. What nobody can know is not told.

Method: the rules against small sums done by hand and against a simulation; then a broker in the loop with a
manual clock is written to for days, cleans and deletes, and its real size is held against what was said.
"""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest

from broker.growth import LOOK_MS, MEMORY_MS, Growth
from broker.questions.disks import growing_logs
from broker.questions.forecast import DAY_MS, SHOWN_TOPICS, Growing, forecast, full_in_ms, levels_off_bytes
from config.broker import BrokerConfig
from config.topic import TopicConfig
from storage.layout import TopicPartition
from tests.broker.conftest import World
from tests.broker.questions.test_overview import get
from tests.broker.test_metrics_table import clean, scrape, value
from tests.broker.test_questions import Asker, MakeWorld, log_of

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
MIB = 1 << 20
FOREVER = {"retention.ms": "-1"}


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


def level(rate: float, live: int | None = None, size: int = 0, active: int = 0, **overrides: str) -> float:
    """Of a log whose segments hold 1 MiB, or 1000 s."""
    settings = {"segment.bytes": str(MIB), "segment.ms": "1000000", **FOREVER}
    settings |= {key.replace("_", "."): text for key, text in overrides.items()}
    return levels_off_bytes(
        TopicConfig.resolve(settings, BrokerConfig.parse({}), is_stored=True), size, rate, live, active
    )


# Where a log levels off


def test_without_retention_there_is_no_end() -> None:
    assert level(1.0) == inf
    assert level(0.0, size=77) == 77, "nobody writes"


def test_retention_by_time_keeps_what_is_young_and_the_segment_that_is_written() -> None:
    assert level(100.0, retention_ms="3600000") == 100 * 3600 + 100 * 1000, "closed by time"
    assert level(10_000.0, retention_ms="3600000") == 10_000 * 3600 + MIB, "closed by size"


def test_retention_by_size_keeps_one_segment_more() -> None:
    assert level(1e9, retention_bytes="5000000") == 5_000_000 + MIB
    assert level(100.0, retention_bytes="5000000", retention_ms="1000") == 100 + 100 * 1000, "the smaller one"
    assert level(0.0, size=300, retention_bytes="5000000") == 300


def test_compaction_keeps_the_live_records_and_what_is_dirty() -> None:
    compact = {"cleanup_policy": "compact"}
    assert level(10_000.0, 3_000_000, **compact) == 3_000_000 * 2 + MIB, "as much dirty as clean"
    quarter = {**compact, "min_cleanable_dirty_ratio": "0.25"}
    assert level(10_000.0, 3_000_000, **quarter) == 4_000_000 + MIB
    lagging = {**quarter, "min_compaction_lag_ms": "60000"}
    assert level(10_000.0, 3_000_000, **lagging) == 4_000_000 + MIB + 600_000
    capped = {**compact, "max_compaction_lag_ms": "100000"}
    assert level(100.0, 3_000_000, **capped) == 3_000_000 + 10_000 + 10_000, "the lag is over first"
    never = {**compact, "min_cleanable_dirty_ratio": "1.0"}
    assert level(100.0, 3_000_000, **never) == inf, "no ratio exceeds it"


@pytest.mark.parametrize("rate", [0.0, 1e-6])
def test_what_lies_in_an_active_segment_that_nobody_writes_to_stays(rate: float) -> None:
    """Only an append closes it, or segment.idle.ms; of a log that fell silent there is a rest of a rate."""
    compact = {"cleanup_policy": "compact", "max_compaction_lag_ms": "1000000"}
    quiet = {"live": 200_000, "size": 1_000_000, "active": 800_000}
    assert level(rate, **quiet, **compact) == pytest.approx(1_000_000)
    assert level(rate, **quiet, **compact, segment_idle_ms="60000") == pytest.approx(200_000)
    assert level(10_000.0, **quiet, **compact, segment_idle_ms="60000") == level(10_000.0, 200_000, **compact)
    both = {**compact, "cleanup_policy": "compact,delete", "retention_ms": "1000"}
    assert level(rate, **quiet, **both) == pytest.approx(0, abs=0.01), "retention deletes it"


def test_what_nothing_cleans_has_no_end() -> None:
    assert level(1.0, None, cleanup_policy="compact") == inf
    assert level(1.0, None, cleanup_policy="compact,delete", retention_ms="1000") == inf, (
        "the cleaner deletes"
    )
    both = {"cleanup_policy": "compact,delete", "retention_bytes": "1000000"}
    assert level(10_000.0, 3_000_000, **both) == 1_000_000 + MIB


# When the disk is full


def test_full_by_what_grows_without_end() -> None:
    assert full_in_ms(1000, [Growing("t", 5, 2.0, inf), Growing("u", 5, 3.0, inf)]) == 200_000
    assert full_in_ms(1000, [Growing("t", 5, 2.0, 905)]) is None, "it levels off before"
    assert full_in_ms(1000, [Growing("t", 5, 2.0, 1005)]) == 500_000, "just then"
    assert full_in_ms(1000, [Growing("t", 5, 0.0, inf), Growing("u", 9, 7.0, 8.0)]) is None
    assert full_in_ms(1000, []) is None
    assert full_in_ms(0, [Growing("t", 5, 2.0, inf)]) == 0
    assert full_in_ms(1 << 60, [Growing("t", 5, 1e-9, inf)]) is None, "beyond any time that counts"


def test_full_when_some_stop_before_others() -> None:
    logs = [Growing("stops", 0, 10.0, 100), Growing("goes on", 0, 1.0, inf)]
    assert full_in_ms(110, logs) == 10_000
    assert full_in_ms(1000, logs) == 900_000, "10 s of both, then 890 s of one"


@pytest.mark.parametrize("seed", range(20))
def test_full_as_a_simulation_has_it(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.randrange(1000) for _ in range(chance.randrange(1, 9))]
    rates = (0.0, 0.5, 3.0, 40.0)
    logs = [
        Growing("t", size, chance.choice(rates), chance.choice([inf, size + 5e3 * chance.random()]))
        for size in sizes
    ]
    free = chance.randrange(20_000)
    told = full_in_ms(free, logs)

    def used(seconds: float) -> float:
        return sum(
            min(one.room_bytes, seconds * one.bytes_per_second if one.bytes_per_second else 0.0)
            for one in logs
        )

    if told is None:
        assert used(1e9) < free
    else:
        assert used(told / 1000) <= free <= used((told + 1) / 1000) + 1e-6


def test_the_fastest_topics_come_first() -> None:
    logs = [Growing(f"t{n}", 0, n, inf) for n in range(8)] + [
        Growing("t1", 50, 9.5, 80),
        Growing("full", 9, 99.0, 9),
    ]
    found = forecast(10**9, logs, DAY_MS)
    assert [one["topic"] for one in found["topics"]] == ["t1", "t7", "t6", "t5", "t4"]
    assert len(found["topics"]) == SHOWN_TOPICS
    assert (found["topics"][0]["bytes_per_second"], found["topics"][0]["levels_off_at_bytes"]) == (10.5, None)
    assert found["bytes_per_second"] == sum(range(8)) + 9.5, "what has levelled off is no growth"


def test_the_words() -> None:
    def words(logs: list[Growing], free: int = 10**9, observed_ms: int = DAY_MS) -> str:
        text: str = forecast(free, logs, observed_ms)["sentence"]
        return text

    assert words([Growing("t", 9, 0.0, inf)]) == "its logs do not grow"
    assert words([Growing("t", 9, 1000.0, inf)]) == "its logs grow by 86.4 MB a day: full in 11 days"
    assert words([Growing("t", 9, 10_000.0, inf)]) == "its logs grow by 864.0 MB a day: full in 27 h"
    beside = {"/b": [Growing("u", 9, 1000.0, inf)], "/c": [Growing("v", 9, 0.0, inf)]}
    told = forecast(10**9, [Growing("t", 9, 1000.0, inf)], DAY_MS, beside)["sentence"]
    both = "full in 5 days, together with those of /b on the same file system"
    assert told == f"its logs grow by 86.4 MB a day: {both}"
    told = forecast(10**9, [], DAY_MS, beside)["sentence"]
    assert told == "its logs do not grow, those of /b on the same file system do: full in 11 days"
    down = "its logs grow by 86.4 MB a day, until retention or compaction brings them down to 5.0 MB"
    assert words([Growing("t", 9, 1000.0, 4e6), Growing("u", 6 * 10**6, 0.0, 1e6)]) == down
    levelled = "its logs grow by 86.4 MB a day, and level off at 5.0 MB (watched for 3 min)"
    assert words([Growing("t", 9, 1000.0, 5e6)], observed_ms=3 * MINUTE_MS + 5) == levelled


# How fast logs grow


async def write(world: World, records: int, size: int = 1000, keys: int = 50) -> None:
    served = world.broker.partitions[TopicPartition("t", 0)]
    for number in range(records):
        served.append(world.batch((b"k%d" % (number % keys), bytes(size))), world.clock.now_ms())
    waited = served.when_flushed(served.log.log_end_offset)
    if waited is not None:
        await waited


async def look(world: World, passed_ms: int = LOOK_MS) -> None:
    world.clock.advance(passed_ms)
    await world.broker.background.look_at_growth()


async def test_the_rate_is_that_of_the_log(asker: Asker) -> None:
    world = asker.world
    world.topic("t")
    growth = world.broker.growth
    await look(world)
    assert growth.bytes_per_second(log_of(world)) is None, "seen once"
    await write(world, 60)
    await look(world)
    assert growth.bytes_per_second(log_of(world)) == pytest.approx(log_of(world).size_bytes / 60)
    for _ in range(9):
        await look(world)
    assert growth.bytes_per_second(log_of(world)) == pytest.approx(log_of(world).size_bytes / 600, rel=0.01)
    assert growth.observed_ms(world.clock.now_ms()) == 10 * LOOK_MS
    await look(world, 20 * MEMORY_MS)
    assert growth.bytes_per_second(log_of(world)) == pytest.approx(0, abs=1e-6), "long forgotten"


async def test_a_cleaning_does_not_hide_what_was_written(asker: Asker) -> None:
    world = asker.world
    world.topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    await look(world)
    await write(world, 100, keys=1)
    written = log_of(world).size_bytes
    log_of(world).roll(world.clock.now_ms())
    await clean(world)
    await write(world, 100, keys=1)
    assert log_of(world).size_bytes < 1.1 * written
    await look(world)
    rate = world.broker.growth.bytes_per_second(log_of(world))
    assert rate == pytest.approx(2 * written / 60)


async def test_what_a_log_held_when_it_came_counts_for_nothing(asker: Asker) -> None:
    world = asker.world
    world.topic("t")
    growth = Growth()
    growth.look(world.broker.partitions.values(), 1_000_000)
    await write(world, 10)
    growth.look([], 1_060_000)
    growth.look(world.broker.partitions.values(), 1_120_000)
    assert growth.bytes_per_second(log_of(world)) is None
    assert growth.observed_ms(1_120_000) == 120_000


@pytest.mark.parametrize("set_by_ms", [-DAY_MS, 10_000 * DAY_MS])
async def test_a_clock_that_is_set_makes_no_log_grow(asker: Asker, set_by_ms: int) -> None:
    world = asker.world
    world.topic("t")
    growth = world.broker.growth
    await look(world)
    await write(world, 10)
    await look(world)
    rate = growth.bytes_per_second(log_of(world))
    assert rate
    world.clock.set_by(set_by_ms)
    await write(world, 10)
    await look(world)
    assert growth.bytes_per_second(log_of(world)) == pytest.approx(rate, rel=0.1)
    assert growth.observed_ms(world.clock.passed_ms()) == 2 * LOOK_MS


# What is asked


async def directory(asker: Asker) -> dict[str, Any]:
    row: dict[str, Any]
    (row,) = (await get(asker, "broker"))["directories"]
    return row


async def test_over_http_and_as_metrics(asker: Asker) -> None:
    world = asker.world
    world.topic("t", **{"retention.ms": "-1"})
    assert (await directory(asker))["forecast"] is None
    found = await scrape(world)
    where = {"logDirectory": str(world.directory)}
    assert value(found, "kompakt_log_directory_full_seconds", **where) is None
    assert value(found, "kompakt_log_directory_free_bytes", **where) > 0
    await look(world)
    await write(world, 60)
    await look(world)
    row = await directory(asker)
    told = row["forecast"]
    assert told["bytes_per_second"] == pytest.approx(log_of(world).size_bytes / 60)
    assert told["full_in_ms"] == pytest.approx(row["free_bytes"] / told["bytes_per_second"] * 1000, rel=0.01)
    assert told["observed_ms"] == LOOK_MS
    assert told["topics"] == [
        {"topic": "t", "bytes_per_second": told["bytes_per_second"], "levels_off_at_bytes": None}
    ]
    found = await scrape(world)
    assert value(found, "kompakt_log_directory_growth_bytes_per_second", **where) == told["bytes_per_second"]
    full = value(found, "kompakt_log_directory_full_seconds", **where)
    assert full == pytest.approx(told["full_in_ms"] / 1000, rel=0.01)


async def test_a_table_that_fell_silent_keeps_what_lies_in_its_active_segment(make_world: MakeWorld) -> None:
    """It was to level off at what the last cleaning left, though nothing closes the segment any more."""
    world = await make_world(log_cleaner_enable="true", log_cleaner_backoff_ms="100000000")
    world.topic("t", cleanup_policy="compact", max_compaction_lag_ms=str(DAY_MS))
    await look(world)
    await write(world, 100, keys=5)
    log_of(world).roll(world.clock.now_ms())
    await clean(world)
    await write(world, 200, keys=5)
    await look(world)
    for _ in range(10):
        await look(world, 2 * DAY_MS)
        await world.broker.background.roll_idle()
        await clean(world)
    log = log_of(world)
    (told,) = growing_logs(world.broker, [log], world.broker.cleaner.partition_stats())
    assert told.levels_off_bytes == pytest.approx(log.size_bytes)
    assert log.segments[-1].size_bytes > 200_000


@pytest.mark.parametrize(
    ("overrides", "within"),
    [
        ({"cleanup_policy": "delete", "retention_ms": str(6 * HOUR_MS)}, 0.1),
        ({"cleanup_policy": "delete", "retention_bytes": "500000", "retention_ms": "-1"}, 0.15),
        ({"cleanup_policy": "compact"}, 0.2),
        ({"cleanup_policy": "compact", "min_compaction_lag_ms": str(2 * HOUR_MS)}, 0.2),
    ],
)
async def test_what_it_levels_off_at_is_where_it_does(
    make_world: MakeWorld, overrides: dict[str, str], within: float
) -> None:
    """Two days of 20 records of a kilobyte every ten minutes, 200 keys in turn, in segments of 64 KiB."""
    world = await make_world(log_cleaner_enable="true", log_cleaner_backoff_ms="100000000")
    world.topic("t", segment_bytes="65536", segment_ms=str(DAY_MS), **overrides)
    sizes = []
    for turn in range(288):
        served = world.broker.partitions[TopicPartition("t", 0)]
        for number in range(20):
            record = (b"k%d" % ((turn * 20 + number) % 200), bytes(1000))
            served.append(world.batch(record), world.clock.now_ms())
        await served.when_flushed(served.log.log_end_offset)  # type: ignore[misc]
        sizes.append(served.log.size_bytes)
        await look(world, 10 * MINUTE_MS)
        await world.broker.background.expire_segments()
        await clean(world)
    (told,) = growing_logs(world.broker, [log_of(world)], world.broker.cleaner.partition_stats())
    assert max(sizes[144:]) == pytest.approx(told.levels_off_bytes, rel=within)
