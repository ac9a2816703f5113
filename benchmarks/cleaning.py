"""Compaction: one cleaner thread over a log that was written as an ordinary topic and is then made compacted.

Both brokers get the same bytes. The time runs from the change of the policy until the checkpoint in
`cleaner-offset-checkpoint` has passed every full segment, so that it is measured from outside and alike; what
Kafka's log says of its own seconds is reported beside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy

from benchmarks.systems import System
from benchmarks.wire import send_batches
from protocol.records import Columns, encode_column_batch
from tests.waiting import wait_for

SEGMENT_BYTES = 32 << 20
BATCH_RECORDS = 500  # about 50 KB, as a busy producer makes them
KEY_BYTES = 16
START_MS = 1_700_000_000_000
CLEAN_LIMIT_SECONDS = 300.0
_KAFKA_PASS = re.compile(
    r"cleaned log (\S+)-0 \(dirty section = \[(\d+), (\d+)\]\)\s+[\d.,]+ MB of log processed in"
    r" ([\d.,]+) seconds"
)


def keyed_batches(records: int, keys: int, record_bytes: int, codec: int = 0) -> Iterator[bytes]:
    """Batches of records of about `record_bytes` with `keys` keys in random order, in every run the same."""
    chance = numpy.random.default_rng(1)
    value_bytes = record_bytes - KEY_BYTES - 8
    digits = 10 ** numpy.arange(KEY_BYTES - 1, -1, -1, dtype=numpy.int64)
    key_offsets = numpy.arange(BATCH_RECORDS + 1, dtype=numpy.int64) * KEY_BYTES
    value_offsets = numpy.arange(BATCH_RECORDS + 1, dtype=numpy.int64) * value_bytes
    none = numpy.zeros(BATCH_RECORDS, numpy.uint8)
    letters = numpy.frombuffer(b"abcdefghijklmnopqrstuvwxyz    eeeaaott", numpy.uint8)
    for start in range(0, records, BATCH_RECORDS):
        chosen = chance.integers(0, keys, BATCH_RECORDS)
        key_bytes = (chosen[:, None] // digits % 10 + ord("0")).astype(numpy.uint8).reshape(-1)
        values = letters[chance.integers(0, len(letters), BATCH_RECORDS * value_bytes)]
        times = START_MS + numpy.arange(start, start + BATCH_RECORDS, dtype=numpy.int64)
        empty = numpy.zeros(0, numpy.uint8)
        no_headers = numpy.zeros(BATCH_RECORDS + 1, numpy.int64)
        columns = Columns(key_bytes, key_offsets, none, values, value_offsets, none, empty, no_headers, times)
        yield encode_column_batch(columns, codec=codec)


def checkpoint_of(data: Path, topic: str) -> int:
    """The first dirty offset of partition 0 in the cleaner's checkpoint, -1 when there is none."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return -1
    for line in lines:
        name, partition, offset = line.split()
        if (name, partition) == (topic, "0"):
            return int(offset)
    return -1


def active_base_offset(data: Path, topic: str) -> int:
    """The base offset of the newest segment: what the cleaner will not touch."""
    return max(int(path.stem) for path in (data / f"{topic}-0").glob("*.log"))


def fill(system: System, topic: str, batches: Iterable[bytes]) -> None:
    """A topic with these batches in full segments, not compacted yet."""
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.01",
    }
    system.create_topic(topic, settings=settings)
    send_batches(system.port, topic, batches)


def clean(system: System, topic: str) -> tuple[float, float | None]:
    """Make it compacted; records a second (from outside, by Kafka's own log line or None)."""
    target = active_base_offset(system.data, topic)
    marked = len(system.log())
    began = time.monotonic()
    system.set_topic(topic, "cleanup.policy", "compact")
    wait_for(
        lambda: checkpoint_of(system.data, topic) >= target, f"the cleaning of {topic}", CLEAN_LIMIT_SECONDS
    )
    seconds = time.monotonic() - began
    own = [
        float(found[4].replace(",", ""))
        for found in _KAFKA_PASS.finditer(system.log()[marked:])
        if found[1] == topic
    ]
    return target / seconds, target / sum(own) if own else None
