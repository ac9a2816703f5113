"""Rows in, record batches out: every partition has a slot that fills up and is sealed when it is full.

The kernel does the rows; Python has a turn for each batch that is full, not for each record. Slots stay open
across Arrow batches, so that what Spark cuts into pieces of 10,000 rows still makes batches of
`kafka.batch.size`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import pyarrow

from protocol.batch import HEADER_BYTES, MAGIC, MAX_SEQUENCE, BatchHeader, seal_header
from protocol.compression import compress, decompress_array
from protocol.record_kernels import TIMESTAMP_DELTA, locate_records
from spark_connector import write_kernels as kernels
from spark_connector.errors import ConnectorError, TopicError
from spark_connector.kernels import MICROSECONDS, Bytes, Ints, Longs
from spark_connector.offsets import TopicPartition
from spark_connector.partitioners import PARTITIONERS
from spark_connector.write_columns import NO_INTS, BadHeader, Numbers, Rows, numbers_of, read_only, rows_of
from spark_connector.write_options import WriteOptions

MIN_SLOT_BYTES = 16 * 1024
RECORD_BYTES = 16  # of slot for each row number that is kept: smaller records fill a batch by their number
BIGGEST_SECTION_BYTES = 1 << 30
# The kernel refuses times before 1970, but -1 ms is how a record without a timestamp reads, and is written:
# all times of a task that has some go through the slots so much later, and their batches say what was meant.
SHIFT_MS = 1


@dataclass(slots=True)
class SealedBatch:
    """The records of one batch as they are stored, and what its header will say. Owned by: one task."""

    topic_partition: TopicPartition
    payload: bytes
    codec: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    rows: Longs  # of the task, by record
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    parts: list[bytes] = field(default_factory=list)  # of the whole batch, when it has been numbered

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + len(self.payload)

    def number(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Say who sends the batch and which sequence its first record has; this settles its checksum."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.base_sequence = base_sequence
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=0,
            magic=MAGIC,
            crc=0,
            attributes=self.codec,
            last_offset_delta=self.record_count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
        )
        self.parts = [seal_header(header, self.payload), self.payload]


def split(batch: SealedBatch, level: int | None) -> tuple[SealedBatch, SealedBatch]:
    """Two halves of a batch that was too large for its topic; numbered as the whole was."""
    section = decompress_array(batch.codec, batch.payload, BIGGEST_SECTION_BYTES)
    located = locate_records(section, batch.record_count)
    middle = batch.record_count // 2
    first, second = (
        _piece(batch, section, located, edges, level) for edges in ((0, middle), (middle, batch.record_count))
    )
    return first, second


def _piece(
    batch: SealedBatch, section: Bytes, located: Longs, edges: tuple[int, int], level: int | None
) -> SealedBatch:
    start, end = edges
    output = numpy.empty(section.size, numpy.uint8)
    size = kernels.renumber_records(section, located, start, end, output)
    if size < 0:
        raise AssertionError("a batch that was written here cannot be read")
    deltas = located[TIMESTAMP_DELTA][start:end]
    made = SealedBatch(
        topic_partition=batch.topic_partition,
        payload=compress(batch.codec, output[:size].data, level),
        codec=batch.codec,
        record_count=end - start,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.base_timestamp + int(deltas.max()),
        rows=batch.rows[start:end],
    )
    sequence = -1 if batch.base_sequence < 0 else (batch.base_sequence + start) & MAX_SEQUENCE
    made.number(batch.producer_id, batch.producer_epoch, sequence)
    return made


class Encoder:
    """Turns Arrow batches into record batches. Owned by: the one task that writes."""

    def __init__(self, options: WriteOptions, partitions_of: Callable[[str], int]) -> None:
        self._options = options
        self._partitions_of = partitions_of
        self._topics: dict[str, int] = {}  # name -> row of the topic table
        self._topic_table: Longs = numpy.empty((0, kernels.TOPIC_FIELDS), numpy.int64)
        self._slots: Longs = numpy.empty((0, kernels.SLOT_FIELDS), numpy.int64)
        self._owners: list[TopicPartition] = []
        self._limits: dict[str, int] = {}
        self._arena: Bytes = numpy.empty(0, numpy.uint8)
        self._numbers: Longs = numpy.empty((0, 0), numpy.int64)
        self._shift_ms = 0
        self.rows = 0

    # --- rows

    def encode(self, batch: pyarrow.RecordBatch, now_ms: int) -> Iterator[SealedBatch]:
        """Take the rows of `batch`; yields the record batches that became full."""
        try:
            rows = rows_of(batch, self._options.topic is None)
        except BadHeader as problem:
            raise self._row_error(problem.row, "headers", "a header and its key must not be null") from None
        if rows.timestamps.numbers.size:  # in all Arrow batches of a task, or in none
            self._shift_ms = SHIFT_MS
            now_ms += SHIFT_MS
            rows = rows._replace(timestamps=_shifted(rows.timestamps))
        missing, row_topics = self._name_topics(rows)
        if missing:
            yield from self.flush()
            self._add_topics(missing)
            _, row_topics = self._name_topics(rows)
        row = 0
        while True:
            row, reason, number, size = self._run(
                rows, row, rows.size, now_ms, row_topics, self._slots, self._arena
            )
            if reason == kernels.DONE:
                break
            if reason != kernels.FULL:
                raise self._refuse(row, reason, number, size, row_topics)
            if self._slots[number, kernels.COUNT]:
                yield self._seal(number, self._slots, self._arena)
            else:
                yield self._single(rows, row, now_ms, row_topics, number, size)
                row += 1
        self.rows += rows.size

    def flush(self) -> Iterator[SealedBatch]:
        """What is in the slots, full or not."""
        for number in range(len(self._owners)):
            if self._slots[number, kernels.COUNT]:
                yield self._seal(number, self._slots, self._arena)

    def limit(self, topic: str, batch_bytes: int) -> None:
        """Make smaller batches from now on: the topic takes none of `batch_bytes`."""
        self._limits[topic] = min(self._limits.get(topic, batch_bytes), max(batch_bytes // 2, MIN_SLOT_BYTES))
        self._apply_limits()

    def _run(
        self,
        rows: Rows,
        first: int,
        end: int,
        now_ms: int,
        row_topics: Ints,
        slots: Longs,
        arena: Bytes,
    ) -> tuple[int, int, int, int]:
        stopped: tuple[int, int, int, int] = kernels.encode_rows(
            first,
            end,
            PARTITIONERS[self._options.partitioner],
            now_ms,
            (*rows.keys,),
            (*rows.values,),
            (rows.headers, rows.header_ends),
            (*rows.timestamps,),
            (*rows.partitions,),
            row_topics,
            self._topic_table,
            slots,
            arena,
            self._numbers,
            self.rows,
        )
        return stopped

    def _single(
        self, rows: Rows, row: int, now_ms: int, row_topics: Ints, number: int, size: int
    ) -> SealedBatch:
        """A record that no slot can hold: a batch of its own."""
        if size + HEADER_BYTES > self._options.max_request_bytes:
            raise self._row_error(
                row,
                rows.largest_column(row),
                f"the record takes {size} bytes, more than kafka.max.request.size "
                f"({self._options.max_request_bytes}) allows",
            )
        arena = numpy.empty(size, numpy.uint8)
        slots = self._slots.copy()
        slots[number] = (0, 0, size, 0, 0, 0)
        _, reason, _, _ = self._run(rows, row, row + 1, now_ms, row_topics, slots, arena)
        assert reason == kernels.DONE, reason
        return self._seal(number, slots, arena)

    def _seal(self, number: int, slots: Longs, arena: Bytes) -> SealedBatch:
        """The records of a slot as a batch; the slot is empty then."""
        start, position, _, count, base_timestamp, max_timestamp = slots[number].tolist()
        made = SealedBatch(
            topic_partition=self._owners[number],
            payload=compress(
                self._options.codec, arena[start:position].data, self._options.compression_level
            ),
            codec=self._options.codec,
            record_count=count,
            base_timestamp=base_timestamp - self._shift_ms,
            max_timestamp=max_timestamp - self._shift_ms,
            rows=self._numbers[number, :count].copy(),
        )
        slots[number, kernels.POSITION] = start
        slots[number, kernels.COUNT] = 0
        return made

    # --- topics

    def _name_topics(self, rows: Rows) -> tuple[dict[str, int], Ints]:
        """(topics not seen before and a row of theirs, the row of the topic table for each row)."""
        if rows.topics is None:
            name = self._options.topic or ""
            return ({} if name in self._topics else {name: 0}), NO_INTS
        encoded = rows.topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        indices, valid = numbers_of(encoded.indices, NO_INTS)
        missing = {
            name: int(numpy.argmax(_where(indices, valid, index)))
            for index, name in enumerate(names)
            if name not in self._topics
        }
        numbers = numpy.array([self._topics.get(name, -1) for name in names] or [-1], numpy.int32)
        row_topics = numbers[numpy.where(valid != 0, indices, 0) if valid.size else indices]
        if valid.size:
            row_topics[valid == 0] = -1
        return missing, read_only(row_topics)

    def _add_topics(self, missing: dict[str, int]) -> None:
        """Slots for the partitions of topics that are new; all slots are empty now."""
        counts = {}
        for name, row in missing.items():
            try:
                counts[name] = self._partitions_of(name)
            except TopicError as problem:
                if self._options.topic is not None:
                    raise TopicError(f"option topic: {problem}") from problem
                raise self._row_error(row, "topic", str(problem)) from problem
        table = self._topic_table.tolist()
        for name, partitions in counts.items():
            self._topics[name] = len(table)
            first_keyless = int(numpy.random.default_rng().integers(partitions))
            table.append([len(self._owners), partitions, first_keyless, kernels.KEYLESS_BYTES])
            self._owners += [TopicPartition(name, partition) for partition in range(partitions)]
        self._topic_table = numpy.array(table, numpy.int64)
        share = max(self._options.buffer_bytes // len(self._owners), MIN_SLOT_BYTES)
        slot_bytes = max(min(self._options.batch_bytes, share) - HEADER_BYTES, 1)
        self._arena = numpy.empty(slot_bytes * len(self._owners), numpy.uint8)
        self._numbers = numpy.empty((len(self._owners), slot_bytes // RECORD_BYTES + 1), numpy.int64)
        self._slots = numpy.zeros((len(self._owners), kernels.SLOT_FIELDS), numpy.int64)
        starts = numpy.arange(len(self._owners), dtype=numpy.int64) * slot_bytes
        self._slots[:, kernels.START] = self._slots[:, kernels.POSITION] = starts
        self._slots[:, kernels.END] = starts + slot_bytes
        self._apply_limits()

    def _apply_limits(self) -> None:
        for number, owner in enumerate(self._owners):
            limit = self._limits.get(owner.topic)
            if limit is not None:
                end = int(self._slots[number, kernels.START]) + max(limit - HEADER_BYTES, 1)
                self._slots[number, kernels.END] = min(int(self._slots[number, kernels.END]), end)

    # --- refusals

    def _refuse(self, row: int, reason: int, detail: int, partitions: int, row_topics: Ints) -> Exception:
        """What is wrong with a row that the kernel would not write."""
        if reason == kernels.NO_TOPIC:
            return self._row_error(row, "topic", "null, and there is no option topic")
        if reason == kernels.BAD_PARTITION:
            topic = list(self._topics)[int(row_topics[row]) if row_topics.size else 0]
            there = f"{detail}, but topic {topic} has partitions 0 to {partitions - 1}"
            ways = ": add partitions to it, or leave the column out and keys choose" if detail >= 0 else ""
            return self._row_error(row, "partition", there + ways)
        if reason == kernels.BAD_TIMESTAMP:
            return self._row_error(
                row, "timestamp", "before 1970, which Kafka cannot say (but for -1 ms: none)"
            )
        raise AssertionError(f"the columns of row {row} point out of their own bytes")

    def _row_error(self, row: int, column: str, reason: str) -> ConnectorError:
        return ConnectorError(f"row {self.rows + row} of the task, column {column}: {reason}")


def _shifted(timestamps: Numbers) -> Numbers:
    """Times as the kernel takes them; those before 1970 stay below zero unless they are the one for none."""
    numbers = timestamps.numbers
    made = numbers + SHIFT_MS * MICROSECONDS
    made[(numbers < 0) & (made != 0)] = -1
    return Numbers(read_only(made), timestamps.valid)


def _where(indices: Ints, valid: Bytes, index: int) -> Any:
    """Which rows have the topic at `index` of the dictionary."""
    found = indices == index
    return found & (valid != 0) if valid.size else found
