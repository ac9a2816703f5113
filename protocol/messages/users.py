"""DescribeUserScramCredentials, AlterUserScramCredentials: the passwords of users."""

from __future__ import annotations

from protocol.schema import (
    array,
    binary,
    int8,
    int16,
    int32,
    request,
    response,
    string,
    struct,
)


@request(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """Ask for the credentials of users; null or none means all."""

    @struct
    class UserName:
        name: str = string()

    users: list[UserName] | None = array(UserName, nullable="0+")


@response(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of each user, never a password."""

    @struct
    class DescribeUserScramCredentialsResult:
        @struct
        class CredentialInfo:
            mechanism: int = int8()
            iterations: int = int32()

        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        credential_infos: list[CredentialInfo] = array(CredentialInfo)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


@request(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """Remove and set credentials; the password comes salted."""

    @struct
    class ScramCredentialDeletion:
        name: str = string()
        mechanism: int = int8()

    @struct
    class ScramCredentialUpsertion:
        name: str = string()
        mechanism: int = int8()
        iterations: int = int32()
        salt: bytes = binary()
        salted_password: bytes = binary()

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@response(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """What became of each user."""

    @struct
    class AlterUserScramCredentialsResult:
        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
