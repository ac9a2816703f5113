"""How kernels let others have their core: after each 128 KiB of work they ask whether somebody waits for it.

A thread that wakes up gets a busy core at once only if the scheduler thinks that it is due; else it waits for
the clock's next tick, 4 ms at 250 a second. An acks=all produce is a chain of wake-ups, in the kernel and
here, so that one in fifty waited so long while keys were mapped. `sched_yield` asks at once; where nobody
waits it costs half a microsecond.

Whoever yields gives up what is left of its slice (Linux's `yield_task_fair`), at the cleaner's priority ten
times its length of others' work: beside programs that never sleep little would ever be cleaned. So a long
wait is made up for by work without a yield, for about the share that the priority promises.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from cleaner.offset_map import Longs
from protocol.kernel import kernel
from protocol.native import MISSING, clock_call, libc_address, yield_call

PIECE_BYTES = 128 * 1024
LONG_WAIT_NS = 1_000_000
LONGEST_WAIT_NS = 100_000_000
"""what is made up for of a longer one: the whole process may have been stopped meanwhile"""
WAIT_TO_WORK = 2
"""a wait of so many ns is made up for by one of the processor's"""
CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID = 1, 3
SECOND_NS = 1_000_000_000

# The numbers carried from call to call.
BYTES_LEFT = 0  # of work, until the next question
MADE_UP_AT_NS = 1  # the thread's own time on a processor until which there is none
STATE_NUMBERS = 2


class Pauses(NamedTuple):
    """When a thread asks next. Owned by: one cleaner thread."""

    sched_yield: int
    clock_gettime: int
    time: Longs
    """seconds and ns: what the clock said last"""
    state: Longs


def new_pauses() -> Pauses:
    state = numpy.zeros(STATE_NUMBERS, numpy.int64)
    state[BYTES_LEFT] = PIECE_BYTES
    time = numpy.zeros(2, numpy.int64)
    return Pauses(libc_address("sched_yield"), libc_address("clock_gettime"), time, state)


@kernel
def now_ns(pauses: Pauses, clock: int) -> int:
    clock_call(pauses.clock_gettime, clock, pauses.time.ctypes.data)
    return pauses.time[0] * SECOND_NS + pauses.time[1]  # type: ignore[no-any-return]


@kernel
def work_done(size_bytes: int, pauses: Pauses) -> None:
    """So much was read, mapped or filtered: ask if it is time to."""
    pauses.state[BYTES_LEFT] -= size_bytes
    if pauses.state[BYTES_LEFT] > 0:
        return
    pauses.state[BYTES_LEFT] = PIECE_BYTES
    if pauses.sched_yield == MISSING or pauses.clock_gettime == MISSING:
        return
    made_up_at = pauses.state[MADE_UP_AT_NS]
    if made_up_at and now_ns(pauses, CLOCK_THREAD_CPUTIME_ID) < made_up_at:
        return
    began = now_ns(pauses, CLOCK_MONOTONIC)
    yield_call(pauses.sched_yield)
    waited = now_ns(pauses, CLOCK_MONOTONIC) - began
    pauses.state[MADE_UP_AT_NS] = 0
    if waited > LONG_WAIT_NS:
        credit = min(waited, LONGEST_WAIT_NS) // WAIT_TO_WORK
        pauses.state[MADE_UP_AT_NS] = now_ns(pauses, CLOCK_THREAD_CPUTIME_ID) + credit
