"""Goal: how many connections may be open holds for all listeners together, for each of them, and for each
address, whatever is set of it while they are open.

Method: real connections to a broker of two listeners, from several of this machine's own addresses.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from broker.quotas import addresses, headcount
from config.broker import BrokerConfig
from config.definition import ConfigError
from protocol.errors import ErrorCode
from tests.broker.client import Client, until
from tests.broker.conftest import World
from tests.broker.quotas.test_quotas import ASKS_NOTHING, CONNECTED, MakeWorld, set_quota
from tests.broker.test_configs import BROKER, DELETE, SET, alter, incremental

MOST = "max.connections"
PER_IP = "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"
TWO_LISTENERS = {
    "listeners": "ONE://127.0.0.1:0,OTHER://127.0.0.1:0",
    "listener_security_protocol_map": "ONE:PLAINTEXT,OTHER:PLAINTEXT",
}
Come = Callable[..., Awaitable[bool]]


@pytest.fixture
async def come() -> AsyncIterator[Come]:
    """Whether one more may stay: it is answered, or the connection is closed."""
    made: list[Client] = []

    async def one_more(world: World, listener: int = 0, source: str = "127.0.0.1") -> bool:
        port = world.broker.listeners[listener].port
        client = await Client.connect("127.0.0.1", port, source=source)
        made.append(client)
        try:
            await client.ask(ASKS_NOTHING, 3)
        except (ConnectionError, EOFError):
            return False
        return True

    yield one_more
    for client in made:
        await client.close()


async def all_of(world: World, come: Come, count: int, source: str) -> list[bool]:
    return [await come(world, source=source) for _ in range(count)]


async def test_all_listeners_count_together(make_world: MakeWorld, come: Come) -> None:
    world = await make_world(**TWO_LISTENERS, max_connections="3")
    assert [await come(world, at) for at in (0, 1, 1, 0, 1)] == [True, True, True, False, False]
    assert world.broker.metrics_state.connections_refused == 2


async def test_so_do_the_connections_of_an_address(make_world: MakeWorld, come: Come) -> None:
    world = await make_world(**TWO_LISTENERS, max_connections_per_ip="2")
    assert [await come(world, at) for at in (0, 1, 1, 0)] == [True, True, False, False]
    assert await come(world, source="127.0.0.2")


async def test_a_listener_may_have_fewer(make_world: MakeWorld, come: Come) -> None:
    world = await make_world(**TWO_LISTENERS, **{"listener.name.other.max.connections": "1"})
    assert [await come(world, at) for at in (1, 1, 0, 0)] == [True, False, True, True]


async def test_who_has_left_makes_room(make_world: MakeWorld, come: Come) -> None:
    world = await make_world(max_connections_per_ip="1")
    client = await Client.connect("127.0.0.1", world.broker.listeners[0].port)
    await client.ask(ASKS_NOTHING, 3)
    assert not await come(world)
    await client.close()
    await until(lambda: world.broker.metrics_state.connections_open == 0)
    assert await come(world)


async def test_not_more_than_the_process_has_files_for(
    make_world: MakeWorld, come: Come, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headcount, "affordable_connections", lambda: 2)
    world = await make_world(**TWO_LISTENERS)
    assert [await come(world, at) for at in (0, 1, 0, 1)] == [True, True, False, False]


async def test_single_hosts_may_have_others(make_world: MakeWorld, come: Come) -> None:
    named = "127.0.0.3:3 ,127.0.0.4:0,localhost:1000"
    world = await make_world(max_connections_per_ip="2", max_connections_per_ip_overrides=named)
    assert await all_of(world, come, 4, "127.0.0.3") == [True, True, True, False]
    assert await all_of(world, come, 1, "127.0.0.4") == [False]
    assert await all_of(world, come, 3, "127.0.0.5") == [True, True, False]
    assert all(await all_of(world, come, 5, "127.0.0.1"))


async def test_what_is_set_holds_from_then_on(
    make_world: MakeWorld, come: Come, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a host that has only a name; and after the next start."""
    world = await make_world()
    admin = await Client.connect("127.0.0.1", world.broker.listeners[0].port)
    ask = addresses.socket.getaddrinfo

    def found(host: str, *more: object, **others: object) -> object:
        if host == "some.host":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.6", 0))]
        return ask(host, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(addresses.socket, "getaddrinfo", found)
    changes = (OVERRIDES, SET, "some.host:1,127.0.0.1:1000"), (PER_IP, SET, "0")
    assert await alter(admin, incremental(BROKER, "1", *changes)) is ErrorCode.NONE
    for _ in range(2):
        assert await all_of(world, come, 2, "127.0.0.6") == [True, False]
        assert await all_of(world, come, 1, "127.0.0.7") == [False]
        await admin.close()
        await world.restart()
        admin = await Client.connect("127.0.0.1", world.broker.listeners[0].port)
    both_gone = (OVERRIDES, DELETE, None), (PER_IP, DELETE, None)
    assert await alter(admin, incremental(BROKER, "1", *both_gone)) is ErrorCode.NONE
    assert all(await all_of(world, come, 3, "127.0.0.7"))
    await admin.close()


async def test_a_host_that_had_no_address_is_looked_up_again(
    make_world: MakeWorld, come: Come, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker may be there sooner than its name server; a quota of such a host waits for it as well."""
    known: dict[str, str] = {}
    asked_on: set[str] = set()
    ask = addresses.socket.getaddrinfo

    def found(host: str, *more: object, **others: object) -> object:
        if not host.endswith(".host"):
            return ask(host, *more, **others)  # type: ignore[arg-type]
        asked_on.add(threading.current_thread().name)
        if host not in known:
            raise OSError("the name server does not answer")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[host], 0))]

    monkeypatch.setattr(addresses.socket, "getaddrinfo", found)
    named = "some.host:1,127.0.0.1:1000"
    world = await make_world(max_connections_per_ip="0", max_connections_per_ip_overrides=named)
    known["other.host"] = "127.0.0.7"
    await set_quota(world, {"ip": "other.host"}, CONNECTED, 5)
    known.clear()
    await world.restart()
    asked_on.clear()
    for _ in range(3):
        await world.broker.background.look_up_hosts()
    assert await all_of(world, come, 1, "127.0.0.6") == [False]
    assert world.broker.quotas.hosts_at("127.0.0.7") == []
    for words in ("number of connections of some.host", "quota of other.host"):
        assert caplog.text.count(f"the {words} is left out: it has no address") == 1 + ("some" in words)
    known.update({"some.host": "127.0.0.6", "other.host": "127.0.0.7"})
    await world.broker.background.look_up_hosts()
    assert await all_of(world, come, 2, "127.0.0.6") == [True, False]
    assert world.broker.quotas.hosts_at("127.0.0.7") == ["other.host"]
    assert threading.main_thread().name not in asked_on


async def test_a_host_without_an_address_is_left_out(
    make_world: MakeWorld, come: Come, caplog: pytest.LogCaptureFixture
) -> None:
    named = "no.such.host.invalid:1,127.0.0.8:1"
    world = await make_world(max_connections_per_ip_overrides=named)
    assert "the number of connections of no.such.host.invalid is left out: it has no address" in caplog.text
    assert await all_of(world, come, 2, "127.0.0.8") == [True, False]


@pytest.mark.parametrize(
    "text", ["127.0.0.1", ":5", "127.0.0.1:x", "a b:1", "h:-1", "h:2147483648", "h:1;g:2"]
)
def test_what_is_no_override_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="is not the address or the name of a host, a colon, and a number"):
        BrokerConfig.parse({OVERRIDES: text})


def test_nobody_at_all_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"only where max\.connections\.per\.ip\.overrides says who may come"
    ):
        BrokerConfig.parse({PER_IP: "0"})
