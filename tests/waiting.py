"""Waiting for a condition, with a generous limit: the only way a test may let time pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pytest

T = TypeVar("T")
LIMIT_SECONDS = 60.0
_never = threading.Event()


def wait_for(condition: Callable[[], T], what: object = "", limit_s: float = LIMIT_SECONDS) -> T:
    """Call `condition` until it returns something true, and return that; AssertionError after `limit_s` s,
    which shows `what` as it is then: a list may hold what was found last.
    """
    deadline = time.monotonic() + limit_s
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, (
            f"waited {limit_s:g} s in vain for {what or condition}; last: {result!r}"
        )
        _never.wait(0.02)


def noted_sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds this thread wants to sleep, from now on: it does not. All others of the process do (of
    PySpark's and the clients' some do nothing else).
    """
    slept: list[float] = []
    own, sleep = threading.get_ident(), time.sleep

    def note(seconds: float) -> None:
        if threading.get_ident() == own:
            slept.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", note)
    return slept
