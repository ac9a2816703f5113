"""A broker, an Apache Kafka and the JVMs of Connect for the tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.connect.worker import ConnectProcess, connect_tools
from tests.kafka.fixtures import REQUIRE_VARIABLE, kafka_tools, start_kafka
from tests.kafka.jars import NoKafkaError
from tests.process import BrokerProcess

__all__ = ["broker", "kafka_tools", "start", "start_kafka"]
Start = Callable[..., ConnectProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    try:
        tools = connect_tools()
    except NoKafkaError as problem:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(str(problem), pytrace=False)
        pytest.skip(str(problem))
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
