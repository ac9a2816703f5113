"""Finding records by time: time index, offset index, then the batches (Kafka's `fetchOffsetByTimestamp`).

Blocking, for threads: the last step decodes the records of one batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from protocol.records import Record, decode_batch
from storage import batch_table
from storage.segment import Segment
from storage.types import TimestampOffset


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """The first record at or behind `start_offset` whose timestamp is at least `timestamp_ms`."""
    for segment in segments:
        if segment.max_timestamp < timestamp_ms:
            continue
        offset = max(segment.time_index.floor(timestamp_ms)[1], start_offset)
        found = _first_in(segment, timestamp_ms, segment.offset_index.floor(offset)[1], start_offset)
        if found is not None:
            return found
    return None


def _first_in(
    segment: Segment, timestamp_ms: int, position: int, start_offset: int
) -> TimestampOffset | None:
    for table in segment.tables(position):
        new_enough = table[batch_table.MAX_TIMESTAMP] >= timestamp_ms
        for column in numpy.flatnonzero(new_enough & (table[batch_table.LAST_OFFSET] >= start_offset)):
            for record in _records(segment, table, int(column)):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    epoch = int(table[batch_table.LEADER_EPOCH, column])
                    return TimestampOffset(record.timestamp, record.offset, epoch)
    return None


def with_largest_timestamp(segments: Sequence[Segment], start_offset: int) -> TimestampOffset | None:
    """The first record that has the largest timestamp of the log (KIP-734)."""
    newest = max(segments, key=lambda segment: segment.max_timestamp)
    largest = newest.max_timestamp
    if largest < 0:
        return None
    return first_at_or_after([newest], largest, start_offset)


def _records(segment: Segment, table: batch_table.Table, column: int) -> list[Record]:
    position, size = int(table[batch_table.POSITION, column]), int(table[batch_table.SIZE_BYTES, column])
    return decode_batch(segment.read_at(position, size))
