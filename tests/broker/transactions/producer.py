"""A transactional producer as a client has one: a connection, an id, an epoch, the sequences of its
partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.state_topic import Producer
from protocol.errors import ErrorCode
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from storage.layout import TopicPartition
from tests.broker.client import Client
from tests.broker.conftest import World, produce_request

T = TopicPartition("t", 0)
TIMEOUT_MS = 60_000


def partitions_request(topics: list[Any], who: Mapping[str, Any]) -> AddPartitionsToTxnRequest:
    names = {f"v3_and_below_{name}": value for name, value in who.items()}
    return AddPartitionsToTxnRequest(v3_and_below_topics=topics, **names)


class Transactional:
    """Errors are what its methods return."""

    def __init__(self, world: World, client: Client, transactional_id: str = "tx") -> None:
        self.world, self.client, self.transactional_id = world, client, transactional_id
        self.producer = Producer(-1, -1)
        self.sequences: dict[TopicPartition, int] = {}

    @classmethod
    async def begin(cls, world: World, transactional_id: str = "tx", **fields: Any) -> Transactional:
        """One that may write."""
        made = cls(world, await world.connect(), transactional_id)
        await made.client.ask(FindCoordinatorRequest(key_type=1, key=transactional_id), 3)
        assert await made.init(**fields) == 0
        return made

    @property
    def who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.epoch,
        }

    async def init(
        self, *, timeout_ms: int = TIMEOUT_MS, expected: Producer | None = None, version: int = 4
    ) -> ErrorCode:
        asked = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if expected is None else expected.producer_id,
            producer_epoch=-1 if expected is None else expected.epoch,
        )
        answer = await self.client.ask(asked, version)
        if not answer.error_code:
            self.producer = Producer(answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    async def add(self, *places: TopicPartition, version: int = 3) -> list[ErrorCode]:
        topics = [AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition]) for place in places]
        answer = await self.client.ask(partitions_request(topics, self.who), version)
        return [
            ErrorCode(one.partition_error_code)
            for result in answer.results_by_topic_v3_and_below
            for one in result.results_by_partition
        ]

    @property
    def batch_fields(self) -> dict[str, Any]:
        return {
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.epoch,
            "is_transactional": True,
        }

    async def write(self, value: bytes, place: TopicPartition = T, *, version: int = 9) -> ErrorCode:
        """From version 12 on the records bring their partition along."""
        batch = self.world.batch(
            (b"k", value), base_sequence=self.sequences.get(place, 0), **self.batch_fields
        )
        request = produce_request([(*place, batch)], transactional_id=self.transactional_id)
        answer = (await self.client.ask(request, version)).responses[0].partition_responses[0]
        if not answer.error_code:
            self.sequences[place] = self.sequences.get(place, 0) + 1
        return ErrorCode(answer.error_code)

    async def put(self, value: bytes, place: TopicPartition = T) -> None:
        """Add the partition and write."""
        assert await self.add(place) == [0]
        assert await self.write(value, place) == 0

    async def add_offsets(self, group_id: str = "g", *, version: int = 3) -> ErrorCode:
        answer = await self.client.ask(AddOffsetsToTxnRequest(group_id=group_id, **self.who), version)
        return ErrorCode(answer.error_code)

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, int], *, version: int = 3, **fields: Any
    ) -> list[ErrorCode]:
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = topic.TxnOffsetCommitRequestPartition
        topics = [
            topic(
                name=place.topic,
                partitions=[partition(partition_index=place.partition, committed_offset=offset)],
            )
            for place, offset in offsets.items()
        ]
        asked = TxnOffsetCommitRequest(topics=topics, **{"group_id": "g", **self.who, **fields})
        answer = await self.client.ask(asked, version)
        return [ErrorCode(one.error_code) for result in answer.topics for one in result.partitions]

    async def end_v2(self, *, is_commit: bool) -> ErrorCode:
        """It is who it is told to be from now on."""
        answer = await self.client.ask(EndTxnRequest(committed=is_commit, **self.who), 5)
        if not answer.error_code:
            after = Producer(answer.producer_id, answer.producer_epoch)
            if after != self.producer:
                self.sequences.clear()
            self.producer = after
        return ErrorCode(answer.error_code)

    async def end(self, *, is_commit: bool, version: int = 3) -> ErrorCode:
        return ErrorCode(
            (await self.client.ask(EndTxnRequest(committed=is_commit, **self.who), version)).error_code
        )
