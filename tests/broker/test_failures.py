"""Goal: whatever fails, no answer says that all went well and that there is nothing.

Method: for every API and version, the answer to a request that has something in every list is looked through
for its code, in fields of that version alone; two that were lost once, by a client.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

import broker.handlers  # noqa: F401  # fills the table of APIs
from broker.api import Api, apis
from broker.context import RequestContext
from broker.failures import failure_response
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.group_offsets import OffsetFetchRequest
from protocol.messages.metadata import MetadataRequest
from protocol.schema import schema_of
from tests.broker.handlers_world import World, serving
from tests.protocol.messages import filled

CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
VERSIONS = [
    (api, version) for api in apis.values() for version in range(api.min_version, api.max_version + 1)
]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with serving(monkeypatch) as found:
        yield found


def codes(message: Any, version: int) -> list[int]:
    """Every error code of the version."""
    found = []
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if not field.versions.has(version) or value is None:
            continue
        if field.name.endswith("error_code"):
            found.append(value)
        elif field.struct is not None:
            found += codes(value, version)
        elif field.element is not None and field.element.struct is not None:
            found += itertools.chain.from_iterable(codes(item, version) for item in value)
    return found


def has_empty_list(message: Any, version: int) -> bool:
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.kind == "array" and field.versions.has(version):
            if not value:
                return True
            is_nested = field.element is not None and field.element.struct is not None
            if is_nested and any(has_empty_list(item, version) for item in value):
                return True
    return False


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda value: getattr(value, "name", value))
def test_every_version_of_every_answer_tells_of_a_failure(api: Api, version: int) -> None:
    requests = (filled(api.request, version, seed) for seed in itertools.count())
    request = next(one for one in requests if not has_empty_list(one, version))
    response = failure_response(api, request, version, CODE, "why")
    assert response is not None
    assert CODE in codes(response, version)


@pytest.mark.parametrize("version", [1, 8, 9, 12, 13])
async def test_metadata_that_fails_is_not_a_topic_that_is_missing(world: World, version: int) -> None:
    def handler(broker: Any, context: RequestContext, request: MetadataRequest) -> Any:
        raise KafkaError(CODE)

    world.handle(MetadataRequest, handler)
    client = await world.connect()
    topic = MetadataRequest.MetadataRequestTopic
    answer = await client.ask(MetadataRequest(topics=[topic(name="t"), topic(name="u")]), version)
    assert [(row.name, row.error_code) for row in answer.topics] == [("t", CODE), ("u", CODE)]
    client.send(MetadataRequest(topics=None), version)
    if version < 13:  # of all topics there is none that could have it
        assert await client.is_closed_by_peer()


@pytest.mark.parametrize("version", [2, 7, 8, 10])
async def test_offsets_that_cannot_be_read_are_not_offsets_that_are_not_there(
    world: World, version: int
) -> None:
    def handler(broker: Any, context: RequestContext, request: OffsetFetchRequest) -> Any:
        raise KafkaError(CODE)

    world.handle(OffsetFetchRequest, handler)
    client = await world.connect()
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(group_id="g", groups=[group(group_id="g", topics=None)])
    answer = await client.ask(request, version)
    found = answer if version < 8 else answer.groups[0]
    assert found.error_code == CODE
