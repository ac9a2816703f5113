"""What happens to topics between the runs of a stream that reads them, as dice say."""

from __future__ import annotations

import json
import random

import confluent_kafka
import confluent_kafka.admin

from tests.spark.peer.dice import Logs, Partition
from tests.spark.peer.topics import Options, Topics, transact
from tests.spark.test_spark import CODECS, create_topic, produce
from tests.waiting import wait_for

KINDS = {
    "produce": 10,
    "transact": 3,
    "delete": 2,
    "add partition": 1,
    "add topic": 1,
    "make again": 1,
    "nothing": 1,
}
"""and how often"""


class Story:
    """Of two topics at first; `told` is what happened."""

    def __init__(self, topics: Topics, dice: random.Random) -> None:
        self._topics, self._dice = topics, dice
        self.names = [create_topic(topics.bootstrap) for _ in range(2)]
        self.told: list[str] = []
        self._sent = 0

    def goes_on(self) -> None:
        for kind in self._dice.choices([*KINDS], [*KINDS.values()], k=self._dice.randint(1, 3)):
            name = self._dice.choice(self.names)
            self.told.append(f"{kind} {name}")
            getattr(self, "_" + kind.replace(" ", "_"))(name)

    def subscription(self, kind: str) -> Options:
        """Of all topics that there are; assigned are the partitions that every topic has."""
        if kind == "assign":
            return {kind: json.dumps({name: [0, 1, 2] for name in self.names})}
        return {kind: ("|" if kind == "subscribePattern" else ",").join(self.names)}

    def logs(self) -> Logs:
        """Where the partitions that every topic has begin and end."""
        return {name: tuple(Partition(*one) for one in self._topics.bounds(name)) for name in self.names}

    def _nothing(self, name: str) -> None:
        pass

    def _produce(self, name: str) -> None:
        count = self._dice.randint(1, 60)
        produce(self._topics.bootstrap, name, count, self._dice.choice(CODECS), first=self._sent)
        self._sent += count

    def _transact(self, name: str) -> None:
        producer = self._topics.transactional_producer(name)
        transact(producer, name, self._sent)
        (producer.abort_transaction if self._dice.random() < 0.5 else producer.commit_transaction)(60)

    def _delete(self, name: str) -> None:
        partition = confluent_kafka.TopicPartition(name, self._dice.randrange(3), confluent_kafka.OFFSET_END)
        if self._dice.random() < 0.7:
            (bounds,) = self._topics.bounds(name, [partition.partition])
            partition.offset = self._dice.randint(*bounds)
        for done in self._topics.admin.delete_records([partition]).values():
            done.result(30)

    def _add_partition(self, name: str) -> None:
        count = len(self._topics.admin.list_topics(name, 30).topics[name].partitions)
        more = confluent_kafka.admin.NewPartitions(name, count + 1)
        for done in self._topics.admin.create_partitions([more]).values():
            done.result(30)

    def _add_topic(self, name: str) -> None:
        self.names.append(create_topic(self._topics.bootstrap))

    def _make_again(self, name: str) -> None:
        for done in self._topics.admin.delete_topics([name]).values():
            done.result(30)
        wait_for(lambda: name not in self._topics.admin.list_topics(timeout=30).topics, "no such topic", 60.0)
        create_topic(self._topics.bootstrap, name=name)
