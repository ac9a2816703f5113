"""The registry of handlers: which function answers which request. ApiVersions is derived from it.

A handler is a function `(broker, context, request)` declared with `@handles(RequestClass)`. It returns
- the response;
- `Later`, or any awaitable of the response, when it has to wait (flush, min bytes, rebalance): the plain
  part has run in the client's order, waits overlap, answers leave in request order;
- None for no answer on the wire (Produce with acks=0).
Mirrors Kafka's `KafkaApis` and `ApiVersionsResponse`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import protocol.messages.every  # noqa: F401  # fills the registry
from protocol.schema import registry

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)


class Api(NamedTuple):
    """One served API: its `ApiSpec` and who answers it."""

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    min_version: int
    max_version: int
    advertised_min_version: int
    """below `min_version` where clients must believe that old versions work (G2)"""
    handler: Handler


class Later:
    """An answer that waits for futures; `finish` then makes the response, on the event loop.

    Cheaper than a task: a produce with acks=all is one of these. `finish` looks at the futures' errors
    itself. `drop`, if any, is called instead when the client is gone. Owned by: event loop.
    """

    __slots__ = ("drop", "finish", "waits")

    def __init__(
        self,
        waits: Sequence[asyncio.Future[Any]],
        finish: Callable[[], Any],
        drop: Callable[[], object] | None = None,
    ) -> None:
        self.waits = waits
        self.finish = finish
        self.drop = drop


Answer = Any | Later | Awaitable[Any] | None

apis: dict[int, Api] = {}


def handles(request: type[Any]) -> Callable[[H], H]:
    """Register the decorated function as the handler of `request`."""

    def register(handler: H) -> H:
        spec = next(spec for spec in registry.values() if spec.request is request)
        assert spec.key not in apis, f"{spec.name} has two handlers"
        apis[spec.key] = Api(*spec, handler)
        return handler

    return register


def api_name(key: int) -> str:
    """The API's name for log lines, or its number when it is unknown."""
    spec = registry.get(key)
    return spec.name if spec is not None else f"API {key}"
