"""The composition root: builds every room of the broker, starts them in order, stops them in reverse.

Start: lock the directories, take the ports, load the topics from `__kompakt_metadata`, open and recover the
logs, end the transactions that were decided, load the groups, start the cleaner, listen, load the kernels.
Stop: stop listening, answer what waits, stop the cleaner, flush, mark a clean shutdown.
Mirrors Kafka's `BrokerServer`.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import broker.handlers  # registers every handler
import broker.security.guards  # noqa: F401  # and every guard
from broker.adoption import why_not_adopted
from broker.api import apis
from broker.background import Background
from broker.broker_settings import BrokerSettings
from broker.busy_poll import BusyPoll
from broker.clock import Clock
from broker.context import Listener
from broker.counters import Counters
from broker.departure import Departure
from broker.fetch_session import FetchSessions
from broker.flusher import Flusher
from broker.group_settings import GroupSettings
from broker.groups.coordinator import GroupCoordinator
from broker.io_threads import IoThreads
from broker.large_frames import LargeFrames
from broker.moves import Moves
from broker.partition import Partition
from broker.producer_ids import ProducerIds
from broker.purgatory import Purgatory
from broker.questions.history import CleaningHistory
from broker.quotas.quotas import Quotas
from broker.read_ahead import ReadAhead
from broker.reopening import Reopening
from broker.security.adoption import adopt_security
from broker.security.authorizer import Authorizer
from broker.security.guards.call import guarded
from broker.security.users import Users
from broker.server import Server, bind
from broker.share.coordinator import ShareCoordinator
from broker.share.sessions import ShareSessions
from broker.topics import TopicRegistry
from broker.transactions.coordinator import TransactionCoordinator
from broker.warm_up import Loading, load_kernels
from cleaner.manager import CleanerManager
from cleaner.pool import CleanerPool
from config.broker import BrokerConfig
from config.listeners import LOCAL_HOSTS, address_text
from storage.layout import TopicPartition
from storage.log import Log
from storage.manager import LogManager
from storage.ring import open_ring

if TYPE_CHECKING:
    from broker.http.server import HttpServer

T = TypeVar("T")
logger = logging.getLogger(__name__)

WATCHED_AFTER_SECONDS = 0.25


class Broker:
    """Everything a handler may ask for. Owned by: event loop; made inside the running loop.

    `TopicRegistry(broker)` and its `load()` (blocking, before the logs are opened) see `config`, `logs`,
    `settings`, `cleanings`, `producer_ids`, `users`, `group_settings` and `quotas`; what creates or deletes
    partitions later calls `serve(log)` and `forget(topic_partition)`.
    """

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock or Clock()
        self.node_id = config.node_id
        self.metrics_state = Counters()
        self.partitions: dict[TopicPartition, Partition] = {}
        self.servers: list[Server] = []
        self.is_ready = False
        self.kernels = Loading()
        self._passed_at_start_ms = self.clock.passed_ms()
        self._has_opened_logs = False
        # Absolute, for metrics and `status` name them to who asks from elsewhere.
        places = [Path(directory).absolute() for directory in config.log_dirs]
        self.logs = LogManager(places, config, self.clock.now_ms)
        self.io = IoThreads(config.background_threads, "io")
        self.flusher = Flusher(self.metrics_state, open_ring() if config.flush_io_uring_enable else None)
        self.busy_poll = BusyPoll(config.busy_poll_us)
        self.departure = Departure()
        self.large_frames = LargeFrames(config.queued_max_request_bytes, self.clock)
        self.purgatory = Purgatory(self.clock, self.metrics_state)
        self.read_ahead = ReadAhead(self.run_blocking)
        self.fetch_sessions = FetchSessions(config, self.metrics_state)
        self.cluster_id = self.logs.cluster_id
        self.settings = BrokerSettings(self)
        self.topics = TopicRegistry(self)
        self.shares = ShareCoordinator(self)
        self.share_sessions = ShareSessions(self)
        self.groups = GroupCoordinator(self)
        self.cleaner = CleanerManager(
            lambda: tuple(partition.log for partition in tuple(self.partitions.values())),
            self.logs,
            config,
            self.clock.now_ms,
            self.run_on_loop,
        )
        self.cleanings = CleaningHistory(self)
        self.producer_ids = ProducerIds(self)
        self.users = Users(self)
        self.group_settings = GroupSettings(self)
        self.quotas = Quotas(self)
        self.authorizer = Authorizer(self) if config.authorizer_class_name else None
        self.apis = apis if self.authorizer is None else guarded(self.authorizer)
        self.transactions = TransactionCoordinator(self)
        self.cleaner.on_cleaned = self.cleanings.note
        self.cleaner.on_set_aside = self.cleanings.note_failure
        self.cleaner_pool = CleanerPool(self.cleaner)
        self.reopening = Reopening(self)
        self.moves = Moves(self)
        self.background = Background(self)
        self.http: HttpServer
        self._http_server: asyncio.Server | None = None
        self._loop = asyncio.get_running_loop()

    # what the rooms share

    @property
    def started_ms(self) -> int:
        """When it was made, by the time as it is set now."""
        return self.clock.now_ms() - (self.clock.passed_ms() - self._passed_at_start_ms)

    @property
    def listeners(self) -> list[Listener]:
        return [server.listener for server in self.servers]

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition being served; a plain tuple finds it as well as a TopicPartition, and costs less."""
        return self.partitions.get((topic, index))  # type: ignore[call-overload, no-any-return]

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

    def serve(self, log: Log) -> Partition:
        """Make a log that was opened or created known to the handlers; idempotent."""
        partition = self.partitions.get(log.topic_partition)
        if partition is None or partition.log is not log:
            partition = self.partitions[log.topic_partition] = Partition(
                log, self.flusher, self.metrics_state.topics[log.topic_partition.topic]
            )
        return partition

    def forget(self, topic_partition: TopicPartition) -> None:
        """The partition is deleted: stop serving it and answer who waits for it."""
        partition = self.partitions.pop(topic_partition, None)
        if partition is not None:
            partition.is_forgotten = True
            partition.wake()

    # life

    async def start(self) -> None:
        """Return when clients are served."""
        config = self.config
        await self._bind()
        if not self.logs.was_clean:
            gc.enable()  # a recovery may take long
        self.topics.load()
        await self._open_logs()
        self.topics.reconcile()
        await adopt_security(self)
        self.cleanings.recall()
        await self.transactions.load()
        self.producer_ids.skip(
            itertools.chain(
                self.transactions.producer_ids(),
                *(partition.log.producers.producers for partition in self.partitions.values()),
            )
        )
        self.transactions.abort_lost()
        await self.transactions.end_due()
        loading = asyncio.gather(self.shares.load(), self.groups.load())
        await asyncio.sleep(0)  # from here on groups answer that they are being loaded
        if config.log_cleaner_enable:
            self.cleaner_pool.start()
        self.background.start()
        self.moves.resume()
        for server in self.servers:
            await server.start()
        await loading
        await self.kernels.run(load_kernels)  # a first answer need not wait for them
        if not hasattr(self, "http"):
            await self._start_http()
        self.is_ready = True

    async def _open_logs(self) -> None:
        """Open them all; if that takes long, let it be watched."""
        opening = self.run_blocking(
            self.logs.open_all,
            self.topics.config_of,
            self.config.num_recovery_threads_per_data_dir,
            self.topics.id_of,
            partial(why_not_adopted, self.topics, self.config.max_partitions_per_topic),
        )
        try:
            done, _ = await asyncio.wait({opening}, timeout=WATCHED_AFTER_SECONDS)
            if not done:
                await self._start_http()
        finally:
            await opening
            self._has_opened_logs = True

    async def _bind(self) -> None:
        """Who cannot have a port says so at once: not after a recovery, nor when clients were answered."""
        for endpoint in self.config.endpoints:
            listener = Listener(
                endpoint.name,
                endpoint.host,
                endpoint.port,
                endpoint.advertised_host,
                endpoint.advertised_port,
                self.config.security_of(endpoint),
            )
            server = Server(self, listener)
            self.servers.append(server)
            await server.bind()
        host, port = self.config.http_host, self.config.http_port
        if port >= 0:
            is_secured = any(server.listener.security.is_secured for server in self.servers)
            if host not in LOCAL_HOSTS and self.authorizer is not None:
                logger.warning(
                    "%s is not encrypted: passwords that are sent there can be read", self._http_address
                )
            elif host not in LOCAL_HOSTS and is_secured:
                logger.warning("%s asks nobody who it is: whoever reaches it may do all", self._http_address)
            self._http_server = await bind(lambda: self.http.connection(), self._http_address, host, port)

    async def _start_http(self) -> None:
        """Usually the last thing: its libraries take long to load, Kafka's clients need not wait for them."""
        module = await self.run_blocking(importlib.import_module, "broker.http.server")
        self.http = module.HttpServer(self)
        if self._http_server is not None:
            await self.http.start(self._http_server, self._http_address)

    @property
    def _http_address(self) -> str:
        return f"http://{address_text(self.config.http_host, self.config.http_port)}"

    async def stop(self) -> None:
        """Answer what was taken, flush, mark a clean shutdown."""
        self.is_ready = False
        self.logs.removals.pace.hurry()
        self.topics.begin_stop()
        for server in self.servers:
            server.stop_listening()
        self.purgatory.close()
        await self.transactions.stop()
        await self.groups.stop()
        self.shares.stop()
        for server in self.servers:
            await server.drain()
        for server in self.servers:
            await server.close()
        if self._http_server is not None:
            self._http_server.close()
        if hasattr(self, "http"):
            await self.http.stop()
        await self.topics.stop()
        await self.background.stop()
        await self.reopening.stop()
        await self.moves.stop()
        await self.run_blocking(self.cleaner_pool.stop)
        await self.flusher.drain()
        # Logs that were never opened may need their recovery: then only what was in order is marked so.
        await self.run_blocking(self.logs.close if self._has_opened_logs else self.logs.back_out)
        self.flusher.stop()
        self.io.shutdown()
