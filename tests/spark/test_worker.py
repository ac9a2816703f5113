"""Goal: a small task is short: no more is fetched than it needs, no module is looked at again after each, and
Spark need not wait before it says what to read.

Method: a fake broker that notes what it is asked for; the collector of garbage watched, not run; a pair of
sockets whose sender is asked what it still waits for.
"""

from __future__ import annotations

import gc
import pickle
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from protocol.records import encode_batch
from spark_connector import worker
from spark_connector.fetching import GUESSED_RECORD_BYTES, LEAST_FETCH_BYTES
from spark_connector.offsets import OffsetRange, TopicPartition
from spark_connector.options import parse_options
from spark_connector.reader import BatchReader
from spark_connector.shape import Shape
from spark_connector.stream import StreamReader
from spark_connector.tasks import Task, read_task
from tests.spark.conftest import options_for
from tests.spark.fake_broker import FakeBroker, FakeLog, logs_of

Start = Callable[[dict[TopicPartition, FakeLog]], FakeBroker]
COUNT = 300
VALUE_BYTES = 1000
UNACKED_PLACE = 24  # of `tcpi_unacked` within Linux's struct tcp_info
ANSWERS_FIRST = 50  # a new connection acknowledges all at once, whoever has answered waits
TRIES = 100


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


# Spark sends what to read behind the reader, when the reader has been acknowledged


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Who sends small pieces, and who has answered some; both on this machine's loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    with sender, receiver:
        for _ in range(ANSWERS_FIRST):
            sender.sendall(b"task")
            assert receiver.recv(16)
            receiver.sendall(b"done")
            assert sender.recv(16)
        yield sender, receiver


def unacknowledged(sender: socket.socket) -> int:
    info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("=I", info, UNACKED_PLACE)[0])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can be told to acknowledge")
def test_what_has_come_is_acknowledged_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = pair
    for _ in range(TRIES):
        sender.sendall(b"task")
        assert receiver.recv(16) == b"task"
        if unacknowledged(sender):  # not if this process was held up for the 40 ms that it takes by itself
            break
    else:
        pytest.fail("every piece was acknowledged at once anyway: this test shows nothing")
    worker.acknowledge_at_once()
    assert unacknowledged(sender) == 0
    sender.sendall(b"still open")
    assert receiver.recv(16) == b"still open"


@pytest.fixture
def acknowledged(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One element for each time that all was acknowledged."""
    times: list[bool] = []
    monkeypatch.setattr(worker, "acknowledge_at_once", lambda: times.append(True))
    return times


@pytest.mark.parametrize("reader", [BatchReader, StreamReader])
def test_a_reader_that_arrives_in_a_worker_is_acknowledged(
    reader: type[Any], broker: FakeBroker, acknowledged: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(worker.DAEMON, None))
    options = parse_options(options_for(broker))
    arrived = pickle.loads(pickle.dumps(reader(options, ["offset"])))
    assert acknowledged == [True]
    assert arrived._options == options


def test_a_reader_that_arrives_elsewhere_touches_no_socket(
    broker: FakeBroker, acknowledged: list[bool]
) -> None:
    reader = BatchReader(parse_options(options_for(broker)), Shape.of(["offset"]))
    assert pickle.loads(pickle.dumps(reader))._options == reader._options
    assert acknowledged == []
