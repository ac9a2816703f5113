"""Goal: who comes in with a token (OAUTHBEARER), who does not, and what each is told are Apache Kafka's.

Method: the same conversations, request by request, with both brokers, which have the same file of keys. A
connection that is closed is an answer like others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from config.security import SIGNED_TOKENS, UNSECURED_TOKENS
from protocol.messages.metadata import MetadataRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.kafka.broker import KafkaBroker
from tests.kafka.raw import Raw
from tests.kafka.tools import Tools
from tests.process import BrokerProcess, free_port
from tests.tokens import AUDIENCE, HOUR_S, ISSUER, Issuer, first_message, unsigned

pytestmark = pytest.mark.java
PROTOCOLS = dict.fromkeys(("SIGNED", "ANYBODY", "BELIEVED", "SHORT"), "SASL_PLAINTEXT")
"""of each listener: ANYBODY names neither audience nor issuer, BELIEVED takes tokens that nobody signed"""
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CLOSED = "closed"
SHORT_SESSION_MS = 60_000
Say = Callable[["Stranger", Issuer], None]


def settings_of(keys: Path) -> dict[str, str]:
    """The same for both brokers."""
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
    for name in PROTOCOLS:
        prefix = f"listener.name.{name.lower()}"
        options = ' unsecuredLoginStringClaim_sub="broker"'  # Kafka's broker says who it is itself
        options += ' unsecuredValidatorRequiredScope="read write"' if name == "BELIEVED" else ""
        settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{MODULE} required{options};"
        handler = UNSECURED_TOKENS if name == "BELIEVED" else SIGNED_TOKENS[0]
        settings[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = handler
        if name != "BELIEVED":
            settings[f"{prefix}.sasl.oauthbearer.jwks.endpoint.url"] = keys.as_uri()
        if name in ("SIGNED", "SHORT"):
            settings[f"{prefix}.sasl.oauthbearer.expected.audience"] = f"other,{AUDIENCE}"
            settings[f"{prefix}.oauthbearer.sasl.oauthbearer.expected.issuer"] = ISSUER
    settings["listener.name.short.oauthbearer.connections.max.reauth.ms"] = str(SHORT_SESSION_MS)
    return settings


class Side:
    """A broker and where its listeners are."""

    def __init__(self, broker: KafkaBroker | BrokerProcess, ports: Mapping[str, int]) -> None:
        self.broker = broker
        self.ports = ports


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def sides(
    kafka_tools: Tools, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Side]]:
    directory = tmp_path_factory.mktemp("tokens")
    keys = directory / "keys.json"
    keys.write_bytes(issuer.key_set())
    ports = [{name: free_port() for name in PROTOCOLS} for _ in range(2)]
    protocols = ",".join(f"{name}:{kind}" for name, kind in PROTOCOLS.items())
    places = ["".join(f",{name}://127.0.0.1:{port}" for name, port in one.items()) for one in ports]
    (directory / "kafka").mkdir()
    kafka = KafkaBroker(directory / "kafka", tools=kafka_tools)
    listeners = f"PLAINTEXT://{kafka.bootstrap},CONTROLLER://127.0.0.1:{kafka.controller_port}{places[0]}"
    kafka.settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}",
        **settings_of(keys),
    }
    kafka.options += (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}",)
    own = BrokerProcess(
        directory / "data",
        {
            "listeners": f"PLAINTEXT://127.0.0.1:0{places[1]}",
            "listener.security.protocol.map": protocols,
            **settings_of(keys),
        },
    )
    try:
        yield [Side(broker.start(), at) for broker, at in zip((kafka, own), ports, strict=True)]
    finally:
        kafka.close()
        own.close()


class Stranger:
    """A connection to a listener, whose answers are in a form that can be compared."""

    def __init__(self, side: Side, listener: str) -> None:
        self._raw = Raw(side.ports[listener])
        self.said: list[Any] = []

    def _ask(self, request: Any, version: int) -> Any:
        try:
            return self._raw.ask(request, version)
        except (AssertionError, OSError):
            return CLOSED

    def handshake(self, mechanism: str = "OAUTHBEARER") -> None:
        answer = self._ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        self.said.append(answer if answer == CLOSED else (answer.error_code, list(answer.mechanisms)))

    def says(self, token: bytes) -> None:
        answer = self._ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer == CLOSED:
            self.said.append(answer)
            return
        about_s = -(-answer.session_lifetime_ms // 10_000) * 10  # both are asked within seconds
        self.said.append((answer.error_code, answer.error_message, bytes(answer.auth_bytes), about_s))

    def brings(self, token: str, for_whom: str = "", **extensions: str) -> None:
        self.handshake()
        self.says(first_message(token, for_whom, **extensions))
        self.metadata()

    @property
    def is_in(self) -> bool:
        return self.said[-1] == 1  # it was told of a broker

    def metadata(self) -> None:
        """Asked by who is let in: requests of others are not read here, where Kafka answers and closes."""
        if self.said[-1][:3] != (0, "", b""):
            return
        answer = self._ask(MetadataRequest(topics=[]), 9)
        self.said.append(answer if answer == CLOSED else len(answer.brokers))

    def close(self) -> None:
        self._raw.close()


def brings(key: str = "rsa", headers: dict[str, Any] | None = None, **claims: Any) -> Say:
    """A token with these claims; times are told by `in_s`."""

    def say(one: Stranger, issuer: Issuer) -> None:
        now = int(time.time())
        said = {name: now + it if isinstance(it, in_s) else it for name, it in claims.items()}
        one.brings(issuer.token(key, headers=headers, **said))

    return say


class in_s(float):
    """A time so many seconds from now."""


def says(*tokens: bytes) -> Say:
    def say(one: Stranger, issuer: Issuer) -> None:
        one.handshake()
        for token in tokens:
            one.says(token)

    return say


def understood(one: Stranger, issuer: Issuer) -> None:
    """As clients do that are told of an error."""
    one.handshake()
    one.says(first_message(issuer.token(sub=None)))
    one.says(b"\x01")


def second_try(one: Stranger, issuer: Issuer) -> None:
    one.handshake()
    one.says(first_message(issuer.token(sub=None)))
    one.says(first_message(issuer.token()))
    one.metadata()


def tampered(one: Stranger, issuer: Issuer) -> None:
    head, _, signature = issuer.token().split(".")
    one.brings(f"{head}.{issuer.token(sub='root').split('.')[1]}.{signature}")


def of_a_stranger(one: Stranger, issuer: Issuer) -> None:
    one.brings(Issuer().token())


def again(**claims: Any) -> Say:
    """The session is not over, and who has it says again who it is."""

    def say(one: Stranger, issuer: Issuer) -> None:
        one.brings(issuer.token())
        if one.is_in:
            one.brings(issuer.token(**claims))

    return say


CONVERSATIONS: dict[str, Say] = {
    "good": brings(),
    "by an elliptic key": brings("ec"),
    "without the name of a key": brings(headers={}),
    "by the name of another key": brings("rsa", headers={"kid": "ec"}),
    "by a name that nobody has": brings(headers={"kid": "none"}),
    "of a stranger": of_a_stranger,
    "tampered with": tampered,
    "unsigned": lambda one, issuer: one.brings(unsigned(aud=AUDIENCE, iss=ISSUER)),
    "for several": brings(aud=["x", AUDIENCE]),
    "for others": brings(aud=["x", "y"]),
    "for nobody": brings(aud=None),
    "of another issuer": brings(iss="x"),
    "of no issuer": brings(iss=None),
    "over": brings(exp=in_s(-60)),
    "just over": brings(exp=in_s(-5), iat=in_s(-9)),
    "over before it was made": brings(exp=in_s(-5)),
    "over before it begins": brings(exp=in_s(10), nbf=in_s(20)),
    "never over": brings(exp=None),
    "over long ago": brings(exp=-1),
    "over at no time": brings(exp="soon"),
    "without its time": brings(iat=None),
    "of tomorrow": brings(iat=in_s(86_400), exp=in_s(172_800)),
    "not yet": brings(nbf=in_s(3600)),
    "from now on": brings(nbf=in_s(5)),
    "of nobody": brings(sub=None),
    "of a blank": brings(sub="  "),
    "of a number": brings(sub=7),
    "with a scope": brings(scope="read write"),
    "with scopes": brings(scope=["read", "write"]),
    "with a scope twice": brings(scope=["read", "read"]),
    "with an empty scope": brings(scope=""),
    "in fractions": brings(exp=in_s(100.5), iat=in_s(-0.5)),
    "for itself": lambda one, issuer: one.brings(issuer.token(), "alice"),
    "for another one": lambda one, issuer: one.brings(issuer.token(), "bob"),
    "with an extension": lambda one, issuer: one.brings(issuer.token(), traceId="7"),
    "with a bad extension": lambda one, issuer: one.brings(issuer.token(), **{"trace-id": "7"}),
    "understood": understood,
    "second try": second_try,
    "nothing": says(b""),
    "only understood": says(b"\x01"),
    "no auth": says(b"n,,\x01user=alice\x01\x01"),
    "no bearer": says(b"n,,\x01auth=Basic eDp5\x01\x01"),
    "no token": says(b"n,,\x01auth=Bearer \x01\x01"),
    "one part": says(first_message("x")),
    "two parts": says(first_message("x.y")),
    "three parts": says(first_message("x.y.z")),
    "no text": says(b"\xff\xfe"),
    "a name and a password": says(b"\0alice\0secret"),
    "again": again(),
    "again as another one": again(sub="bob"),
    "another mechanism": lambda one, issuer: one.handshake("PLAIN"),
}
EXPLAINED = {"no bearer": "Kafka comes upon a fault of its own, and closes"}
BELIEVED: dict[str, Say] = {
    "good": lambda one, _: one.brings(unsigned(scope=["read", "write", "more"])),
    "one scope": lambda one, _: one.brings(unsigned(scope="read")),
    "no scope": lambda one, _: one.brings(unsigned()),
    "signed": lambda one, issuer: one.brings(issuer.token(scope=["read", "write"])),
    "with a signature": lambda one, _: one.brings(unsigned(signature="eA", scope=["read", "write"])),
    "by another algorithm": lambda one, _: one.brings(unsigned({"alg": "x"}, scope=["read", "write"])),
    "over": lambda one, _: one.brings(unsigned(exp=time.time() - 1, scope=["read", "write"])),
    "never over": lambda one, _: one.brings(unsigned(exp=None, scope=["read", "write"])),
    "of tomorrow": lambda one, _: one.brings(unsigned(iat=time.time() + 86_400, scope=["read", "write"])),
    "without its time": lambda one, _: one.brings(unsigned(iat=None, scope=["read", "write"])),
    "of nobody": lambda one, _: one.brings(unsigned(sub=None, scope=["read", "write"])),
    "of a number": lambda one, _: one.brings(unsigned(sub=7, scope=["read", "write"])),
    "no text": lambda one, _: one.brings("=.=."),
}


def told(sides: list[Side], issuer: Issuer, say: Say, listener: str) -> list[list[Any]]:
    answers = []
    for side in sides:
        one = Stranger(side, listener)
        say(one, issuer)
        one.close()
        answers.append(one.said)
    return answers


@pytest.mark.parametrize("listener", ["SIGNED", "ANYBODY", "SHORT"])
def test_tokens_are_taken_as_in_kafka(sides: list[Side], issuer: Issuer, listener: str) -> None:
    parted = []
    for name, say in CONVERSATIONS.items():
        kafkas, own = told(sides, issuer, say, listener)
        if (kafkas == own) == (name in EXPLAINED):
            parted.append(f"{name}\n  Kafka   {kafkas}\n  kompakt {own}")
    assert not parted, "\n".join(parted)


def test_unsigned_tokens_are_believed_as_in_kafka(sides: list[Side], issuer: Issuer) -> None:
    parted = []
    for name, say in BELIEVED.items():
        kafkas, own = told(sides, issuer, say, "BELIEVED")
        if kafkas != own:
            parted.append(f"{name}\n  Kafka   {kafkas}\n  kompakt {own}")
    assert not parted, "\n".join(parted)
    assert HOUR_S in told(sides, issuer, BELIEVED["good"], "BELIEVED")[0][1], (
        "the token's time is the session's"
    )
