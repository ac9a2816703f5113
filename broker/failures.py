"""Responses that say only that something failed, for a request whose handler raised.

Made from the declarations: the response's error fields get the code, its lists mirror the request's, names
and indices are copied, so that a client finds each topic or partition it asked about. Mirrors the
`getErrorResponse` of Kafka's requests.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from broker.api import Api, apis
from broker.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import ApiVersionsResponse
from protocol.schema import NO_VERSIONS, Field, schema_of

logger = logging.getLogger(__name__)

ERROR_CODES = ("error_code", "partition_error_code")
SYNONYMS = (
    ("partition_index", "partition", "index"),
    ("name", "topic", "topic_name"),
    ("group_id", "group"),
    ("resource_name",),
    ("resource_type",),
)
NOT_MIRRORED = ("num_partitions", "replication_factor")
"""a topic that was not made has none, whatever was asked for"""


def response_to(error: BaseException, api: Api, context: RequestContext, request: Any) -> Any:
    """The response that tells of `error`, which is logged if it is not the protocol's; None when there is no
    place for it.
    """
    if isinstance(error, KafkaError):
        return failure_response(api, request, context.api_version, error.code, error.message)
    peer = context.connection.peer if context.connection is not None else ""
    logger.error(
        "%s v%d of %s (client %.100s) failed", api.name, context.api_version, peer, context.client_id,
        exc_info=error,
    )  # fmt: skip
    return failure_response(api, request, context.api_version, ErrorCode.UNKNOWN_SERVER_ERROR, "")


def failure_response(api: Api, request: Any, version: int, code: ErrorCode, message: str) -> Any:
    """The response of `api` with `code` at every place that this version has for one; None when it has none:
    an empty answer would say that all went well, and that there is nothing.
    """
    response = api.response()
    failure = _Failure(version, code, message)
    return response if failure.fill(response, request) else None


class _Failure(NamedTuple):
    version: int
    code: ErrorCode
    message: str

    def fill(self, answer: Any, asked: Any) -> bool:
        """Put it into `answer` and all that is nested in it; whether there was a place for it."""
        is_told = False
        fields = self._fields_of(type(answer))
        for declared in fields:
            name = declared.name
            if name in ERROR_CODES:
                setattr(answer, name, self.code)
                is_told = True
            elif name == "error_message":
                answer.error_message = self.message or None
            elif declared.kind == "records":
                setattr(answer, name, b"")  # a null would be a protocol error to librdkafka
            elif declared.struct is not None and declared.tag is None and declared.nullable == NO_VERSIONS:
                setattr(answer, name, declared.struct())  # it has to be there
            elif declared.kind != "array" and name not in NOT_MIRRORED:
                value = _value_of(asked, name)
                if value is not None and type(value) is type(getattr(answer, name)):
                    setattr(answer, name, value)
        return self._fill_list(answer, asked, fields) or is_told

    def _fill_list(self, answer: Any, asked: Any, fields: Sequence[Field]) -> bool:
        """The first list that has a place for it mirrors what was asked for."""
        items = self._first_list(asked)
        for declared in fields:
            if _is_list_of_structs(declared) and declared.tag is None:
                mirrored = [self._mirror(declared.element, item) for item in items]
                told = [item for item, has_place in mirrored if has_place]
                if told:
                    setattr(answer, declared.name, told)
                    return True
        return False

    def _mirror(self, element: Field | None, asked: Any) -> tuple[Any, bool]:
        assert element is not None
        assert element.struct is not None
        item = element.struct()
        if isinstance(asked, str | int):
            for declared in schema_of(element.struct).fields:
                if declared.name not in ERROR_CODES and type(getattr(item, declared.name)) is type(asked):
                    setattr(item, declared.name, asked)
                    break
        return item, self.fill(item, asked)

    def _first_list(self, asked: Any) -> Sequence[Any]:
        if hasattr(type(asked), "__schema__"):
            for declared in self._fields_of(type(asked)):
                value = getattr(asked, declared.name)
                if declared.kind == "array" and value:
                    return value  # type: ignore[no-any-return]
        return ()

    def _fields_of(self, cls: type[Any]) -> list[Field]:
        return [declared for declared in schema_of(cls).fields if declared.versions.has(self.version)]


def _value_of(asked: Any, name: str) -> Any:
    for synonym in next((names for names in SYNONYMS if name in names), (name,)):
        if hasattr(asked, synonym):
            return getattr(asked, synonym)
    return None


def _is_list_of_structs(declared: Field) -> bool:
    return declared.kind == "array" and declared.element is not None and declared.element.struct is not None


def served_versions() -> list[ApiVersionsResponse.ApiVersion]:
    """What ApiVersions lists: the handlers that exist."""
    return [
        ApiVersionsResponse.ApiVersion(
            api_key=api.key, min_version=api.advertised_min_version, max_version=api.max_version
        )
        for api in sorted(apis.values())
    ]


def unsupported_api_versions() -> ApiVersionsResponse:
    """The answer, in version 0, to an ApiVersions request of a version we do not know (G1)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served_versions())
