"""Goal: a person sees where a share group stands, who is in it, and what is left: over HTTP, on the command
line, in metrics; and lets an empty one begin elsewhere.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from broker.cli import app
from tests.broker.conftest import World
from tests.broker.share.test_share_groups import ACCEPT, Member, produce, settings
from tests.broker.test_metrics import scrape, value
from tests.broker.test_questions import Asker


@pytest.fixture
async def world(make_world: Any) -> World:
    world: World = await make_world(http_port="0")
    world.topic("t")
    return world


@pytest.fixture
async def member(world: World) -> Member:
    """It has four records, of which it has accepted the second."""
    client = await world.connect()
    await settings(client, auto_offset_reset="earliest")
    await produce(world, client, b"a", b"b", b"c", b"d")
    member = await Member.join(world)
    await member.fetch()
    await member.acknowledge((1, 1, [ACCEPT]))
    return member


async def asked(world: World, path: str, body: object = None) -> Any:
    method = "GET" if body is None else "POST"
    status, _, text = await Asker(world).send(method, path, body, Content_Type="application/json")
    return json.loads(text) if status == 200 else (status, json.loads(text)["error"])


async def test_where_it_stands(world: World, member: Member) -> None:
    (row,) = (await asked(world, "/api/groups"))["groups"]
    assert row == {
        "group": "g", "type": "share", "state": "Stable", "protocol_type": "share", "assignor": "simple",
        "epoch": 2, "members": 1, "topics": ["t"], "lag": 3,
    }  # fmt: skip
    shown = await asked(world, "/api/groups/g")
    place = {"topic": "t", "partition": 0, "start_offset": 0, "high_watermark": 4, "lag": 3, "acquired": 3}
    assert shown["offsets"] == [place]
    (one,) = shown["members"]
    assert (one["member_id"], one["partitions"]) == ("m", [{"topic": "t", "partition": 0}])
    await world.restart()
    (place,) = (await asked(world, "/api/groups/g"))["offsets"]
    assert (place["start_offset"], place["lag"], place["acquired"]) == (0, 3, 0)


async def test_metrics(world: World, member: Member) -> None:
    samples, _ = await scrape(world)
    labels = {"consumergroup": "g", "topic": "t", "partition": "0"}
    assert value(samples, "kafka_consumergroup_current_offset", **labels) == 0
    assert value(samples, "kafka_consumergroup_lag", **labels) == 3


async def test_only_an_empty_one_begins_elsewhere(world: World, member: Member) -> None:
    body = {"topic": "t", "to": "offset", "value": 2}
    status, error = await asked(world, "/api/groups/g/reset", body)
    assert status == 409
    assert "g has members" in error
    await member.beat(epoch=-1)
    row = {"partition": 0, "committed_offset": 0, "new_offset": 2, "error": None}
    assert (await asked(world, "/api/groups/g/reset", {**body, "dry_run": True}))["partitions"] == [row]
    assert (await asked(world, "/api/groups/g"))["offsets"][0]["start_offset"] == 0
    assert (await asked(world, "/api/groups/g/reset", body))["partitions"] == [row]
    (place,) = (await asked(world, "/api/groups/g"))["offsets"]
    assert (place["start_offset"], place["lag"]) == (2, 2)


async def test_on_the_command_line(world: World, member: Member) -> None:
    http = f"http://127.0.0.1:{world.broker.http.port}"

    async def printed(*words: str) -> str:
        run = await world.broker.run_blocking(CliRunner().invoke, app, ["groups", *words, "--http", http])
        assert run.exit_code == 0, run.output
        return run.output

    listed = await printed("list")
    assert "share" in listed
    shown = await printed("show", "g")
    for word in ("share protocol", "simple", "t-0", "with members now", "m"):
        assert word in shown
    assert json.loads(await printed("show", "g", "--json"))["type"] == "share"
