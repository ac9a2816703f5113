"""Goal: who is told to wait can read what it is told, also where an answer was encoded before that was known.

Method: answers of the APIs that encode them beforehand, in all their versions, with the time put into their
bytes; and a client beyond its quota that asks for so much that a thread encodes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.handlers import configs, group_offsets
from broker.quotas.throttle_time import with_throttle_time
from protocol.framing import decode_response, encode_response
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchResponse
from protocol.messages.produce import ProduceResponse
from protocol.schema import schema_of
from tests.broker.conftest import World
from tests.broker.quotas.test_quotas import ASKED, TEST, set_quota
from tests.broker.test_configs import TOPIC

MakeWorld = Callable[..., Awaitable[World]]
_TOPIC = ProduceResponse.TopicProduceResponse
_CONFIG = DescribeConfigsResponse.DescribeConfigsResult
_GROUP = OffsetFetchResponse.OffsetFetchResponseGroup
ANSWERS = (
    ProduceResponse(
        responses=[_TOPIC(name="t", partition_responses=[_TOPIC.PartitionProduceResponse(base_offset=7)])]
    ),
    DescribeConfigsResponse(results=[_CONFIG(resource_type=2, resource_name="t", error_message="words")]),
    OffsetFetchResponse(groups=[_GROUP(group_id="g", error_code=16)]),
    OffsetFetchResponse(error_code=16),
)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_the_time_is_put_into_the_bytes(answer: Any) -> None:
    schema, told = schema_of(type(answer)), 0
    for version in range(schema.versions.lowest, schema.versions.highest + 1):
        data = b"".join(encode_response(answer, version, 5))
        _, expected = decode_response(type(answer), version, data[4:])
        patched = with_throttle_time(data, schema.key, version, 1234)
        _, found = decode_response(type(answer), version, patched[4:])
        told += found.throttle_time_ms == 1234
        if hasattr(expected, "throttle_time_ms") and found.throttle_time_ms:
            expected.throttle_time_ms = 1234
        assert found == expected, version
        assert with_throttle_time(expected, schema.key, version, 9).throttle_time_ms == 9
    assert told >= schema.versions.highest - 2, "old versions have no place for it"


async def test_many_settings(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so many topics that a thread encodes the answer."""
    monkeypatch.setattr(configs, "DESCRIBED_AT_ONCE", 1)
    for name in ("a", "b", "c"):
        world.topic(name)
    await set_quota(world, TEST, ASKED, 0.0001)
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [resource(resource_type=TOPIC, resource_name=name) for name in ("a", "b", "c")]
    for version in (1, 2, 3, 4):
        client = await world.connect()
        answer = await client.ask(DescribeConfigsRequest(resources=asked), version)
        assert answer.throttle_time_ms > 0
        assert [one.resource_name for one in answer.results] == ["a", "b", "c"]
        assert {one.error_code for one in answer.results} == {0}


async def test_many_offsets(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "COMMITS_AT_ONCE", 0)
    world.topic()
    await world.commit(await world.connect())
    await set_quota(world, TEST, ASKED, 0.0001)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]
    )
    for version in (8, 9):
        client = await world.connect()
        answer = await client.ask(request, version)
        assert answer.throttle_time_ms > 0
        ((found,),) = ([*topic.partitions] for topic in answer.groups[0].topics)
        assert (found.partition_index, found.error_code) == (0, 0)
