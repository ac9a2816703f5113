"""Goal: Kafka Connect, which keeps all it knows in compacted topics, runs on kompakt; and who outgrows one
machine gets topics, settings and groups to an Apache Kafka by its own MirrorMaker.

Method: Connect's unmodified worker with its file connectors, the broker killed in the middle; MirrorMaker
from a kompakt to a real Apache Kafka, and an unmodified client on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from tests.connect.worker import MIRROR_MAKER, WORKER, ConnectProcess
from tests.kafka.broker import KafkaBroker
from tests.kafka.jars import ROOT
from tests.process import BrokerProcess
from tests.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.slow]
LIMIT_SECONDS = 300.0
TABLE = {"cleanup.policy": "compact", "min.compaction.lag.ms": "1234", "segment.bytes": "2097152"}
OWN = {"segment.idle.ms": "3600000", "compaction.strategy": "timestamp"}
Start = Callable[..., ConnectProcess]
Row = tuple[Any, ...]
"""key, value, headers, kind of time and time of a record"""


def worker_settings(broker: BrokerProcess) -> dict[str, str]:
    converter = "org.apache.kafka.connect.storage.StringConverter"
    topics = {f"{what}.storage.topic": f"connect-{what}" for what in ("offset", "config", "status")}
    factors = {f"{what}.storage.replication.factor": "1" for what in ("offset", "config", "status")}
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "connect",
        "key.converter": converter,
        "value.converter": converter,
        "offset.flush.interval.ms": "500",
        **topics,
        **factors,
    }


@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_connect_goes_on_where_it_was_when_the_broker_was_killed(
    start: Start, broker: BrokerProcess, tmp_path: Path, support: str
) -> None:
    """From a file through a topic into a file; a second worker then finds it all in the compacted topics.
    Once with sources that write in transactions.
    """
    exactly_once = {"exactly.once.source.support": support, "consumer.isolation.level": "read_committed"}
    settings_of_worker = {**worker_settings(broker), **exactly_once}
    source, sink = tmp_path / "source", tmp_path / "sink"
    lines = [f"line {number}" for number in range(400)]
    source.write_text("".join(f"{line}\n" for line in lines[:200]))
    first = start(WORKER, settings_of_worker)
    file = "org.apache.kafka.connect.file.FileStream"
    reads = {"connector.class": f"{file}SourceConnector", "file": str(source), "topic": "lines"}
    if support == "enabled":
        reads["exactly.once.support"] = "required"
    writes = {"connector.class": f"{file}SinkConnector", "file": str(sink), "topics": "lines"}
    for name, settings in (("reads", reads), ("writes", writes)):
        path = f"/connectors/{name}/config"
        wait_for(lambda p=path, s=settings: first.ask(p, s), name, LIMIT_SECONDS)  # type: ignore[misc]

    def written() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    def offsets_of(connector: str, name: str) -> list[int]:
        answer = first.ask(f"/connectors/{connector}/offsets") or {"offsets": []}
        return [one["offset"][name] for one in answer["offsets"]]

    def is_committed(count: int) -> bool:
        """By both connectors; what was not may come again, as always with Connect."""
        is_read = offsets_of("reads", "position") == [source.stat().st_size]
        offsets = offsets_of("writes", "kafka_offset")
        return is_read and (offsets == [count] if support == "disabled" else offsets >= [count])  # markers

    wait_for(lambda: len(written()) == 200 and is_committed(200), "the first lines", LIMIT_SECONDS)
    broker.kill()
    broker.start()
    with source.open("a") as more:
        more.writelines(f"{line}\n" for line in lines[200:300])
    wait_for(lambda: len(written()) == 300 and is_committed(300), "lines after the kill", LIMIT_SECONDS)
    first.close()
    with source.open("a") as more:
        more.writelines(f"{line}\n" for line in lines[300:])
    second = start(WORKER, settings_of_worker)
    wait_for(lambda: len(written()) >= 400, "lines of the second worker", LIMIT_SECONDS)
    assert written() == lines
    if support == "enabled":
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert "__transaction_state" in admin.list_topics(timeout=60).topics
    assert set(second.ask("/connectors")) == {"reads", "writes"}


def rows(bootstrap: str, topic: str, partitions: int) -> list[list[Row]]:
    """All that is in each partition; nothing is compacted yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: list[list[Row]] = []
    for number in range(partitions):
        place = TopicPartition(topic, number, 0)
        end = consumer.get_watermark_offsets(place, timeout=60)[1]
        consumer.assign([place])
        found.append([])
        while len(found[-1]) < end:
            message = consumer.poll(60)
            assert message is not None and not message.error()
            found[-1].append((message.key(), message.value(), message.headers(), message.timestamp()))
    consumer.close()
    return found


