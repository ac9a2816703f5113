"""Goal: a task that takes its time for the records of an answer gets the next ones as any other does.

Method: a fake broker that closes the connection meanwhile, as brokers do to those that are idle
(`connections.max.idle.ms`), and a clock that goes on by an hour each time that rows are taken.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from spark_connector import client, ranges
from spark_connector.errors import ConnectorError
from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.shape import Shape
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, logs_of
from tests.spark.test_ranges import Start, batch

HOUR_S = 3600


class Clock:
    """What the retries of the client look at. Owned by: the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed_s = 0
        shown = SimpleNamespace(monotonic=lambda: time.monotonic() + self.passed_s, sleep=time.sleep)
        monkeypatch.setattr(client, "time", shown)


def read_slowly(broker: FakeBroker, clock: Clock, **options: str) -> list[int]:
    """The offsets, an hour after each other, with connections that do not live so long."""
    parsed = parse_options(options_for(broker, kafka__max__partition__fetch__bytes="1", **options))
    reader = BatchReader(parsed, Shape.of(parsed.columns))
    found = []
    for partition in reader.partitions():
        for made in reader.read(partition):
            found += made.column("offset").to_pylist()
            clock.passed_s += HOUR_S
            broker._server.close_connections()
    return found


def test_connections_that_are_closed_meanwhile(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for retries was over before the first one."""
    monkeypatch.setattr(ranges, "LEAST_ROWS", 1)
    broker = start_broker(logs_of([batch(offset) for offset in range(6)], [batch(0)]))
    assert read_slowly(broker, Clock(monkeypatch)) == [*range(6), 0]


def test_a_broker_that_is_gone_by_then_is_told(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time for retries, all of it, and not at once."""
    monkeypatch.setattr(ranges, "LEAST_ROWS", 1)
    broker = start_broker(logs_of([batch(0), batch(1), batch(2)]))
    fetch = broker._fetch

    def fetch_once(request: object) -> object:
        if broker.fetched:
            broker.closes = 10**9
        return fetch(request)  # type: ignore[arg-type]

    monkeypatch.setattr(broker, "_fetch", fetch_once)
    tried_before = broker.connections
    # That of the second fetch may have come before the connection was closed.
    with pytest.raises(ConnectorError, match=r"reading t-0 at offset [12] failed for 0.2 s .*did not answer"):
        read_slowly(broker, Clock(monkeypatch), kafka__default__api__timeout__ms="200")
    assert broker.connections > tried_before + 3
