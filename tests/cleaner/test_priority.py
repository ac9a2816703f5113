"""Goal: a thread that gives way has a smaller share and a long slice; nobody else's change.

Method: a thread of this process gives way, and the system is asked what it made of that.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading

import pytest

from cleaner.priority import ATTRIBUTES, LOWEST, NICENESS, SLICE_NS, SYSTEM_CALLS, give_way

SINCE = (6, 12)
"""the kernel that lets threads choose their slice"""


def slice_ns() -> int:
    """Of the calling thread, by `sched_getattr`, whose number follows that of `sched_setattr`."""
    found = ctypes.create_string_buffer(ATTRIBUTES.size)
    number = ctypes.c_long(SYSTEM_CALLS[platform.machine()] + 1)
    assert ctypes.CDLL(None).syscall(number, 0, found, ATTRIBUTES.size, 0) == 0
    runtime: int = ATTRIBUTES.unpack(found.raw)[5]
    return runtime


def test_a_thread_gives_way() -> None:
    own, own_slice = os.getpriority(os.PRIO_PROCESS, 0), slice_ns()
    seen: list[tuple[int, int]] = []

    def run() -> None:
        give_way()
        seen.append((os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), slice_ns()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    version = tuple(map(int, platform.release().split(".")[:2]))
    assert seen == [(min(own + NICENESS, LOWEST), SLICE_NS if version >= SINCE else own_slice)]
    assert (os.getpriority(os.PRIO_PROCESS, 0), slice_ns()) == (own, own_slice)


def test_an_unknown_machine_has_a_smaller_share_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setattr("ctypes.CDLL", None)
    seen: list[int] = []

    def run() -> None:
        give_way()
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    own = os.getpriority(os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [min(own + NICENESS, LOWEST)]
