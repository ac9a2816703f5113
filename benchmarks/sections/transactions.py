"""Transactions: how long a small one takes, and what they leave of the throughput; by confluent-kafka."""

from __future__ import annotations

import time

import confluent_kafka

from benchmarks.bench import Bench, Side, stopwatch
from benchmarks.goals import FLUSHING, KAFKA, KOMPAKT
from benchmarks.sections.latency import VALUE_BYTES, p50_p99

RECORDS_EACH = 1000
_VALUE = b"x" * VALUE_BYTES


def transactions(bench: Bench) -> None:
    """One record a transaction, one after the other; then a thousand records each."""
    small = bench.size.round_trips // 15
    large = int(100 * bench.size.produce_seconds)

    def measure(side: Side) -> None:
        topic = bench.topic("transactions")
        side.create_topic(topic)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": side.system.bootstrap, "transactional.id": topic, "linger.ms": 0}
        )
        producer.init_transactions(60)
        times = [_transaction(producer, topic, 1) for _ in range(small + small // 3)][small // 3 :]
        p50, p99 = p50_p99([1e6 * seconds for seconds in times])
        bench.add("transaction p50", "1 record, 100 B", "us", side, p50)
        bench.add("transaction p99", "1 record, 100 B", "us", side, p99)
        with stopwatch() as seconds:
            for _ in range(large):
                _transaction(producer, topic, RECORDS_EACH)
            rate = large * RECORDS_EACH / seconds()
        bench.add("transactions", f"{RECORDS_EACH:,} records each, 100 B", "records/s", side, rate)
        side.system.delete_topic(topic)

    bench.rounds((KAFKA, FLUSHING, KOMPAKT), measure, bench.size.rounds + 1)


def _transaction(producer: confluent_kafka.Producer, topic: str, records: int) -> float:
    """Seconds from its begin until it is committed."""
    began = time.perf_counter()
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, _VALUE)
    producer.commit_transaction(60)
    return time.perf_counter() - began
