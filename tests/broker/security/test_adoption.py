"""Goal: users, rules and quotas of an Apache Kafka are those of the broker that is started on its directory.

Method: quorum logs of the records that Kafka writes; a broker starts on them, again and again. One that a
real Kafka wrote is in tests/kafka/test_secured_directories.py.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Awaitable, Callable

import pytest

from broker.adoption import AdoptionError
from broker.metadata_log import MetadataLog
from broker.producer_ids import AWAY
from broker.quorum_log import read_security
from broker.security.acls import Filter, Operation, Pattern, Permission, Resource
from protocol.batch import iterate_headers
from protocol.errors import ErrorCode, KafkaError
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


WRONG = pytest.mark.parametrize(
    "wrong", [rule(FIRST, "a", operation=99), user("x", "x", mechanism=9), b"\x01\x12\x07"],
    ids=["operation", "mechanism", "version"],
)  # fmt: skip
NOT_TAKEN = "the users, rules and quotas of Apache Kafka are not taken over"


@WRONG
@pytest.mark.parametrize("is_apart", [False, True])
async def test_nobody_is_served_without_what_is_not_understood(
    world: World, wrong: object, is_apart: bool
) -> None:
    """Not with some of the rules, nor with none: again and again, until it is understood or away."""
    home = world.directory.parent / "apart" if is_apart else world.directory
    if is_apart:
        home.mkdir()
        world.settings["metadata.log.dir"] = str(home)
    log(home, user("alice", "a"), wrong)
    for _ in range(2):
        with pytest.raises(AdoptionError, match=rf"{NOT_TAKEN}: .*{home}/__cluster_metadata-0: ") as told:
            await world.start()
        assert ("take metadata.log.dir out of the configuration" in str(told.value)) == is_apart
        await world.broker.stop()
    log(home, user("alice", "a"), rule(FIRST, "a"))
    await started(world)
    assert world.broker.users.names() == ["alice"]
    assert rules(world) == ["a"]


async def test_without_a_quorum_log_that_is_moved_away_it_starts(world: World) -> None:
    log(world.directory, user("alice", "a"), b"\x01\x12\x07")
    with pytest.raises(AdoptionError, match=r"move __cluster_metadata-0 away$"):
        await world.start()
    await world.broker.stop()
    shutil.rmtree(world.directory / "__cluster_metadata-0")
    await world.start()
    assert rules(world) == []


@WRONG
async def test_where_nobody_is_asked_who_it_is_that_is_said_and_tried_again(
    world: World, wrong: object, caplog: pytest.LogCaptureFixture
) -> None:
    world.settings["authorizer.class.name"] = ""
    log(world.directory, user("alice", "a"), wrong)
    await world.start()
    assert NOT_TAKEN in caplog.text
    await world.stop()
    world.settings["listeners"] = "SASL_PLAINTEXT://127.0.0.1:0"
    with pytest.raises(AdoptionError, match=NOT_TAKEN):
        await world.start()
    await world.broker.stop()
    log(world.directory, user("alice", "a"), rule(FIRST, "a"))
    await started(world)
    assert world.broker.users.names() == ["alice"]


async def test_nobody_is_served_without_what_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: MetadataLog) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "as a test says")

    log(world.directory, rule(FIRST, "a"))
    with monkeypatch.context() as patch:
        patch.setattr(MetadataLog, "flushed", fails)
        with pytest.raises(AdoptionError, match=f"{NOT_TAKEN}: KAFKA_STORAGE_ERROR: as a test says"):
            await world.start()
        await world.broker.stop()
    await started(world)
    assert rules(world) == ["a"]


async def test_one_flipped_byte_takes_no_rule_away(world: World) -> None:
    """Whichever it is, unless it is of the last batch: Kafka would go on without all that follows it."""
    path = log(world.directory, rule(FIRST, "a"), rule(SECOND, "b"), user("alice", "a"))
    data, home = path.read_bytes(), world.directory
    last = [position for position, _ in iterate_headers(data)][-1]
    for place in range(last):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        with contextlib.suppress(KafkaError):
            found = read_security(home)
            assert found is not None
            assert [one.resource_name for one in found.rules] == ["a", "b"], place
    path.write_bytes(data)
    await started(world)


@pytest.mark.parametrize("left", ["half of it", "its first bytes", "zeros", "a part that was not written"])
async def test_a_batch_that_a_kill_left_half_written_was_never_in_force(world: World, left: str) -> None:
    path = log(world.directory, rule(FIRST, "a"), rule(SECOND, "b"))
    data = path.read_bytes()
    last = [position for position, _ in iterate_headers(data)][-1]
    size = len(data) - last
    torn = {
        "half of it": data[last : last + size // 2], "its first bytes": data[last : last + 9],
        "zeros": bytes(4096), "a part that was not written": data[last : last + size // 2] + bytes(size // 2),
    }[left]  # fmt: skip
    path.write_bytes(data[:last] + torn)
    await started(world)
    assert rules(world) == ["a"]


async def test_what_lies_before_the_last_segment_is_whole(world: World) -> None:
    first = log(world.directory, rule(FIRST, "a"), rule(SECOND, "b"))
    log(world.directory, user("alice", "a"), base_offset=3)
    data = first.read_bytes()
    for wrong, words in ((data[:-3], "no good batch at byte"), (b"", "offset 0 is missing")):
        first.write_bytes(wrong)
        with pytest.raises(AdoptionError, match=words):
            await world.start()
        await world.broker.stop()
    first.write_bytes(data)
    await started(world)
    assert rules(world) == ["a", "b"]


async def test_a_directory_without_a_quorum_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.start()
    assert world.broker.users.names() == []
    assert "Apache Kafka" not in caplog.text
