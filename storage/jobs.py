"""What a log's owner gives to a thread to do, for it waits for the disk: a flush, a swap, a removal.

A job knows beforehand all that it touches, so that the owner goes on with the log meanwhile; it is told of
the end (`Log.end_flush`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.file import POOL
from storage.types import NO_DESCRIPTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.segment import Segment


class FlushJob:
    """What one flush has to make durable. `run` may be called on any thread, once; it raises OSError.

    `only_file` is the file whose data are all that it is about; None when there is more.
    """

    __slots__ = ("_flushes", "end_offset", "end_position", "end_segment", "only_file", "rolled")

    def __init__(
        self,
        rolled: Sequence[Segment],
        active: Segment,
        unsynced: Sequence[Callable[[], None]],
        end_offset: int,
    ) -> None:
        """Segments that were `rolled` since the last one, then what `active` holds up to `end_offset`, and
        whatever else is `unsynced`, each once.
        """
        self.rolled = rolled
        self.end_offset, self.end_segment, self.end_position = end_offset, active, active.size_bytes
        self._flushes: list[Callable[[], None]] = [segment.flush_closed for segment in rolled]
        if active.size_bytes:
            self._flushes.append(active.flush_data)
        self._flushes += dict.fromkeys(unsynced)
        self.only_file = active.file if active.size_bytes and len(self._flushes) == 1 else None

    def run(self) -> None:
        for flush in self._flushes:
            try:
                flush()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                POOL.shed()  # nothing was asked of the disk yet, so that nothing can be lost
                flush()


class SwapJob:
    """The part of a swap or of a removal that waits for the disk; `run` on any thread, once."""

    __slots__ = ("_work",)

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def run(self) -> None:
        self._work()


class Expired(SwapJob):
    """Segments that retention took out of the log; their files are gone for good some time after `run`."""

    __slots__ = ("removed_bytes", "removed_segments")

    def __init__(self, removed_segments: int, removed_bytes: int, work: Callable[[], None]) -> None:
        super().__init__(work)
        self.removed_segments = removed_segments
        self.removed_bytes = removed_bytes
