"""Goal: a group of the consumer protocol has the session and heartbeat that it was given, through restarts,
and nobody gives it what the broker's bounds do not allow.

Method: a broker in the loop with a manual clock; settings by requests, members by heartbeats. What Kafka
answers to the same requests is asked in `tests/kafka/questions.py`, its words are repeated here.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

from config.group import group_rows
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from protocol.messages.groups import FindCoordinatorRequest
from tests.broker.client import Client, until
from tests.broker.conftest import World

GROUP = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE = 0, 1


async def alter(client: Client, *changes: tuple[str, str | None], group: str = "g") -> tuple[int, str | None]:
    """Error code and words."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=name, config_operation=DELETE if text is None else SET, value=text)
        for name, text in changes
    ]
    one = resource(resource_type=GROUP, resource_name=group, configs=configs)
    (answer,) = (await client.ask(IncrementalAlterConfigsRequest(resources=[one]), 1)).responses
    return answer.error_code, answer.error_message


async def described(client: Client, group: str = "g") -> dict[str, Any]:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    (result,) = (await client.ask(request, 4)).results
    assert result.error_code == 0
    return {entry.name: entry for entry in result.configs}


async def beat(client: Client, group: str = "g") -> Any:
    await client.ask(FindCoordinatorRequest(key=group), 3)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=[],
        subscribed_topic_names=["t"],
    )  # fmt: skip
    answer = await client.ask(request, 1)
    assert answer.error_code == 0
    return answer


async def test_members_are_told_and_expected_by_them(world: World) -> None:
    """A change holds for the next heartbeat of who is in, and after a restart."""
    world.topic("t")
    client = await world.connect()
    assert (await beat(client)).heartbeat_interval_ms == 1000
    assert await alter(client, (SESSION, "50000"), (HEARTBEAT, "7000")) == (0, None)
    await world.restart()
    client = await world.connect()
    assert (await beat(client)).heartbeat_interval_ms == 7000
    assert (await beat(client, "other")).heartbeat_interval_ms == 1000
    groups = world.broker.groups.groups
    world.clock.advance(49_999)
    assert [len(groups[name].members) for name in ("g", "other")] == [1, 0]
    world.clock.advance(1)
    assert len(groups["g"].members) == 0
    assert await alter(client, (HEARTBEAT, None)) == (0, None)
    assert (await beat(client)).heartbeat_interval_ms == 1000


async def test_what_is_described(world: World) -> None:
    client = await world.connect()
    await alter(client, (SESSION, "50000"))
    entries = await described(client)
    assert list(entries) == sorted(group_rows())
    assert list(entries)[:3] == ["consumer.assignment.interval.ms", HEARTBEAT, SESSION]
    reset = entries["share.auto.offset.reset"]
    assert [(one.name, one.value, one.source) for one in reset.synonyms] == [(reset.name, "latest", 5)]
    session, heartbeat = entries[SESSION], entries[HEARTBEAT]
    assert (session.value, session.config_source, session.read_only) == ("50000", 8, False)
    assert [(one.name, one.value, one.source) for one in session.synonyms] == [
        (SESSION, "50000", 8), ("group.consumer.session.timeout.ms", "45000", 5)
    ]  # fmt: skip
    assert (heartbeat.value, heartbeat.config_source) == ("1000", 5)
    answer = await client.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    assert [one.resource_name for one in answer.config_resources] == ["g"]
    await alter(client, (SESSION, None))
    assert (await client.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1)).config_resources == []


