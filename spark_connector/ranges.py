"""Reading one offset range of one partition: fetch, check, choose the batches, hand out Arrow record batches.

The next fetch is on its way while the records of the last one are turned into columns. Holes are skipped as
they come (compaction, control batches, aborted transactions): a read is over when nothing visible is left
below its end, wherever the last record was. Only offsets below the log start, or beyond its end, are lost
data.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import crc32c
import numpy
import pyarrow

from protocol.compression import decompress_array
from protocol.control import ControlType, control_type
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.record_kernels import MIN_RECORD_BYTES
from protocol.records import as_array, decode_batch
from spark_connector import kernels
from spark_connector.client import Backoff, Cluster, connect, refusal
from spark_connector.columns import BrokenRecords, ColumnBuilder
from spark_connector.connection import FETCH, Connection, Unavailable
from spark_connector.errors import ConnectorError, DataLossError, MissingTopicError
from spark_connector.kernels import Bytes, Longs
from spark_connector.offsets import EARLIEST, LATEST, OffsetRange
from spark_connector.options import Options

logger = logging.getLogger("kompakt.spark")

# Enough rows that a record batch costs Spark little beside its bytes, few enough to stay in the caches.
TARGET_ROWS = 40_000
TARGET_BYTES = 4 * 1024 * 1024
# Less than this is kept back and joined with what comes next.
LEAST_ROWS = 10_000
LEAST_BYTES = 1024 * 1024

SCAN_ROWS = 8192  # batches found in one scan
DECOMPRESSED_LIMIT_BYTES = 512 * 1024 * 1024
PATIENT_WAIT_MS = 500

CODEC_MASK = 0x07
TRANSACTIONAL = 0x10
CONTROL = 0x20
CRC_FROM = 21

Piece = tuple[Bytes, Longs]


class RangeReader:
    """One pass over one range. Owned by: the task that reads it."""

    def __init__(self, options: Options, wanted: OffsetRange, columns: Sequence[str]) -> None:
        self.topic_partition = wanted.topic_partition
        self._options = options
        self._settings = options.client
        self._cluster: Cluster = connect(options.client)
        try:
            self._start, self._end = self._resolve(wanted)
        except MissingTopicError as problem:
            self._lose(str(problem))
            self._start = self._end = 0
        self._next = self._start
        self._start_after_loss = -1
        self._fetch_bytes = self._settings.fetch_bytes
        self._is_patient = False
        self._waiting_since: float | None = None
        self._builder = ColumnBuilder(columns, wanted.topic_partition)
        self._pending: list[Piece] = []
        self._pending_rows = 0
        self._pending_bytes = 0

    def _resolve(self, wanted: OffsetRange) -> tuple[int, int]:
        start, end = wanted.start, wanted.end
        only = [wanted.topic_partition]
        if start in (EARLIEST, LATEST):
            start = self._cluster.list_offsets({wanted.topic_partition: start})[wanted.topic_partition]
        if end in (EARLIEST, LATEST):
            end = self._cluster.latest_offsets(only)[wanted.topic_partition]
        if start > end and wanted.start >= 0:
            raise ConnectorError(f"{self.topic_partition}: the read starts at {start}, behind its end {end}")
        return start, end

    def record_batches(self) -> Iterator[pyarrow.RecordBatch]:
        """All records of the range, in order."""
        backoff = Backoff(self._settings)
        while self._next < self._end:
            try:
                yield from self._read_from_leader(backoff)
            except Unavailable as problem:
                self._cluster.forget_leaders([self.topic_partition])
                try:
                    backoff.wait(problem, f"reading {self.topic_partition} at offset {self._next}")
                except MissingTopicError as missing:
                    self._lose(str(missing))
                    self._next = self._end
        yield from self._flush()

    def _read_from_leader(self, backoff: Backoff) -> Iterator[pyarrow.RecordBatch]:
        with self._cluster.connection(self._cluster.leader_of(self.topic_partition)) as connection:
            self._request(connection)
            while True:
                reached = self._next
                pieces = self._take(connection.receive())
                if self._start_after_loss > self._start:
                    yield from self._flush()
                    self._start = self._start_after_loss
                has_more = self._next < self._end
                if self._next > reached:
                    backoff.restart()
                if has_more:
                    self._request(connection)
                while pieces:
                    # Taken off the list: nothing of an answer stays in memory while the next one is read.
                    yield from self._add(*pieces.pop(0))
                if not has_more:
                    return

    # --- asking

    def _request(self, connection: Connection) -> None:
        """Without patience an answer comes at once, with it the broker may wait for records to arrive."""
        partition = FetchRequest.FetchTopic.FetchPartition(
            partition=self.topic_partition.partition,
            current_leader_epoch=-1,
            fetch_offset=self._next,
            log_start_offset=-1,
            partition_max_bytes=self._fetch_bytes,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=PATIENT_WAIT_MS if self._is_patient else 0,
            min_bytes=1 if self._is_patient else 0,
            max_bytes=self._fetch_bytes,
            isolation_level=int(self._settings.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=self.topic_partition.topic, partitions=[partition])],
        )
        connection.send(request, FETCH, FetchResponse)

    # --- judging an answer

    def _take(self, answer: FetchResponse) -> list[Piece]:
        """The batches to read of an answer; moves `_next` behind all that it covers."""
        if answer.throttle_time_ms > 0:
            time.sleep(answer.throttle_time_ms / 1000)
        if answer.error_code:
            raise refusal(answer.error_code, f"fetching {self.topic_partition}")
        if len(answer.responses) != 1 or len(answer.responses[0].partitions) != 1:
            raise Unavailable(f"an answer without {self.topic_partition}")
        partition = answer.responses[0].partitions[0]
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_what_is_gone()
            return []
        if partition.error_code:
            raise refusal(partition.error_code, f"fetching {self.topic_partition}")
        if not partition.records:
            self._judge_silence(partition, is_throttled=answer.throttle_time_ms > 0)
            return []
        self._is_patient = False
        self._waiting_since = None
        return self._choose(as_array(partition.records), partition.aborted_transactions or ())

    def _judge_silence(self, partition: Any, is_throttled: bool) -> None:
        """No bytes: the rest of the range is a hole, or not there yet, or not there any more."""
        visible_end = (
            partition.last_stable_offset if self._settings.read_committed else partition.high_watermark
        )
        if visible_end >= self._end:
            if self._is_patient and not is_throttled:
                self._next = self._end
            self._is_patient = True
            return
        self._is_patient = True
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since > self._options.poll_timeout_ms / 1000:
            self._lose(
                f"offsets {self._next} to {self._end - 1} were planned, but the log ends at {visible_end}"
            )
            self._next = self._end

    def _skip_what_is_gone(self) -> None:
        """The broker does not have the next offset: go on at the log start, never below what was planned."""
        only = [self.topic_partition]
        log_start = self._cluster.earliest_offsets(only)[self.topic_partition]
        if self._next < log_start:
            lost_end = min(log_start, self._end)
            self._lose(f"offsets {self._next} to {lost_end - 1} are gone, the log starts at {log_start}")
            # The log may start within a batch, whose earlier records are gone as well.
            self._next = self._start_after_loss = lost_end
            return
        log_end = self._cluster.latest_offsets(only)[self.topic_partition]
        if self._next <= log_end:
            raise Unavailable(f"offset {self._next} was out of range, and now is not")
        self._lose(f"offsets {self._next} to {self._end - 1} were planned, but the log ends at {log_end}")
        self._next = self._end

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{self.topic_partition}: {what}. Records were deleted or the topic was made anew; "
                f"set failOnDataLoss=false to go on with what is left"
            )
        logger.warning("%s: %s; going on, as failOnDataLoss is false", self.topic_partition, what)

    # --- choosing batches

    def _choose(self, data: Bytes, aborted: Sequence[Any]) -> list[Piece]:
        asked = self._next
        pieces = []
        position = 0
        while self._next < self._end:
            table = numpy.empty((SCAN_ROWS, kernels.BATCH_FIELDS), numpy.int64)
            count, position, fault = kernels.scan_batches(data, position, table)
            batches = table[:count]
            if count:
                self._next = max(self._next, int(batches[:, kernels.NEXT_OFFSET].max()))
                pieces.append((data, self._choose_visible(data, batches, asked, aborted)))
            if fault != kernels.SCANNED and self._next < self._end:
                raise self._corrupt(self._next, _scan_fault(data, position, fault))
            if count < SCAN_ROWS:
                break
        if not pieces:
            self._ask_for_more(data)
        elif self._next <= asked:
            raise ConnectorError(
                f"{self.topic_partition}: a fetch at offset {asked} brought older batches only"
            )
        return pieces

    def _ask_for_more(self, data: Bytes) -> None:
        """Not one whole batch: brokers before KIP-74 cut the first one."""
        if self._fetch_bytes > DECOMPRESSED_LIMIT_BYTES:
            raise ConnectorError(f"{self.topic_partition}: the batch at offset {self._next} is too large")
        self._fetch_bytes = max(2 * self._fetch_bytes, 2 * data.size)

    def _choose_visible(self, data: Bytes, batches: Longs, asked: int, aborted: Sequence[Any]) -> Longs:
        """Those of `batches` that overlap the range, intact, without control batches and aborted records."""
        overlaps = (batches[:, kernels.NEXT_OFFSET] > asked) & (batches[:, kernels.BASE_OFFSET] < self._end)
        if self._settings.check_crcs:
            self._check_crcs(data, batches[overlaps])
        is_wanted = overlaps & ((batches[:, kernels.ATTRIBUTES] & CONTROL) == 0)
        if self._settings.read_committed and aborted:
            is_wanted &= self._committed(data, batches, aborted)
        chosen: Longs = batches[is_wanted]
        return chosen

    def _check_crcs(self, data: Bytes, batches: Longs) -> None:
        view = data.data
        fields = batches[:, [kernels.POSITION, kernels.SIZE_BYTES, kernels.CRC, kernels.BASE_OFFSET]].tolist()
        for position, size, crc, base_offset in fields:
            if crc32c.crc32c(view[position + CRC_FROM : position + size]) != crc:
                raise self._corrupt(base_offset, "its checksum does not fit its bytes")

    def _committed(self, data: Bytes, batches: Longs, aborted: Sequence[Any]) -> numpy.ndarray[Any, Any]:
        """False for what was aborted, found as a consumer does: by producer, until its marker."""
        result = numpy.ones(len(batches), bool)
        starts = sorted((transaction.first_offset, transaction.producer_id) for transaction in aborted)
        open_producers: set[int] = set()
        position = 0
        for index, batch in enumerate(batches.tolist()):
            while position < len(starts) and starts[position][0] < batch[kernels.NEXT_OFFSET]:
                open_producers.add(starts[position][1])
                position += 1
            producer_id = batch[kernels.PRODUCER_ID]
            if batch[kernels.ATTRIBUTES] & CONTROL:
                if producer_id in open_producers and _is_abort_marker(data, batch[kernels.POSITION]):
                    open_producers.discard(producer_id)
            elif batch[kernels.ATTRIBUTES] & TRANSACTIONAL and producer_id in open_producers:
                result[index] = False
        return result

    def _corrupt(self, offset: int, reason: str) -> ConnectorError:
        return ConnectorError(
            f"{self.topic_partition}: the record batch at offset {offset} is corrupt: {reason}"
        )

    # --- records to columns

    def _add(self, data: Bytes, batches: Longs) -> Iterator[pyarrow.RecordBatch]:
        """Turn chosen batches into record batches; what is too little for one waits for more."""
        for unpacked, chosen in self._unpack(data, batches):
            self._pending.append((unpacked, chosen))
            self._pending_rows += int(chosen[:, kernels.RECORD_COUNT].sum())
            self._pending_bytes += _payload_bytes(chosen)
            del unpacked
            if self._pending_rows >= LEAST_ROWS or self._pending_bytes >= LEAST_BYTES:
                yield from self._flush()

    def _unpack(self, data: Bytes, batches: Longs) -> Iterator[Piece]:
        """Pieces of about TARGET_ROWS and TARGET_BYTES; what is compressed becomes new bytes."""
        if not (batches[:, kernels.ATTRIBUTES] & CODEC_MASK).any():
            self._check_counts(batches)
            for chosen in _cut(batches):
                yield data, chosen
            return
        parts: list[Bytes] = []
        first = rows = size = 0
        for index in range(len(batches)):
            parts.append(self._decompress(data, batches[index]))
            batches[index, kernels.PAYLOAD_START] = size
            size += parts[-1].size
            batches[index, kernels.PAYLOAD_END] = size
            rows += int(batches[index, kernels.RECORD_COUNT])
            if rows >= TARGET_ROWS or size >= TARGET_BYTES or index == len(batches) - 1:
                self._check_counts(batches[first : index + 1])
                joined = [_joined(parts)]
                parts, rows, size = [], 0, 0
                yield joined.pop(), batches[first : index + 1]
                first = index + 1

    def _decompress(self, data: Bytes, batch: Longs) -> Bytes:
        stored = data.data[batch[kernels.PAYLOAD_START] : batch[kernels.PAYLOAD_END]]
        try:
            return decompress_array(
                int(batch[kernels.ATTRIBUTES]) & CODEC_MASK, stored, DECOMPRESSED_LIMIT_BYTES
            )
        except KafkaError as problem:
            raise self._corrupt(int(batch[kernels.BASE_OFFSET]), problem.message) from problem

    def _check_counts(self, batches: Longs) -> None:
        """A count that its bytes cannot hold must not size an allocation."""
        counts = batches[:, kernels.RECORD_COUNT]
        sizes = batches[:, kernels.PAYLOAD_END] - batches[:, kernels.PAYLOAD_START]
        impossible = (counts < 0) | (counts > sizes // MIN_RECORD_BYTES)
        if impossible.any():
            index = int(impossible.argmax())
            raise self._corrupt(
                int(batches[index, kernels.BASE_OFFSET]),
                f"{sizes[index]} bytes cannot hold {counts[index]} records",
            )

    def _flush(self) -> Iterator[pyarrow.RecordBatch]:
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        self._pending_rows = self._pending_bytes = 0
        data, batches = _merged(pending)
        pending.clear()
        try:
            yield from self._builder.build(data, batches, self._start, self._end)
        except BrokenRecords as problem:
            raise self._corrupt(int(batches[problem.batch, kernels.BASE_OFFSET]), str(problem)) from problem


def _payload_bytes(batches: Longs) -> int:
    return int((batches[:, kernels.PAYLOAD_END] - batches[:, kernels.PAYLOAD_START]).sum())


def _scan_fault(data: Bytes, position: int, fault: int) -> str:
    if fault == kernels.WRONG_MAGIC:
        magic = int(data[position + kernels.MAGIC_POSITION])
        return f"its message format is {magic}, only format 2 (Kafka 0.11 and later) can be read"
    return "its length is less than that of a batch header"


def _is_abort_marker(data: Bytes, position: int) -> bool:
    records = decode_batch(data.data, position)
    return bool(records) and control_type(records[0].key) == ControlType.ABORT


def _cut(batches: Longs) -> list[Longs]:
    """Runs of about equal size, each near the targets."""
    if not len(batches):
        return []
    rows = numpy.cumsum(batches[:, kernels.RECORD_COUNT])
    size = int(batches[-1, kernels.PAYLOAD_END] - batches[0, kernels.PAYLOAD_START])
    count = max(round(int(rows[-1]) / TARGET_ROWS), round(size / TARGET_BYTES), 1)
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


def _merged(pieces: list[Piece]) -> Piece:
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
