"""Whether the transaction indexes of a log that was on disk are what was written; else they are made anew.

A `.txnindex` has no checksum of its own. That of a closed segment stands in its statistics; where there are
none, or where it differs, the batches say which transactions were aborted: the producers as they were at the
segment's start, and its markers (what Kafka does in its recovery only). Done when the log is opened, for the
event loop asks these indexes at each read_committed fetch and cannot wait for a check.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import crc32c

from protocol.errors import KafkaError
from storage import batch_table, sidecar, statistics
from storage.file import read_whole
from storage.producer_state import ProducerStateManager
from storage.replay import load_producers, replay
from storage.txn_index import encode, parse

if TYPE_CHECKING:
    from storage.segment import Segment
    from storage.types import AbortedTransaction

logger = logging.getLogger(__name__)

NEVER_EXPIRED = 0
"""a time before all others: producers that are silent now were not then"""


def settle(segments: Sequence[Segment], count: int) -> None:
    """See that the transaction indexes of the first `count` segments of a log can be believed."""
    for number, segment in enumerate(segments[:count]):
        data = _bytes_of(segment)
        if data and not _is_vouched_for(segment, data):
            _make_anew(segments, number, data)


def _bytes_of(segment: Segment) -> bytes:
    index = segment.txn_index
    try:
        return read_whole(index.disk, index.path)
    except FileNotFoundError:
        return b""


def _is_vouched_for(segment: Segment, data: bytes) -> bool:
    opened = sidecar.open_sidecar(segment, must_match=False)
    if opened is None:
        return False
    opened.close()
    found = opened.statistics
    return (found.aborted_bytes, found.aborted_checksum) == (len(data), crc32c.crc32c(data))


def _make_anew(segments: Sequence[Segment], number: int, data: bytes) -> None:
    segment = segments[number]
    try:
        entries = _aborted_in(segments, number)
    except KafkaError as error:
        logger.error("%s: its aborted transactions cannot be read: %s", segment.file.path, error)
        return
    if segment.damages and _is_well_formed(data):
        return  # a marker may be among what is damaged: rather the file than too few entries
    if encode(entries) != data:
        path = segment.txn_index.path
        logger.warning("%s was damaged and is made anew: %d entries", path, len(entries))
        segment.txn_index.replace(entries)
    if number + 1 < len(segments) and not segment.damages:
        _vouch(segment)


def _aborted_in(segments: Sequence[Segment], number: int) -> list[AbortedTransaction]:
    """What the markers of segment `number` say."""
    segment = segments[number]
    disk, directory = segment.file.disk, segment.directory
    producers = ProducerStateManager()
    load_producers(disk, directory, producers, list(segments[:number]), segment.base_offset, NEVER_EXPIRED)
    found: list[AbortedTransaction] = []
    for table in segment.good_tables():
        begin = int(table[batch_table.POSITION, 0])
        end = int(table[batch_table.POSITION, -1] + table[batch_table.SIZE_BYTES, -1])
        table[batch_table.POSITION] -= begin
        found += replay(producers, segment.read_at(begin, end - begin), table)
    return found


def _is_well_formed(data: bytes) -> bool:
    try:
        parse(data)
    except ValueError:
        return False
    return True


def _vouch(segment: Segment) -> None:
    """Write the statistics of a closed segment, so that the next start need not read it."""
    try:
        statistics.remake(segment)
    except KafkaError as error:
        logger.warning("no statistics of %r: %s", segment, error)
