"""Write the statistics of segments soon after they were closed or cleaned, on an I/O thread.

Every second the segments of each log are compared with those seen before: a log whose tuple is the same one
costs a comparison. What was there at the start is left alone, its statistics are made when somebody asks.
An append knows nothing of all this.
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


class StatisticsKeeper:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._seen: dict[Log, tuple[Segment, ...]] | None = None
        """None before the first look"""

    async def run(self) -> None:
        """One look at every log; each new closed segment gets its file before the next is taken."""
        logs = [partition.log for partition in tuple(self._broker.partitions.values())]
        seen, self._seen = self._seen, {log: log.segments for log in logs}
        if seen is None:
            return
        for log in logs:
            for segment in _fresh(seen.get(log, ()), self._seen[log]):
                if log.offline_reason is None:
                    await self._broker.run_blocking(_keep, segment)


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
