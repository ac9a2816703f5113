"""Goal: kompakt and an Apache Kafka mirror each other, as two sites do that both write.

Method: one unmodified MirrorMaker, with its own policy for names, copies a topic each way: records, settings,
partitions, heartbeats, and what groups have read. kompakt is killed in the middle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.connect.worker import MIRROR_MAKER, ConnectProcess
from tests.kafka.broker import KafkaBroker
from tests.process import BrokerProcess
from tests.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.slow]
LIMIT_SECONDS = 300.0
TABLE = {"cleanup.policy": "compact", "min.compaction.lag.ms": "1234", "segment.bytes": "2097152"}
CHANGED = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "segment.bytes": "2097152"}
FIRST, SECOND = range(600), range(600, 1200)
Start = Callable[..., ConnectProcess]
Row = tuple[bytes, bytes, int]
"""key, value and time of a record"""


def mirror_settings(own: str, kafka: str) -> dict[str, str]:
    """As users write it: both ways, and all else as it is; but that it looks more often, and at one node."""
    looks = ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.topic.acls")
    looks += ("sync.group.offsets", "emit.checkpoints", "emit.heartbeats")
    internal = [f"{what}.topic" for what in ("checkpoints", "heartbeats", "offset-syncs")]
    internal += [f"{what}.storage" for what in ("config", "offset", "status")]
    return {
        "clusters": "own, kafka",
        "own.bootstrap.servers": own,
        "kafka.bootstrap.servers": kafka,
        "own->kafka.enabled": "true",
        "own->kafka.topics": "here",
        "kafka->own.enabled": "true",
        "kafka->own.topics": "there",
        "groups": "readers",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": "0",
        "replication.factor": "1",
        **{f"{what}.replication.factor": "1" for what in internal},
        **{f"{what}.interval.seconds": "1" for what in looks},
    }


def write(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(
            topic, b"%s %d" % (topic.encode(), number), b"%d" % number, timestamp=10**12 + number
        )
    assert producer.flush(60) == 0


def reader(bootstrap: str, topic: str) -> Consumer:
    """A member of the group `readers`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    return consumer


def read_half(bootstrap: str, topic: str) -> set[bytes]:
    """The keys that the group has read, and says so."""
    consumer = reader(bootstrap, topic)
    seen: set[bytes] = set()
    while len(seen) < len(FIRST) / 2:
        message = consumer.poll(60)
        assert message is not None and not message.error()
        seen.add(message.key())
    consumer.commit(asynchronous=False)
    consumer.close()
    return seen


def end_of(consumer: Consumer, place: TopicPartition) -> tuple[int] | None:
    """The next offset. None while an Apache Kafka has only just made the partition and does not serve it."""
    try:
        return (consumer.get_watermark_offsets(place, timeout=60)[1],)
    except KafkaException as problem:
        if problem.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
            raise
        return None


def rows(bootstrap: str, topic: str) -> list[set[Row]]:
    """What is in each partition. Twice is once: MirrorMaker promises no more, for its producer's answers may
    be lost with a broker.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rows", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    found: list[set[Row]] = []
    for number in sorted(partitions):
        place = TopicPartition(topic, number, 0)
        (end,) = wait_for(partial(end_of, consumer, place), f"{topic}-{number}")
        consumer.assign([place])
        found.append(set())
        while (
            max(0, consumer.position([TopicPartition(topic, number)])[0].offset) < end
        ):  # negative: none yet
            message = consumer.poll(60)
            assert message is not None and not message.error()
            found[-1].add((message.key(), message.value(), message.timestamp()[1]))
    consumer.close()
    return found


def change(bootstrap: str, topic: str) -> None:
    """Settings from TABLE to CHANGED, and a third partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in CHANGED.items()
    ]
    gone = "min.compaction.lag.ms"
    entries.append(ConfigEntry(gone, "", incremental_operation=AlterConfigOpType.DELETE))
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(60)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)


