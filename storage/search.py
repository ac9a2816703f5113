"""Walking and searching the segments of a log: all batches of a range, aborted transactions, records by time.

Blocking, for threads. A search by time goes through time index, offset index and the batches, and decodes the
records of one batch (Kafka's `fetchOffsetByTimestamp`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy

from protocol.batch import NO_TIMESTAMP, BatchHeader, parse_header
from protocol.records import offsets_and_timestamps
from storage import batch_table
from storage.segment import Segment
from storage.segments import SegmentTuple, floor_segment
from storage.types import AbortedTransaction, TimestampOffset

NEAR_BYTES = 64 * 1024
"""read first behind an index entry: what is looked for is mostly less far away than the next one"""
_one_at_a_time = threading.Lock()
"""a batch of kilobytes may unpack to max.decompressed.batch.bytes, and there are many threads"""


def batches(segments: SegmentTuple, start: int, upper: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch that reaches into [start, upper), in order."""
    for segment in segments[floor_segment(segments, start) :]:
        if segment.base_offset >= upper:
            return
        for table in segment.good_tables(segment.position_behind(start)):
            begin = int(table[batch_table.POSITION, 0])
            size = int(table[batch_table.POSITION, -1] + table[batch_table.SIZE_BYTES, -1]) - begin
            view = memoryview(segment.read_at(begin, size))
            for batch_position in (table[batch_table.POSITION] - begin).tolist():
                header = parse_header(view, batch_position)
                if header.base_offset >= upper:
                    return
                yield header, view[batch_position : batch_position + header.size_bytes]


def aborted_transactions(segments: SegmentTuple, start: int, upper_offset: int) -> list[AbortedTransaction]:
    """Those that touch [start, upper); their markers may lie behind it, in a later segment. Closed segments
    that have none may be left out.
    """
    found: list[AbortedTransaction] = []
    for segment in segments[floor_segment(segments, start) :]:
        entries, is_complete = segment.txn_index.collect(start, upper_offset)
        found += entries
        if is_complete:
            break
    return found


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """The first record at or behind `start_offset` whose timestamp is at least `timestamp_ms`."""
    for segment in segments:
        if segment.max_timestamp < timestamp_ms:
            continue
        floor = segment.time_index.floor(timestamp_ms)
        if not segment.time_entry_holds(*floor):
            segment.rebuild_indexes()
            floor = segment.time_index.floor(timestamp_ms)
        offset = max(floor[1], start_offset)
        found = _first_in(segment, timestamp_ms, segment.floor(offset), start_offset)
        if found is not None:
            return found
    return None


def _first_in(
    segment: Segment, timestamp_ms: int, position: int, start_offset: int
) -> TimestampOffset | None:
    for table in segment.good_tables(position, NEAR_BYTES):
        new_enough = table[batch_table.MAX_TIMESTAMP] >= timestamp_ms
        for column in numpy.flatnonzero(new_enough & (table[batch_table.LAST_OFFSET] >= start_offset)):
            offsets, timestamps = _records(segment, table, int(column))
            found = numpy.flatnonzero((timestamps >= timestamp_ms) & (offsets >= start_offset))
            if found.size:
                epoch = int(table[batch_table.LEADER_EPOCH, column])
                return TimestampOffset(int(timestamps[found[0]]), int(offsets[found[0]]), epoch)
    return None


def with_largest_timestamp(segments: SegmentTuple, start_offset: int) -> TimestampOffset | None:
    """The first record at or behind `start_offset` that has the largest timestamp there (KIP-734).

    Apache Kafka 4.3.1 also names one that DeleteRecords took.
    """
    segments = segments[floor_segment(segments, start_offset) :]  # what is before it goes soon
    left = {segment: segment.max_timestamp for segment in segments}
    while left:
        newest = max(left, key=lambda segment: left[segment])
        if left[newest] < 0:
            return None
        found = first_at_or_after([newest], left[newest], start_offset)
        if found is not None:
            return found
        # The record is gone: it was before the start, or a cleaning left nothing but the header of its batch.
        largest = _largest_left(newest, start_offset)
        if largest < left[newest]:
            left[newest] = largest
        else:
            del left[newest]
    return None


def _largest_left(segment: Segment, start_offset: int) -> int:
    """The largest timestamp of the records at or behind `start_offset`, -1 when there is none."""
    largest = NO_TIMESTAMP
    for table in segment.good_tables(segment.position_behind(start_offset)):
        behind = table[batch_table.BASE_OFFSET] >= start_offset
        full = behind & (table[batch_table.RECORD_COUNT] > 0)
        largest = max(largest, int(table[batch_table.MAX_TIMESTAMP][full].max(initial=NO_TIMESTAMP)))
        for column in numpy.flatnonzero(~behind & (table[batch_table.LAST_OFFSET] >= start_offset)):
            offsets, timestamps = _records(segment, table, int(column))
            largest = max(largest, int(timestamps[offsets >= start_offset].max(initial=NO_TIMESTAMP)))
    return largest


def _records(
    segment: Segment, table: batch_table.Table, column: int
) -> tuple[batch_table.Longs, batch_table.Longs]:
    """The offsets and timestamps of the records of a batch."""
    position, size = int(table[batch_table.POSITION, column]), int(table[batch_table.SIZE_BYTES, column])
    with _one_at_a_time:
        return offsets_and_timestamps(segment.read_at(position, size))
