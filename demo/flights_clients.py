"""The demo's clients: an unmodified confluent-kafka producer, group consumers, and a reader of the whole
topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import confluent_kafka
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.flights_input import Flights

Place = tuple[int, int]  # (partition, offset)
POLL_SECONDS = 0.1
FETCH_COUNT = 2000


@dataclass
class Produced:
    """What was acknowledged: the key at each place, and the bytes of keys and values in each partition."""

    key_at: dict[Place, bytes] = field(default_factory=dict)
    bytes_of_partition: Counter[int] = field(default_factory=Counter)

    def records(self, partition: int) -> int:
        return sum(place[0] == partition for place in self.key_at)


def produce_flights(bootstrap: str, topic: str, flights: Flights, console: Console) -> Produced:
    """Produce every flight that has a plane, acks=all, idempotent, and wait for the acknowledgements."""
    produced = Produced()

    def report(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        produced.key_at[message.partition(), message.offset()] = message.key()
        produced.bytes_of_partition[message.partition()] += len(message.key()) + len(message.value())

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
        }
    )
    columns = TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        rows = flights.with_plane
        task = progress.add_task("producing", total=len(rows))
        for number, flight in enumerate(rows, 1):
            while True:
                try:
                    producer.produce(
                        topic,
                        flight.document,
                        flight.plane,
                        timestamp=flight.departure_ms,
                        on_delivery=report,
                    )
                    break
                except BufferError:
                    producer.poll(POLL_SECONDS)
            if number % FETCH_COUNT == 0:
                producer.poll(0)
                progress.update(task, completed=len(produced.key_at))
        left = producer.flush(60)
        progress.update(task, completed=len(produced.key_at))
    assert left == 0, f"{left} flights were not acknowledged"
    return produced


@dataclass
class Consumed:
    """What members of a group have read: the key at each place, and whether they came to the end of the
    topic.
    """

    records: dict[Place, bytes] = field(default_factory=dict)
    at_end: bool = False

    def merged(self, other: Consumed) -> Consumed:
        return Consumed({**self.records, **other.records}, other.at_end)


def _ends(consumer: confluent_kafka.Consumer, topic: str) -> dict[int, int]:
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    return {
        partition: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), 30)[1]
        for partition in partitions
    }


def consume_as_group(bootstrap: str, topic: str, group: str, done: Callable[[Consumed], bool]) -> Consumed:
    """Read as the one member of `group`, committing after each poll, until `done`; the member leaves
    cleanly.
    """
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    seen = Consumed()
    while not done(seen):
        messages = consumer.consume(FETCH_COUNT, POLL_SECONDS)
        for message in messages:
            if message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
            place = message.partition(), message.offset()
            assert place not in seen.records, f"{place} came twice"
            seen.records[place] = message.key()
        seen.at_end = False
        if messages:
            consumer.commit(asynchronous=False)
        elif consumer.assignment():
            ends = _ends(consumer, topic)
            positions = {place.partition: place.offset for place in consumer.position(consumer.assignment())}
            seen.at_end = all(positions.get(partition, -1) >= end for partition, end in ends.items() if end)
    consumer.close()
    return seen


def read_table(bootstrap: str, topic: str, partitions: int) -> dict[bytes, bytes]:
    """The last value of each key, read from the first offset to the end without a group."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "table"})
    places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
    ends = _ends(consumer, topic)
    consumer.assign(places)
    table: dict[bytes, bytes] = {}
    while any(place.offset < ends[place.partition] for place in consumer.position(places)):
        for message in consumer.consume(FETCH_COUNT, POLL_SECONDS):
            if message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
            table[message.key()] = message.value()
    consumer.close()
    return table
