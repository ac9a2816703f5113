"""The composition root: builds every room of the broker, starts them in order, stops them in reverse.

Start: lock the directories, load the topics from `__kompakt_metadata`, open and recover the logs, load the
groups, start the cleaner, listen. Stop: stop listening, drain, stop the cleaner, flush, mark a clean
shutdown. Mirrors Kafka's `BrokerServer`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from broker.clock import Clock
from broker.context import Listener
from broker.counters import Counters
from broker.flusher import Flusher
from broker.partition import Partition

if TYPE_CHECKING:
    from cleaner.manager import CleanerManager
    from cleaner.pool import CleanerPool
    from config.broker import BrokerConfig
    from storage.layout import TopicPartition
    from storage.log import Log
    from storage.manager import LogManager

    from broker.groups.coordinator import GroupCoordinator
    from broker.http import HttpServer
    from broker.producer_ids import ProducerIds
    from broker.purgatory import Purgatory
    from broker.topics import TopicRegistry

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Broker:
    """Everything a handler may ask for. Owned by: event loop.

    What the other rooms offer to it:
    `TopicRegistry(broker)`, `.load()` (blocking, before listening: opens or creates `__kompakt_metadata-0`
    through
    `broker.logs` and reads it); its `create`, `delete`, `add_partitions` call `broker.serve(log)` and
    `broker.forget(topic_partition)`.
    `GroupCoordinator(broker)`, `await .load()`, `.expire_offsets(now_ms)`, `await .stop()`.
    `HttpServer(broker)`, `await .start(host, port)`, `await .stop()`, `.port`.
    """

    config: BrokerConfig
    clock: Clock
    cluster_id: str
    node_id: int
    logs: LogManager
    topics: TopicRegistry
    partitions: dict[TopicPartition, Partition]
    groups: GroupCoordinator
    cleaner: CleanerManager
    cleaner_pool: CleanerPool
    purgatory: Purgatory
    producer_ids: ProducerIds
    metrics_state: Counters
    flusher: Flusher
    io: ThreadPoolExecutor
    http: HttpServer
    listeners: list[Listener]

    def run_blocking(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Run `function(*arguments)` on an I/O thread."""
        return asyncio.get_running_loop().run_in_executor(self.io, function, *arguments)

    def serve(self, log: Log) -> Partition:
        """Make a log that was opened or created known to the handlers."""
        partition = Partition(log, self.flusher)
        self.partitions[log.topic_partition] = partition
        return partition

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is deleted: stop serving it and answer who waits for it."""
        partition = self.partitions.pop(topic_partition, None)
        if partition is not None:
            partition.wake()
