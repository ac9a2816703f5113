"""Goal: a test of somebody's program has a Kafka of its own in milliseconds, compacts when it wants to, and
sees days pass at once.

Method: unmodified clients on brokers of `broker.testing` in this process; each thing that time brings about
in a broker is waited for by moving its clock. The fixtures are run by a pytest of its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from broker.testing import CompactionRefused, Kompakt
from broker.testing.moving_clock import MovingClock
from protocol.errors import KafkaError as RefusedByBroker
from storage.verify import verify_data_directory
from tests.broker.client import until
from tests.waiting import wait_for

QUIET: dict[str, Any] = {"log_level": 0}
"""who outlives its broker would fill the log"""


@pytest.fixture
def kompakt() -> Iterator[Kompakt]:
    with Kompakt() as broker:
        yield broker
        broker.stop()
        assert verify_data_directory(broker.data) == []


def produce(broker: Kompakt, topic: str, *pairs: tuple[str, str | None]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    for key, value in pairs:
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0


def read(broker: Kompakt, topic: str, partition: int = 0) -> list[tuple[int, str | None]]:
    """Offset and value of all that a consumer sees, up to where it is told of the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[tuple[int, str | None]] = []
    while (message := consumer.poll(60)) is not None:
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            break
        value = message.value()
        found.append((message.offset(), None if value is None else value.decode()))
    consumer.close()
    return found


# Clients


def test_librdkafka_and_kafka_python(kompakt: Kompakt) -> None:
    kompakt.create_topic("orders", 2)
    produce(kompakt, "orders", ("a", "1"))
    older = KafkaProducer(bootstrap_servers=kompakt.bootstrap_servers)
    older.send("orders", b"2", key=b"b").get(60)
    older.close()
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=kompakt.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    found = {next(consumer).value for _ in range(2)}
    consumer.close()
    assert found == {b"1", b"2"}


async def test_aiokafka_on_a_loop_of_its_own(kompakt: Kompakt) -> None:
    kompakt.create_topic("orders")
    async with AIOKafkaProducer(bootstrap_servers=kompakt.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"1")
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=kompakt.bootstrap_servers, auto_offset_reset="earliest", group_id="g"
    ) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 60)).value == b"1"


def test_topics_are_refused_as_by_the_broker(kompakt: Kompakt) -> None:
    kompakt.create_topic("orders")
    with pytest.raises(RefusedByBroker, match="orders"):
        kompakt.create_topic("orders")
    for count in (0, -1):
        with pytest.raises(RefusedByBroker, match=f"cannot have {count} partitions"):
            kompakt.create_topic("none", count)
    with pytest.raises(LookupError, match="no topic nosuch"):
        kompakt.compact("nosuch")
    with pytest.raises(LookupError, match="none is 7"):
        kompakt.compact("orders", 7)


# Compaction


def test_w23_compaction_happens_when_the_test_says_so(kompakt: Kompakt) -> None:
    kompakt.create_topic("prices", 2, cleanup_policy="compact")
    produce(kompakt, "prices", *(("EURUSD", str(number)) for number in range(5)))
    assert "active segment" in kompakt.explain("prices", partition_of(kompakt, "prices"))
    before = [read(kompakt, "prices", partition) for partition in (0, 1)]
    assert [len(one) for one in before] in ([5, 0], [0, 5])
    answers = kompakt.compact("prices")
    assert [one["partition"] for one in answers] == [0, 1]
    assert sum(one["removed"]["superseded"] for one in answers) == 4
    assert [*read(kompakt, "prices", 0), *read(kompakt, "prices", 1)] == [(4, "4")]


def partition_of(broker: Kompakt, topic: str) -> int:
    """The one that has records."""
    return next(partition for partition in (0, 1) if read(broker, topic, partition))


