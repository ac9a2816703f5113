"""Goal: offsets, positions and commits behave as promised (S1 to S13), as three unmodified clients see them.

Method: each test produces a handful of records, reads them back through the same client, and compares offsets
and bytes; restarts and deletions are real.
"""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.clients.adaptors import CLIENTS, Client, Confluent, Sent, committed_metadata
from tests.clients.conftest import COMPACTED, MINUTE_MS, wait_until_compacted
from tests.process import BrokerProcess
from tests.waiting import wait_for

NOW_MS = 1_700_000_000_000


def numbered(count: int, partition: int = 0, prefix: str = "v") -> list[Sent]:
    return [Sent(b"k%d" % number, f"{prefix}{number}".encode(), partition) for number in range(count)]


def changing_keys(rounds: int, keys: int = 3) -> list[Sent]:
    """`rounds` values for each of `keys` keys; each round starts a segment by its timestamp (COMPACTED)."""
    return [
        Sent(b"k%d" % key, b"v%d" % number, 0, timestamp_ms=NOW_MS + number * MINUTE_MS)
        for number in range(rounds)
        for key in range(keys)
    ]


def produce_in_batches(client: Client, topic: str, records: list[Sent], size: int) -> None:
    for start in range(0, len(records), size):
        client.produce(topic, records[start : start + size])


def test_s1_records_are_numbered_from_zero(client: Client, topic: str) -> None:
    client.create_topic(topic)
    placed = client.produce(topic, numbered(5)) + client.produce(topic, numbered(5))
    assert placed == [(0, offset) for offset in range(10)]
    assert [record.offset for record in client.read(topic, 0, 0, 10)] == list(range(10))


def test_s2_each_partition_counts_for_itself(client: Client, topic: str) -> None:
    client.create_topic(topic, 2)
    placed = client.produce(topic, [Sent(b"a", b"1", 0), Sent(b"b", b"2", 1)])
    assert placed == [(0, 0), (1, 0)]
    assert client.read(topic, 0, 0, 1)[0].value == b"1"
    assert client.read(topic, 1, 0, 1)[0].value == b"2"


def test_s3_offsets_are_never_reused(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    """Not after deleted records, not after a restart."""
    broker = own_broker()
    client = CLIENTS["confluent-kafka"](broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, numbered(10))
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    everything = confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_END)
    (future,) = admin.delete_records([everything]).values()
    assert future.result(30).low_watermark == 10
    assert client.produce(topic, numbered(1)) == [(0, 10)]
    assert broker.stop() == 0
    broker.start()
    assert client.offsets(topic, 0) == (10, 11)
    assert client.produce(topic, numbered(1)) == [(0, 11)]
    broker.kill()
    broker.start()
    assert client.produce(topic, numbered(1)) == [(0, 12)]


def test_s4_replay_reads_the_same_bytes_any_number_of_times(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, numbered(20))
    first = client.read(topic, 0, 7, 20)
    assert [record.value for record in first] == [b"v%d" % number for number in range(7, 20)]
    assert client.read(topic, 0, 7, 20) == first
    assert client.read(topic, 0, 12, 20) == first[5:]


def test_s5_two_groups_read_at_places_of_their_own(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, numbered(10))
    client.commit(topic, f"{topic}-ahead", 0, 8)
    assert len(client.read_as_group(topic, f"{topic}-ahead", 2)) == 2
    assert len(client.read_as_group(topic, f"{topic}-behind", 10)) == 10
    assert client.committed(topic, f"{topic}-ahead", 0) == 10


