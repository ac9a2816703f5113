"""Goal: who changes the settings of all topics in one request does not make every other client wait.

Nor does who reads them.

Method: a broker in the loop; one client changes a hundred topics, another asks meanwhile. The bytes of an
answer about many are looked for on the thread that makes them.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker.handlers import configs
from protocol.framing import encode_response
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.broker.client import until
from tests.broker.conftest import World

TOPIC, BROKER, SET = 2, 4, 0
COUNT = 100
NAMES = [f"t{number}" for number in range(COUNT)]


def replacing() -> AlterConfigsRequest:
    resource = AlterConfigsRequest.AlterConfigsResource
    entry = resource.AlterableConfig(name="retention.ms", value="5000")
    return AlterConfigsRequest(
        resources=[resource(resource_type=TOPIC, resource_name=name, configs=[entry]) for name in NAMES]
    )


def incremental() -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entry = resource.AlterableConfig(name="retention.ms", config_operation=SET, value="5000")
    return IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=TOPIC, resource_name=name, configs=[entry]) for name in NAMES]
    )


def changed(world: World) -> int:
    return sum(topic.config.retention_ms == 5000 for topic in world.broker.topics.all())


@pytest.mark.parametrize(
    ("request_", "response", "version"),
    [(replacing(), AlterConfigsResponse, 2), (incremental(), IncrementalAlterConfigsResponse, 1)],
    ids=["AlterConfigs", "IncrementalAlterConfigs"],
)
async def test_changes_of_all_topics_hold_nobody_up(
    world: World, request_: Any, response: Any, version: int
) -> None:
    for name in NAMES:
        world.topic(name)
    admin, other = await world.connect(), await world.connect()
    admin.send(request_, version)
    await until(lambda: changed(world))
    await other.ask(DescribeConfigsRequest(resources=[]), 4)
    assert changed(world) < COUNT
    _, answer = await admin.receive(response, version)
    assert [(one.resource_name, one.error_code) for one in answer.responses] == [(name, 0) for name in NAMES]
    assert changed(world) == COUNT


async def test_who_hangs_up_has_changed_all_of_them(world: World) -> None:
    for name in NAMES:
        world.topic(name)
    admin = await world.connect()
    admin.send(incremental(), 1)
    await until(lambda: changed(world))
    assert changed(world) < COUNT
    await admin.close()
    await until(lambda: changed(world) == COUNT)


async def test_the_answer_about_many_is_made_on_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers and texts are megabytes where topics are a thousand."""
    makers: list[threading.Thread] = []

    def encode(response: DescribeConfigsResponse, version: int, correlation_id: int) -> Any:
        makers.append(threading.current_thread())
        return encode_response(response, version, correlation_id)

    monkeypatch.setattr(configs, "encode_response", encode, raising=False)
    for name in NAMES:
        world.topic(name)
    client = await world.connect()
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [resource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in NAMES]
    answer = await client.ask(DescribeConfigsRequest(resources=wanted), 4)
    assert [one.resource_name for one in answer.results] == NAMES
    (maker,) = makers
    assert maker is not threading.main_thread()


async def test_who_hangs_up_has_changed_the_cleaner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings hold, and the cleaner works by them, whether or not somebody waits for the answer."""
    followed: list[int] = []

    def reconfigure(config: Any) -> None:
        followed.append(config.log_cleaner_backoff_ms)

    monkeypatch.setattr(world.broker.cleaner_pool, "reconfigure", reconfigure)
    is_flushed = asyncio.Event()
    monkeypatch.setattr(world.broker.metadata, "flushed", is_flushed.wait)
    admin = await world.connect()
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entry = resource.AlterableConfig(name="log.cleaner.backoff.ms", config_operation=SET, value="77")
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=BROKER, resource_name="1", configs=[entry])]
    )
    admin.send(request, 1)
    await until(lambda: world.broker.config.log_cleaner_backoff_ms == 77)
    await admin.close()
    await until(lambda: not world.broker.servers[0].connections)
    is_flushed.set()
    await until(lambda: followed)
    assert followed == [77]
