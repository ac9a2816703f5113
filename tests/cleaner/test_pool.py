"""Goal: the threads clean by themselves, obey new settings, stop when told, and survive our own bugs.

Method: real threads over real logs; conditions are waited for.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cleaner import pool as pool_module
from cleaner.offset_map import BufferTooSmall
from cleaner.pool import CleanerPool
from cleaner.priority import LOWEST, NICENESS
from config.definition import ConfigError
from storage.layout import TopicPartition
from tests.cleaner.house import House
from tests.waiting import wait_for

Make = Callable[..., tuple[House, CleanerPool]]
T = TopicPartition("t", 0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[tuple[House, CleanerPool]] = []

    def make_one(**settings: Any) -> tuple[House, CleanerPool]:
        house = House(tmp_path / str(len(made)), **settings)
        made.append((house, CleanerPool(house.manager)))
        return made[-1]

    yield make_one
    for house, pool in made:
        pool.stop()
        house.close()


def test_t26_the_threads_find_what_is_dirty_and_sleep_otherwise(make: Make) -> None:
    house, pool = make(log_cleaner_threads=2)
    pool.start()
    for topic in ("a", "b", "c"):
        house.put(topic, ("a", "1"), ("a", "2"))
    wait_for(lambda: len(house.checkpoints()) == 3, "three cleanings")
    house.put("a", ("a", "3"), ("a", "4"))
    wait_for(lambda: house.checkpoints()[TopicPartition("a", 0)] == 4, "a fourth")
    assert house.table("a") == {"a": "4"}
    pool.stop()
    assert not [one for one in threading.enumerate() if one.name.startswith("cleaner-")]


def test_t26_a_long_sleep_can_be_cut_short(make: Make) -> None:
    house, pool = make(log_cleaner_backoff_ms=3_600_000)
    pool.start()
    wait_for(lambda: house.manager.statistics.last_run_ms, "a first look")
    house.put("t", ("a", "1"), ("a", "2"))
    pool.wake()
    wait_for(lambda: house.checkpoints(), "a cleaning")


def test_the_threads_let_others_go_first(make: Make) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    _, pool = make()
    pool.start()
    (thread,) = [one for one in threading.enumerate() if one.name.startswith("cleaner-")]
    native_id = thread.native_id
    assert native_id is not None
    expected = min(own + NICENESS, LOWEST)
    wait_for(lambda: os.getpriority(os.PRIO_PROCESS, native_id) == expected, "its priority")
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_t27_threads_may_be_halved_or_doubled_but_not_more(make: Make) -> None:
    house, pool = make(log_cleaner_threads=2)
    pool.start()
    for count in (0, 5):
        with pytest.raises(ConfigError):
            pool.reconfigure(dataclasses.replace(house.config, log_cleaner_threads=count))
    for count in (4, 2, 1):
        pool.reconfigure(dataclasses.replace(house.config, log_cleaner_threads=count))
        assert sum(one.name.startswith("cleaner-") for one in threading.enumerate()) == count
    house.put("t", ("a", "1"), ("a", "2"))
    wait_for(lambda: house.checkpoints(), "a cleaning by the new thread")


def test_t27_before_the_start_any_number_is_taken(make: Make) -> None:
    house, pool = make(log_cleaner_threads=1)
    pool.reconfigure(dataclasses.replace(house.config, log_cleaner_threads=8))
    assert not pool.is_running
    assert house.manager.config.log_cleaner_threads == 8


def test_t28_without_a_buffer_nothing_is_cleaned_until_there_is_one(make: Make) -> None:
    house, pool = make(log_cleaner_io_buffer_size=1)
    house.put("t", ("a", "1"), ("a", "2"))
    pool.start()
    with pytest.raises(ValueError, match=r"io\.buffer\.size"):
        house.manager.make_cleaner(lambda size: None)
    assert house.checkpoints() == {}
    pool.reconfigure(dataclasses.replace(house.config, log_cleaner_io_buffer_size=1 << 16))
    wait_for(lambda: house.checkpoints(), "a cleaning with a larger buffer")


def test_t28_the_rate_can_be_changed_while_a_cleaning_waits_for_it(make: Make) -> None:
    house, pool = make(log_cleaner_io_max_bytes_per_second=1.0)
    house.put("t", ("a", "1"), ("a", "2"))
    pool.start()
    wait_for(lambda: house.manager.throttle.seconds_waited > 0, "the throttle")
    assert house.checkpoints() == {}
    pool.reconfigure(dataclasses.replace(house.config, log_cleaner_io_max_bytes_per_second=1e308))
    wait_for(lambda: house.checkpoints(), "a cleaning without a limit")


def test_t30_a_buffer_for_no_key_is_refused_at_the_start(make: Make) -> None:
    _, pool = make(log_cleaner_dedupe_buffer_size=40, log_cleaner_threads=2)
    with pytest.raises(BufferTooSmall, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        pool.start()


def test_t42_a_stop_ends_a_running_cleaning(make: Make) -> None:
    house, pool = make(log_cleaner_io_max_bytes_per_second=1.0)
    house.put("t", ("a", "1"), ("a", "2"))
    pool.start()
    wait_for(lambda: house.manager.throttle.seconds_waited > 0, "the throttle")
    pool.stop()
    assert house.checkpoints() == {}
    assert [one.offset for one in house.records("t")] == [0, 1]


def test_t179_a_thread_that_dies_is_started_anew(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "RESTART_SECONDS", 0.01)
    house, pool = make()
    deaths = threading.Event()
    grab = house.manager.grab

    def die_once() -> object:
        if not deaths.is_set():
            deaths.set()
            raise RuntimeError("a bug of ours")
        return grab()

    monkeypatch.setattr(house.manager, "grab", die_once)
    house.put("t", ("a", "1"), ("a", "2"))
    pool.start()
    wait_for(lambda: house.checkpoints(), "a cleaning after the death")
    assert house.manager.statistics.worker_restarts == 1
    assert house.manager.statistics.dead_threads == 0


def test_t122_a_topic_is_deleted_while_it_is_cleaned(make: Make) -> None:
    house, pool = make(log_cleaner_io_max_bytes_per_second=1.0)
    house.put("t", ("a", "1"), ("a", "2"))
    pool.start()
    wait_for(lambda: house.manager.throttle.seconds_waited > 0, "the throttle")
    house.logs.logs.pop(T).abandon()
    aborting = threading.Thread(target=lambda: house.manager.abort_and_pause(T))
    aborting.start()
    pool.reconfigure(dataclasses.replace(house.config, log_cleaner_io_max_bytes_per_second=1e308))
    aborting.join(60)
    assert not aborting.is_alive()
    assert house.checkpoints() == {}


def test_settings_that_come_during_a_stop_start_no_thread(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stops closes its logs next: no cleaning may begin then."""
    _, pool = make(log_cleaner_threads=1)
    pool.start()
    stopping, may_go_on = threading.Event(), threading.Event()
    stop_workers = pool._stop_workers

    def slowly() -> None:
        stopping.set()
        assert may_go_on.wait(30)
        stop_workers()

    monkeypatch.setattr(pool, "_stop_workers", slowly)
    config = dataclasses.replace(pool._manager.config, log_cleaner_threads=2)
    reconfiguring = threading.Thread(target=pool.reconfigure, args=(config,))
    reconfiguring.start()
    assert stopping.wait(30)
    ending = threading.Thread(target=pool.stop)
    ending.start()
    may_go_on.set()
    reconfiguring.join(30)
    ending.join(30)
    assert not pool.is_running
    assert pool._workers == []
    pool.reconfigure(dataclasses.replace(config, log_cleaner_threads=4))
    assert pool._workers == []
