"""Compaction: one cleaner thread over a compacted log, written while no dirty ratio sufficed for a cleaning.

Both brokers get the same bytes, which are made once and kept in a file. The time runs from the change of
that ratio until the checkpoint in `cleaner-offset-checkpoint` has passed every full segment, so that it is
measured from outside and alike; what each broker's log says of its own seconds stands beside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.systems import System
from benchmarks.wire import send_batches
from protocol.records import Columns, encode_column_batch
from tests.waiting import wait_for

SEGMENT_BYTES = 32 << 20
NEVER_RATIO = "1"  # which no dirty ratio exceeds
BATCH_RECORDS = 500  # about 50 KB, as a busy producer makes them
KEY_BYTES = 16
START_MS = 1_700_000_000_000
CLEAN_LIMIT_SECONDS = 300.0
POLL_SECONDS = 0.005  # how finely a cleaning is timed; looking all the time would take a core from it
POOL_BYTES = 64 << 20
_KAFKA_PASS = re.compile(
    r"cleaned log (?P<log>\S+)-0 \(dirty section = \[\d+, (?P<end>\d+)\]\)\s+[\d.,]+ MB of log processed in"
    r" (?P<seconds>[\d.,]+) seconds"
)
_OUR_PASS = re.compile(
    r"(?P<log>\S+)-0: cleaned up to (?P<end>\d+): \d+ of \d+ records, "
    r"(?P<written>\d+) of (?P<read>\d+) bytes stay, \d+ segments became \d+, (?P<seconds>[\d.]+) s"
)


def keyed_batches(
    records: int, keys: int, record_bytes: int, codec: int = 0, batch_records: int = BATCH_RECORDS
) -> Iterator[bytes]:
    """Batches of records of about `record_bytes` with `keys` keys in random order, in every run the same.

    Values are cut out of a long text at random places: about as hard to compress as any text.
    """
    chance = numpy.random.default_rng(1)
    value_bytes = record_bytes - KEY_BYTES - 8
    digits = 10 ** numpy.arange(KEY_BYTES - 1, -1, -1, dtype=numpy.int64)
    key_offsets = numpy.arange(batch_records + 1, dtype=numpy.int64) * KEY_BYTES
    value_offsets = numpy.arange(batch_records + 1, dtype=numpy.int64) * value_bytes
    none = numpy.zeros(batch_records, numpy.uint8)
    letters = numpy.frombuffer(b"abcdefghijklmnopqrstuvwxyz    eeeaaott", numpy.uint8)
    pool = letters[chance.integers(0, len(letters), min(POOL_BYTES, records * value_bytes + value_bytes))]
    windows = numpy.lib.stride_tricks.sliding_window_view(pool, value_bytes)
    for start in range(0, records, batch_records):
        chosen = chance.integers(0, keys, batch_records)
        key_bytes = (chosen[:, None] // digits % 10 + ord("0")).astype(numpy.uint8).reshape(-1)
        values = windows[chance.integers(0, len(windows), batch_records)].reshape(-1)
        times = START_MS + numpy.arange(start, start + batch_records, dtype=numpy.int64)
        empty = numpy.zeros(0, numpy.uint8)
        no_headers = numpy.zeros(batch_records + 1, numpy.int64)
        columns = Columns(key_bytes, key_offsets, none, values, value_offsets, none, empty, no_headers, times)
        yield encode_column_batch(columns, codec=codec)


class Spool:
    """Batches in a file, to be sent again and again without being made again."""

    def __init__(self, path: Path, batches: Iterable[bytes]) -> None:
        self.path = path
        with path.open("wb") as file:
            for batch in batches:
                file.write(len(batch).to_bytes(4, "big") + batch)

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while size := file.read(4):
                yield file.read(int.from_bytes(size, "big"))


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
    """A compacted topic with these batches in full segments, of which nothing is cleaned yet."""
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": NEVER_RATIO,
    }
    system.create_topic(topic, settings=settings)
    send_batches(system.port, topic, batches)


def pause() -> None:
    """Between two looks at a cleaning. The checkpoint is a file of another process, which tells nobody when
    it is written, so it can only be looked at again and again.
    """
    time.sleep(POLL_SECONDS)


class Cleaning:
    """The cleaning of some topics, from the moment on at which their dirty ratio suffices."""

    def __init__(self, system: System, topics: Sequence[str]) -> None:
        self.system = system
        self._ends = {topic: active_base_offset(system.data, topic) for topic in topics}
        assert all(self._ends.values()), "without a full segment nothing is ever cleaned"
        self.left = self._ends
        self.records = sum(self._ends.values())
        self._marked = len(system.log())
        alter(system, ResourceType.TOPIC, topics, "min.cleanable.dirty.ratio", "0.01")
        self.began = time.monotonic()

    def is_over(self) -> bool:
        data = self.system.data
        self.left = {topic: end for topic, end in self.left.items() if checkpoint_of(data, topic) < end}
        if self.left and time.monotonic() - self.began > CLEAN_LIMIT_SECONDS:
            raise TimeoutError(f"{sorted(self.left)} were not cleaned in {CLEAN_LIMIT_SECONDS:.0f} s")
        return not self.left

    def wait(self, meanwhile: Callable[[], object] = pause) -> float:
        """Seconds until all are clean."""
        while not self.is_over():
            meanwhile()
        return time.monotonic() - self.began

    def passes(self) -> list[dict[str, str]]:
        """What the broker's log says of these cleanings; its last line may come after the checkpoint."""

        def is_told() -> list[dict[str, str]]:
            text = self.system.log()[self._marked :]
            found = [one.groupdict() for one in (*_KAFKA_PASS.finditer(text), *_OUR_PASS.finditer(text))]
            told = {one["log"] for one in found if int(one["end"]) >= self._ends.get(one["log"], 0)}
            return found if told >= self._ends.keys() else []

        return [one for one in wait_for(is_told, "the log lines") if one["log"] in self._ends]

    def own_seconds(self) -> float:
        return sum(float(one["seconds"].replace(",", "")) for one in self.passes())


def alter(system: System, kind: ResourceType, names: Sequence[str], key: str, value: str) -> None:
    """Set one key of some resources at once."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(kind, name, incremental_configs=[entry]) for name in names]
    admin = system.admin()  # lives until its answers are here
    for future in admin.incremental_alter_configs(resources).values():
        future.result(60)


def alter_broker(system: System, key: str, value: str) -> None:
    """Set one key of the broker while it runs."""
    admin = system.admin()
    brokers = admin.list_topics(timeout=10).brokers
    alter(system, ResourceType.BROKER, [str(number) for number in brokers], key, value)
