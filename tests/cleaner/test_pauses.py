"""Goal: kernels ask after a piece of work whether somebody waits for their core, and beside others that never
sleep they still get on.

Method: functions of this test in place of the system's, with a clock that only they move; a cleaning with
them; the system's own.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cleaner import reading
from cleaner.mapping import Mapper
from cleaner.pauses import (
    BYTES_LEFT,
    CLOCK_MONOTONIC,
    CLOCK_THREAD_CPUTIME_ID,
    LONG_WAIT_NS,
    LONGEST_WAIT_NS,
    PIECE_BYTES,
    SECOND_NS,
    WAIT_TO_WORK,
    new_pauses,
    now_ns,
    work_done,
)
from cleaner.reading import ChunkReader
from cleaner.rewriting import Rewriter
from protocol.compression import Codec
from protocol.native import MISSING, libc_address
from tests.cleaner.conftest import MakeWorld
from tests.cleaner.world import World

START_NS = 7 * SECOND_NS + 5
YIELD = ctypes.CFUNCTYPE(ctypes.c_int32)
CLOCK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_size_t)


@pytest.fixture
def system() -> Iterator[SimpleNamespace]:
    """`yields` counts, `wait_ns` is how long each takes, `now` what both clocks say."""
    made = SimpleNamespace(yields=0, wait_ns=0, now={CLOCK_MONOTONIC: START_NS, CLOCK_THREAD_CPUTIME_ID: 9})

    @YIELD
    def sched_yield() -> int:
        made.yields += 1
        made.now[CLOCK_MONOTONIC] += made.wait_ns
        return 0

    @CLOCK
    def clock_gettime(which: int, address: int) -> int:
        (ctypes.c_int64 * 2).from_address(address)[:] = divmod(made.now[which], SECOND_NS)
        return 0

    addresses = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in (sched_yield, clock_gettime)]
    made.pauses = new_pauses()._replace(sched_yield=addresses[0], clock_gettime=addresses[1])
    yield made


def test_others_are_let_in_after_each_piece(system: SimpleNamespace) -> None:
    for _ in range(10):
        work_done(PIECE_BYTES - 1, system.pauses)
        before = system.yields
        work_done(1, system.pauses)
        assert system.yields == before + 1
    work_done(100 * PIECE_BYTES, system.pauses)
    assert system.yields == 11
    assert now_ns(system.pauses, CLOCK_MONOTONIC) == START_NS


def test_a_long_wait_is_made_up_for(system: SimpleNamespace) -> None:
    """Or little would ever be cleaned beside programs that never sleep."""
    system.wait_ns = LONG_WAIT_NS
    work_done(PIECE_BYTES, system.pauses)
    work_done(PIECE_BYTES, system.pauses)
    assert system.yields == 2, "no longer than a wait may be"
    for wait_ns in (30 * LONG_WAIT_NS, LONGEST_WAIT_NS, 3600 * SECOND_NS):
        system.wait_ns = wait_ns
        before = system.yields
        work_done(PIECE_BYTES, system.pauses)
        assert system.yields == before + 1
        system.now[CLOCK_THREAD_CPUTIME_ID] += min(wait_ns, LONGEST_WAIT_NS) // WAIT_TO_WORK - 1
        system.now[CLOCK_MONOTONIC] += SECOND_NS  # others have worked meanwhile
        for _ in range(5):
            work_done(PIECE_BYTES, system.pauses)
        assert system.yields == before + 1
        system.now[CLOCK_THREAD_CPUTIME_ID] += 1
        system.wait_ns = 0
        for _ in range(5):
            work_done(PIECE_BYTES, system.pauses)
        assert system.yields == before + 6


def test_where_the_system_has_no_such_function_work_goes_on(system: SimpleNamespace) -> None:
    for name in ("sched_yield", "clock_gettime"):
        work_done(10 * PIECE_BYTES, system.pauses._replace(**{name: MISSING}))
    assert system.yields == 0
    assert libc_address("no_such_function") == MISSING


def test_the_systems_own() -> None:
    pauses = new_pauses()
    assert MISSING not in pauses[:2]
    before = time.monotonic_ns()
    work_done(PIECE_BYTES, pauses)
    assert before <= now_ns(pauses, CLOCK_MONOTONIC) <= time.monotonic_ns()
    assert 0 < now_ns(pauses, CLOCK_THREAD_CPUTIME_ID) <= time.thread_time_ns()


def fill(world: World, codec: Codec) -> None:
    for number in range(60):
        world.put((f"{number % 7}", "x" * 60_000), codec=codec)
    world.roll()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_cleaning_lets_others_in_at_each_of_its_steps(
    make_world: MakeWorld, system: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    """Of bytes as they are when they are read, and of unpacked ones when they are mapped and filtered."""
    asked: Counter[str] = Counter()
    calls: Counter[str] = Counter()

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*given: Any) -> Any:
            before = system.yields
            system.pauses.state[BYTES_LEFT] = 1
            try:
                return step(*given)
            finally:
                calls[step.__name__] += 1
                asked[step.__name__] += system.yields - before

        return counts

    steps = (ChunkReader._read, Mapper._map_chunk, Rewriter._rewrite_chunk)
    for room, step in zip((ChunkReader, Mapper, Rewriter), steps, strict=True):
        monkeypatch.setattr(room, step.__name__, counted(step))
    monkeypatch.setattr(reading, "new_pauses", lambda: system.pauses)
    world = make_world()
    fill(world, codec)
    world.log.key_hashes.forget()
    world.clean()
    assert len(world.offsets()) == 7
    assert calls["_read"] <= asked["_read"] <= 2 * calls["_read"]
    most = calls["_map_chunk"] + 60 * 60_000 // PIECE_BYTES
    assert most // 2 <= asked["_map_chunk"] <= most
    assert asked["_rewrite_chunk"] > 0
