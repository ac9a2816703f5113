"""Goal: pauses, aborts and cleanings of a partition follow each other legally, and the throttle keeps its
rate.

Method: every move from every state; a clock made of numbers.
"""

from __future__ import annotations

import pytest

from cleaner.states import IDLE, CleaningState, IllegalMove, Move, Phase, after
from cleaner.throttle import Throttle


def walk(*moves: Move) -> CleaningState:
    state = IDLE
    for move in moves:
        state = after(state, move)
    return state


def test_t123_two_pauses_need_two_resumes() -> None:
    assert walk(Move.ABORT, Move.ABORT, Move.RESUME) == CleaningState(Phase.PAUSED, 1)
    assert walk(Move.ABORT, Move.ABORT, Move.RESUME, Move.RESUME) == IDLE


def test_t123_a_resume_without_a_pause_is_an_error() -> None:
    with pytest.raises(IllegalMove):
        walk(Move.RESUME)
    with pytest.raises(IllegalMove):
        walk(Move.BEGIN, Move.RESUME)


def test_t123_an_aborted_cleaning_ends_paused() -> None:
    assert walk(Move.BEGIN, Move.ABORT) == CleaningState(Phase.ABORTED, 1)
    assert walk(Move.BEGIN, Move.ABORT, Move.DONE) == CleaningState(Phase.PAUSED, 1)
    assert walk(Move.BEGIN, Move.ABORT, Move.ABORT, Move.DONE, Move.RESUME) == CleaningState(Phase.PAUSED, 1)
    assert walk(Move.BEGIN, Move.ABORT, Move.RESUME, Move.DONE) == IDLE


def test_a_cleaning_that_is_left_alone_ends_idle() -> None:
    assert walk(Move.BEGIN).phase is Phase.IN_PROGRESS
    assert walk(Move.BEGIN, Move.DONE) == IDLE


@pytest.mark.parametrize(
    "moves",
    [(Move.DONE,), (Move.BEGIN, Move.BEGIN), (Move.ABORT, Move.BEGIN), (Move.ABORT, Move.DONE)],
    ids=str,
)
def test_t123_what_nobody_began_cannot_end(moves: tuple[Move, ...]) -> None:
    with pytest.raises(IllegalMove):
        walk(*moves)


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("chunk", [1, 1000, 70_000])
def test_t28_the_throttle_holds_its_rate_within_a_tenth(chunk: int) -> None:
    clock = Seconds()
    throttle = Throttle(10_000.0, clock)
    total = 0
    while total < 200_000:
        clock.now += throttle.reserve(chunk)
        total += chunk
    assert total / clock.now == pytest.approx(10_000, rel=0.1)


def test_t28_a_new_rate_holds_from_the_next_chunk_on() -> None:
    clock = Seconds()
    throttle = Throttle(1.0, clock)
    assert throttle.reserve(1000) > 900
    throttle.set_rate(1e308)
    assert throttle.reserve(1000) < 0.001


def test_the_throttle_is_shared() -> None:
    clock = Seconds()
    throttle = Throttle(1000.0, clock)
    first = throttle.reserve(1000)
    assert throttle.reserve(1000) == pytest.approx(first + 1)


def test_unused_time_is_not_saved_up() -> None:
    clock = Seconds()
    throttle = Throttle(1000.0, clock)
    clock.now = 3600.0
    assert throttle.reserve(1000) > 0.8
