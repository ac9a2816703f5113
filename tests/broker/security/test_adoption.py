"""Goal: users, rules and quotas of an Apache Kafka are those of the broker that is started on its directory.

Method: quorum logs of the records that Kafka writes; a broker starts on them, again and again. One that a
real Kafka wrote is in tests/kafka/test_secured_directories.py.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Awaitable, Callable

import pytest

from broker.producer_ids import AWAY
from broker.security.acls import Filter, Operation, Pattern, Permission, Resource
from protocol.messages.quorum import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from protocol.scram import Credential, credential, salt_password
from tests.broker.conftest import World
from tests.broker.test_quorum_log import log

MakeWorld = Callable[..., Awaitable[World]]
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
EVERY = Filter(Resource.ANY, None, Pattern.ANY, None, None, Operation.ANY, Permission.ANY)
FIRST, SECOND = uuid.uuid4(), uuid.uuid4()


def kept(password: str) -> Credential:
    return credential("SCRAM-SHA-256", salt_password("SCRAM-SHA-256", password, b"s", 4096), b"s", 4096)


def user(name: str, password: str, mechanism: int = 1) -> UserScramCredentialRecord:
    salt, stored_key, server_key, iterations = kept(password)
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=salt, stored_key=stored_key, server_key=server_key,
        iterations=iterations,
    )  # fmt: skip


def rule(rule_id: uuid.UUID, name: str, operation: int = Operation.READ) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=rule_id, resource_type=Resource.TOPIC, resource_name=name, pattern_type=Pattern.LITERAL,
        principal="User:alice", host="*", operation=operation, permission_type=Permission.ALLOW,
    )  # fmt: skip


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    """Whose directory looks as if a Kafka had left it."""
    made = await make_world(authorizer_class_name=AUTHORIZER)
    await made.stop()
    shutil.rmtree(made.directory)
    made.directory.mkdir()
    return made


def rules(world: World) -> list[str]:
    assert world.broker.authorizer is not None
    return [acl.name for acl in world.broker.authorizer.find(EVERY)]


async def started(world: World) -> None:
    """Without the quorum log at the end, of which the tests make a part only."""
    await world.start()
    shutil.rmtree(world.directory / "__cluster_metadata-0", ignore_errors=True)


async def test_users_and_rules_as_they_were_at_last(world: World) -> None:
    log(
        world.directory,
        user("alice", "old"), user("bob", "b"), user("alice", "new"), user("carol", "c", mechanism=2),
        RemoveUserScramCredentialRecord(name="bob", mechanism=1),
        RemoveUserScramCredentialRecord(name="carol", mechanism=1),
        rule(FIRST, "a"), rule(SECOND, "b"), RemoveAccessControlEntryRecord(id=FIRST),
    )  # fmt: skip
    await started(world)
    for _ in range(2):
        users = world.broker.users
        assert users.names() == ["alice", "carol"]
        assert users.credential("SCRAM-SHA-256", "alice") == kept("new")
        assert users.credential("SCRAM-SHA-512", "carol") == kept("c")
        assert rules(world) == ["b"]
        await world.restart()


async def test_quotas_as_they_were_at_last(world: World) -> None:
    def quota(
        key: str, value: float, *names: tuple[str, str | None], remove: bool = False
    ) -> ClientQuotaRecord:
        parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in names]
        return ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)

    both = (("user", None), ("client-id", "c"))
    log(
        world.directory,
        quota("producer_byte_rate", 1, *both), quota("consumer_byte_rate", 2, *both),
        quota("producer_byte_rate", 3, *both[::-1]), quota("consumer_byte_rate", 0, *both, remove=True),
        quota("request_percentage", 4, both[0]), quota("connection_creation_rate", 5, ("ip", "10.0.0.1")),
        quota("request_percentage", 0, both[0], remove=True),
    )  # fmt: skip
    await started(world)
    for _ in range(2):
        assert world.broker.quotas.settings.values == {
            both[::-1]: {"producer_byte_rate": 3.0},
            (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
        }
        assert world.broker.quotas.produced.limit("u", "c") == 3
        await world.restart()


async def test_they_are_taken_over_once(world: World) -> None:
    log(world.directory, user("alice", "a"), rule(FIRST, "a"))
    await world.start()
    world.broker.users.set("SCRAM-SHA-256", "alice", None)
    assert world.broker.authorizer is not None
    world.broker.authorizer.remove(world.broker.authorizer.find(EVERY))
    await world.stop()
    await started(world)
    assert world.broker.users.names() == []
    assert rules(world) == []


async def test_no_producer_id_is_given_that_kafka_gave(world: World) -> None:
    """A producer that has one, and has written nothing yet, may go on here: the first records of another one
    with its id would be taken for its own, and its own for repetitions.
    """
    records = [ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=end) for end in (1000, 7000)]
    log(world.directory, *records)
    await started(world)
    await world.restart()
    assert [await world.broker.producer_ids.next() for _ in range(2)] == [7000 + AWAY, 7001 + AWAY]
    await world.restart()
    assert await world.broker.producer_ids.next() == 8000 + AWAY


async def test_rules_wait_for_an_authorizer(world: World) -> None:
    world.settings["authorizer.class.name"] = ""
    log(world.directory, rule(FIRST, "a"))
    await started(world)
    assert world.broker.authorizer is None
    world.settings["authorizer.class.name"] = AUTHORIZER
    await world.restart()
    assert rules(world) == ["a"]


@pytest.mark.parametrize(
    "wrong", [rule(FIRST, "a", operation=99), user("x", "x", mechanism=9), b"\x01\x12\x07"],
    ids=["operation", "mechanism", "version"],
)  # fmt: skip
async def test_what_is_not_understood_is_said_and_tried_again(
    world: World, wrong: object, caplog: pytest.LogCaptureFixture
) -> None:
    log(world.directory, user("alice", "a"), wrong)
    await world.start()
    assert "the users, rules and quotas of Apache Kafka are not taken over" in caplog.text
    await world.stop()
    log(world.directory, user("alice", "a"), rule(FIRST, "a"))
    await started(world)
    assert world.broker.users.names() == ["alice"]
    assert rules(world) == ["a"]


async def test_a_directory_without_a_quorum_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.start()
    assert world.broker.users.names() == []
    assert "Apache Kafka" not in caplog.text
