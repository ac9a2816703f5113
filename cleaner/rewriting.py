"""The third step of a cleaning: copy what survives of a group of segments into a new one.

Mirrors `Cleaner.cleanSegments` and `cleanInto`. Batches that stay whole are copied byte for byte; of others
the same header goes on with fewer records (T48). What is written anew gets a new checksum, so its source is
checked first: damage is never made to look whole. The sink is where survivors go: files, or nothing in a
dry run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy

from cleaner.filter_kernels import (
    ABORTED,
    ARM,
    BROKEN,
    COMPRESSED,
    DAMAGED,
    DONE,
    GROWTH_BYTES,
    KEEP_SHELL,
    KEPT,
    KEYLESS,
    LIVE,
    MARKER,
    NEWEST_HORIZON,
    READ,
    RECORD_ROWS,
    SUPERSEDED,
    TALLY_NUMBERS,
    TOMBSTONE,
    TOMBSTONES_KEPT,
    UNMARKED,
    Knowledge,
    copy_kept,
)  # fmt: skip
from cleaner.mapping import decompressed, special_batches, tell_transactions
from cleaner.offset_map import Bytes, Longs
from cleaner.reading import FAILS_CHECKSUM, Chunk, ChunkReader
from cleaner.recoding import Recoder
from cleaner.retention import judge_batch, judge_plain_batches, last_data_offsets
from cleaner.rewrite_kernels import filter_batches, filter_records, keep_all, write_shell
from cleaner.transactions import CleanedTransactions
from cleaner.unpacking import new_scratch
from protocol.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    parse_header,
    seal_header,
)  # fmt: skip
from protocol.compression import compress
from protocol.record_kernels import MIN_RECORD_BYTES
from storage.batch_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    POSITION,
    RECORD_COUNT,
    SIZE_BYTES,
)
from storage.checksums import crc32c, is_damaged
from storage.file import Buffer
from storage.segment import Segment
from storage.types import AbortedTransaction, LastRecord


class Sink(Protocol):
    """Takes whole batches in order; what it holds at the end replaces the group."""

    def write(self, batches: memoryview, last_offset: int) -> None: ...

    def add_aborted(self, transactions: Sequence[AbortedTransaction]) -> None: ...


class Rewriter:
    """All groups of one cleaning, in order. Owned by: one cleaner thread."""

    def __init__(
        self,
        reader: ChunkReader,
        known: Knowledge,
        *,
        active_producers: dict[int, LastRecord],
        aborted: Sequence[AbortedTransaction],
        end_of_round: int,
        account: Callable[[int], None],
        recoder: Recoder | None = None,
    ) -> None:
        self._reader = reader
        self._known = known
        self._active_producers = active_producers
        self._last_offsets = last_data_offsets(active_producers)
        self._transactions = CleanedTransactions(aborted)
        self._end_of_round = end_of_round
        self._account = account
        self._recoder = recoder
        self._output_bytes = reader.read_bytes + reader.read_bytes // 4
        self._output = numpy.empty(self._output_bytes, numpy.uint8)
        self._at = 0
        self._last_written = -1
        self._rows: Any = numpy.empty((RECORD_ROWS, 0), numpy.int64)
        self._hashes: Any = numpy.empty((2, 0), numpy.uint64)
        self._lz4 = new_scratch()
        self._crc32c = crc32c()
        self.tally: Longs = numpy.zeros(TALLY_NUMBERS, numpy.int64)
        self.first_offset = -1  # of all that was read
        self.bytes_read = 0
        self.bytes_written = 0

    def rewrite(self, segments: Sequence[Segment], sink: Sink) -> None:
        """Copy what survives of `segments` to `sink`."""
        for segment in segments:
            # The dirty part was checked when it was mapped; what is written anew of it is checked again.
            for chunk in self._reader.chunks(segment, checked_to=self._known.bits_start - 1):
                if self.first_offset < 0:
                    self.first_offset = int(chunk.columns[BASE_OFFSET, 0])
                self.bytes_read += int(chunk.columns[SIZE_BYTES].sum())
                self._rewrite_chunk(chunk, sink)
                retained = self._transactions.take_retained()
                if retained:  # they go where their markers are
                    self._empty_output(sink)
                    sink.add_aborted(retained)
            if self._output.size > self._output_bytes:  # what one batch needed is not kept for all (T60)
                self._empty_output(sink)
                self._output = numpy.empty(self._output_bytes, numpy.uint8)
        self._empty_output(sink)

    def _rewrite_chunk(self, chunk: Chunk, sink: Sink) -> None:
        verdicts = self._judge(chunk)
        self._make_room(chunk)
        index = 0
        while index < chunk.count:
            reason, stopped, at = filter_batches(
                chunk.array, chunk.batches, verdicts, index, chunk.count, self._rows, self._hashes,
                self._known, self._lz4, self._reader.pauses, self._output, self._at, self._crc32c,
                self.tally,
            )  # fmt: skip
            index = int(stopped)
            self._at = int(at)
            if index:
                self._last_written = int(chunk.batches[LAST_OFFSET, index - 1])
            if reason == BROKEN:
                raise chunk.corrupt(index, "is not made of whole records")
            if reason == DAMAGED:
                raise chunk.corrupt(index, FAILS_CHECKSUM)
            if reason == COMPRESSED:
                self._rewrite_compressed(chunk, index, int(verdicts[index]), sink)
                index += 1
            elif reason != DONE:
                self._empty_output(sink)
                self._grow_output(chunk, index)
        self._last_written = int(chunk.batches[LAST_OFFSET, chunk.count - 1])

    def _judge(self, chunk: Chunk) -> Bytes:
        """What `judge_batch` says of each batch."""
        verdicts = judge_plain_batches(chunk.columns, self._last_offsets, self._end_of_round)
        for index in special_batches(chunk):
            header = parse_header(chunk.data, int(chunk.batches[POSITION, index]))
            verdicts[index] = judge_batch(
                header,
                is_obsolete=tell_transactions(chunk, index, self._transactions),
                last_record=self._active_producers.get(header.producer_id),
                end_of_round=self._end_of_round,
                now_ms=self._known.now_ms,
            )
        return verdicts

    def _make_room(self, chunk: Chunk) -> None:
        """Rows for the records of the largest batch; a count that its bytes cannot hold is seen later."""
        columns = chunk.columns
        plain = numpy.minimum(columns[RECORD_COUNT], columns[SIZE_BYTES] // MIN_RECORD_BYTES)
        self._reserve_rows(int(plain.max()))

    def _reserve_rows(self, count: int) -> None:
        if count > self._rows.shape[1]:
            self._rows = numpy.empty((RECORD_ROWS, count + count // 4), numpy.int64)
            self._hashes = numpy.empty((2, count + count // 4), numpy.uint64)

    def _grow_output(self, chunk: Chunk, index: int) -> None:
        needed = size = int(chunk.batches[SIZE_BYTES, index])
        if not chunk.batches[ATTRIBUTES, index] & CODEC_MASK:
            needed += GROWTH_BYTES * int(chunk.batches[RECORD_COUNT, index])
        if needed > size * (GROWTH_BYTES + 1):
            raise chunk.corrupt(index, "claims more records than it has bytes")
        if needed > self._output.size:
            self._output = numpy.empty(needed, numpy.uint8)

    def _empty_output(self, sink: Sink) -> None:
        if self._at:
            batches = self._output.data[: self._at]
            if self._recoder is not None:
                batches = self._recoder.recode(batches)
            self._account(len(batches))
            sink.write(batches, self._last_written)
            self.bytes_written += len(batches)
            self._at = 0

    # Compressed batches that the kernel left, one by one

    def _rewrite_compressed(self, chunk: Chunk, index: int, verdict: int, sink: Sink) -> None:
        position = int(chunk.batches[POSITION, index])
        header = parse_header(chunk.data, position)
        records = decompressed(chunk, index)
        count = header.record_count
        if count > records.size // MIN_RECORD_BYTES:
            raise chunk.corrupt(index, "claims more records than it has bytes")
        self._reserve_rows(count)
        kept, tombstones = self._filter(chunk, index, header, records)
        if kept == 0:
            if verdict & KEEP_SHELL:
                self._write_shell(chunk, position)
            return
        horizon_ms = header.delete_horizon_ms
        is_armed_now = horizon_ms is None and bool(tombstones or verdict & ARM)
        if kept == count and not is_armed_now:
            self._write(chunk.data[position : position + header.size_bytes], header.last_offset, sink)
            return
        if is_damaged(chunk.array, chunk.batches, index, self._crc32c):
            raise chunk.corrupt(index, FAILS_CHECKSUM)
        horizon_ms = self._known.new_horizon_ms if is_armed_now else horizon_ms
        self._write(self._recompressed(header, records, kept, horizon_ms), header.last_offset, sink)

    def _filter(self, chunk: Chunk, index: int, header: BatchHeader, records: Bytes) -> tuple[int, int]:
        horizon_ms = NO_TIMESTAMP if header.delete_horizon_ms is None else header.delete_horizon_ms
        count = header.record_count
        if header.attributes & CONTROL:
            fault = keep_all(records, 0, records.size, count, self._rows, self.tally)
            kept, tombstones = count, 0
        else:
            fault, kept, tombstones = filter_records(
                records, 0, records.size, count, header.base_offset, horizon_ms,
                self._rows, self._hashes, self._known, self.tally,
            )  # fmt: skip
        if fault != DONE:
            raise chunk.corrupt(index, "is not made of whole records")
        return int(kept), int(tombstones)

    def _recompressed(self, header: BatchHeader, records: Bytes, kept: int, horizon_ms: int | None) -> bytes:
        """The batch with the kept records only, in the same codec at its default level (T58)."""
        count = header.record_count
        output = numpy.empty(records.size + GROWTH_BYTES * count, numpy.uint8)
        stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else NO_TIMESTAMP
        horizon = NO_TIMESTAMP if horizon_ms is None else horizon_ms
        end, base_timestamp, largest = copy_kept(
            records, self._rows, count, header.base_timestamp, stamped, horizon, output, 0
        )
        section = compress(header.codec, output.data[: int(end)])
        rebuilt = header._replace(
            attributes=header.attributes | (0 if horizon_ms is None else DELETE_HORIZON),
            base_timestamp=int(base_timestamp),
            max_timestamp=header.max_timestamp if stamped != NO_TIMESTAMP else int(largest),
            record_count=kept,
        )
        return seal_header(rebuilt, section) + section

    def _write(self, batch: Buffer, last_offset: int, sink: Sink) -> None:
        if self._output.size - self._at < len(batch):
            self._last_written = last_offset - 1
            self._empty_output(sink)
            if self._output.size < len(batch):
                self._output = numpy.empty(len(batch), numpy.uint8)
        self._output[self._at : self._at + len(batch)] = numpy.frombuffer(batch, numpy.uint8)
        self._at += len(batch)

    def _write_shell(self, chunk: Chunk, position: int) -> None:
        """There is room: the kernel leaves no batch to us before there is some for all of it."""
        assert self._output.size - self._at >= HEADER_BYTES
        self._at = int(write_shell(chunk.array, position, self._output, self._at, self._crc32c))

    def removed(self, keyless_mapped: int) -> dict[int, int]:
        """How many records went, by the tally's reasons; `keyless_mapped` were seen while mapping."""
        tally = [int(number) for number in self.tally]
        keyless = keyless_mapped if self._known.bits.size else 0
        return {
            SUPERSEDED: tally[SUPERSEDED] + tally[UNMARKED] - keyless,
            TOMBSTONE: tally[TOMBSTONE],
            ABORTED: tally[ABORTED],
            KEYLESS: tally[KEYLESS] + keyless,
            MARKER: tally[MARKER],
        }

    @property
    def records_read(self) -> int:
        return int(self.tally[READ])

    @property
    def records_kept(self) -> int:
        return int(self.tally[KEPT])

    @property
    def live_keys(self) -> int:
        return int(self.tally[LIVE])

    @property
    def tombstones_kept(self) -> int:
        return int(self.tally[TOMBSTONES_KEPT])

    @property
    def newest_horizon_ms(self) -> int:
        """When all of them may go that wait for a time; -1 where none does."""
        return int(self.tally[NEWEST_HORIZON]) or NO_TIMESTAMP
