"""Goal: a listener takes no more connections a second than `max.connection.creation.rate` allows: who comes
too soon waits, in order, is refused by nobody, and is served then as anybody else.

Method: a broker whose clock stands still until the test moves it; connections are seen to wait by what they
are not answered. `tests/kafka/test_creation_rate.py` compares with Apache Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from broker.cli import app
from broker.quotas.gate import LET_IN_AT_ONCE, Waiting
from config.broker import BrokerConfig
from config.definition import ConfigError
from config.listeners import CREATION_RATE
from protocol.errors import ErrorCode
from tests.broker.client import Client, until
from tests.broker.conftest import World
from tests.broker.questions.test_overview import get
from tests.broker.quotas.test_quotas import ASKS_NOTHING, CONNECTED, MakeWorld, set_quota
from tests.broker.test_configs import BROKER, DELETE, SET, alter, describe, incremental
from tests.broker.test_questions import Asker
from tests.certificates import Certificates

RATE = "max.connection.creation.rate"
OF_PLAINTEXT = f"listener.name.plaintext.{RATE}"
AT_ONCE = 10
"""connections of one a second: what ten seconds allow"""
Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    made: list[Client] = []

    async def to(world: World, listener: int = 0) -> Client:
        client = await Client.connect("127.0.0.1", world.broker.listeners[listener].port)
        made.append(client)
        return client

    yield to
    for client in made:
        await client.close()


async def served(client: Client) -> None:
    assert (await client.ask(ASKS_NOTHING, 3)).throttle_time_ms == 0


def waiting(world: World, listener: int = 0) -> int:
    return world.broker.servers[listener].gate.waiting


async def use_up(world: World, connect: Connect, listener: int = 0) -> None:
    """All that may come at once is there."""
    for _ in range(AT_ONCE):
        await served(await connect(world, listener))


async def queue(world: World, connect: Connect, count: int, listener: int = 0) -> list[Client]:
    """So many more, which wait one behind the other."""
    before, clients = waiting(world, listener), []
    for number in range(1, count + 1):
        client = await connect(world, listener)
        await until(lambda number=number: waiting(world, listener) == before + number)
        client.send(ASKS_NOTHING, 3)
        clients.append(client)
    return clients


async def is_answered(client: Client) -> bool:
    """Whether what it has asked is answered by now."""
    answer = asyncio.ensure_future(client.receive_frame())
    for _ in range(20):
        await asyncio.sleep(0)
    if answer.done():
        return True
    answer.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await answer
    return False


async def test_who_comes_too_soon_waits_and_is_served(make_world: MakeWorld, connect: Connect) -> None:
    world = await make_world(max_connection_creation_rate="1")
    counters = world.broker.metrics_state
    await use_up(world, connect)
    first, second, third = await queue(world, connect, 3)
    assert (counters.connections_throttled, counters.connections_open) == (3, AT_ONCE)
    assert (counters.throttled[RATE], counters.throttled_ms[RATE]) == (1, 1000)
    for client in (first, second, third):
        assert not await is_answered(client)
        world.clock.advance(999)
        assert not await is_answered(client)
        world.clock.advance(1)
        await client.receive_frame()
        await served(client)
    assert (counters.connections_throttled, counters.connections_open) == (0, AT_ONCE + 3)
    assert (counters.throttled[RATE], counters.throttled_ms[RATE]) == (3, 3000)
    assert counters.connections_refused == 0
    world.clock.advance(12_000)
    await use_up(world, connect)
    assert waiting(world) == 0


async def test_what_clients_set_holds_for_those_who_come_after(world: World, connect: Connect) -> None:
    """A listener's own rate instead of that of all; those who came before count."""
    admin = await connect(world)
    for _ in range(AT_ONCE - 1):
        await served(await connect(world))
    assert await alter(admin, incremental(BROKER, "", (RATE, SET, "1"))) is ErrorCode.NONE
    (client,) = await queue(world, connect, 1)
    assert not await is_answered(client)
    world.clock.advance(1000)
    await client.receive_frame()
    assert await alter(admin, incremental(BROKER, "1", (OF_PLAINTEXT, SET, "100"))) is ErrorCode.NONE
    assert world.broker.config.limit_of("PLAINTEXT", CREATION_RATE) == 100
    (client,) = await queue(world, connect, 1)
    assert not await is_answered(client), "that of the broker holds too"
    world.clock.advance(1000)
    await client.receive_frame()
    changes = (RATE, SET, "100"), (OF_PLAINTEXT, SET, "1")
    assert await alter(admin, incremental(BROKER, "1", *changes)) is ErrorCode.NONE
    (client,) = await queue(world, connect, 1)
    assert not await is_answered(client)
    world.clock.advance(1000)
    await client.receive_frame()
    assert await alter(admin, incremental(BROKER, "1", (OF_PLAINTEXT, DELETE, None))) is ErrorCode.NONE
    await served(await connect(world))
    assert waiting(world) == 0
    await world.restart()
    assert world.broker.config.max_connection_creation_rate == 100


