"""CreateDelegationToken (key 38) v1-v3, RenewDelegationToken (39) v1-v2, ExpireDelegationToken (40) v1-v2,
DescribeDelegationToken (41) v1-v3: there are none.

Answered as by an Apache Kafka that was given no `delegation.token.secret.key`: tools that ask what a broker
serves take one that does not list these for Kafka 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from broker.security.delegation import no_time, not_created, who_may_not_ask
from broker.security.principal import USER
from protocol.errors import ErrorCode
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker


@handles(CreateDelegationTokenRequest)
def create_delegation_token(
    broker: Broker, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    code = _why_not(context)
    if not who_may_not_ask(context) and any(f"{one.principal_type}:" != USER for one in request.renewers):
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    return not_created(context, request, code)


@handles(RenewDelegationTokenRequest)
def renew_delegation_token(
    broker: Broker, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    code = _why_not(context)
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=no_time(code))


@handles(ExpireDelegationTokenRequest)
def expire_delegation_token(
    broker: Broker, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    code = _why_not(context)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=no_time(code))


@handles(DescribeDelegationTokenRequest)
def describe_delegation_token(
    broker: Broker, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=_why_not(context))


def _why_not(context: RequestContext) -> ErrorCode:
    return who_may_not_ask(context) or ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
