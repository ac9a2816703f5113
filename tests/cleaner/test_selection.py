"""Goal: the right part of the right log is cleaned at the right time, and the others can say why not.

Method: views of logs made of numbers, in a table a case; nothing is on disk.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from cleaner.selection import (
    Assessment,
    CheckpointReset,
    LogView,
    Reason,
    Rules,
    SegmentView,
    assess,
    dirtiest,
)

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def view(
    count: int = 8, *, size: int = 100, times: list[int] | None = None, step: int = 10, **values: int
) -> LogView:
    """`count` closed segments of `step` offsets each, and an active one with 5 records."""
    stamps = times or [NOW_MS - 10 * HOUR_MS] * count
    closed = [SegmentView(number * step, size, stamps[number], stamps[number]) for number in range(count)]
    facts = {
        "log_start_offset": 0,
        "log_end_offset": count * step + 5,
        "last_stable_offset": count * step + 5,
        "active_base_offset": count * step,
        "active_bytes": 50,
        **values,
    }
    return LogView(segments=closed, **facts)


def rules(**values: Any) -> Rules:
    facts = {
        "is_compacted": True,
        "is_deleted": False,
        "min_cleanable_dirty_ratio": 0.5,
        "min_compaction_lag_ms": 0,
        "max_compaction_lag_ms": 2**63 - 1,
        **values,
    }
    return Rules(**facts)


def weigh(log: LogView | None = None, checkpoint: int | None = None, **values: Any) -> Assessment:
    return assess(log or view(), rules(**values), checkpoint, NOW_MS)


def test_t1_without_a_checkpoint_the_log_is_dirty_from_its_start() -> None:
    assert weigh(view(log_start_offset=7)).first_dirty_offset == 7


def test_t2_the_checkpoint_is_where_the_dirty_part_begins() -> None:
    found = weigh(checkpoint=30)
    assert (found.first_dirty_offset, found.checkpoint_reset) == (30, None)


def test_t3_a_checkpoint_below_the_log_start_is_given_up() -> None:
    found = weigh(view(log_start_offset=25), checkpoint=10)
    assert (found.first_dirty_offset, found.checkpoint_reset) == (25, CheckpointReset.BELOW_LOG_START)


def test_t4_a_checkpoint_beyond_the_log_end_makes_everything_dirty() -> None:
    found = weigh(checkpoint=86)
    assert (found.first_dirty_offset, found.checkpoint_reset) == (0, CheckpointReset.BEYOND_LOG_END)
    assert found.is_cleanable


@pytest.mark.parametrize("checkpoint", [80, 82, 85])
def test_t5_a_checkpoint_in_the_active_segment_leaves_nothing_to_clean(checkpoint: int) -> None:
    found = weigh(checkpoint=checkpoint)
    assert (found.cleanable_bytes, found.checkpoint_reset) == (0, None)
    assert found.reason in (Reason.ACTIVE_SEGMENT, Reason.NOTHING_DIRTY)


@pytest.mark.parametrize("start", [80, 83, 85])
def test_t6_a_log_start_in_the_active_segment_leaves_nothing_to_clean(start: int) -> None:
    found = weigh(view(log_start_offset=start), checkpoint=3)
    assert (found.cleanable_bytes, found.first_dirty_offset) == (0, start)
    assert not found.is_cleanable


def test_t7_the_lowest_bound_holds() -> None:
    young = [NOW_MS - 5 * HOUR_MS] * 4 + [NOW_MS] * 4
    for stable, end, reason in [(85, 40, None), (25, 20, None), (40, 40, None)]:
        found = weigh(view(times=young, last_stable_offset=stable), min_compaction_lag_ms=HOUR_MS)
        assert (found.end, found.reason) == (end, reason)


def test_t8_the_last_stable_offset_bounds_without_a_lag() -> None:
    found = weigh(view(last_stable_offset=50))
    assert (found.first_uncleanable_offset, found.end) == (50, 50)
    assert found.lag_ends_ms is None, "time does not end a transaction"


def test_t9_when_all_is_stable_the_active_segment_bounds() -> None:
    assert weigh().first_uncleanable_offset == 80


def test_t10_the_lag_bounds_at_the_first_young_segment() -> None:
    times = [NOW_MS - HOUR_MS - 1] * 4 + [NOW_MS] * 4
    found = weigh(view(times=times), min_compaction_lag_ms=HOUR_MS)
    assert found.first_uncleanable_offset == 40
    assert found.uncleanable_bytes[Reason.COMPACTION_LAG] == 400


def test_t10_only_dirty_segments_are_asked_for_their_age() -> None:
    times = [NOW_MS] * 2 + [NOW_MS - 2 * HOUR_MS] * 6
    assert weigh(view(times=times), 20, min_compaction_lag_ms=HOUR_MS).first_uncleanable_offset == 80
    assert weigh(view(times=times), 19, min_compaction_lag_ms=HOUR_MS).cleanable_bytes == 0


def test_t10_says_when_the_first_young_segment_will_be_old_enough() -> None:
    found = weigh(view(times=[NOW_MS - 1000] * 8), min_compaction_lag_ms=HOUR_MS)
    assert found.reason is Reason.COMPACTION_LAG
    assert found.next_eligible_ms == found.lag_ends_ms == NOW_MS - 1000 + HOUR_MS
    for now_ms in (found.next_eligible_ms - 1, found.next_eligible_ms):
        later = assess(view(times=[NOW_MS - 1000] * 8), rules(min_compaction_lag_ms=HOUR_MS), None, now_ms)
        assert later.is_cleanable == (now_ms == found.next_eligible_ms)


@pytest.mark.parametrize("held", [Reason.UNCLEANABLE, Reason.PAUSED, Reason.DRY_RUN])
def test_what_held_a_log_while_it_was_compacted_is_no_reason_when_it_is_not(held: Reason) -> None:
    found = assess(view(), rules(is_compacted=False), None, NOW_MS, held)
    assert (found.reason, found.next_eligible_ms) == (Reason.NOT_COMPACTED, None)
    assert assess(view(), rules(), None, NOW_MS, held).reason is held


def test_t10_young_segments_come_one_by_one_until_the_ratio_is_passed() -> None:
    """The end of the lag for the first is no promise: the log is due when enough of it is old enough."""
    times = [NOW_MS] * 4 + [NOW_MS + 1000 * number for number in range(4)]
    found = weigh(view(times=times), 40, min_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=0.4)
    assert (found.reason, found.lag_ends_ms) == (Reason.COMPACTION_LAG, NOW_MS + HOUR_MS)
    assert found.next_eligible_ms == NOW_MS + HOUR_MS + 2000
    never = weigh(view(times=times), 40, min_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=0.5)
    assert (never.reason, never.next_eligible_ms) == (Reason.COMPACTION_LAG, None)


@pytest.mark.parametrize("seed", range(200))
def test_a_log_is_due_at_the_time_that_was_said_and_not_before(seed: int) -> None:
    """Against every millisecond's own verdict at the times at which one can change."""
    rng = random.Random(seed)
    count = rng.randrange(9)
    times = [rng.choice([-1, NOW_MS + rng.randrange(-50, 50)]) for _ in range(count)]
    log = view(
        count, times=times, last_stable_offset=rng.choice([10 * count + 5, rng.randrange(10 * count + 6)])
    )
    facts = rules(
        min_compaction_lag_ms=rng.choice([0, 20, 60]),
        max_compaction_lag_ms=rng.choice([2**63 - 1, 60, 90]),
        min_cleanable_dirty_ratio=rng.choice([0, 0.3, 0.5, 0.9, 1.0]),
        cleans_expired_tombstones=rng.random() < 0.5,
    )
    checkpoint = rng.choice([None, rng.randrange(10 * count + 6)])
    expire_ms = rng.choice([None, NOW_MS + 40, NOW_MS + 110])

    def is_due(now_ms: int) -> bool:
        return assess(log, facts, checkpoint, now_ms, tombstones_expire_ms=expire_ms).is_cleanable

    now_ms = NOW_MS + rng.randrange(-60, 60)
    found = assess(log, facts, checkpoint, now_ms, tombstones_expire_ms=expire_ms)
    due = next((at for at in range(now_ms, NOW_MS + 200) if is_due(at)), None)
    assert found.next_eligible_ms == due


