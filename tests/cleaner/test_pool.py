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
from cleaner.offset_map import ENTRY_BYTES, BufferTooSmall
from cleaner.pool import CleanerPool, Worker
from cleaner.priority import LOWEST, NICENESS
from cleaner.states import IDLE, Phase
from config.definition import ConfigError
from storage.layout import TopicPartition
from tests.cleaner.house import House
from tests.waiting import wait_for

Make = Callable[..., tuple[House, CleanerPool]]
T = TopicPartition("t", 0)


def wait_until_throttled(house: House) -> None:
    """Return when a cleaning waits for its turn to read."""
    throttle = house.manager.throttle
    wait_for(lambda: throttle.reserve(0) > 0, "the throttle")


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


def test_held_threads_clean_nothing_and_look_after_retention(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the kernels are there: a stop would wait for the compiler that a cleaning waits for."""
    house, pool = make(log_cleaner_backoff_ms=10)
    turns: list[int] = []
    monkeypatch.setattr(house.manager, "expire", lambda *_: turns.append(0))
    house.put("t", ("a", "1"), ("a", "2"))
    pool.hold()
    pool.start()
    wait_for(lambda: len(turns) > 2, "retention")
    assert not house.checkpoints()
    pool.go_on()
    wait_for(lambda: house.checkpoints(), "a cleaning")


@pytest.mark.parametrize(("backoff_ms", "seconds"), [(0, 0.01), (9, 0.01), (15_000, 15)])
def test_a_pause_of_nothing_keeps_no_thread_busy(make: Make, backoff_ms: int, seconds: float) -> None:
    house, _ = make(log_cleaner_backoff_ms=backoff_ms)
    worker, paused = Worker(house.manager, 0), []

    class Pause(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            paused.append(timeout)
            worker.request_stop()
            return True

    worker._wake = Pause()
    worker.thread.start()
    worker.thread.join()
    assert paused == [seconds]


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
    wait_until_throttled(house)
    assert house.checkpoints() == {}
    pool.reconfigure(dataclasses.replace(house.config, log_cleaner_io_max_bytes_per_second=1e308))
    wait_for(lambda: house.checkpoints(), "a cleaning without a limit")


def test_t28_a_shorter_pause_holds_from_now_on(make: Make) -> None:
    """Not only for the look that new settings bring about themselves."""
    house, pool = make(log_cleaner_backoff_ms=3_600_000)
    pool.start()
    wait_for(lambda: house.manager.statistics.last_run_ms, "a first look")
    pool.reconfigure(dataclasses.replace(house.config, log_cleaner_backoff_ms=10))
    for end in (2, 4, 6):
        house.put("t", ("a", "1"), ("a", "2"))
        wait_for(lambda end=end: house.checkpoints() == {T: end}, "a cleaning that nobody asked for")


SLOTS = 40


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("log_cleaner_dedupe_buffer_size", 10 * ENTRY_BYTES, 1 << 20),
        ("log_cleaner_io_buffer_load_factor", 0.25, 0.9),
    ],
)
def test_t28_a_larger_map_takes_more_keys_in_a_round(
    make: Make, key: str, before: float, after: float
) -> None:
    """30 keys, and room for 9 or 10 of them: several rounds; for the threads that come after, one."""
    house, pool = make(**{"log_cleaner_dedupe_buffer_size": SLOTS * ENTRY_BYTES, key: before})
    room = int(SLOTS * 0.25) if "factor" in key else int(10 * house.config.log_cleaner_io_buffer_load_factor)
    pool.start()

    def ends(topic: str) -> list[int]:
        """Where each round came to."""
        topic_partition = house.log(topic, min_cleanable_dirty_ratio=0.01).topic_partition
        house.put(topic, *((str(number), "v") for number in range(30)))
        wait_for(lambda: house.checkpoints().get(topic_partition) == 30, "all rounds")
        wait_for(lambda: house.manager.state_of(topic_partition) == IDLE, "the end of the last")
        return [one.end_offset for one in house.results if one.topic_partition == topic_partition]

    assert ends("small") == [*range(room, 30, room), 30]
    pool.reconfigure(dataclasses.replace(house.config, **{key: after}))
    assert ends("large") == [30]


def test_t28_one_more_thread_cleans_one_more_log_at_the_same_time(make: Make) -> None:
    house, pool = make(log_cleaner_threads=1, log_cleaner_io_max_bytes_per_second=1.0)
    both = [TopicPartition(topic, 0) for topic in "ab"]
    for one in both:
        house.put(one.topic, ("a", "1"), ("a", "2"))

    def cleaned_now() -> int:
        return sum(house.manager.state_of(one).phase is Phase.IN_PROGRESS for one in both)

    pool.start()
    wait_until_throttled(house)
    assert cleaned_now() == 1
    pool.reconfigure(dataclasses.replace(house.manager.config, log_cleaner_threads=2))
    wait_for(lambda: cleaned_now() == 2, "the second thread")
    assert house.checkpoints() == {}
    fast = dataclasses.replace(house.manager.config, log_cleaner_io_max_bytes_per_second=1e308)
    pool.reconfigure(fast)
    wait_for(lambda: house.checkpoints() == dict.fromkeys(both, 2), "both")


def test_t30_a_buffer_for_no_key_is_refused_at_the_start(make: Make) -> None:
    _, pool = make(log_cleaner_dedupe_buffer_size=40, log_cleaner_threads=2)
    with pytest.raises(BufferTooSmall, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        pool.start()


def test_t42_a_stop_ends_a_running_cleaning(make: Make) -> None:
    house, pool = make(log_cleaner_io_max_bytes_per_second=1.0)
    house.put("t", ("a", "1"), ("a", "2"))
    pool.start()
    wait_until_throttled(house)
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


def test_t179_a_dead_thread_counts_until_it_lives_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeadThreadCount, while its new life is held up by the test; the other thread cleans meanwhile."""
    house, pool = make(log_cleaner_threads=2)
    statistics = house.manager.statistics
    grab = house.manager.grab
    victims: list[str] = []

    def die_once() -> object:
        name = threading.current_thread().name
        if not victims:
            victims.append(name)
            raise RuntimeError("a bug of ours")
        assert victims != [name] or statistics.worker_restarts, "the dead do not work"
        return grab()

    monkeypatch.setattr(pool_module, "RESTART_SECONDS", 3600.0)
    monkeypatch.setattr(house.manager, "grab", die_once)
    pool.start()
    wait_for(lambda: statistics.dead_threads == 1, "the death")
    house.put("t", ("a", "1"), ("a", "2"))
    wait_for(lambda: house.checkpoints(), "a cleaning by the other thread")
    assert (statistics.dead_threads, statistics.worker_restarts) == (1, 0)
    (dead,) = [worker for worker in pool._workers if worker.thread.name == victims[0]]
    assert dead.thread.is_alive()
    pool.stop()
    assert (statistics.dead_threads, statistics.worker_restarts) == (0, 1)


def test_t122_a_topic_is_deleted_while_it_is_cleaned(make: Make) -> None:
    house, pool = make(log_cleaner_io_max_bytes_per_second=1.0)
    house.put("t", ("a", "1"), ("a", "2"))
    pool.start()
    wait_until_throttled(house)
    house.logs.logs.pop(T).abandon()
    aborting = threading.Thread(target=lambda: house.manager.abort_and_pause(T))
    aborting.start()
    pool.reconfigure(dataclasses.replace(house.config, log_cleaner_io_max_bytes_per_second=1e308))
    aborting.join(60)
    assert not aborting.is_alive()
    assert house.checkpoints() == {}


def test_t29_a_cleaning_that_waits_ends_when_the_topic_is_compacted_no_more(make: Make) -> None:
    house, pool = make(log_cleaner_io_max_bytes_per_second=1.0)
    house.put("t", ("a", "1"), ("a", "2"))
    pool.start()
    wait_until_throttled(house)
    log = house.log("t")
    log.update_config(dataclasses.replace(log.config, cleanup_policy=frozenset({"delete"})))
    wait_for(lambda: house.manager.state_of(T) == IDLE, "the end of the cleaning")
    assert house.manager.statistics.aborted_runs == 1
    assert [one.value for one in house.records("t")] == [b"1", b"2"]


@pytest.mark.parametrize("ends", ["aborted", "compacted no more", "failed"])
def test_a_cleaning_that_comes_to_nothing_holds_up_no_other_log(make: Make, ends: str) -> None:
    """The thread looks at once for what else is dirty, and does not sleep first: here that were an hour."""
    settings = {"log_cleaner_threads": 1, "log_cleaner_backoff_ms": 3_600_000}
    house, pool = make(**settings, log_cleaner_io_max_bytes_per_second=1.0)
    house.put("t", ("a", "1"), ("a", "2"), ("a", "3"))
    if ends == "failed":
        house.damage("t")
    pool.start()
    wait_until_throttled(house)
    house.put("u", ("a", "1"), ("a", "2"))
    log = house.log("t")
    if ends == "aborted":
        threading.Thread(target=house.manager.abort_and_pause, args=(T,)).start()
        wait_for(lambda: house.manager.state_of(T).phase is not Phase.IN_PROGRESS, "the abort")
    elif ends == "compacted no more":
        log.update_config(dataclasses.replace(log.config, cleanup_policy=frozenset({"delete"})))
        wait_for(lambda: house.manager.state_of(T) == IDLE, "the end of the cleaning")
    house.manager.throttle.set_rate(1e308)
    wait_for(lambda: TopicPartition("u", 0) in house.checkpoints(), "the other log's cleaning")
    assert T not in house.checkpoints()


def test_t135_a_cleaning_that_takes_for_ever_holds_up_no_retention(make: Make) -> None:
    """The thread that cleans is the one that looks after compact,delete (T133): the disk would get full."""
    house, pool = make(log_cleaner_threads=1, log_cleaner_io_max_bytes_per_second=1.0)
    house.put("t", ("a", "1"), ("a", "2"))
    pool.start()
    wait_until_throttled(house)
    log = house.log("u", cleanup_policy="compact,delete", retention_ms=1000)
    house.put("u", ("a", "1"))
    house.put("u", ("b", "1"))
    house.now_ms += 3_600_000
    house.put("u", ("c", "1"), roll=False)
    wait_for(lambda: log.log_start_offset == 2, "retention")
    assert house.manager.state_of(T).phase is Phase.IN_PROGRESS


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
