"""Goal: what the cleaner says of itself is what its cleanings did.

Method: results by hand are added up; tombstones are counted over several segments of a real log.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cleaner.distribution import Distribution
from cleaner.quarantine import Quarantine
from cleaner.results import CleanResult
from cleaner.selection import Assessment, Reason
from cleaner.statistics import (
    CleanerStatistics,
    PartitionCleanStats,
    PartitionTotals,
    Remembered,
    partition_clean_stats,
)
from cleaner.tombstones import Counted, TombstoneCounts
from storage import sidecar, statistics
from storage.layout import TopicPartition
from tests.cleaner.house import House
from tests.cleaner.world import HOUR_MS, NOW_MS, RETENTION_MS, World

T = TopicPartition("t", 0)
BEFORE = Remembered(NOW_MS - HOUR_MS, 5, 3, NOW_MS + HOUR_MS)


def result(bytes_read: int, bytes_written: int, **fields: Any) -> CleanResult:
    return CleanResult(
        T, 0, 10, NOW_MS, bytes_read=bytes_read, bytes_written=bytes_written,
        removed={"superseded": 2, "tombstone": 1, "aborted": 0, "keyless": 0, "marker": 0}, **fields,
    )  # fmt: skip


def test_totals_are_the_sums_of_cleanings_and_the_state_of_the_last() -> None:
    totals = PartitionTotals()
    totals.add(result(1000, 400, live_keys=9, tombstones_kept=4, newest_horizon_ms=NOW_MS + 7), NOW_MS + 1)
    totals.add(result(500, 100, live_keys=8, tombstones_kept=2, newest_horizon_ms=NOW_MS + 9), NOW_MS + 2)
    assert (totals.runs, totals.bytes_reclaimed, totals.bytes_recopied) == (2, 1000, 500)
    assert (totals.removed["superseded"], totals.removed["tombstone"]) == (4, 2)
    assert (totals.live_keys, totals.tombstones_kept, totals.newest_horizon_ms) == (8, 2, NOW_MS + 9)
    assert (totals.last_clean_ms, totals.is_certain) == (NOW_MS + 2, True)
    assert (totals.kept_ratio.count, round(totals.kept_ratio.sum, 6)) == (2, 0.6)
    assert (totals.bytes_read.count, totals.bytes_read.sum) == (2, 1500)


def test_a_cleaning_of_before_the_start_is_remembered_until_there_is_a_newer_one() -> None:
    totals = PartitionTotals()
    totals.remember(BEFORE)
    assert (
        totals.last_clean_ms,
        totals.live_keys,
        totals.tombstones_kept,
        totals.newest_horizon_ms,
    ) == BEFORE
    assert (totals.runs, totals.is_certain) == (0, False)
    totals.add(result(10, 5, live_keys=1), NOW_MS)
    totals.remember(BEFORE)
    assert (totals.last_clean_ms, totals.live_keys, totals.tombstones_kept, totals.newest_horizon_ms) == (
        NOW_MS, 1, 0, -1,
    )  # fmt: skip


def test_how_long_no_thread_has_looked_for_work() -> None:
    found = CleanerStatistics()
    assert found.time_since_last_run_ms(NOW_MS) == 0, "cleaning is off"
    found.started_ms = NOW_MS - 9
    assert found.time_since_last_run_ms(NOW_MS) == 9
    found.last_run_ms = NOW_MS - 2
    assert found.time_since_last_run_ms(NOW_MS) == 2
    assert found.time_since_last_run_ms(NOW_MS - 5) == 0, "the clock was set back"


def test_values_are_counted_up_to_each_limit() -> None:
    found = Distribution((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        found.add(value)
    assert found.buckets() == [("1", 2), ("2", 3), ("+Inf", 4)]
    assert (found.count, found.sum) == (4, 10.0)


def stats_of(found: Assessment, totals: PartitionTotals, counted: Counted) -> PartitionCleanStats:
    held = Quarantine().add(T, ValueError("dice"), NOW_MS)
    return partition_clean_stats(found, totals, state="idle", held=held, now_ms=NOW_MS, counted=counted)


NONE_COUNTED = Counted({"fresh": 1, "armed": 0, "expired": 0}, 0, False)


def test_what_is_set_aside_is_eligible_when_it_is_tried_again(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.put("t", ("a", "1"), ("a", "2"))
    found = house.manager.assess(house.log("t"))
    house.close()
    aside = dataclasses.replace(found, reason=Reason.UNCLEANABLE, next_eligible_ms=None)
    told = stats_of(aside, PartitionTotals(), NONE_COUNTED)
    assert told.next_eligible_ms == Quarantine().add(T, ValueError(), NOW_MS).retry_ms > NOW_MS
    assert told.uncleanable_error == "ValueError: dice"
    waits = dataclasses.replace(found, reason=Reason.COMPACTION_LAG, next_eligible_ms=NOW_MS + 5)
    assert stats_of(waits, PartitionTotals(), NONE_COUNTED).next_eligible_ms == NOW_MS + 5


@pytest.mark.parametrize(("age_ms", "expected"), [(HOUR_MS - 1, (1, 3, 0)), (HOUR_MS, (1, 0, 3))])
def test_where_statistics_lack_the_last_cleaning_speaks_for_its_tombstones(
    tmp_path: Path, age_ms: int, expected: tuple[int, int, int]
) -> None:
    house = House(tmp_path)
    house.put("t", ("a", "1"))
    found = house.manager.assess(house.log("t"))
    house.close()
    totals = PartitionTotals()
    totals.remember(BEFORE._replace(newest_horizon_ms=NOW_MS + HOUR_MS - age_ms))
    assert tuple(stats_of(found, totals, NONE_COUNTED).tombstones.values()) == expected


def test_tombstones_are_counted_in_every_closed_segment(world: World) -> None:
    for key in "abc":
        world.put((key, None), (f"{key}2", ""))
        world.roll()
    world.put(("d", None))
    for segment in world.closed():
        statistics.ensure(segment)
    counts = TombstoneCounts()
    assert counts.of(world.log, NOW_MS) == ({"fresh": 3, "armed": 0, "expired": 0}, 3, True)
    assert counts.newest_horizon_ms(world.log) is None
    sidecar.path_of(world.closed()[1]).unlink()
    assert counts.of(world.log, NOW_MS).is_complete, "what was read once is known"
    assert TombstoneCounts().of(world.log, NOW_MS) == ({"fresh": 2, "armed": 0, "expired": 0}, 2, False)


def test_the_newest_horizon_is_that_of_the_last_tombstone_to_go(world: World) -> None:
    """The older segment was cleaned an hour before the newer one, in which it has one of its own."""
    world.put(("a", None), ("b", "1"))
    world.roll()
    first = world.clean()
    world.now_ms += HOUR_MS
    for key in "cd":
        world.put((key, None), (f"{key}2", "1"))
    world.roll()
    world.clean(first.end_offset)
    for segment in world.closed():
        statistics.ensure(segment)
    counts = TombstoneCounts()
    assert counts.newest_horizon_ms(world.log) == NOW_MS + HOUR_MS + RETENTION_MS
    first_due_ms = NOW_MS + RETENTION_MS
    assert counts.of(world.log, first_due_ms - 1).tombstones == {"fresh": 0, "armed": 3, "expired": 0}
    assert counts.of(world.log, first_due_ms).tombstones == {"fresh": 0, "armed": 2, "expired": 1}