def test_t11_a_lag_that_everything_has_passed_bounds_nothing() -> None:
    assert weigh(min_compaction_lag_ms=HOUR_MS).first_uncleanable_offset == 80


def test_t12_an_open_transaction_at_the_start_stops_everything() -> None:
    found = weigh(view(last_stable_offset=0), min_compaction_lag_ms=HOUR_MS)
    assert (found.first_uncleanable_offset, found.cleanable_bytes) == (0, 0)
    assert found.reason is Reason.LAST_STABLE_OFFSET
    assert weigh(min_compaction_lag_ms=HOUR_MS).is_cleanable


def test_t13_a_bound_within_a_segment_leaves_that_segment_whole() -> None:
    found = weigh(view(last_stable_offset=57))
    assert (found.first_uncleanable_offset, found.end, found.cleanable_bytes) == (57, 50, 500)


def test_t14_the_ratio_knows_clean_and_cleanable_bytes_only() -> None:
    found = weigh(view(last_stable_offset=60), checkpoint=20)
    assert (found.clean_bytes, found.cleanable_bytes) == (200, 400)
    assert found.dirty_ratio == 400 / 600
    assert found.uncleanable_bytes == {
        Reason.ACTIVE_SEGMENT: 50,
        Reason.COMPACTION_LAG: 0,
        Reason.LAST_STABLE_OFFSET: 200,
    }


