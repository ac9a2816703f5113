"""The records of a partition, page by page, and how many there are between two offsets. Blocking.

A page is what a consumer with read_committed sees, or with `hidden` everything: markers, records of aborted
transactions and of those that are not decided. Nothing above the high watermark is shown, as to any consumer.
A page ends after so many rows, or after so many bytes that were looked through: `next_offset` goes on.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy

from broker.questions.shown import record_row
from broker.questions.veil import veiled
from protocol.batch import CONTROL, BatchHeader
from protocol.control import control_type
from protocol.errors import KafkaError
from protocol.records import Record, decode_batch, offsets_and_timestamps
from storage import batch_table, statistics
from storage.segments import SegmentTuple, floor_segment
from storage.snapshot import is_aborted
from storage.trust import lost

if TYPE_CHECKING:
    from storage.log import Log
    from storage.segment import Segment

SCANNED_BYTES = 32 << 20
"""of a partition that are looked through for one page"""
COUNTED_BYTES = 256 << 20
"""that are read to count records, beside what the statistics of closed segments know"""
WIDENED = 4
ATTEMPTS = 3
T = TypeVar("T")


def steadily(read: Callable[[], T]) -> T:
    """What `read` reads, also when a cleaning or retention takes a segment away under it, once or twice."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(FileNotFoundError):
            return read()
    return read()


class Kind(StrEnum):
    """What a record is to a consumer with read_committed: it sees `data` and nothing else."""

    DATA = "data"
    MARKER = "marker"
    ABORTED = "aborted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A page: from where, how many rows, and which."""

    offset: int
    most: int
    contains: bytes = b""
    """what the key or the value holds"""
    hidden: bool = False


def records_page(log: Log, wanted: Wanted) -> dict[str, Any]:
    """The records from an offset on. `next_offset` is where the next page begins, `is_at_end` whether that is
    the end of what can be seen now.
    """
    upper = _upper(log, wanted.hidden)
    start = max(wanted.offset, log.log_start_offset)
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    at, scanned, segments = start, 0, log.segments
    for header, batch in log.scan(start, upper):
        scanned += header.size_bytes
        for kind, record in _records(log, segments, header, batch, wanted, problems):
            if not start <= record.offset < upper:
                continue
            rows.append(_row(kind, record))
            if len(rows) == wanted.most:
                return _page(log, rows, (start, record.offset + 1, upper), problems)
        at = max(at, header.last_offset + 1)
        if scanned >= SCANNED_BYTES:
            return _page(log, rows, (start, at, upper), problems)
    return _page(log, rows, (start, max(start, upper), upper), problems)


def latest_page(log: Log, wanted: Wanted) -> dict[str, Any]:
    """The last records before `wanted.offset`, ascending; those before them are before `start_offset`."""
    upper = min(_upper(log, wanted.hidden), wanted.offset)
    rows: deque[tuple[Kind, Record]] = deque(maxlen=wanted.most)
    problems: list[str] = []
    start, count, segments = _start_of_last(log, wanted, upper), 0, log.segments
    for header, batch in log.scan(start, upper):
        for kind, one in _records(log, segments, header, batch, wanted, problems):
            if start <= one.offset < upper:
                rows.append((kind, one))
                count += 1
    begin = rows[0][1].offset if count > wanted.most else start
    places = (begin, upper, _upper(log, wanted.hidden))
    return _page(log, [_row(*one) for one in rows], places, problems)


def _start_of_last(log: Log, wanted: Wanted, upper: int) -> int:
    """An offset from which on there are enough, as far as may be looked through: further and further back."""
    span, start = 1, upper
    while start > log.log_start_offset:
        further = max(log.log_start_offset, upper - span)
        if start < upper and _bytes_between(log, further, upper) > SCANNED_BYTES:
            break
        start = further
        if not wanted.contains and (records_between(log, start, upper) or 0) >= wanted.most:
            break
        span *= WIDENED
    return start


def losses(log: Log, start: int, end: int) -> list[str]:
    """What of [start, end) is known to be damaged, once it was read: the readers here pass over it."""
    return [
        lost(segment, damage).message
        for segment in log.segments
        for damage in segment.damages
        if damage.first_offset < end and start < damage.next_offset
    ]


