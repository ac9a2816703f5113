"""Goal: Prometheus and a container's health check find the broker.

Method: a broker in the loop with its HTTP listener on a free port; an HTTP client asks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import aiohttp
import pytest
from aiohttp import web

from broker.http.server import QUIET_MS
from broker.metrics import Metrics, Moment
from tests.broker.client import LIMIT_SECONDS, until
from tests.broker.conftest import World

MakeWorld = Callable[..., Awaitable[World]]
Connect = Callable[[World], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


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
    assert kind == "text/plain; version=0.0.4; charset=utf-8", "Metricbeat and the like know no other"
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


async def test_what_the_api_does_not_have_is_told_in_json(served: World) -> None:
    """As everything that it refuses; HTTP's own words stay where no JSON is spoken."""
    served.topic("t")
    explain = f"http://127.0.0.1:{served.broker.http.port}/api/topics/t/explain"
    too_long = io.BytesIO(b" " * (2 << 20))
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        for method, address, body, status, words in (
            ("GET", f"{explain}s", None, 404, "there is no '/api/topics/t/explains' here"),
            ("DELETE", explain, None, 405, "DELETE is not taken here, GET,HEAD,POST would be"),
            ("POST", explain, too_long, 413, "the body is too long: 1048576 bytes are taken"),
        ):
            async with session.request(method, address, data=body) as answer:
                assert (answer.status, await answer.json()) == (status, {"error": words})
                assert answer.headers.get("Allow") == ("GET,HEAD,POST" if status == 405 else None)
    status, kind, _ = await get(served, "/apiary")
    assert (status, kind.partition(";")[0]) == (404, "text/plain")


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


async def test_a_peer_that_leaves_before_its_answer_is_no_traceback_in_the_log(
    served: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C of `kompakt topics compact`: what aiohttp raises then is raised here for every answer."""

    async def left(response: web.StreamResponse, request: web.BaseRequest) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    served.topic("t", cleanup_policy="compact")
    monkeypatch.setattr(web.StreamResponse, "prepare", left)
    async with aiohttp.ClientSession() as session:
        for accepted in ("application/x-ndjson", "application/json"):
            with pytest.raises(aiohttp.ClientError):
                await session.post(
                    f"http://127.0.0.1:{served.broker.http.port}/api/topics/t/compact",
                    json={},
                    headers={"Accept": accepted},
                )
    assert not [record for record in caplog.records if record.exc_info]


async def test_other_paths(served: World) -> None:
    assert (await get(served, "/nothing"))[0] == 404


async def test_no_http_when_not_wanted(world: World) -> None:
    assert world.broker.http.port == -1


class Gate:
    """Scrapes that take until the test lets them end."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = 0

    def render(self, _: object, moment: Moment) -> bytes:
        self.begun += 1
        assert self.open.wait(LIMIT_SECONDS)
        return b""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(Metrics, "render", lambda *arguments: gate.render(*arguments))
    yield gate
    gate.open.set()


async def test_a_bug_of_ours_is_told_as_json_and_logged(
    served: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks `/api/` reads JSON, whatever happens."""
    rows: dict[str, object] = {}
    monkeypatch.setattr("broker.http.quotas.waiting_rows", lambda broker: rows["missing"])
    status, kind, body = await get(served, "/api/quotas")
    assert (status, kind.partition(";")[0]) == (500, "application/json")
    assert json.loads(body) == {"error": "the broker failed at this, its log tells where: KeyError"}
    (record,) = [one for one in caplog.records if one.exc_info]
    assert (record.levelname, record.getMessage()) == ("ERROR", "GET /api/quotas failed")
    assert served.broker.metrics_state.internal_errors == 1


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Make connections that the test's end closes."""
    writers: list[asyncio.StreamWriter] = []

    async def connect(world: World) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.broker.http.port)
        writers.append(writer)
        return reader, writer

    yield connect
    for writer in writers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def is_ended(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(LIMIT_SECONDS):
        try:
            return await reader.read(1) == b""
        except ConnectionResetError:
            return True


async def test_who_asks_nothing_gives_way(make_world: MakeWorld, connect: Connect) -> None:
    """Each connection is a descriptor, and partitions need some."""
    world = await make_world(http_port="0", http_max_connections="3")
    silent = [await connect(world) for _ in range(3)]
    assert (await get(world, "/healthz"))[0] == 200
    assert await is_ended(silent[0][0])
    for reader, writer in silent[1:]:
        writer.write(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 404")


async def test_who_announces_a_body_and_sends_none_gives_way_too(
    make_world: MakeWorld, connect: Connect
) -> None:
    world = await make_world(http_port="0", http_max_connections="2")
    half = [await connect(world) for _ in range(2)]
    for _, writer in half:
        writer.write(
            f"POST /api/quotas/set HTTP/1.1\r\nHost: 127.0.0.1:{world.broker.http.port}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{".encode()
        )
        await writer.drain()
    assert (await get(world, "/healthz"))[0] == 200
    assert await is_ended(half[0][0])
    world.clock.advance(QUIET_MS)
    assert await is_ended(half[1][0])


async def test_connections_beyond_the_limit_are_refused(
    make_world: MakeWorld, connect: Connect, gate: Gate
) -> None:
    world = await make_world(http_port="0", http_max_connections="1")
    scrape = asyncio.create_task(get(world, "/metrics"))
    await until(lambda: gate.begun)
    reader, _ = await connect(world)
    assert await is_ended(reader)
    gate.open.set()
    assert (await scrape)[0] == 200
    assert (await get(world, "/healthz"))[0] == 200


async def test_a_silent_connection_does_not_stay(served: World, connect: Connect) -> None:
    before, asked = await connect(served), await connect(served)
    asked[1].write(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await asked[0].readline()).startswith(b"HTTP/1.1 404")
    await asked[0].readuntil(b"404: Not Found")
    served.clock.advance(QUIET_MS)
    assert await is_ended(before[0])
    assert await is_ended(asked[0])


async def test_who_is_at_work_is_not_silent(served: World, gate: Gate) -> None:
    scrape = asyncio.create_task(get(served, "/metrics"))
    await until(lambda: gate.begun)
    served.clock.advance(QUIET_MS)
    gate.open.set()
    assert (await scrape)[0] == 200


async def test_one_scrape_at_a_time(served: World, gate: Gate) -> None:
    """Clients' reads need the I/O threads."""
    scrapes = [asyncio.create_task(get(served, "/metrics")) for _ in range(3)]
    await until(lambda: gate.begun)
    for _ in range(3):
        assert (await get(served, "/healthz"))[0] == 200
    assert gate.begun == 1
    gate.open.set()
    assert [status for status, *_ in await asyncio.gather(*scrapes)] == [200] * 3
    assert gate.begun == 3