def test_t14_a_segment_that_straddles_the_first_dirty_offset_counts_on_both_sides() -> None:
    found = weigh(checkpoint=25)
    assert (found.clean_bytes, found.cleanable_bytes) == (300, 600)


def test_t15_a_ratio_that_just_reaches_the_threshold_is_not_enough() -> None:
    assert weigh(checkpoint=40).reason is Reason.RATIO
    assert weigh(checkpoint=40, min_cleanable_dirty_ratio=0.49).is_cleanable


def test_t16_a_threshold_of_zero_takes_any_dirty_log_and_no_clean_one() -> None:
    assert weigh(checkpoint=70, min_cleanable_dirty_ratio=0).is_cleanable
    assert weigh(checkpoint=80, min_cleanable_dirty_ratio=0).reason is Reason.ACTIVE_SEGMENT


def test_t17_a_threshold_of_one_is_never_passed_by_the_ratio() -> None:
    assert weigh(min_cleanable_dirty_ratio=1.0).reason is Reason.RATIO
    assert weigh(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS).is_cleanable


def test_t18_the_max_lag_cleans_whatever_the_ratio() -> None:
    times = [0, -1] + [NOW_MS - HOUR_MS] * 6
    almost = weigh(view(times=times), min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS)
    assert (almost.compaction_delay_ms, almost.reason) == (0, Reason.RATIO)
    assert almost.next_eligible_ms == NOW_MS + 1
    late = weigh(view(times=times), min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS - 5)
    assert (late.compaction_delay_ms, late.reason) == (5, None)


def test_t19_the_max_lag_counts_even_while_a_transaction_forbids_cleaning() -> None:
    found = weigh(view(last_stable_offset=0), max_compaction_lag_ms=HOUR_MS)
    assert found.compaction_delay_ms == 9 * HOUR_MS
    assert found.reason is Reason.LAST_STABLE_OFFSET


def test_t20_two_blocks_become_due_one_after_the_other() -> None:
    lag = 6 * HOUR_MS
    start = NOW_MS
    facts = rules(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=lag)
    block1 = view(1, times=[start])
    assert assess(block1, facts, None, start + lag // 2).reason is Reason.RATIO
    both = view(2, times=[start, start + lag + 1])
    due = assess(both, facts, None, start + lag + 1)
    assert due.is_cleanable
    assert assess(both, facts, 10, start + lag + 1).reason is Reason.RATIO
    assert assess(both, facts, 10, start + 2 * lag + 2).is_cleanable


def test_t23_the_dirtiest_goes_first_and_held_ones_are_skipped() -> None:
    found = [weigh(checkpoint=checkpoint) for checkpoint in (30, 10, 20)]
    assert dirtiest(found) == 1
    found[1] = assess(view(), rules(), 10, NOW_MS, held=Reason.PAUSED)
    assert dirtiest(found) == 2
    found[2] = assess(view(), rules(), 10, NOW_MS, held=Reason.UNCLEANABLE)
    found[0] = assess(view(), rules(), 10, NOW_MS, held=Reason.IN_PROGRESS)
    assert dirtiest(found) is None


def test_t24_of_empty_logs_none_is_picked() -> None:
    empty = LogView(0, 0, 0, 0, 0, ())
    found = assess(empty, rules(min_cleanable_dirty_ratio=0), None, NOW_MS)
    assert found.reason is Reason.EMPTY
    assert dirtiest([found]) is None
    assert dirtiest([]) is None


def test_reasons_are_told_apart() -> None:
    assert weigh(is_compacted=False).reason is Reason.NOT_COMPACTED
    assert weigh(view(0)).reason is Reason.ACTIVE_SEGMENT
    assert weigh(view(log_end_offset=80, active_bytes=0), checkpoint=80).reason is Reason.NOTHING_DIRTY
    assert weigh(checkpoint=70).reason is Reason.RATIO
    assert weigh(checkpoint=84).reason is Reason.ACTIVE_SEGMENT
    assert weigh(checkpoint=85).reason is Reason.NOTHING_DIRTY
    assert weigh(view(last_stable_offset=20), checkpoint=84).reason is Reason.ACTIVE_SEGMENT
    assert weigh(lacks_version=True).reason is Reason.NO_VERSION
    assert weigh(is_compacted=False, lacks_version=True).reason is Reason.NOT_COMPACTED


def test_segments_without_a_byte_are_nothing_to_wait_for() -> None:
    found = weigh(view(size=0))
    assert (found.reason, found.dirty_ratio, found.next_eligible_ms) == (Reason.ACTIVE_SEGMENT, 0.0, None)
