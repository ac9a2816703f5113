"""Goal: with transactions v2, whose records and what is known of their transaction go to the disk beside each
other, a power cut leaves no transaction by halves: what was answered to be committed is there, each record
once, in every partition or in none, and nothing stays open.

Method: as in `test_power_cut.py`, the disk loses what was not synced, right behind `kill -9`. Clients of our
own, that lose no answer but by that, do as Kafka's clients do when the broker is back: they send again what
was not answered, under the same sequences, and end the transaction; what is refused is aborted.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from broker.state_topic import Producer
from protocol.errors import ErrorCode
from protocol.messages.groups import FindCoordinatorRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from protocol.records import encode_batch
from storage.layout import TopicPartition
from tests.crash.machine import LoopDisk, broker_on, loop_disk, lose_power
from tests.kafka.raw import Raw
from tests.process import BrokerProcess
from tests.waiting import wait_for

ROUNDS = 10
WORKERS = 3
PLACES = [TopicPartition(topic, index) for topic in ("a", "b") for index in range(2)]
SETTINGS = {"transaction.state.log.num.partitions": "2", "log.initial.task.delay.ms": "10"}
NOW_MS = 1_700_000_000_000
FETCHED_AT_ONCE = 500
MAYBE_LATER = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_COORDINATOR}
GONE = (OSError, AssertionError)
"""what a connection ends with"""


class Worker:
    """A transactional client. Owned by: its thread; the counts may be read by any."""

    def __init__(self, name: str, broker: BrokerProcess, dice: random.Random) -> None:
        self.committed: set[int] = set()
        """the numbers of transactions that were answered to be"""
        self.refused = 0
        """transactions that were aborted because the broker refused a part of them"""
        self.failure: BaseException | None = None
        self.name = name
        self._broker, self._dice = broker, dice
        self._raw: Raw | None = None
        self._producer = Producer(-1, -1)
        self._number = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Return when its last transaction has ended."""
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._init()
            while not self._stop.is_set():
                self._number += 1
                self._transaction()
        except BaseException as error:
            self.failure = error
        finally:
            if self._raw is not None:
                self._raw.close()

    def _ask(self, request: Any, version: int) -> Any:
        """The answer; sent again to the broker that comes back."""
        answers: list[Any] = []

        def is_answered() -> bool:
            try:
                if self._raw is None:
                    self._raw = Raw(self._broker.port, 30)
                answers.append(self._raw.ask(request, version))
            except GONE:
                if self._raw is not None:
                    self._raw.close()
                self._raw = None
            return bool(answers)

        wait_for(is_answered, f"an answer to {type(request).__name__}")
        return answers[0]

    def _settled(self, request: Any, version: int, code_of: Callable[[Any], int]) -> Any:
        """The answer when it is none of those by which a client tries again."""
        answers: list[Any] = []

        def is_settled() -> bool:
            answers.append(self._ask(request, version))
            return code_of(answers[-1]) not in MAYBE_LATER

        wait_for(is_settled, f"the end of {type(request).__name__}")
        return answers[-1]

    def _init(self) -> None:
        self._ask(FindCoordinatorRequest(key_type=1, key=self.name), 3)
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = self._settled(request, 5, lambda one: one.error_code)
        assert answer.error_code == 0, answer
        self._producer = Producer(answer.producer_id, answer.producer_epoch)

    def _transaction(self) -> None:
        """Some records to each of some partitions, in some requests, committed or aborted."""
        places = self._dice.sample(PLACES, self._dice.randint(1, len(PLACES)))
        waves = self._dice.randint(1, 2)
        total = len(places) * waves
        is_commit = self._dice.random() < 0.8
        for wave in range(waves):
            requests = [places] if self._dice.random() < 0.5 else [[place] for place in places]
            for asked in requests:
                if not self._write(asked, wave, total):
                    self.refused += 1
                    is_commit = False
        code = self._end(is_commit)
        if is_commit and code == 0:
            self.committed.add(self._number)
        elif code:
            self.refused += 1
            if self._end(is_commit=False):
                self._init()

    def _write(self, places: list[TopicPartition], sequence: int, total: int) -> bool:
        data = ProduceRequest.TopicProduceData
        value = b"%s %d %d" % (self.name.encode(), self._number, total)
        batch = encode_batch(
            [(NOW_MS, b"%d" % sequence, value, ())], producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch, base_sequence=sequence, is_transactional=True,
        )  # fmt: skip
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            transactional_id=self.name,
            topic_data=[
                data(
                    name=place.topic,
                    partition_data=[
                        data.PartitionProduceData(index=place.partition, records=memoryview(batch))
                    ],
                )
                for place in places
            ],
        )

        def codes(answer: Any) -> list[int]:
            return [one.error_code for topic in answer.responses for one in topic.partition_responses]

        return not any(codes(self._settled(request, 12, lambda answer: max(codes(answer), default=0))))

    def _end(self, is_commit: bool) -> int:
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
        )
        answer = self._settled(request, 5, lambda one: one.error_code)
        if not answer.error_code:
            self._producer = Producer(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)


