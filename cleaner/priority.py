"""How a cleaner thread gives way to the threads that serve clients, its own process's and others'.

A higher nice value gives it the smaller share of a busy core. Who waits for how long is another matter: a
thread that wakes up may have to wait until the one that runs has used up its slice, or for the next tick of
the clock, milliseconds each, and an acks=all produce is a chain of such wake-ups. Since Linux 6.12 a thread
may ask for a slice of its own, and one that wakes up with a shorter slice takes the core at once
(`sched_setattr`, PREEMPT_SHORT): so the cleaner asks for the longest there is. Older kernels overlook it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import threading
from struct import Struct

NICENESS = 10
LOWEST = 19
SLICE_NS = 100_000_000
SYSTEM_CALLS = {"x86_64": 314, "aarch64": 274}  # of sched_setattr, which the C library has since 2.41 only
# size, policy, flags, nice, priority, runtime, deadline, period: the first version of `struct sched_attr`
ATTRIBUTES = Struct("=IIQiIQQQ")
SCHED_OTHER = 0


def give_way() -> None:
    """Let whoever serves a client have the core first. Linux takes a thread for a process here."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):  # a container may forbid it; nothing rests on it
        niceness = min(os.getpriority(os.PRIO_PROCESS, thread) + NICENESS, LOWEST)
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
        _ask_for_slice(niceness)


def _ask_for_slice(niceness: int) -> None:
    """For the calling thread; where it cannot be had, nothing happens."""
    number = SYSTEM_CALLS.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != SCHED_OTHER:
        return
    attributes = ATTRIBUTES.pack(ATTRIBUTES.size, SCHED_OTHER, 0, niceness, 0, SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(ctypes.c_long(number), 0, attributes, 0)
