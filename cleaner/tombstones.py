"""How many tombstones a log holds, by what is to become of them, from the statistics beside its segments; and
how many records that are taken for tombstones, and are none.

Fresh: no cleaning has met it. Armed: a cleaning has, and it stays until its delete horizon. Expired: the next
cleaning removes it. Statistics that are not there (yet) are not made for this, and the active segment has
none: what is written but not closed is not counted.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from protocol.errors import KafkaError
from storage.sidecar import SegmentStatistics, open_sidecar

if TYPE_CHECKING:
    from storage.log import Log
    from storage.segment import Segment

FRESH, ARMED, EXPIRED = "fresh", "armed", "expired"


class Counted(NamedTuple):
    """Tombstones by state, keyed records with an empty value, and whether all closed segments were asked."""

    tombstones: Mapping[str, int]
    empty_values: int
    is_complete: bool


class TombstoneCounts:
    """Owned by: any thread, under lock. Each file is read once, and what it said is held as long as its
    segment is: whoever asks may do so while the topic is being deleted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Segment, SegmentStatistics] = WeakKeyDictionary()

    def of(self, log: Log, now_ms: int) -> Counted:
        """What is there now. Reads files: not on the loop."""
        closed = log.segments[:-1]
        known = self._known_of(closed)
        counted = [found.tombstones_at(now_ms) for found in known]
        counts = {
            state: sum(one[place] for one in counted) for place, state in enumerate((FRESH, ARMED, EXPIRED))
        }
        empty_values = sum(found.empty_values for found in known)
        return Counted(counts, empty_values, len(known) == len(closed))

    def newest_horizon_ms(self, log: Log) -> int | None:
        """When the last armed one may go, as far as statistics are there; None where they know of none. Reads
        files: not on the loop.
        """
        known = self._known_of(log.segments[:-1])
        return max((one.horizons[-1][0] for one in known if one.horizons), default=None)

    def _known_of(self, closed: Sequence[Segment]) -> list[SegmentStatistics]:
        """Of the segments that have statistics."""
        with self._lock:
            for segment in closed:
                if segment not in self._known and (found := _read(segment)) is not None:
                    self._known[segment] = found
            return [self._known[segment] for segment in closed if segment in self._known]


def _read(segment: Segment) -> SegmentStatistics | None:
    try:
        sidecar = open_sidecar(segment)
    except (KafkaError, OSError):
        return None
    if sidecar is None:
        return None
    sidecar.close()
    return dataclasses.replace(sidecar.statistics, packed_sketch=b"")  # kilobytes that nobody asks for here
