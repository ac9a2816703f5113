"""Work that goes on though who asked for it goes away."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def ended(task: asyncio.Task[T]) -> T:
    """What comes of a task, which is not cancelled with who waits for it. As `asyncio.shield`, but that one
    logs, from Python 3.14 on, an error that nobody waits for any more: its owner looks at it.
    """
    await asyncio.wait({task})
    return task.result()
