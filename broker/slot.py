"""A place in a connection's queue of answers: requests run and answers leave in order, waits overlap."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol, cast

from broker.api import PRODUCE, Answer, Api, Later
from broker.context import RequestContext
from broker.quotas.usage import Timed
from broker.sending import Parts
from protocol.framing import encode_response
from protocol.messages.produce import ProduceRequest


class Answering(Protocol):
    """The connection, as its slots know it."""

    def complete(self, slot: Slot, response: Any) -> None:
        """The answer of a slot is there, or it has none."""

    def failed(self, api: Api, context: RequestContext, request: Any, error: BaseException) -> Any:
        """The response for a request whose handler raised; None when there can be none."""

    def settle(self, context: RequestContext, answer: Any) -> Any:
        """The answer, counted for the client's quotas."""


class Slot:
    """A place in the queue of answers; `parts` is None until the answer is ready. Owned by: event loop."""

    __slots__ = (
        "api",
        "connection",
        "context",
        "later",
        "missing",
        "parts",
        "request",
        "reserved_bytes",
        "started_ns",
        "task",
    )

    def __init__(
        self,
        connection: Answering,
        api: Api,
        context: RequestContext,
        request: Any,
        started_ns: int = 0,
    ) -> None:
        self.started_ns = started_ns
        self.connection = connection
        self.api = api
        self.context = context
        if api.key == PRODUCE and request is not None:
            _let_go_of_records(request)
        self.request = request
        """what a failure is told with"""
        self.parts: Parts | None = None
        self.reserved_bytes = 0
        self.later: Later | None = None
        self.missing = 0
        self.task: asyncio.Future[Any] | None = None

    def take(self, answer: Answer) -> None:
        """The answer, which may be encoded already, or one more thing that it waits for."""
        if answer is None or answer.__class__ is self.api.response or answer.__class__ is bytes:
            self.connection.complete(self, answer)
        elif answer.__class__ is Later:
            self._pause()
            self.later = answer
            waits = answer.waits
            self.missing = len(waits)
            for wait in waits:
                wait.add_done_callback(self._one_came)
        else:
            self._pause()
            waits_for = cast(Awaitable[Any], answer)
            usage = self.context.usage
            task = self.task = asyncio.ensure_future(waits_for if usage is None else Timed(waits_for, usage))
            task.add_done_callback(self._task_ended)

    def _pause(self) -> None:
        usage = self.context.usage
        if usage is not None:
            usage.pause()

    def _go_on(self) -> None:
        usage = self.context.usage
        if usage is not None:
            usage.go_on()

    def _one_came(self, _: asyncio.Future[None]) -> None:
        self.missing -= 1
        if self.missing or self.later is None:
            return
        later, self.later = self.later, None
        self._go_on()
        try:
            answer = later.finish()
        except Exception as error:
            answer = self.connection.failed(self.api, self.context, self.request, error)
        self.take(answer)

    def _task_ended(self, task: asyncio.Future[Any]) -> None:
        if task.cancelled():
            return  # the connection is gone
        self._go_on()
        error = task.exception()
        if error is None:
            self.take(task.result())
        else:
            self.take(self.connection.failed(self.api, self.context, self.request, error))

    def drop(self) -> None:
        """The connection is gone: nobody wants the answer. What was asked counts all the same."""
        if self.parts is None and self.context.usage is not None:
            self.connection.settle(self.context, None)
        later, self.later = self.later, None
        if later is not None and later.drop is not None:
            later.drop()
        if self.task is not None:
            self.task.cancel()


def _let_go_of_records(request: ProduceRequest) -> None:
    """They are in the log; until a slow disk has flushed them a client may send a thousand more requests."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None


def encoded(connection: Answering, api: Api, context: RequestContext, request: Any, response: Any) -> Parts:
    """The parts of `response`, which may be encoded already; of one that says so when it cannot be."""
    if response.__class__ is bytes:
        return [response]
    try:
        return encode_response(response, context.api_version, context.correlation_id)
    except Exception as error:
        response = connection.failed(api, context, request, error)
        if response is None:
            return []
        return encode_response(response, context.api_version, context.correlation_id)