class Side:
    """One of the two clusters: its own topic, and the copy of the other's. Clients are new each time: an
    idle one whose broker was away may take minutes to look again, whoever the broker.
    """

    def __init__(self, broker: BrokerProcess | KafkaBroker, topic: str, copy: str) -> None:
        self.bootstrap = broker.bootstrap
        self.topic = topic
        self.copy = copy
        admin = self.admin()
        admin.create_topics([NewTopic(topic, 2, 1, config=TABLE)])[topic].result(60)
        write(self.bootstrap, topic, FIRST)
        self.seen = read_half(self.bootstrap, topic)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def topics(self) -> set[str]:
        return set(self.admin().list_topics(timeout=60).topics)

    def settings(self) -> dict[str, str]:
        """What is set for the copy itself."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.copy)
        admin = self.admin()  # a client without a name ends before its answer comes
        entries = admin.describe_configs([resource])[resource].result(60).values()
        return {entry.name: entry.value for entry in entries if entry.source == 1}

    def committed(self) -> int:
        """How much of the copy the group has read, by the offsets that were brought here."""
        asked = [ConsumerGroupTopicPartitions("readers")]
        admin = self.admin()
        (answer,) = admin.list_consumer_group_offsets(asked).values()
        places = answer.result(60).topic_partitions or ()
        return sum(max(0, place.offset) for place in places if place.topic == self.copy)

    def read_on(self, left: set[bytes]) -> None:
        """The group goes on in the copy, and gets all that it has not read in the other cluster."""
        consumer = reader(self.bootstrap, self.copy)
        while left:
            message = consumer.poll(60)
            assert message is not None and not message.error(), left
            left = left - {message.key()}
        consumer.close()


def wait_for_the_same(source: Side, target: Side, settings: dict[str, str]) -> None:
    """Until the copy has the records of the topic, partition by partition, and its settings."""
    expected = rows(source.bootstrap, source.topic)
    wait_for(lambda: target.copy in target.topics(), target.copy, LIMIT_SECONDS)
    wait_for(lambda: rows(target.bootstrap, target.copy) == expected, f"all of {target.copy}", LIMIT_SECONDS)
    wait_for(lambda: target.settings() == settings, f"settings of {target.copy}", LIMIT_SECONDS)


def wait_for_the_group(source: Side, target: Side) -> None:
    """Until its offsets are there, which say no more than it has read; and heartbeats of both clusters."""
    wait_for(target.committed, "what the group has read", LIMIT_SECONDS)
    assert target.committed() <= len(source.seen)
    heartbeats = {"heartbeats", target.copy.split(".")[0] + ".heartbeats"}
    wait_for(lambda: heartbeats <= target.topics(), "heartbeats", LIMIT_SECONDS)


def test_mirror_maker_copies_both_ways(
    start: Start, broker: BrokerProcess, start_kafka: Callable[..., KafkaBroker]
) -> None:
    """And has nothing to complain of: what it asks for is there, ACLs are refused as Kafka refuses them."""
    kafka = start_kafka()
    own, other = Side(broker, "here", "kafka.there"), Side(kafka, "there", "own.here")
    ways = ((own, other), (other, own))
    mirror = start(MIRROR_MAKER, mirror_settings(broker.bootstrap, kafka.bootstrap))
    for source, target in ways:
        wait_for_the_same(source, target, TABLE)
        wait_for_the_group(source, target)
    assert "UnsupportedVersion" not in mirror.log(), mirror.log()

    broker.kill()
    broker.start()
    for source, target in ways:
        change(source.bootstrap, source.topic)
        write(source.bootstrap, source.topic, SECOND)
        wait_for_the_same(source, target, CHANGED)
        target.read_on({b"%d" % number for number in (*FIRST, *SECOND)} - source.seen)
    assert "UnsupportedVersion" not in mirror.log(), mirror.log()
