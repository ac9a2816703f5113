"""Records a second and what they cost the broker: Kafka's perf tools and confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import confluent_kafka

from benchmarks import perf_tools, wire
from benchmarks.bench import Bench, Side, stopwatch
from benchmarks.goals import FLUSHING, KAFKA, KOMPAKT, RELAXED
from benchmarks.perf_tools import BATCHING, Load
from benchmarks.warm import kept_warm
from protocol.records import encode_batch

ALL_CASES = tuple(
    Load(0, record_bytes, partitions, codec, acks)
    for partitions, record_bytes, codec, acks in product((1, 6), (100, 1024), ("none", "lz4"), ("1", "all"))
)
SHORT_CASES = (
    Load(0, 100, 1, "none", "1"),
    Load(0, 100, 1, "none", "all"),
    Load(0, 100, 6, "none", "all"),
    Load(0, 1024, 1, "none", "1"),
    Load(0, 1024, 1, "none", "all"),
    Load(0, 1024, 6, "lz4", "all"),
)
SHORT_BATCHED_CASES = (SHORT_CASES[0], SHORT_CASES[4], Load(0, 100, 6, "lz4", "all"))
QUICK_CASES = SHORT_CASES[1:2]
# About what Kafka takes a second here: a run shall last as long as the form says.
RATES = {100: 250_000, 1024: 70_000}
BATCHED_RATES = {100: 800_000, 1024: 150_000}
CLIENT_BATCH_BYTES = 16_000
MILLION = 1_000_000
PATIENCE_SECONDS = 60  # with a consumer that gets nothing


def produce(bench: Bench) -> None:
    cases = QUICK_CASES if bench.form == "quick" else SHORT_CASES
    _produce(bench, "produce", cases, (KAFKA, KOMPAKT, RELAXED), RATES)


def produce_rest(bench: Bench) -> None:
    cases = [load for load in ALL_CASES if load not in SHORT_CASES]
    _produce(bench, "produce", cases, (KAFKA, KOMPAKT, RELAXED), RATES)


def batched(bench: Bench) -> None:
    cases = QUICK_CASES if bench.form == "quick" else SHORT_BATCHED_CASES
    _batched(bench, cases)


def batched_rest(bench: Bench) -> None:
    _batched(bench, [load for load in ALL_CASES if load not in SHORT_BATCHED_CASES])


def _batched(bench: Bench, cases: tuple[Load, ...] | list[Load]) -> None:
    loads = [replace(load, properties=BATCHING) for load in cases]
    _produce(bench, "produce batched", loads, (KAFKA, KOMPAKT, RELAXED), BATCHED_RATES)


def flushed(bench: Bench) -> None:
    """Durable against durable: throughput, and one-record requests pipelined."""
    _produce(bench, "produce flushed", QUICK_CASES, (FLUSHING, KOMPAKT), RATES)

    def measure(side: Side) -> None:
        topic = bench.topic("pipelined")
        side.create_topic(topic)
        for count in (bench.size.pipelined // 40, bench.size.pipelined // 10):
            rate = wire.pipelined(side.system.port, topic, wire.ACKS_ALL, count, 100, 50, 4)
        bench.add("pipelined flushed", "acks=all", "requests/s", side, rate)
        side.system.delete_topic(topic)

    bench.rounds((FLUSHING, KOMPAKT), measure)


def _produce(
    bench: Bench,
    line: str,
    loads: tuple[Load, ...] | list[Load],
    sides: tuple[str, ...],
    rates: dict[int, int],
) -> None:
    for load in loads:
        sized = replace(load, records=int(rates[load.record_bytes] * bench.size.produce_seconds))

        def measure(side: Side, load: Load = sized) -> None:
            topic = bench.topic("produce")
            side.create_topic(topic, load.partitions)
            before = side.system.cpu_seconds()
            rate = perf_tools.produce(bench.tools, side.system, topic, load)
            cpu = side.system.cpu_seconds() - before
            bench.add(line, load.case, "records/s", side, rate)
            if line != "produce flushed":
                kind = "128 KiB batches" if load.properties else "client defaults"
                case = f"{load.case}, {kind}"
                bench.add("cpu producing", case, "s/million", side, cpu / load.records * MILLION)
                bench.add("memory loaded", case, "MiB", side, side.system.memory_mib())
            side.system.delete_topic(topic)

        bench.rounds(sides, measure)


def client_batch(record_bytes: int) -> tuple[bytes, int]:
    """A batch as a client with defaults makes it, and its records."""
    count = CLIENT_BATCH_BYTES // (record_bytes + 10)
    value = bytes(range(33, 123)) * 12
    return encode_batch([(None, None, value[:record_bytes], ())] * count), count


def consume(bench: Bench) -> None:
    """Both read the same batches, warm: what they read is held in memory."""
    for record_bytes in (100, 1024):
        batch, per_batch = client_batch(record_bytes)
        batches = bench.size.consumed_bytes // len(batch)
        topic = bench.topic("consume")

        def measure(
            side: Side, topic: str = topic, count: int = batches * per_batch, size: int = record_bytes
        ) -> None:
            before = side.system.cpu_seconds()
            rate = perf_tools.consume(bench.tools, side.system, topic, count)
            cpu = side.system.cpu_seconds() - before
            case = f"{size} B" if size < 1000 else "1 KiB"
            bench.add("consume", case, "records/s", side, rate)
            bench.add("cpu consuming", case, "s/million", side, cpu / count * MILLION)

        for system in bench.shared():
            system.create_topic(topic)
            wire.send_batches(system.port, topic, (batch for _ in range(batches)))
        with kept_warm(system.data / f"{topic}-0" for system in bench.shared()):
            bench.rounds((KAFKA, KOMPAKT), measure, bench.size.rounds + 1)
        for system in bench.shared():
            system.delete_topic(topic)


def confluent(bench: Bench) -> None:
    """confluent-kafka, acks=all; the client is in this process."""
    count = int(150_000 * bench.size.produce_seconds)

    def measure(side: Side) -> None:
        topic = bench.topic("confluent")
        side.create_topic(topic)
        produced, consumed = confluent_rates(topic, {"bootstrap.servers": side.system.bootstrap}, count)
        bench.add("confluent-kafka", "producer, 100 B", "records/s", side, produced)
        bench.add("confluent-kafka", "consumer, 100 B", "records/s", side, consumed)
        side.system.delete_topic(topic)

    bench.rounds((KAFKA, KOMPAKT), measure)


def confluent_rates(topic: str, server: Mapping[str, Any], count: int) -> tuple[float, float]:
    """Records of 100 B a second, produced and then consumed by a client in this process, which asks for more
    before it has too few (else it waits for a second now and then, whatever the broker does). RuntimeError
    unless all of them are in the new topic, and come back.
    """
    producer = confluent_kafka.Producer({**server, "queue.buffering.max.messages": 1_000_000})
    value = b"x" * 100
    with stopwatch() as seconds:
        for _ in range(count):
            producer.produce(topic, value)
        unsent = producer.flush(perf_tools.LIMIT_SECONDS)
        produced = count / seconds()
    settings = {
        **server,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "queued.min.messages": 1_000_000,
    }
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    partition = confluent_kafka.TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, 60)
    if unsent or end != count:  # a callback for each record would be half of the client's work
        raise RuntimeError(f"confluent-kafka produced {end} of {count} records")
    consumer.assign([partition])
    with stopwatch() as seconds:
        got = patience = 0
        while got < count and patience < PATIENCE_SECONDS:
            found = len(consumer.consume(min(10_000, count - got), 1.0))
            got += found
            patience = 0 if found else patience + 1
        consumed = count / seconds()
    (reached,) = consumer.position([partition])
    consumer.close()
    if reached.offset != count:  # of errors, too, `consume` makes messages
        raise RuntimeError(f"confluent-kafka consumed {reached.offset} of {count} records")
    return produced, consumed
