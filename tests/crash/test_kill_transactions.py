"""Goal: exactly once through `kill -9`: each number that was read is written once, in whole transactions,
and the group stands where the numbers do.

Method: a worker moves numbers from one topic to two partitions of another, offsets in the same transaction,
while the broker is killed at random moments and started again; the worker does what librdkafka's errors ask
for. At the end a reader of committed records must find each number once in each partition, and the directory
be in order.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import confluent_kafka
import pytest

from storage.verify import verify_data_directory
from tests.clients.adaptors import Confluent
from tests.process import BrokerProcess
from tests.waiting import wait_for

KILLS = 30
LEAST = 5000
SOURCE, SINK, GROUP = "numbers", "moved", "movers"
AT_ONCE = 200
PACE_SECONDS = 0.005
"""between two numbers: a worker keeps up with that"""


class Feeder:
    """Numbers into the source, until it is stopped. Owned by: its thread, then the test."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged = 0
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _report(self, error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        self.acknowledged += 1

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set() or number < LEAST:
            self._producer.produce(SOURCE, b"%d" % number, partition=0, on_delivery=self._report)
            number += 1
            self._producer.poll(PACE_SECONDS)

    def finish(self) -> int:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        return self.acknowledged


class Mover:
    """One transactional worker; a fatal error begins a new one, as a process that is started again. Owned
    by: its thread.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.commits = self.aborts = self.restarts = 0
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._work()
                except confluent_kafka.KafkaException as error:
                    if error.args[0].code() == confluent_kafka.KafkaError._FENCED:
                        raise AssertionError("nobody else has the id") from error
                    self.restarts += 1
        except BaseException as failure:
            self.failure = failure

    def _work(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 500}
        producer = confluent_kafka.Producer(
            {
                **settings,
                "transactional.id": GROUP,
                "transaction.timeout.ms": 60_000,
                # librdkafka 2.16 begins anew when its only broker is away, and then keeps a closed connection
                # to the group's coordinator: its TxnOffsetCommit is never sent.
                "metadata.recovery.strategy": "none",
            }
        )
        producer.init_transactions(60)
        consumer = confluent_kafka.Consumer(
            {**settings, "group.id": GROUP, "isolation.level": "read_committed", "enable.auto.commit": False}
        )
        committed = consumer.committed([confluent_kafka.TopicPartition(SOURCE, 0)], 60)[0]
        position = max(0, committed.offset)
        consumer.assign([confluent_kafka.TopicPartition(SOURCE, 0, position)])
        try:
            while not self._stop.is_set():
                messages = [one for one in consumer.consume(AT_ONCE, 0.5) if one.error() is None]
                if messages:
                    self._move(producer, consumer, messages)
        finally:
            consumer.close()

    def _move(
        self,
        producer: confluent_kafka.Producer,
        consumer: confluent_kafka.Consumer,
        messages: list[confluent_kafka.Message],
    ) -> None:
        try:
            producer.begin_transaction()
            for message in messages:
                for index in (0, 1):
                    producer.produce(SINK, message.value(), partition=index)
            place = confluent_kafka.TopicPartition(SOURCE, 0, messages[-1].offset() + 1)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 60)
            _until_it_holds(producer.commit_transaction)
            self.commits += 1
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _until_it_holds(producer.abort_transaction)
            self.aborts += 1
            consumer.seek(confluent_kafka.TopicPartition(SOURCE, 0, messages[0].offset()))

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure


def _until_it_holds(end: object) -> None:
    """Commit or abort; what may be tried again is."""
    while True:
        try:
            end(60)  # type: ignore[operator]
            return
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise


def read_committed(bootstrap: str, index: int) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(SINK, index, 0)])
    values: list[int] = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        values.append(int(message.value()))
    assert message is not None
    consumer.close()
    return values


@pytest.mark.crash
def test_transactions_through_kills(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    moments = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", {"log.segment.bytes": "1048576"}).start()
    client = Confluent(broker.bootstrap)
    client.create_topic(SOURCE)
    client.create_topic(SINK, partitions=2)
    feeder, mover = Feeder(broker.bootstrap), Mover(broker.bootstrap)
    for _ in range(KILLS):
        before = mover.commits
        wait_for(lambda before=before: mover.failure or mover.commits > before, "a transaction")
        threading.Event().wait(moments.uniform(0, 0.5))
        broker.kill()
        broker.start()
    count = feeder.finish()

    def position() -> int:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
        offset: int = consumer.committed([confluent_kafka.TopicPartition(SOURCE, 0)], 60)[0].offset
        consumer.close()
        return offset

    wait_for(lambda: mover.failure or position() == count, f"{count} numbers moved", 300)
    mover.finish()
    print(f"{count} numbers, {mover.commits} commits, {mover.aborts} aborts, {mover.restarts} restarts")
    for index in (0, 1):
        values = read_committed(broker.bootstrap, index)
        assert values == list(range(count)), f"partition {index}"
    assert broker.stop() == 0
    assert "Traceback" not in broker.log()
    assert verify_data_directory(broker.data) == []
    broker.close()
