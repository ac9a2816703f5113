"""Goal: tokens (OAUTHBEARER) are believed for as long as they say, by the keys that hold now; what is said to
a client is compared with Kafka in tests/kafka/test_tokens.py.

Method: a broker with a listener that takes tokens, a clock that is moved, and who gives out tokens on a port
of this machine.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from broker.security import jwks, listener_tokens
from broker.security.bearer import InvalidToken, Token
from broker.security.jwks import MOST_BYTES, UNKNOWN_PAUSE_MS, SigningKey, read_keys
from broker.security.tokens import Rules, UnsecuredRules, validate_signed, validate_unsecured
from config.security import UNSECURED_TOKENS
from protocol.messages.metadata import MetadataRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.client import Client, until
from tests.broker.conftest import World, problem_at_start
from tests.tokens import AUDIENCE, HOUR_S, ISSUER, Issuer, first_message, unsigned

MakeWorld = Callable[..., Awaitable[World]]
HANDLER = "listener_name_secure_oauthbearer_sasl_server_callback_handler_class"
JAAS = "listener_name_secure_oauthbearer_sasl_jaas_config"
SECURE = {
    "listeners": "SECURE://127.0.0.1:0",
    "listener_security_protocol_map": "SECURE:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "OAUTHBEARER",
    "sasl_oauthbearer_expected_audience": AUDIENCE,
}
UNSECURED = {**SECURE, HANDLER: UNSECURED_TOKENS}


class Provider:
    """Gives out tokens, and says by which keys; `answer` instead of that, once it is set."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.answer: bytes | None = None
        self.asked = 0
        self.url = ""

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get("/keys", self._keys)
        self.runner = web.AppRunner(application)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}/keys"

    async def _keys(self, _: web.Request) -> web.Response:
        self.asked += 1
        if self.answer == b"":
            raise web.HTTPServiceUnavailable
        return web.Response(body=self.issuer.key_set() if self.answer is None else self.answer)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    await made.start()
    yield made
    await made.runner.cleanup()


def within(world: World, seconds: int = HOUR_S) -> dict[str, int]:
    """The claims of a token that is over after so long by the broker's clock."""
    now_s = world.clock.now_ms() // 1000
    return {"iat": now_s, "exp": now_s + seconds}


async def says(client: Client, token: str) -> Any:
    assert (await client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)).error_code == 0
    return await client.ask(SaslAuthenticateRequest(auth_bytes=first_message(token)), 2)


async def is_taken(world: World, token: str) -> bool:
    """Whether a new client comes in with a token."""
    client = await world.connect()
    answer = await says(client, token)
    await client.close()
    assert answer.error_code == 0
    return not answer.auth_bytes


async def with_keys(make_world: MakeWorld, provider: Provider, **settings: str) -> World:
    """A broker that has asked for its keys once, and has them."""
    world = await make_world(**SECURE, sasl_oauthbearer_jwks_endpoint_url=provider.url, **settings)
    (server,) = world.broker.servers
    assert server.tokens is not None
    keys = server.tokens.keys
    await until(lambda: keys is not None and keys._keys)
    assert provider.asked == 1
    return world


async def soon(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_keys_come_over_http_and_new_ones_when_a_token_has_one(
    make_world: MakeWorld, provider: Provider
) -> None:
    world = await with_keys(make_world, provider)
    assert await is_taken(world, provider.issuer.token(**within(world)))
    provider.issuer.add("new", edwards=True)
    provider.issuer.shown = {"new"}
    assert not await is_taken(world, provider.issuer.token("new", **within(world)))
    await soon(lambda: is_taken(world, provider.issuer.token("new", **within(world))))
    assert not await is_taken(world, provider.issuer.token("rsa", **within(world))), "it is shown no more"
    assert provider.asked == 2


async def test_unknown_keys_bring_about_a_question_now_and_then(
    make_world: MakeWorld, provider: Provider
) -> None:
    world = await with_keys(make_world, provider)
    provider.issuer.add("hidden")
    for _ in range(5):
        assert not await is_taken(world, provider.issuer.token("hidden", **within(world)))
    await until(lambda: provider.asked == 2)
    provider.issuer.shown.add("hidden")
    world.clock.advance(UNKNOWN_PAUSE_MS)
    await soon(lambda: is_taken(world, provider.issuer.token("hidden", **within(world))))
    assert provider.asked == 3


async def test_keys_are_asked_for_from_time_to_time(make_world: MakeWorld, provider: Provider) -> None:
    world = await with_keys(make_world, provider, sasl_oauthbearer_jwks_endpoint_refresh_ms="60000")
    world.clock.advance(59_999)
    assert await is_taken(world, provider.issuer.token(**within(world)))
    assert provider.asked == 1
    world.clock.advance(1)
    await until(lambda: provider.asked == 2)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "503"),
        (b"{}", "it is no key set"),
        (b'{"keys": [7]}', "it is no key set"),
        (b" " * (MOST_BYTES + 1), f"it has more than {MOST_BYTES} bytes"),
    ],
)
async def test_keys_that_cannot_be_had_are_asked_for_again_and_those_that_are_known_stay(
    make_world: MakeWorld,
    provider: Provider,
    caplog: pytest.LogCaptureFixture,
    answer: bytes,
    said: str,
) -> None:
    provider.answer = answer
    world = await make_world(**SECURE, sasl_oauthbearer_jwks_endpoint_url=provider.url)
    assert not await is_taken(world, provider.issuer.token(**within(world)))
    await until(lambda: f"could not be had of {provider.url}: " in caplog.text and said in caplog.text)
    provider.answer = None

    async def is_taken_later() -> bool:
        world.clock.advance(10_000)
        return await is_taken(world, provider.issuer.token(**within(world)))

    await soon(is_taken_later)
    provider.answer = answer
    asked = provider.asked

    async def is_asked_again() -> bool:
        world.clock.advance(3_600_000)
        return provider.asked > asked + 1

    await soon(is_asked_again)
    assert await is_taken(world, provider.issuer.token(**within(world)))