def test_w23_or_as_the_cleaner_would_by_itself(kompakt: Kompakt) -> None:
    """Nothing of an active segment, and not what is too young; then as the time passes."""
    kompakt.create_topic("prices", cleanup_policy="compact", min_compaction_lag_ms="3600000")
    produce(kompakt, "prices", ("k", "1"), ("k", "2"))
    assert kompakt.clean() == 0
    assert "active segment" in kompakt.explain("prices")
    kompakt.roll("prices")
    produce(kompakt, "prices", ("other", "3"))
    assert kompakt.clean() == 0
    assert "min.compaction.lag.ms" in kompakt.explain("prices")
    with pytest.raises(CompactionRefused, match=r"prices-0 was not compacted: .*lag"):
        kompakt.compact("prices")
    kompakt.advance(hours=2)
    assert kompakt.clean() == 1
    assert read(kompakt, "prices") == [(1, "2"), (2, "3")]
    assert kompakt.clean() == 0


def test_tombstones_go_when_their_time_is_over(kompakt: Kompakt) -> None:
    kompakt.create_topic("table", cleanup_policy="compact", delete_retention_ms="3600000")
    produce(kompakt, "table", ("k", "1"), ("k", None), ("other", "2"))
    kompakt.compact("table")
    assert read(kompakt, "table") == [(1, None), (2, "2")]
    kompakt.advance(hours=1, seconds=1)
    kompakt.compact("table")
    assert read(kompakt, "table") == [(2, "2")]


def test_a_topic_that_is_not_compacted_cannot_be(kompakt: Kompakt) -> None:
    kompakt.create_topic("orders")
    with pytest.raises(CompactionRefused, match=r"orders-0 was not compacted: .* is delete"):
        kompakt.compact("orders")


# Time


def test_retention_deletes_what_is_old(kompakt: Kompakt) -> None:
    """The producer's clock is the machine's, the broker's is ahead of it."""
    kompakt.create_topic("orders", retention_ms="86400000")
    produce(kompakt, "orders", ("a", "old"))
    kompakt.advance(hours=23)
    assert read(kompakt, "orders") == [(0, "old")]
    kompakt.advance(hours=2)
    assert read(kompakt, "orders") == []
    produce(kompakt, "orders", ("a", "new"))
    assert read(kompakt, "orders") == [(1, "new")]


def test_retention_of_what_is_compacted_as_well(kompakt: Kompakt) -> None:
    kompakt.create_topic("both", cleanup_policy="compact,delete", retention_ms="3600000")
    produce(kompakt, "both", ("a", "old"))
    kompakt.roll("both")
    kompakt.advance(days=1)
    assert read(kompakt, "both") == []


