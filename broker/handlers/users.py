"""DescribeClientQuotas (key 48) v0-v1, DescribeUserScramCredentials (50) v0: there are no quotas and no users
here, as in an Apache Kafka where none were set. `kafka-configs`, consoles and clients' admins ask for both
and take the lack of the calls for a very old broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.users import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker

Component = DescribeClientQuotasRequest.ComponentData
Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
ENTITY_TYPES = ("user", "client-id", "ip")
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""how a component of a filter matches"""


@handles(DescribeClientQuotasRequest)
def describe_client_quotas(
    broker: Broker, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(error_message=None)


def _check(components: Sequence[Component]) -> None:
    """KafkaError of a filter that Apache Kafka would not take."""
    seen = set[str]()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the type of an entity is empty")
        if kind in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the filter names the entity type {kind} twice")
        if kind not in ENTITY_TYPES:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{kind} is no entity type: {', '.join(ENTITY_TYPES)} are"
            )
        seen.add(kind)
        has_name, how = component.match is not None, component.match_type
        if how not in (EXACT, DEFAULT, SPECIFIED) or has_name != (how == EXACT):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{kind}: match type {how} {'with' if has_name else 'without'} a name; there are "
                f"{EXACT} (the one of this name), {DEFAULT} (the default), {SPECIFIED} (any)",
            )


@handles(DescribeUserScramCredentialsRequest)
def describe_user_scram_credentials(
    broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    times = Counter(user.name for user in request.users or ())
    results = [_unknown(name, count) for name, count in times.items()]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _unknown(name: str, count: int) -> Described:
    """A user who was asked for, in Kafka's words."""
    code, words = ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist: "
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        words = "Cannot describe SCRAM credentials for the same user twice in a single request: "
    return Described(user=name, error_code=code, error_message=words + name)
