"""What is measured and what is aimed at: a line of the table is some cases, a goal is a bound for one line.

A goal compares a side with another side of the same run, or a figure with a number. Sides are brokers with
the durability that a topic is given: kompakt flushes before it answers acks=all, Apache Kafka does not,
and each is measured in the other's way as well.
"""

from __future__ import annotations

from dataclasses import dataclass

KOMPAKT = "kompakt"
RELAXED = "kompakt relaxed"
KAFKA = "Apache Kafka"
FLUSHING = "Apache Kafka flushing"
SIDES = (KOMPAKT, RELAXED, KAFKA, FLUSHING)


@dataclass(frozen=True)
class Goal:
    """`ours` / `theirs` (or `ours` alone) shall be at least or at most `bound`; None: only reported."""

    line: str
    what: str
    ours: str
    theirs: str | None
    bound: float | None
    at_least: bool = False
    unit: str = ""
    """of the bound, when there is nobody to compare with"""

    @property
    def aim(self) -> str:
        if self.bound is None:
            return "report"
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{' ' + self.unit if self.unit else ''}"


def _more(line: str, what: str, ours: str, theirs: str, bound: float | None) -> Goal:
    return Goal(line, what, ours, theirs, bound, at_least=True)


def _less(line: str, what: str, ours: str, theirs: str, bound: float | None) -> Goal:
    return Goal(line, what, ours, theirs, bound)


def _below(line: str, what: str, ours: str, bound: float, unit: str) -> Goal:
    return Goal(line, what, ours, None, bound, unit=unit)


_PRODUCE = "producer-perf-test, client defaults: records/s"
_BATCHED = "the same, linger 5 ms, batch 128 KiB: records/s"
_FLUSHED = "producer-perf-test, client defaults, both flush: records/s"
_REPLAY = "p99 of a producer while 2 GiB are replayed from disk / quiet"
_GROWTH = "latency flat from 10 MB to 20 GB, from 10 to 10,000 segments"

GOALS: tuple[Goal, ...] = (
    _more("produce", _PRODUCE, RELAXED, KAFKA, 1.3),
    _more("produce", _PRODUCE, KOMPAKT, KAFKA, 1.15),
    _more("produce batched", _BATCHED, RELAXED, KAFKA, 1.1),
    _more("produce batched", _BATCHED, KOMPAKT, KAFKA, 1.0),
    _less("cpu producing", "broker CPU, producing", RELAXED, KAFKA, 0.5),
    _less("cpu producing", "broker CPU, producing", KOMPAKT, KAFKA, 0.5),
    _less("cpu consuming", "broker CPU, consuming", KOMPAKT, KAFKA, 0.4),
    _more("produce flushed", _FLUSHED, KOMPAKT, FLUSHING, 3),
    _more("pipelined flushed", "one-record requests pipelined, both flush", KOMPAKT, FLUSHING, 10),
    _more("consume", "consumer-perf-test, warm: records/s", KOMPAKT, KAFKA, 1.1),
    _more("pipelined", "one-record requests/s, one pipelined connection", KOMPAKT, KAFKA, 4),
    _more("64 connections", "one-record requests/s, 64 connections", KOMPAKT, KAFKA, 2),
    _less("latency acks=1 p50", "one at a time, acks=1: p50", KOMPAKT, KAFKA, 0.8),
    _less("latency acks=1 p99", "one at a time, acks=1: p99", KOMPAKT, KAFKA, 0.6),
    _less("latency flushed p50", "one at a time, acks=all, both flush: p50", KOMPAKT, FLUSHING, 0.8),
    _less("latency flushed p99", "one at a time, acks=all, both flush: p99", KOMPAKT, FLUSHING, 0.6),
    _less("latency unflushed p50", "acks=all, durable against not flushing: p50", KOMPAKT, KAFKA, None),
    _less("latency unflushed p99", "acks=all, durable against not flushing: p99", KOMPAKT, KAFKA, None),
    _below("price of durability", "its p50 more than Apache Kafka's", KOMPAKT, 1, "fdatasync"),
    _less("end to end p50", "end to end, Java client: p50", KOMPAKT, KAFKA, 0.9),
    _less("end to end p99", "end to end, Java client: p99", KOMPAKT, KAFKA, 0.6),
    _less("end to end p50", "end to end, Java client: p50", RELAXED, KAFKA, 0.9),
    _less("end to end p99", "end to end, Java client: p99", RELAXED, KAFKA, 0.6),
    _more("confluent-kafka", "confluent-kafka: records/s", KOMPAKT, KAFKA, None),
    _less("transaction p50", "a transaction of one record, confluent-kafka: p50", KOMPAKT, KAFKA, None),
    _less("transaction p99", "a transaction of one record, confluent-kafka: p99", KOMPAKT, KAFKA, None),
    _less("transaction p50", "the same, both flush: p50", KOMPAKT, FLUSHING, None),
    _more("transactions", "transactions of 1,000 records: records/s", KOMPAKT, KAFKA, None),
    _more("transactions", "the same, both flush: records/s", KOMPAKT, FLUSHING, None),
    _more("secured produce", "confluent-kafka, TLS and SASL: produced, records/s", RELAXED, KAFKA, None),
    _more("secured produce", "the same, durable against not flushing", KOMPAKT, KAFKA, None),
    _more("secured consume", "consumed, records/s", KOMPAKT, KAFKA, None),
    _less("secured CPU", "broker CPU of both", RELAXED, KAFKA, None),
    _less("start-up", "start-up to the first answer", KOMPAKT, KAFKA, 0.25),
    _below("start-up", "start-up to the first answer", KOMPAKT, 0.8, "s"),
    _less("memory idle", "resident memory, idle", KOMPAKT, KAFKA, 0.4),
    _less("memory loaded", "resident memory, under the load above", KOMPAKT, KAFKA, 0.35),
    _below("idle CPU", "CPU when idle", KOMPAKT, 0.3, "%"),
    _below("replay", _REPLAY, KOMPAKT, 3, "x"),
    _less("many memory", "2,000 partitions, 2,000 connections: memory", KOMPAKT, KAFKA, 0.6),
    _below("many p99", "the same: p99 of an active producer, after / before", KOMPAKT, 1.2, "x"),
    _below("growth", _GROWTH, KOMPAKT, 1.15, "x"),
    _less("restart", "clean restart, 2,000 partitions, 5 GiB: until it takes records", KOMPAKT, KAFKA, 0.3),
    _less("kill", "after kill -9 with 2 GiB unflushed: until it takes records", KOMPAKT, KAFKA, 0.2),
    _less("kill", "after kill -9 with 2 GiB unflushed: until it takes records", RELAXED, KAFKA, 0.2),
)
