"""Whether the transaction indexes of a log that was on disk are what was written; else they are repaired.

A `.txnindex` has no checksum of its own. That of a closed segment stands in its statistics; where there are
none, or where it differs, the batches say what the index may say (`storage/ended_transactions.py`). What of
it is possible is believed: in a cleaned log nobody else knows any more where a transaction began. The rest is
made anew. A missing file is believed where no statistics speak against it: most segments never had one. Done
when the log is opened, for the event loop asks these indexes at each read_committed fetch and cannot wait for
a check.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import crc32c

from protocol.errors import KafkaError
from storage import batch_table, sidecar, statistics
from storage.ended_transactions import Ended, Holes, Observer, transactional
from storage.prefixes import flipped_bit
from storage.producer_state import ProducerStateManager
from storage.replay import load_newest_snapshot
from storage.txn_index import ENTRY, ENTRY_BYTES, encode, parse
from storage.types import AbortedTransaction

if TYPE_CHECKING:
    from storage.segment import Segment

logger = logging.getLogger(__name__)

NEVER_EXPIRED = 0
"""a time before all others: producers that are silent now were not then"""


def settle(segments: Sequence[Segment], count: int) -> None:
    """See that the transaction indexes of the first `count` segments of a log can be believed."""
    for number, segment in enumerate(segments[:count]):
        data = segment.txn_index.read_file()
        kept = sidecar.kept_statistics(segment)
        if not data and (kept is None or not kept.aborted_bytes):
            segment.txn_index.note_none()  # without statistics that is believed: most never had a file
            continue
        vouched = _vouched(data, kept)
        if vouched is None:
            _repair(segments, number, data)
        elif vouched != data:
            _replace(segment, parse(vouched))


def _vouched(data: bytes, found: sidecar.SegmentStatistics | None) -> bytes | None:
    """The bytes that the segment's statistics vouch for: these, or these with one bit turned back."""
    if found is None or found.aborted_bytes != len(data):
        return None
    if crc32c.crc32c(data) == found.aborted_checksum:
        return data
    bit = flipped_bit(data, found.aborted_checksum)
    if bit is None:
        return None
    turned = bytearray(data)
    turned[bit // 8] ^= 1 << bit % 8
    return bytes(turned) if _is_well_formed(turned) else None


def drop_stale_statistics(segment: Segment) -> None:
    """Recovery has made the transaction index anew, from what a cleaning left: statistics that vouch for
    another one count as none.
    """
    found = sidecar.kept_statistics(segment)
    if found is None:
        return
    content = segment.txn_index.content()
    if (found.aborted_bytes, found.aborted_checksum) != (len(content), crc32c.crc32c(content)):
        segment.file.disk.unlink(sidecar.path_of(segment))


def _repair(segments: Sequence[Segment], number: int, data: bytes) -> None:
    segment = segments[number]
    try:
        ended, holes = _observe(segments, number)
    except KafkaError as error:
        logger.error("%s: its aborted transactions cannot be read: %s", segment.file.path, error)
        return
    if data and any(one.damages for one in segments[: number + 1]) and _is_well_formed(data):
        return  # a marker may be among what is damaged: rather the file than wrong entries
    entries = _believed(data, ended, holes)
    if encode(entries) != data:
        _replace(segment, entries)
    if number + 1 < len(segments) and not segment.damages:
        _vouch(segment)


def _replace(segment: Segment, entries: Sequence[AbortedTransaction]) -> None:
    logger.warning("%s was damaged and is repaired: %d entries", segment.txn_index.path, len(entries))
    segment.txn_index.replace(entries)


def _believed(data: bytes, ended: Mapping[int, Ended], holes: Holes) -> list[AbortedTransaction]:
    """The entries that are possible, and one for each marker that lacks it and still needs it."""
    found: dict[int, AbortedTransaction] = {}
    count = len(data) // ENTRY_BYTES
    for _, *fields in ENTRY.iter_unpack(data[: count * ENTRY_BYTES]):
        entry = AbortedTransaction(*fields)
        marker = ended.get(entry.last_offset)
        right = marker.corrected(entry, holes) if marker is not None else None
        if right is not None:
            found[right.last_offset] = right
    is_any_lost = not data or len(found) * ENTRY_BYTES != len(data)
    for offset, marker in ended.items():
        # a cleaned index has no entry for a marker of which no data are left, unless that is what was lost
        if offset not in found and (is_any_lost or marker.transaction.left is not None):
            made = marker.recomputed()
            if made is not None:
                found[offset] = made
    return [found[offset] for offset in sorted(found)]


def _observe(segments: Sequence[Segment], number: int) -> tuple[dict[int, Ended], Holes]:
    """The abort markers of segment `number` by their offsets, and the holes before them."""
    segment = segments[number]
    producers = ProducerStateManager()
    start = load_newest_snapshot(
        segment.file.disk, segment.directory, producers, segment.base_offset, NEVER_EXPIRED
    )
    known = producers.open_transactions()
    observer = Observer(start, known, _first_left(segments[:number], known, start))
    for before in segments[:number]:
        if before.next_offset > start:
            for data, table in _batches(before, start):
                deque(observer.walk(data, table), maxlen=0)
    ended = {
        one.offset: one
        for data, table in _batches(segment, segment.base_offset)
        for one in observer.walk(data, table)
    }
    return ended, observer.holes


def _first_left(segments: Sequence[Segment], known: Mapping[int, int], end: int) -> dict[int, int]:
    """The first batches before `end` that are left of these transactions, by producer."""
    found: dict[int, int] = {}
    begin = min(known.values(), default=end)
    for segment in segments:
        if segment.base_offset >= end or segment.next_offset <= begin:
            continue
        for _, table in _batches(segment, begin):
            for column in transactional(table):
                producer_id = int(table[batch_table.PRODUCER_ID, column])
                offset = int(table[batch_table.BASE_OFFSET, column])
                if known.get(producer_id, end) <= offset < end:
                    found.setdefault(producer_id, offset)
    return found


def _batches(segment: Segment, offset: int) -> Iterator[tuple[bytes, batch_table.Table]]:
    """The checked batches of a segment from `offset` on: bytes, and their table with positions in these."""
    segment.check(0, segment.size_bytes)  # what is damaged has to be known before it can be passed over
    for table in segment.tables(segment.position_behind(offset)):
        begin = int(table[batch_table.POSITION, 0])
        end = int(table[batch_table.POSITION, -1] + table[batch_table.SIZE_BYTES, -1])
        table[batch_table.POSITION] -= begin
        yield segment.read_at(begin, end - begin), table


def _is_well_formed(data: bytes | bytearray) -> bool:
    try:
        parse(bytes(data))
    except ValueError:
        return False
    return True


def _vouch(segment: Segment) -> None:
    """Write the statistics of a closed segment, so that the next start need not read it."""
    try:
        statistics.remake(segment)
    except KafkaError as error:
        logger.warning("no statistics of %r: %s", segment, error)
