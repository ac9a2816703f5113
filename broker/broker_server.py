"""The life of a broker: starts its rooms in order, lets clients in, stops in reverse. The composition root.

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
from functools import partial
from typing import TYPE_CHECKING

import broker.handlers  # registers every handler
import broker.security.guards  # noqa: F401  # and every guard
from broker.adoption import why_not_adopted
from broker.background import Background
from broker.broker import Broker
from broker.clock import Clock
from broker.context import Listener
from broker.listening import bind
from broker.security.adoption import adopt_security, find_security
from broker.security.guards.call import guarded
from broker.security.principal import rules_of
from broker.security.tls import Tls
from broker.server import Server
from broker.warm_up import Loading, load_kernels
from config.broker import BrokerConfig
from config.listeners import LOCAL_HOSTS, address_text
from config.security import HTTP

if TYPE_CHECKING:
    from broker.http.server import HttpServer

logger = logging.getLogger(__name__)

WATCHED_AFTER_SECONDS = 0.25


class BrokerServer(Broker):
    """Owned by: event loop; made inside the running one."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        if self.authorizer is not None:
            self.apis = guarded(self.authorizer)
            self.authorizer.on_changed = self._forget_rights
        self.kernels = Loading()
        self.background = Background(self)
        self.http: HttpServer
        self._http_server: asyncio.Server | None = None
        self._http_tls: Tls | None = None
        self.servers: list[Server] = []
        self._has_opened_logs = False

    def _forget_rights(self) -> None:
        """Rules have changed: what connections remember of what clients may write holds no more."""
        for server in self.servers:
            for connection in server.connections:
                connection.template.forget()

    async def start(self) -> None:
        """Return when clients are served."""
        config = self.config
        await self._bind()
        if not self.logs.was_clean:
            gc.enable()  # a recovery may take long
        self.load_metadata()
        found = await find_security(self)
        await self._open_logs()
        for name, partition_count in self.topics.reconcile():
            self.cleanings.forget(name, partition_count)
        await adopt_security(self, found)
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
            self.listeners.append(server.listener)
            self.gates.append(server.gate)
            if server.tokens is not None:
                self.tokens.append(server.tokens)
        host, port = self.config.http_host, self.config.http_port
        if port >= 0:
            self._http_tls = await self._make_http_tls()
            self._warn_of_http(host)
            self._http_server = await bind(lambda: self.http.connection(), self._http_address, host, port)

    async def _make_http_tls(self) -> Tls | None:
        """ConfigError."""
        security = self.config.http_security
        if not security.uses_tls:
            return None
        rules_of(security)  # who shows a certificate is told nothing of them
        return await self.run_blocking(Tls, HTTP, security)

    def _warn_of_http(self, host: str) -> None:
        if host in LOCAL_HOSTS:
            return
        is_secured = any(listener.security.is_secured for listener in self.listeners)
        asks_who = self.authorizer is not None
        if asks_who and self._http_tls is None:
            logger.warning(
                "%s is not encrypted: passwords that are sent there can be read", self._http_address
            )
        elif is_secured and not asks_who:
            logger.warning("%s asks nobody who it is: whoever reaches it may do all", self._http_address)

    async def _start_http(self) -> None:
        """Usually the last thing: its libraries take long to load, Kafka's clients need not wait for them."""
        module = await self.run_blocking(importlib.import_module, "broker.http.server")
        self.http = module.HttpServer(self)
        if self._http_server is not None:
            await self.http.start(self._http_server, self._http_address, self._http_tls)

    @property
    def _http_address(self) -> str:
        scheme = "http" if self._http_tls is None else "https"
        return f"{scheme}://{address_text(self.config.http_host, self.config.http_port)}"

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
        await self.changes.stop()
        await self.background.stop()
        await self.reopening.stop()
        await self.moves.stop()
        await self.run_blocking(self.cleaner_pool.stop)
        await self.flusher.drain()
        # Logs that were never opened may need their recovery: then only what was in order is marked so.
        await self.run_blocking(self.logs.close if self._has_opened_logs else self.logs.back_out)
        self.flusher.stop()
        self.io.shutdown()