async def test_all_at_once_as_old_tools_do(world: World) -> None:
    client = await world.connect()
    await alter(client, (HEARTBEAT, "2000"))
    resource = AlterConfigsRequest.AlterConfigsResource
    one = resource(
        resource_type=GROUP,
        resource_name="g",
        configs=[resource.AlterableConfig(name=SESSION, value="46000")],
    )
    (answer,) = (await client.ask(AlterConfigsRequest(resources=[one]), 2)).responses
    assert answer.error_code == 0
    entries = await described(client)
    assert (entries[SESSION].value, entries[HEARTBEAT].value) == ("46000", "1000")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((SESSION, "44999"), "must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ((SESSION, "60001"), "must be less than or equal to group.consumer.max.session.timeout.ms"),
        ((HEARTBEAT, "999"), "must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ((HEARTBEAT, "15001"), "must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        (
            ("share.record.lock.duration.ms", "14999"),
            "must be greater than or equal to group.share.min.record.lock.duration.ms",
        ),
        (
            ("share.partition.max.record.locks", "4001"),
            "must be less than or equal to group.share.max.partition.max.record.locks",
        ),
    ],
)
async def test_bounds_are_told_in_kafkas_words(world: World, change: tuple[str, str], words: str) -> None:
    client = await world.connect()
    assert await alter(client, change) == (ErrorCode.INVALID_CONFIG, f"{change[0]} {words}")
    assert world.broker.group_settings.overrides == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((SESSION, "x"), f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        ((SESSION, "-1"), f"Invalid value -1 for configuration {SESSION}: Value must be at least 1"),
        (("nope", "1"), "Unknown group config name: nope"),
        (
            ("consumer.session.timeout", "1"),
            "Unknown group config name: consumer.session.timeout: did you mean consumer.session.timeout.ms?",
        ),
    ],
)
async def test_what_is_refused_in_kafkas_words(world: World, change: tuple[str, str], words: str) -> None:
    client = await world.connect()
    assert await alter(client, change) == (ErrorCode.INVALID_CONFIG, words)
    assert world.broker.group_settings.overrides == {}


async def test_what_does_nothing_here_is_refused_with_its_reason(world: World) -> None:
    client = await world.connect()
    code, words = await alter(client, ("consumer.assignor.offload.enable", "true"))
    assert code == ErrorCode.INVALID_CONFIG
    assert words.endswith("does nothing in kompakt: groups live on the event loop")


async def test_bounds_that_have_moved_hold_for_what_was_set_before(world: World) -> None:
    client = await world.connect()
    await alter(client, (SESSION, "60000"), (HEARTBEAT, "2000"))
    world.settings["group.consumer.max.session.timeout.ms"] = "50000"
    world.settings["group.consumer.min.heartbeat.interval.ms"] = "5000"
    await world.restart()
    config = world.broker.group_settings.of("g")
    assert (config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms) == (50_000, 5_000)


async def test_what_is_no_longer_understood_is_left_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.broker.group_settings.set("g", {SESSION: "soon", HEARTBEAT: "2000", "gone": "1"})
    with caplog.at_level(logging.ERROR):
        await world.restart()
    assert world.broker.group_settings.overrides == {"g": {HEARTBEAT: "2000"}}
    assert "a setting of group g is left out: gone" in caplog.text


async def test_what_holds_is_found_once_and_anew_when_it_changes(world: World) -> None:
    """Every request asks: it took a twelfth of a share fetch."""
    client, of = await world.connect(), world.broker.group_settings.of
    assert of("g") is of("other")
    for value in ("50000", "55000"):
        await alter(client, (SESSION, value))
        assert of("g").consumer_session_timeout_ms == int(value)
        assert of("g") is of("g") is not of("other")
    world.broker.config = dataclasses.replace(world.broker.config, group_share_delivery_count_limit=3)
    assert (of("g").share_delivery_count_limit, of("other").share_delivery_count_limit) == (3, 3)
    assert of("g").consumer_session_timeout_ms == 55_000
    world.broker.group_settings.set("g", {})
    assert of("g") is of("other")


async def test_settings_outlive_the_group(world: World) -> None:
    world.topic("t")
    client = await world.connect()
    await alter(client, (SESSION, "50000"))
    await beat(client)
    world.clock.advance(50_000)
    await until(lambda: world.broker.groups.groups["g"].is_empty)
    world.broker.groups.delete_group("g")
    assert (await described(client))[SESSION].value == "50000"
