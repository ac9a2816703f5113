"""Goal: who does not say who it is gets nothing, who does may go on as long as it is believed, and each
refusal is Kafka's.

Method: a broker with a SASL listener and a clock that stands still, requests one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.metadata_log import METADATA_PARTITION
from broker.security.session import API_VERSIONS
from protocol.errors import ErrorCode
from protocol.framing import encode_request
from protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from protocol.messages.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from protocol.scram import salt_password
from spark_connector.authentication import Scram
from tests.broker.client import LIMIT_SECONDS, Client, until
from tests.broker.conftest import World, produce_request

MakeWorld = Callable[..., Awaitable[World]]
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
SHA_256, SHA_512 = 1, 2
SECURE = {
    "listeners": "SECURE://127.0.0.1:0",
    "listener_security_protocol_map": "SECURE:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener_name_secure_plain_sasl_jaas_config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_bob="b";'
    ),
}
RULES = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
ALICE, BOB = b"\0alice\0a", b"\0bob\0b"
TOPICS = MetadataRequest(topics=[])


@pytest.fixture
async def secure(make_world: MakeWorld) -> World:
    return await make_world(**SECURE)


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await client.ask(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(client: Client, token: bytes = ALICE, version: int = 2) -> Any:
    return await client.ask(SaslAuthenticateRequest(auth_bytes=token), version)


async def enter(client: Client, token: bytes = ALICE) -> Any:
    """As a client does that has found the right broker."""
    assert (await handshake(client)).error_code == 0
    answer = await authenticate(client, token)
    assert answer.error_code == 0
    return answer


def frame(request: Any, version: int, correlation_id: int) -> bytes:
    return b"".join(encode_request(request, version, correlation_id, "c"))


async def late(world: World, answer: asyncio.Future[Any], after_ms: int = 100) -> None:
    """Return when the answer has come that the broker holds back for so long."""
    world.clock.advance(after_ms)
    await asyncio.wait_for(asyncio.shield(answer), LIMIT_SECONDS)


async def nothing_comes_before(world: World, client: Client, after_ms: int = 100) -> None:
    """The client is refused: for so long it hears nothing, not even the end of the connection."""
    peer = "{}:{}".format(*client.local_address)
    (session,) = (one.session for one in world.broker.servers[0].connections if one.peer == peer)
    assert session is not None
    await until(lambda: session.why_not(API_VERSIONS) == "the client was refused")
    heard = asyncio.ensure_future(client.reader.read(1))
    for waits_ms in (0, after_ms - 1):
        world.clock.advance(waits_ms)
        for _ in range(50):
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(heard), 0.05)
    heard.cancel()
    await asyncio.wait({heard})
    world.clock.advance(1)


async def scram(client: Client, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
    """The last answer of a conversation."""
    assert (await handshake(client, mechanism)).error_code == 0
    conversation = Scram(mechanism, user, password)
    first = await authenticate(client, conversation.first())
    if first.error_code:
        return first
    final = await authenticate(client, conversation.final(first.auth_bytes))
    if not final.error_code:
        conversation.verify(final.auth_bytes)
    return final


def upsertion(user: str, password: str, mechanism: int = SHA_256, iterations: int = 4096) -> Upsertion:
    name = {SHA_256: "SCRAM-SHA-256", SHA_512: "SCRAM-SHA-512"}.get(mechanism, "SCRAM-SHA-256")
    salted = salt_password(name, password, b"salt", iterations)
    return Upsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


async def alter(client: Client, *changes: Deletion | Upsertion) -> list[tuple[str, int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, Deletion)],
        upsertions=[one for one in changes if isinstance(one, Upsertion)],
    )
    results = (await client.ask(request, 0)).results
    return [(row.user, row.error_code, row.error_message) for row in results]


# Before


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (TOPICS, 9),
        (produce_request([("t", 0, b"x")], acks=1), 9),
        (SaslAuthenticateRequest(auth_bytes=ALICE), 1),
    ],
    ids=["Metadata", "Produce", "SaslAuthenticate"],
)
async def test_nothing_else_is_answered_to_strangers(
    secure: World, request_: Any, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    client = await secure.connect()
    client.send(request_, version)
    assert await client.is_closed_by_peer()
    assert "asked before the client has said who it is (SASL)" in caplog.text
    assert secure.broker.metrics_state.malformed_requests == 1


async def test_versions_are_told_and_asked_for_again_in_another_version(secure: World) -> None:
    client = await secure.connect()
    frame = bytearray(b"".join(encode_request(ApiVersionsRequest(), 2, 7, "c")))
    frame[6:8] = (99).to_bytes(2, "big")
    client.send_bytes(bytes(frame))
    _, refused = await client.receive(ApiVersionsResponse, 0)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    served = await client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    assert {17, 36, 51} <= {row.api_key for row in served.api_keys}
    await enter(client)
    assert (await client.ask(TOPICS, 9)).brokers


async def test_strangers_requests_are_short(make_world: MakeWorld) -> None:
    world = await make_world(**SECURE, sasl_server_max_receive_size="1024")
    world.topic()
    stranger = await world.connect()
    stranger.send(SaslAuthenticateRequest(auth_bytes=b"x" * 2000), 1)
    assert await stranger.is_closed_by_peer()
    stranger = await world.connect()
    stranger.send(produce_request([("t", 0, b"x" * 2000)]), 9)
    assert await stranger.is_closed_by_peer()
    known = await world.connect()
    await enter(known)
    assert (await world.produce(known, world.batch((b"k", b"v" * 2000)))).error_code == 0


# Saying who one is


async def test_a_known_user_may_ask_everything(secure: World) -> None:
    client = await secure.connect()
    assert (await handshake(client)).mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    answer = await authenticate(client)
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert answer.session_lifetime_ms == 0
    assert (await client.ask(TOPICS, 9)).brokers
    (connection,) = secure.broker.servers[0].connections
    assert connection.principal == "User:alice"
    assert secure.broker.metrics_state.authentications == 1


async def test_bare_tokens_after_a_handshake_of_version_0(
    secure: World, caplog: pytest.LogCaptureFixture
) -> None:
    client = await secure.connect()
    await handshake(client, version=0)
    client.send_bytes(len(ALICE).to_bytes(4, "big") + ALICE)
    assert await client.receive_frame() == b""
    assert (await client.ask(TOPICS, 9)).brokers
    wrong = await secure.connect()
    await handshake(wrong, version=0)
    wrong.send_bytes(len(ALICE).to_bytes(4, "big") + b"\0alice\0b")
    await nothing_comes_before(secure, wrong)
    assert await wrong.is_closed_by_peer()
    assert "Authentication failed: Invalid username or password" in caplog.text
    assert secure.broker.metrics_state.failed_authentications == 1


async def test_a_bare_token_may_be_shorter_than_a_request(make_world: MakeWorld) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    world = await make_world(**{**SECURE, "listener_name_secure_plain_sasl_jaas_config": jaas})
    for token, is_known in ((b"\0a\0b", True), (b"\0a\0x", False), (b"", False)):
        client = await world.connect()
        await handshake(client, version=0)
        client.send_bytes(len(token).to_bytes(4, "big") + token)
        if is_known:
            assert await client.receive_frame() == b""
            client.send_bytes(len(token).to_bytes(4, "big") + token)  # which is no request any more
        else:
            await nothing_comes_before(world, client)
        assert await client.is_closed_by_peer()


async def test_a_wrong_password_is_told_late_and_ends_the_connection(
    secure: World, caplog: pytest.LogCaptureFixture
) -> None:
    client = await secure.connect()
    await handshake(client)
    answer = asyncio.ensure_future(authenticate(client, b"\0alice\0b"))
    await until(lambda: secure.broker.metrics_state.failed_authentications == 1)
    secure.clock.advance(99)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not answer.done()
    await late(secure, answer, 1)
    assert answer.result().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.result().error_message == "Authentication failed: Invalid username or password"
    assert await client.is_closed_by_peer()
    assert "Authentication failed: Invalid username or password" in caplog.text
    assert secure.broker.metrics_state.authentications == 0


@pytest.mark.parametrize("is_sent_apart", [False, True])
@pytest.mark.parametrize(
    "behind",
    [
        frame(SaslAuthenticateRequest(auth_bytes=ALICE), 1, 3),
        frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, 3),
        b"\0\0\0\2ab",
        b"\x7f\xff\xff\xff",
        (200_000).to_bytes(4, "big") + b"\0\x24",
    ],
    ids=["SaslAuthenticate", "ApiVersions", "too short", "too long", "begun"],
)
async def test_who_was_refused_asks_in_vain_meanwhile(
    secure: World, behind: bytes, is_sent_apart: bool
) -> None:
    """And learns no sooner that the password was wrong: else guessing would take no time."""
    client = await secure.connect()
    await handshake(client)
    refused = frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0b"), 1, 2)
    if is_sent_apart:
        client.send_bytes(refused)
        await until(lambda: secure.broker.metrics_state.failed_authentications == 1)
        client.send_bytes(behind)
    else:
        client.send_bytes(refused + behind)
    await nothing_comes_before(secure, client)
    if not is_sent_apart:  # what is not read may take the answer with it, as every close does
        correlation_id, answer = await client.receive(SaslAuthenticateResponse, 1)
        assert (correlation_id, answer.error_code) == (2, ErrorCode.SASL_AUTHENTICATION_FAILED)
        assert await client.is_closed_by_peer()
    await until(lambda: not secure.broker.servers[0].connections)
    assert secure.broker.metrics_state.authentications == 0
    assert secure.broker.metrics_state.malformed_requests == 0


async def test_what_comes_behind_a_bare_token_that_is_refused_is_not_looked_at(secure: World) -> None:
    client = await secure.connect()
    await handshake(client, version=0)
    client.send_bytes(len(ALICE).to_bytes(4, "big") + b"\0alice\0b" + frame(TOPICS, 9, 2))
    await nothing_comes_before(secure, client)
    assert await client.is_closed_by_peer()
    assert secure.broker.metrics_state.malformed_requests == 0


async def test_who_hangs_up_behind_a_wrong_password_is_not_told_sooner(secure: World) -> None:
    client = await secure.connect()
    await handshake(client)
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0b"), 1)
    client.writer.write_eof()
    await nothing_comes_before(secure, client)
    _, answer = await client.receive(SaslAuthenticateResponse, 1)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed_by_peer()


async def test_a_mechanism_that_is_not_offered(secure: World) -> None:
    client = await secure.connect()
    answer = asyncio.ensure_future(handshake(client, "GSSAPI"))
    await until(lambda: secure.broker.metrics_state.failed_authentications == 1)
    await late(secure, answer, 100)
    assert answer.result().error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.result().mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert await client.is_closed_by_peer()


async def test_where_no_sasl_is_spoken_it_is_not_the_time_for_it(world: World) -> None:
    client = await world.connect()
    assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = await authenticate(client)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert (await client.ask(TOPICS, 9)).brokers


async def test_who_has_said_it_says_it_once(secure: World) -> None:
    client = await secure.connect()
    await enter(client)
    assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await authenticate(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await client.ask(TOPICS, 9)).brokers


# The end of a session (KIP-368)


@pytest.fixture
async def short(make_world: MakeWorld) -> World:
    """PLAIN is believed for a second, the others for ever."""
    world = await make_world(**SECURE, listener_name_secure_plain_connections_max_reauth_ms="1000")
    world.topic()
    return world


async def test_a_session_ends(short: World, caplog: pytest.LogCaptureFixture) -> None:
    client = await short.connect()
    assert (await enter(client)).session_lifetime_ms == 1000
    for _ in range(3):  # the second one is known by the first (`produce_template.py`)
        assert (await short.produce(client, short.batch((b"k", b"v")))).error_code == 0
    short.clock.advance(999)
    assert (await short.produce(client, short.batch((b"k", b"v")))).error_code == 0
    short.clock.advance(1)
    client.send(produce_request([("t", 0, short.batch((b"k", b"v")))]), 9)
    assert await client.is_closed_by_peer()
    assert "the session is over" in caplog.text


async def test_a_session_goes_on_for_the_same_user(short: World) -> None:
    client = await short.connect()
    await enter(client)
    for elapsed_ms in (900, 1000, 1001, 5000):  # before its end and behind it
        short.clock.advance(elapsed_ms)
        assert (await enter(client)).session_lifetime_ms == 1000
        assert (await short.produce(client, short.batch((b"k", b"v")))).error_code == 0


async def test_nobody_says_it_again_twice_in_a_second(short: World) -> None:
    """The first time at once, as in Kafka; what comes too soon does not end the session that there is."""
    client = await short.connect()
    await enter(client)
    await enter(client)
    short.clock.advance(999)
    assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await client.ask(TOPICS, 9)).brokers
    short.clock.advance(1)
    await enter(client)


async def test_a_session_does_not_go_on_for_another_one(short: World) -> None:
    client = await short.connect()
    await enter(client)
    await handshake(client)
    answer = asyncio.ensure_future(authenticate(client, BOB))
    await until(lambda: short.broker.metrics_state.failed_authentications == 1)
    await late(short, answer, 100)
    words = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert answer.result().error_message == words
    assert await client.is_closed_by_peer()


async def test_nor_by_another_mechanism(short: World) -> None:
    client = await short.connect()
    await enter(client)
    answer = asyncio.ensure_future(handshake(client, "SCRAM-SHA-256"))
    await until(lambda: short.broker.metrics_state.failed_authentications == 1)
    await late(short, answer, 100)
    assert answer.result().error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert await client.is_closed_by_peer()


# Users


async def test_users_are_made_and_known_after_a_restart(secure: World) -> None:
    client = await secure.connect()
    await enter(client)
    made = await alter(client, upsertion("carol", "c"), upsertion("dave, = ß", "d", SHA_512, 5000))
    assert made == [("carol", 0, None), ("dave, = ß", 0, None)]
    for _ in range(2):
        assert (await scram(await secure.connect(), "carol", "c")).error_code == 0
        second = await scram(await secure.connect(), "dave, = ß", "d", "SCRAM-SHA-512")
        assert second.error_code == 0
        await secure.restart()
    client = await secure.connect()
    await enter(client)
    described = await client.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert [
        (row.user, [(one.mechanism, one.iterations) for one in row.credential_infos])
        for row in described.results
    ] == [("carol", [(SHA_256, 4096)]), ("dave, = ß", [(SHA_512, 5000)])]


async def test_a_user_has_a_credential_for_each_mechanism(secure: World) -> None:
    client = await secure.connect()
    await enter(client)
    await alter(client, upsertion("carol", "c"))
    await alter(client, upsertion("carol", "d", SHA_512))
    assert (await scram(await secure.connect(), "carol", "c")).error_code == 0
    assert (await scram(await secure.connect(), "carol", "d", "SCRAM-SHA-512")).error_code == 0
    assert await alter(client, Deletion(name="carol", mechanism=SHA_256)) == [("carol", 0, None)]
    await secure.restart()
    refused = asyncio.ensure_future(scram(await secure.connect(), "carol", "c"))
    await until(lambda: secure.broker.metrics_state.failed_authentications == 1)
    await late(secure, refused, 100)
    assert refused.result().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.result().error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        "SCRAM-SHA-256"
    )
    assert (await scram(await secure.connect(), "carol", "d", "SCRAM-SHA-512")).error_code == 0


async def test_a_password_that_cannot_be_stored_is_told_of_its_user(secure: World) -> None:
    """One answer for a user without a name was given, which clients know nothing to do with."""
    client = await secure.connect()
    await enter(client)
    secure.broker.logs.logs[METADATA_PARTITION].take_offline("a disk that is lost")
    answers = await alter(client, upsertion("carol", "c"), Deletion(name="dave", mechanism=SHA_256))
    assert {user: code for user, code, _ in answers} == {
        "carol": ErrorCode.KAFKA_STORAGE_ERROR,
        "dave": ErrorCode.RESOURCE_NOT_FOUND,
    }


async def test_no_password_is_on_the_disk(secure: World) -> None:
    client = await secure.connect()
    await enter(client)
    change = upsertion("carol", "a very secret word")
    await alter(client, change)
    stored = b"".join(path.read_bytes() for path in secure.directory.rglob("*.log"))
    assert b"carol" in stored and b"stored_key" in stored
    assert b"a very secret word" not in stored
    assert bytes(change.salted_password) not in stored


async def test_a_request_is_still_a_whole_one(secure: World) -> None:
    """What follows an answer in the same read is taken by the same rules."""
    client = await secure.connect()
    frames = [
        frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1),
        frame(SaslAuthenticateRequest(auth_bytes=ALICE), 1, 2),
        frame(TOPICS, 9, 3),
    ]
    client.send_bytes(b"".join(frames))
    ids = [int.from_bytes((await client.receive_frame())[:4], "big") for _ in frames]
    assert ids == [1, 2, 3]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({**SECURE, "http_host": "0.0.0.0"}, "asks nobody who it is"),
        ({**SECURE, **RULES, "http_host": "0.0.0.0"}, "is not encrypted"),
        ({**SECURE, **RULES, "http_host": "127.0.0.1"}, None),
        ({**SECURE, "http_host": "127.0.0.1"}, None),
        ({"http_host": "0.0.0.0"}, None),
    ],
)
async def test_a_door_beside_the_guarded_one_is_told(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture, settings: dict[str, str], told: str | None
) -> None:
    await make_world(**settings, http_port="0")
    for words in ("asks nobody who it is", "is not encrypted"):
        assert (words in caplog.text) == (words == told)