def rows_of_both(bootstrap: str) -> list[list[list[Row]]]:
    return [rows(bootstrap, topic, 3) for topic in ("table", "prices")]


def own_settings(bootstrap: str, topic: str) -> dict[str, str]:
    """What is set for the topic itself."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(60).values()
    return {entry.name: entry.value for entry in entries if entry.source == 1}


def committed(admin: AdminClient) -> int:
    """How many records of `prices` the group `dashboard` has read, by its offsets."""
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("dashboard")]).values()
    return sum(max(0, place.offset) for place in answer.result(60).topic_partitions or ())


def dashboard(bootstrap: str) -> Consumer:
    """A member of a group that reads `prices`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "dashboard",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["prices"])
    return consumer


def read_half(broker: BrokerProcess) -> set[bytes | None]:
    """A group reads half of the topic `prices` and commits; what it read."""
    consumer = dashboard(broker.bootstrap)
    seen: set[bytes | None] = set()
    while len(seen) < 500:
        message = consumer.poll(60)
        assert message is not None and not message.error()
        seen.add(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return seen


def readme_settings() -> dict[str, str]:
    """What the README says under "Moving on to Apache Kafka"."""
    _, _, rest = (ROOT / "README.md").read_text().partition("\n    clusters = old, new\n")
    block, _, _ = rest.partition("\n\n")
    pairs = (line.partition(" = ") for line in block.splitlines())
    return {"clusters": "old, new", **{name.strip(): value for name, _, value in pairs}}


def mirror_settings(old: str, new: str) -> dict[str, str]:
    """As the README says, for a goal of one machine; but that it looks more often. What is made at the old
    broker, if anything is, has the replicas that MirrorMaker gives it by itself.
    """
    looks = (
        "refresh.topics",
        "refresh.groups",
        "sync.topic.configs",
        "sync.group.offsets",
        "emit.checkpoints",
    )
    of_topics = ("", "checkpoints.topic.", "heartbeats.topic.")
    of_stores = ("config", "offset", "status")
    said = readme_settings()
    assert said["config.properties.exclude"] == "segment[.]idle[.]ms, compaction[.].*"
    return {
        **said,
        "old.bootstrap.servers": old,
        "new.bootstrap.servers": new,
        "old->new.topics": "table, prices",
        "old->new.groups": "dashboard",
        "sync.topic.acls.enabled": "false",
        "offset.lag.max": "0",
        "old->new.offset-syncs.topic.replication.factor": "1",
        **{f"old->new.{what}replication.factor": "1" for what in of_topics},
        **{f"new.{what}.storage.replication.factor": "1" for what in of_stores},
        **{f"{what}.interval.seconds": "1" for what in looks},
    }


def test_mirror_maker_moves_topics_settings_and_groups_to_apache_kafka(
    start: Start,
    broker: BrokerProcess,
    start_kafka: Callable[..., KafkaBroker],
) -> None:
    """Under their own names, so that `bootstrap.servers` is all that changes afterwards. Settings that Kafka
    does not know have to be left out: it would refuse the topic. Nothing is made here but what was here.
    """
    kafka = start_kafka()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic("table", 3, 1, config={**TABLE, **OWN}), NewTopic("prices", 3, 1)]
    for made in admin.create_topics(topics).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(1000):
        value = None if number % 7 == 0 else b"row %d" % number
        headers: Any = [("h", b"%d" % number)] if number % 3 == 0 else None
        producer.produce(
            "table", value, key=b"key %d" % (number % 90), headers=headers, timestamp=10**12 + number
        )
        producer.produce("prices", b"price %d" % number, key=b"%d" % number)
    assert producer.flush(60) == 0
    seen = read_half(broker)
    start(MIRROR_MAKER, mirror_settings(broker.bootstrap, kafka.bootstrap))
    goal = AdminClient({"bootstrap.servers": kafka.bootstrap})
    wait_for(
        lambda: {"table", "prices"} <= goal.list_topics(timeout=60).topics.keys(), "topics", LIMIT_SECONDS
    )
    there = rows_of_both(broker.bootstrap)
    wait_for(lambda: rows_of_both(kafka.bootstrap) == there, "all rows", LIMIT_SECONDS)
    wait_for(
        lambda: TABLE.items() <= own_settings(kafka.bootstrap, "table").items(), "settings", LIMIT_SECONDS
    )
    assert own_settings(kafka.bootstrap, "table") == TABLE
    wait_for(lambda: committed(goal), "what the group had read", LIMIT_SECONDS)
    consumer = dashboard(kafka.bootstrap)
    left = {b"price %d" % number for number in range(1000)} - seen
    while left:
        message = consumer.poll(60)
        assert message is not None and not message.error(), left
        left.discard(message.value())
    consumer.close()
    here = {name for name in admin.list_topics(timeout=60).topics if not name.startswith("__")}
    assert here == {"table", "prices"}
