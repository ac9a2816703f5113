"""DescribeUserScramCredentials (key 50) v0, AlterUserScramCredentials (51) v0.

Users' passwords, as Kafka keeps them: changes are durable in `__kompakt_metadata` when they are answered,
and hold for who comes then.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from protocol.scram import LEAST_ITERATIONS, NUMBERS, Credential, credential

if TYPE_CHECKING:
    from broker.broker import Broker

Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
MOST_ITERATIONS = 16_384


@handles(DescribeUserScramCredentialsRequest)
def describe_user_scram_credentials(
    broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    times = Counter(user.name for user in request.users or ())
    if not times:
        times = Counter(broker.users.names())
    results = [_described(broker, name, count) for name, count in times.items()]
    return DescribeUserScramCredentialsResponse(results=results)


def _described(broker: Broker, name: str, count: int) -> Described:
    """A user who was asked for, in Kafka's words."""
    credentials = broker.users.credentials_of(name)
    code, words = ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist: "
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        words = "Cannot describe SCRAM credentials for the same user twice in a single request: "
    elif credentials:
        infos = [
            Described.CredentialInfo(mechanism=NUMBERS[mechanism], iterations=one.iterations)
            for mechanism, one in sorted(credentials.items())
        ]
        return Described(user=name, credential_infos=infos)
    return Described(user=name, error_code=code, error_message=words + name)


@handles(AlterUserScramCredentialsRequest)
async def alter_user_scram_credentials(
    broker: Broker, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    wanted: dict[str, tuple[str, Credential | None]] = {}
    refused: dict[str, KafkaError] = {}
    changes: list[Deletion | Upsertion] = [*request.deletions, *request.upsertions]
    for change in changes:
        name = change.name
        if name in refused:
            continue
        try:
            if wanted.pop(name, None) is not None:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            wanted[name] = _wanted(broker, change)
        except KafkaError as error:
            refused[name] = error
    try:
        for name, (mechanism, found) in wanted.items():
            broker.users.set(mechanism, name, found)
        await broker.metadata.flushed()
    except KafkaError as error:  # clients look for each user in the answer
        refused |= dict.fromkeys(wanted, error)
    return AlterUserScramCredentialsResponse(
        results=[Altered(user=name, error_message=None) for name in wanted if name not in refused]
        + [
            Altered(user=name, error_code=error.code, error_message=error.message)
            for name, error in refused.items()
        ]
    )


def _wanted(broker: Broker, change: Deletion | Upsertion) -> tuple[str, Credential | None]:
    """The mechanism, and the credential that the user shall have for it."""
    mechanism = _mechanism(change)
    if isinstance(change, Upsertion):
        return mechanism, _credential(mechanism, change)
    if broker.users.credential(mechanism, change.name) is None:
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return mechanism, None


def _mechanism(change: Deletion | Upsertion) -> str:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    for mechanism, number in NUMBERS.items():
        if number == change.mechanism:
            return mechanism
    raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _credential(mechanism: str, wanted: Upsertion) -> Credential:
    if wanted.iterations < LEAST_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.iterations > MOST_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not wanted.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
    return credential(mechanism, bytes(wanted.salted_password), bytes(wanted.salt), wanted.iterations)
