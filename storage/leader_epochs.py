"""Which leader epoch began at which offset (`leader-epoch-checkpoint`, Kafka's `LeaderEpochFileCache`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochs:
    """Owned by: event loop. Epochs and their start offsets both ascend."""

    __slots__ = ("_entries", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[tuple[int, int]] = []
        self.latest = NO_EPOCH  # every append looks at it
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return list(self._entries)

    def restore(self, entries: Iterable[tuple[int, int]]) -> None:
        """As it was when `entries` were these."""
        self._entries = list(entries)
        self._note_latest()

    def _note_latest(self) -> None:
        self.latest = self._entries[-1][0] if self._entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records from `start_offset` on are of `epoch`; False when that was known. What contradicts it
        goes.
        """
        entries = self._entries
        if epoch < 0 or (entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset):
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self.latest = epoch
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`."""
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
        self._note_latest()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`; its epoch is kept, moved there."""
        found = bisect_right(self._entries, start_offset, key=lambda entry: entry[1]) - 1
        if found >= 0:
            self._entries[: found + 1] = [(self._entries[found][0], start_offset)]

    def end_offset_for(self, epoch: int, log_end_offset: int, current: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` and the offset behind its last record; (-1, -1) when
        unknown. The `current` one may have no record yet.
        """
        entries = self._entries
        if epoch == NO_EPOCH:
            return NO_EPOCH, NO_OFFSET
        if epoch == current:
            return epoch, log_end_offset
        if not entries:
            return NO_EPOCH, NO_OFFSET
        found = bisect_right(entries, epoch, key=lambda entry: entry[0])
        if found == len(entries):
            return NO_EPOCH, NO_OFFSET
        if found == 0:
            return epoch, entries[0][1]
        return entries[found - 1][0], entries[found][1]

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`."""
        found = bisect_right(self._entries, offset, key=lambda entry: entry[1]) - 1
        return self._entries[found][0] if found >= 0 else NO_EPOCH
