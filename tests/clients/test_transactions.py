"""Goal: transactional clients of three families read, transform and write exactly once; who reads committed
records sees all of a transaction or nothing of it (S23).

Method: numbers go from one topic to another in transactions that commit their offsets too; every third one is
aborted, and read again. Then a second producer takes the first one's place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import aiokafka
import aiokafka.structs
import confluent_kafka
import kafka
import pytest
from kafka.structs import OffsetAndMetadata

from tests.clients.adaptors import Client
from tests.process import BrokerProcess
from tests.waiting import wait_for

COUNT = 300
AT_ONCE = 20
EARLIEST = {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.auto.commit": False}


def decisions() -> Iterator[bool]:
    """Every third transaction is aborted."""
    while True:
        yield from (True, True, False)


def by_confluent(bootstrap: str, source: str, sink: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": sink})
    producer.init_transactions(60)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": sink, **EARLIEST})
    consumer.subscribe([source])
    done = 0
    for is_commit in decisions():
        messages = consumer.consume(AT_ONCE, 1)
        if messages:
            producer.begin_transaction()
            for message in messages:
                producer.produce(sink, message.value(), message.key())
            places = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(
                [place for place in places if place.offset >= 0], consumer.consumer_group_metadata()
            )
            if is_commit:
                producer.commit_transaction()
                done += len(messages)
            else:
                producer.abort_transaction()
                for place in consumer.committed(consumer.assignment(), 60):
                    place.offset = max(0, place.offset)
                    consumer.seek(place)
        if done >= COUNT:
            break
    consumer.close()


def by_kafka_python(bootstrap: str, source: str, sink: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=sink)
    producer.init_transactions()
    consumer = kafka.KafkaConsumer(
        source, bootstrap_servers=bootstrap, group_id=sink, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed",
    )  # fmt: skip
    done = 0
    for is_commit in decisions():
        polled = consumer.poll(1000, max_records=AT_ONCE)
        if polled:
            producer.begin_transaction()
            for message in (one for messages in polled.values() for one in messages):
                producer.send(sink, message.value, message.key)
            offsets = {
                place: OffsetAndMetadata(consumer.position(place), "", -1) for place in consumer.assignment()
            }
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if is_commit:
                producer.commit_transaction()
                done += sum(map(len, polled.values()))
            else:
                producer.abort_transaction()
                for place in consumer.assignment():
                    consumer.seek(place, consumer.committed(place) or 0)
        if done >= COUNT:
            break
    consumer.close()
    producer.close()


def by_aiokafka(bootstrap: str, source: str, sink: str) -> None:
    async def copy() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=sink)
        consumer = aiokafka.AIOKafkaConsumer(
            source, bootstrap_servers=bootstrap, group_id=sink, auto_offset_reset="earliest",
            enable_auto_commit=False, isolation_level="read_committed",
        )  # fmt: skip
        await producer.start()
        await consumer.start()
        done = 0
        for is_commit in decisions():
            polled = await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE)
            if polled:
                await producer.begin_transaction()
                for message in (one for messages in polled.values() for one in messages):
                    await producer.send(sink, message.value, message.key)
                offsets = {place: await consumer.position(place) for place in consumer.assignment()}
                await producer.send_offsets_to_transaction(offsets, sink)
                if is_commit:
                    await producer.commit_transaction()
                    done += sum(map(len, polled.values()))
                else:
                    await producer.abort_transaction()
                    await consumer.seek_to_committed()
                    for place in consumer.assignment():
                        if await consumer.committed(place) is None:
                            consumer.seek(place, 0)
            if done >= COUNT:
                break
        await consumer.stop()
        await producer.stop()

    asyncio.run(copy())


COPIES = {"confluent-kafka": by_confluent, "kafka-python": by_kafka_python, "aiokafka": by_aiokafka}


def committed_values(bootstrap: str, topic: str, count: int, partitions: int = 2) -> list[bytes]:
    """What readers of committed records have, up to the end."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", **EARLIEST})
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []

    def is_all() -> bool:
        values.extend(message.value() for message in consumer.consume(500, 1))
        return len(values) >= count

    wait_for(is_all, f"{count} records of {topic}")
    values.extend(message.value() for message in consumer.consume(500, 1))
    consumer.close()
    return values


@pytest.mark.parametrize("name", list(COPIES))
def test_s23_exactly_once(broker: BrokerProcess, confluent: Client, topic: str, name: str) -> None:
    """Numbers and offsets in one transaction; T195: the group ends where the numbers do."""
    source, sink = f"{topic}-source", f"{topic}-sink"
    for one in (source, sink):
        confluent.create_topic(one, partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        producer.produce(source, b"%d" % number, b"%d" % (number % 7), number % 2)
    assert producer.flush(60) == 0
    copy: Callable[[str, str, str], None] = COPIES[name]
    copy(broker.bootstrap, source, sink)
    values = committed_values(broker.bootstrap, sink, COUNT)
    assert sorted(map(int, values)) == list(range(COUNT))
    group = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": sink})
    places = group.committed([confluent_kafka.TopicPartition(source, index) for index in (0, 1)], 60)
    assert [place.offset for place in places] == [COUNT // 2] * 2
    group.close()


def test_a_second_producer_takes_the_place_of_the_first(
    broker: BrokerProcess, confluent: Client, topic: str
) -> None:
    confluent.create_topic(topic)
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": topic}
    first = confluent_kafka.Producer(settings)
    first.init_transactions(60)
    first.begin_transaction()
    first.produce(topic, b"of a zombie")
    assert first.flush(60) == 0
    second = confluent_kafka.Producer(settings)
    second.init_transactions(60)
    with pytest.raises(confluent_kafka.KafkaException, match="fenced"):
        first.commit_transaction(60)
    second.begin_transaction()
    second.produce(topic, b"of the living")
    second.commit_transaction(60)
    assert committed_values(broker.bootstrap, topic, 1, partitions=1) == [b"of the living"]
