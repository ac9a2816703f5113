"""Goal: partitions, order, keys and groups behave as promised (S14 to S20, S24), as unmodified clients see
them.

Method: records with known keys and partitions; where a client chooses the partition, the choice is compared
with the published hash of that client, computed here on its own.
"""

from __future__ import annotations

import binascii
import threading
from collections.abc import Callable

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.clients.adaptors import CLIENTS, Client, Confluent, Sent
from tests.process import BrokerProcess
from tests.waiting import wait_for


def admin_of(broker: BrokerProcess) -> confluent_kafka.admin.AdminClient:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})


def test_s14_a_partition_is_read_in_the_order_it_was_written(client: Client, topic: str) -> None:
    client.create_topic(topic)
    sent = [Sent(b"k", b"%d" % number, 0) for number in range(500)]
    client.produce(topic, sent)
    assert [record.value for record in client.read(topic, 0, 0, 500)] == [record.value for record in sent]


def test_s15_order_holds_inside_a_partition_only(client: Client, topic: str) -> None:
    client.create_topic(topic, 2)
    sent = [Sent(b"k", b"%d" % number, number % 2) for number in range(100)]
    client.produce(topic, sent)
    read = [client.read(topic, partition, 0, 50) for partition in (0, 1)]
    for partition, records in enumerate(read):
        assert [int(record.value or b"") for record in records] == list(range(partition, 100, 2))
    # Nothing relates the two: either partition can be read whole before the other is looked at.
    assert {int(record.value or b"") for records in read for record in records} == set(range(100))


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner (Austin Appleby's MurmurHash2, seed 0x9747b28c), 32 bits."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    value = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        value = value * factor & mask ^ word
    tail = data[whole:]
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * factor & mask
    value = (value ^ value >> 13) * factor & mask
    return value ^ value >> 15


PARTITIONERS: dict[str, Callable[[bytes], int]] = {
    "confluent-kafka": binascii.crc32,
    "aiokafka": lambda key: murmur2(key) & 0x7FFFFFFF,
    "kafka-python": lambda key: murmur2(key) & 0x7FFFFFFF,
}


@pytest.mark.parametrize("name", list(CLIENTS))
def test_s16_a_key_always_goes_to_the_partition_its_client_hashes_it_to(
    name: str, broker: BrokerProcess, topic: str
) -> None:
    """librdkafka hashes by CRC-32, the others as Java does by murmur2: the same key may differ between
    clients.
    """
    client = CLIENTS[name](broker.bootstrap)
    client.create_topic(topic, 5)
    keys = [f"key-{number}".encode() for number in range(40)]
    first = client.produce(topic, [Sent(key, b"1") for key in keys])
    again = client.produce(topic, [Sent(key, b"2") for key in keys])
    assert [partition for partition, _ in first] == [PARTITIONERS[name](key) % 5 for key in keys]
    assert [partition for partition, _ in again] == [partition for partition, _ in first]


def test_s17_a_topic_of_three_partitions_is_three_logs_in_three_directories(
    client: Client, broker: BrokerProcess, topic: str
) -> None:
    name = f"payments-{topic}"
    client.create_topic(name, 3)
    metadata = admin_of(broker).list_topics(name, 30).topics[name]
    assert sorted(metadata.partitions) == [0, 1, 2]
    assert sorted(path.name for path in broker.data.glob(f"{name}-*")) == [f"{name}-{n}" for n in range(3)]


def test_s18_each_partition_has_an_end_of_its_own(client: Client, topic: str) -> None:
    client.create_topic(topic, 3)
    counts = (3, 2, 4)
    for partition, count in enumerate(counts):
        client.produce(topic, [Sent(b"k", b"v", partition)] * count)
    assert tuple(client.offsets(topic, partition)[1] for partition in range(3)) == counts


def test_s19_producers_and_members_work_in_parallel(broker: BrokerProcess, topic: str) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(topic, 4)
    workers = [
        threading.Thread(
            target=client.produce, args=(topic, [Sent(b"k", b"%d" % n, partition) for n in range(200)])
        )
        for partition in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    received: dict[int, int] = {}

    def read(partition: int) -> None:
        received[partition] = len(client.read(topic, partition, 0, 200))

    readers = [threading.Thread(target=read, args=(partition,)) for partition in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert received == dict.fromkeys(range(4), 200)


def test_s20_partitions_can_be_added_but_not_taken_away(broker: BrokerProcess, topic: str) -> None:
    client = Confluent(broker.bootstrap)
    client.create_topic(topic, 2)
    client.produce(topic, [Sent(b"k", b"v", 1)])
    options = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": topic,
        "topic.metadata.refresh.interval.ms": 100,
    }
    member = confluent_kafka.Consumer(options)
    member.subscribe([topic])
    wait_for(lambda: member.poll(0.05) or len(member.assignment()) == 2, "an assignment of two partitions")
    admin = admin_of(broker)
    (grown,) = admin.create_partitions([confluent_kafka.admin.NewPartitions(topic, 4)]).values()
    grown.result(30)
    (shrunk,) = admin.create_partitions([confluent_kafka.admin.NewPartitions(topic, 3)]).values()
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        shrunk.result(30)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.INVALID_PARTITIONS
    assert sorted(admin.list_topics(topic, 30).topics[topic].partitions) == [0, 1, 2, 3]
    assert client.produce(topic, [Sent(b"k", b"v", 3)]) == [(3, 0)]
    assert client.offsets(topic, 1) == (0, 1)
    wait_for(
        lambda: member.poll(0.05) is None and len(member.assignment()) == 4,
        "the rebalance to four partitions",
    )
    member.close()


def test_s24_members_move_partitions_and_one_too_many_is_idle(broker: BrokerProcess, topic: str) -> None:
    Confluent(broker.bootstrap).create_topic(topic, 2)
    options = {"bootstrap.servers": broker.bootstrap, "group.id": topic}
    members: list[confluent_kafka.Consumer] = []

    def shares() -> list[int]:
        for member in members:
            member.poll(0.02)
        return sorted(len(member.assignment()) for member in members)

    for expected in ([2], [1, 1], [0, 1, 1]):
        member = confluent_kafka.Consumer(options)
        member.subscribe([topic])
        members.append(member)
        wait_for(  # type: ignore[misc]
            lambda wanted=expected: shares() == wanted, f"an assignment of {expected}"
        )
    members.pop().close()
    members.pop(0).close()
    wait_for(lambda: shares() == [2], "the remaining member to take over everything")
    members[0].close()
