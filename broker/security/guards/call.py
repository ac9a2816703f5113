"""A request on its way to its handler, as guards see it; the registry of guards, and what they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from broker.api import Answer, Api, Later, apis
from broker.context import RequestContext
from broker.failures import failure_response
from broker.security.acls import CLUSTER_NAME, Asker, Operation, Resource
from protocol.errors import ErrorCode
from protocol.schema import registry

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.security.authorizer import Authorizer

OPEN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
"""what everybody may ask"""
REFUSED = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's, where it says more than the code"""
ABSENT = -1
Row = TypeVar("Row")


@dataclasses.dataclass(slots=True)
class Call:
    """Owned by: event loop."""

    api: Api
    broker: Broker
    context: RequestContext
    request: Any
    authorizer: Authorizer
    asker: Asker

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.authorizer.allows(self.asker, operation, resource, name)

    def may_cluster(self, operation: Operation) -> bool:
        return self.authorizer.allows(self.asker, operation, Resource.CLUSTER, CLUSTER_NAME)

    def go_on(self, **changes: Any) -> Answer:
        """To the handler, with these fields of the request changed."""
        request = dataclasses.replace(self.request, **changes) if changes else self.request
        return self.api.handler(self.broker, self.context, request)

    def refusal(self, code: ErrorCode, **changes: Any) -> Any:
        """The response that has the code at every place for one, for a request with these fields changed."""
        request = dataclasses.replace(self.request, **changes) if changes else self.request
        return failure_response(self.api, request, self.context.api_version, code, MESSAGES[code])


Guard = Callable[[Call], Answer]
G = TypeVar("G", bound=Guard)
_guards: dict[int, Guard] = {}


def guards(request: type[Any]) -> Callable[[G], G]:
    """Register the decorated function as the guard of `request`."""

    def register(guard: G) -> G:
        spec = next(spec for spec in registry.values() if spec.request is request)
        assert spec.key not in _guards, f"{spec.name} has two guards"
        _guards[spec.key] = guard
        return guard

    return register


def guarded(authorizer: Authorizer) -> dict[int, Api]:
    """Every API, with its guard before its handler."""
    return {key: _with_guard(api, authorizer) for key, api in apis.items()}


def _with_guard(api: Api, authorizer: Authorizer) -> Api:
    if api.name in OPEN:
        return api
    guard = _guards[api.key]

    def handler(broker: Broker, context: RequestContext, request: Any) -> Answer:
        asker = Asker(context.principal, context.client_host)
        return guard(Call(api, broker, context, request, authorizer, asker))

    return api._replace(handler=handler)


def after(answer: Answer, finish: Callable[[Any], Any]) -> Answer:
    """The answer that `finish` makes of this one, whenever it comes."""
    if answer is None:
        return None
    if isinstance(answer, Later):
        later = answer
        return Later(later.waits, lambda: after(later.finish(), finish), later.drop)
    if isinstance(answer, Awaitable):
        return _after(answer, finish)
    return finish(answer)


async def _after(answer: Awaitable[Any], finish: Callable[[Any], Any]) -> Any:
    return after(await answer, finish)  # it may wait once more


def with_told(answer: Answer, field: str, told: Sequence[Any]) -> Answer:
    """The answer with these rows behind its own."""

    def add(answer: Any) -> Any:
        getattr(answer, field).extend(told)
        return answer

    return after(answer, add) if told else answer


def name_of(row: Any) -> str:
    """Of a topic."""
    name: str = row.name
    return name


def names_by_ids(call: Call, rows: Iterable[Any], ids_version: int) -> Callable[[Any], str | None]:
    """What a topic's row is called by, None where no topic has its id: from `ids_version` on it has nothing
    else, and gets its name here.
    """
    if call.context.api_version < ids_version:
        return name_of
    call.broker.topics.name_rows(rows)
    return lambda row: row.name or None


def split(rows: Sequence[Row], is_allowed: Callable[[Row], bool]) -> tuple[list[Row], list[Row]]:
    """Those that are allowed, and those that are not."""
    allowed: list[Row] = []
    refused: list[Row] = []
    for row in rows:
        (allowed if is_allowed(row) else refused).append(row)
    return allowed, refused


def by_row(
    call: Call,
    field: str,
    name: Callable[[Any], str | None],
    operation: Operation,
    resource: Resource,
    answered_in: str,
    absent: Sequence[str] = (),
) -> Answer:
    """A request with a row for each resource: the answer has one for each, in the field `answered_in`, where
    the fields `absent` of refused partitions are -1. What has no name (None) is nobody's to refuse.
    """

    def is_allowed(row: Any) -> bool:
        named = name(row)
        return named is None or call.may(operation, resource, named)

    allowed, refused = split(getattr(call.request, field), is_allowed)
    if not refused:
        return call.go_on()
    told = getattr(call.refusal(REFUSED[resource], **{field: refused}), answered_in)
    _leave_out(told, absent)
    return with_told(call.go_on(**{field: allowed}), answered_in, told)


def _leave_out(rows: Sequence[Any], names: Sequence[str]) -> None:
    """These fields of their partitions are -1."""
    for row in rows if names else ():
        for field in dataclasses.fields(row):
            partitions = getattr(row, field.name)
            for partition in partitions if isinstance(partitions, list) else ():
                for name in names:
                    setattr(partition, name, ABSENT)


def as_whole(operation: Operation, resource: Resource, field: str) -> Guard:
    """A guard of a request about one resource, whose name is in `field`."""

    def guard(call: Call) -> Answer:
        if call.may(operation, resource, getattr(call.request, field)):
            return call.go_on()
        return call.refusal(REFUSED[resource])

    return guard


def of_cluster(*operations: Operation) -> Guard:
    """A guard of a request that needs one of these for the cluster."""

    def guard(call: Call) -> Answer:
        if any(map(call.may_cluster, operations)):
            return call.go_on()
        return call.refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    return guard


def rows_by(
    operation: Operation,
    resource: Resource,
    field: str,
    name: str,
    answered_in: str,
    absent: Sequence[str] = (),
) -> Guard:
    """A guard that is `by_row`, where the name of a row is its field `name`; "" where the row is the name."""

    def guard(call: Call) -> Answer:
        of_row = (lambda row: getattr(row, name)) if name else str
        return by_row(call, field, of_row, operation, resource, answered_in, absent)

    return guard
