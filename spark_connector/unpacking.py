"""From chosen batches to bytes that can be walked: decompress them, cut them into pieces of a handy size.

A piece is a run of bytes and the table of the batches whose records lie in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from protocol.batch import CODEC_MASK
from protocol.compression import decompress_array
from protocol.errors import KafkaError
from protocol.record_kernels import MIN_RECORD_BYTES
from spark_connector import kernels
from spark_connector.errors import ConnectorError
from spark_connector.kernels import Bytes, Longs
from spark_connector.offsets import TopicPartition

# Enough rows that a record batch costs Spark little beside its bytes, few enough to stay in the caches.
TARGET_ROWS = 40_000
TARGET_BYTES = 4 * 1024 * 1024
# Backwards a piece is walked twice, and little of it may be kept.
BACKWARD_ROWS = 20_000
BACKWARD_BYTES = 1024 * 1024
DECOMPRESSED_LIMIT_BYTES = 512 * 1024 * 1024

Piece = tuple[Bytes, Longs]


class CorruptBatch(ConnectorError):
    """A batch whose bytes are not what they should be; the message says where it is."""

    def __init__(self, topic_partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(f"{topic_partition}: the record batch at offset {offset} is corrupt: {reason}")


class Unpacker:
    """Owned by: the task that reads `topic_partition`."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition

    def forwards(self, data: Bytes, batches: Longs) -> Iterator[Piece]:
        """Pieces of about TARGET_ROWS and TARGET_BYTES; what is compressed becomes new bytes."""
        if not (batches[:, kernels.ATTRIBUTES] & CODEC_MASK).any():
            self._check_counts(batches)
            for chosen in _cut(batches, TARGET_ROWS, TARGET_BYTES):
                yield data, chosen
            return
        first = rows = size = 0
        parts: list[Bytes] = []
        for index in range(len(batches)):
            parts.append(self._decompress(data, batches[index]))
            size += parts[-1].size
            rows += int(batches[index, kernels.RECORD_COUNT])
            if rows >= TARGET_ROWS or size >= TARGET_BYTES or index == len(batches) - 1:
                joined = [self._join(parts, batches[first : index + 1])]
                parts, rows, size = [], 0, 0
                yield joined.pop(), batches[first : index + 1]
                first = index + 1

    def backwards(self, data: Bytes, batches: Longs) -> Iterator[Piece]:
        """As `forwards`, in smaller pieces, the last one first; in a piece the batches keep their order."""
        if not (batches[:, kernels.ATTRIBUTES] & CODEC_MASK).any():
            self._check_counts(batches)
            for chosen in reversed(_cut(batches, BACKWARD_ROWS, BACKWARD_BYTES)):
                yield data, chosen
            return
        end, rows, size = len(batches), 0, 0
        parts: list[Bytes] = []
        for index in reversed(range(len(batches))):
            parts.append(self._decompress(data, batches[index]))
            size += parts[-1].size
            rows += int(batches[index, kernels.RECORD_COUNT])
            if rows >= BACKWARD_ROWS or size >= BACKWARD_BYTES or index == 0:
                joined = [self._join(parts[::-1], batches[index:end])]
                parts, rows, size = [], 0, 0
                yield joined.pop(), batches[index:end]
                end = index

    def _decompress(self, data: Bytes, batch: Longs) -> Bytes:
        stored = data.data[batch[kernels.PAYLOAD_START] : batch[kernels.PAYLOAD_END]]
        try:
            return decompress_array(
                int(batch[kernels.ATTRIBUTES]) & CODEC_MASK, stored, DECOMPRESSED_LIMIT_BYTES
            )
        except KafkaError as problem:
            offset = int(batch[kernels.BASE_OFFSET])
            raise CorruptBatch(self._topic_partition, offset, problem.message) from problem

    def _join(self, parts: list[Bytes], batches: Longs) -> Bytes:
        """The parts as one; the table of their batches says where each lies in it."""
        ends = numpy.cumsum([part.size for part in parts])
        batches[:, kernels.PAYLOAD_END] = ends
        batches[:, kernels.PAYLOAD_START] = ends - [part.size for part in parts]
        self._check_counts(batches)
        return _joined(parts)

    def _check_counts(self, batches: Longs) -> None:
        """A count that its bytes cannot hold must not size an allocation."""
        counts = batches[:, kernels.RECORD_COUNT]
        sizes = batches[:, kernels.PAYLOAD_END] - batches[:, kernels.PAYLOAD_START]
        impossible = (counts < 0) | (counts > sizes // MIN_RECORD_BYTES)
        if impossible.any():
            index = int(impossible.argmax())
            raise CorruptBatch(
                self._topic_partition,
                int(batches[index, kernels.BASE_OFFSET]),
                f"{sizes[index]} bytes cannot hold {counts[index]} records",
            )


def payload_bytes(batches: Longs) -> int:
    """How many bytes the records of `batches` take."""
    return int((batches[:, kernels.PAYLOAD_END] - batches[:, kernels.PAYLOAD_START]).sum())


def merged(pieces: list[Piece]) -> Piece:
    """One piece out of several: the bytes of their records side by side."""
    if len(pieces) == 1:
        return pieces[0]
    moved = []
    parts: list[Bytes] = []
    position = 0
    for data, batches in pieces:
        start, end = int(batches[0, kernels.PAYLOAD_START]), int(batches[-1, kernels.PAYLOAD_END])
        copy = batches.copy()
        copy[:, [kernels.PAYLOAD_START, kernels.PAYLOAD_END]] += position - start
        moved.append(copy)
        parts.append(data[start:end])
        position += end - start
    return _joined(parts), numpy.concatenate(moved)


def _cut(batches: Longs, target_rows: int, target_bytes: int) -> list[Longs]:
    """Runs of about equal size, each near the targets."""
    if not len(batches):
        return []
    rows = numpy.cumsum(batches[:, kernels.RECORD_COUNT])
    size = int(batches[-1, kernels.PAYLOAD_END] - batches[0, kernels.PAYLOAD_START])
    count = max(round(int(rows[-1]) / target_rows), round(size / target_bytes), 1)
    if count == 1:
        return [batches]
    edges = numpy.searchsorted(rows, [rows[-1] * part / count for part in range(1, count)]) + 1
    return [part for part in numpy.split(batches, edges) if len(part)]


def _joined(parts: list[Bytes]) -> Bytes:
    if len(parts) == 1:
        return parts[0]
    joined = numpy.concatenate(parts)
    joined.flags.writeable = False
    return joined
