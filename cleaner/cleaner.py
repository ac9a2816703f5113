"""One cleaning of one log: map -> group -> rewrite -> swap (Kafka's `Cleaner.doClean`).

Everything here runs on a cleaner thread and reads closed segments only. The two moments that touch the log
itself, the snapshot at the beginning and the swap of each group, are run by its owner.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from cleaner import filter_kernels, results
from cleaner.filter_kernels import Knowledge
from cleaner.grouping import SegmentSize, group_segments
from cleaner.mapping import Mapper
from cleaner.offset_map import OffsetMap
from cleaner.reading import ChunkReader
from cleaner.recoding import recoder_of
from cleaner.results import CleanResult, Range
from cleaner.rewriting import Rewriter, Sink
from cleaner.sifting import MapperOf, sift
from cleaner.versions import VersionMap, VersionMapper, goes_by_version
from protocol.batch import HEADER_BYTES, parse_header
from storage import layout
from storage.batch_table import BASE_OFFSET, LAST_OFFSET, POSITION, RECORD_COUNT, SIZE_BYTES, read_table
from storage.cleaned_segment import CleanedSegment, share_out
from storage.jobs import SwapJob
from storage.log import Log
from storage.segment import MAX_RELATIVE_OFFSET, Segment
from storage.snapshot import LogSnapshot
from storage.types import AbortedTransaction

if TYPE_CHECKING:
    from config.topic import TopicConfig

RunOnOwner = Callable[[Callable[[], Any]], Any]

LAST_OFFSET_BITS_BYTES = 16 << 20
LONG_MAX = 2**63 - 1
SPLIT_ROWS = [POSITION, SIZE_BYTES, BASE_OFFSET, LAST_OFFSET]
DEFAULT_READ_BYTES = 4 << 20

_REASON_NAMES = {
    filter_kernels.SUPERSEDED: results.SUPERSEDED,
    filter_kernels.TOMBSTONE: results.TOMBSTONE,
    filter_kernels.ABORTED: results.ABORTED,
    filter_kernels.KEYLESS: results.KEYLESS,
    filter_kernels.MARKER: results.MARKER,
}


class CleaningAborted(Exception):
    """Somebody asked for the log; what was not swapped yet is undone."""


def check_policy(log: Log) -> None:
    """`CleaningAborted` when the topic is compacted no more: whoever said so wants to keep what is still
    there (Kafka's `LogManager.updateTopicConfig` aborts as well).
    """
    if not log.config.is_compacted:
        raise CleaningAborted(f"{log.name} is compacted no more")


def check_strategy(log: Log, config: TopicConfig) -> None:
    """`CleaningAborted` when another record of a key than by `config` is the one that stays by now."""
    now = log.config
    if (now.compaction_strategy, now.compaction_strategy_header) != (
        config.compaction_strategy,
        config.compaction_strategy_header,
    ):
        raise CleaningAborted(f"{log.name} has another compaction.strategy now")


class FileSink:
    """The cleaned files of one group: one segment, or more when it would outgrow its limits (T59, T110)."""

    def __init__(self, snapshot: LogSnapshot, group: Sequence[Segment]) -> None:
        self._snapshot = snapshot
        self._segment_bytes = snapshot.config.segment_bytes
        self._disk = group[0].file.disk
        self.cleaned: list[CleanedSegment] = []
        self._begin(group[0].base_offset)

    def _begin(self, base_offset: int) -> CleanedSegment:
        directory = self._snapshot.directory
        try:
            begun = CleanedSegment(self._disk, directory, base_offset, self._snapshot.config)
        except OSError:
            for kind in layout.SEGMENT_SUFFIXES:
                with contextlib.suppress(OSError):
                    self._disk.unlink(
                        directory / layout.segment_file_name(base_offset, kind, layout.CLEANED_SUFFIX)
                    )
            raise
        self.cleaned.append(begun)
        return begun

    def write(self, batches: memoryview, last_offset: int) -> None:
        target = self.cleaned[-1]
        if self._fits(target, len(batches), last_offset):
            target.append(batches)
            return
        table, _, _ = read_table(batches)
        start = 0
        for position, size, base_offset, last in table[SPLIT_ROWS].T.tolist():
            pending = position - start
            if self._fits(target, pending + size, last):
                continue
            if target.size_bytes or pending or last - target.base_offset > MAX_RELATIVE_OFFSET:
                if pending:
                    target.append(batches[start:position])
                start = position
                target = self._begin(base_offset)
        target.append(batches[start:])

    def _fits(self, target: CleanedSegment, size: int, last_offset: int) -> bool:
        is_near = last_offset - target.base_offset <= MAX_RELATIVE_OFFSET
        return is_near and target.size_bytes + size <= self._segment_bytes

    def add_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        share_out(transactions, self.cleaned)

    def finish(self, last_modified_ms: int) -> None:
        for one in self.cleaned:
            one.finish(last_modified_ms)

    def abandon(self) -> None:
        for one in self.cleaned:
            one.abandon()


class NullSink:
    """Where a dry run writes."""

    def write(self, batches: memoryview, last_offset: int) -> None:
        """Nothing is kept."""

    def add_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Nothing is kept."""


class Cleaner:
    """The buffers of one cleaner thread and the work done with them. Owned by: one cleaner thread.

    `account` is told of all bytes read and written before the next chunk; it may wait (throttle) and raise
    `CleaningAborted`.
    """

    def __init__(
        self,
        *,
        map_bytes: int,
        load_factor: float,
        run_on_owner: RunOnOwner,
        account: Callable[[int], None] = lambda size: None,
        read_bytes: int = DEFAULT_READ_BYTES,
    ) -> None:
        self._map_bytes = map_bytes
        self._load_factor = load_factor
        self._map = OffsetMap(map_bytes, load_factor)
        self._run_on_owner = run_on_owner
        self._account = account
        self._read_bytes = read_bytes

    def clean(
        self,
        log: Log,
        wanted: Range,
        now_ms: int,
        *,
        is_dry: bool = False,
        config: TopicConfig | None = None,
    ) -> CleanResult:
        """Clean `log` up to the end of `wanted`, or as far as the map reaches; the log is changed by its
        owner. `config` stands in for the log's own.
        """
        snapshot: LogSnapshot = self._run_on_owner(lambda: LogSnapshot.of(log))
        if config is not None:
            snapshot = snapshot._replace(config=config)
        result = CleanResult(
            snapshot.topic_partition,
            wanted.first_dirty_offset,
            wanted.first_dirty_offset,
            now_ms,
        )
        ends = _ends_within(snapshot.segments, wanted.end) if is_dry else {}
        reader = ChunkReader(self._read_bytes, self._account, ends)
        try:
            known, keyless = self._map_dirty_part(snapshot, wanted, reader, result)
            if is_dry and result.end_offset < wanted.end:
                del known  # its table is as large as a map may be
                known, keyless = self._map_in_passes(snapshot, wanted, reader, result)
            groups = group_for_rewriting(snapshot, min(result.end_offset, wanted.end), wanted.end)
            rewriter = self._rewriter(snapshot, wanted, known, reader)
            for group in groups:
                began = time.perf_counter()
                cleaned = rewrite_group(rewriter, snapshot, group, is_dry=is_dry)
                if not is_dry:
                    self._swap(log, snapshot.config, group, cleaned, result)
                result.segments_read += len(group)
                result.segments_written += len(cleaned)
                result.rewrite_seconds += time.perf_counter() - began
            self._report(rewriter, keyless, result, snapshot)
            return result
        finally:
            self._map.clear()

    def _map_dirty_part(
        self, snapshot: LogSnapshot, wanted: Range, reader: ChunkReader, result: CleanResult
    ) -> tuple[Knowledge, int]:
        """Fill a map: (what it says, how many records without a key were seen)."""
        began = time.perf_counter()
        segments, start = snapshot.segments, wanted.first_dirty_offset
        filled, mapper_of = self._mapping(snapshot, reader)
        mapper = mapper_of(1, 0)
        if isinstance(mapper, VersionMapper):
            start = mapper.start_of(start, _log_start(snapshot))
        elif filled.capacity > 1 and start > _log_start(snapshot) and _is_armed(segments, start - 1):
            start -= 1
        dirty = segments_between(segments, start, wanted.end)
        mapper.run(dirty, start, wanted.end, aborted_from(segments, start))
        if isinstance(mapper, VersionMapper):
            mapper.challenge(segments, _log_start(snapshot), start, aborted_from(segments, 0))
        result.end_offset = max(wanted.first_dirty_offset, filled.latest_offset + 1)
        result.map_records = mapper.records_read
        result.map_bytes = mapper.bytes_read
        result.map_utilization = filled.utilization
        result.map_seconds = time.perf_counter() - began
        return _knowledge(snapshot, filled, start, result.started_ms), mapper.keyless

    def _mapping(self, snapshot: LogSnapshot, reader: ChunkReader) -> tuple[OffsetMap, MapperOf]:
        """The map, and what fills it with the keys of one class."""
        if goes_by_version(snapshot.config):
            versions, spared = VersionMap(self._map_bytes, self._load_factor), snapshot.log_end_offset - 1
            return versions, lambda classes, number: VersionMapper(
                versions, reader, snapshot.config, spared, classes=classes, number=number
            )
        return self._map, lambda classes, number: Mapper(
            self._map, reader, snapshot.key_hashes, classes=classes, number=number
        )

    def _map_in_passes(
        self,
        snapshot: LogSnapshot,
        wanted: Range,
        reader: ChunkReader,
        result: CleanResult,
    ) -> tuple[Knowledge, int]:
        """For a dry run that one map is too small for: what all of the rounds would come to know."""
        began = time.perf_counter()
        segments = [one for one in snapshot.segments if one.base_offset < wanted.end]
        start = _log_start(snapshot) if goes_by_version(snapshot.config) else segments[0].base_offset
        filled, mapper_of = self._mapping(snapshot, reader)
        found = sift(
            filled, mapper_of, segments, start, wanted.end, aborted_from(snapshot.segments, 0),
            limit_bytes=LAST_OFFSET_BITS_BYTES,
            mapped_share=(result.end_offset - start) / (wanted.end - start),
        )  # fmt: skip
        result.map_seconds += time.perf_counter() - began
        filled.clear()
        if found is None:
            return self._map_dirty_part(snapshot, wanted, reader, result)
        result.end_offset = wanted.end
        result.map_records = _records_from(segments, wanted.first_dirty_offset, wanted.end)
        filled.update_latest_offset(wanted.end - 1)
        known = _knowledge(snapshot, filled, start, result.started_ms)
        return known._replace(bits=found.bits), found.keyless

    def _rewriter(
        self, snapshot: LogSnapshot, wanted: Range, known: Knowledge, reader: ChunkReader
    ) -> Rewriter:
        return Rewriter(
            reader,
            known,
            active_producers=dict(snapshot.active_producers),
            aborted=aborted_from(snapshot.segments, 0),
            end_of_round=wanted.end,
            account=self._account,
            recoder=recoder_of(snapshot.config),
        )

    def _swap(
        self,
        log: Log,
        config: TopicConfig,
        group: Sequence[Segment],
        cleaned: Sequence[CleanedSegment],
        result: CleanResult,
    ) -> None:
        """Have the owner put the new segments in the old ones' place; then the part of it that waits."""

        def swap() -> SwapJob:
            check_policy(log)
            check_strategy(log, config)
            return log.replace_segments(group, cleaned, result.started_ms)

        try:
            check_policy(log)
            with contextlib.suppress(FileNotFoundError):  # it is being deleted, which the swap finds as well
                # Before the segments: who has read them looks whether they tell of an earlier time still.
                log.keep_compacted_to(result.end_offset)
            job = self._run_on_owner(swap)
        except BaseException:
            in_use = {id(segment.file) for segment in log.segments}
            for one in cleaned:
                if id(one.file) not in in_use:
                    one.abandon()
            raise
        job.run()

    @staticmethod
    def _report(rewriter: Rewriter, keyless: int, result: CleanResult, snapshot: LogSnapshot) -> None:
        result.records_read = rewriter.records_read
        result.records_kept = rewriter.records_kept
        result.bytes_read = rewriter.bytes_read
        result.bytes_written = rewriter.bytes_written
        result.removed = {_REASON_NAMES[reason]: count for reason, count in rewriter.removed(keyless).items()}
        result.live_keys = rewriter.live_keys
        result.tombstones_kept = rewriter.tombstones_kept
        result.reached_below_start = 0 <= rewriter.first_offset < snapshot.log_start_offset
        result.newest_horizon_ms = rewriter.newest_horizon_ms


def _log_start(snapshot: LogSnapshot) -> int:
    """The first offset that is there: what was deleted before it may still stand in the first segment."""
    return max(snapshot.log_start_offset, snapshot.segments[0].base_offset)


def _is_armed(segments: Sequence[Segment], offset: int) -> bool:
    """Whether the batch with `offset` has a delete horizon.

    Of the last one that was cleaned the last record is mapped again then: if versions decided so far, it may
    be a tombstone that lost and stayed only because it was the log's last (`versions.py`). By the offset it
    is its key's last, and what it deletes has to go before it does.
    """
    holder = next(one for one in reversed(segments) if one.base_offset <= offset)
    data = holder.read_at(holder.position_behind(offset), HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return False
    header = parse_header(data)
    return header.base_offset <= offset and header.delete_horizon_ms is not None


def _knowledge(snapshot: LogSnapshot, filled: OffsetMap, start: int, now_ms: int) -> Knowledge:
    """What a map says of the log's part from `start` on."""
    is_versioned = goes_by_version(snapshot.config)
    latest_offset = filled.latest_offset
    if is_versioned:  # the log's last record stays, whatever its version
        latest_offset = min(latest_offset, snapshot.log_end_offset - 2)
    bits = filled.last_offset_bits(start, LAST_OFFSET_BITS_BYTES)
    horizon_ms = min(LONG_MAX, now_ms + snapshot.config.delete_retention_ms)
    outlived = filled.outlived if isinstance(filled, VersionMap) else numpy.zeros(0, numpy.uint8)
    return Knowledge(
        filled.table, filled.secret, bits, start, latest_offset, now_ms, horizon_ms, is_versioned, outlived
    )


def _records_from(segments: Sequence[Segment], start: int, end: int) -> int:
    """How many records the batches of [start, end) hold."""
    count = 0
    for segment in segments_between(segments, start, end):
        for table in segment.tables(segment.position_behind(start) if segment.base_offset < start else 0):
            count += int(table[RECORD_COUNT].sum())
    return count


def segments_between(segments: Sequence[Segment], start: int, end: int) -> Sequence[Segment]:
    """The segments that hold [start, end): from the one with `start` in it to the last that begins before
    `end`.
    """
    found = [segment for segment in segments if segment.base_offset < end]
    while len(found) > 1 and found[1].base_offset <= start:
        found.pop(0)
    return found


def _ends_within(segments: Sequence[Segment], end: int) -> dict[Segment, int]:
    """Where the segment is to end that goes on beyond `end`: a dry run may count the active one as closed
    there, while others append to it. Never for a cleaning: it would lose what lies behind.
    """
    ends = {}
    for index, segment in enumerate(segments):
        goes_on = index + 1 == len(segments) or segments[index + 1].base_offset > end
        if segment.base_offset < end and goes_on:
            ends[segment] = segment.position_behind(end)
    return ends


def aborted_from(segments: Sequence[Segment], start: int) -> list[AbortedTransaction]:
    """Every aborted transaction whose marker is not before `start`; its entry stands where its marker is.

    One that ended before must be left out: a pass that begins at `start` never meets its end.
    """
    return [
        one
        for index, segment in enumerate(segments)
        if index + 1 == len(segments) or segments[index + 1].base_offset > start
        for one in segment.txn_index.entries()
        if one.last_offset >= start
    ]


def group_for_rewriting(
    snapshot: LogSnapshot, end_offset: int, first_uncleanable: int
) -> list[Sequence[Segment]]:
    """All segments up to the end of the mapped part, as groups that become one segment each."""
    segments = [segment for segment in snapshot.segments if segment.base_offset < end_offset]
    sizes = [
        SegmentSize(
            segment.base_offset,
            segment.size_bytes,
            segment.offset_index.size_bytes(),
            segment.time_index.size_bytes(),
        )
        for segment in segments
    ]
    groups = group_segments(
        sizes,
        max_log_bytes=snapshot.config.segment_bytes,
        max_index_bytes=snapshot.config.segment_index_bytes,
        first_uncleanable_offset=first_uncleanable,
    )
    return [segments[group.start : group.stop] for group in groups]


def rewrite_group(
    rewriter: Rewriter, snapshot: LogSnapshot, group: Sequence[Segment], *, is_dry: bool
) -> list[CleanedSegment]:
    """Write the survivors of `group`; on any failure nothing is left of it."""
    if is_dry:
        nothing: Sink = NullSink()
        rewriter.rewrite(group, nothing)
        return []
    sink = FileSink(snapshot, group)
    try:
        rewriter.rewrite(group, sink)
        sink.finish(group[-1].last_modified_ms)
    except BaseException:
        sink.abandon()
        raise
    return sink.cleaned
