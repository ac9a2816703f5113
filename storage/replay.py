"""The producers of a log from its snapshots and batches (the file half of Kafka's `ProducerStateManager`).

A snapshot says how things stood at an offset; the batches behind it are replayed. A damaged snapshot is
removed, and an older one taken.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import numpy

from protocol.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, parse_header
from protocol.control import decode_marker
from protocol.errors import KafkaError
from protocol.records import decode_batch
from storage import batch_table, layout
from storage.file import Disk
from storage.producer_state import (
    REMEMBERED_BATCHES,
    ProducerState,
    ProducerStateManager,
    decode_snapshot,
    encode_snapshot,
)
from storage.segment import Segment
from storage.small_files import read_whole, write_whole
from storage.types import AbortedTransaction

logger = logging.getLogger(__name__)

Read = Callable[[int, int], bytes]  # (position, size)
ROWS_TO_READ = [batch_table.POSITION, batch_table.SIZE_BYTES, batch_table.ATTRIBUTES]


def replay(
    producers: ProducerStateManager, read: Read, table: batch_table.Table, from_offset: int = 0
) -> list[AbortedTransaction]:
    """Take note of the producers of the batches of `table`, which come in order and are read by their
    positions; the aborted transactions among them.
    """
    columns = numpy.flatnonzero(
        (table[batch_table.PRODUCER_ID] >= 0) & (table[batch_table.BASE_OFFSET] >= from_offset)
    )
    if producers.has_room_for(table[batch_table.PRODUCER_ID, columns]):
        columns = decisive(table, columns)
    aborted = []
    for position, size, attributes in table[ROWS_TO_READ][:, columns].T.tolist():
        data = read(position, size if attributes & CONTROL else HEADER_BYTES)
        header = parse_header(data)
        if not header.is_control:
            producers.update(header, header.base_offset)
        elif header.record_count:
            record = decode_batch(data)[0]
            marker = decode_marker(record.key, record.value)
            if marker is not None:
                entry = producers.update_marker(header, marker, header.base_offset)
                if entry is not None:
                    aborted.append(entry)
    return aborted


def decisive(table: batch_table.Table, columns: batch_table.Longs) -> batch_table.Longs:
    """Of `columns`, all of producers, those that leave the same behind as all of them: the last batches of
    each producer, as many as are remembered, each that begins a transaction, and the control batches.
    """
    columns = columns[numpy.argsort(table[batch_table.PRODUCER_ID, columns], kind="stable")]
    ids, attributes = table[batch_table.PRODUCER_ID, columns], table[batch_table.ATTRIBUTES, columns]
    is_control = (attributes & CONTROL) != 0
    is_transactional = (attributes & TRANSACTIONAL) != 0
    goes_on = numpy.zeros(len(columns), bool)  # with the transaction that the batch before it is of
    goes_on[1:] = (ids[1:] == ids[:-1]) & is_transactional[:-1] & ~is_control[:-1]
    so_far = numpy.cumsum(~is_control)
    behind = so_far[numpy.searchsorted(ids, ids, "right") - 1] - so_far
    is_kept = is_control | (behind < REMEMBERED_BATCHES) | (is_transactional & ~goes_on)
    return numpy.sort(columns[is_kept])


def load_producers(
    disk: Disk,
    directory: Path,
    producers: ProducerStateManager,
    segments: list[Segment],
    end_offset: int,
    now_ms: int,
) -> None:
    """The newest usable snapshot at or below `end_offset`, and the batches from there to `end_offset`."""
    start = load_newest_snapshot(disk, directory, producers, end_offset, now_ms)
    for segment in segments:
        if segment.base_offset >= end_offset or start >= end_offset or segment.next_offset <= start:
            continue
        with contextlib.suppress(KafkaError):
            for table in segment.good_tables(segment.position_behind(start)):
                replay(producers, segment.read_at, table, start)


def load_newest_snapshot(
    disk: Disk, directory: Path, producers: ProducerStateManager, end_offset: int, now_ms: int
) -> int:
    """Load the newest snapshot that is whole and not beyond `end_offset`; its offset, 0 when there is
    none.
    """
    for offset in sorted(snapshot_offsets(directory), reverse=True):
        if offset > end_offset:
            continue
        states = read_snapshot(disk, directory, offset)
        if states is not None:
            producers.load(states, now_ms)
            return offset
        disk.unlink(snapshot_path(directory, offset))
    return 0


def read_snapshot(disk: Disk, directory: Path, offset: int) -> list[ProducerState] | None:
    """The producers as they were at `offset`; None when nobody wrote that down, or it is damaged."""
    path = snapshot_path(directory, offset)
    try:
        return decode_snapshot(read_whole(disk, path))
    except FileNotFoundError:
        return None
    except ValueError as problem:
        logger.warning("%s is damaged (%s) and not believed", path, problem)
        return None


def snapshot_path(directory: Path, offset: int) -> Path:
    """Where the producers as they were at `offset` are written down."""
    return directory / layout.segment_file_name(offset, layout.SNAPSHOT_SUFFIX)


def snapshot_offsets(directory: Path) -> list[int]:
    files = (layout.parse_segment_file(path.name) for path in directory.iterdir())
    return [
        file.base_offset for file in files if file and file.kind == layout.SNAPSHOT_SUFFIX and not file.state
    ]


def take_snapshot(disk: Disk, directory: Path, producers: ProducerStateManager, offset: int) -> Path:
    """Write the producers as they are at `offset`. Not synced here: a torn one is told by its checksum."""
    path = snapshot_path(directory, offset)
    try:
        write_whole(disk, path, encode_snapshot(producers.producers.values()), is_durable=False)
    except OSError:
        with contextlib.suppress(OSError):
            disk.unlink(path)
        raise
    return path


def remove_stray_snapshots(
    disk: Disk, directory: Path, bases: set[int], end_offset: int, is_clean: bool
) -> None:
    """Keep the snapshots at segment bases and the newest one that are whole and not beyond the log's end.

    What ended a roll (the last stop not being clean) may have left a snapshot without its bytes, at an offset
    that no start begins from.
    """
    newest = None
    for offset in sorted(snapshot_offsets(directory), reverse=True):
        is_wanted = offset <= end_offset and (newest is None or offset in bases)
        if is_wanted and (is_clean or read_snapshot(disk, directory, offset) is not None):
            newest = offset if newest is None else newest
        else:
            disk.unlink(snapshot_path(directory, offset))