async def test_listeners_share_the_rate_of_the_broker_and_wait_each_for_itself(
    make_world: MakeWorld, connect: Connect
) -> None:
    world = await make_world(
        listeners="ONE://127.0.0.1:0,TWO://127.0.0.1:0", max_connection_creation_rate="2",
        listener_security_protocol_map="ONE:PLAINTEXT,TWO:PLAINTEXT",
        listener_name_one_max_connection_creation_rate="1",
    )  # fmt: skip
    await use_up(world, connect, 0)
    await queue(world, connect, 1, 0)
    for _ in range(9):
        await served(await connect(world, 1))
    assert waiting(world, 1) == 0
    await queue(world, connect, 1, 1)  # the 21st of all
    assert (waiting(world, 0), waiting(world, 1)) == (1, 1)
    world.clock.advance(1000)
    assert (waiting(world, 0), waiting(world, 1)) == (0, 0)


async def test_at_no_rate_everybody_waits_a_window(make_world: MakeWorld, connect: Connect) -> None:
    world = await make_world(max_connection_creation_rate="0", quota_window_size_seconds="3")
    for client in await queue(world, connect, 2):
        world.clock.advance(2999)
        assert not await is_answered(client)
        world.clock.advance(1)
        await client.receive_frame()


async def test_who_goes_away_takes_nobodys_turn(make_world: MakeWorld, connect: Connect) -> None:
    world = await make_world(max_connection_creation_rate="1")
    await use_up(world, connect)
    first, *gone, last = await queue(world, connect, 6)
    for client in gone:
        await client.close()
    world.clock.advance(1000)
    await first.receive_frame()
    await until(lambda: waiting(world) == 1)
    world.clock.advance(1000)
    await last.receive_frame()
    assert world.broker.metrics_state.connections_throttled == 0
    assert world.broker.metrics_state.throttled[RATE] == 2