async def test_who_does_not_answer_is_not_waited_for(
    make_world: MakeWorld,
    provider: Provider,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwks, "LIMIT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        await make_world(**SECURE, sasl_oauthbearer_jwks_endpoint_url=url)
        await until(lambda: "no answer within" in caplog.text)


async def test_a_session_is_over_when_its_token_is(make_world: MakeWorld) -> None:
    world = await make_world(**UNSECURED)
    client = await world.connect()
    answer = await says(client, unsigned(**within(world, 60)))
    assert 58_000 <= answer.session_lifetime_ms <= 60_000
    assert (await client.ask(MetadataRequest(topics=[]), 9)).brokers
    answer = await says(client, unsigned(**within(world)))
    assert answer.session_lifetime_ms > 60_000, "the same client with a new token"
    world.clock.advance(60_000)
    assert (await client.ask(MetadataRequest(topics=[]), 9)).brokers
    world.clock.advance(HOUR_S * 1000)
    client.send(MetadataRequest(topics=[]), 9)
    assert await client.is_closed_by_peer()


async def test_the_shorter_of_two_times_is_the_sessions(make_world: MakeWorld) -> None:
    world = await make_world(**UNSECURED, connections_max_reauth_ms="5000")
    assert (await says(await world.connect(), unsigned(**within(world)))).session_lifetime_ms == 5000
    soon_over = unsigned(**within(world, 3))
    assert (await says(await world.connect(), soon_over)).session_lifetime_ms <= 3000


async def test_of_another_user_no_token_is_taken_again(make_world: MakeWorld) -> None:
    world = await make_world(**UNSECURED)
    client = await world.connect()
    await says(client, unsigned(**within(world)))
    again = asyncio.ensure_future(says(client, unsigned(sub="bob", **within(world))))
    await until(lambda: world.broker.metrics_state.failed_authentications)
    world.clock.advance(world.broker.config.connection_failed_authentication_delay_ms)
    answer = await again
    assert answer.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )


async def test_why_a_token_is_refused_is_in_the_log(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = await make_world(**UNSECURED)
    assert "believes tokens that nobody signed" in caplog.text
    assert not await is_taken(world, unsigned(exp=1))
    assert "a token is not accepted: its time is over" in caplog.text


async def test_a_file_of_keys_is_read_before_anybody_comes(make_world: MakeWorld, tmp_path: Path) -> None:
    issuer = Issuer()
    keys = tmp_path / "our keys.json"
    keys.write_bytes(issuer.key_set())
    world = await make_world(**SECURE, sasl_oauthbearer_jwks_endpoint_url=keys.as_uri())
    assert await is_taken(world, issuer.token("ec", **within(world)))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "sasl.oauthbearer.jwks.endpoint.url is missing"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "ftp://x"}, "a URL of https, http or file"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "file:///nowhere/at/all"}, "No such file"),
        ({HANDLER: "com.acme.Handler"}, "It has to be org.apache.kafka."),
        ({HANDLER: UNSECURED_TOKENS, JAAS: "PlainLoginModule required;"}, "OAuthBearerLoginModule"),
        (
            {
                HANDLER: UNSECURED_TOKENS,
                JAAS: 'OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs="x";',
            },
            "unsecuredValidatorAllowableClockSkewMs is no number",
        ),
    ],
)
async def test_what_does_not_say_whose_tokens_are_taken_is_refused(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    assert said in await problem_at_start(tmp_path, **SECURE, **settings)


async def test_without_pyjwt_it_is_said_how_to_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_tokens, "find_spec", lambda _: None)
    url = "https://tokens.example/keys"
    said = await problem_at_start(tmp_path, **SECURE, sasl_oauthbearer_jwks_endpoint_url=url)
    assert "pip install 'kompakt[oauth]'" in said


