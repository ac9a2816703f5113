"""Goal: `fetchOffset.numRetries` and `fetchOffset.retryIntervalMs` do what they do in Spark's own source.

Method: a fake broker that refuses for good what no other try within a look-up would change, some times over.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offsets import ListOffsetsRequest
from spark_connector.client import connect
from spark_connector.errors import AuthenticationError, ConnectorError
from spark_connector.offsets import TopicPartition
from spark_connector.options import parse_options
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, logs_of
from tests.spark.test_ranges import Start, batch, read
from tests.waiting import noted_sleeps

T0 = TopicPartition("t", 0)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def refuse(broker: FakeBroker, kind: type[Any], count: int) -> deque[ErrorCode]:
    """Let the next `count` answers of one kind be an error; what is left of them."""
    left = deque([REFUSED] * count)
    plain = broker.answer

    def answer(request: Any) -> Any:
        answered = plain(request)
        if isinstance(request, kind) and left:
            code = left.popleft()
            for topic in answered.topics:
                if kind is MetadataRequest:
                    topic.error_code = code
                else:
                    topic.partitions[0].error_code = code
        return answered

    broker.answer = answer  # type: ignore[method-assign]
    return left


@pytest.mark.parametrize("kind", [MetadataRequest, ListOffsetsRequest])
@pytest.mark.parametrize(("tries", "failures"), [("", 1), ("1", 1), ("3", 2), ("3", 3)])
def test_as_many_tries_as_are_given(start_broker: Start, kind: type[Any], tries: str, failures: int) -> None:
    broker = start_broker(logs_of([batch(0, 3)]))
    left = refuse(broker, kind, failures)
    given = {"fetchOffset__numRetries": tries, "fetchOffset__retryIntervalMs": "0"} if tries else {}
    if failures < int(tries or 1):
        assert read(broker, maxRecordsPerPartition="9", **given) == [0, 1, 2]
    else:
        with pytest.raises(ConnectorError, match="TOPIC_AUTHORIZATION_FAILED"):
            read(broker, maxRecordsPerPartition="9", **given)
    assert not left


def test_the_pause_is_the_one_given(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = noted_sleeps(monkeypatch)
    for given, pause in (({"fetchOffset__retryIntervalMs": "2500"}, 2.5), ({}, 0.01)):
        broker = start_broker(logs_of([batch(0, 3)]))
        refuse(broker, ListOffsetsRequest, 2)
        slept.clear()
        assert read(broker, fetchOffset__numRetries="3", **given) == [0, 1, 2]
        assert slept == [pause, pause]


def test_a_refused_login_is_not_tried_again(start_broker: Start) -> None:
    """Accounts are locked by such things."""
    broker = start_broker(logs_of([batch(0, 3)]))
    cluster = connect(parse_options(options_for(broker, fetchOffset__numRetries="3")).client)
    calls = []

    def refused() -> None:
        calls.append(1)
        raise AuthenticationError("no")

    with pytest.raises(AuthenticationError):
        cluster._looking_up("looking up", refused)
    assert len(calls) == 1


def test_numbers_that_are_none() -> None:
    base = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    for name, value, message in (
        ("fetchOffset.numRetries", "0", "fetchOffset.numRetries must be positive"),
        ("fetchOffset.retryIntervalMs", "soon", "fetchOffset.retryIntervalMs must be a number"),
    ):
        with pytest.raises(ConnectorError, match=message):
            parse_options({**base, name: value})
