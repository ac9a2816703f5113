"""Goal: Prometheus and a container's health check find the broker.

Method: a broker in the loop with its HTTP listener on a free port; an HTTP client asks it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from tests.broker.conftest import World

MakeWorld = Callable[..., Awaitable[World]]


@pytest.fixture
async def served(make_world: MakeWorld) -> World:
    return await make_world(http_port="0")


async def get(world: World, path: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{world.broker.http.port}{path}") as answer,
    ):
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_metrics(served: World) -> None:
    served.topic("t")
    status, kind, body = await get(served, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain")
    assert 'kafka_log_log_logendoffset{partition="0",topic="t"} 0.0' in body
    assert body.endswith("\n")


async def test_healthz(served: World) -> None:
    status, kind, body = await get(served, "/healthz")
    assert (status, kind.partition(";")[0]) == (200, "application/json")
    assert '"status": "ok"' in body
    served.broker.is_ready = False
    status, _, body = await get(served, "/healthz")
    assert status == 503
    assert "starting or stopping" in body


async def test_healthz_names_what_is_offline(served: World) -> None:
    served.topic("t")
    next(log for key, log in served.broker.logs.logs.items() if key.topic == "t").take_offline(
        "its disk failed"
    )
    status, _, body = await get(served, "/healthz")
    assert status == 200
    assert '"degraded"' in body
    assert "its disk failed" in body


async def test_other_paths(served: World) -> None:
    assert (await get(served, "/nothing"))[0] == 404


async def test_no_http_when_not_wanted(world: World) -> None:
    assert world.broker.http.port == -1
