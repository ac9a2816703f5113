"""A broker in a thread of this process, for one test or many."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from broker.broker_server import BrokerServer
from broker.questions.compactions import Compactions, Wish
from broker.questions.partitions import explained, moment_of
from broker.testing.moving_clock import MovingClock
from cleaner.selection import Reason
from config.broker import BrokerConfig
from config.listeners import address_text
from protocol.errors import ErrorCode, KafkaError
from storage.layout import TopicPartition

T = TypeVar("T")
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "http.port": "-1",
    "log.cleaner.enable": "false",  # a test says when
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.flush.interval.messages": str(2**63 - 1),  # what a test wrote need not outlive the machine
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "busy.poll.us": "0",  # the test wants the interpreter as well
}
LIMIT_SECONDS = 120.0
NOTHING_TO_DO = frozenset({Reason.EMPTY.value, Reason.NOTHING_DIRTY.value})
"""what keeps the cleaner from a partition without holding anything back"""
UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000, "ms": 1}


class CompactionRefused(Exception):
    """A partition could not be compacted; the message says why."""


class Kompakt:
    """A broker that serves while this is entered. Owned by: any thread; the broker has one of its own.

    `settings` are those of a broker, by Kafka's names; `data` is where its files are, else a directory that
    goes with it. A broker that is started again serves on the same ports.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, data: Path | None = None) -> None:
        self._owns_data = data is None
        self.data = Path(tempfile.mkdtemp(prefix="kompakt-")) if data is None else data
        self._settings = {**SETTINGS, "log.dirs": str(self.data), **(settings or {})}
        self.clock = MovingClock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._compactions: Compactions
        self.broker: BrokerServer
        """for who needs more than is here; only its own thread may touch it (`run`)"""

    # Life

    def __enter__(self) -> Kompakt:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Return when it serves. RuntimeError: it cannot, and why."""
        if self._thread is not None:
            raise RuntimeError("it is started already")
        self._ready.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, name="kompakt", daemon=True)
        self._thread.start()
        if not self._ready.wait(LIMIT_SECONDS):
            raise RuntimeError(f"the broker does not serve after {LIMIT_SECONDS:g} s")
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            raise RuntimeError(f"the broker cannot start: {self._failure}") from self._failure
        self._keep_ports()

    def stop(self) -> None:
        """A clean shutdown; the files stay."""
        if self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None

    def restart(self) -> None:
        """Stop and start, on the same ports and files."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the files unless `data` was given."""
        self.stop()
        if self._owns_data:
            shutil.rmtree(self.data, ignore_errors=True)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        broker: BrokerServer | None = None
        try:
            broker = BrokerServer(BrokerConfig.parse(self._settings), self.clock)
            await broker.start()
        except Exception as error:
            if broker is not None:
                await broker.stop()
            self._failure = error
            self._ready.set()
            return
        self.broker, self._compactions = broker, Compactions(broker)
        self._ready.set()
        await self._stopping.wait()
        await self._compactions.stop()
        await broker.stop()

    def _keep_ports(self) -> None:
        if self._settings["listeners"] == SETTINGS["listeners"]:
            self._settings["listeners"] = f"PLAINTEXT://{self.bootstrap_servers}"
        if self._settings["http.port"] == "0":
            self._settings["http.port"] = str(self.broker.http.port)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's thread; its result."""
        if self._thread is None:
            work.close()
            raise RuntimeError("the broker is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_SECONDS)

    # Where it is

    @property
    def bootstrap_servers(self) -> str:
        """For any Kafka client."""
        listener = self.broker.listeners[0]
        return address_text(listener.host, listener.port)

    @property
    def http(self) -> str:
        """The base of `/api/` and the console; RuntimeError unless `http.port` is set, 0 for any."""
        http = self.broker.http
        if http.port < 0:
            raise RuntimeError('there is no HTTP: give the setting "http.port": "0"')
        return f"{http.scheme}://{address_text(self.broker.config.http_host, http.port)}"

    # Topics and their compaction

    def create_topic(self, name: str, partitions: int | None = None, **config: str) -> None:
        """A topic of `partitions`, else of `num.partitions` (1 unless set), whose settings are written with
        underscores: `cleanup_policy="compact"`. KafkaError.
        """

        async def create() -> None:
            settings = {key.replace("_", "."): value for key, value in config.items()}
            count = self.broker.config.num_partitions if partitions is None else partitions
            if count < 1:
                raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic cannot have {count} partitions")
            await self.broker.topics.create_durably(name, count, settings)

        self.run(create())

    def compact(self, topic: str, partition: int | None = None) -> list[dict[str, Any]]:
        """Close the active segments and compact now, whatever the dirty ratio; before and after of each
        partition. CompactionRefused: something holds records back, a lag or an open transaction.
        """

        async def compact() -> list[dict[str, Any]]:
            found = []
            for place in self._places(topic, partition):
                answer = await self._compactions.compact(place, Wish(roll=True))
                why = answer.get("error") or answer["held_back_by"]
                if why is not None and why not in NOTHING_TO_DO:
                    raise CompactionRefused(f"{place} was not compacted: {why}")
                found.append({"partition": place.partition, **answer})
            return found

        return self.run(compact())

    def roll(self, topic: str, partition: int | None = None) -> None:
        """Close the active segments: the cleaner takes closed ones only."""

        async def roll() -> None:
            for place in self._places(topic, partition):
                self.broker.partitions[place].log.roll(self.clock.now_ms())

        self.run(roll())

    def clean(self) -> int:
        """Do what the cleaner would by itself now: ratios, lags and closed segments decide. How many
        cleanings there were.
        """

        def clean() -> int:
            manager, count = self.broker.cleaner, 0
            cleaner = manager.make_cleaner(lambda size: None)
            while (work := manager.grab()) is not None:
                manager.clean(cleaner, work)
                count += 1
            manager.expire(0)
            return count

        async def on_a_thread() -> int:
            return await self.broker.run_blocking(clean)

        return self.run(on_a_thread())

    def explain(self, topic: str, partition: int = 0) -> str:
        """Why a partition is or is not due to be compacted, in one sentence."""

        async def explain() -> str:
            (place,) = self._places(topic, partition)
            found, at = self.broker.topics.get(topic), moment_of(self.broker, place)
            assert found is not None
            assert at is not None
            moments = [(partition, at)]
            rows = await self.broker.run_blocking(explained, self.broker, found, moments, {})
            return str(rows[0]["sentence"])

        return self.run(explain())

    def _places(self, topic: str, partition: int | None) -> list[TopicPartition]:
        found = self.broker.topics.get(topic)
        if found is None:
            raise LookupError(f"there is no topic {topic}")
        places = [one for one in found.partitions() if partition in (None, one.partition)]
        if not places:
            raise LookupError(f"{topic} has {found.partition_count} partitions, none is {partition}")
        return places

    # Time

    def now_ms(self) -> int:
        """The broker's time."""
        return self.clock.now_ms()

    def advance(self, **by: float) -> None:
        """Let time pass for the broker: `advance(days=7, hours=1)`, also minutes, seconds and ms. What falls
        due by that has happened when this returns: retention, expiry of offsets, ends of transactions,
        removal of files; who was silent so long has lost its session. ValueError: an unknown unit, or back in
        time.
        """
        unknown = by.keys() - UNITS_MS.keys()
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: there are {', '.join(UNITS_MS)}")
        ms = round(sum(UNITS_MS[unit] * number for unit, number in by.items()))

        async def advance() -> None:
            self.clock.advance(ms)
            await self.broker.background.run_all()
            await self.broker.run_blocking(self.broker.cleaner.expire, 0)  # of compact,delete

        self.run(advance())
