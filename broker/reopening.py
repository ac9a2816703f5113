"""Logs that went offline come back: opened anew as after a crash, after growing pauses or when somebody asks.

A failed write, flush or rename takes one log offline; Kafka's whole directory goes then, until a restart.
Here the log is recovered by itself, while the others serve on. Records that no flush covered are written
once more before they count: after a failed flush the page cache may call clean what never reached the disk.
`__kompakt_metadata` waits for a restart: what it holds must be what the broker knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.metadata_log import METADATA_PARTITION
from broker.node import Node
from broker.tasks import ended
from cleaner.manager import CleanerManager
from cleaner.states import Phase
from protocol.errors import KafkaError
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.partition import Partition
    from storage.log import Log

logger = logging.getLogger(__name__)

ReadAgain = Callable[[TopicPartition], Awaitable[None]]

LOOK_MS = 1_000
FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 600_000


class NotNow(Exception):
    """A log cannot be opened anew at this moment; the message says why."""


@dataclass(slots=True)
class Failure:
    """The last one of a log."""

    log: Log
    count: int
    retry_ms: int


class Reopening:
    """Owned by: event loop."""

    def __init__(self, node: Node, cleaner: CleanerManager, readers: Sequence[ReadAgain]) -> None:
        """`readers`: who reads a log again that is back, in this order."""
        self._node = node
        self._cleaner = cleaner
        self._readers = readers
        self._failures: dict[TopicPartition, Failure] = {}
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """One look at every partition: note what has failed, open what is due."""
        now_ms = self._node.clock.now_ms()
        for deleted in self._failures.keys() - self._node.partitions.keys():
            del self._failures[deleted]
        for partition in tuple(self._node.partitions.values()):
            if self._is_due(partition, now_ms):
                try:
                    await self.reopen(partition)
                except NotNow:
                    continue
                except (OSError, KafkaError) as error:
                    logger.warning("%s stays offline: %s", partition.topic_partition, error)

    def _is_due(self, partition: Partition, now_ms: int) -> bool:
        topic_partition, log = partition.topic_partition, partition.log
        known = self._failures.get(topic_partition)
        if log.offline_reason is None:
            if known is not None and now_ms > known.retry_ms + LONGEST_PAUSE_MS:
                del self._failures[topic_partition]
            return False
        if topic_partition == METADATA_PARTITION:
            return False
        if known is None or known.log is not log:
            self._note(partition)
            return False
        return not now_ms < known.retry_ms <= now_ms + LONGEST_PAUSE_MS  # else the clock was set back

    def _note(self, partition: Partition) -> None:
        """One more failure: the next try is later than the last one was."""
        known = self._failures.get(partition.topic_partition)
        count = known.count + 1 if known else 1
        pause_ms = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(count - 1, 16))
        retry_ms = self._node.clock.now_ms() + pause_ms
        self._failures[partition.topic_partition] = Failure(partition.log, count, retry_ms)
        logger.warning("%s is opened anew in %d s", partition.topic_partition, pause_ms // 1000)

    def retry_ms(self, topic_partition: TopicPartition) -> int | None:
        """When it is tried next; None when nobody knows of a failure."""
        known = self._failures.get(topic_partition)
        return known.retry_ms if known else None

    async def reopen(self, partition: Partition) -> None:
        """Open an offline log now. NotNow; at any other error it stays offline, and waits longer."""
        topic_partition = partition.topic_partition
        if partition.log.offline_reason is None:
            return
        if topic_partition == METADATA_PARTITION:
            raise NotNow("the topics themselves come back with a restart only")
        if topic_partition in self._running:
            raise NotNow("it is being opened")
        if partition.is_flushing or self._cleaner.state_of(topic_partition).phase is not Phase.IDLE:
            raise NotNow("what was begun before it failed is still going on")
        task = asyncio.get_running_loop().create_task(self._reopen(partition), name=f"open {topic_partition}")
        self._running[topic_partition] = task
        task.add_done_callback(lambda _: self._running.pop(topic_partition))
        try:
            await ended(task)  # though who asked may go away
        except Exception:
            self._note(partition)
            raise

    async def _reopen(self, partition: Partition) -> None:
        node, topic_partition, old = self._node, partition.topic_partition, partition.log
        old.abandon()
        log = await node.run_blocking(node.logs.reopen, old)
        if node.partitions.get(topic_partition) is not partition:  # deleted meanwhile
            log.abandon()
            return
        log.update_config(old.config)
        node.logs.take(log)
        node.exchange(log)
        logger.warning("%s is back: it ends at %d", topic_partition, log.log_end_offset)
        for read_again in self._readers:
            await read_again(topic_partition)

    async def settled(self, topic_partition: TopicPartition) -> None:
        """Return when the log is not being opened: its files may be taken away then."""
        task = self._running.get(topic_partition)
        if task is not None:
            await asyncio.wait({task})

    async def stop(self) -> None:
        """Return when no log is being opened."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)
