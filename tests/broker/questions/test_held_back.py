"""Goal: an answer gives no advice that leads to nothing: where two things keep records from being cleaned,
both are told.

Method: a broker in the loop with a manual clock; what holds a log back is brought about in twos, explain is
asked, and then what it advises, or leaves out, is done.
"""

from __future__ import annotations

import pytest

from broker.questions.words import moment
from tests.broker.conftest import World
from tests.broker.questions.test_erasing import begin, end, erase
from tests.broker.questions.test_status import said
from tests.broker.test_questions import HOUR_MS, Asker, MakeWorld, compacted, put
from tests.broker.transactions.producer import T

MANY = 2000
ADVICE = "with --roll does now"


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


def lag_words(world: World) -> str:
    until = moment(world.clock.now_ms() + 2 * HOUR_MS)
    return f"kept for min.compaction.lag.ms (2 h), until {until}."


# What is not erased


async def test_why_a_key_is_not_erased_is_told_before_what_is_left(asker: Asker) -> None:
    """A receipt of 468 kB had every offset in one line, and the reason at its end."""
    world = asker.world
    compacted(world, min_compaction_lag_ms=str(2 * HOUR_MS))
    rows = [(b"alice", b"%d" % number) for number in range(MANY)]
    world.broker.partitions[T].append(world.batch(*rows), world.clock.now_ms())
    output = await said(world, "topics", "erase", "t", "alice")
    until = moment(world.clock.now_ms() + 2 * HOUR_MS)
    first, second = output.splitlines()[:2]
    assert first.startswith(
        "t-0: not erased: The first dirty segment, from offset 0 on, holds a record younger"
    )
    assert first.endswith(f"min.compaction.lag.ms (2 h), and is kept whole until {until}.")
    assert second == "    values at offsets 0, 1, 2, 3, 4 … (2 000 of them) are left"
    (receipt,) = await erase(asker)
    assert receipt["values_left"] == list(range(MANY))
    assert receipt["sentence"] == first.removeprefix("t-0: not erased: ")


async def test_a_pause_is_told_with_what_it_is_for(asker: Asker) -> None:
    world = asker.world
    compacted(world)
    await put(world, ("alice", "1"))
    await world.broker.run_blocking(world.broker.cleaner.abort_and_pause, T)
    output = await said(world, "topics", "erase", "t", "alice")
    assert output.startswith("t-0: not erased: Its cleaning is paused, 1 time.\n")
    world.broker.cleaner.resume(T)


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
