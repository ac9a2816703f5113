"""A broker, an Apache Kafka and the JVMs of Connect for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.connect.worker import ConnectProcess, connect_tools
from tests.kafka.fixtures import kafka_tools, or_skip, start_kafka
from tests.process import BrokerProcess

__all__ = ["broker", "kafka_tools", "start", "start_kafka"]
Start = Callable[..., ConnectProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    tools = or_skip(connect_tools)
    started: list[ConnectProcess] = []

    def begin(program: str, settings: dict[str, str]) -> ConnectProcess:
        started.append(ConnectProcess(tools, program, tmp_path / f"connect-{len(started)}", settings))
        return started[-1]

    yield begin
    for process in started:
        process.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data").start()
    yield process
    log = process.log()
    process.close()
    assert "Traceback" not in log, log
