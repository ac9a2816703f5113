"""Goal: a small task is short: no more is fetched than it needs, no module is looked at again after each.

Method: a fake broker that notes what it is asked for; the collector of garbage watched, not run.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from protocol.records import encode_batch
from spark_connector import worker
from spark_connector.fetching import GUESSED_RECORD_BYTES, LEAST_FETCH_BYTES
from spark_connector.offsets import OffsetRange, TopicPartition
from spark_connector.options import parse_options
from spark_connector.shape import Shape
from spark_connector.tasks import Task, read_task
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]
COUNT = 300
VALUE_BYTES = 1000


def values_of(broker: FakeBroker, start: int, end: int, **options: str) -> list[Any]:
    task = Task((OffsetRange(TopicPartition("t", 0), start, end),))
    made = read_task(parse_options(options_for(broker, **options)), Shape.of(["offset"]), task)
    return [offset for batch in made for offset in batch.column("offset").to_pylist()]


@pytest.fixture
def broker(start_broker: Start) -> FakeBroker:
    batches = [
        encode_batch([(1000, None, bytes(VALUE_BYTES), ())], base_offset=offset) for offset in range(COUNT)
    ]
    return start_broker(logs_of(batches))


def test_a_few_offsets_within_a_long_log_are_asked_for_in_a_small_fetch(broker: FakeBroker) -> None:
    assert values_of(broker, 10, 20) == list(range(10, 20))
    assert broker.fetched_bytes == [LEAST_FETCH_BYTES]


def test_a_long_range_is_asked_for_in_full_from_the_second_fetch_on(broker: FakeBroker) -> None:
    assert values_of(broker, 0, COUNT) == list(range(COUNT))
    full = parse_options(options_for(broker)).client.fetch_bytes
    assert broker.fetched_bytes[0] == COUNT * GUESSED_RECORD_BYTES
    assert set(broker.fetched_bytes[1:]) <= {full}


def test_what_the_user_allows_is_never_exceeded(broker: FakeBroker) -> None:
    allowed = {"kafka__max__partition__fetch__bytes": "5000"}
    assert values_of(broker, 0, 50, **allowed) == list(range(50))
    assert set(broker.fetched_bytes) == {5000}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the collector was told."""
    told: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: told.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: told.append("freeze"))
    monkeypatch.setattr(worker, "_settled", False)
    return told


def test_a_worker_takes_its_modules_out_of_the_collectors_sight_once(
    broker: FakeBroker, collector: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(worker.DAEMON, None))
    for _ in range(3):
        values_of(broker, 0, 1)
    assert collector == ["collect", "freeze"]


def test_other_processes_are_left_alone(broker: FakeBroker, collector: list[str]) -> None:
    values_of(broker, 0, 1)
    assert collector == []
