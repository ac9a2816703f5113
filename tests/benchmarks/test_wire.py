"""Goal: the load generator of the benchmark counts what a broker did, and notices when it did not.

Method: a real broker; what was sent is read back and counted.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from benchmarks import wire
from benchmarks.replay import replay
from benchmarks.sections.latency import fdatasync_us, p50_p99
from benchmarks.sections.throughput import client_batch, confluent_rates
from benchmarks.systems import KOMPAKT, System
from protocol.framing import encode_response
from protocol.messages.produce import ProduceResponse
from protocol.records import decode_all
from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    data = tmp_path_factory.mktemp("bench") / "data"
    broker = BrokerProcess(data, {"num.partitions": "1"})
    broker.start()
    yield System(broker, KOMPAKT, data)
    broker.close()


def end_of(system: System, topic: str) -> int:
    return wire.send_batches(system.port, topic, [wire.one_record_batch(1, 1)])


def test_a_produce_answer_gives_its_offset() -> None:
    assert len(wire.produce_frame("topic", wire.one_record_batch(100, 1), 1)) > 161
    topic = ProduceResponse.TopicProduceResponse
    partition = topic.PartitionProduceResponse(index=0, error_code=0, base_offset=1573)
    response = ProduceResponse(responses=[topic(name="topic", partition_responses=[partition])])
    frame = b"".join(encode_response(response, 9, 42))
    assert wire.base_offset_of(frame[4:]) == (42, 1573)


def test_every_form_of_load_appends_what_it_says(system: System) -> None:
    system.create_topic("load")
    times = wire.round_trips(system.port, "load", 1, 5, 20, 100)
    assert len(times) == 20
    assert min(times) > 0
    assert end_of(system, "load") == 25
    assert wire.pipelined(system.port, "load", 1, 100, 100, 10, 4) > 0
    assert end_of(system, "load") == 25 + 1 + 101
    assert wire.many_connections(system.port, "load", 1, 8, 50, 100) > 0
    assert end_of(system, "load") == 127 + 1 + 8 + 50


def test_round_trips_go_on_while_they_are_asked_to(system: System) -> None:
    system.create_topic("on")
    answers = iter([True] * 7 + [False])
    assert len(wire.round_trips(system.port, "on", -1, 2, 3, 10, lambda: next(answers))) == 3 + 7


def test_a_refused_produce_is_noticed(system: System) -> None:
    with pytest.raises(wire.RefusedError):
        wire.send_batches(system.port, "none-such", [wire.one_record_batch(1, 1)], indexes=(7,))
    assert not wire.takes_records(system.port, "none-such", 7)


def test_refusals_between_the_first_and_the_last_answer_are_noticed() -> None:
    """64 connections: the answers in between are only counted, so what they say is seen by the offsets."""
    topic = ProduceResponse.TopicProduceResponse
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with server.accept()[0] as connection:
            for number in range(12):
                frame = connection.recv(1 << 16)
                is_refused = number == 5
                partition = topic.PartitionProduceResponse(
                    index=0, error_code=-1 if is_refused else 0, base_offset=number - (number > 5)
                )
                response = ProduceResponse(responses=[topic(name="t", partition_responses=[partition])])
                told = encode_response(response, 9, int.from_bytes(frame[wire.CORRELATION], "big"))
                connection.sendall(b"".join(told))

    with server, ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        with pytest.raises(wire.RefusedError, match="10 of 11 records were appended"):
            wire.many_connections(server.getsockname()[1], "t", 1, 1, 11, 100)
        answered.result(10)


def test_a_client_that_was_refused_gives_no_figure(system: System) -> None:
    system.create_topic("tiny", settings={"max.message.bytes": "80"})
    with pytest.raises(RuntimeError, match="produced 0 of 10 records"):
        confluent_rates("tiny", {"bootstrap.servers": system.bootstrap}, 10)
    system.create_topic("large")
    assert min(confluent_rates("large", {"bootstrap.servers": system.bootstrap}, 10)) > 0


def test_bulk_goes_to_the_partitions_in_turn_and_is_read_back(system: System) -> None:
    system.create_topic("bulk", 3)
    batch, count = client_batch(100)
    assert len(list(decode_all(batch))) == count
    last = wire.send_batches(system.port, "bulk", [batch] * 6, indexes=range(3))
    assert last == count
    assert wire.serves(system.port, "bulk", 2)
    assert replay(system.port, "bulk", 2 * count) == 2 * len(batch)
    assert len(wire.fetch_times(system.port, "bulk", [0, count + 1], 1)) == 2


def test_what_the_process_took_is_seen_from_outside(system: System) -> None:
    assert system.memory_mib() > 20
    assert 0 < system.cpu_seconds() < 1000
    used = system.cpu_meter()
    system.create_topic("metered")
    assert 0 < used() < 1000


def test_a_thread_that_ended_leaves_what_it_took(tmp_path: Path) -> None:
    """One that loads kernels may end while a broker is watched idling: it gave no time back, -1.9 % of it."""
    program = """
import sys, threading, time

def spend(seconds):
    while time.thread_time() < seconds:
        pass

def work():
    spend(0.3)
    print("half", flush=True)
    sys.stdin.readline()
    spend(0.6)

thread = threading.Thread(target=work)
thread.start()
thread.join()
print("ended", flush=True)
sys.stdin.readline()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        broker = BrokerProcess(tmp_path / "data")
        broker.process = cast(subprocess.Popen[bytes], process)
        assert process.stdout.readline() == "half\n"
        used = System(broker, KOMPAKT, tmp_path).cpu_meter()
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ended\n"
        assert 0.25 < used() < 0.6
        process.stdin.write("end\n")


def test_percentiles() -> None:
    assert p50_p99([float(value) for value in range(1, 1000)]) == (500, 990)


def test_the_price_of_a_flush_is_that_of_the_disk_with_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--directory` may name another disk than that of temporary files, which costs nothing in memory."""
    seen: list[Path] = []
    monkeypatch.setattr(os, "fdatasync", lambda file: seen.append(Path(f"/proc/self/fd/{file}").readlink()))
    assert fdatasync_us(tmp_path) > 0
    assert {path.parent for path in seen} == {tmp_path}
