"""Goal: the right log is handed out once, its checkpoint is right, and a bad log is set aside alone.

Method: a few real logs on disk, a clock that tests move, the manager asked step by step.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cleaner.cleaner import Cleaner, CleaningAborted
from cleaner.manager import CleaningRefused
from cleaner.quarantine import FIRST_RETRY_MS, FULL_DISK_RETRY_MS, LONGEST_RETRY_MS
from cleaner.reading import CorruptSegment
from cleaner.states import IDLE, IllegalMove, Phase
from storage import statistics
from storage.jobs import Expired
from storage.layout import TopicPartition
from storage.retention import MOST_AT_ONCE
from tests.cleaner.house import House
from tests.storage.builders import HOUR_MS
from tests.waiting import wait_for

T = TopicPartition("t", 0)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()


def test_a_log_is_cleaned_and_its_checkpoint_written(house: House) -> None:
    house.put("t", ("a", "1"), ("a", "2"))
    result = house.clean()
    assert result is not None
    assert result.end_offset == 2
    assert house.checkpoints() == {T: 2}
    assert house.table("t") == {"a": "2"}
    assert house.clean() is None
    assert house.manager.state_of(T) == IDLE


def test_t3_a_checkpoint_below_the_log_start_is_written_anew_without_a_cleaning(house: House) -> None:
    house.log("t", cleanup_policy="compact,delete", min_cleanable_dirty_ratio=1.0)
    house.put("t", ("a", "1"), ("b", "1"))
    house.put("t", ("c", "1"), ("d", "1"))
    house.manager.checkpoints.put(house.path, T, 1)
    house.log("t").delete_records(3)
    assert house.clean() is None
    assert house.checkpoints() == {T: 3}


@pytest.mark.parametrize("is_cleaned", [True, False], ids=["cleaned", "mended"])
def test_a_crash_does_not_bring_back_what_a_cleaning_took_for_gone(
    house: House, tmp_path: Path, is_cleaned: bool
) -> None:
    """Records below the start of the log are not mapped: a start that went back would show the value again
    whose tombstone, of no interest to anybody, has expired.
    """
    ratio = 0.1 if is_cleaned else 1.0
    config = {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": ratio, "retention_ms": -1}
    house.log("t", **config)
    house.put("t", ("a", "1"), ("a", None), ("b", "1"), ("c", "1"))
    house.manager.checkpoints.put(house.path, T, 1)
    house.log("t").delete_records(3)
    assert (house.clean() is not None) == is_cleaned
    assert house.checkpoints() == {T: 4 if is_cleaned else 3}
    house.logs.abandon()
    after = House(tmp_path)
    assert after.log("t", **config).log_start_offset == 3
    after.now_ms += 50 * HOUR_MS
    after.put("t", ("d", "1"))
    after.manager.clean_now(T)
    assert after.table("t") == {"c": "1", "d": "1"}
    after.close()


def test_t4_a_checkpoint_beyond_the_end_makes_the_log_dirty_again(house: House) -> None:
    house.put("t", ("a", "1"), ("a", "2"))
    house.manager.checkpoints.put(house.path, T, 99)
    assert house.clean() is not None
    assert house.checkpoints() == {T: 2}


@pytest.mark.parametrize("checkpoint", [1, 99], ids=["T3 below the start", "T4 beyond the end"])
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_t3_the_reset_is_warned_of_unless_the_topic_is_deleted_from_as_well(
    house: House, caplog: pytest.LogCaptureFixture, policy: str, checkpoint: int
) -> None:
    """T3, T4: with retention the start moves by itself, and a stale checkpoint is nothing to look into."""
    log = house.log("t", cleanup_policy="compact,delete", min_cleanable_dirty_ratio=1.0, retention_ms=-1)
    house.put("t", ("a", "1"), ("b", "1"))
    house.put("t", ("c", "1"), ("d", "1"))
    log.delete_records(3)
    log.update_config(dataclasses.replace(log.config, cleanup_policy=frozenset(policy.split(","))))
    house.manager.checkpoints.put(house.path, T, checkpoint)
    with caplog.at_level(logging.WARNING, "cleaner.manager"):
        assert house.clean() is None
    warned = [record.getMessage() for record in caplog.records]
    assert bool(warned) == (policy == "compact"), warned
    assert all("t-0" in line and "dirty from 3 on" in line for line in warned)
    assert house.checkpoints() == {T: 3}
    assert house.clean() is None
    assert len(caplog.records) == len(warned), "once: the checkpoint is right now"


def test_t23_the_dirtiest_is_handed_out_first_and_only_once(house: House) -> None:
    for topic in "abc":
        house.log(topic, min_cleanable_dirty_ratio=0.01)
        house.put(topic, *((str(number), "x" * 50) for number in range(10)))
    while house.clean():
        pass
    for topic, dirty in [("a", 1), ("b", 5), ("c", 3)]:
        house.put(topic, *((str(number), "y" * 50) for number in range(dirty)))
    grabbed = [house.manager.grab() for _ in range(4)]
    assert [work and work.log.topic_partition.topic for work in grabbed] == ["b", "c", "a", None]


def test_t24_nothing_is_handed_out_when_all_logs_are_empty(house: House) -> None:
    house.log("a")
    house.log("b", cleanup_policy="delete")
    assert house.manager.grab() is None


def test_t25_a_log_without_figures_is_set_aside_alone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.put("bad", ("a", "1"), ("a", "2"))
    house.put("t", ("a", "1"), ("a", "2"))
    bad = house.log("bad")

    class Broken:
        @property
        def is_compacted(self) -> bool:
            return True

        def __getattr__(self, name: str) -> object:
            raise RuntimeError("no figures")

    good = bad.config
    bad.config = Broken()  # type: ignore[assignment]
    assert house.clean() is not None
    bad.config = good
    held = house.manager.uncleanable(bad.topic_partition)
    assert held is not None
    assert "no figures" in held.error
    assert house.table("t") == {"a": "2"}


def test_t123_a_paused_log_is_not_picked_until_it_is_released_as_often(house: House) -> None:
    house.put("t", ("a", "1"), ("a", "2"))
    house.manager.abort_and_pause(T)
    house.manager.abort_and_pause(T)
    assert house.clean() is None
    house.manager.resume(T)
    assert house.clean() is None
    house.manager.resume(T)
    assert house.clean() is not None
    with pytest.raises(IllegalMove):
        house.manager.resume(T)


def test_t43_a_damaged_log_is_set_aside_and_others_go_on(house: House) -> None:
    """T43, T62, T177"""
    house.put("bad", ("a", "1"), ("a", "2"))
    path = house.damage("bad")
    content = path.read_bytes()
    house.put("t", ("a", "1"), ("a", "2"))
    for _ in range(3):
        house.clean()
    assert house.table("t") == {"a": "2"}
    assert path.read_bytes() == content
    assert TopicPartition("bad", 0) not in house.checkpoints()
    figures = house.manager.partition_stats()
    assert "checksum" in (figures[TopicPartition("bad", 0)].uncleanable_error or "")
    assert house.manager.statistics.uncleanable_partitions == {str(house.path): 1}
    assert house.manager.statistics.uncleanable_bytes[str(house.path)] == len(content)


def test_t178_uncleanable_bytes_are_dirty_ones_as_in_kafka(house: House) -> None:
    house.put("t", ("a", "1"), ("a", "2"))
    assert house.clean() is not None
    house.put("t", ("a", "3"), ("a", "4"))
    house.damage("t")
    assert house.clean() is None
    found = house.manager.partition_stats()[T]
    assert found.clean_bytes > 0
    assert house.manager.statistics.uncleanable_bytes == {str(house.path): found.cleanable_bytes}


def test_the_dirtiest_is_one_of_those_that_may_be_cleaned_as_in_kafka(house: House) -> None:
    """What is paused, set aside or being cleaned has its own gauges; it would hide how dirty others are."""
    house.put("t", *((f"k{number}", "1") for number in range(9)))
    assert house.clean() is not None
    house.put("t", ("a", "1"))
    house.put("paused", ("a", "1"), ("a", "2"))
    house.manager.abort_and_pause(TopicPartition("paused", 0))
    house.put("bad", ("a", "1"), ("a", "2"))
    house.damage("bad")
    assert house.clean() is None
    assert house.manager.uncleanable(TopicPartition("bad", 0)) is not None
    ratio = house.manager.assess(house.log("t")).dirty_ratio
    assert 0 < ratio < 0.5
    assert house.manager.grab() is None
    assert house.manager.statistics.max_dirty_percent == pytest.approx(100 * ratio)


def test_t178_a_log_that_was_set_aside_is_tried_again_later_and_later(house: House) -> None:
    house.put("t", ("a", "1"), ("a", "2"))
    path = house.damage("t")
    pauses = []
    for _ in range(9):
        assert house.clean() is None
        held = house.manager.uncleanable(T)
        assert held is not None
        pauses.append(held.retry_ms - house.now_ms)
        house.now_ms = held.retry_ms - 1
        assert house.manager.grab() is None
        house.now_ms = held.retry_ms
    assert pauses[:3] == [FIRST_RETRY_MS, 2 * FIRST_RETRY_MS, 4 * FIRST_RETRY_MS]
    assert pauses[-1] == LONGEST_RETRY_MS
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert house.clean() is not None
    assert house.manager.uncleanable(T) is None


def test_a_clock_that_is_set_back_makes_no_pause_longer(house: House) -> None:
    """T178, T133: Kafka's pauses are of a clock that cannot be set."""
    right_ms = house.now_ms
    house.now_ms += 1000 * HOUR_MS
    house.put("t", ("a", "1"), ("a", "2"))
    path = house.damage("t")
    house.log("short", cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    assert house.clean() is None
    assert house.manager.expire() == 0
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    house.now_ms = right_ms
    house.put("short", ("a", "1"))
    house.now_ms += 2 * HOUR_MS
    assert house.manager.expire() == 1
    assert house.clean() is not None


def test_t178_a_retry_by_hand_is_at_once(house: House) -> None:
    house.put("t", ("a", "1"), ("a", "2"))
    path = house.damage("t")
    assert house.clean() is None
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert house.clean() is None, "it is not yet time"
    assert house.manager.clean_now(T).removed["superseded"] == 1
    assert house.manager.uncleanable(T) is None


def test_t124_a_full_disk_is_tried_again_soon_and_is_no_damage(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.put("t", ("a", "1"), ("a", "2"))
    work = house.manager.grab()
    assert work is not None
    cleaner = house.manager.make_cleaner(lambda size: None)

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cleaner, "clean", full)
    assert house.manager.clean(cleaner, work) is None
    held = house.manager.uncleanable(T)
    assert held is not None
    assert (held.retry_ms - house.now_ms, held.is_damaged) == (FULL_DISK_RETRY_MS, False)
    house.now_ms += FULL_DISK_RETRY_MS
    assert house.clean() is not None


def test_t122_a_deleted_partition_is_forgotten_with_its_checkpoint(house: House) -> None:
    house.put("t", ("a", "1"), ("a", "2"))
    house.clean()
    house.logs.delete(T)
    house.manager.abort_and_pause(T)
    assert house.checkpoints() == {}
    house.put("t", ("a", "1"), ("a", "2"), ("a", "3"))
    assert house.clean() is not None
    assert house.table("t") == {"a": "3"}


def test_t122_what_is_deleted_while_work_is_looked_for_is_none(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its namesake would begin with a checkpoint, and what is below that would never be cleaned."""
    house.put("t", ("a", "1"), ("a", "2"))
    prune = house.manager._prune

    def delete_behind(served: set[TopicPartition]) -> None:
        prune(served)
        house.logs.logs.pop(T)
        house.manager.abort_and_pause(T)

    monkeypatch.setattr(house.manager, "_prune", delete_behind)
    assert house.clean() is None
    assert house.checkpoints() == {}


def test_t122_a_checkpoint_that_a_crash_left_behind_is_dropped(house: House) -> None:
    house.manager.checkpoints.put(house.path, TopicPartition("gone", 3), 7)
    house.manager.grab()
    assert house.checkpoints() == {}


def test_t42_an_abort_ends_a_running_cleaning_and_waits_for_it(house: House) -> None:
    """T42, T123"""
    house.put("t", *((str(number), "x") for number in range(50)))
    work = house.manager.grab()
    assert work is not None
    reached, go_on = threading.Event(), threading.Event()

    def account(size: int) -> None:
        reached.set()
        go_on.wait(60)
        house.manager.check(T)

    cleaner = house.manager.make_cleaner(account)
    results: list[object] = []
    cleaning = threading.Thread(target=lambda: results.append(house.manager.clean(cleaner, work)))
    cleaning.start()
    assert reached.wait(60)
    aborting = threading.Thread(target=lambda: house.manager.abort_and_pause(T))
    aborting.start()
    wait_for(lambda: house.manager.state_of(T).phase is Phase.ABORTED)
    assert aborting.is_alive()
    go_on.set()
    aborting.join(60)
    cleaning.join(60)
    assert results == [None]
    assert house.checkpoints() == {}
    assert house.manager.state_of(T).phase is Phase.PAUSED
    house.manager.resume(T)
    assert house.clean() is not None


def test_t126_the_checkpoint_moves_after_the_swap(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.put("t", ("a", "1"), ("a", "2"))
    log = house.log("t")
    seen: list[dict[TopicPartition, int]] = []
    replace = log.replace_segments

    def watch(*arguments: object) -> object:
        seen.append(house.checkpoints())
        return replace(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "replace_segments", watch)
    house.clean()
    assert seen == [{}]
    assert house.checkpoints() == {T: 2}


def test_t180_a_damaged_checkpoint_file_counts_as_none(house: House) -> None:
    (house.path / "cleaner-offset-checkpoint").write_text("rubbish")
    house.put("t", ("a", "1"), ("a", "2"))
    assert house.clean() is not None
    assert house.checkpoints() == {T: 2}


def test_t133_retention_of_compact_delete_is_done_here(house: House) -> None:
    """T133, T135: expired segments go, cleaned or not, even of a log that cannot be cleaned."""
    for topic in ("t", "bad"):
        house.log(topic, cleanup_policy="compact,delete", retention_ms=HOUR_MS)
        house.put(topic, ("a", "1"), ("a", "2"))
    house.log("kept")
    house.put("kept", ("a", "1"))
    house.damage("bad")
    for _ in range(4):
        house.clean()
    house.now_ms += 2 * HOUR_MS
    for topic in ("t", "bad"):
        house.put(topic, ("b", "1"))
    assert house.manager.expire() == 2
    assert house.table("t") == {"b": "1"}
    assert house.table("bad") == {"b": "1"}
    assert house.table("kept") == {"a": "1"}


def test_t133_retention_takes_its_owner_a_few_segments_at_a_time(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner serves nobody while files are renamed; all that is old goes nevertheless."""
    log = house.log("t", cleanup_policy="compact,delete", retention_ms=1000)
    for number in range(MOST_AT_ONCE + 3):
        house.put("t", (str(number), "1"))
    house.now_ms += 1001
    steps: list[int] = []
    expire = log.expire

    def watched(now_ms: int) -> Expired:
        expired = expire(now_ms)
        steps.append(expired.removed_segments)
        return expired

    monkeypatch.setattr(log, "expire", watched)
    assert house.manager.expire() == MOST_AT_ONCE + 3
    assert steps == [MOST_AT_ONCE, 3]
    assert log.log_start_offset == log.log_end_offset == MOST_AT_ONCE + 3


def test_t29_retention_leaves_alone_what_another_thread_begins_to_clean(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was idle when it was looked at, and is being cleaned when the owner of the log comes to it."""
    house.log("t", cleanup_policy="compact,delete", retention_ms=HOUR_MS)
    house.put("t", ("a", "1"), ("a", "2"))
    house.now_ms += 2 * HOUR_MS
    on_owner, begun = house.manager.run_on_owner, []

    def begin_first(function: Callable[[], Any]) -> Any:
        if not begun:
            begun.append(house.manager.grab())
        return on_owner(function)

    monkeypatch.setattr(house.manager, "run_on_owner", begin_first)
    assert house.manager.expire() == 0
    assert begun[0] is not None
    house.manager.clean(house.manager.make_cleaner(lambda size: None), begun[0])
    house.now_ms += HOUR_MS
    assert house.manager.expire() > 0
    assert house.table("t") == {}


def test_a_cleaning_by_hand_ignores_the_ratio(house: House) -> None:
    house.log("t", min_cleanable_dirty_ratio=1.0)
    house.put("t", ("a", "1"), ("a", "2"))
    assert house.clean() is None
    dry = house.manager.clean_now(T, is_dry=True)
    assert (dry.removed["superseded"], house.checkpoints()) == (1, {})
    result = house.manager.clean_now(T)
    assert (result.removed["superseded"], house.checkpoints()) == (1, {T: 2})


def test_t77_a_cleaning_by_hand_of_a_clean_log_drops_expired_tombstones(house: House) -> None:
    house.log("t", delete_retention_ms=HOUR_MS)
    house.put("t", ("a", "1"), ("a", None), ("b", "1"))
    house.clean()
    house.now_ms += HOUR_MS
    assert house.clean() is None
    assert house.manager.partition_stats()[T].tombstones == {"fresh": 0, "armed": 0, "expired": 1}
    assert house.manager.clean_now(T).removed["tombstone"] == 1
    assert [one.key for one in house.records("t")] == [b"b"]


def test_t77_what_an_aborted_cleaning_gave_a_horizon_is_not_forgotten(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first group was swapped, and the log may be too clean then for the next cleaning to come soon."""
    log = house.log("t", compaction_expired_tombstones_enable=True, segment_bytes=300)
    house.put("t", ("z", "1"))
    assert house.clean() is not None
    assert house.manager.assess(log).tombstones_expire_ms is None
    house.put("t", ("a", None), ("b", "1" * 60), ("b", "2" * 60))
    house.put("t", ("c", "1" * 60), ("c", "2" * 60), ("d", "2" * 60))
    swap, swapped = Cleaner._swap, []

    def swap_once(cleaner: Cleaner, *arguments: Any) -> None:
        if swapped:
            raise CleaningAborted("a stop")
        swapped.append(arguments)
        swap(cleaner, *arguments)

    monkeypatch.setattr(Cleaner, "_swap", swap_once)
    assert house.clean() is None
    for segment in log.segments[:-1]:
        statistics.ensure(segment)
    expected = house.now_ms + log.config.delete_retention_ms
    assert house.manager.assess(log).tombstones_expire_ms == expected


def test_a_cleaning_by_hand_says_why_it_cannot_be(house: House) -> None:
    house.log("deleted", cleanup_policy="delete")
    for topic, why in (("deleted", "its cleanup.policy is delete"), ("nowhere", "it is no partition of")):
        with pytest.raises(CleaningRefused, match=why):
            house.manager.clean_now(TopicPartition(topic, 0))
    house.put("t", ("a", "1"))
    house.manager.abort_and_pause(T)
    with pytest.raises(CleaningRefused, match="paused"):
        house.manager.clean_now(T)
    house.manager.resume(T)
    house.damage("t")
    with pytest.raises(CorruptSegment):
        house.manager.clean_now(T)
    assert house.manager.state_of(T) == IDLE


def test_the_figures_of_a_partition(house: House) -> None:
    house.log("t", min_compaction_lag_ms=HOUR_MS)
    house.put("t", ("a", "1"), ("b", "1"), ("a", None))
    house.put("t", ("c", "1"), roll=False)
    before = house.manager.partition_stats()[T]
    assert before.uncleanable_bytes["lag"] > 0
    assert before.uncleanable_bytes["active"] > 0
    assert (before.cleanable_bytes, before.dirty_ratio) == (0, 0.0)
    assert before.why_not is not None
    assert "min.compaction.lag.ms" in before.why_not
    assert before.next_eligible_ms == house.now_ms + HOUR_MS
    house.now_ms = before.next_eligible_ms
    assert house.manager.partition_stats()[T].why_not is None
    house.clean()
    after = house.manager.partition_stats()[T]
    assert after.records_removed == {"superseded": 1, "tombstone": 0, "aborted": 0, "keyless": 0, "marker": 0}
    assert (after.first_dirty_offset, after.live_keys, after.runs) == (3, 1, 1)
    assert after.tombstones == {"fresh": 0, "armed": 1, "expired": 0}
    assert after.last_clean_ms == house.now_ms
    assert after.bytes_reclaimed > 0
    statistics = house.manager.statistics
    assert statistics.runs == 1
    assert 0 < statistics.cleaner_recopy_percent < 100
    assert 0 < statistics.max_buffer_utilization_percent < 1
    assert len(house.results) == 1


def test_an_aborted_cleaning_by_hand_says_so(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.put("t", ("a", "1"))

    def abort(*_: object) -> None:
        raise CleaningAborted(str(T))

    monkeypatch.setattr(house.manager, "check", abort)
    with pytest.raises(CleaningAborted):
        house.manager.clean_now(T)
    assert house.manager.state_of(T) == IDLE


def test_figures_of_a_topic_that_was_just_deleted_hold_none_of_its_segments(house: House) -> None:
    """Asked by a thread that still had the log, they were held until a topic of that name was deleted."""
    log = house.log("t")
    house.put("t", ("a", "1"), ("a", ""))
    statistics.ensure(log.segments[0])
    segments = [weakref.ref(one) for one in log.segments]
    house.manager.forget(T)
    assert house.manager.empty_values(log) == 1
    house.logs.delete(T)
    del log
    house.results.clear()
    gc.collect()
    assert [one() for one in segments] == [None, None]
