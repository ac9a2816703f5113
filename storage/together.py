"""The same done to many things at once, by as many threads as the system gives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def together(
    function: Callable[[Item], Result], items: Sequence[Item], at_once: int, name: str
) -> list[Result]:
    """`function` of each of `items`, in their order, by this thread and up to `at_once` - 1 others.

    Where no more threads may be started (a container's or a service's limit of processes), those that there
    are do all of it. Raises what `function` raises, when the other threads are done.
    """
    results: dict[int, Result] = {}
    left = deque(enumerate(items))

    def work() -> None:
        while left:
            try:
                number, item = left.popleft()
            except IndexError:  # another was faster
                return
            results[number] = function(item)

    helpers: list[Future[None]] = []
    with ThreadPoolExecutor(max(1, at_once - 1), name) as pool:
        for _ in range(min(at_once, len(items)) - 1):
            try:
                helpers.append(pool.submit(work))
            except RuntimeError:  # it is queued all the same, and finds nothing left if it is ever run
                break
        work()
    for helper in helpers:
        helper.result()
    return [results[number] for number in range(len(items))]
