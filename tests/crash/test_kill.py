"""Goal: what was acknowledged survives `kill -9`, in order, whatever the broker was doing.

Method: a client produces with acks=all as fast as it can, numbers in the values; the broker is killed at a
random moment and started again on the same directory; then the log is read back and compared with what was
acknowledged. A failure names its moment; every few rounds the broker is stopped cleanly and the directory
must pass `storage.verify`. `test_kill_cleaning.py` does it on a compacted topic whose cleaner never rests.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import confluent_kafka
import pytest

from storage.verify import verify_data_directory
from tests.clients.adaptors import Confluent, Received
from tests.process import BrokerProcess
from tests.waiting import wait_for

ROUNDS = 50
VERIFY_EVERY = 7
TOPIC = "crash"
KEYS = 50


class Writer:
    """Produces numbers until it is stopped; keeps what was acknowledged, by offset. Owned by: its thread,
    then the test.
    """

    def __init__(self, bootstrap: str, first: int) -> None:
        self.acknowledged: dict[int, int] = {}
        self.next_number = first
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "enable.idempotence": True,
                "log_level": 0,  # no short timeouts: behind one librdkafka sends what may be there once more
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _report(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged[message.offset()] = int(message.value())

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self.next_number
            try:
                self._producer.produce(TOPIC, b"%d" % number, b"%d" % (number % KEYS), 0, self._report)
                self.next_number += 1
            except BufferError:
                pass
            self._producer.poll(0)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        wait_for(self._has_nothing_left, "librdkafka to give up what it has not sent")

    def _has_nothing_left(self) -> bool:
        """What its threads were just putting back is not purged, and would come behind the next writer's."""
        self._producer.purge()
        return self._producer.flush(1) == 0


def read_from(broker: BrokerProcess, start: int) -> list[Received]:
    client = Confluent(broker.bootstrap)
    first, end = client.offsets(TOPIC, 0)
    return client.read(TOPIC, 0, max(first, start), end)


def killed_while_writing(broker: BrokerProcess, moment_s: float, first: int) -> Writer:
    """Write to the running broker for `moment_s` seconds after the first acknowledgement, kill it, start it
    again.
    """
    writer = Writer(broker.bootstrap, first)
    wait_for(lambda: writer.acknowledged, "the first acknowledgement")
    threading.Event().wait(moment_s)
    broker.kill()
    writer.finish()
    broker.start()
    return writer


def stop_and_verify(broker: BrokerProcess) -> None:
    """What recovery made of the directory must satisfy every invariant after a clean stop."""
    assert broker.stop() == 0
    assert verify_data_directory(broker.data) == []
    broker.start()


def in_order(records: list[Received]) -> bool:
    numbers = [int(record.value or b"") for record in records]
    return numbers == sorted(numbers)


def survive(broker: BrokerProcess) -> None:
    Confluent(broker.bootstrap).create_topic(TOPIC)
    dice = random.Random(20261121)
    position = number = acknowledged = 0
    for round_number in range(ROUNDS):
        moment_s = dice.uniform(0, 0.6)
        writer = killed_while_writing(broker, moment_s, number)
        records = read_from(broker, position)
        found = {record.offset: int(record.value or b"") for record in records}
        lost = {offset: value for offset, value in writer.acknowledged.items() if found.get(offset) != value}
        assert not lost, (
            f"round {round_number}, killed after {moment_s:.3f} s: {len(lost)} lost, {sorted(lost)[:5]}"
        )
        assert in_order(records), f"round {round_number}: reordered"
        assert [record.offset for record in records] == list(range(position, position + len(records)))
        position += len(records)
        number = writer.next_number
        acknowledged += len(writer.acknowledged)
        if round_number % VERIFY_EVERY == 0:
            stop_and_verify(broker)
    print(f"{ROUNDS} kills, {acknowledged} acknowledged records, none lost")


@pytest.mark.crash
def test_kill_during_produce_loses_and_reorders_nothing_acknowledged(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", {"log.segment.bytes": "1048576"}).start()
    try:
        survive(broker)
    finally:
        broker.close()
