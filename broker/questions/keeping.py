"""Write the statistics of segments soon after they were closed or cleaned, on an I/O thread.

Every second the segments of each log are compared with those seen before: a log whose tuple is the same one
costs a comparison. What was there at the start is left alone, its statistics are made when somebody asks.
Of a topic with `compaction.expired.tombstones.enable` they are made for all segments: a crash behind the last
swap of a cleaning leaves nothing else that says when its tombstones may go.
A cleaning goes first: it wants the same cores, and it may replace what would have been counted. An append
knows nothing of all this.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocol.errors import KafkaError
from storage import statistics

if TYPE_CHECKING:
    from broker.broker import Broker
    from storage.log import Log
    from storage.segment import Segment

logger = logging.getLogger(__name__)

LOOK_MS = 1_000
PATIENCE_MS = 30_000
"""for so long cleanings go first; a cleaned segment without statistics is less guarded against damage"""


class StatisticsKeeper:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._seen: dict[Log, tuple[Segment, ...]] = {}
        self._complete: set[Log] = set()
        """logs of which every closed segment has been looked at"""

    def start(self) -> None:
        """Take note of what is there before anything is written: a topic may be made, filled and cleaned
        before the first look.
        """
        self._seen = self._look()

    async def run(self) -> None:
        """One look at every log; each new closed segment gets its file before the next is taken."""
        seen, self._seen = self._seen, self._look()
        self._complete &= self._seen.keys()
        patience_ms = PATIENCE_MS
        for log, segments in tuple(self._seen.items()):
            before = seen.get(log, ())
            if log not in self._complete and _wants_all(log):
                before = ()
                self._complete.add(log)
            for segment in _fresh(before, segments):
                while self._broker.cleaner.is_cleaning and patience_ms > 0:
                    await self._broker.clock.sleep(LOOK_MS)
                    patience_ms -= LOOK_MS
                if log.offline_reason is None:
                    await self._broker.run_blocking(_keep, segment)

    def _look(self) -> dict[Log, tuple[Segment, ...]]:
        return {partition.log: partition.log.segments for partition in self._broker.partitions.values()}


def _wants_all(log: Log) -> bool:
    return log.config.is_compacted and log.config.compaction_expired_tombstones_enable


def _fresh(before: tuple[Segment, ...], now: tuple[Segment, ...]) -> Iterator[Segment]:
    """Segments that were closed or put in since the last look."""
    if before is not now:
        known = set(before[:-1])
        yield from (segment for segment in now[:-1] if segment not in known)


def _keep(segment: Segment) -> None:
    """On an I/O thread. Without its file a segment is only slower to ask."""
    try:
        if statistics.is_in_use(segment):
            statistics.ensure(segment)
    except FileNotFoundError:  # it has just left the log
        return
    except (KafkaError, OSError) as error:
        logger.warning("no statistics of %r: %s", segment, error)
