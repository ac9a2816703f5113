"""Answers to several clients leave together, when all that came in one turn of the loop is handled.

To send to a client that sleeps is to wake it, which may take longer than to make the answer (5 us on a
virtual machine). Where each answer leaves at once, whoever waits for many has taken it and sleeps again
before the next one is made; where they leave one behind the other, it is woken once. The last answer leaves
first: a fetch that waits is answered behind the produce that it waited for, and an acknowledgement that left
before it would wake a thread of the producer, which takes the core that the consumer needs
(benchmarks/NOTES.md). Nobody shall wait in vain: who was the only one lately is sent its next answer at once.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Leaving(Protocol):
    """The answers of a connection, of which some are ready."""

    def leave(self) -> None:
        """Send them; there may be none left."""

    def cannot_leave(self, error: Exception) -> None:
        """That failed: end the connection."""


class Departure:
    """Owned by: event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: dict[Leaving, None] = {}
        self._alone: Leaving | None = None
        self._has_left_alone = False  # `_alone`, since others left together

    def add(self, connection: Leaving, *, is_last: bool = True) -> None:
        """Something is ready to leave; not `is_last` where more of it will be in this turn."""
        if is_last and connection is self._alone:
            self._has_left_alone = True
            try:
                connection.leave()
            except Exception as error:  # whatever it is, the requests behind it are handled
                connection.cannot_leave(error)
            return
        if not self._due:
            self._loop.call_soon(self._leave_together)
        self._due[connection] = None

    def _leave_together(self) -> None:
        due, self._due = self._due, {}
        is_alone = len(due) == 1 and not self._has_left_alone
        self._alone = next(iter(due)) if is_alone else None
        self._has_left_alone = False
        for connection in reversed(due):
            try:
                connection.leave()
            except Exception as error:  # whatever it is, the others' answers leave
                connection.cannot_leave(error)
