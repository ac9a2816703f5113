"""Goal: an answer gives no advice that leads to nothing: where two things keep records from being cleaned,
both are told.

Method: a broker in the loop with a manual clock; what holds a log back is brought about in twos, explain is
asked, and then what it advises, or leaves out, is done.
"""

from __future__ import annotations

import pytest

from broker.questions.words import moment
from tests.broker.conftest import World
from tests.broker.questions.test_erasing import begin, end
from tests.broker.test_questions import HOUR_MS, Asker, MakeWorld, compacted, put
from tests.broker.transactions.producer import T

ADVICE = "with --roll does now"


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


def lag_words(world: World) -> str:
    until = moment(world.clock.now_ms() + 2 * HOUR_MS)
    return f"kept for min.compaction.lag.ms (2 h), until {until}."


# Why


async def test_what_an_open_transaction_would_hold_is_not_to_be_rolled(asker: Asker) -> None:
    world = asker.world
    compacted(world)
    await put(world, ("a", "1"), ("a", "2"))
    await asker.why("active_segment", ADVICE)
    partition = begin(world, b"undecided")
    answer = await asker.why(
        "active_segment",
        "segment.idle.ms would close it without one. Closed now, it would be held back by the open "
        "transaction of producer 7 since ",
        "Nobody here ends it by itself",
    )
    assert ADVICE not in answer["sentence"]
    assert (await asker.compact(roll=True))["records_before"] == 0
    await end(world, partition, is_commit=True)
    await asker.why("eligible")


async def test_what_is_too_young_is_not_to_be_rolled(asker: Asker) -> None:
    world = asker.world
    compacted(world, min_compaction_lag_ms=str(2 * HOUR_MS))
    await put(world, ("a", "1"), ("a", "2"))
    answer = await asker.why("active_segment", f"Closed now, it would be {lag_words(world)}")
    assert ADVICE not in answer["sentence"]
    assert (await asker.compact(roll=True, dry_run=True))["records_before"] == 0
    world.clock.advance(2 * HOUR_MS)
    await asker.why("active_segment", ADVICE)
    assert (await asker.compact(roll=True))["records_before"] == 2


async def test_all_that_would_hold_it_is_told(asker: Asker) -> None:
    world = asker.world
    compacted(world, min_compaction_lag_ms=str(2 * HOUR_MS), segment_idle_ms=str(HOUR_MS))
    await world.broker.background.roll_idle()
    await put(world, ("a", "1"))
    begin(world, b"undecided")
    await world.broker.background.roll_idle()
    answer = await asker.why(
        "active_segment",
        "if nobody writes (segment.idle.ms). Closed now, it would be held back by the open transaction",
        f", and {lag_words(world)}",
    )
    assert ADVICE not in answer["sentence"]


async def test_a_flush_that_is_still_on_its_way_holds_nothing_that_is_rolled(asker: Asker) -> None:
    """Who asks for a cleaning waits for it."""
    compacted(asker.world)
    await put(asker.world, ("a", "1"), ("a", "2"))
    log = asker.world.broker.partitions[T].log
    log.high_watermark = 1
    await asker.why("active_segment", ADVICE)
    log.high_watermark = 2
