"""Goal: Flink SQL keeps a table in a compacted topic of kompakt's as it does in Apache Kafka's.

Method: an unmodified Flink in a JVM of its own counts and sums orders by customer (`kafka` connector) into an
upsert-kafka table. The broker is killed and the topic of the orders gets more partitions while it streams;
what the table's topic holds, before and after a compaction and as Flink itself reads it back, is compared
with what was ordered.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.kafka.fixtures import or_skip
from tests.kafka.jars import ROOT, environment, resolved
from tests.kafka.tools import Tools
from tests.process import BrokerProcess
from tests.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.slow]
HERE = Path(__file__).resolve().parent
LIMIT_SECONDS = 300.0
OPENED = ("lang", "net", "nio", "time", "util")
"""packages of java.base whose insides Flink wants to see"""
OPTIONS = ("-Xmx768m", *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED))
BOUNDED = ", 'scan.bounded.mode' = 'latest-offset'"
INSERT = "INSERT INTO totals SELECT customer, COUNT(*), SUM(amount) FROM orders GROUP BY customer;\n"
CUSTOMERS, ORDERS, KILLS = 300, 20_000, 3
Totals = dict[str, tuple[int, int]]


def flink_tools() -> Tools:
    """The JVM, which needs its compiler, and Flink's jars; NoKafkaError when they cannot be had."""
    found = re.search(r"<flink\.version>([^<]+)<", (HERE / "pom.xml").read_text())
    assert found is not None
    return Tools(resolved(HERE / "pom.xml", ROOT / ".cache" / "flink" / found[1] / "libs")).with_compiler()


class Flink:
    """Processes that run statements. Owned by: the test, which ends them."""

    def __init__(self, tools: Tools, directory: Path) -> None:
        self._command = tools.jvm(str(HERE / "Statements.java"), *OPTIONS)
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, statements: str, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
        """A process, and the file of what it tells."""
        directory = self._directory / f"flink-{len(self._started)}"
        directory.mkdir()
        (directory / "statements.sql").write_text(statements)
        java, *rest = self._command
        with (directory / "output").open("wb") as output:
            process = subprocess.Popen(
                [java, *options, *rest, str(directory / "statements.sql"), str(directory / "checkpoints")],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(),
            )
        self._started.append(process)
        return process, directory / "output"

    def run(self, statements: str, *options: str, status: int = 0) -> list[str]:
        """What it told once all statements have ended, with this exit status."""
        process, output = self.start(statements, *options)
        ended = process.wait(LIMIT_SECONDS)
        assert ended == status, output.read_text()[-8000:]
        return output.read_text().splitlines()

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", {"log.cleaner.backoff.ms": "200"}).start()
    yield process
    log = process.log()
    process.close()
    assert "Traceback" not in log, log


@pytest.fixture
def flink(tmp_path: Path) -> Iterator[Flink]:
    made = Flink(or_skip(flink_tools), tmp_path)
    yield made
    made.close()


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    made = AdminClient({"bootstrap.servers": broker.bootstrap})
    always = {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}
    topics = [NewTopic("orders", 4), NewTopic("totals", 3, config=always)]
    for created in made.create_topics(topics).values():
        created.result(60)
    return made


class Orders:
    """What is written to the topic of the orders, and what the table must say of it."""

    def __init__(self, bootstrap: str) -> None:
        self.totals: Totals = {}
        self._chance = random.Random(1)
        self._numbers = itertools.count()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )

    def write(self, count: int) -> None:
        """So many more, until they are acknowledged."""
        for _ in range(count):
            customer, amount = f"c{self._chance.randrange(CUSTOMERS)}", self._chance.randrange(1000)
            number, total = self.totals.get(customer, (0, 0))
            self.totals[customer] = (number + 1, total + amount)
            order = {"id": next(self._numbers), "customer": customer, "amount": amount}
            self._producer.produce("orders", json.dumps(order).encode(), customer.encode())
        assert self._producer.flush(LIMIT_SECONDS) == 0


def tables(bootstrap: str, orders: str = BOUNDED, totals: str = "", mode: str = "earliest-offset") -> str:
    """The two tables, each with more options."""
    both = f"'properties.bootstrap.servers' = '{bootstrap}'"
    return f"""
CREATE TABLE orders (id BIGINT, customer STRING, amount BIGINT)
  WITH ('connector' = 'kafka', 'topic' = 'orders', {both}, 'properties.group.id' = 'flink',
        'scan.startup.mode' = '{mode}', 'format' = 'json'{orders});
CREATE TABLE totals (customer STRING, number BIGINT, amount BIGINT, PRIMARY KEY (customer) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'totals', {both}, 'key.format' = 'json',
        'value.format' = 'json'{totals});
"""


def rows(told: list[str]) -> list[str]:
    return [line.removeprefix("row ") for line in told if line.startswith("row ")]


def contents(bootstrap: str) -> tuple[Totals, int]:
    """The table as the topic has it, and how many records it takes."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "view", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition("totals", index, 0) for index in range(3)])
    latest: Totals = {}
    records, ended = 0, 0
    while ended < 3:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        records += 1
        value = json.loads(message.value())
        latest[json.loads(message.key())["customer"]] = (value["number"], value["amount"])
    consumer.close()
    return latest, records


def test_a_table_is_kept_compacted_and_read_back(
    flink: Flink, broker: BrokerProcess, admin: AdminClient
) -> None:
    orders = Orders(broker.bootstrap)
    orders.write(ORDERS)
    flink.run(tables(broker.bootstrap) + INSERT)
    assert contents(broker.bootstrap)[0] == orders.totals
    broker.compact("totals")
    assert contents(broker.bootstrap) == (orders.totals, CUSTOMERS)
    sums = "SELECT COUNT(*), SUM(number), SUM(amount) FROM totals;\n"
    told = flink.run(tables(broker.bootstrap, totals=BOUNDED) + sums)
    amount = sum(total for _, total in orders.totals.values())
    assert rows(told)[-1] == f"+U[{CUSTOMERS}, {ORDERS}, {amount}]"


EXACTLY_ONCE = (
    ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'x'"
    ", 'properties.transaction.timeout.ms' = '600000'"
)


@pytest.mark.parametrize("guarantee", ["", EXACTLY_ONCE], ids=["at least once", "exactly once"])
def test_a_stream_into_a_table_is_exact_while_the_broker_is_killed(
    flink: Flink, broker: BrokerProcess, admin: AdminClient, guarantee: str
) -> None:
    """At least once, which a table by keys makes exact, and in transactions; new partitions are found by
    Flink itself.
    """
    orders = Orders(broker.bootstrap)
    orders.write(1000)
    discovering = ", 'scan.topic-partition-discovery.interval' = '1 s'"
    process, output = flink.start(tables(broker.bootstrap, discovering, guarantee) + INSERT)

    def is_exact() -> bool:
        assert process.poll() is None, output.read_text()[-8000:]
        return contents(broker.bootstrap)[0] == orders.totals

    wait_for(is_exact, "the first orders", LIMIT_SECONDS)
    for round_ in range(KILLS):
        writing = threading.Thread(target=orders.write, args=(ORDERS,))
        writing.start()
        broker.kill()
        broker.start()
        writing.join()
        if round_ == 1:
            admin.create_partitions([NewPartitions("orders", 6)])["orders"].result(60)
    wait_for(is_exact, "all orders", LIMIT_SECONDS)
    broker.compact("totals")
    assert contents(broker.bootstrap) == (orders.totals, CUSTOMERS)
