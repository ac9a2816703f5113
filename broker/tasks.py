"""Work that goes on though who asked for it goes away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from protocol.errors import KafkaError

T = TypeVar("T")
logger = logging.getLogger(__name__)


async def ended(task: asyncio.Task[T]) -> T:
    """What comes of a task, which is not cancelled with who waits for it. As `asyncio.shield`, but that one
    logs, from Python 3.14 on, an error that nobody waits for any more: its owner looks at it.
    """
    await asyncio.wait({task})
    return task.result()


class Changes:
    """What clients have asked to be changed, and is not done yet. Owned by: event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do `work`, for which nobody has to wait."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def to_the_end(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Await `work`, which goes on even if the client that asked for it goes away."""
        await ended(self.begin(name, work))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Who asked for it may be gone; then nobody else looks at how it ended."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, KafkaError):
            logger.error("%s failed", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Return when nothing is being changed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
