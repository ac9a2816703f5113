"""Goal: clients written in Go and JavaScript take kompakt for Kafka, on a compacted topic before and after a
cleaning.

Method: `go/` drives franz-go, sarama and kafka-go, `node/` kafkajs, unmodified and with their defaults; what
they tell is compared with what confluent-kafka reads.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.adaptors import Client
from tests.clients.test_transactions import committed_values
from tests.process import BrokerProcess

pytestmark = pytest.mark.slow
HERE = Path(__file__).resolve().parent
PARTITIONS = 2
PER_WAY = 40
"""records for each codec, or other way to produce"""
UNREACHABLE = ("dial tcp", "EAI_AGAIN", "ENOTFOUND", "ECONNREFUSED")
LIMIT_SECONDS = 300.0
Record = tuple[int, int, str, str | None, str]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The command of a client, built once."""

    @functools.cache
    def go() -> str:
        target = tmp_path_factory.mktemp("go") / "clients"
        build("go", ["build", "-mod=readonly", "-o", str(target), "."], HERE / "go")
        return str(target)

    @functools.cache
    def node() -> str:
        target = Path(shutil.copytree(HERE / "node", tmp_path_factory.mktemp("node") / "clients"))
        build("npm", ["ci", "--no-audit", "--no-fund"], target)
        return str(target / "clients.mjs")

    return lambda client: ["node", node()] if client == "kafkajs" else [go(), client]


def build(tool: str, arguments: Sequence[str], directory: Path) -> None:
    """Skips where there is no such tool, or none that has the client already or can fetch it."""
    if shutil.which(tool) is None:
        pytest.skip(f"`{tool}` is not on the PATH")
    command = [tool, *arguments]
    built = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if built.returncode != 0 and any(sign in built.stderr for sign in UNREACHABLE):
        pytest.skip(f"`{' '.join(command)}` found no network: {built.stderr.strip()[-200:]}")
    assert built.returncode == 0, built.stderr


def run(command: Sequence[str]) -> tuple[list[Record], list[int]]:
    """The records that the client read, by partition and offset, and the offsets that it committed."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    columns = ("partition", "offset", "key", "value", "codec")
    return sorted(tuple(one[column] for column in columns) for one in told["received"]), told["committed"]


def read(bootstrap: str, topic: str) -> tuple[list[Record], list[int]]:
    """The same by confluent-kafka, and the ends of the partitions."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": uuid.uuid4().hex,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    records: list[Record] = []
    ends: dict[int, int] = {}
    while len(ends) < PARTITIONS:
        message = consumer.poll(LIMIT_SECONDS)
        assert message is not None
        if message.error():
            ends[message.partition()] = message.offset()
            continue
        value = message.value()
        records.append((
            message.partition(), message.offset(), message.key().decode(),
            None if value is None else value.decode(), message.headers()[0][1].decode(),
        ))  # fmt: skip
    consumer.close()
    return sorted(records), [ends[partition] for partition in range(PARTITIONS)]


@pytest.mark.parametrize("client", ["franz-go", "sarama", "kafka-go", "kafkajs"])
def test_clients_read_what_is_there_and_commit_where_it_ends(
    made: Callable[[str], list[str]], broker: BrokerProcess, client: str
) -> None:
    command, topic = made(client), f"{client}-{uuid.uuid4().hex[:8]}"
    records, committed = run([*command, broker.bootstrap, topic, f"{topic}-before", "fill"])
    assert (records, committed) == read(broker.bootstrap, topic)
    ways = 3 if client == "kafkajs" else 5
    assert len(records) == PER_WAY * ways
    assert len({way for *_, way in records}) == ways

    broker.compact(topic)
    left, ends = run([*command, broker.bootstrap, topic, f"{topic}-after"])
    assert (left, ends) == read(broker.bootstrap, topic)
    assert len(left) < len(records)
    assert {record[2]: record for record in left} == {record[2]: record for record in records}


@pytest.mark.parametrize("client", ["franz-go", "sarama", "kafkajs"])
def test_clients_move_records_exactly_once(
    made: Callable[[str], list[str]], broker: BrokerProcess, confluent: Client, client: str
) -> None:
    """In transactions with their offsets; some are aborted (S23)."""
    command, sink = made(client), f"{client}-{uuid.uuid4().hex[:8]}"
    source, count = f"{sink}-source", 300
    for topic in (source, sink):
        confluent.create_topic(topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 10})
    for number in range(count):
        producer.produce(source, b"%d" % number, b"%d" % (number % 7), number % PARTITIONS)
    assert producer.flush(60) == 0
    moving = [*command, broker.bootstrap, sink, sink, "move", source, str(count)]
    ended = subprocess.run(moving, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert ended.returncode == 0, ended.stderr
    values = committed_values(broker.bootstrap, sink, count)
    assert sorted(map(int, values)) == list(range(count))
    group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": sink})
    places = group.committed([TopicPartition(source, index) for index in range(PARTITIONS)], 60)
    assert [place.offset for place in places] == [count // PARTITIONS] * PARTITIONS
    group.close()


def test_franz_go_takes_it_for_a_release_of_today(
    made: Callable[[str], list[str]], broker: BrokerProcess
) -> None:
    """By the versions of its APIs. It was 3.5 to 3.6 without the brokers' own AddPartitionsToTxn."""
    guess = [*made("franz-go"), broker.bootstrap, "-", "-", "guess"]
    ended = subprocess.run(guess, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "at least v3.9"