def _upper(log: Log, hidden: bool) -> int:
    return log.high_watermark if hidden else log.last_stable_offset


def _page(
    log: Log, rows: list[dict[str, Any]], places: tuple[int, int, int], problems: list[str]
) -> dict[str, Any]:
    """`places`: where it begins, where the next one does, and where what can be seen ends."""
    start, next_offset, upper = places
    return {
        "records": rows,
        "start_offset": start,
        "next_offset": next_offset,
        "is_at_end": next_offset >= upper,
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "problems": [*losses(log, start, next_offset), *problems],
    }


def _row(kind: Kind, record: Record) -> dict[str, Any]:
    if kind is not Kind.MARKER:
        return {"kind": kind, **record_row(record)}
    marker = control_type(record.key)
    bare = record_row(record._replace(key=None, value=None))
    return {
        "kind": kind,
        **bare,
        "is_tombstone": False,
        "marker": None if marker is None else marker.name.lower(),
    }


def _records(
    log: Log,
    segments: SegmentTuple,
    header: BatchHeader,
    batch: memoryview,
    wanted: Wanted,
    problems: list[str],
) -> Iterator[tuple[Kind, Record]]:
    """Those of a batch of `segments` that are wanted, each with what it is."""
    if header.is_control and not wanted.hidden:
        return
    try:
        records = veiled(log.topic_partition, decode_batch(batch))
    except KafkaError as error:
        problems.append(f"the batch at offset {header.base_offset} is damaged: {error.message}")
        return
    text = wanted.contains
    if text:
        records = [one for one in records if text in (one.key or b"") or text in (one.value or b"")]
    if not records:
        return
    kind = _kind(log, segments, header)
    if kind is Kind.DATA or wanted.hidden:
        for record in records:
            yield kind, record


def _kind(log: Log, segments: SegmentTuple, header: BatchHeader) -> Kind:
    if header.is_control:
        return Kind.MARKER
    if not header.is_transactional:
        return Kind.DATA
    if is_aborted(log, segments, header):
        return Kind.ABORTED
    first = log.producers.open_transactions().get(header.producer_id)
    return Kind.DATA if first is None or header.base_offset < first else Kind.UNDECIDED


# Counting


def records_between(log: Log, start: int, end: int) -> int | None:
    """How many records there are in [start, end), what was aborted among them, markers not; None where too
    much would have to be read for it.
    """
    start = max(start, log.log_start_offset)
    if start >= end:
        return 0
    total, left = 0, COUNTED_BYTES
    segments = log.segments
    for segment in segments[floor_segment(segments, start) :]:
        if segment.base_offset >= end:
            break
        if not segment.is_active and segment.base_offset >= start and segment.next_offset <= end:
            counted = statistics.ensure(segment)
            total += counted.records - counted.markers
            continue
        position = segment.position_behind(start)
        left -= segment.size_bytes - position
        if left < 0:
            return None
        total += _records_in(segment, position, start, end)
    return total


def _records_in(segment: Segment, position: int, start: int, end: int) -> int:
    total = 0
    for table in segment.good_tables(position):
        data = (table[batch_table.ATTRIBUTES] & CONTROL) == 0
        whole = data & (table[batch_table.BASE_OFFSET] >= start) & (table[batch_table.LAST_OFFSET] < end)
        total += int(table[batch_table.RECORD_COUNT][whole].sum())
        reaches = (table[batch_table.LAST_OFFSET] >= start) & (table[batch_table.BASE_OFFSET] < end)
        for column in numpy.flatnonzero(data & ~whole & reaches):
            at, size = int(table[batch_table.POSITION, column]), int(table[batch_table.SIZE_BYTES, column])
            offsets, _ = offsets_and_timestamps(segment.read_at(at, size))
            total += int(((offsets >= start) & (offsets < end)).sum())
        if table[batch_table.LAST_OFFSET, -1] >= end:
            break
    return total


def _bytes_between(log: Log, start: int, end: int) -> int:
    """About so many, at least."""
    segments = log.segments
    found = 0
    for segment in segments[floor_segment(segments, start) :]:
        if segment.base_offset >= end:
            break
        begin = segment.position_behind(start) if segment.base_offset < start else 0
        stop = segment.floor(end) if end < segment.next_offset else segment.size_bytes
        found += max(0, stop - begin)
    return found