def read_some(broker: BrokerProcess, topic: str, group: str, count: int, **options: object) -> list[int]:
    """Offsets of `count` records read by a member of `group` with the client's own auto-commit settings."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest", **options}
    )
    consumer.subscribe([topic])
    offsets: list[int] = []
    while len(offsets) < count:
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        offsets.append(message.offset())
    if options.get("enable.auto.offset.store") is not False:
        wait_for(
            lambda: (
                consumer.poll(0.05) is not None
                or consumer.committed([confluent_kafka.TopicPartition(topic, 0)], 30)[0].offset >= count
            ),
            "the auto-commit",
        )
    consumer.close()
    return offsets


def test_s6_auto_commit_repeats_or_loses_by_the_moment_of_the_crash(
    broker: BrokerProcess, topic: str
) -> None:
    """A crash between poll and commit means re-delivery; one after the commit, that nothing comes again."""
    client = Confluent(broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, numbered(4))
    assert read_some(broker, topic, topic, 4, **{"enable.auto.offset.store": False}) == [0, 1, 2, 3]
    assert read_some(broker, topic, topic, 4, **{"auto.commit.interval.ms": 50}) == [0, 1, 2, 3]
    assert client.committed(topic, topic, 0) == 4
    client.produce(topic, numbered(1))
    assert [record.offset for record in client.read_as_group(topic, topic, 1)] == [4]


def test_s7_manual_commit_is_the_next_offset_to_read_and_keeps_its_metadata(
    client: Client, topic: str
) -> None:
    client.create_topic(topic)
    client.produce(topic, numbered(6))
    client.commit(topic, topic, 0, 4, "processed up to 3")
    assert client.committed(topic, topic, 0) == 4
    assert [record.offset for record in client.read_as_group(topic, topic, 2)] == [4, 5]
    client.commit(topic, topic, 0, 5, "by hand")
    assert client.committed(topic, topic, 0) == 5
    assert committed_metadata(client.bootstrap, topic, topic, 0) == "by hand"


def test_s7_asynchronous_commit_arrives_too(broker: BrokerProcess, topic: str) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, numbered(3))
    done: list[object] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "on_commit": lambda error, partitions: done.append((error, partitions[0].offset)),
        }
    )
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 2)], asynchronous=True)
    wait_for(lambda: consumer.poll(0.05) or done, "the commit's answer")
    consumer.close()
    assert done == [(None, 2)]
    assert client.committed(topic, topic, 0) == 2


def test_s8_commits_are_records_of_a_compacted_topic_and_survive_restart(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker(offsets_topic_num_partitions="1")
    client = CLIENTS["confluent-kafka"](broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, numbered(3))
    client.commit(topic, "keeper", 0, 2)
    _, end = client.offsets("__consumer_offsets", 0)
    keys = [record.key for record in client.read("__consumer_offsets", 0, 0, end)]
    name, group = topic.encode(), b"keeper"
    expected = (
        b"\0\1" + len(group).to_bytes(2, "big") + group + len(name).to_bytes(2, "big") + name + bytes(4)
    )
    assert expected in keys
    broker.kill()
    broker.start()
    assert client.committed(topic, "keeper", 0) == 2
    assert broker.stop() == 0
    broker.start()
    assert client.committed(topic, "keeper", 0) == 2


def test_s9_a_consumer_that_keeps_its_offsets_elsewhere_commits_nothing(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, numbered(10))
    kept_elsewhere = 0
    for _ in range(5):
        records = client.read(topic, 0, kept_elsewhere, kept_elsewhere + 2)
        kept_elsewhere = records[-1].offset + 1
    assert kept_elsewhere == 10
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": client.bootstrap})
    groups = {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    assert "reader-without-group" not in groups


def test_s10_record_offset_commit_position_and_lag_are_all_readable(
    broker: BrokerProcess, topic: str
) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(topic)
    client.produce(topic, numbered(10))
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "enable.auto.commit": False}
    )
    place = confluent_kafka.TopicPartition(topic, 0, 0)
    consumer.assign([place])
    for expected in range(4):
        message = consumer.poll(60)
        assert message is not None and message.offset() == expected
    assert consumer.position([place])[0].offset == 4
    consumer.commit(asynchronous=False)
    consumer.close()
    assert client.committed(topic, topic, 0) == 4
    assert client.offsets(topic, 0) == (0, 10)
    wait_for(
        lambda: any(
            line.startswith("kafka_consumergroup_lag{")
            and f'topic="{topic}"' in line
            and line.endswith(" 6.0")
            for line in broker.http("/metrics").splitlines()
        ),
        "the group's lag of 6 in the metrics",
    )


def test_s11_members_of_a_group_read_their_partitions_side_by_side(broker: BrokerProcess, topic: str) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(topic, 3)
    for partition in range(3):
        client.produce(topic, numbered(5, partition))
    options = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    members = [confluent_kafka.Consumer(options) for _ in range(3)]
    for member in members:
        member.subscribe([topic])
    read: list[tuple[int, int, int]] = []

    def all_read() -> bool:
        for number, member in enumerate(members):
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                read.append((number, message.partition(), message.offset()))
        alone = all(len(member.assignment()) == 1 for member in members)
        return alone and len({(partition, offset) for _, partition, offset in read}) == 15

    wait_for(all_read, "three members with a partition each, and all 15 records")
    for member in members:
        member.close()


@pytest.mark.parametrize("name", list(CLIENTS))
def test_s12_s72_a_removed_offset_reads_as_the_next_that_survives(
    name: str, broker: BrokerProcess, topic: str
) -> None:
    client = CLIENTS[name](broker.bootstrap)
    client.create_topic(topic, 1, COMPACTED)
    produce_in_batches(client, topic, changing_keys(4), 3)
    wait_until_compacted(broker, topic, 0, 9)
    assert [(record.offset, record.value) for record in client.read(topic, 0, 0, 12)] == [
        (6, b"v2"),
        (7, b"v2"),
        (8, b"v2"),
        (9, b"v3"),
        (10, b"v3"),
        (11, b"v3"),
    ]
    assert [record.offset for record in client.read(topic, 0, 2, 12)] == [6, 7, 8, 9, 10, 11]


def test_s13_an_offset_never_changes(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    """Not by cleanings, not by restarts."""
    broker = own_broker()
    client = CLIENTS["confluent-kafka"](broker.bootstrap)
    client.create_topic(topic, 1, COMPACTED)
    records = changing_keys(18)
    for end in (18, 36, 54):
        produce_in_batches(client, topic, records[end - 18 : end], 3)
        wait_until_compacted(broker, topic, 0, end - 3)
        for _ in range(2):
            read = client.read(topic, 0, 0, end)
            assert [record.offset for record in read] == list(range(end - 6, end))
            for record in read:
                sent = records[record.offset]
                assert (record.key, record.value) == (sent.key, sent.value)
                assert record.timestamp_ms == sent.timestamp_ms
            assert broker.stop() == 0
            broker.start()
        assert client.offsets(topic, 0) == (0, end)
