"""Fixtures of the client tests: one broker process for all, a client by name, a topic name that nobody
uses.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import confluent_kafka.admin
import pytest

from tests.clients.adaptors import CLIENTS, Client
from tests.process import BrokerProcess
from tests.waiting import wait_for

# The cleaner looks often, and starts at once, so that a test waits for a cleaning and not for the clock.
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
}
# Every batch whose timestamp is a second after the first of its segment starts a new segment.
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
MINUTE_MS = 60_000


def started(process: BrokerProcess) -> BrokerProcess:
    process.start()
    process.wait_until_ready()
    return process


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = started(BrokerProcess(tmp_path_factory.mktemp("clients") / "data", SETTINGS))
    yield process
    status = process.stop()
    log = process.log()
    process.close()
    assert status == 0, log
    assert "Traceback" not in log, log


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., BrokerProcess]]:
    """Start a broker of the test's own, that it may stop and kill: `own_broker(**settings)`."""
    made: list[BrokerProcess] = []

    def start(**settings: str) -> BrokerProcess:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(BrokerProcess(tmp_path_factory.mktemp("own") / "data", {**SETTINGS, **given}))
        return started(made[-1])

    yield start
    for process in made:
        log = process.log()
        process.close()
        assert "Traceback" not in log, log


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Client:
    return CLIENTS[request.param](broker.bootstrap)


@pytest.fixture
def confluent(broker: BrokerProcess) -> Client:
    return CLIENTS["confluent-kafka"](broker.bootstrap)


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


def wait_until_compacted(broker: BrokerProcess, topic: str, partition: int, first_dirty_offset: int) -> None:
    """Until the cleaner's checkpoint of the partition has reached `first_dirty_offset`."""
    checkpoint = broker.data / "cleaner-offset-checkpoint"

    def reached() -> bool:
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        places = {(name, int(number)): int(offset) for name, number, offset in map(str.split, lines)}
        return places.get((topic, partition), -1) >= first_dirty_offset

    wait_for(reached, f"the cleaning of {topic}-{partition} up to {first_dirty_offset}")


def alter(broker: BrokerProcess, topic: str, settings: dict[str, str]) -> None:
    """Set topic configs through IncrementalAlterConfigs."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = [
        confluent_kafka.admin.ConfigEntry(
            name, value, incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
        )
        for name, value in settings.items()
    ]
    resource = confluent_kafka.admin.ConfigResource("topic", topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
