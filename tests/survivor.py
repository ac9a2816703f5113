"""What a broker still has after something befell it: the records, settings and offsets of one small topic."""

from __future__ import annotations

import asyncio

from protocol.errors import ErrorCode
from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.group_offsets import OffsetFetchRequest
from protocol.messages.transactions import InitProducerIdRequest
from protocol.records import Record, decode_all, encode_batch
from tests.broker.client import LIMIT_SECONDS, Client
from tests.siege import PRODUCE_VERSION, fetch_request, produce_request

TOPIC = "kept"


async def write_numbers(client: Client, producer_id: int, count: int) -> None:
    for sequence in range(count):
        batch = encode_batch(
            [(None, b"%d" % sequence, b"value", ())],
            producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
        )  # fmt: skip
        answer = await client.ask(produce_request((TOPIC, 0, batch)), PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


class Survivor:
    """What a broker that started on a damaged directory still has."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def keys(self) -> list[bytes | None]:
        return [record.key for record in await self.records()]

    async def records(self) -> list[Record]:
        answer = await self.client.ask(fetch_request(TOPIC, 0), 12)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == ErrorCode.NONE
        return list(decode_all(partition.records or b""))

    async def segment_bytes(self) -> str:
        resource = DescribeConfigsRequest.DescribeConfigsResource
        asked = resource(resource_type=2, resource_name=TOPIC, configuration_keys=["segment.bytes"])
        answer = await self.client.ask(DescribeConfigsRequest(resources=[asked]), 4)
        value: str = answer.results[0].configs[0].value
        return value

    async def committed(self) -> int:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        request = OffsetFetchRequest(group_id="group", topics=[topic])
        async with asyncio.timeout(LIMIT_SECONDS):
            answer = await self.client.ask(request, 7)
            while answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # clients ask again, too
                answer = await self.client.ask(request, 7)
        assert answer.error_code == ErrorCode.NONE
        offset: int = answer.topics[0].partitions[0].committed_offset
        return offset

    async def new_producer_writes(self) -> None:
        """A new idempotent producer is not taken for the old one, whose id it must not get."""
        answer = await self.client.ask(InitProducerIdRequest(transactional_id=None), 4)
        assert answer.error_code == ErrorCode.NONE
        before = await self.keys()
        await write_numbers(self.client, answer.producer_id, 3)
        assert await self.keys() == [*before, b"0", b"1", b"2"]
