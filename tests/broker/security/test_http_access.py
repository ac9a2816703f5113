"""Goal: the rules that hold for Kafka's clients hold over HTTP as well: who asks is known by name and
password, and is told nothing and does nothing that the rules do not allow.

Method: a broker in the loop with an authorizer, users of PLAIN and SCRAM, and rules; every route there is,
asked by nobody, by root and by users with single rights.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from broker.cli.asking import ask
from broker.http import access
from broker.http.access import MOST_PROVEN, SEE_BROKER, TOLD_EVERY_MS, Access, NotAllowed
from broker.http.server import Api
from broker.security.acls import CLUSTER_NAME, Acl, Operation, Pattern, Permission, Resource
from broker.security.bearer import InvalidToken
from config.security import UNSECURED_TOKENS
from protocol.scram import credential, salt_password
from storage.layout import TopicPartition
from storage.types import Origin
from tests.broker.client import LIMIT_SECONDS, until
from tests.broker.conftest import World
from tests.broker.questions.test_overview import commit
from tests.broker.test_questions import Asker, MakeWorld, put
from tests.tokens import unsigned

TOPIC, GROUP, CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER
SETTINGS = {
    "http_port": "0",
    "listeners": "SECURE://127.0.0.1:0",
    "listener_security_protocol_map": "SECURE:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "listener_name_secure_oauthbearer_sasl_server_callback_handler_class": UNSECURED_TOKENS,
    "listener_name_secure_plain_sasl_jaas_config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_root="secret" user_alice="wörd:1";'
    ),
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:root",
    "connection_failed_authentication_delay_ms": "0",
}
ROOT, ALICE = ("root", "secret"), ("alice", "wörd:1")


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    world = await make_world(**SETTINGS)
    world.topic("t", cleanup_policy="compact")
    world.topic("other")
    asker = Asker(world)
    await put(world, ("k", "1"), ("k", "2"))
    await commit(asker, "g", (0, 1))
    return asker


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def asked(
    asker: Asker,
    method: str,
    path: str,
    body: object = None,
    as_whom: tuple[str, str] | None = None,
    **more: str,
) -> tuple[int, dict[str, str], Any]:
    headers = {"Content_Type": "application/json", **more}
    if as_whom is not None:
        headers["Authorization"] = basic(*as_whom)
    status, told, text = await asker.send(method, f"/api/{path}", body, **headers)
    return status, told, json.loads(text)


async def status(asker: Asker, path: str, as_whom: tuple[str, str] | None = None, body: object = None) -> int:
    return (await asked(asker, "GET" if body is None else "POST", path, body, as_whom))[0]


def allow(
    world: World, operation: Operation, resource: Resource, name: str, user: str = "alice", **more: Any
) -> None:
    fields = {"pattern": Pattern.LITERAL, "host": "*", "permission": Permission.ALLOW, **more}
    assert world.broker.authorizer is not None
    world.broker.authorizer.add(
        [Acl(resource=resource, name=name, principal=f"User:{user}", operation=operation, **fields)]
    )


def routes(world: World) -> list[tuple[str, str]]:
    router = web.UrlDispatcher()
    Api(world.broker).add_to(router)
    found = {(one.method, one.resource.canonical) for one in router.routes() if one.resource}
    return sorted((method, path) for method, path in found if method != "HEAD")


# Who asks


async def test_nobody_is_told_anything_but_is_asked_who_it_is(asker: Asker) -> None:
    """Every route; and root is told by all of them."""
    found = routes(asker.world)
    assert len(found) > 15
    found.sort(key=lambda one: one[1].endswith("/delete"))  # behind it there is no topic
    for method, path in found:
        place = path.format(topic="t", group="g", partition=0).removeprefix("/api/")
        body = {} if method == "POST" else None
        got, headers, answer = await asked(asker, method, place, body)
        assert (got, headers["WWW-Authenticate"]) == (401, 'Basic realm="kompakt", charset="UTF-8"'), path
        assert answer == {"error": answer["error"]}
        assert "User:ANONYMOUS has no right to" in answer["error"]
        got, _, answer = await asked(asker, method, place, body, ROOT)
        assert got in (200, 400) or path.endswith("/create"), (path, answer)  # 400: more has to be said


@pytest.mark.parametrize(
    "header",
    [
        basic("root", "wrong"), basic("root", ""), basic("nobody", "secret"), basic("", "secret"),
        basic("ROOT", "secret"), "Basic !!!", "Basic cm9vdA==", "Bearer abc", "Basic",
        basic("root", "secret\0"), "Basic " + base64.b64encode(b"root:\xff").decode(),
    ],
)  # fmt: skip
async def test_who_is_not_who_it_says(asker: Asker, header: str) -> None:
    got, headers, answer = await asked(asker, "GET", "broker", Authorization=header)
    assert (got, "WWW-Authenticate" in headers) == (401, True)
    assert "cluster_id" not in answer
    assert await status(asker, "broker", ROOT) == 200


async def test_a_refusal_comes_late_and_is_counted(make_world: MakeWorld) -> None:
    world = await make_world(**{**SETTINGS, "connection_failed_authentication_delay_ms": "700"})
    counters = world.broker.metrics_state
    answer = asyncio.ensure_future(asked(Asker(world), "GET", "broker", as_whom=("root", "wrong")))
    await until(lambda: counters.failed_authentications == 1)
    world.clock.advance(699)
    assert await status(Asker(world), "broker", ROOT) == 200
    assert not answer.done()
    world.clock.advance(1)
    assert (await answer)[0] == 401
    assert (counters.authentications, counters.failed_authentications) == (1, 1)
    assert await status(Asker(world), "broker", ROOT) == 200
    assert counters.authentications == 1  # it is remembered


async def test_who_waits_for_a_refusal_is_in_nobodys_way(make_world: MakeWorld) -> None:
    """Who guesses on every connection that there may be does not keep others out."""
    world = await make_world(
        **{**SETTINGS, "connection_failed_authentication_delay_ms": "700", "http_max_connections": "4"}
    )
    port, counters = world.broker.http.port, world.broker.metrics_state
    readers, writers = [], []
    for number in range(4):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        header = basic("root", f"wrong{number}")
        writer.write(
            f"GET /api/broker HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {header}\r\n\r\n".encode()
        )
        readers.append(reader)
        writers.append(writer)
        await until(lambda: counters.failed_authentications == len(readers))
    assert (await Asker(world).send("GET", "/healthz"))[0] == 200
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await readers[0].read() == b"", "the eldest had to go"
        world.clock.advance(700)
        for reader in readers[1:]:
            assert await reader.readline() == b"HTTP/1.1 401 Unauthorized\r\n"
    for writer in writers:
        writer.close()


async def test_who_proves_a_password_leaves_places_to_others(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await make_world(**{**SETTINGS, "http_max_connections": "4"})
    asker, gate = Asker(world), threading.Event()
    monkeypatch.setattr(access, "_is_proof", lambda *_: gate.wait(LIMIT_SECONDS))
    try:
        proofs = [
            asyncio.ensure_future(asked(asker, "GET", "broker", as_whom=("root", str(number))))
            for number in range(3)
        ]
        (refused,), waiting = await asyncio.wait(proofs, return_when=asyncio.FIRST_COMPLETED)
        got, headers, answer = refused.result()
        assert (got, headers["Retry-After"]) == (429, "1")
        assert "prove who they are" in answer["error"]
        assert (await asker.send("GET", "/healthz"))[0] == 200
    finally:
        gate.set()
    assert [got for got, *_ in await asyncio.gather(*waiting)] == [200, 200]


async def test_refusals_are_in_the_log_and_do_not_fill_it(
    asker: Asker, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        assert await status(asker, "broker", ("root", f"wrong{number}")) == 401
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert lines == ["refused 127.0.0.1 over HTTP: there is no such user, or this is not the password"]
    asker.world.clock.advance(TOLD_EVERY_MS)
    assert (await asked(asker, "GET", "broker", Authorization="Bearer x.y.z"))[0] == 401
    words = "refused 127.0.0.1 over HTTP: no listener takes this token (19 more were refused meanwhile)"
    assert words in caplog.text


async def test_to_guess_takes_as_long_whoever_is_meant(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords of SCRAM are slow on purpose; that of a user who is not there is none the faster."""
    users, salted = asker.world.broker.users, b"x" * 32
    for mechanism, user, iterations in (
        ("SCRAM-SHA-256", "carol", 5000), ("SCRAM-SHA-512", "carol", 4500), ("SCRAM-SHA-512", "dave", 4500),
    ):  # fmt: skip
        users.set(mechanism, user, credential(mechanism, salted, b"salt", iterations))
    work: dict[str, list[tuple[str, int]]] = {}
    salting = access.salt_password

    def watched(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        work.setdefault(password, []).append((mechanism, iterations))
        return salting(mechanism, password, salt, iterations)

    monkeypatch.setattr(access, "salt_password", watched)
    for name in ("carol", "dave", "alice", "nobody"):
        assert await status(asker, "broker", (name, f"guess for {name}")) == 401
        assert sorted(work[f"guess for {name}"]) == [("SCRAM-SHA-256", 5000), ("SCRAM-SHA-512", 4500)]


async def test_users_of_scram_and_passwords_that_change(asker: Asker) -> None:
    """From the moment on that it is another one."""
    users = asker.world.broker.users
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        for password in ("first", "second"):
            salted = salt_password(mechanism, password, b"salt", 4096)
            users.set(mechanism, "carol", credential(mechanism, salted, b"salt", 4096))
            assert await status(asker, "broker", ("carol", password)) == 403  # it is carol, who has no right
        assert await status(asker, "broker", ("carol", "first")) == 401
        users.set(mechanism, "carol", None)
        assert await status(asker, "broker", ("carol", "second")) == 401


async def test_a_listener_for_tests_lets_nobody_in_where_another_wants_signatures(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """Nor are the passwords known of a listener that does not speak PLAIN."""
    (tmp_path / "keys.json").write_text('{"keys": []}')
    prod = "listener_name_prod"
    settings = {
        **SETTINGS,
        "listeners": "SECURE://127.0.0.1:0,PROD://127.0.0.1:0",
        "listener_security_protocol_map": "SECURE:SASL_PLAINTEXT,PROD:SASL_PLAINTEXT",
        f"{prod}_sasl_enabled_mechanisms": "OAUTHBEARER",
        f"{prod}_sasl_oauthbearer_jwks_endpoint_url": (tmp_path / "keys.json").as_uri(),
        f"{prod}_plain_sasl_jaas_config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_root="other";'
        ),
    }
    world = await make_world(**settings)
    now_s = world.clock.now_ms() // 1000
    header = f"Bearer {unsigned(sub='root', iat=now_s, exp=now_s + 60)}"
    assert (await asked(Asker(world), "GET", "broker", Authorization=header))[0] == 401
    assert await status(Asker(world), "broker", ROOT) == 200
    assert await status(Asker(world), "broker", ("root", "other")) == 401


async def test_tokens_that_cannot_be_read_are_refused(asker: Asker, caplog: pytest.LogCaptureFixture) -> None:
    deep = base64.urlsafe_b64encode(b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}").decode().rstrip("=")
    (tokens,) = asker.world.broker.tokens
    for text in (f"{deep}.{deep}.", "\udcff.a.b", "\udcff.e30."):
        with pytest.raises(InvalidToken):
            tokens.validate(text)
    reader, writer = await asyncio.open_connection("127.0.0.1", asker.world.broker.http.port)
    writer.write(b"GET /api/broker HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \xff.a.b\r\n\r\n")
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await reader.readline() == b"HTTP/1.1 401 Unauthorized\r\n"
    writer.close()
    assert not [record for record in caplog.records if record.exc_info]


async def test_few_proofs_are_remembered(asker: Asker) -> None:
    rights = Access(asker.world.broker)
    rights._proven = {str(number).encode(): rights._known("root") for number in range(MOST_PROVEN)}
    request = make_mocked_request("GET", "/api/broker", {"Authorization": basic(*ROOT)})
    await rights.check(request, None)
    assert len(rights._proven) == MOST_PROVEN
    assert b"0" not in rights._proven


async def test_without_rules_all_may_do_all(make_world: MakeWorld) -> None:
    """Whatever they say that they are."""
    world = await make_world(http_port="0")
    for header in ({}, {"Authorization": basic("nobody", "x")}, {"Authorization": "Bearer x"}):
        assert (await asked(Asker(world), "GET", "broker", **header))[0] == 200


# What they may do


async def test_lists_have_what_may_be_known(asker: Asker) -> None:
    world = asker.world
    allow(world, Operation.READ, TOPIC, "t")
    allow(world, Operation.DESCRIBE, GROUP, "g")
    _, _, answer = await asked(asker, "GET", "topics", as_whom=ALICE)
    assert [row["topic"] for row in answer["topics"]] == ["t"]
    _, _, answer = await asked(asker, "GET", "groups", as_whom=ALICE)
    assert [(row["group"], row["topics"]) for row in answer["groups"]] == [("g", ["t"])]
    _, _, answer = await asked(asker, "GET", "topics/t", as_whom=ALICE)
    assert answer["groups"] == [{"group": "g", "partition": 0, "offset": 1}]
    allow(world, Operation.DESCRIBE, GROUP, "g", permission=Permission.DENY)
    _, _, answer = await asked(asker, "GET", "topics/t", as_whom=ALICE)
    assert answer["groups"] == []
    assert await status(asker, "groups", ALICE) == 200  # it has said who it is, and sees none
    assert (await asked(asker, "GET", "topics", as_whom=ROOT))[2]["topics"][-1]["topic"] == "t"


@pytest.mark.parametrize(
    ("operation", "allowed", "refused"),
    [
        (Operation.DESCRIBE, ["topics/t", "topics/t/explain", "topics/t/history", "topics/t/segments"],
         ["topics/t/table", "topics/t/partitions/0/records", "topics/t/get?key=k", "topics/other", "broker"]),
        (Operation.READ, ["topics/t/table", "topics/t/partitions/0/records", "topics/t/get?key=k",
                          "topics/t/partitions/0/seek?offset=1", "topics/t/explain"],
         ["topics/other/table", "transactions", "groups/g"]),
        (Operation.WRITE, ["topics/t"], ["topics/t/table"]),
    ],
)  # fmt: skip
async def test_who_may_look(
    asker: Asker, operation: Operation, allowed: list[str], refused: list[str]
) -> None:
    allow(asker.world, operation, TOPIC, "t")
    assert [await status(asker, path, ALICE) for path in allowed] == [200] * len(allowed)
    for path in refused:
        got, headers, answer = await asked(asker, "GET", path, as_whom=ALICE)
        assert (got, "WWW-Authenticate" in headers) == (403, False)
        assert "User:alice has no right to" in answer["error"]


@pytest.mark.parametrize(
    ("operation", "path", "body"),
    [
        (Operation.ALTER, "topics/t/compact", {"roll": True}),
        (Operation.ALTER, "topics/t/explain", {}),
        (Operation.ALTER, "topics/t/reopen", {}),
        (Operation.ALTER, "topics/t/abort", {}),
        (Operation.DELETE, "topics/t/erase", {"key": "k"}),
    ],
)
async def test_who_may_change_something(asker: Asker, operation: Operation, path: str, body: object) -> None:
    world = asker.world
    for other in (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS):
        allow(world, other, TOPIC, "t")
    end = world.broker.partitions[
        next(iter(t for t in world.broker.partitions if t.topic == "t"))
    ].log.log_end_offset
    assert await status(asker, path, ALICE, body) == 403
    assert end == 2
    allow(world, operation, TOPIC, "t")
    assert await status(asker, path, ALICE, body) == 200


async def test_who_may_end_a_transaction_of_somebody_else(asker: Asker) -> None:
    """Not who may ALTER one of its topics: it ends in the others as well, and its producer is fenced. As for
    EndTxn, or for WriteTxnMarkers.
    """
    world = asker.world
    allow(world, Operation.ALTER, TOPIC, "t")
    batch = world.batch((b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition = world.broker.partitions[TopicPartition("t", 0)]
    partition.append(batch, world.clock.now_ms(), Origin.COORDINATOR)

    def is_open() -> bool:
        return 7 in partition.log.producers.open_transactions()

    path, body = "topics/t/abort", {"partition": 0, "start_offset": 2}
    got, _, answer = await asked(asker, "POST", path, body, ALICE)
    assert (got, answer["error"]) == (403, "User:alice has no right to ALTER the cluster")
    assert (await status(asker, path, ALICE, {}), is_open()) == (403, True)
    assert await status(asker, path, ALICE, {**body, "start_offset": 1}) == 200  # there is none
    allow(world, Operation.WRITE, Resource.TRANSACTIONAL_ID, "pay")
    assert (await status(asker, path, ALICE, body), is_open()) == (403, True)
    allow(world, Operation.ALTER, CLUSTER, CLUSTER_NAME)
    assert (await status(asker, path, ALICE, body), is_open()) == (200, False)


async def test_who_may_end_a_transaction_that_has_an_id(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = asker.world
    ended: list[str] = []

    async def abort(transactional_id: str) -> None:
        ended.append(transactional_id)
        partition.end_open_transaction(7, world.clock.now_ms(), is_commit=False)

    monkeypatch.setattr(world.broker.transactions, "taking_part", lambda *place: "pay")
    monkeypatch.setattr(world.broker.transactions, "abort", abort)
    allow(world, Operation.ALTER, TOPIC, "t")
    batch = world.batch((b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition = world.broker.partitions[TopicPartition("t", 0)]
    partition.append(batch, world.clock.now_ms(), Origin.COORDINATOR)
    got, _, answer = await asked(asker, "POST", "topics/t/abort", {}, ALICE)
    assert (got, "pay" in answer["error"], ended) == (403, False, [])
    allow(world, Operation.WRITE, Resource.TRANSACTIONAL_ID, "other")
    assert (await status(asker, "topics/t/abort", ALICE, {}), ended) == (403, [])
    allow(world, Operation.WRITE, Resource.TRANSACTIONAL_ID, "pay")
    assert (await status(asker, "topics/t/abort", ALICE, {}), ended) == (200, ["pay"])


async def test_who_may_look_at_a_group_and_send_it_elsewhere(asker: Asker) -> None:
    """As for OffsetFetch and OffsetCommit: the group and the topic."""
    world, body = asker.world, {"topic": "t", "to": "earliest"}
    assert await status(asker, "groups/g", ALICE) == await status(asker, "group?group=g", ALICE) == 403
    allow(world, Operation.READ, GROUP, "g")
    got, _, answer = await asked(asker, "GET", "groups/g", as_whom=ALICE)
    assert (got, "topics that you have no right" in answer["error"]) == (403, True)
    assert await status(asker, "groups/g/reset", ALICE, body) == 403
    allow(world, Operation.READ, TOPIC, "t")
    assert await status(asker, "groups/g", ALICE) == await status(asker, "group?group=g", ALICE) == 200
    assert (
        await status(asker, "groups/h?group=g", ALICE) == await status(asker, "group?group=h", ALICE) == 403
    )
    assert await status(asker, "groups/g/reset", ALICE, body) == 200
    assert await status(asker, "groups/g/reset", ALICE, {**body, "topic": "other"}) == 403


async def test_a_group_does_not_tell_of_topics_that_may_not_be_known(asker: Asker) -> None:
    allow(asker.world, Operation.DESCRIBE, GROUP, "g")
    _, _, answer = await asked(asker, "GET", "groups", as_whom=ALICE)
    assert [(row["group"], row["topics"]) for row in answer["groups"]] == [("g", [])]


async def test_who_may_look_at_the_broker(asker: Asker) -> None:
    assert await status(asker, "transactions", ALICE) == 403
    allow(asker.world, Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    assert [await status(asker, path, ALICE) for path in ("broker", "transactions")] == [200, 200]


async def test_who_may_make_alter_and_delete_topics(asker: Asker) -> None:
    made, settings = "topics/new/create", {"configs": {"cleanup.policy": "compact"}}
    assert await status(asker, made, ALICE, {}) == 403
    allow(asker.world, Operation.CREATE, TOPIC, "new")
    assert await status(asker, made, ALICE, {}) == 200
    assert await status(asker, "topics/other-new/create", ALICE, {}) == 403
    allow(asker.world, Operation.CREATE, CLUSTER, CLUSTER_NAME)
    assert await status(asker, "topics/other-new/create", ALICE, {}) == 200
    for operation, body in ((Operation.ALTER_CONFIGS, settings), (Operation.ALTER, {"partitions": 3})):
        assert await status(asker, "topics/new/alter", ALICE, body) == 403
        allow(asker.world, operation, TOPIC, "new")
        assert await status(asker, "topics/new/alter", ALICE, body) == 200
    assert await status(asker, "topics/new/delete", ALICE, {}) == 403
    allow(asker.world, Operation.DELETE, TOPIC, "new")
    assert await status(asker, "topics/new/delete", ALICE, {}) == 200
    assert asker.world.broker.topics.get("new") is None


async def test_settings_need_a_right_of_their_own(asker: Asker) -> None:
    """As for DescribeConfigs; what was altered is told to nobody who may not see it."""
    world = asker.world
    allow(world, Operation.ALTER, TOPIC, "t")
    _, _, answer = await asked(asker, "GET", "topics/t", as_whom=ALICE)
    assert (answer["topic"], answer["configs"]) == ("t", None)
    _, _, answer = await asked(asker, "POST", "topics/t/alter", {"partitions": 2}, ALICE)
    assert answer == answer | {"partitions": 2, "configs": {}}
    allow(world, Operation.DESCRIBE_CONFIGS, TOPIC, "t")
    _, _, answer = await asked(asker, "GET", "topics/t", as_whom=ALICE)
    set_here = {row["name"]: row["value"] for row in answer["configs"] if row["source"] == "topic"}
    assert set_here == {"cleanup.policy": "compact"}
    _, _, answer = await asked(asker, "POST", "topics/t/alter", {"partitions": 3}, ALICE)
    assert answer["configs"] == {"cleanup.policy": "compact"}


async def test_who_may_look_at_quotas_and_change_them(asker: Asker) -> None:
    """As for DescribeClientQuotas and AlterClientQuotas."""
    world = asker.world
    allow(world, Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    allow(world, Operation.ALTER, CLUSTER, CLUSTER_NAME)
    looks = ("quotas", "quotas/explain?user=alice")
    changes = (
        ("quotas/set", {"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1e9}}),
        ("quotas/remove", {"entity": {"user": "alice"}}),
    )
    assert [await status(asker, path, ALICE) for path in looks] == [403, 403]
    allow(world, Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME)
    assert [await status(asker, path, ALICE) for path in looks] == [200, 200]
    assert [await status(asker, path, ALICE, body) for path, body in changes] == [403, 403]
    allow(world, Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME)
    assert [await status(asker, path, ALICE, body) for path, body in changes] == [200, 200]


async def test_rules_for_a_host_and_for_everybody(asker: Asker) -> None:
    world = asker.world
    allow(world, Operation.DESCRIBE, TOPIC, "t", host="10.9.9.9")
    assert await status(asker, "topics/t", ALICE) == 403
    allow(world, Operation.DESCRIBE, TOPIC, "t", host="127.0.0.1")
    assert await status(asker, "topics/t", ALICE) == 200
    assert await status(asker, "topics/t") == 401
    allow(world, Operation.DESCRIBE, TOPIC, "t", user="ANONYMOUS")
    assert await status(asker, "topics/t") == 200


@pytest.mark.parametrize(
    ("remote", "header", "is_root"),
    [
        ("127.0.0.1", "", True), ("127.8.9.10", "", True), ("::1", "", True), ("::ffff:127.0.0.1", "", True),
        ("172.17.0.1", "", False), ("::ffff:172.17.0.1", "", False), ("fe80::1%eth0", "", False),
        (None, "", False), ("127.0.0.1", "X-Forwarded-For", False), ("127.0.0.1", "Forwarded", False),
    ],
)  # fmt: skip
async def test_from_elsewhere_nobody_is_a_super_user(
    make_world: MakeWorld, remote: str | None, header: str, is_root: bool
) -> None:
    """`super.users = User:ANONYMOUS` is for who comes in by a listener of this machine: HTTP may be reached
    by more, in a container by whoever reaches its port. Rules for ANONYMOUS hold for all of them.
    """
    world = await make_world(**{**SETTINGS, "super_users": "User:ANONYMOUS"})
    world.topic("t")
    rights = Access(world.broker)
    socket = Mock()
    socket.get_extra_info = {"peername": None if remote is None else (remote, 1)}.get
    headers = {header: "for=10.1.1.1"} if header else {}
    request = make_mocked_request("GET", "/api/broker", headers, transport=socket)
    await rights.check(request, None)
    assert rights.may(request, Operation.DELETE, TOPIC, "t") == is_root
    allow(world, Operation.DESCRIBE, TOPIC, "t", user="ANONYMOUS")
    assert rights.may(request, Operation.DESCRIBE, TOPIC, "t")
    if not is_root:
        with pytest.raises(NotAllowed) as refused:
            await rights.check(request, SEE_BROKER)
        assert refused.value.status == 401
        assert "WWW-Authenticate" in refused.value.headers


@pytest.mark.parametrize(("remote", "may"), [("127.0.0.1", True), ("10.1.1.1", False)])
async def test_what_everyone_may_is_not_for_nobody_from_elsewhere(
    make_world: MakeWorld, remote: str, may: bool
) -> None:
    """`allow.everyone.if.no.acl.found` means everyone whom a listener lets in: this one here only who proves
    a name. Who does may do it by HTTP as well, from wherever.
    """
    world = await make_world(**SETTINGS, allow_everyone_if_no_acl_found="true")
    world.topic("t")
    rights, socket = Access(world.broker), Mock()
    socket.get_extra_info = {"peername": (remote, 1)}.get
    for headers, expected in (({}, may), ({"Authorization": basic(*ALICE)}, True)):
        request = make_mocked_request("POST", "/api/topics/t/delete", headers, transport=socket)
        await rights.check(request, None)
        assert rights.may(request, Operation.DELETE, TOPIC, "t") == expected
        assert rights.may(request, Operation.CREATE, CLUSTER, CLUSTER_NAME) == expected
    allow(world, Operation.DESCRIBE, TOPIC, "t", user="*")
    request = make_mocked_request("GET", "/api/topics/t", transport=socket)
    await rights.check(request, None)
    assert rights.may(request, Operation.DESCRIBE, TOPIC, "t"), "a rule holds for whoever it is"


async def test_metrics_and_health_are_for_everybody(asker: Asker) -> None:
    for path in ("/metrics", "/healthz", "/console/"):
        got, _, _ = await asker.send("GET", path)
        assert got == 200


# The command


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in [name for name in os.environ if name.startswith("KOMPAKT_HTTP_")]:
        monkeypatch.delenv(name)
    yield monkeypatch


async def test_commands_say_who_they_are(
    asker: Asker, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"127.0.0.1:{asker.world.broker.http.port}"
    with pytest.raises(Exception) as ended:
        await asyncio.to_thread(ask, where, "/api/broker")
    assert getattr(ended.value, "exit_code", None) == 1
    said = capsys.readouterr().err
    assert "User:ANONYMOUS has no right to DESCRIBE the cluster" in said
    assert "(KOMPAKT_HTTP_USER and KOMPAKT_HTTP_PASSWORD, or KOMPAKT_HTTP_TOKEN, say who asks)" in said
    environment.setenv("KOMPAKT_HTTP_USER", "root")
    environment.setenv("KOMPAKT_HTTP_PASSWORD", "secret")
    assert (await asyncio.to_thread(ask, where, "/api/broker"))["topics"] == 2
    now_s = asker.world.clock.now_ms() // 1000
    environment.setenv("KOMPAKT_HTTP_TOKEN", unsigned(sub="alice", iat=now_s, exp=now_s + 60) + "\n")
    with pytest.raises(Exception) as ended:
        await asyncio.to_thread(ask, where, "/api/broker")
    said = capsys.readouterr().err
    assert "User:alice has no right to DESCRIBE the cluster" in said
    assert "say who asks" not in said
    environment.setenv("KOMPAKT_HTTP_TOKEN", unsigned(sub="root", iat=now_s, exp=now_s + 60))
    assert (await asyncio.to_thread(ask, where, "/api/broker"))["topics"] == 2
    asker.world.clock.advance(60_000)
    with pytest.raises(Exception) as ended:
        await asyncio.to_thread(ask, where, "/api/broker")
    assert "no listener takes this token" in capsys.readouterr().err
