"""`/metrics`, `/healthz`, `/api/` and the console over HTTP (aiohttp), on a listener of their own.

`/healthz` answers 200 while the broker serves and 503 while it starts or stops; its body names what is
wrong with single partitions, which are no reason to restart a broker that serves the others. `/metrics`
takes what belongs to the event loop there and renders the rest on an I/O thread, one scrape at a time. Who
connects and asks nothing gives way to others, and is cut off in the end: every connection is a descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from broker.console import Console
from broker.http.access import LATE_MS
from broker.http.asking import Asking, in_json
from broker.http.changes import Changes
from broker.http.contents import Contents
from broker.http.entering import Entering
from broker.http.groups import Groups
from broker.http.overview import Overview
from broker.http.questions import Questions
from broker.http.quotas import Quotas
from broker.http.topics import Topics
from broker.listening import listen
from broker.metrics import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from broker.broker import Broker
    from broker.clock import Timer
    from broker.security.tls import Tls

logger = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
QUIET_MS = 75_000
"""a connection that asks nothing for so long, or does not read its answer, is closed; aiohttp would let one
stay for ever that has never asked
"""
LONGEST_LINE = 512 * 1024
"""of a request: the longest key that a shell can hand to `kompakt get`, each of its bytes as %XX"""
server_logger = logging.getLogger(f"{__name__}.server")


@server_logger.addFilter
def _is_ours(record: logging.LogRecord) -> bool:
    """What a peer did wrong is told to the peer, and one that left (Ctrl-C of `kompakt topics compact`) is
    told nothing; a traceback of ours for each would fill the log.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


class Api:
    """What `/api/` answers. Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        asking = Asking(broker)
        self._changes = Changes(asking)
        self._rooms = (
            self._changes,
            Questions(asking),
            Overview(asking),
            Groups(asking),
            Contents(asking),
            Quotas(asking),
            Topics(asking),
        )

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        for room in self._rooms:
            room.add_to(router)

    async def stop(self) -> None:
        """End what somebody asked for and still runs."""
        await self._changes.stop()


class HttpServer:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._metrics = Metrics(broker)
        self._api = Api(broker)
        self._runner: web.AppRunner | None = None
        self._scraping = asyncio.Lock()
        self._quiet: dict[web.RequestHandler | Entering, Timer] = {}
        """connections with no request at hand, the longest silent first"""
        self._entering: set[Entering] = set()
        """those of them that shake hands"""
        self._tls: Tls | None = None
        self.port = -1
        """where it listens; -1 while it does not"""
        self.scheme = "http"
        self._renewing: asyncio.Task[None] | None = None

    async def start(self, server: asyncio.Server, address: str, tls: Tls | None) -> None:
        """Let `server`, whose connections are made by `connection`, listen; who made it closes it. `tls`: by
        which they are encrypted.

        Raises ListenError, which says `address`.
        """
        application = web.Application(middlewares=[self._at_work])
        application.router.add_get("/metrics", self.metrics)
        application.router.add_get("/healthz", self.healthz)
        self._api.add_to(application.router)
        Console().add_to(application.router)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=GRACE_SECONDS,
            max_line_size=LONGEST_LINE,
            logger=server_logger,
        )
        await self._runner.setup()
        self._tls = tls
        await listen(server, address)
        self.port = int(server.sockets[0].getsockname()[1])
        if tls is not None:
            self.scheme = "https"
            self._renewing = asyncio.get_running_loop().create_task(tls.keep_fresh(self._broker))

    def connection(self) -> asyncio.BaseProtocol:
        """What a new connection talks to."""
        return Entering(self)

    @property
    def tls(self) -> ssl.SSLContext | None:
        return None if self._tls is None else self._tls.context

    def has_room(self) -> bool:
        assert self._runner is not None and self._runner.server is not None
        most = self._broker.config.http_max_connections
        if len(self._runner.server.connections) + len(self._entering) >= most:
            eldest = next((quiet for quiet in self._quiet if quiet.transport is not None), None)
            if eldest is None:
                logger.warning("refused an HTTP connection: http.max.connections (%d) are at work", most)
                return False
            self._end(eldest)
        return True

    def hold(self, entering: Entering) -> None:
        self._entering.add(entering)
        self._fall_quiet(entering)

    def let_go(self, entering: Entering) -> None:
        self._entering.discard(entering)
        self._wake(entering)

    def admit(self, transport: asyncio.Transport) -> asyncio.Protocol:
        assert self._runner is not None and self._runner.server is not None
        connection = self._runner.server()
        connection.connection_made(transport)
        self._fall_quiet(connection)
        return connection

    def _fall_quiet(self, connection: web.RequestHandler | Entering) -> None:
        self._quiet[connection] = self._broker.clock.call_later(QUIET_MS, self._end, connection)

    def _wake(self, connection: web.RequestHandler | Entering) -> None:
        timer = self._quiet.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _end(self, connection: web.RequestHandler | Entering) -> None:
        self._wake(connection)
        connection.force_close()

    @web.middleware
    async def _at_work(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = request.protocol
        try:
            if request.can_read_body:
                with contextlib.suppress(web.RequestPayloadError):  # whoever reads it is told again
                    await request.read()  # until it is there, this is one of those that ask nothing
            self._wake(connection)
            answer = await handler(request)
        except web.HTTPException as error:
            if not request.path.startswith("/api/"):
                raise
            answer = in_json(request, error)
        finally:
            self._fall_quiet(connection)
        if late_ms := request.get(LATE_MS, 0):
            await self._broker.clock.sleep(late_ms)
        return answer

    async def stop(self) -> None:
        """Close the connections, after their answers."""
        await self._api.stop()
        if self._renewing is not None:
            self._renewing.cancel()
        for entering in tuple(self._entering):
            self._end(entering)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        for timer in self._quiet.values():
            timer.cancel()
        self._quiet.clear()
        self.port = -1

    async def metrics(self, request: web.Request) -> web.Response:
        """Every metric in Prometheus' text format. One at a time: with many groups one takes seconds, and the
        I/O threads are there for clients' reads as well.
        """
        async with self._scraping:
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
