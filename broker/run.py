"""The broker as a process: event loop, signals, one line when it is ready, one exit status.

SIGTERM, SIGINT and SIGHUP drain, flush and mark a clean shutdown; a second SIGTERM or SIGINT ends at once.
Mirrors `kafka.Kafka`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import uvloop

from broker import service
from broker.broker_server import BrokerServer
from broker.io_threads import NO_MORE_THREADS
from broker.memory import MIB, fitted, memory_limit_bytes
from broker.output import give_up_output
from broker.warm_up import load_cleaner_kernels, settle
from config.listeners import address_text

if TYPE_CHECKING:
    from config.broker import BrokerConfig

logger = logging.getLogger(__name__)

EXIT_STARTED_IN_VAIN = 1
NO_NEW_THREAD = "can't start new thread"
"""what Python says of it"""


def run(config: BrokerConfig) -> int:
    """Serve until a signal ends it; the exit status of the process."""
    started = time.monotonic()
    _allow_all_files()
    limit_bytes = memory_limit_bytes()
    config, smaller = fitted(config, limit_bytes)
    if smaller:
        logger.info("memory is %d MiB, to which fit %s", limit_bytes // MIB, ", ".join(smaller))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, started))


def _allow_all_files() -> None:
    """As many open files as the system lets this process have: the customary 1024 are few connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: BrokerConfig, started: float) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    broker: BrokerServer | None = None

    def stop() -> None:
        stopping.set()
        if broker is not None:
            broker.kernels.give_up()

    def on_signal() -> None:
        if stopping.is_set():
            os._exit(EXIT_STARTED_IN_VAIN)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` wants it
        loop.add_signal_handler(signal.SIGHUP, stop)  # a terminal that closes may send several
    try:
        broker = BrokerServer(config)
        broker.cleaner_pool.hold()
        await broker.start()
        line = _ready_line(broker, time.monotonic() - started)
        _say(line)
        service.tell("READY=1", f"STATUS={line}")
        await broker.kernels.run(load_cleaner_kernels)
        broker.cleaner_pool.go_on()
        settle()
        await stopping.wait()
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
    except Exception as error:
        logger.debug("the start failed", exc_info=error)
        reason = NO_MORE_THREADS if str(error) == NO_NEW_THREAD else error
        print(f"kompakt cannot start: {reason}", file=sys.stderr, flush=True)  # noqa: T201
        try:
            if broker is not None:
                await broker.stop()
        except Exception as another:  # most likely for the same reason: the next start recovers
            logger.debug("the end of the start failed", exc_info=another)
            _leave(EXIT_STARTED_IN_VAIN)
        return EXIT_STARTED_IN_VAIN
    assert broker is not None
    logger.info("stopping")
    service.tell("STOPPING=1", "STATUS=stopping")
    await broker.stop()
    if broker.kernels.is_going_on:
        _leave(0)
    return 0


def _leave(status: int) -> NoReturn:
    """At once: the end of the interpreter would wait for the compiler, or take its memory from under it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    logging.shutdown()
    os._exit(status)


def _say(line: str) -> None:
    """A broker serves, whether or not somebody can be told."""
    try:
        print(line, flush=True)  # noqa: T201
    except OSError as error:
        logger.warning("%s (standard output takes nothing: %s)", line, error.strerror)
        give_up_output()


def _ready_line(broker: BrokerServer, seconds: float) -> str:
    places = ", ".join(address_text(listener.host, listener.port) for listener in broker.listeners)
    topics = [topic for topic in broker.topics.all() if not topic.is_internal]
    partitions = sum(topic.partition_count for topic in topics)
    http = f"{broker.http.scheme.upper()} on port {broker.http.port}" if broker.http.port >= 0 else "no HTTP"
    return (
        f"kompakt is ready: Kafka on {places}, {http}, "
        f"{len(topics)} topics, {partitions} partitions, started in {seconds:.2f} s"
    )
