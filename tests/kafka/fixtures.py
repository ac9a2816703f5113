"""pytest fixtures for Apache Kafka; a folder's conftest imports those that its tests use.

Without a JVM the tests that ask for them are skipped with the reason; KOMPAKT_REQUIRE_JAVA=1 makes that a
failure, which is what CI sets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.jars import NoKafkaError, old_libraries
from tests.kafka.tools import Tools

T = TypeVar("T")
REQUIRE_VARIABLE = "KOMPAKT_REQUIRE_JAVA"


def or_skip(make: Callable[[], T]) -> T:
    """What `make` returns; its NoKafkaError skips the test that asks, or fails it when CI requires Java."""
    try:
        return make()
    except NoKafkaError as problem:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but {problem}", pytrace=False)
        pytest.skip(str(problem))


def tools_or_skip(old_version: str = "") -> Tools:
    """The tools, or those of an old version."""
    return or_skip(lambda: Tools(old_libraries(old_version) if old_version else None))


@pytest.fixture(scope="session")
def kafka_tools() -> Tools:
    """Apache Kafka's command line tools."""
    return tools_or_skip()


@pytest.fixture(scope="session")
def kafka_broker(kafka_tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One Apache Kafka broker with default settings for the whole session."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), tools=kafka_tools)
    try:
        broker.start()
        if broker.archive is not None and broker.archive.is_made:
            broker.stop()  # at the end of the session would be too late for the others
            broker.start()
        yield broker
    finally:
        broker.close()


@pytest.fixture
def start_kafka(
    kafka_tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., KafkaBroker]]:
    """Start an Apache Kafka of the test's own: `start_kafka({"log.cleaner.backoff.ms": "100"})`."""
    started: list[KafkaBroker] = []

    def start(settings: dict[str, str] | None = None) -> KafkaBroker:
        broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), settings, tools=kafka_tools)
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.close()
