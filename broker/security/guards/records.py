"""Guards of Produce and Fetch: to write into topics, and to read from them."""

from __future__ import annotations

from typing import Any

from broker.api import Answer
from broker.handlers.transactional import is_transactional
from broker.produce_template import TOPIC_ID_VERSION
from broker.security.acls import Operation, Resource
from broker.security.guards.call import Call, by_row, guards, names_by_ids, split
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import ProduceRequest


@guards(ProduceRequest)
def produce(call: Call) -> Answer:
    """With acks=0 nobody is told, so that the connection ends, as with any other error."""
    request = call.request
    transactional_id = request.transactional_id
    if (
        transactional_id is not None
        and not call.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
        and any(_is_transactional(data) for topic in request.topic_data for data in topic.partition_data)
    ):
        return _told(call, call.refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    name = names_by_ids(call, request.topic_data, TOPIC_ID_VERSION)
    if request.acks == 0:
        allowed, denied = split(request.topic_data, lambda row: _may_write(call, name(row)))
        if denied:
            call.go_on(topic_data=allowed)
            return _told(call, None)
    return by_row(call, "topic_data", name, Operation.WRITE, Resource.TOPIC, "responses", ("base_offset",))


def _is_transactional(data: Any) -> bool:
    return data.records is not None and is_transactional(data.records)


def _may_write(call: Call, topic: str | None) -> bool:
    return topic is None or call.may(Operation.WRITE, Resource.TOPIC, topic)


def _told(call: Call, answer: Any) -> Any:
    if call.request.acks or call.context.connection is None:
        return answer
    call.context.connection.end("acks=0: the client may not write there")
    return None


@guards(FetchRequest)
def fetch(call: Call) -> Answer:
    """The topics are known to its session only: the handler asks for each (`handlers/fetch.py`)."""
    return call.go_on()
