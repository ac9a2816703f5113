"""Find a key: its latest value, or every version that survives, newest first, reading only segments that can
hold it.

A closed segment is asked through the key filter of its statistics (made now if they are missing), the active
one is scanned: a kernel compares keys faster than a filter could be kept up to date by every append. Within a
segment the search goes backwards, from one known batch start to the one before. What a read_committed reader
would not see (aborted transactions, what is not stable yet) is not there. What is damaged is passed over and
told of as a problem, batch by batch: the key may have had a version there. Blocking.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy

from protocol.batch import BatchHeader, parse_header
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, decode_batch, payload
from storage import statistics
from storage.batch_table import COMPLETE, POSITION, Bytes, as_chunk, read_table
from storage.index import BrokenIndex
from storage.integrity import Damage
from storage.sidecar import DamagedStatistics, open_sidecar
from storage.snapshot import is_aborted
from storage.statistics_kernels import batches_with_key, holds_key
from storage.trust import lost

if TYPE_CHECKING:
    from storage.log import Log
    from storage.segment import Segment
    from storage.segments import SegmentTuple

FIRST_STRIDE_BYTES = 256 << 10
LARGEST_STRIDE_BYTES = 4 << 20
ATTEMPTS = 3
MOST_VERSIONS = 10_000
ANY_SIZE = 1 << 62


@dataclass(slots=True)
class KeySearch:
    """What was found, newest first, and what that took. `problems` are segments that could not be read."""

    versions: list[Record] = field(default_factory=list)
    is_cut: bool = False
    segments: int = 0
    ruled_out: int = 0
    bytes_read: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which versions, and how many of them and of their bytes; the newest is there, however large."""

    most: int
    most_bytes: int
    hidden: bool
    bare: bool


def find_key(
    log: Log,
    key: bytes,
    *,
    history: bool = False,
    most: int = MOST_VERSIONS,
    most_bytes: int = ANY_SIZE,
    hidden: bool = False,
    bare: bool = False,
) -> KeySearch:
    """The versions of `key` in `log`: the latest, or with `history` up to `most` of all that are left, which
    end before they are more than `most_bytes`; with `hidden` whatever its files hold, seen by a reader or
    not. `bare`: values are only told from tombstones, they are empty.
    """
    wanted = _Wanted(most if history else 1, most_bytes, hidden, bare)
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(FileNotFoundError):  # a cleaning or retention took a segment away meanwhile
            return _search(log, key, wanted)
    return _search(log, key, wanted)


def _search(log: Log, key: bytes, asked: _Wanted) -> KeySearch:
    found, most, left = KeySearch(), asked.most, asked.most_bytes
    wanted, value = as_chunk(key or bytes(1))[: len(key)], statistics.hash_of(key)
    segments = log.segments
    for segment in reversed(segments):
        found.segments += 1
        try:
            if not segment.is_active and not _may_hold(segment, value):
                found.ruled_out += 1
                continue
            for header, record in _versions(segment, wanted, found):
                if not (asked.hidden or _is_visible(log, segments, header, record.offset)):
                    continue
                left -= _size(record)
                if len(found.versions) == most or (left < 0 and found.versions):
                    found.is_cut = most > 1
                    return found
                found.versions.append(_bare(record) if asked.bare else record)
        except KafkaError as error:
            found.problems.append(error.message)
        if len(found.versions) == most == 1:
            break
    return found


def _size(record: Record) -> int:
    return len(record.value or b"") + sum(len(name) + len(value or b"") for name, value in record.headers)


def _bare(record: Record) -> Record:
    return record._replace(value=None if record.value is None else b"", headers=())


def _may_hold(segment: Segment, value: int) -> bool:
    statistics.ensure(segment)
    sidecar = open_sidecar(segment)
    if sidecar is None:  # it could not be written: a full disk, or the segment has just left the log
        return True
    try:
        return sidecar.may_hold(value)
    except DamagedStatistics:
        statistics.remake(segment)
        return True
    finally:
        sidecar.close()


def _versions(segment: Segment, key: Bytes, found: KeySearch) -> Iterator[tuple[BatchHeader, Record]]:
    """The records with the key in one segment, the last first."""
    end, stride = segment.size_bytes, FIRST_STRIDE_BYTES
    known: tuple[Damage, ...] = ()
    while end > 0:
        begin = _batch_start(segment, end - stride)
        segment.check(begin, end)
        if segment.damages != known:  # found just now: the index was made anew, and says other batch starts
            found.problems += [lost(segment, one).message for one in segment.damages if one not in known]
            known = segment.damages
            begin = _batch_start(segment, end - stride)
        stride = min(2 * stride, LARGEST_STRIDE_BYTES)
        for start, stop in reversed(_good_parts(segment, begin, end)):
            data = segment.read_at(start, stop - start)
            found.bytes_read += len(data)
            yield from _in_chunk(segment, data, start, key, found)
        end = begin


def _good_parts(segment: Segment, begin: int, end: int) -> list[tuple[int, int]]:
    """[begin, end) without what is damaged, ascending."""
    parts: list[tuple[int, int]] = []
    for damage in segment.damages:
        if begin < damage.end and damage.position < end:
            parts.append((begin, damage.position))
            begin = damage.end
    return [(start, stop) for start, stop in (*parts, (begin, end)) if start < stop]


def _batch_start(segment: Segment, position: int) -> int:
    if position <= 0:
        return 0
    try:
        return segment.offset_index.floor_position(position)
    except (BrokenIndex, FileNotFoundError):
        segment.rebuild_indexes()
        return segment.offset_index.floor_position(position)


def _in_chunk(
    segment: Segment, data: bytes, begin: int, key: Bytes, found: KeySearch
) -> Iterator[tuple[BatchHeader, Record]]:
    chunk = as_chunk(data)
    table, stopped, reason = read_table(data)
    marks = numpy.zeros(table.shape[1], numpy.uint8)
    batches_with_key(chunk, table, key, marks)
    wanted = key.tobytes()
    for column in numpy.flatnonzero(marks)[::-1]:
        position = int(table[POSITION, column])
        header = parse_header(data, position)
        try:
            if not _holds(data, position, header, key):
                continue
            records = decode_batch(data, position)
        except KafkaError:  # of our own segment, and yet not what was written
            found.problems.append(_corrupt(segment, begin + position).message)
            continue
        for record in reversed(records):
            if record.key == wanted:
                yield header, record
    if reason != COMPLETE:
        raise _corrupt(segment, begin + stopped)


def _holds(data: bytes, position: int, header: BatchHeader, key: Bytes) -> bool:
    records = payload(data, position, header)
    return holds_key(records, 0, records.size, header.record_count, key) != 0


def _is_visible(log: Log, segments: SegmentTuple, header: BatchHeader, offset: int) -> bool:
    if not log.log_start_offset <= offset < log.last_stable_offset:
        return False
    return not (header.is_transactional and is_aborted(log, segments, header))


def _corrupt(segment: Segment, position: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path.name} is damaged at position {position}"
    )
