"""Fetching a range of offsets of one partition: asking, judging the answers, choosing the batches to read.

Holes are skipped as they come (compaction, control batches, aborted transactions): a range is over when
nothing visible is left below its end, wherever the last record was. Only offsets below the log start, or
beyond its end, are lost data.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import crc32c
import numpy

from protocol.batch import ATTRIBUTES_POSITION, CONTROL, MAGIC_POSITION
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.records import as_array
from spark_connector import kernels
from spark_connector.aborted import AbortedTransactions
from spark_connector.client import Cluster, refusal
from spark_connector.connection import FETCH, Connection, Unavailable
from spark_connector.errors import ConnectorError, DataLossError
from spark_connector.fetch_request import fetch_request
from spark_connector.kernels import Bytes, Longs
from spark_connector.offsets import TopicPartition
from spark_connector.options import Options
from spark_connector.silence import PAUSE_S, Silence, Verdict
from spark_connector.unpacking import DECOMPRESSED_LIMIT_BYTES, CorruptBatch, Piece

logger = logging.getLogger("kompakt.spark")

SCAN_ROWS = 8192  # batches found in one scan
PATIENT_WAIT_MS = 500
# The first answer for a range of few offsets: so many bytes for each of them, and never less than that.
GUESSED_RECORD_BYTES = 1024
LEAST_FETCH_BYTES = 64 * 1024


class Fetcher:
    """One pass over [next, end) of a partition. Owned by: the task that reads it.

    `next` moves on with each answer; `start` moves up when the log's beginning turns out to be gone.
    """

    def __init__(
        self,
        options: Options,
        cluster: Cluster,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        fetch_bytes: int = 0,
    ) -> None:
        self.topic_partition = topic_partition
        self.start = self.next = start
        self.end = end
        self._options = options
        self._settings = options.client
        self._cluster = cluster
        self._fetch_bytes = fetch_bytes or self._settings.fetch_bytes
        self._is_first = not fetch_bytes  # who names a size knows what a record takes
        self._silence = Silence(options.poll_timeout_ms / 1000)
        self._last_visible: int | None = None  # asked for before the next offset is asked for again

    # --- asking

    def request(self, connection: Connection) -> None:
        """Without patience an answer comes at once, with it the broker may wait for records to arrive."""
        looks_at_end = self._last_visible is not None
        request = fetch_request(
            self.topic_partition,
            self.next if self._last_visible is None else self._last_visible,
            LEAST_FETCH_BYTES if looks_at_end else self._bytes_to_ask_for(),
            read_committed=self._settings.read_committed,
            wait_ms=PATIENT_WAIT_MS if self._silence.has_begun and not looks_at_end else 0,
        )
        connection.send(request, FETCH, FetchResponse)

    def _bytes_to_ask_for(self) -> int:
        """A small micro-batch within a long log must not bring megabytes; the second answer is full-sized."""
        if not self._is_first:
            return self._fetch_bytes
        likely = (self.end - self.next) * GUESSED_RECORD_BYTES
        return min(self._fetch_bytes, max(likely, LEAST_FETCH_BYTES))

    # --- judging an answer

    def take(self, answer: FetchResponse) -> list[Piece]:
        """The batches to read of an answer; moves `next` behind all that it covers."""
        self._is_first = False
        if answer.throttle_time_ms > 0:
            # Blocks: a client over its quota is not heard for so long, and a task has nothing else to do. No
            # longer than an answer may take: whether the broker is still deaf then, the next request shows.
            time.sleep(min(answer.throttle_time_ms, self._settings.request_timeout_ms) / 1000)
        if answer.error_code:
            raise refusal(answer.error_code, f"fetching {self.topic_partition}")
        if answer.throttle_time_ms > 0 and not answer.responses:
            return self._hear_nothing()
        if len(answer.responses) != 1 or len(answer.responses[0].partitions) != 1:
            raise Unavailable(f"an answer without {self.topic_partition}")
        partition = answer.responses[0].partitions[0]
        if self._last_visible is not None:
            self._last_visible = None
            # An error tells nothing of holes and comes for the next offset too; a quota holds records back.
            if not partition.error_code and answer.throttle_time_ms <= 0:
                self._silence.look_at_end(has_records=bool(partition.records))
            return []
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_what_is_gone()
            return []
        if partition.error_code:
            raise refusal(partition.error_code, f"fetching {self.topic_partition}")
        if not partition.records:
            self._judge_silence(partition, is_throttled=answer.throttle_time_ms > 0)
            return []
        self._silence.end()
        return self._choose(as_array(partition.records), partition.aborted_transactions or ())

    def _hear_nothing(self) -> list[Piece]:
        """The client is over its quota: it is told nothing of the partition, and asks for the same again."""
        self._last_visible = None
        verdict = self._silence.judge(time.monotonic(), is_visible=False, is_throttled=True)
        if verdict == Verdict.TOO_LONG:
            self._give_up(self.end, is_throttled=True)
        return []

    def _judge_silence(self, partition: Any, is_throttled: bool) -> None:
        """No bytes: the rest of the range is a hole, or not there yet, or not there any more."""
        visible_end = (
            partition.last_stable_offset if self._settings.read_committed else partition.high_watermark
        )
        is_visible = visible_end >= self.end
        verdict = self._silence.judge(time.monotonic(), is_visible=is_visible, is_throttled=is_throttled)
        if verdict == Verdict.HOLE:
            logger.info("%s: offsets %d to %d are a hole", self.topic_partition, self.next, self.end - 1)
            self.next = self.end
        elif verdict == Verdict.TOO_LONG:
            self._give_up(visible_end, is_throttled)
        elif verdict == Verdict.LOOK_AT_THE_END or self._silence.is_end_there:
            if verdict == Verdict.LOOK_AT_THE_END:
                self._last_visible = visible_end - 1
            # Blocks, as a throttle does: a broker that has the range's end answers at once, whatever it was
            # told to wait, and would be asked thousands of times a second.
            time.sleep(PAUSE_S)

    def _give_up(self, visible_end: int, is_throttled: bool) -> None:
        """The poll timeout is over: an error, unless the log ends before the range and that may be."""
        limit = f"for {self._options.poll_timeout_ms / 1000:g} s (kafkaConsumer.pollTimeoutMs)"
        if visible_end < self.end:
            self.lose(
                f"offsets {self.next} to {self.end - 1} were planned, but the log ends at {visible_end}"
            )
            self.next = self.end
            return
        if is_throttled:
            raise ConnectorError(
                f"{self.topic_partition}: the broker throttles this client (a quota) and gave nothing at "
                f"offset {self.next} {limit}"
            )
        raise ConnectorError(
            f"{self.topic_partition}: the broker gave no records at offset {self.next} {limit}, although it "
            f"has some at offset {visible_end - 1}; is its storage slow or broken?"
        )

    def _skip_what_is_gone(self) -> None:
        """The broker does not have the next offset: go on at the log start, never below what was planned."""
        only = [self.topic_partition]
        log_start = self._cluster.earliest_offsets(only)[self.topic_partition]
        if self.next < log_start:
            lost_end = min(log_start, self.end)
            self.lose(f"offsets {self.next} to {lost_end - 1} are gone, the log starts at {log_start}")
            # The log may start within a batch, whose earlier records are gone as well.
            self.next = self.start = lost_end
            self._silence.end()
            return
        log_end = self._cluster.latest_offsets(only)[self.topic_partition]
        if self.next <= log_end:
            raise Unavailable(f"offset {self.next} was out of range, and now is not")
        self.lose(f"offsets {self.next} to {self.end - 1} were planned, but the log ends at {log_end}")
        self.next = self.end

    def lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{self.topic_partition}: {what}. Records were deleted or the topic was made anew; "
                f"set failOnDataLoss=false to go on with what is left"
            )
        logger.warning("%s: %s; going on, as failOnDataLoss is false", self.topic_partition, what)

    # --- choosing batches

    def _choose(self, data: Bytes, aborted: Sequence[Any]) -> list[Piece]:
        asked = self.next
        judge = AbortedTransactions(data, aborted if self._settings.read_committed else ())
        pieces = []
        position = 0
        while self.next < self.end:
            table = numpy.empty((SCAN_ROWS, kernels.BATCH_FIELDS), numpy.int64)
            count, position, fault = kernels.scan_batches(data, position, table)
            batches = table[:count]
            if count:
                self.next = max(self.next, int(batches[:, kernels.NEXT_OFFSET].max()))
                pieces.append((data, self._choose_visible(data, batches, asked, judge)))
            if fault != kernels.SCANNED and self.next < self.end:
                raise CorruptBatch(self.topic_partition, self.next, _scan_fault(data, position, fault))
            if count < SCAN_ROWS:
                break
        if not pieces:
            self._ask_for_more(data)
        elif self.next <= asked:
            raise ConnectorError(
                f"{self.topic_partition}: a fetch at offset {asked} brought older batches only"
            )
        return pieces

    def _ask_for_more(self, data: Bytes) -> None:
        """Not one whole batch: brokers before KIP-74 cut the first one."""
        if self._fetch_bytes > DECOMPRESSED_LIMIT_BYTES:
            raise ConnectorError(f"{self.topic_partition}: the batch at offset {self.next} is too large")
        self._fetch_bytes = max(2 * self._fetch_bytes, 2 * data.size)

    def _choose_visible(self, data: Bytes, batches: Longs, asked: int, judge: AbortedTransactions) -> Longs:
        """Those of `batches` that overlap the range, intact, without control batches and aborted records."""
        overlaps = (batches[:, kernels.NEXT_OFFSET] > asked) & (batches[:, kernels.BASE_OFFSET] < self.end)
        if self._settings.check_crcs:
            self._check_crcs(data, batches[overlaps])
        is_wanted = overlaps & ((batches[:, kernels.ATTRIBUTES] & CONTROL) == 0)
        is_wanted &= judge.committed(batches)
        chosen: Longs = batches[is_wanted]
        return chosen

    def _check_crcs(self, data: Bytes, batches: Longs) -> None:
        view = data.data
        fields = batches[:, [kernels.POSITION, kernels.SIZE_BYTES, kernels.CRC, kernels.BASE_OFFSET]].tolist()
        for position, size, crc, base_offset in fields:
            if crc32c.crc32c(view[position + ATTRIBUTES_POSITION : position + size]) != crc:
                raise CorruptBatch(self.topic_partition, base_offset, "its checksum does not fit its bytes")


def _scan_fault(data: Bytes, position: int, fault: int) -> str:
    if fault == kernels.WRONG_MAGIC:
        magic = int(data[position + MAGIC_POSITION])
        return f"its message format is {magic}, only format 2 (Kafka 0.11 and later) can be read"
    return "its length is less than that of a batch header"