def test_committed_offsets_expire(kompakt: Kompakt) -> None:
    kompakt.create_topic("orders")
    consumer = Consumer({"bootstrap.servers": kompakt.bootstrap_servers, "group.id": "old"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": kompakt.bootstrap_servers})
    assert [one.group_id for one in admin.list_consumer_groups().result(60).valid] == ["old"]
    kompakt.advance(days=8)
    assert admin.list_consumer_groups().result(60).valid == []


def test_a_transaction_that_lasts_too_long_is_aborted(kompakt: Kompakt) -> None:
    kompakt.create_topic("orders")
    producer = Producer({"bootstrap.servers": kompakt.bootstrap_servers, "transactional.id": "tx"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", "undecided")
    assert producer.flush(60) == 0
    assert kompakt.run(_open_transactions(kompakt)) == 1
    kompakt.advance(minutes=2)
    assert kompakt.run(_open_transactions(kompakt)) == 0
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(60)
    error = refused.value.args[0]
    assert isinstance(error, KafkaError)
    assert error.fatal() or error.txn_requires_abort()
    assert read(kompakt, "orders") == []


def test_what_began_by_itself_has_ended_as_well(kompakt: Kompakt) -> None:
    """A job that falls due by the jump starts by itself, and passes over what it has at hand when called."""
    at_work, ended = [False], [0]

    async def slow() -> None:
        if not at_work[0]:
            at_work[0] = True
            await asyncio.sleep(0.3)
            at_work[0] = False
            ended[0] += 1

    async def begin() -> None:
        kompakt.broker.background._every("slow", 60_000, slow)
        await asyncio.sleep(0)  # it waits for its time

    kompakt.run(begin())
    kompakt.advance(minutes=2)
    assert (at_work, ended[0] > 0) == ([False], True)


async def _open_transactions(broker: Kompakt) -> int:
    return sum(len(one.log.producers.open_transactions()) for one in broker.broker.partitions.values())


def test_a_member_that_is_silent_loses_its_session(kompakt: Kompakt) -> None:
    """And comes back by itself, as after a pause of its machine."""
    kompakt.create_topic("orders")
    consumer = Consumer(
        {"bootstrap.servers": kompakt.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    produce(kompakt, "orders", ("a", "1"))
    assert consumer.poll(60) is not None
    (before,) = members(kompakt)
    kompakt.advance(minutes=5)
    assert before not in members(kompakt)
    wait_for(lambda: consumer.poll(0.1) is None and members(kompakt), "its return")
    consumer.close()


def members(broker: Kompakt) -> list[str]:
    group = broker.broker.groups.groups.get("g")
    return [] if group is None else list(group.members)


def test_time_moves_on_and_never_back(kompakt: Kompakt) -> None:
    before = kompakt.now_ms()
    kompakt.advance(days=1.5, ms=7)
    passed = kompakt.now_ms() - before
    assert 129_600_007 <= passed < 129_600_007 + 60_000
    with pytest.raises(ValueError, match="fortnights: there are days"):
        kompakt.advance(fortnights=1)
    with pytest.raises(ValueError, match="not go back"):
        kompakt.advance(hours=-1)


async def test_timers_fire_in_order_and_once() -> None:
    clock = MovingClock()
    fired: list[str] = []
    clock.call_later(20_000, fired.append, "second")
    clock.call_later(10_000, fired.append, "first")
    clock.call_later(90_000, fired.append, "later")
    never = clock.call_later(15_000, fired.append, "never")
    never.cancel()
    cancels = clock.call_later(12_000, lambda: victim.cancel())
    victim = clock.call_later(13_000, fired.append, "cancelled by another")
    at_once = clock.call_later(1, fired.append, "by itself")
    await until(lambda: fired)
    clock.advance(30_000)
    assert fired == ["by itself", "first", "second"]
    clock.advance(59_000)
    assert len(fired) == 3
    clock.advance(2_000)
    assert fired[3:] == ["later"]
    assert clock.timers == set()
    assert cancels is not at_once
    sleeping = asyncio.ensure_future(clock.sleep(3_600_000))
    await asyncio.sleep(0)
    clock.advance(3_600_000)
    await sleeping


# Life


def test_a_restart_keeps_port_and_records(tmp_path: Path) -> None:
    with Kompakt(data=tmp_path / "data") as broker:
        broker.create_topic("orders")
        produce(broker, "orders", ("a", "1"))
        where = broker.bootstrap_servers
        broker.restart()
        assert broker.bootstrap_servers == where
        assert read(broker, "orders") == [(0, "1")]
        broker.stop()
        with pytest.raises(RuntimeError, match="not running"):
            broker.advance(days=1)
    assert verify_data_directory(tmp_path / "data") == []
    with Kompakt(data=tmp_path / "data") as again:
        assert read(again, "orders") == [(0, "1")]


def test_nothing_is_left_of_one(kompakt: Kompakt) -> None:
    threads = set(threading.enumerate())
    with Kompakt() as another:
        assert another.data.is_dir()
        assert another.bootstrap_servers != kompakt.bootstrap_servers
        with pytest.raises(RuntimeError, match="started already"):
            another.start()
    assert not another.data.exists()
    assert set(threading.enumerate()) <= threads
    another.close()


def test_why_it_cannot_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = Kompakt({"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
        with pytest.raises(RuntimeError, match=f"cannot start: .*{port}"):
            broker.start()
        broker.close()
    broker = Kompakt({"log.retention.mss": "1"})
    with pytest.raises(RuntimeError, match=r"log\.retention\.mss"), broker:
        raise AssertionError("not reached")
    assert not broker.data.exists()


def test_settings_are_those_of_a_broker() -> None:
    with Kompakt({"http.port": "0", "auto.create.topics.enable": "false", "num.partitions": "3"}) as broker:
        with urllib.request.urlopen(f"{broker.http}/healthz", timeout=60) as answer:
            assert answer.status == 200
        port = broker.http
        broker.restart()
        assert broker.http == port
        assert broker.broker.config.num_partitions == 3
    with Kompakt() as broker, pytest.raises(RuntimeError, match=r"http\.port"):
        assert broker.http


def test_a_relative_directory_is_told_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka's metrics and its DescribeLogDirs do: `data` alone says nothing to who asks from elsewhere."""
    monkeypatch.chdir(tmp_path)
    with Kompakt({"log.dirs": "data", "http.port": "0"}) as broker:
        with urllib.request.urlopen(f"{broker.http}/api/broker", timeout=60) as answer:
            assert [one["path"] for one in json.load(answer)["directories"]] == [str(tmp_path / "data")]
        with urllib.request.urlopen(f"{broker.http}/metrics", timeout=60) as answer:
            assert f'logDirectory="{tmp_path / "data"}"' in answer.read().decode()


def test_a_directory_that_was_moved_goes_on_where_it_is(tmp_path: Path) -> None:
    """Records, settings and what groups committed: nothing in it names its place."""
    old, new = tmp_path / "here", tmp_path / "elsewhere" / "data"
    with Kompakt(data=old) as broker:
        broker.create_topic("table", cleanup_policy="compact")
        produce(broker, "table", ("a", "1"), ("a", "2"), ("b", "3"))
        broker.compact("table")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **QUIET})
        consumer.commit(offsets=[TopicPartition("table", 0, 2)], asynchronous=False)
        consumer.close()
    new.parent.mkdir()
    old.rename(new)
    with Kompakt(data=new) as broker:
        assert read(broker, "table") == [(1, "2"), (2, "3")]
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **QUIET})
        (place,) = consumer.committed([TopicPartition("table", 0)], timeout=60)
        consumer.close()
        assert place.offset == 2
        produce(broker, "table", ("a", "4"))
        broker.compact("table")
        assert read(broker, "table") == [(2, "3"), (3, "4")]


# The fixtures

TESTS = """
from confluent_kafka import Producer
import pytest

names = []

@pytest.fixture(scope="session")
def kompakt_settings():
    return {"num.partitions": "3"}

@pytest.mark.parametrize("turn", range(3))
def test_one_each(kompakt, turn):
    kompakt.create_topic("mine")
    kompakt.create_topic("single", 1)
    names.append(kompakt.bootstrap_servers)
    partitions = {one.name: one.partition_count for one in kompakt.broker.topics.all()}
    assert (partitions["mine"], partitions["single"]) == (3, 1)

@pytest.mark.parametrize("turn", range(2))
def test_one_for_all(kompakt_session, turn):
    kompakt_session.create_topic(f"topic-{turn}")
    assert len(kompakt_session.broker.topics.all()) == 2 + turn

def test_the_end():
    assert len(set(names)) == 3
"""


def somebodys_pytest(directory: Path, tests: str) -> str:
    """What their pytest says, run from where their tests lie."""
    (directory / "test_somebodys.py").write_text(tests)
    options = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=directory, check=False)
    return done.stdout + done.stderr


def test_w23_the_fixtures_of_pytest(tmp_path: Path) -> None:
    """As they are found by whoever has installed the distribution."""
    said = somebodys_pytest(tmp_path, TESTS)
    assert "6 passed" in said, said


def test_who_asks_for_no_broker_pays_for_none(tmp_path: Path) -> None:
    """pytest loads the plugin in each of its runs."""
    said = somebodys_pytest(
        tmp_path,
        """
import sys

def test_nothing_of_it_is_there():
    assert "broker.testing.plugin" in sys.modules
    assert not {"broker.broker", "config", "storage", "numba"} & sys.modules.keys()
""",
    )
    assert "1 passed" in said, said


def test_a_project_with_a_module_of_our_name_is_told(tmp_path: Path) -> None:
    """Its own tests run; those that want a broker say what is in the way, and what can be done."""
    (tmp_path / "config.py").write_text("TOPIC = 'prices'\n")
    said = somebodys_pytest(
        tmp_path,
        """
import config

def test_without_a_broker():
    assert config.TOPIC == "prices"

def test_with_one(kompakt):
    pass
""",
    )
    assert "1 passed, 1 error" in said, said
    assert f"its package `config` is hidden by {tmp_path / 'config.py'}" in said
    assert "kompakt serve --port 0" in said