async def test_many_are_let_in_when_the_rate_is_higher(
    make_world: MakeWorld, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have their turn between."""
    world = await make_world(max_connection_creation_rate="1")
    admin = await connect(world)
    for _ in range(AT_ONCE - 1):
        await connect(world)
    clients = await queue(world, connect, LET_IN_AT_ONCE + 5)
    assert await alter(admin, incremental(BROKER, "1", (RATE, SET, "1000"))) is ErrorCode.NONE
    assert not await is_answered(clients[0]), "its time was told"
    later, call_later = [], world.clock.call_later

    def noted(delay_ms: float, *what: Any) -> Any:
        later.append((delay_ms, waiting(world)))
        return call_later(delay_ms, *what)

    monkeypatch.setattr(world.clock, "call_later", noted)
    world.clock.advance(1000)
    assert later == [(0, 4)]
    assert waiting(world) == 0
    for client in clients:
        await client.receive_frame()


async def test_no_more_wait_than_there_may_be_connections(make_world: MakeWorld, connect: Connect) -> None:
    world = await make_world(max_connection_creation_rate="1", max_connections=str(AT_ONCE + 2))
    await use_up(world, connect)
    first, second = await queue(world, connect, 2)
    third = await connect(world)
    assert await third.is_closed_by_peer()
    assert world.broker.metrics_state.connections_refused == 1
    for client in (first, second):
        world.clock.advance(1000)
        await client.receive_frame()


async def test_nor_at_all_listeners_together(make_world: MakeWorld, connect: Connect) -> None:
    """A connection that waits is a file of the process as well. Others may come when one has left."""
    world = await make_world(
        listeners="ONE://127.0.0.1:0,OTHER://127.0.0.1:0",
        listener_security_protocol_map="ONE:PLAINTEXT,OTHER:PLAINTEXT",
        max_connection_creation_rate="1",
        max_connections=str(AT_ONCE + 3),
    )
    await use_up(world, connect)
    (first, _), (third,) = await queue(world, connect, 2), await queue(world, connect, 1, 1)
    for listener in (0, 1):
        assert await (await connect(world, listener)).is_closed_by_peer()
    world.clock.advance(1000)
    await first.receive_frame()
    await third.receive_frame()
    assert await (await connect(world, 1)).is_closed_by_peer(), "who was let in has its place"
    await first.close()
    await until(lambda: world.broker.metrics_state.connections_open == AT_ONCE + 1)
    await queue(world, connect, 1)


async def test_a_stop_lets_nobody_in(make_world: MakeWorld, connect: Connect) -> None:
    world = await make_world(max_connection_creation_rate="1")
    await use_up(world, connect)
    clients = await queue(world, connect, 3)
    world.broker.servers[0].stop_listening()
    for client in clients:
        assert await client.is_closed_by_peer()
    assert (waiting(world), world.broker.metrics_state.connections_throttled) == (0, 0)
    world.clock.advance(10_000)
    assert world.broker.metrics_state.connections_opened == AT_ONCE


async def test_who_is_held_up_by_its_address_does_not_count(make_world: MakeWorld, connect: Connect) -> None:
    world = await make_world(max_connection_creation_rate="5")
    await set_quota(world, {"ip": "127.0.0.1"}, CONNECTED, 1)
    await use_up(world, connect)
    gate = world.broker.servers[0].gate
    before = gate.rate, world.broker.quotas.created.per_second(world.clock.passed_ms())
    for number in range(1, 6):
        await connect(world)
        await until(lambda number=number: world.broker.metrics_state.throttled[CONNECTED] == number)
    assert (
        (gate.rate, world.broker.quotas.created.per_second(world.clock.passed_ms())) == before == (1.1, 1.1)
    )


async def test_tls_begins_when_the_turn_has_come(make_world: MakeWorld, certificates: Certificates) -> None:
    world = await make_world(
        listeners="SSL://127.0.0.1:0", ssl_keystore_location=str(certificates.broker),
        max_connection_creation_rate="0",
    )  # fmt: skip
    context = ssl.create_default_context(cafile=certificates.authority)
    port = world.broker.listeners[0].port
    opened = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 20))
    await until(lambda: waiting(world) == 1)
    world.clock.advance(999)
    await asyncio.sleep(0)
    assert not opened.done()
    world.clock.advance(1)
    client = Client(*await opened, "test")
    await served(client)
    await client.close()


def test_a_turn_that_comes_before_the_connection_is_made() -> None:
    """The loop makes a connection after it has asked for what it talks to."""
    made: list[str] = []
    transport: Any = SimpleNamespace(is_closing=lambda: False, set_protocol=lambda _: made.append("set"))
    protocol: Any = SimpleNamespace(connection_made=lambda _: made.append("made"))
    waiting_one = Waiting(SimpleNamespace(make=lambda: protocol))  # type: ignore[arg-type]
    waiting_one.let_in()
    assert made == []
    waiting_one.connection_made(transport)
    assert made == ["set", "made"]


# What is set, and told


async def test_where_the_rate_of_a_listener_is_set_is_told(make_world: MakeWorld, connect: Connect) -> None:
    world = await make_world(
        max_connection_creation_rate="88", listener_name_PLAINTEXT_max_connection_creation_rate="77"
    )
    admin = await connect(world)
    told = await describe(admin, BROKER, "1", include_synonyms=True)
    found = told[OF_PLAINTEXT]
    assert (found.value, found.read_only, found.config_source, found.is_sensitive, found.config_type) == (
        "77", True, 4, False, 3,
    )  # fmt: skip
    assert [(one.name, one.value, one.source) for one in found.synonyms] == [
        (OF_PLAINTEXT, "77", 4), (RATE, "88", 4), (RATE, "2147483647", 5),
    ]  # fmt: skip
    changes = (OF_PLAINTEXT, SET, "50"), (RATE, SET, "60")
    assert await alter(admin, incremental(BROKER, "", *changes)) is ErrorCode.NONE
    assert await alter(admin, incremental(BROKER, "1", (RATE, SET, "70"))) is ErrorCode.NONE
    found = (await describe(admin, BROKER, "1", include_synonyms=True))[OF_PLAINTEXT]
    assert [(one.name, one.value, one.source) for one in found.synonyms] == [
        (OF_PLAINTEXT, "50", 3), (RATE, "60", 3), (OF_PLAINTEXT, "77", 4), (RATE, "88", 4),
        (RATE, "2147483647", 5),
    ]  # fmt: skip
    assert (found.value, found.config_source) == ("50", 3)
    of_all = await describe(admin, BROKER, "", include_synonyms=True)
    assert {name: (one.value, one.read_only) for name, one in of_all.items()} == {
        OF_PLAINTEXT: ("50", True), RATE: ("60", False),
    }  # fmt: skip
    await world.restart()
    assert world.broker.config.limit_of("PLAINTEXT", CREATION_RATE) == 50
    assert world.broker.config.max_connection_creation_rate == 70


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (RATE, "0", ErrorCode.INVALID_REQUEST),
        (RATE, "-1", ErrorCode.INVALID_REQUEST),
        (RATE, "1.5", ErrorCode.INVALID_REQUEST),
        (OF_PLAINTEXT, "0", ErrorCode.INVALID_REQUEST),
        (OF_PLAINTEXT, "x", ErrorCode.INVALID_REQUEST),
        (f"listener.name.nope.{RATE}", "5", ErrorCode.INVALID_REQUEST),
        ("listener.name.plaintext.max.connections.per.ip", "5", ErrorCode.INVALID_CONFIG),
        (f"listener.name.{RATE}", "5", ErrorCode.INVALID_CONFIG),
    ],
)
async def test_what_clients_cannot_set(
    world: World, connect: Connect, name: str, value: str, code: ErrorCode
) -> None:
    admin = await connect(world)
    for broker in ("1", ""):
        assert await alter(admin, incremental(BROKER, broker, (name, SET, value))) is code
    assert world.broker.config.limit_of("PLAINTEXT", CREATION_RATE) == 2**31 - 1


def test_a_listener_that_is_not_there_has_no_rate() -> None:
    with pytest.raises(ConfigError, match=f"listener.name.nope.{RATE} is for a listener that is not among"):
        BrokerConfig.parse({f"listener.name.nope.{RATE}": "1"})
    with pytest.raises(ConfigError, match=f"Invalid value -1 for configuration {OF_PLAINTEXT}: Value must"):
        BrokerConfig.parse({OF_PLAINTEXT: "-1"})


async def listed(world: World) -> list[str]:
    arguments = ["quotas", "list", "--http", f"127.0.0.1:{world.broker.http.port}"]
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    return done.stdout.splitlines()


async def test_how_fast_connections_are_taken_is_told(make_world: MakeWorld, connect: Connect) -> None:
    world = await make_world(http_port="0", listener_name_plaintext_max_connection_creation_rate="1")
    await use_up(world, connect)
    await queue(world, connect, 2)
    assert (await get(Asker(world), "quotas"))["listeners"] == [
        {"listener": None, "limit": None, "rate": 1.1, "waiting": 2},
        {"listener": "PLAINTEXT", "limit": 1, "rate": 1.1, "waiting": 2},
    ]
    of_listener = f"listener PLAINTEXT: {RATE} 1 connections/s; 1.1 now, 2 wait"
    assert await listed(world) == ["There are no quotas.", of_listener]
    for rate, told in ((1, []), (2, [of_listener])):
        world.broker.settings.set(True, {RATE: str(rate)})
        of_all = f"all listeners together: {RATE} {rate} connections/s; 1.1 now, 2 wait"
        assert await listed(world) == ["There are no quotas.", of_all, *told]
    _, _, text = await Asker(world).send("GET", "/metrics")
    assert f'kompakt_throttled_total{{quota="{RATE}"}} 1.0' in text
    assert "kompakt_connections_throttled 2.0" in text
