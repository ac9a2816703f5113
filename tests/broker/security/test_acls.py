"""Goal: rules say who may do what, at once when they change, and after a restart; whoever is denied learns
nothing, and nothing is done for it.

Method: rules as pure values; then a broker with two users, whose rights change while they work. (That each
API asks for the right that Kafka asks for: tests/kafka/test_authorization.py.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.api import apis
from broker.clock import ManualClock
from broker.security.acls import (
    Acl,
    Asker,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from broker.security.authorizer import Authorizer, parse_super_users
from broker.security.denials import LONGEST_TOLD, MOST_A_SECOND
from broker.security.guards.call import OPEN, _guards
from broker.security.rules import Rules
from config.broker import BrokerConfig
from protocol.errors import ErrorCode
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.metadata import DescribeTopicPartitionsRequest, MetadataRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.records import decode_all
from tests.broker.client import Client, until
from tests.broker.conftest import World, fetch_request, produce_request
from tests.broker.security.slow_rules import may_somewhere, verdict

MakeWorld = Callable[..., Awaitable[World]]
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
ALICE = Asker("User:alice", "127.0.0.1")
SETTINGS = {
    "listeners": "SECURE://127.0.0.1:0",
    "listener_security_protocol_map": "SECURE:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "listener_name_secure_plain_sasl_jaas_config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_root=r user_alice=a;"
    ),
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:root",
}


def acl(
    name: str,
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    pattern: Pattern = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
) -> Acl:
    return Acl(Resource.TOPIC, name, pattern, principal, host, operation, permission)


# Rules


def kept(acls: Iterable[Acl]) -> Rules:
    rules = Rules()
    for one in acls:
        rules.add(one)
    return rules


def ruled_verdict(acls: Iterable[Acl], asker: Asker, operation: Operation, name: str) -> bool | None:
    """As `verdict`, of the rules as the broker keeps them."""
    rules = kept(acls)
    strict, kind = (rules.ruling(asker, operation, default=default).allows(name) for default in (False, True))
    return strict if strict or not kind else None


@pytest.mark.parametrize(
    ("rules", "operation", "expected"),
    [
        ([], Operation.READ, None),
        ([acl("other")], Operation.READ, None),
        ([acl("prices")], Operation.READ, True),
        ([acl("*")], Operation.READ, True),
        ([acl("pri", pattern=PREFIXED)], Operation.READ, True),
        ([acl("pri")], Operation.READ, None),
        ([acl("prices", principal="User:bob")], Operation.READ, False),
        ([acl("prices", principal="User:*")], Operation.READ, True),
        ([acl("prices", host="127.0.0.1")], Operation.READ, True),
        ([acl("prices", host="10.0.0.1")], Operation.READ, False),
        ([acl("prices")], Operation.WRITE, False),
        ([acl("prices")], Operation.DESCRIBE, True),
        ([acl("prices", Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS, True),
        ([acl("prices", Operation.DESCRIBE)], Operation.READ, False),
        ([acl("prices", Operation.ALL)], Operation.ALTER, True),
        ([acl("prices"), acl("*", permission=DENY)], Operation.READ, False),
        ([acl("p", permission=DENY, pattern=PREFIXED), acl("prices")], Operation.READ, False),
        ([acl("prices", permission=DENY), acl("prices", Operation.WRITE)], Operation.DESCRIBE, True),
        ([acl("prices", Operation.ALL, DENY), acl("prices")], Operation.READ, False),
    ],
)
def test_what_rules_say(rules: list[Acl], operation: Operation, expected: bool | None) -> None:
    assert verdict(rules, ALICE, operation, "prices") is expected
    assert ruled_verdict(rules, ALICE, operation, "prices") is expected
    assert ruled_verdict(rules[::-1], ALICE, operation, "prices") is expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([acl("a")], True),
        ([acl("a"), acl("a", permission=DENY)], False),
        ([acl("a"), acl("b", permission=DENY)], True),
        ([acl("ab", pattern=PREFIXED), acl("a", permission=DENY, pattern=PREFIXED)], False),
        ([acl("a", pattern=PREFIXED), acl("ab", permission=DENY, pattern=PREFIXED)], True),
        ([acl("a", pattern=PREFIXED), acl("a", permission=DENY)], True),
        ([acl("*"), acl("a", permission=DENY, pattern=PREFIXED)], True),
        ([acl("*"), acl("*", permission=DENY)], False),
        ([acl("a", Operation.WRITE)], False),
        ([acl("a", principal="User:bob")], False),
    ],
)
def test_whether_there_is_a_place_for_it(rules: list[Acl], expected: bool) -> None:
    assert may_somewhere(rules, ALICE, Operation.READ) is expected
    assert kept(rules).ruling(ALICE, Operation.READ, default=False).allows_somewhere is expected


def test_super_users() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c ;;") == {"User:a", "User:CN=b,O=c"}
    assert parse_super_users("") == frozenset()


def test_every_api_has_a_guard_or_is_open_to_all() -> None:
    assert {apis[key].name for key in apis.keys() - _guards.keys()} == OPEN


# A broker with users


@pytest.fixture
async def ruled(make_world: MakeWorld) -> World:
    world = await make_world(**SETTINGS)
    world.topic("own")
    world.topic("secret")
    return world


async def enter(world: World, user: str) -> Client:
    client = await world.connect()
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = f"\0{user}\0{user[0]}".encode()
    assert (await client.ask(SaslAuthenticateRequest(auth_bytes=token), 1)).error_code == 0
    return client


async def allow(root: Client, *rules: Acl) -> None:
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=one.resource, resource_name=one.name, resource_pattern_type=one.pattern,
            principal=one.principal, host=one.host, operation=one.operation, permission_type=one.permission,
        )
        for one in rules
    ]  # fmt: skip
    answer = await root.ask(CreateAclsRequest(creations=creations), 3)
    assert [row.error_code for row in answer.results] == [0] * len(rules)


async def forbid(root: Client, name: str) -> None:
    """Remove the rules about a topic."""
    every = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=Resource.ANY, resource_name_filter=name, pattern_type_filter=Pattern.ANY,
        principal_filter=None, host_filter=None, operation=Operation.ANY, permission_type=Permission.ANY,
    )  # fmt: skip
    answer = await root.ask(DeleteAclsRequest(filters=[every]), 3)
    assert answer.filter_results[0].matching_acls


async def test_rules_hold_at_once_for_a_producer_that_is_known(ruled: World) -> None:
    """Its second request alike is not decoded any more (`produce_template.py`)."""
    root, alice = await enter(ruled, "root"), await enter(ruled, "alice")
    batch = ruled.batch((b"k", b"v"))
    denied = await ruled.produce(alice, batch, "own")
    assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await allow(root, acl("own", Operation.WRITE))
    for _ in range(4):
        assert (await ruled.produce(alice, batch, "own")).error_code == 0
    (connection,) = [one for one in ruled.broker.servers[0].connections if one.principal == "User:alice"]
    assert connection.template.is_learned
    await forbid(root, "own")
    for _ in range(3):
        denied = await ruled.produce(alice, batch, "own")
        assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not connection.template.is_learned
    assert await ruled.values(root, "own") == [b"v"] * 4


async def test_each_topic_of_a_request_is_answered_for_itself(ruled: World) -> None:
    root, alice = await enter(ruled, "root"), await enter(ruled, "alice")
    await allow(root, acl("own", Operation.ALL))
    batch = ruled.batch((b"k", b"v"))
    request = produce_request([("secret", 0, batch), ("own", 0, batch), ("missing", 0, batch)])
    answer = await alice.ask(request, 9)
    assert {row.name: row.partition_responses[0].error_code for row in answer.responses} == {
        "own": 0,
        "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "missing": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert await ruled.values(root, "own") == [b"v"]
    assert await ruled.values(root, "secret") == []


async def test_a_denial_is_told_once_until_rules_change(
    ruled: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    root, alice = await enter(ruled, "root"), await enter(ruled, "alice")
    batch = ruled.batch((b"k", b"v"))
    for _ in range(3):
        await ruled.produce(alice, batch, "own")
        await alice.ask(MetadataRequest(topics=None), 9)
    told = [one.message for one in caplog.records if one.message.startswith("denied")]
    assert told == ["denied User:alice from 127.0.0.1: WRITE of topic own"]
    await allow(root, acl("other"))
    await ruled.produce(alice, batch, "own")
    assert caplog.text.count("WRITE of topic own") == 2


async def test_with_acks_0_the_connection_ends(ruled: World) -> None:
    root, alice = await enter(ruled, "root"), await enter(ruled, "alice")
    await allow(root, acl("own", Operation.WRITE))
    batch = ruled.batch((b"k", b"v"))
    alice.send(produce_request([("own", 0, batch), ("secret", 0, batch)], acks=0), 9)
    assert await alice.is_closed_by_peer()
    assert await ruled.values(root, "own") == [b"v"]
    assert await ruled.values(root, "secret") == []


async def test_a_fetch_that_waits_is_answered_by_the_rules_of_its_end(ruled: World) -> None:
    root, alice = await enter(ruled, "root"), await enter(ruled, "alice")
    await allow(root, acl("own"))
    waiting = asyncio.ensure_future(alice.ask(fetch_request([("own", 0, 0)], max_wait_ms=60_000), 12))
    await until(lambda: len(ruled.broker.purgatory))
    await forbid(root, "own")
    await ruled.produce(root, ruled.batch((b"k", b"v")), "own")
    (partition,) = (await waiting).responses[0].partitions
    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not partition.records


async def test_a_session_of_fetches_knows_no_more_than_its_client(ruled: World) -> None:
    """It has the partitions, and asks for the right each time."""
    root, alice = await enter(ruled, "root"), await enter(ruled, "alice")
    await allow(root, acl("own"))
    await ruled.produce(root, ruled.batch((b"k", b"v")), "own")
    first = await alice.ask(fetch_request([("own", 0, 0), ("secret", 0, 0)], session_epoch=0), 12)
    rows = {row.topic: row.partitions[0] for row in first.responses}
    assert [record.value for record in decode_all(rows["own"].records)] == [b"v"]
    assert rows["secret"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    session = {"session_id": first.session_id, "session_epoch": 1}
    await forbid(root, "own")
    second = await alice.ask(fetch_request([], **session), 12)
    codes = {row.topic: row.partitions[0].error_code for row in second.responses}
    assert codes == dict.fromkeys(("own", "secret"), ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def test_rules_are_there_after_a_restart(ruled: World) -> None:
    root = await enter(ruled, "root")
    await allow(root, acl("o", pattern=PREFIXED), acl("ä\"'", Operation.WRITE, DENY, host="10.0.0.1"))
    before = await _described(root)
    assert len(before) == 2
    await ruled.restart()
    assert await _described(await enter(ruled, "root")) == before
    alice = await enter(ruled, "alice")
    answer = await alice.ask(fetch_request([("own", 0, 0), ("secret", 0, 0)]), 12)
    assert [row.partitions[0].error_code for row in answer.responses] == [
        0, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]  # fmt: skip
    await forbid(await enter(ruled, "root"), "o")
    await ruled.restart()
    assert len(await _described(await enter(ruled, "root"))) == 1


async def _described(client: Client) -> list[str]:
    answer = await client.ask(
        DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        ),
        3,
    )  # fmt: skip
    return sorted(map(repr, answer.resources))


async def test_a_topic_is_made_by_asking_for_it_if_that_is_allowed(ruled: World) -> None:
    root, alice = await enter(ruled, "root"), await enter(ruled, "alice")
    await allow(root, acl("new", Operation.WRITE, pattern=PREFIXED))
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new-1")])
    (row,) = (await alice.ask(asked, 9)).topics
    assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ruled.broker.topics.get("new-1") is None
    await allow(root, acl("new-1", Operation.CREATE))
    (row,) = (await alice.ask(asked, 9)).topics
    assert row.error_code == 0
    assert ruled.broker.topics.get("new-1") is not None


async def test_the_pages_of_all_topics_hide_the_secret_ones(ruled: World) -> None:
    root, alice = await enter(ruled, "root"), await enter(ruled, "alice")
    ruled.topic("own-2", partitions=3)
    ruled.topic("own-1", partitions=2)
    await allow(root, acl("own-", pattern=PREFIXED))
    found: list[tuple[str, int]] = []
    cursor: Any = None
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2, cursor=cursor)
        answer = await alice.ask(request, 0)
        found += [(row.name, one.partition_index) for row in answer.topics for one in row.partitions]
        if answer.next_cursor is None:
            break
        assert answer.next_cursor.topic_name.startswith("own-")
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
    assert found == [("own-1", 0), ("own-1", 1), ("own-2", 0), ("own-2", 1), ("own-2", 2)]
    secret = DescribeTopicPartitionsRequest.Cursor(topic_name="own", partition_index=0)
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=9, cursor=secret)
    assert [row.name for row in (await alice.ask(request, 0)).topics] == ["own-1", "own-2"]


async def test_settings_of_many_topics_are_told_where_they_may_be(ruled: World) -> None:
    root, alice = await enter(ruled, "root"), await enter(ruled, "alice")
    names = [f"own-{number}" for number in range(20)]
    for name in names:
        ruled.topic(name)
    await allow(root, acl("own-", Operation.DESCRIBE_CONFIGS, pattern=PREFIXED))
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [resource(resource_type=2, resource_name=name, configuration_keys=None) for name in names]
    asked.insert(3, resource(resource_type=2, resource_name="secret", configuration_keys=None))
    rows = (await alice.ask(DescribeConfigsRequest(resources=asked), 4)).results
    assert {row.resource_name: row.error_code for row in rows} == {
        **dict.fromkeys(names, 0),
        "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert all(bool(row.configs) == (row.error_code == 0) for row in rows)


async def test_all_may_do_what_no_rule_is_about_if_that_is_said(make_world: MakeWorld) -> None:
    world = await make_world(**SETTINGS, allow_everyone_if_no_acl_found="true")
    world.topic("own")
    root, alice = await enter(world, "root"), await enter(world, "alice")
    batch = world.batch((b"k", b"v"))
    assert (await world.produce(alice, batch, "own")).error_code == 0
    await allow(root, acl("own", Operation.WRITE, principal="User:bob"))
    assert (await world.produce(alice, batch, "own")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def new_authorizer(clock: ManualClock) -> Authorizer:
    return Authorizer(BrokerConfig(), SimpleNamespace(), clock.passed_ms)  # type: ignore[arg-type]


def test_long_names_are_not_remembered(caplog: pytest.LogCaptureFixture) -> None:
    """Who has no right at all may ask for as many as it likes."""
    caplog.set_level("INFO")
    authorizer = new_authorizer(ManualClock())
    for number in range(100):
        name = f"{number:03}" + "x" * 100_000
        assert not authorizer.allows(ALICE, Operation.READ, Resource.TOPIC, name)
    assert not authorizer.allows(ALICE, Operation.READ, Resource.TOPIC, "short")
    assert max(len(name) for *_, name in authorizer._denials._told) == LONGEST_TOLD
    assert len(authorizer._rulings) <= 2
    assert max(map(len, caplog.messages)) < 400


def test_the_log_is_told_no_more_than_so_much_a_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = ManualClock()
    authorizer = new_authorizer(clock)

    def ask() -> None:
        for number in range(MOST_A_SECOND + 10):
            assert not authorizer.allows(ALICE, Operation.READ, Resource.TOPIC, f"topic-{number}")

    ask()
    assert len(caplog.messages) == MOST_A_SECOND + 1
    assert caplog.messages[-1].startswith("more was denied")
    caplog.clear()
    clock.advance(1000)
    ask()
    assert [line.rsplit(" ", 1)[1] for line in caplog.messages] == [
        f"topic-{MOST_A_SECOND + number}" for number in range(10)
    ]
    caplog.clear()
    ask()
    assert caplog.messages == []
