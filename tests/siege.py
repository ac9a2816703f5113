"""A broker process under attack, and the neighbour who must not notice.

`Siege` is the process and what can be seen of it from outside: its log lines, its memory. `Neighbour`
produces numbered records on a connection of its own while an attack runs, and reads every one of them back.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.topics import CreateTopicsRequest
from protocol.records import decode_all, encode_batch
from storage.verify import verify_data_directory
from tests.broker.client import LIMIT_SECONDS, Client
from tests.process import BrokerProcess

MIB = 1 << 20
FETCH_VERSION = 12
PRODUCE_VERSION = 9
TOPICS_VERSION = 4
STOPPING = " INFO broker.run: stopping"
SEVERE = (" WARNING ", " ERROR ", " CRITICAL ")
NEIGHBOUR, PLAIN, COMPACTED = "neighbour", "plain", "compacted"
SLACK_BYTES = 64 * MIB
"""what an attack may make the process take for a moment"""
MAX_DECOMPRESSED_BYTES = 32 * MIB
SETTINGS = {"max.decompressed.batch.bytes": str(MAX_DECOMPRESSED_BYTES)}

Batch = tuple[str, int, bytes | None]


def produce_request(*batches: Batch, acks: int = -1) -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            topic(name=name, partition_data=[topic.PartitionProduceData(index=index, records=records)])
            for name, index, records in batches
        ],
    )


def fetch_request(topic: str, offset: int, max_bytes: int = 8 * MIB) -> FetchRequest:
    asked = FetchRequest.FetchTopic
    partition = asked.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=max_bytes, topics=[asked(topic=topic, partitions=[partition])]
    )


class Siege:
    """Owned by: the test module that started it."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] = SETTINGS, *, prefix: Sequence[str] = ()
    ) -> None:
        self.process = BrokerProcess(directory / "data", settings, prefix=prefix).start()
        # Kernels are loaded behind the first answer: the memory for them is no client's doing.
        self.process.wait_until_ready()
        self.numbers: list[int] = []
        """what the neighbours have had acknowledged, at the offset of its place here"""
        self._said_before: dict[Client, int] = {}
        """how many severe lines there were when an open client connected (ports are used again)"""
        self._explained: set[str] = set()
        """the severe lines of the log that tests have asked for"""

    async def connect(self, client_id: str = "attacker") -> Client:
        said_before = len(self.severe_lines())
        client = await Client.connect("127.0.0.1", self.process.port, client_id)
        self._said_before[client] = said_before
        return client

    async def hang_up(self) -> None:
        """Close every client of the test."""
        for client in self._said_before:
            await client.close()
        self._said_before.clear()

    async def make_topics(self) -> None:
        await self.create_topic(NEIGHBOUR, segment_bytes=str(MIB), retention_ms="-1")
        await self.create_topic(PLAIN, retention_ms="-1")
        await self.create_topic(COMPACTED, cleanup_policy="compact")
        client = await self.connect("maker")
        answer = await client.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
        assert answer.coordinators[0].error_code == ErrorCode.NONE
        await self.hang_up()

    async def create_topic(self, name: str, **configs: str) -> None:
        client = await self.connect("maker")
        await self.create_topic_on(client, name, **configs)
        await self.hang_up()

    async def create_topic_on(self, client: Client, name: str, **configs: str) -> None:
        topic = CreateTopicsRequest.CreatableTopic
        config = topic.CreatableTopicConfig
        request = CreateTopicsRequest(
            timeout_ms=30_000,
            topics=[
                topic(
                    name=name,
                    num_partitions=1,
                    replication_factor=1,
                    configs=[config(name=key.replace("_", "."), value=text) for key, text in configs.items()],
                )
            ],
        )
        answer = await client.ask(request, TOPICS_VERSION)
        assert answer.topics[0].error_code == ErrorCode.NONE

    # what it says

    def severe_lines(self) -> list[str]:
        return [line for line in self.process.log().splitlines() if any(level in line for level in SEVERE)]

    def lines_about(self, client: Client) -> list[str]:
        host, port = client.local_address
        peer = re.compile(rf"{re.escape(host)}:{port}\b")
        return [line for line in self.severe_lines()[self._said_before[client] :] if peer.search(line)]

    async def explains(self, client: Client, *parts: str) -> None:
        """The log has exactly one severe line about `client`, and it has all of `parts`."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (lines := self.lines_about(client)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        self._explained.update(lines)
        assert len(lines) == 1, lines
        for part in parts:
            assert part in lines[0], (part, lines[0])

    def explain_all(self) -> None:
        """Take whatever was said so far for explained."""
        self._explained.update(self.severe_lines())

    def assert_nothing_else_was_said(self) -> None:
        unexplained = [line for line in self.severe_lines() if line not in self._explained]
        self._explained.update(unexplained)
        assert not unexplained, unexplained
        assert "Traceback" not in self.process.log()

    # what it takes

    def memory_bytes(self, name: str = "VmRSS") -> int:
        assert self.process.process is not None
        for line in Path(f"/proc/{self.process.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {name}")

    @contextlib.contextmanager
    def takes_at_most(self, extra_bytes: int) -> Iterator[None]:
        """The resident memory never rises by more than this within the block: the kernel keeps the peak."""
        assert self.process.process is not None
        Path(f"/proc/{self.process.process.pid}/clear_refs").write_text("5")
        before = self.memory_bytes()
        yield
        grown = self.memory_bytes("VmHWM") - before
        assert grown <= extra_bytes, f"{grown / MIB:.0f} MiB more"

    # the end

    def end(self, *, may_warn_until_stop: bool = False) -> None:
        """Every record of the neighbours is there, as it was; the process stops cleanly; the files are in
        order.

        Where it `may_warn_until_stop`, attackers that have hung up may be told of still: while a fetch of
        somebody waits, no more is read from him, so that what he sent behind it, and that he has gone, is
        known up to minutes later. Never a neighbour, nor an error, nor anything behind the stop.
        """
        if self.numbers:
            assert asyncio.run(self._all_numbers()) == self.numbers
        status = self.process.stop()
        if may_warn_until_stop:
            before, stopping, _ = self.process.log().rpartition(STOPPING)
            assert stopping
            self._explained.update(
                line
                for line in before.splitlines()
                if " WARNING " in line and f"(client {NEIGHBOUR})" not in line
            )
        self.assert_nothing_else_was_said()
        assert status == 0
        assert verify_data_directory(self.process.data) == []

    async def _all_numbers(self) -> list[int]:
        neighbour = await Neighbour.move_in(self)
        numbers = await neighbour.read(0)
        await self.hang_up()
        return numbers


class Neighbour:
    """An honest client beside the attackers. Owned by: one test."""

    def __init__(self, siege: Siege, client: Client) -> None:
        self.siege = siege
        self.client = client
        self._first = len(siege.numbers)
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @classmethod
    async def move_in(cls, siege: Siege) -> Neighbour:
        return cls(siege, await siege.connect(NEIGHBOUR))

    async def produce(self) -> None:
        """One record more, acknowledged when it is on disk."""
        number = len(self.siege.numbers)
        batch = encode_batch([(None, b"%d" % number, b"%d " % number * 50, ())], now_ms=1)
        answer: ProduceResponse = await self.client.ask(
            produce_request((NEIGHBOUR, 0, batch)), PRODUCE_VERSION
        )
        partition = answer.responses[0].partition_responses[0]
        assert (partition.error_code, partition.base_offset) == (0, number)
        self.siege.numbers.append(number)

    async def read(self, offset: int) -> list[int]:
        """Every record from `offset` on."""
        numbers = []
        while offset < len(self.siege.numbers):
            answer: FetchResponse = await self.client.ask(fetch_request(NEIGHBOUR, offset), FETCH_VERSION)
            partition = answer.responses[0].partitions[0]
            assert partition.error_code == 0
            for record in decode_all(partition.records or b""):
                if record.offset == offset:
                    number = int(record.key or b"")
                    assert record.value == b"%d " % number * 50
                    numbers.append(number)
                    offset += 1
        return numbers

    def begin(self) -> None:
        """Produce without a pause until `leave`."""
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while not self._stopping:
            await self.produce()
            await asyncio.sleep(0.005)

    async def goes_on(self, count: int = 5) -> None:
        """Return when this many more records are acknowledged."""
        enough = len(self.siege.numbers) + count
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(self.siege.numbers) < enough:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def leave(self) -> None:
        """After the attack: it still works, and all of this neighbour's records are there."""
        self._stopping = True
        if self._task is not None:
            await self._task
        await self.produce()
        assert await self.read(self._first) == self.siege.numbers[self._first :]
