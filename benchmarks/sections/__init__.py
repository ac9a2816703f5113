"""What `--only` can name: the sections of the bench, each a function that measures lines of the table."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.sections import footprint, growth, latency, recovery, secured, throughput, transactions

SECTIONS: dict[str, Callable[[Bench], None]] = {
    "startup": footprint.startup,
    "produce": throughput.produce,
    "batched": throughput.batched,
    "flushed": throughput.flushed,
    "consume": throughput.consume,
    "confluent": throughput.confluent,
    "transactions": transactions.transactions,
    "secured": secured.secured,
    "raw": latency.raw,
    "latency": latency.one_at_a_time,
    "end-to-end": latency.end_to_end,
    "produce-rest": throughput.produce_rest,
    "batched-rest": throughput.batched_rest,
    "replay": growth.replay,
    "many": footprint.many,
    "growth": growth.growth,
    "restart": recovery.restart,
    "kill": recovery.kill,
}
# In about ten minutes: one section for each line but those that write gigabytes.
SHORT = (
    "startup", "produce", "batched", "flushed", "consume", "confluent", "transactions", "secured", "raw",
    "latency", "end-to-end",
)  # fmt: skip
LONG = tuple(name for name in SECTIONS if name not in SHORT)
