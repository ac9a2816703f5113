"""Delegation tokens (KIP-48), as a broker that has none answers: Apache Kafka without
`delegation.token.secret.key`.

Mirrors Kafka's `KafkaApis.allowTokenRequests` and `DelegationTokenControlManager`. Pure.
"""

from __future__ import annotations

from broker.context import RequestContext
from broker.security.principal import ANONYMOUS, USER
from config.listeners import PLAINTEXT
from protocol.errors import ErrorCode
from protocol.messages.delegation_tokens import CreateDelegationTokenRequest, CreateDelegationTokenResponse

_TLS_ALONE = "SSL"


def no_time(code: ErrorCode) -> int:
    """What stands for a time in a refusal: Kafka's controller says 0, its broker -1."""
    return 0 if code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED else -1


def who_may_not_ask(context: RequestContext) -> ErrorCode:
    """NONE, or why a client may not ask for tokens however they are set up: it has not said who it is."""
    protocol = context.listener.security.protocol
    if protocol == PLAINTEXT or (protocol == _TLS_ALONE and context.principal == ANONYMOUS):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.NONE


def owner(context: RequestContext, request: CreateDelegationTokenRequest) -> str:
    """Whose token is asked for: who asks, unless another is named."""
    if not request.owner_principal_name:
        return context.principal
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def not_created(
    context: RequestContext, request: CreateDelegationTokenRequest, code: ErrorCode
) -> CreateDelegationTokenResponse:
    kind, _, name = owner(context, request).partition(":")
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=USER.removesuffix(":"),
        token_requester_principal_name=context.principal.removeprefix(USER),
        issue_timestamp_ms=no_time(code),
        expiry_timestamp_ms=no_time(code),
        max_timestamp_ms=no_time(code),
    )