def read_committed(bootstrap: str) -> Counter[tuple[str, int, int, TopicPartition, bytes]]:
    """How often each record is there, of a worker's transaction with so many, until all partitions end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 0,
        }
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in PLACES])
    found: Counter[tuple[str, int, int, TopicPartition, bytes]] = Counter()
    ended: set[tuple[str, int]] = set()

    def is_over() -> bool:
        for message in consumer.consume(FETCHED_AT_ONCE, 0.2):
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            if error := message.error():
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                ended.add(place)
                continue
            name, number, total = (message.value() or b"").split(b" ")
            found[name.decode(), int(number), int(total), place, message.key() or b""] += 1
        return len(ended) == len(PLACES)

    try:
        wait_for(is_over, "the ends of all partitions")
    finally:
        consumer.close()
    return found


def check(broker: BrokerProcess, workers: list[Worker], moment: str) -> int:
    """Of a broker where every transaction has ended; how many were committed."""
    raw = Raw(broker.port)
    try:
        for topic, index in PLACES:
            ends = [raw.list_offset(topic, -1, partition=index, isolation=level) for level in (0, 1)]
            assert ends[0] == ends[1], f"{moment}: something is open in {topic}-{index}"
    finally:
        raw.close()
    found = read_committed(broker.bootstrap)
    assert set(found.values()) <= {1}, f"{moment}: there twice"
    records = Counter((name, number, total) for name, number, total, _, _ in found)
    halves = [one for one, count in records.items() if count != one[2]]
    assert not halves, f"{moment}: by halves {halves}"
    there = {(name, number) for name, number, _ in records}
    lost = [
        (worker.name, number)
        for worker in workers
        for number in worker.committed
        if (worker.name, number) not in there
    ]
    assert not lost, f"{moment}: lost {lost}"
    return len(there)


def wait_for_commits(workers: list[Worker]) -> None:
    """Each of them goes on from here, or has failed."""
    before = [len(worker.committed) for worker in workers]

    def go_on() -> bool:
        counts = zip(workers, before, strict=True)
        return all(worker.failure or len(worker.committed) > count for worker, count in counts)

    wait_for(go_on, "a commit of everybody")


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_cut_leaves_no_transaction_by_halves(kind: str, tmp_path: Path) -> None:
    with loop_disk(kind) as disk, broker_on(disk, SETTINGS, tmp_path / "output") as broker:
        _cut_often(disk, broker, kind)


def _cut_often(disk: LoopDisk, broker: BrokerProcess, kind: str) -> None:
    raw = Raw(broker.port)
    for topic in ("a", "b"):
        raw.create(topic, {"retention.ms": "-1"}, partitions=2)
    raw.close()
    dice = random.Random(20261126)
    everybody: list[Worker] = []
    for number in range(ROUNDS):
        workers = [
            Worker(f"w{number}-{index}", broker, random.Random(dice.random())) for index in range(WORKERS)
        ]
        everybody += workers
        wait_for_commits(workers)
        threading.Event().wait(dice.uniform(0, 0.5))
        lose_power(disk, broker)
        wait_for_commits(workers)
        for worker in workers:
            worker.finish()
        there = check(broker, everybody, f"{kind}, round {number}")
    refused = sum(one.refused for one in everybody)
    answered = sum(len(one.committed) for one in everybody)
    print(
        f"{kind}: {ROUNDS} power cuts, {answered} transactions answered as committed, {there} there, "
        f"{refused} refused and aborted, none by halves"
    )
