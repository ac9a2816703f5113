"""Goal: no `kafka.*` option is dropped in silence, and the tables of those that are honoured are true.

Method: option maps that note what the code looks up, compared with the tables; names that are almost right.
"""

from __future__ import annotations

import difflib
import logging
from typing import Any

import pytest

from spark_connector import kafka_names
from spark_connector.errors import ConnectorError
from spark_connector.kafka_names import DECISIVE, PREFIX, REFUSED_LIKENESS
from spark_connector.kafka_option_table import READ_ROWS
from spark_connector.options import parse_client_settings, parse_options
from spark_connector.security import REFUSED
from spark_connector.write_option_table import KAFKA_ROWS
from spark_connector.write_options import _write_options, parse_write_options

READS = {row.name for row in READ_ROWS}
WRITES = {row.name for row in KAFKA_ROWS}
BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
SECURED = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": 'o.PlainLoginModule required username="a" password="b";',
    "kafka.ssl.keystore.location": "/of/the/client.pem",
}

# Of consumers and producers of Kafka 4, and not honoured here.
KAFKAS_OWN = [
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "client.dns.lookup",
    "client.rack",
    "connections.max.idle.ms",
    "exclude.internal.topics",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.instance.id",
    "group.protocol",
    "heartbeat.interval.ms",
    "linger.ms",
    "max.block.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "metadata.max.idle.ms",
    "metric.reporters",
    "partition.assignment.strategy",
    "partitioner.ignore.keys",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retries",
    "send.buffer.bytes",
    "session.timeout.ms",
    "transaction.timeout.ms",
]


class Noting(dict[str, str]):
    """An option map that keeps the names it was asked for."""

    def __init__(self, values: dict[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, name: str, *default: Any) -> Any:
        self.asked.add(name)
        return super().get(name, *default)

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)

    @property
    def honoured(self) -> set[str]:
        return {name for name in self.asked if name.startswith(PREFIX)} - REFUSED.keys()


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is logged, as in a process that has not warned yet."""
    monkeypatch.setattr(kafka_names, "_warned", set())
    caplog.set_level(logging.WARNING)
    return caplog


def test_the_table_of_reads_is_what_reads_look_up() -> None:
    values = Noting({**BASE, **SECURED})
    parse_client_settings(values)
    assert values.honoured == READS


def test_the_table_of_writes_is_what_writes_look_up() -> None:
    """Their connections are parsed as those of reads are; what is for fetches alone has no effect."""
    asked = set()
    for codec in ("gzip", "lz4", "zstd"):
        values = Noting({**BASE, **SECURED, "kafka.compression.type": codec})
        _write_options(values)
        asked |= values.honoured
    assert asked - (READS - WRITES) == WRITES


@pytest.mark.parametrize("name", sorted(READS))
def test_what_is_honoured_is_not_warned_of(name: str, warnings: pytest.LogCaptureFixture) -> None:
    kafka_names.judge_kafka_names([name], READS, "read")
    assert not warnings.text


def test_a_view_has_the_options_of_an_insert_as_well(warnings: pytest.LogCaptureFixture) -> None:
    """One that is read was told that its topic, into which INSERT writes, is ignored."""
    written = {"topic": "copy", "partitioner": "crc32"}
    parse_options({**BASE, **written})
    assert not warnings.text
    with pytest.raises(ConnectorError, match="exactly one of assign, subscribe"):
        parse_options({**{name: value for name, value in BASE.items() if name != "subscribe"}, **written})
    assert "option topic means nothing to format kompakt" in warnings.text


@pytest.mark.parametrize("parse", [parse_options, parse_write_options])
def test_names_without_meaning_are_warned_of_once(parse: Any, warnings: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        parse({**BASE, **{PREFIX + name: "1" for name in KAFKAS_OWN}})
    said = [record.getMessage() for record in warnings.records]
    what = "read" if parse is parse_options else "write"
    for name in KAFKAS_OWN:
        assert f"option kafka.{name} means nothing to a {what} of format kompakt and is ignored" in said
    assert len(said) == len(KAFKAS_OWN)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("kafka.max.partition.fetch.byte", "kafka.max.partition.fetch.bytes"),
        ("kafka.sasl.mechanisms", "kafka.sasl.mechanism"),
        ("kafka.retry.backof.ms", "kafka.retry.backoff.ms"),
    ],
)
def test_near_misses_are_told(given: str, meant: str, warnings: pytest.LogCaptureFixture) -> None:
    parse_options({**BASE, given: "5"})
    assert f"option {given} means nothing to a read" in warnings.text
    assert f"did you mean {meant}?" in warnings.text


@pytest.mark.parametrize(
    ("parse", "given", "meant"),
    [
        (parse_options, "kafka.isolation.levl", "kafka.isolation.level"),
        (parse_options, "kafka.isolation-level", "kafka.isolation.level"),
        (parse_options, "kafka.Isolation.Levels", "kafka.isolation.level"),
        (parse_options, "kafka.security.protocl", "kafka.security.protocol"),
        (parse_write_options, "kafka.security.protocl", "kafka.security.protocol"),
        (parse_write_options, "kafka.ack", "kafka.acks"),
        (parse_write_options, "kafka.enable.idempotency", "kafka.enable.idempotence"),
    ],
)
def test_near_misses_of_what_decides_results_are_refused(parse: Any, given: str, meant: str) -> None:
    with pytest.raises(ConnectorError, match=f"unknown option {given.lower()}; did you mean {meant}"):
        parse({**BASE, given: "1"})


def test_no_name_of_kafka_is_taken_for_a_typing_mistake() -> None:
    """However much it is like a decisive one: jobs that ran with Spark's own source go on."""
    for name in [*KAFKAS_OWN, *(honoured.removeprefix(PREFIX) for honoured in READS | WRITES)]:
        bare = [decisive.removeprefix(PREFIX) for decisive in DECISIVE]
        close = difflib.get_close_matches(name, bare, n=1, cutoff=REFUSED_LIKENESS)
        assert not close or close == [name]
