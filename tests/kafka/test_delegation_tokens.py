"""Goal: who asks for delegation tokens, which kompakt has not, is told what an Apache Kafka says that was
given no secret key for them; tools that guess a broker's version from its APIs find these.

Method: the same requests to both brokers, in every version, by one who has said who it is and by one who
cannot; their answers are compared field by field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from protocol.messages.metadata import ApiVersionsRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.certificates import Certificates
from tests.kafka.raw import Raw
from tests.kafka.tools import Tools
from tests.secured import PASSWORD, USER, SecuredBroker, SecuredKafka

pytestmark = pytest.mark.java
Secured = SecuredKafka | SecuredBroker
Renewer = CreateDelegationTokenRequest.CreatableRenewers
Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
KEYS = range(38, 42)


@pytest.fixture(scope="module")
def sides(
    kafka_tools: Tools, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Secured]]:
    directory = tmp_path_factory.mktemp("delegation")
    started: list[Secured] = [
        SecuredKafka(directory / "kafka", kafka_tools, certificates),
        SecuredBroker(directory / "data", certificates),
    ]
    (directory / "kafka").mkdir()
    try:
        for side in started:
            side.start()
        yield started
    finally:
        for side in started:
            side.close()


def with_a_password(side: Secured) -> Raw:
    client = Raw(int(side.address["SASLPLAIN"].rpartition(":")[2]))
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    token = f"\0{USER}\0{PASSWORD}".encode()
    assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 1).error_code == 0
    return client


def questions() -> Iterator[tuple[Any, int]]:
    for version in (1, 2, 3):
        yield creation(), version
        yield creation(Renewer(principal_type="User", principal_name="carol")), version
        yield creation(Renewer(principal_type="Group", principal_name="staff")), version
        yield DescribeDelegationTokenRequest(owners=None), version
        owners = [Owner(principal_type="User", principal_name=USER)]
        yield DescribeDelegationTokenRequest(owners=owners), version
    yield creation(owner=("User", "bob")), 3
    yield creation(owner=("Group", "staff")), 3
    for version in (1, 2):
        yield RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1000), version
        yield ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), version


def creation(*renewers: Any, owner: tuple[str | None, str | None] = (None, None)) -> Any:
    kind, name = owner
    return CreateDelegationTokenRequest(
        owner_principal_type=kind, owner_principal_name=name, renewers=[*renewers], max_lifetime_ms=-1
    )


def codes_of_both(clients: list[Raw]) -> set[int]:
    """The errors told, which are the same in answers that are the same."""
    kafka, kompakt = clients
    found = set()
    for request, version in questions():
        answer = kompakt.ask(request, version)
        assert answer == kafka.ask(request, version), (request, version)
        found.add(answer.error_code)
    for client in clients:
        client.close()
    return found


def test_a_user_is_told_that_there_are_none(sides: list[Secured]) -> None:
    assert codes_of_both([with_a_password(side) for side in sides]) == {
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        ErrorCode.INVALID_PRINCIPAL_TYPE,
    }


def test_one_who_cannot_say_who_it_is_may_not_ask(sides: list[Secured]) -> None:
    clients = [Raw(side.port) for side in sides]
    assert codes_of_both(clients) == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}


def test_the_versions_are_those_of_kafka(sides: list[Secured]) -> None:
    served = []
    for side in sides:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        client = Raw(side.port)
        keys = client.ask(request, 3).api_keys
        client.close()
        served.append({key.api_key: (key.min_version, key.max_version) for key in keys})
    kafka, kompakt = served
    assert [kompakt.get(key) for key in KEYS] == [kafka[key] for key in KEYS]
