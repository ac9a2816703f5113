"""Goal: whatever happens to logs, a look finds what weighing each of them anew would find, and logs to which
nothing happened are not weighed again.

Method: logs, a manager and a clock (`house.py`) to which dice do what happens to logs: records, rolls,
cleanings, deleted heads, other settings, pauses, errors, time. The manager's own look, and one of the test's
own, are held against `assess` after each step.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.last_look import FOREVER_MS, LastLook, figures_of, stays_until_ms
from cleaner.selection import Assessment
from protocol.control import Marker, marker_batch
from protocol.records import encode_batch
from storage.log import Log
from storage.types import Origin
from tests.cleaner.house import House

HOUR_MS = 3_600_000
LAGS = {"min_compaction_lag_ms": 2 * HOUR_MS, "max_compaction_lag_ms": 9 * HOUR_MS}
CONFIGS: tuple[dict[str, object], ...] = (
    {},
    LAGS,
    {"min_cleanable_dirty_ratio": 0.9},
    {"compaction_expired_tombstones_enable": True, "delete_retention_ms": HOUR_MS},
    {"cleanup_policy": frozenset({"compact", "delete"})},
)
TOPICS = ("a", "b", "c", "d")


class Looker:
    """A look of its own at the logs of a house. Counts what it has to weigh."""

    def __init__(self, house: House) -> None:
        self._house, self._look = house, LastLook()
        self.weighed: list[str] = []

    def look(self) -> list[tuple[Log, Assessment]]:
        manager, now_ms = self._house.manager, self._house.now_ms
        self.weighed = []

        def assess(log: Log) -> Assessment:
            self.weighed.append(log.topic_partition.topic)
            return manager.assess(log)

        def state_of(log: Log) -> tuple[object, ...]:
            return figures_of(log), manager.checkpoints.changes, manager._held(log, now_ms)

        logs = [log for log in self._house.logs.logs.values() if log.config.is_compacted]
        return self._look.over(logs, now_ms, state_of, assess)


def happenings(house: House, dice: random.Random) -> dict[str, Callable[[str], object]]:
    manager = house.manager
    paused: list[str] = []
    sequences: dict[str, int] = {}
    undecided: list[str] = []

    def pause_or_resume(topic: str) -> None:
        partition = house.log(topic).topic_partition
        if topic in paused:
            manager.resume(partition)
            paused.remove(topic)
        else:
            manager.abort_and_pause(partition)
            paused.append(topic)

    def pass_time(_: str) -> None:
        house.now_ms += dice.choice((1, 999, HOUR_MS - 1, HOUR_MS, 3 * HOUR_MS, 30 * HOUR_MS))

    def alter(topic: str) -> None:
        log = house.log(topic)
        log.update_config(dataclasses.replace(log.config, **dice.choice(CONFIGS)))

    def delete_head(topic: str) -> None:
        log = house.log(topic)
        if log.config.is_deleted:
            log.delete_records(dice.randint(log.log_start_offset, log.high_watermark))

    def put(topic: str) -> None:
        values = ("1", "2", None)
        pairs = [(dice.choice("klmn"), dice.choice(values)) for _ in range(dice.randint(1, 3))]
        house.put(topic, *pairs, roll=dice.random() < 0.6)

    def transact(topic: str) -> None:
        """Begin one with a record, or end it."""
        log, now_ms, sequence = house.log(topic), house.now_ms, sequences.get(topic, 0)
        if topic in undecided:
            undecided.remove(topic)
            marker = marker_batch(Marker(True), producer_id=7, producer_epoch=0, now_ms=now_ms)
            log.append(marker, now_ms=now_ms, origin=Origin.COORDINATOR)
            return
        undecided.append(topic)
        sequences[topic] = sequence + 1
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        batch = encode_batch([(now_ms, b"k", b"t", ())], is_transactional=True, **producer)
        log.append(batch, now_ms=now_ms)

    def set_checkpoint(topic: str) -> None:
        log = house.log(topic)
        offset = dice.randint(log.log_start_offset, log.log_end_offset + 1)
        manager.checkpoints.put(log.directory.parent, log.topic_partition, offset)

    def set_aside(topic: str) -> None:
        manager._set_aside(house.log(topic), ValueError("dice"), house.now_ms)

    return {
        "put": put,
        "clean": lambda topic: house.clean(),
        "time": pass_time,
        "alter": alter,
        "delete head": delete_head,
        "pause or resume": pause_or_resume,
        "set aside": set_aside,
        "roll": lambda topic: house.log(topic).roll(house.now_ms),
        "transact": transact,
        "set checkpoint": set_checkpoint,
    }


@pytest.mark.parametrize("seed", range(20))
def test_a_look_finds_what_is_found_anew(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    house = House(tmp_path)
    can = happenings(house, dice)
    looker, weights = Looker(house), (8, 2, 3, 2, 1, 1, 0.3, 1, 3, 1)
    for topic in TOPICS:
        house.put(topic, ("k", "1"))
    for step in range(60):
        kind = dice.choices([*can], weights)[0]
        can[kind](dice.choice(TOPICS))
        looked = looker.look()
        for log, found in looked:
            anew = house.manager.assess(log)
            told = f"step {step} of seed {seed}, {kind}: {log.topic_partition}"
            assert dataclasses.replace(found, now_ms=anew.now_ms) == anew, told
        grabbed = house.manager.grab()
        told = f"step {step} of seed {seed}, {kind}"
        able = [one for _, one in looked if one.is_cleanable]
        assert (grabbed is None) == (not able), told
        delay_ms = max(one.compaction_delay_ms for _, one in looked)
        assert house.manager.statistics.max_compaction_delay_secs == delay_ms / 1000, told
        if grabbed is not None:
            assert house.manager.assess(grabbed.log).reason is not None, "it is ours now"
            house.manager.clean(house.manager.make_cleaner(lambda size: None), grabbed)


def test_only_what_changed_is_weighed(tmp_path: Path) -> None:
    house = House(tmp_path)
    looker = Looker(house)
    for topic in TOPICS:
        house.put(topic, ("k", "1"), roll=False)
    looker.look()
    assert looker.weighed == [*TOPICS]
    looker.look()
    assert looker.weighed == []
    house.put("b", ("k", "2"), roll=False)
    house.now_ms += 50 * HOUR_MS
    looker.look()
    assert looker.weighed == ["b"]
    house.now_ms -= 100 * HOUR_MS  # a clock that was put right
    looker.look()
    assert looker.weighed == [*TOPICS]


def test_a_log_to_clean_of_expired_tombstones_is_weighed_each_time(tmp_path: Path) -> None:
    """When they expire may be found in statistics that nothing in the log tells of."""
    house = House(tmp_path)
    looker = Looker(house)
    house.log("a", compaction_expired_tombstones_enable=True)
    house.put("a", ("k", None))
    for _ in range(2):
        looker.look()
        assert looker.weighed == ["a"]


def test_a_log_that_waits_for_a_time_is_weighed_when_it_comes(tmp_path: Path) -> None:
    house = House(tmp_path)
    looker = Looker(house)
    house.log("a", **LAGS)
    house.put("a", ("k", "1"), ("k", "2"))
    ((_, found),) = looker.look()
    due_ms = stays_until_ms(found)
    assert due_ms == found.lag_ends_ms == house.now_ms + LAGS["min_compaction_lag_ms"]
    house.now_ms = due_ms - 1
    looker.look()
    assert looker.weighed == []
    house.now_ms = due_ms
    ((_, found),) = looker.look()
    assert (looker.weighed, found.is_cleanable) == (["a"], True)
    assert stays_until_ms(found) == house.now_ms, "whether it is the dirtiest is asked again each time"


def test_a_log_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    house = House(tmp_path)
    look = LastLook()
    house.put("a", ("k", "1"), roll=False)
    log = house.log("a")
    found = house.manager.assess(log)
    assert stays_until_ms(found) == FOREVER_MS
    assert look.over([log], house.now_ms, lambda log: 0, lambda log: found) == [(log, found)]
    assert look.over([], house.now_ms, lambda log: 0, lambda log: found) == []
    assert look.over([log], house.now_ms, lambda log: 0, lambda log: None) == []