NOW_S = 1_700_000_000
SKEW = 30
"""seconds that the clocks of those who make tokens may be off, in the rules below"""


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": NOW_S - SKEW + 1}, None),
        ({"exp": NOW_S - SKEW, "iat": NOW_S - HOUR_S}, "its time was over"),
        ({"exp": None}, "it has no exp"),
        ({"iat": None}, "it has no iat"),
        ({"exp": "soon"}, "its exp is no time"),
        ({"exp": True}, "its exp is no time"),
        ({"exp": 2**53}, "its exp is no time"),
        ({"exp": float("nan")}, "its exp is no time"),
        ({"iat": -1}, "its iat is no time"),
        ({"exp": NOW_S, "iat": NOW_S + 1}, "over before it was made"),
        ({"exp": NOW_S, "nbf": NOW_S + 1}, "over before it was made, or begins"),
        ({"nbf": NOW_S + SKEW}, None),
        ({"nbf": NOW_S + SKEW + 1}, "its time begins"),
        ({"iss": "https://other.example"}, "and has to be of"),
        ({"aud": ["other", AUDIENCE]}, None),
        ({"aud": "other"}, "and has to be for kompakt"),
        ({"aud": None}, "and has to be for kompakt"),
        ({"aud": [AUDIENCE, 5]}, "its aud is not made of texts"),
        ({"scope": ["read", "read "]}, "one twice"),
        ({"sub": 5}, "its sub names nobody"),
        ({"sub": " "}, "its sub names nobody"),
    ],
)
def test_what_is_looked_at_in_a_signed_token(
    issuer: Issuer, claims: dict[str, Any], words: str | None
) -> None:
    rules = Rules(audience=(AUDIENCE,), issuer=ISSUER, skew_ms=SKEW * 1000)
    keys = read_keys(issuer.key_set())
    text = issuer.token(**{"iat": NOW_S - 100, "exp": NOW_S + 100, **claims})

    def validate(found: list[SigningKey]) -> Token:
        return validate_signed(text, lambda _: found, rules, NOW_S * 1000)

    if words is None:
        assert validate(keys) == Token("alice", claims.get("exp", NOW_S + 100) * 1000)
        with pytest.raises(InvalidToken, match="no key that is known has the name"):
            validate([])
    else:
        with pytest.raises(InvalidToken, match=words):
            validate(keys)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": NOW_S - SKEW + 1}, None),
        ({"exp": NOW_S - SKEW}, "its time is over"),
        ({"exp": None}, "does not say when"),
        ({"iat": None}, None),
        ({"iat": NOW_S + SKEW}, None),
        ({"iat": NOW_S + SKEW + 1}, "made later than now"),
        ({"exp": NOW_S, "iat": NOW_S}, "or than its time is over"),
        ({"scope": ["a"]}, "its scope has to have"),
        ({"sub": 5}, "its sub names nobody"),
    ],
)
def test_what_is_looked_at_in_a_token_that_nobody_signed(claims: dict[str, Any], words: str | None) -> None:
    rules = UnsecuredRules(skew_ms=SKEW * 1000, required_scopes=("a", "b"))
    usual = {"iat": NOW_S - 100, "exp": NOW_S + 100, "scope": ["b", "a", "c"]}
    text = unsigned(**{**usual, **claims})
    if words is None:
        assert validate_unsecured(text, rules, NOW_S * 1000).user == "alice"
        with pytest.raises(InvalidToken, match="empty signature"):
            validate_unsecured(f"{text}x", rules, NOW_S * 1000)
    else:
        with pytest.raises(InvalidToken, match=words):
            validate_unsecured(text, rules, NOW_S * 1000)


def test_shared_secrets_and_keys_for_other_uses_sign_nothing(caplog: pytest.LogCaptureFixture) -> None:
    keys = read_keys(
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}, {"kty": "RSA", "use": "enc"}, {"kty": "x"},'
        b' {"kty": []}, {"kty": "RSA", "n": 5, "e": {}}, {"kty": "EC", "crv": [], "x": 1},'
        b' {"kty": "RSA", "alg": {"a": 1}}]}'
    )
    assert [key.kind for key in keys] == ["oct"], "which no algorithm that is taken goes with"
    assert "is left out" in caplog.text
