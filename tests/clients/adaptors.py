"""Three unmodified Kafka clients behind one small interface, so that each promise is put to all of them.

Nothing here bends a client: only documented calls, with the client's own defaults unless a test asks
otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic

T = TypeVar("T")
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Sent:
    """A record as a test gives it to a producer; `partition` None leaves the choice to the client."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class Received:
    """A record as a consumer gave it to the test."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = -1


class Refused(Exception):
    """The broker's error for a record, by Kafka's number."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Client(Protocol):
    """What a test may ask of a client."""

    bootstrap: str

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None: ...

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> list[tuple[int, int]]:
        """(partition, offset) of each record; Refused with the broker's code when one is refused."""

    def read(self, topic: str, partition: int, start: int, end: int) -> list[Received]:
        """Without a group: seek to `start`, read until the position reaches `end`."""

    def read_as_group(self, topic: str, group: str, count: int, *, commit: bool = True) -> list[Received]:
        """As a member of `group`: read at least `count` records, commit what was read when `commit`."""

    def commit(self, topic: str, group: str, partition: int, offset: int, metadata: str = "") -> None: ...

    def committed(self, topic: str, group: str, partition: int) -> int | None: ...

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """(first, end) offsets of the partition."""

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None: ...


@dataclass
class Confluent:
    """confluent-kafka, that is librdkafka."""

    bootstrap: str
    options: dict[str, Any] = field(default_factory=dict)

    def _consumer(self, group: str, **options: Any) -> confluent_kafka.Consumer:
        given = {"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False}
        return confluent_kafka.Consumer({**given, "auto.offset.reset": "earliest", **options})

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap})
        asked = confluent_kafka.admin.NewTopic(topic, partitions, 1, config=dict(config or {}))
        for future in admin.create_topics([asked]).values():
            future.result(TIMEOUT_SECONDS)

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> list[tuple[int, int]]:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "compression.type": codec, "linger.ms": 5, **self.options}
        )
        placed: list[tuple[int, int]] = [(-1, -1)] * len(records)
        refused: list[Refused] = []

        def report_to(index: int) -> Callable[[Any, Any], None]:
            def report(error: Any, message: Any) -> None:
                if error is not None:
                    refused.append(Refused(error.code(), str(error)))
                else:
                    placed[index] = (message.partition(), message.offset())

            return report

        for index, record in enumerate(records):
            options: dict[str, Any] = {"on_delivery": report_to(index), "headers": list(record.headers)}
            if record.partition is not None:
                options["partition"] = record.partition
            if record.timestamp_ms is not None:
                options["timestamp"] = record.timestamp_ms
            producer.produce(topic, record.value, record.key, **options)
        assert producer.flush(TIMEOUT_SECONDS) == 0
        if refused:
            raise refused[0]
        return placed

    @staticmethod
    def _received(message: confluent_kafka.Message) -> Received:
        assert message.error() is None, message.error()
        headers = tuple(message.headers() or ())
        return Received(
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            headers,
            message.timestamp()[1],
        )

    def read(self, topic: str, partition: int, start: int, end: int) -> list[Received]:
        consumer = self._consumer("reader-without-group")
        place = confluent_kafka.TopicPartition(topic, partition, start)
        consumer.assign([place])
        received: list[Received] = []
        while start < end and consumer.position([place])[0].offset < end:
            message = consumer.poll(0.2)
            if message is not None:
                received.append(self._received(message))
        consumer.close()
        return [record for record in received if record.offset < end]

    def read_as_group(self, topic: str, group: str, count: int, *, commit: bool = True) -> list[Received]:
        consumer = self._consumer(group)
        consumer.subscribe([topic])
        received: list[Received] = []
        while len(received) < count:
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, f"only {len(received)} of {count} records came"
            received.append(self._received(message))
        if commit:
            consumer.commit(asynchronous=False)
        consumer.close()
        return received

    def commit(self, topic: str, group: str, partition: int, offset: int, metadata: str = "") -> None:
        consumer = self._consumer(group)
        place = confluent_kafka.TopicPartition(topic, partition, offset, metadata)
        for committed in consumer.commit(offsets=[place], asynchronous=False):
            assert committed.error is None, committed.error
        consumer.close()

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        consumer = self._consumer(group)
        (place,) = consumer.committed([confluent_kafka.TopicPartition(topic, partition)], TIMEOUT_SECONDS)
        consumer.close()
        return place.offset if place.offset >= 0 else None

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer("watermarks")
        low, high = consumer.get_watermark_offsets(
            confluent_kafka.TopicPartition(topic, partition), TIMEOUT_SECONDS
        )
        consumer.close()
        return low, high

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer("times")
        asked = confluent_kafka.TopicPartition(topic, partition, timestamp_ms)
        (found,) = consumer.offsets_for_times([asked], TIMEOUT_SECONDS)
        consumer.close()
        return found.offset if found.offset >= 0 else None


