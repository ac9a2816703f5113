"""Goal: quotas are set and removed over HTTP as by Kafka's clients; which of them holds for whom, why, and
who is held back now is told as it is.

Method: a broker in the loop whose clock stands still; quotas are set over HTTP, clients that do too much by
real requests, and what is told is compared with the list of precedence that Apache Kafka documents.
"""

from __future__ import annotations

import itertools
import json
from typing import Any
from urllib.parse import urlencode

import pytest

from broker.questions.words import amount, entity, quota
from broker.quotas.limits import by_rank
from broker.quotas.settings import entity_of
from broker.quotas.waits import MOST_REMEMBERED, Waits
from protocol.errors import ErrorCode
from protocol.messages.quotas import DescribeClientQuotasRequest
from protocol.messages.topics import CreateTopicsRequest
from tests.broker.client import Client, until
from tests.broker.questions.test_overview import get, post
from tests.broker.quotas.test_quotas import (
    ASKED,
    CHANGED,
    CONNECTED,
    READ,
    TEST,
    WRITTEN,
    MakeWorld,
    Names,
    request_of,
    set_quota,
)
from tests.broker.test_questions import Asker

ME = "ANONYMOUS"


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    return Asker(await make_world(http_port="0"))


async def put(asker: Asker, names: Names, status: int = 200, **values: Any) -> dict[str, Any]:
    return await post(asker, "quotas/set", {"entity": names, "values": values}, status)


async def drop(asker: Asker, names: Names, status: int = 200, *quotas: str) -> dict[str, Any]:
    body = {"entity": names, **({"quotas": quotas} if quotas else {})}
    return await post(asker, "quotas/remove", body, status)


async def explain(asker: Asker, **who: str) -> dict[str, dict[str, Any]]:
    """By the quota."""
    query = urlencode({name.replace("_", "-"): value for name, value in who.items()})
    return {one["quota"]: one for one in (await get(asker, f"quotas/explain?{query}"))["quotas"]}


async def waiting(asker: Asker) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await get(asker, "quotas"))["waiting"]
    return rows


async def metric(asker: Asker, name: str) -> list[str]:
    """The samples of a metric."""
    _, _, text = await asker.send("GET", "/metrics")
    return [line for line in text.splitlines() if line.startswith(name)]


# What is set


