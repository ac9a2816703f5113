"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken: tokens that a
client gets for others (KIP-48).

v1: throttled after the answer. v2: flexible. v3: who asks for a token may be another than its owner
(KIP-373).
"""

from __future__ import annotations

from protocol.schema import array, binary, int16, int32, int64, request, response, string, struct


@request(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    """A token for the owner, or for who asks."""

    @struct
    class CreatableRenewers:
        principal_type: str = string()
        principal_name: str = string()

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


@response(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token, and until when it holds."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    throttle_time_ms: int = int32()


@request(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    """Have a token hold for longer."""

    hmac: bytes = binary()
    renew_period_ms: int = int64()


@response(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """Until when."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


@request(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """Have a token end earlier."""

    hmac: bytes = binary()
    expiry_time_period_ms: int = int64()


@response(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """When."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


@request(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """The tokens of these owners; null is all."""

    @struct
    class DescribeDelegationTokenOwner:
        principal_type: str = string()
        principal_name: str = string()

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


@response(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """Those that the client may see."""

    @struct
    class DescribedDelegationToken:
        @struct
        class DescribedDelegationTokenRenewer:
            principal_type: str = string()
            principal_name: str = string()

        principal_type: str = string()
        principal_name: str = string()
        token_requester_principal_type: str = string("3+")
        token_requester_principal_name: str = string("3+")
        issue_timestamp: int = int64()
        expiry_timestamp: int = int64()
        max_timestamp: int = int64()
        token_id: str = string()
        hmac: bytes = binary()
        renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
