"""Goal: who comes in by SASL, who does not, and what each is told are Apache Kafka's, word for word.

Method: the same conversations, request by request, with both brokers; passwords changed by the same requests.
A connection that is closed is an answer like others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from protocol.scram import salt_password
from spark_connector.authentication import Scram
from tests.certificates import Certificates
from tests.kafka.raw import Raw
from tests.kafka.tools import Tools
from tests.secured import PASSWORD, USER, SecuredBroker, SecuredKafka, add_user
from tests.waiting import wait_for

pytestmark = pytest.mark.java
Secured = SecuredKafka | SecuredBroker
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
CLOSED = "closed"
SHA_256, SHA_512 = 1, 2
MECHANISMS = {SHA_256: "SCRAM-SHA-256", SHA_512: "SCRAM-SHA-512"}
GOOD = f"\0{USER}\0{PASSWORD}".encode()


@pytest.fixture(scope="module")
def sides(
    kafka_tools: Tools, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Secured]]:
    directory = tmp_path_factory.mktemp("authentication")
    started: list[Secured] = [
        SecuredKafka(directory / "kafka", kafka_tools, certificates),
        SecuredBroker(directory / "data", certificates),
    ]
    (directory / "kafka").mkdir()
    try:
        for side in started:
            side.start()
            add_user(side.bootstrap)
        yield started
    finally:
        for side in started:
            side.close()


class Stranger:
    """A connection to a SASL listener, whose answers are in a form that can be compared."""

    def __init__(self, side: Secured, listener: str) -> None:
        self._raw = Raw(int(side.address[listener].rpartition(":")[2]))
        self.said: list[Any] = []

    def ask(self, request: Any, version: int) -> Any:
        try:
            return self._raw.ask(request, version)
        except (AssertionError, OSError):
            return CLOSED

    def handshake(self, mechanism: str, version: int = 1) -> None:
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism), version)
        self.said.append(answer if answer == CLOSED else (answer.error_code, sorted(answer.mechanisms)))

    def authenticate(self, token: bytes, version: int = 2) -> bytes:
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), version)
        if answer == CLOSED:
            self.said.append(answer)
            return b""
        lifetime = answer.session_lifetime_ms > 0
        self.said.append((answer.error_code, answer.error_message, len(answer.auth_bytes) > 0, lifetime))
        return bytes(answer.auth_bytes)

    def versions(self) -> None:
        answer = self.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        self.said.append(answer if answer == CLOSED else answer.error_code)

    def metadata(self) -> None:
        answer = self.ask(MetadataRequest(topics=[]), 9)
        self.said.append(answer if answer == CLOSED else len(answer.brokers))

    def scram(self, mechanism: str, user: str = USER, password: str = PASSWORD) -> None:
        self.handshake(mechanism)
        conversation = Scram(mechanism, user, password)
        first = self.authenticate(conversation.first())
        if first:
            self.authenticate(conversation.final(first))

    def close(self) -> None:
        self._raw.close()


def plain(one: Stranger) -> None:
    one.versions()
    one.handshake("PLAIN")
    one.authenticate(GOOD)
    one.metadata()
    one.handshake("PLAIN")
    one.authenticate(GOOD)
    one.metadata()


def old_plain(one: Stranger) -> None:
    one.handshake("PLAIN")
    one.authenticate(GOOD, version=0)
    one.metadata()


def at_once(one: Stranger) -> None:
    one.metadata()


def without_handshake(one: Stranger) -> None:
    one.authenticate(GOOD)


def other_request_than_a_token(one: Stranger) -> None:
    one.handshake("PLAIN")
    one.metadata()


def handshake_twice(one: Stranger) -> None:
    one.handshake("PLAIN")
    one.handshake("PLAIN")


def unknown_mechanism(one: Stranger) -> None:
    one.handshake("GSSAPI")
    one.metadata()


def scram_256(one: Stranger) -> None:
    one.scram("SCRAM-SHA-256")
    one.metadata()


def scram_512(one: Stranger) -> None:
    one.scram("SCRAM-SHA-512")
    one.metadata()


def wrong_password(one: Stranger) -> None:
    one.scram("SCRAM-SHA-256", password="x")
    one.metadata()


def unknown_user(one: Stranger) -> None:
    one.scram("SCRAM-SHA-512", user="nobody")
    one.metadata()


def another_one_for_whom(one: Stranger) -> None:
    one.handshake("SCRAM-SHA-256")
    one.authenticate(f"n,a=nobody,n={USER},r=abc".encode())


def for_oneself(one: Stranger) -> None:
    one.handshake("SCRAM-SHA-256")
    one.authenticate(f"n,a={USER},n={USER},r=abc".encode())


def no_scram(one: Stranger) -> None:
    one.handshake("SCRAM-SHA-256")
    one.authenticate(b"hello")


def tokens(*parts: bytes) -> Callable[[Stranger], None]:
    def say(one: Stranger) -> None:
        one.handshake("PLAIN")
        one.authenticate(b"\0".join(parts))
        one.metadata()

    return say


CONVERSATIONS: dict[str, Callable[[Stranger], None]] = {
    one.__name__: one
    for one in (
        plain, old_plain, at_once, without_handshake, other_request_than_a_token, handshake_twice,
        unknown_mechanism, scram_256, scram_512, wrong_password, unknown_user, another_one_for_whom,
        for_oneself, no_scram,
    )
}  # fmt: skip
CONVERSATIONS |= {
    "PLAIN wrong password": tokens(b"", USER.encode(), b"x"),
    "PLAIN unknown user": tokens(b"", b"nobody", b"x"),
    "PLAIN no user": tokens(b"", b"", b"x"),
    "PLAIN no password": tokens(b"", USER.encode(), b""),
    "PLAIN for oneself": tokens(USER.encode(), USER.encode(), PASSWORD.encode()),
    "PLAIN for another one": tokens(b"nobody", USER.encode(), PASSWORD.encode()),
    "PLAIN two parts": tokens(USER.encode(), PASSWORD.encode()),
    "PLAIN four parts": tokens(b"", USER.encode(), PASSWORD.encode(), b""),
    "PLAIN nothing": tokens(b""),
}
# Where the answers differ, and why that is right.
_NOT_READ = "Kafka answers with an error before it closes; here requests of strangers are not read"
EXPLAINED = {"other_request_than_a_token": _NOT_READ, "handshake_twice": _NOT_READ}


def told(side: Secured, conversation: Callable[[Stranger], None], listener: str = "SASLPLAIN") -> list[Any]:
    one = Stranger(side, listener)
    conversation(one)
    one.close()
    return one.said


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversations_are_kafkas(sides: list[Secured], name: str) -> None:
    kafkas, own = (told(side, CONVERSATIONS[name]) for side in sides)
    assert (own == kafkas) == (name not in EXPLAINED), (kafkas, own)
    assert kafkas


def again_as(mechanism: str, user: str) -> Callable[[Stranger], None]:
    def say(one: Stranger) -> None:
        one.scram("SCRAM-SHA-256")
        one.metadata()
        one.scram(mechanism, user=user)
        one.metadata()

    return say


@pytest.mark.parametrize(
    ("mechanism", "user"), [("SCRAM-SHA-256", USER), ("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-512", USER)]
)
def test_to_say_it_again_is_kafkas(sides: list[Secured], mechanism: str, user: str) -> None:
    """Of a mechanism that is not offered Kafka says nothing here, and closes; kompakt says what is."""
    for side in sides:
        add_user(side.bootstrap, "bob")
    kafkas, own = (told(side, again_as(mechanism, user), "SHORT") for side in sides)
    if mechanism == "SCRAM-SHA-512":
        assert kafkas.pop(4) == CLOSED
        assert own.pop(4) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-256"])
    assert own == kafkas


# Passwords


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096, **more: Any) -> Upsertion:
    name = MECHANISMS.get(mechanism, "SCRAM-SHA-256")
    salted = salt_password(name, "p", b"salt", max(1, iterations))
    values = {"iterations": iterations, "salt": b"salt", "salted_password": salted, **more}
    return Upsertion(name=user, mechanism=mechanism, **values)


def deletion(user: str, mechanism: int = SHA_256) -> Deletion:
    return Deletion(name=user, mechanism=mechanism)


CHANGES: list[list[Deletion | Upsertion]] = [
    [upsertion("u1")],
    [upsertion("u1", SHA_512, 16384), upsertion("u2")],
    [upsertion("u3"), upsertion("u3", SHA_512)],
    [upsertion("u3"), upsertion("u3"), upsertion("u3")],
    [deletion("u1"), upsertion("u1")],
    [deletion("nobody")],
    [deletion("nobody"), upsertion("nobody")],
    [deletion("u2", SHA_512)],
    [deletion("u2"), deletion("u2")],
    [upsertion("")],
    [deletion("")],
    [upsertion("u4", 0), upsertion("u5", 3), deletion("u6", 9)],
    [upsertion("u4", iterations=4095), upsertion("u5", iterations=16385), upsertion("u6", iterations=-1)],
    [upsertion("u8", salt=b"")],
    [upsertion("ü, = ß")],
    [deletion("u1"), deletion("u2")],
    [],
]


def test_changes_of_passwords_are_kafkas(sides: list[Secured]) -> None:
    kafka, own = (Raw(int(side.bootstrap.rpartition(":")[2])) for side in sides)
    for changes in CHANGES:
        request = AlterUserScramCredentialsRequest(
            deletions=[one for one in changes if isinstance(one, Deletion)],
            upsertions=[one for one in changes if isinstance(one, Upsertion)],
        )
        assert altered(own, request) == altered(kafka, request)
        assert_described_alike(kafka, own, None)
    for users in (["u1"], ["u1", "u1", "u8"], ["nobody", "u8"], [""], []):
        assert_described_alike(kafka, own, users)
    empty = AlterUserScramCredentialsRequest(upsertions=[upsertion("u9", salted_password=b"")])
    codes = [altered(raw, empty)[0][1] for raw in (kafka, own)]
    # Kafka fails at it, here it is said.
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNACCEPTABLE_CREDENTIAL]
    kafka.close()
    own.close()


def altered(raw: Raw, request: AlterUserScramCredentialsRequest) -> list[tuple[str, int, str | None]]:
    rows = raw.ask(request, 0).results
    return sorted((row.user, row.error_code, row.error_message) for row in rows)


def assert_described_alike(kafka: Raw, own: Raw, users: list[str] | None) -> None:
    """Kafka tells of a change a moment after it has answered it."""
    found = described(own, users)
    wait_for(lambda: described(kafka, users) == found, f"Kafka to describe {users} as {found}")


def described(raw: Raw, users: list[str] | None) -> Any:
    asked = DescribeUserScramCredentialsRequest.UserName
    names = None if users is None else [asked(name=name) for name in users]
    answer = raw.ask(DescribeUserScramCredentialsRequest(users=names), 0)
    rows = [
        (
            row.user, row.error_code, row.error_message,
            sorted((one.mechanism, one.iterations) for one in row.credential_infos),
        )
        for row in answer.results
    ]  # fmt: skip
    return answer.error_code, answer.error_message, sorted(rows)


def test_where_no_sasl_is_spoken(sides: list[Secured], tmp_path: Path) -> None:
    found = []
    for side in sides:
        raw = Raw(int(side.bootstrap.rpartition(":")[2]))
        shaken = raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answered = raw.ask(SaslAuthenticateRequest(auth_bytes=GOOD), 1)
        found.append((shaken.error_code, shaken.mechanisms, answered.error_code, answered.error_message))
        raw.close()
    assert found[0] == found[1]
