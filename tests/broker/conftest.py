"""A whole broker in the test's event loop: real logs in a temporary directory, a free port, a clock that
stands still.

`world` starts it, restarts it, makes clients and topics, and at the end stops it and lets `storage.verify`
look at everything it left on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.broker_server import BrokerServer
from broker.clock import ManualClock
from broker.topic import Topic
from config.broker import BrokerConfig
from config.definition import ConfigError
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.group_offsets import OffsetCommitRequest
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.offsets import ListOffsetsRequest
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.records import Record, decode_all, encode_batch
from storage.verify import verify_data_directory
from tests.broker.client import Client, until
from tests.siege import Neighbour, Siege

PartitionAnswer = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
Fetched = FetchResponse.FetchableTopicResponse.PartitionData
KeyValue = tuple[bytes | None, bytes | None]


class World:
    """One broker and the clients that talk to it."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory),
            "http.port": "-1",
            "log.cleaner.enable": "false",
            "offsets.topic.num.partitions": "2",
            **settings,
        }
        self.broker: BrokerServer
        self._clients: list[Client] = []

    async def start(self) -> None:
        self.broker = BrokerServer(BrokerConfig.parse(self.settings), self.clock)
        await self.broker.start()

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()
        self._clients.clear()
        await self.broker.stop()

    async def hold_lingering(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A flush that nobody waits for does not come by itself any more, nor with one that is due."""
        await until(lambda: not self.broker.flusher._lingering)
        monkeypatch.setattr("broker.flusher.LINGER_SECONDS", 3600)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def connect(self) -> Client:
        listener = self.broker.listeners[0]
        client = await Client.connect("127.0.0.1", listener.port)
        self._clients.append(client)
        return client

    def topic(self, name: str = "t", partitions: int = 1, **overrides: str) -> Topic:
        """Make a topic; `cleanup_policy="compact"` is `cleanup.policy=compact`."""
        settings = {key.replace("_", "."): value for key, value in overrides.items()}
        return self.broker.topics.create(name, partitions, settings)

    def batch(self, *records: KeyValue, **fields: Any) -> bytes:
        now_ms = fields.pop("now_ms", self.clock.now_ms())
        return encode_batch([(now_ms, key, value, ()) for key, value in records], now_ms=now_ms, **fields)

    async def commit(self, client: Client) -> None:
        """Offset 1 of t-0 for the group g, which has no members."""
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        committed = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[committed])])
        assert (await client.ask(request, 7)).topics[0].partitions[0].error_code == 0

    async def produce(
        self,
        client: Client,
        records: bytes | None,
        topic: str = "t",
        partition: int = 0,
        *,
        acks: int = -1,
        version: int = 9,
    ) -> PartitionAnswer:
        """Produce to one partition; its answer."""
        response = await client.ask(produce_request([(topic, partition, records)], acks), version)
        answer: PartitionAnswer = response.responses[0].partition_responses[0]
        return answer

    async def values(
        self, client: Client, topic: str = "t", partition: int = 0, offset: int = 0
    ) -> list[bytes | None]:
        return [record.value for record in await self.records(client, topic, partition, offset)]

    async def records(
        self, client: Client, topic: str = "t", partition: int = 0, offset: int = 0
    ) -> list[Record]:
        """What one fetch from `offset` gives, once everything acknowledged is flushed."""
        asked = ListOffsetsRequest.ListOffsetsTopic
        latest = asked.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        await client.ask(ListOffsetsRequest(topics=[asked(name=topic, partitions=[latest])]), 5)
        response = await client.ask(fetch_request([(topic, partition, offset)]), 12)
        answer: Fetched = response.responses[0].partitions[0]
        assert answer.error_code == 0
        return list(decode_all(answer.records or b""))


def produce_request(
    batches: Sequence[tuple[str, int, bytes | None]], acks: int = -1, **fields: Any
) -> ProduceRequest:
    topics = [
        ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[
                ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=records)
            ],
        )
        for topic, index, records in batches
    ]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics, **fields)


def fetch_request(wanted: Sequence[tuple[Any, int, int]], **fields: Any) -> FetchRequest:
    """A fetch of (topic or topic id, partition, offset); fields of the partition begin with `partition_`."""
    own = {
        key: fields.pop(key) for key in list(fields) if key in ("current_leader_epoch", "last_fetched_epoch")
    }
    own["partition_max_bytes"] = fields.pop("partition_max_bytes", 1 << 20)
    topics = []
    for topic, index, offset in wanted:
        partition = FetchRequest.FetchTopic.FetchPartition(partition=index, fetch_offset=offset, **own)
        name = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
        topics.append(FetchRequest.FetchTopic(partitions=[partition], **name))
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26}
    return FetchRequest(topics=topics, **{**defaults, **fields})


@pytest.fixture
async def make_world(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[World]]]:
    made: list[World] = []

    async def make(**settings: str) -> World:
        world = World(tmp_path / "data", {key.replace("_", "."): value for key, value in settings.items()})
        made.append(world)
        await world.start()
        return world

    yield make
    for world in made:
        await world.stop()
        assert world.broker.metrics_state.unread_bytes == 0
        for path in world.settings["log.dirs"].split(","):
            assert verify_data_directory(Path(path)) == []


async def problem_at_start(directory: Path, **settings: str) -> str:
    """What is said to whoever starts a broker with these settings (_ for .); "" when it starts."""
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    try:
        broker = BrokerServer(BrokerConfig.parse({"log.dirs": str(directory), "node.id": "1", **texts}))
    except ConfigError as error:
        return error.message
    try:
        await broker.start()
    except ConfigError as error:
        return error.message
    finally:
        await broker.stop()
    return ""


@pytest.fixture
async def world(make_world: Callable[..., Awaitable[World]]) -> World:
    return await make_world()


@pytest.fixture(scope="session")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    """A broker process that tests attack; at the end every honest record must be there."""
    started = Siege(tmp_path_factory.mktemp("siege"))
    asyncio.run(started.make_topics())
    yield started
    try:
        started.end()
    finally:
        started.process.close()


@pytest.fixture
async def neighbour(siege: Siege) -> AsyncIterator[Neighbour]:
    """Who works beside the attack of a test, and may not notice it."""
    moved_in = await Neighbour.move_in(siege)
    await moved_in.produce()
    moved_in.begin()
    yield moved_in
    try:
        await moved_in.leave()
    finally:
        await siege.hang_up()
    siege.assert_nothing_else_was_said()
