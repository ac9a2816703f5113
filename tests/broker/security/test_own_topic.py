"""Goal: `__kompakt_metadata`, where what proves passwords, rules and quotas are kept, is nobody's to read but
theirs who may change all that; what proves a password is shown to nobody.

Method: brokers in the loop with a user of SCRAM, read over Kafka's protocol and over HTTP by users with
rights that name no topic in particular.
"""

from __future__ import annotations

import base64

import pytest

from broker.security.acls import ANY_NAME, CLUSTER_NAME, Filter, Operation, Pattern, Permission, Resource
from broker.topic import METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.scram import credential, salt_password
from tests.broker.client import Client
from tests.broker.conftest import World, fetch_request
from tests.broker.security.test_http_access import ALICE, ROOT, SETTINGS, allow, asked, status
from tests.broker.test_questions import Asker, MakeWorld

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
SALT, MECHANISM = b"a salt that is long", "SCRAM-SHA-256"
PROOF = credential(MECHANISM, salt_password(MECHANISM, "hunter2", SALT, 4096), SALT, 4096)
WRITTEN = [base64.b64encode(one).decode() for one in (SALT, PROOF.stored_key, PROOF.server_key)]
"""as its record has it"""
EVERY_OF_CLUSTER = Filter(Resource.CLUSTER, None, Pattern.ANY, None, None, Operation.ANY, Permission.ANY)
NO_RULES = {"authorizer_class_name": "", "super_users": ""}


def with_a_password(world: World) -> Asker:
    world.broker.users.set(MECHANISM, "admin", PROOF)
    return Asker(world)


@pytest.fixture
async def asker(make_world: MakeWorld) -> Asker:
    world = await make_world(**SETTINGS)
    world.topic("t")
    for operation in (Operation.ALL, Operation.READ):
        allow(world, operation, Resource.TOPIC, ANY_NAME)
    return with_a_password(world)


async def enter(world: World, user: tuple[str, str]) -> Client:
    client = await world.connect()
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = SaslAuthenticateRequest(auth_bytes="\0".join(("", *user)).encode())
    assert (await client.ask(token, 1)).error_code == 0
    return client


async def fetched(client: Client) -> tuple[int, bytes]:
    answer = await client.ask(fetch_request([(METADATA_TOPIC, 0, 0)]), 12)
    found = answer.responses[0].partitions[0]
    return found.error_code, bytes(found.records or b"")


async def codes(client: Client) -> list[int]:
    """Of what else tells something of a topic."""
    offsets = ListOffsetsRequest.ListOffsetsTopic
    epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    row = offsets(name=METADATA_TOPIC, partitions=[offsets.ListOffsetsPartition(partition_index=0)])
    listed = await client.ask(ListOffsetsRequest(topics=[row]), 7)
    place = epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    ended = await client.ask(
        OffsetForLeaderEpochRequest(topics=[epochs(topic=METADATA_TOPIC, partitions=[place])]), 4
    )
    named = MetadataRequest.MetadataRequestTopic(name=METADATA_TOPIC)
    described = await client.ask(MetadataRequest(topics=[named]), 12)
    partitions = (listed.topics[0].partitions[0], ended.topics[0].partitions[0], described.topics[0])
    return [one.error_code for one in partitions]


async def names(client: Client) -> set[str]:
    return {row.name for row in (await client.ask(MetadataRequest(topics=None), 12)).topics}


async def test_who_may_read_every_topic_may_not_read_this_one(asker: Asker) -> None:
    world = asker.world
    alice = await enter(world, ALICE)
    assert await fetched(alice) == (REFUSED, b"")
    assert await codes(alice) == [REFUSED] * 3
    assert await names(alice) == {"t"}
    for path in ("", "/table", "/partitions/0/records", "/get?key=k"):
        assert await status(asker, f"topics/{METADATA_TOPIC}{path}", ALICE) == 403
    allow(world, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    await world.broker.metadata.flushed()
    code, records = await fetched(alice)
    assert (code, WRITTEN[1].encode() in records) == (0, True)
    assert await codes(alice) == [0] * 3
    assert await names(alice) == {"t", METADATA_TOPIC}
    assert world.broker.authorizer is not None
    world.broker.authorizer.remove(world.broker.authorizer.find(EVERY_OF_CLUSTER))
    assert await fetched(alice) == (REFUSED, b"")


async def test_super_users_read_it(asker: Asker) -> None:
    root = await enter(asker.world, ROOT)
    assert (await fetched(root))[0] == 0
    assert METADATA_TOPIC in await names(root)


@pytest.mark.parametrize("rules", [{}, NO_RULES])
async def test_what_proves_a_password_is_not_shown_over_http(
    make_world: MakeWorld, rules: dict[str, str]
) -> None:
    world = await make_world(**{**SETTINGS, **rules})
    asker = with_a_password(world)
    await world.broker.metadata.flushed()
    key = '{"name":"SCRAM-SHA-256 admin","type":"scram"}'
    for path in ("table", "partitions/0/records", "partitions/0/records?offset=0", f"get?key={key}"):
        got, _, answer = await asked(asker, "GET", f"topics/{METADATA_TOPIC}/{path}", None, ROOT)
        assert got == 200
        text = str(answer)
        assert "(not shown)" in text
        hidden = [one for secret in WRITTEN for one in (secret, base64.b64encode(secret.encode()).decode())]
        assert not [one for one in hidden if one in text], path
    # Nor can it be guessed, piece by piece.
    path = f"topics/{METADATA_TOPIC}/partitions/0/records?contains={WRITTEN[1][:4]}"
    assert (await asked(asker, "GET", path, None, ROOT))[2]["records"] == []


async def test_without_rules_who_has_to_say_who_it_is_may_not_read_it(make_world: MakeWorld) -> None:
    """Whoever comes in without a name is trusted with everything; a user has a password, as others have."""
    listeners = {
        "listeners": "SECURE://127.0.0.1:0,LOCAL://127.0.0.1:0",
        "listener_security_protocol_map": "SECURE:SASL_PLAINTEXT,LOCAL:PLAINTEXT",
    }
    world = await make_world(**{**SETTINGS, **NO_RULES, **listeners})
    with_a_password(world)
    alice = await enter(world, ALICE)
    assert await fetched(alice) == (REFUSED, b"")
    local = next(one for one in world.broker.listeners if one.name == "LOCAL")
    trusted = await Client.connect("127.0.0.1", local.port)
    try:
        assert (await fetched(trusted))[0] == 0
    finally:
        await trusted.close()