async def test_what_is_set_is_what_clients_are_told(asker: Asker) -> None:
    world = asker.world
    told = await put(asker, {"client-id": "c"}, producer_byte_rate=5242880, request_percentage=12.5)
    assert told["values"] == {WRITTEN: 5242880, ASKED: 12.5}
    assert (await put(asker, {"client-id": "c"}, consumer_byte_rate=1))["values"].keys() == {
        WRITTEN, READ, ASKED,
    }  # fmt: skip
    await put(asker, {"user": None, "client-id": "c"}, controller_mutation_rate=0.25)
    await put(asker, {"ip": "localhost"}, connection_creation_rate=7)
    await put(asker, {"ip": None}, connection_creation_rate=8)
    client = await world.connect()
    described = (await client.ask(DescribeClientQuotasRequest(components=[]), 1)).entries
    by_clients = {
        entity_of((part.entity_type, part.entity_name) for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in described
    }
    rows = (await get(asker, "quotas"))["quotas"]
    assert {entity_of(one["entity"].items()): one["values"] for one in rows} == by_clients
    assert by_clients[("client-id", "c"), ("user", None)] == {CHANGED: 0.25}
    assert len(rows) == 4
    await world.restart()
    assert (await get(asker, "quotas"))["quotas"] == rows


async def test_what_is_removed_is_gone(asker: Asker) -> None:
    await put(asker, TEST, producer_byte_rate=1, consumer_byte_rate=2, request_percentage=3)
    assert (await drop(asker, TEST, 200, READ))["values"] == {WRITTEN: 1, ASKED: 3}
    told = await drop(asker, TEST, 404, READ)
    assert told["error"] == f"client-id 'test' has no {READ}; it has {WRITTEN}, {ASKED}"
    assert (await drop(asker, TEST))["values"] == {}
    assert (await drop(asker, TEST, 404))["error"] == "client-id 'test' has no quotas"
    assert not asker.world.broker.quotas.is_active
    assert (await get(asker, "quotas"))["quotas"] == []


async def test_a_quota_of_a_host_that_has_no_address_any_more_can_be_removed(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(asker, {"ip": "localhost"}, connection_creation_rate=7)
    monkeypatch.setattr("broker.quotas.quotas.resolved", lambda host: None)
    await asker.world.restart()
    assert (await drop(asker, {"ip": "localhost"}))["values"] == {}
    assert (await put(asker, {"ip": "localhost"}, 400, connection_creation_rate=7))["error"] == (
        "localhost is not a valid IP or resolvable host."
    )


@pytest.mark.parametrize(
    ("names", "values", "words"),
    [
        (TEST, {}, "field 'values' is needed"),
        (TEST, {"no": 1}, "'no' is no quota of a user or a client id; there are producer_byte_rate, "),
        (TEST, {CONNECTED: 1}, "'connection_creation_rate' is no quota of a user or a client id"),
        ({"ip": "10.0.0.1"}, {WRITTEN: 1}, "is no quota of an address; there are connection_creation_rate"),
        (TEST, {WRITTEN: 0}, "Quota producer_byte_rate must be greater than 0"),
        (TEST, {WRITTEN: 1.5}, "producer_byte_rate cannot be a fractional value."),
        (TEST, {WRITTEN: 1e19}, "Proposed value for producer_byte_rate is too large for a LONG."),
        (TEST, {WRITTEN: "1"}, "'1' is no value of producer_byte_rate: it takes a number"),
        (TEST, {WRITTEN: True}, "'True' is no value of"),
        (TEST, {WRITTEN: None}, "'None' is no value of"),
        (TEST, {ASKED: float("inf")}, "'inf' is no value of request_percentage"),
        (TEST, {ASKED: float("nan")}, "'nan' is no value of"),
        (TEST, {ASKED: 10**400}, "is no value of request_percentage"),
        (None, {WRITTEN: 1}, "field 'entity' is needed"),
        ({}, {WRITTEN: 1}, "Invalid empty client quota entity"),
        ({"user": ""}, {WRITTEN: 1}, "Empty user not supported"),
        ({"user": 1}, {WRITTEN: 1}, "the names of an entity are strings, or null for the default"),
        ({"user": "\ud800"}, {WRITTEN: 1}, "surrogates not allowed"),
        ({"group": "g"}, {WRITTEN: 1}, "Unhandled client quota entity type: group"),
        ({"ip": "10.0.0.1", "user": "u"}, {CONNECTED: 1}, "Invalid quota entity combination"),
        ({"ip": "no.such.host.invalid"}, {CONNECTED: 1}, "is not a valid IP or resolvable host."),
    ],
)
async def test_what_cannot_be_set_is_refused(
    asker: Asker, names: Any, values: dict[str, Any], words: str
) -> None:
    body = {"values": values, **({} if names is None else {"entity": names})}
    assert words in (await post(asker, "quotas/set", body, 400))["error"]
    assert (await get(asker, "quotas"))["quotas"] == []


async def test_what_cannot_be_asked_is_refused(asker: Asker) -> None:
    told = (await get(asker, "quotas/explain", 400))["error"]
    assert told == "ask for one at least: ?user=NAME, ?client-id=NAME, ?ip=ADDRESS"
    assert (await get(asker, "quotas/explain?ip=localhost", 400))["error"] == "'localhost' is no address"


@pytest.mark.parametrize("key", [["x"], {}, 1, None])
async def test_names_of_quotas_are_strings(asker: Asker, key: Any) -> None:
    await put(asker, {"client-id": "c"}, producer_byte_rate=1)
    body = {"entity": {"client-id": "c"}, "quotas": [WRITTEN, key]}
    refused = await post(asker, "quotas/remove", body, 400)
    assert refused["error"] == "field 'quotas' has the names of quotas, which are strings"


async def test_values_that_json_does_not_know(asker: Asker) -> None:
    """Kafka's clients may set them; whoever reads the answer takes no Infinity."""
    await set_quota(asker.world, TEST, ASKED, float("inf"))
    _, _, text = await asker.send("GET", "/api/quotas")
    assert json.loads(text, parse_constant=pytest.fail)["quotas"][0]["values"] == {ASKED: "Infinity"}
    found = (await explain(asker, client_id="test"))[ASKED]
    assert (found["limit"], found["entity"]) == ("Infinity", TEST)


# What holds


def test_a_client_has_eight_rules_and_two_without_a_client_id() -> None:
    assert len(by_rank("u", "c")) == len(set(by_rank("u", "c"))) == 8
    assert by_rank("u", "") == (("u", ""), (None, ""))


async def test_the_first_that_is_set_holds(asker: Asker) -> None:
    """Each of the eight, before all that are less exact; and what is counted together under it."""
    me, default_user = {"user": ME}, {"user": None}
    client, default_client = {"client-id": "test"}, {"client-id": None}
    ranks: list[tuple[Names, Names]] = [
        (me | client, me | client),
        (me | default_client, me | client),
        (me, me),
        (default_user | client, me | client),
        (default_user | default_client, me | client),
        (default_user, me),
        (client, client),
        (default_client, client),
    ]  # type: ignore[list-item]
    for rank in range(8, 0, -1):
        await put(asker, ranks[rank - 1][0], producer_byte_rate=rank)
        found = (await explain(asker, client_id="test"))[WRITTEN]
        assert (found["limit"], found["entity"], found["counted"]) == (rank, *ranks[rank - 1])
        assert [rule["entity"] for rule in found["rules"]] == [names for names, _ in ranks]
        values = [rule["value"] for rule in found["rules"]]
        assert values == [one if one >= rank else None for one in range(1, 9)]
        assert [rule["holds"] for rule in found["rules"]] == [one == rank for one in range(1, 9)]
        assert found["sentence"].startswith(f"{rank} bytes/s, of {entity(ranks[rank - 1][0])}")
        assert asker.world.broker.quotas.produced.limit(ME, "test") == rank
    others = await explain(asker, client_id="test")
    assert others[READ]["sentence"] == "No quota holds: as much as it likes."


async def test_who_says_no_client_id_has_the_quotas_of_users(asker: Asker) -> None:
    await put(asker, {"client-id": None}, producer_byte_rate=1)
    await put(asker, {"user": "u", "client-id": None}, producer_byte_rate=2)
    assert (await explain(asker, user="u"))[WRITTEN]["limit"] is None
    await put(asker, {"user": None}, producer_byte_rate=3)
    found = (await explain(asker, user="u"))[WRITTEN]
    assert (found["limit"], found["counted"], len(found["rules"])) == (3, {"user": "u"}, 2)
    assert found == (await explain(asker, user="u", client_id=""))[WRITTEN]


async def test_what_holds_for_an_address(asker: Asker) -> None:
    await put(asker, {"ip": None}, connection_creation_rate=1)
    found = (await explain(asker, ip="127.0.0.1"))[CONNECTED]
    assert (found["limit"], found["entity"], found["counted"]) == (1, {"ip": None}, {"ip": "127.0.0.1"})
    await put(asker, {"ip": "localhost"}, connection_creation_rate=2)
    await put(asker, {"ip": "10.0.0.1"}, connection_creation_rate=4)
    found = (await explain(asker, ip="::ffff:127.0.0.1"))[CONNECTED]
    assert (found["limit"], found["entity"], found["counted"]) == (
        2, {"ip": "localhost"}, {"ip": "127.0.0.1"},
    )  # fmt: skip
    await put(asker, {"ip": "127.0.0.1"}, connection_creation_rate=3)
    found = (await explain(asker, ip="127.0.0.1", user="u"))[CONNECTED]
    assert (found["limit"], found["entity"]) == (3, {"ip": "127.0.0.1"}), "the one that was set last"
    assert [rule["holds"] for rule in found["rules"]] == [False, True, False]


# Who is held back


async def test_a_producer_that_is_held_back_is_seen(asker: Asker) -> None:
    world = asker.world
    world.topic()
    client = await world.connect()
    request, size_bytes = request_of(world, 20)
    await put(asker, {"client-id": None}, producer_byte_rate=size_bytes // 20)
    assert (await get(asker, "quotas"))["waiting"] == []
    assert await metric(asker, "kompakt_client_throttle_seconds_total") == []
    assert (await client.ask(request, 9)).throttle_time_ms == 10_000
    world.clock.advance(4000)
    found = (await explain(asker, client_id="test"))[WRITTEN]
    assert (found["rate"], found["waits_ms"]) == (size_bytes / 10, 6000)
    rate, limit = quota(WRITTEN, size_bytes / 10), quota(WRITTEN, size_bytes // 20)
    assert found["sentence"] == (
        f"{limit}, of the default client-id; counted for client-id 'test'; {rate} now; held back for 6 s."
    )
    assert (await explain(asker, client_id="other"))[WRITTEN]["waits_ms"] == 0
    answer = await get(asker, "quotas")
    assert answer["connections_throttled"] == 1
    assert answer["waiting"] == [
        {
            "quota": WRITTEN, "counted": {"client-id": "test"}, "limit": size_bytes // 20,
            "rate": size_bytes / 10, "waits_ms": 6000, "times": 1, "told_ms": 10_000,
            "last_ms": world.clock.now_ms() - 4000,
        }
    ]  # fmt: skip
    assert await metric(asker, "kompakt_client_throttle_seconds_total") == [
        f'kompakt_client_throttle_seconds_total{{client_id="test",ip="",quota="{WRITTEN}",user=""}} 10.0'
    ]
    world.broker.quotas.waits.told(READ, ("", "later"), 1, world.clock.now_ms(), world.clock.passed_ms())
    world.clock.advance(1)
    assert [(row["counted"]["client-id"], row["waits_ms"]) for row in await waiting(asker)] == [
        ("test", 5999), ("later", 0),
    ], "who still waits comes first"  # fmt: skip
    world.clock.advance(5999)
    await until(lambda: world.broker.metrics_state.connections_throttled == 0)
    row = (await waiting(asker))[1]
    assert (row["waits_ms"], row["times"]) == (0, 1)
    await drop(asker, {"client-id": None})
    row = (await waiting(asker))[1]
    assert (row["limit"], "rate" in row) == (None, False)


async def test_who_makes_too_many_topics_is_seen(asker: Asker) -> None:
    world = asker.world
    await put(asker, {"user": ME}, controller_mutation_rate=1)
    client = await world.connect()
    topic = CreateTopicsRequest.CreatableTopic
    for name, partitions, code in (
        ("a", 15, ErrorCode.NONE), ("b", 1, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    ):  # fmt: skip
        asked = topic(name=name, num_partitions=partitions, replication_factor=1)
        assert (await client.ask(CreateTopicsRequest(topics=[asked]), 7)).topics[0].error_code == code
    found = (await explain(asker, client_id="test"))[CHANGED]
    assert (found["tokens"], found["waits_ms"], found["counted"]) == (-4, 4000, {"user": ME})
    assert "-4 may be changed at once; held back for 4 s." in found["sentence"]


async def test_who_connects_too_often_is_seen(asker: Asker) -> None:
    world = asker.world
    await put(asker, {"ip": None}, connection_creation_rate=1)
    clients = []
    while not (rows := await waiting(asker)):
        clients.append(await Client.connect("127.0.0.1", world.broker.listeners[0].port))
        assert len(clients) < 20
    assert (rows[0]["quota"], rows[0]["counted"]) == (CONNECTED, {"ip": "127.0.0.1"})
    (sample,) = await metric(asker, "kompakt_client_throttle_seconds_total")
    assert 'client_id="",ip="127.0.0.1",quota="connection_creation_rate",user=""' in sample
    for client in clients:
        await client.close()


def test_few_are_remembered_the_last_first() -> None:
    waits = Waits()
    for number in range(3 * MOST_REMEMBERED):
        waits.told(WRITTEN, ("", f"c{number}"), 1000, 0, number)
    rows = list(waits.all())
    assert len(rows) == MOST_REMEMBERED
    assert [place for _, place, _ in rows][:2] == [
        ("", f"c{3 * MOST_REMEMBERED - 1 - one}") for one in (0, 1)
    ]
    assert waits.left_ms(WRITTEN, ("", "c299"), 500) == 799
    assert waits.left_ms(READ, ("", "c299"), 500) == 0
    waits.told(WRITTEN, ("", "c299"), 10, 7, 600)
    _, _, waited = next(iter(waits.all()))
    assert (waited.times, waited.told_ms, waited.last_ms, waited.ends_ms) == (2, 1010, 7, 1299)


def test_quotas_in_words() -> None:
    assert quota(WRITTEN, 5242880) == "5 242 880 bytes/s"
    assert [amount(one) for one in (0, 12.5, 0.25, 1e-6, 12345.678, -4, "Infinity")] == [
        "0", "12.5", "0.25", "1e-06", "12 346", "-4", "Infinity",
    ]  # fmt: skip
    assert quota("of a later version", 3) == "3"
    names = {"user": ("u", None), "client-id": ("c", None)}
    told = [
        entity({"user": user, "client-id": client}) for user, client in itertools.product(*names.values())
    ]
    assert told == [
        "user-principal 'u', client-id 'c'",
        "user-principal 'u', the default client-id",
        "the default user-principal, client-id 'c'",
        "the default user-principal, the default client-id",
    ]
    assert (entity({"ip": None}), entity({"ip": "::1"})) == ("the default ip", "ip '::1'")
