"""Members of a group as the tests run them: confluent-kafka consumers in threads of their own, and what to
compare what they did with.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

from tests.clients.adaptors import Sent
from tests.process import BrokerProcess

PARTITIONS = 4
COUNT = 200


def records(count: int = COUNT) -> list[Sent]:
    return [Sent(b"k%d" % number, b"%d" % number, number % PARTITIONS) for number in range(count)]


class Member:
    """A confluent-kafka consumer in a thread of its own that commits what it processed before it lets go."""

    def __init__(
        self, broker: BrokerProcess, topic: str, group: str, forward: str | None = None, **options: Any
    ) -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        is_classic = options.get("group_protocol") != "consumer"
        if is_classic:
            settings.update({"session.timeout.ms": 6000, "heartbeat.interval.ms": 200})
        self._consumer = Consumer({**settings, **{name.replace("_", "."): v for name, v in options.items()}})
        self._producer = (
            confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap}) if forward else None
        )
        self._forward = forward
        is_cooperative = options.get("partition_assignment_strategy") == "cooperative-sticky"
        self._is_incremental = is_cooperative or not is_classic
        self._topic = topic
        self._leaving = threading.Event()
        self._positions: dict[int, int] = {}
        self.processed: list[tuple[int, int]] = []
        self.assigned: set[int] = set()
        self.assignments = 0
        self.revoked: list[int] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            self._consumer.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke)
            while not self._leaving.is_set():
                message = self._consumer.poll(0.05)
                if message is not None and message.error() is None:
                    self._process(message)
        except BaseException as error:
            self.failure = error
        finally:
            self._consumer.close()

    def _process(self, message: confluent_kafka.Message) -> None:
        self.processed.append((message.partition(), message.offset()))
        self._positions[message.partition()] = message.offset() + 1
        if self._producer is not None:
            self._producer.produce(self._forward, message.value(), message.key())

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        self.assigned |= {place.partition for place in partitions}
        if self._is_incremental:
            consumer.incremental_assign(partitions)

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._producer is not None:
            self._producer.flush()
        leaving = {place.partition for place in partitions}
        done = [
            TopicPartition(self._topic, partition, self._positions.pop(partition))
            for partition in leaving & set(self._positions)
        ]
        if done:
            consumer.commit(offsets=done, asynchronous=False)
        self.assigned -= leaving
        self.revoked += sorted(leaving)
        if self._is_incremental:
            consumer.incremental_unassign(partitions)


def shared_out(members: Sequence[Member]) -> bool:
    """Every partition belongs to exactly one of the members, and every member has some."""
    owned = sorted(partition for member in members for partition in member.assigned)
    return owned == list(range(PARTITIONS)) and all(member.assigned for member in members)


def processed(*members: Member) -> Counter[tuple[int, int]]:
    return Counter(place for member in members for place in member.processed)


def everything(count: int) -> set[tuple[int, int]]:
    return {(number % PARTITIONS, number // PARTITIONS) for number in range(count)}
