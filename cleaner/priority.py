"""How a cleaner thread gives way to the threads that serve clients, its own process's and others'.

A higher nice value gives it the smaller share of a busy core. How long others wait for that core is another
matter, see `pauses.py`.
"""

from __future__ import annotations

import contextlib
import os
import threading

NICENESS = 10
LOWEST = 19


def give_way() -> None:
    """Let whoever serves a client have the core first. Linux takes a thread for a process here."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):  # a container may forbid it; nothing rests on it
        niceness = min(os.getpriority(os.PRIO_PROCESS, thread) + NICENESS, LOWEST)
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
