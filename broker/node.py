"""What every room of the broker stands on: its settings, the clock, counters, threads, the logs, and the
partitions that are served.

A room below the handlers is given this, and the rooms that it needs: its constructor says what it depends on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from broker.clock import Clock
from broker.counters import Counters
from broker.flusher import Flusher
from broker.io_threads import IoThreads
from broker.partition import Partition
from broker.tasks import Changes
from config.broker import BrokerConfig
from storage.layout import TopicPartition
from storage.log import Log
from storage.manager import LogManager
from storage.ring import open_ring

T = TypeVar("T")


class Node:
    """Owned by: event loop; made inside the running one."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        """as it is now: `BrokerSettings` puts another one in its place"""
        self.clock = clock or Clock()
        self.node_id = config.node_id
        self.metrics_state = Counters()
        self.partitions: dict[TopicPartition, Partition] = {}
        # Absolute, for metrics and `status` name them to who asks from elsewhere.
        places = [Path(directory).absolute() for directory in config.log_dirs]
        self.logs = LogManager(places, config, self.clock.now_ms)
        self.cluster_id = self.logs.cluster_id
        self.io = IoThreads(config.background_threads, "io")
        self.changes = Changes()
        self.flusher = Flusher(self.metrics_state, open_ring() if config.flush_io_uring_enable else None)
        self._loop = asyncio.get_running_loop()

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition being served; a plain tuple finds it as well as a TopicPartition, and costs less."""
        return self.partitions.get((topic, index))  # type: ignore[call-overload, no-any-return]

    def serve(self, log: Log) -> Partition:
        """Make a log that was opened or created known to the handlers; idempotent."""
        partition = self.partitions.get(log.topic_partition)
        if partition is None or partition.log is not log:
            partition = self.partitions[log.topic_partition] = Partition(
                log, self.flusher, self.metrics_state.topics[log.topic_partition.topic]
            )
        return partition

    def exchange(self, log: Log) -> None:
        """Serve a partition from another log from now on. The cleaner, which looks from its threads, never
        sees it gone: it would forget how far it is clean.
        """
        old = self.partitions[log.topic_partition]
        self.serve(log)
        old.is_forgotten = True
        old.wake()

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is deleted: stop serving it and answer who waits for it."""
        partition = self.partitions.pop(topic_partition, None)
        if partition is not None:
            partition.is_forgotten = True
            partition.wake()

    def run_blocking(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Run `function(*arguments)` on an I/O thread."""
        return self._loop.run_in_executor(self.io, function, *arguments)

    def run_on_loop(self, function: Callable[[], T]) -> T:
        """From another thread: run `function` on the event loop, which owns the logs, and return its
        result.
        """
        result: Future[T] = Future()

        def call() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        self._loop.call_soon_threadsafe(call)
        return result.result()