@dataclass
class KafkaPython:
    """kafka-python 3, pure Python."""

    bootstrap: str

    def _consumer(self, group: str | None, **options: Any) -> kafka.KafkaConsumer:
        given = {"bootstrap_servers": self.bootstrap, "group_id": group, "enable_auto_commit": False}
        return kafka.KafkaConsumer(**{**given, "auto_offset_reset": "earliest", **options})

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        admin = kafka.KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_topics([kafka.admin.NewTopic(topic, partitions, 1, topic_configs=dict(config or {}))])
        admin.close()

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> list[tuple[int, int]]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5
        )
        futures = [
            producer.send(
                topic, record.value, record.key, list(record.headers), record.partition, record.timestamp_ms
            )
            for record in records
        ]
        producer.flush(timeout=TIMEOUT_SECONDS)
        try:
            metadata = [future.get(timeout=TIMEOUT_SECONDS) for future in futures]
        except kafka.errors.KafkaError as error:
            raise Refused(error.errno, str(error)) from error
        finally:
            producer.close()
        return [(each.partition, each.offset) for each in metadata]

    @staticmethod
    def _received(record: Any) -> Received:
        headers = tuple((name, value) for name, value in record.headers)
        return Received(record.partition, record.offset, record.key, record.value, headers, record.timestamp)

    def read(self, topic: str, partition: int, start: int, end: int) -> list[Received]:
        consumer = self._consumer(None)
        place = kafka.TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, start)
        received: list[Received] = []
        while start < end and consumer.position(place) < end:
            for records in consumer.poll(timeout_ms=200).values():
                received.extend(map(self._received, records))
        consumer.close()
        return [record for record in received if record.offset < end]

    def read_as_group(self, topic: str, group: str, count: int, *, commit: bool = True) -> list[Received]:
        consumer = self._consumer(group)
        consumer.subscribe([topic])
        received: list[Received] = []
        while len(received) < count:
            for records in consumer.poll(timeout_ms=1000).values():
                received.extend(map(self._received, records))
        if commit:
            consumer.commit()
        consumer.close()
        return received

    def commit(self, topic: str, group: str, partition: int, offset: int, metadata: str = "") -> None:
        consumer = self._consumer(group)
        place = kafka.TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.commit({place: kafka.OffsetAndMetadata(offset, metadata, -1)})
        consumer.close()

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        consumer = self._consumer(group)
        offset: int | None = consumer.committed(kafka.TopicPartition(topic, partition))
        consumer.close()
        return offset

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer(None)
        place = kafka.TopicPartition(topic, partition)
        first, end = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
        consumer.close()
        return first, end

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer(None)
        place = kafka.TopicPartition(topic, partition)
        found = consumer.offsets_for_times({place: timestamp_ms})[place]
        consumer.close()
        return found.offset if found is not None else None


@dataclass
class Aiokafka:
    """aiokafka; each call runs a loop of its own."""

    bootstrap: str

    def _consumer(self, group: str | None, *topics: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )

    def _with_consumer(
        self, group: str | None, work: Callable[[AIOKafkaConsumer], Awaitable[T]], *topics: str
    ) -> T:
        async def run() -> T:
            consumer = self._consumer(group, *topics)
            await consumer.start()
            try:
                return await work(consumer)
            finally:
                await consumer.stop()

        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        async def run() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            answer = await admin.create_topics(
                [AioNewTopic(topic, partitions, 1, topic_configs=dict(config or {}))]
            )
            await admin.close()
            for _, code, text in (error[:3] for error in answer.topic_errors):
                if code:
                    raise Refused(code, text or "")

        asyncio.run(run())

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> list[tuple[int, int]]:
        async def run() -> list[tuple[int, int]]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=5,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                metadata = await asyncio.gather(*futures)
            except Exception as error:
                raise Refused(getattr(error, "errno", -1), str(error)) from error
            finally:
                await producer.stop()
            return [(each.partition, each.offset) for each in metadata]

        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))

    @staticmethod
    def _received(record: Any) -> Received:
        headers = tuple((name, value) for name, value in record.headers)
        return Received(record.partition, record.offset, record.key, record.value, headers, record.timestamp)

    def read(self, topic: str, partition: int, start: int, end: int) -> list[Received]:
        place = AioTopicPartition(topic, partition)

        async def work(consumer: AIOKafkaConsumer) -> list[Received]:
            consumer.assign([place])
            consumer.seek(place, start)
            received: list[Received] = []
            while start < end and await consumer.position(place) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    received.extend(map(self._received, records))
            return [record for record in received if record.offset < end]

        return self._with_consumer(None, work)

    def read_as_group(self, topic: str, group: str, count: int, *, commit: bool = True) -> list[Received]:
        async def work(consumer: AIOKafkaConsumer) -> list[Received]:
            received: list[Received] = []
            while len(received) < count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    received.extend(map(self._received, records))
            if commit:
                await consumer.commit()
            return received

        return self._with_consumer(group, work, topic)

    def commit(self, topic: str, group: str, partition: int, offset: int, metadata: str = "") -> None:
        place = AioTopicPartition(topic, partition)

        async def work(consumer: AIOKafkaConsumer) -> None:
            consumer.assign([place])
            await consumer.commit({place: (offset, metadata)})

        self._with_consumer(group, work)

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        place = AioTopicPartition(topic, partition)

        async def work(consumer: AIOKafkaConsumer) -> int | None:
            consumer.assign([place])
            return await consumer.committed(place)

        return self._with_consumer(group, work)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        place = AioTopicPartition(topic, partition)

        async def work(consumer: AIOKafkaConsumer) -> tuple[int, int]:
            first, end = await consumer.beginning_offsets([place]), await consumer.end_offsets([place])
            return first[place], end[place]

        return self._with_consumer(None, work)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = AioTopicPartition(topic, partition)

        async def work(consumer: AIOKafkaConsumer) -> int | None:
            found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
            return found.offset if found is not None else None

        return self._with_consumer(None, work)


def committed_metadata(bootstrap: str, topic: str, group: str, partition: int) -> str:
    """What was committed beside an offset, as kafka-python reads it. confluent-kafka sends a zero byte behind
    it, and reads on in its memory up to the next one where another client has sent none.
    """
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
    found = consumer.committed(kafka.TopicPartition(topic, partition), metadata=True)
    consumer.close()
    return str(found.metadata).removesuffix("\0")


CLIENTS: dict[str, Callable[[str], Client]] = {
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}
