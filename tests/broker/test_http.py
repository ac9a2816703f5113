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


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/api/topics/t/explain", "/api/topics/t/get?key=k"])
async def test_what_can_be_read_can_be_asked_for_its_head(served: World, path: str) -> None:
    served.topic("t")
    async with (
        aiohttp.ClientSession() as session,
        session.head(f"http://127.0.0.1:{served.broker.http.port}{path}") as answer,
    ):
        assert (answer.status, await answer.read()) == (200, b"")


async def test_long_keys_can_be_asked_for(served: World) -> None:
    """As long as the shell takes them, with every byte escaped."""
    served.topic("t")
    status, _, body = await get(served, f"/api/topics/t/get?encoding=hex&key={'00' * 60_000}")
    assert (status, '"versions": []' in body) == (200, True)
    status, _, body = await get(served, f"/api/topics/t/get?key={'k' * 600_000}")
    assert status == 400


async def test_what_peers_do_wrong_is_no_traceback_in_the_log(
    served: World, caplog: pytest.LogCaptureFixture
) -> None:
    served.topic("t")
    assert (await get(served, "/" + "x" * 600_000))[0] == 400
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{served.broker.http.port}/api/topics/t/explain",
            data=b"{}",
            headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
        ) as answer,
    ):
        assert answer.status == 400
    await get(served, "/healthz")
    assert not [record for record in caplog.records if record.exc_info]


async def test_other_paths(served: World) -> None:
    assert (await get(served, "/nothing"))[0] == 404


async def test_no_http_when_not_wanted(world: World) -> None:
    assert world.broker.http.port == -1
