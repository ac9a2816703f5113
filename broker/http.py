"""`/metrics`, `/healthz` and `/api/` (`http_api.py`) over HTTP (aiohttp), on a listener of their own.

`/healthz` answers 200 while the broker serves and 503 while it starts or stops; its body names what is
wrong with single partitions, which are no reason to restart a broker that serves the others. `/metrics`
takes what belongs to the event loop there and renders the rest on an I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from broker.http_api import HttpApi
from broker.metrics import CONTENT_TYPE, Metrics
from broker.server import listen

if TYPE_CHECKING:
    from broker.broker import Broker

GRACE_SECONDS = 1.0
LONGEST_LINE = 512 * 1024
"""of a request: the longest key that a shell can hand to `kompakt get`, each of its bytes as %XX"""
server_logger = logging.getLogger(f"{__name__}.server")


@server_logger.addFilter
def _is_ours(record: logging.LogRecord) -> bool:
    """What a peer did wrong is told to the peer; a traceback of ours for each would fill the log."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


class HttpServer:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._metrics = Metrics(broker)
        self._api = HttpApi(broker)
        self._runner: web.AppRunner | None = None
        self.port = -1
        """where it listens; -1 while it does not"""

    async def start(self, server: asyncio.Server, address: str) -> None:
        """Let `server`, whose connections are made by `connection`, listen; who made it closes it.

        Raises ListenError, which says `address`.
        """
        application = web.Application()
        application.router.add_get("/metrics", self.metrics)
        application.router.add_get("/healthz", self.healthz)
        self._api.add_to(application.router)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=GRACE_SECONDS,
            max_line_size=LONGEST_LINE,
            logger=server_logger,
        )
        await self._runner.setup()
        await listen(server, address)
        self.port = int(server.sockets[0].getsockname()[1])

    def connection(self) -> asyncio.BaseProtocol:
        """What a new connection talks to."""
        assert self._runner is not None and self._runner.server is not None
        return self._runner.server()

    async def stop(self) -> None:
        """Close the connections, after their answers."""
        await self._api.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self.port = -1

    async def metrics(self, request: web.Request) -> web.Response:
        """Every metric in Prometheus' text format."""
        moment = self._metrics.moment()
        body = await self._broker.run_blocking(self._metrics.render, moment)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def healthz(self, request: web.Request) -> web.Response:
        """Whether the broker serves, and which partitions do not."""
        broker = self._broker
        partitions = tuple(broker.partitions.values())
        offline = {
            str(partition.topic_partition): partition.log.offline_reason
            for partition in partitions
            if partition.log.offline_reason is not None
        }
        status = "starting or stopping" if not broker.is_ready else "degraded" if offline else "ok"
        return web.json_response(
            {"status": status, "partitions": len(partitions), "offline": offline},
            status=200 if broker.is_ready else 503,
        )
