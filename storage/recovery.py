"""From the files of a directory to a log that may be served (Kafka's `LogLoader` and `LogSegment.recover`).

After a clean shutdown nothing is scanned. Otherwise a swap that a crash interrupted is finished or undone,
segments from the recovery point on are read batch by batch with their checksums, the first bad batch ends
the log, and indexes, transaction indexes and producer state are made anew from what is left. Files that are
not ours stay.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy

from protocol.batch import checksum, parse_header
from protocol.control import decode_marker
from protocol.errors import KafkaError
from protocol.records import decode_batch
from storage import batch_table, layout
from storage.batch_table import BROKEN, read_table
from storage.checkpoint import read_leader_epochs, write_leader_epochs
from storage.cleaned_segment import CleanedSegment
from storage.file import Disk, read_whole, room_or_none, sync_file, write_whole
from storage.index import NO_TIMESTAMP, add_entries
from storage.leader_epochs import LeaderEpochs
from storage.producer_state import ProducerStateManager, decode_snapshot
from storage.segment import MAX_RELATIVE_OFFSET, Segment
from storage.stored_batches import SCAN_BYTES
from storage.types import AbortedTransaction, LogLimits

if TYPE_CHECKING:
    from config.topic import TopicConfig

logger = logging.getLogger(__name__)

KNOWN_FILES = frozenset(
    {
        layout.LEADER_EPOCH_CHECKPOINT,
        layout.PARTITION_METADATA,
        layout.LEADER_EPOCH_CHECKPOINT + ".tmp",
        layout.PARTITION_METADATA + ".tmp",
    }
)
NO_EPOCH = -1


class LoadedLog(NamedTuple):
    """What a log starts from."""

    segments: tuple[Segment, ...]
    log_start_offset: int
    next_offset: int
    producers: ProducerStateManager
    leader_epochs: LeaderEpochs


class LoadRequest(NamedTuple):
    """Where to load from and what is known already."""

    disk: Disk
    directory: Path
    config: TopicConfig
    log_start_offset: int
    recovery_point: int
    is_clean: bool
    now_ms: int
    limits: LogLimits
    segment_recovered: Callable[[], None] = lambda: None


def load(request: LoadRequest) -> LoadedLog:
    """Open the log of a directory, repairing what a crash left behind."""
    disk, directory = request.disk, request.directory
    finish_swaps(disk, directory)
    segments = _open_segments(disk, directory)
    epochs = _load_epochs(disk, directory, segments)
    log_start_offset = max(request.log_start_offset, segments[0].base_offset if segments else 0)
    segments = _split_overflowing(request, segments)
    first_dirty = len(segments) if request.is_clean else _first_to_recover(segments, request.recovery_point)
    producers = ProducerStateManager(request.limits)
    recovered_from = segments[first_dirty].base_offset if first_dirty < len(segments) else None
    scan_start = recovered_from if recovered_from is not None else _next_offset(segments, log_start_offset)
    _load_producers(request, producers, segments[:first_dirty], scan_start)
    segments = _recover(request, segments, first_dirty, producers, epochs)
    next_offset = _next_offset(segments, log_start_offset)
    if segments and next_offset < log_start_offset:
        logger.warning(
            "%s ends at %d, before its start %d: it is dropped", directory.name, next_offset, log_start_offset
        )
        for segment in segments:
            segment.unlink()
        segments, next_offset = [], log_start_offset
        producers = ProducerStateManager(request.limits)
    if not segments:
        segments = [Segment.create(disk, directory, next_offset, request.config, request.now_ms)]
    changed = epochs.truncate_from_end(next_offset)
    if epochs.truncate_from_start(log_start_offset) or changed:
        with room_or_none():
            write_leader_epochs(disk, directory, epochs.entries)
    remove_stray_snapshots(disk, directory, {segment.base_offset for segment in segments}, next_offset)
    if not request.is_clean:
        disk.sync_directory(directory)
    return LoadedLog(tuple(segments), log_start_offset, next_offset, producers, epochs)


def unavailable(disk: Disk, directory: Path) -> LoadedLog:
    """What stands for a log that could not be loaded, so that it can be asked for and say why."""
    segments = (Segment.placeholder(disk, directory),)
    return LoadedLog(segments, 0, 0, ProducerStateManager(), LeaderEpochs())


def _next_offset(segments: list[Segment], log_start_offset: int) -> int:
    return segments[-1].next_offset if segments else log_start_offset


def _first_to_recover(segments: list[Segment], recovery_point: int) -> int:
    """The segment that holds the last flushed record, and all behind it, were not surely flushed.

    Where a segment begins at the recovery point, that is the one before: its records were flushed, but maybe
    by a flush that came before the roll and knew nothing of its final indexes and the snapshot.
    """
    first = 0
    for number, segment in enumerate(segments):
        if segment.base_offset < recovery_point:
            first = number
    return first


# Files


def finish_swaps(disk: Disk, directory: Path) -> None:
    """Finish a swap whose cleaned files were all renamed to `.swap`, undo one that did not come so far.

    The order of the removals matters: a second crash in between must find the same decision (T111-T118).
    """
    found = _segment_files(directory)
    cleaned = [file for file in found if file.state == layout.CLEANED_SUFFIX]
    swaps = [file for file in found if file.state == layout.SWAP_SUFFIX]
    for file in found:
        is_torn = file[1:] == (layout.STATISTICS_SUFFIX, layout.TEMPORARY_SUFFIX)
        if file.state == layout.DELETED_SUFFIX or is_torn:
            disk.unlink(_path(directory, file))
    smallest_cleaned = min((file.base_offset for file in cleaned), default=None)
    if smallest_cleaned is not None:
        for file in [file for file in swaps if file.base_offset >= smallest_cleaned]:
            logger.warning("%s: the swap of %d is undone", directory.name, file.base_offset)
            disk.unlink(_path(directory, file))
            swaps.remove(file)
        for file in cleaned:
            disk.unlink(_path(directory, file))
    if not swaps:
        return
    first, end = _swapped_range(disk, directory, swaps)
    for file in found:
        if not file.state and file.kind != layout.SNAPSHOT_SUFFIX and first <= file.base_offset < end:
            disk.unlink(_path(directory, file))
    for file in swaps:
        logger.warning("%s: the swap of %d is finished", directory.name, file.base_offset)
        disk.rename(_path(directory, file), _path(directory, file._replace(state="")))
    disk.sync_directory(directory)


def _swapped_range(disk: Disk, directory: Path, swaps: list[layout.SegmentFile]) -> tuple[int, int]:
    """The offsets that the `.swap` segments hold: old segments that begin in there are superseded."""
    first, end = 2**63 - 1, -1
    for file in swaps:
        if file.kind != layout.LOG_SUFFIX:
            continue
        segment = Segment.open_state(disk, directory, file.base_offset, layout.SWAP_SUFFIX)
        last = file.base_offset + 1
        with contextlib.suppress(KafkaError):
            for table in segment.tables():
                last = int(table[batch_table.LAST_OFFSET, -1]) + 1
        segment.file.close()
        first, end = min(first, file.base_offset), max(end, last)
    return first, end


def _segment_files(directory: Path) -> list[layout.SegmentFile]:
    """Every segment file, ascending; a warning for each name that is not ours."""
    found = []
    for path in sorted(directory.iterdir()):
        file = layout.parse_segment_file(path.name)
        if file is not None:
            found.append(file)
        elif path.name not in KNOWN_FILES:
            logger.warning("%s is unknown and left alone", path)
    return found


def _path(directory: Path, file: layout.SegmentFile) -> Path:
    return directory / layout.segment_file_name(*file)


def _open_segments(disk: Disk, directory: Path) -> list[Segment]:
    """All segments by their `.log` files; an index without one is removed, a missing index made anew."""
    files = [file for file in _segment_files(directory) if not file.state]
    bases = sorted(file.base_offset for file in files if file.kind == layout.LOG_SUFFIX)
    known = set(bases)
    present = {(file.base_offset, file.kind) for file in files}
    for file in files:
        if file.base_offset not in known and file.kind != layout.SNAPSHOT_SUFFIX:
            logger.warning("%s has no log and is removed", _path(directory, file))
            disk.unlink(_path(directory, file))
    segments = []
    for base in bases:
        segment = Segment.open(disk, directory, base)
        if not {(base, layout.INDEX_SUFFIX), (base, layout.TIME_INDEX_SUFFIX)} <= present:
            if segment.size_bytes:
                logger.warning("%s: an index of %d is missing and made anew", directory.name, base)
            segment.rebuild_indexes()
        segments.append(segment)
    return segments


def _split_overflowing(request: LoadRequest, segments: list[Segment]) -> list[Segment]:
    """A segment whose offsets do not fit into 32 bits (made by old brokers) becomes several."""
    result: list[Segment] = []
    for number, segment in enumerate(segments):
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else None
        may_overflow = (
            not request.is_clean if behind is None else behind - segment.base_offset > MAX_RELATIVE_OFFSET
        )
        if may_overflow and _overflows(segment):
            result += split_segment(request, segment)
        else:
            result.append(segment)
    return result


def _overflows(segment: Segment) -> bool:
    """Whether a batch with a good checksum lies farther from the base offset than an index can say."""
    with contextlib.suppress(KafkaError):
        for table in segment.tables():
            beyond = numpy.flatnonzero(
                table[batch_table.LAST_OFFSET] - segment.base_offset > MAX_RELATIVE_OFFSET
            )
            if len(beyond):
                column = int(beyond[0])
                size = int(table[batch_table.SIZE_BYTES, column])
                data = segment.read_at(int(table[batch_table.POSITION, column]), size)
                return checksum(data, 0, size) == int(table[batch_table.CHECKSUM, column])
    return False


def split_segment(request: LoadRequest, segment: Segment) -> list[Segment]:
    """The same batches in as many segments as their offsets need, swapped in as a cleaning would."""
    disk, directory = request.disk, request.directory
    parts: list[CleanedSegment] = []
    for table in segment.tables():
        for column in range(table.shape[1]):
            base, last = (
                int(table[batch_table.BASE_OFFSET, column]),
                int(table[batch_table.LAST_OFFSET, column]),
            )
            if not parts or last - parts[-1].base_offset > MAX_RELATIVE_OFFSET:
                start = base if parts else segment.base_offset
                parts.append(CleanedSegment.create(directory, start, request.config, disk))
            position, size = (
                int(table[batch_table.POSITION, column]),
                int(table[batch_table.SIZE_BYTES, column]),
            )
            parts[-1].append(segment.read_at(position, size))
    for part in parts:
        part.finish(segment.last_modified_ms)
    made = [part.to_segment() for part in parts]
    for new in reversed(made):
        new.rename(layout.SWAP_SUFFIX)
    segment.unlink()
    for new in made:
        new.rename("")
    disk.sync_directory(directory)
    return made


# Batches


def _recover(
    request: LoadRequest,
    segments: list[Segment],
    first: int,
    producers: ProducerStateManager,
    epochs: LeaderEpochs,
) -> list[Segment]:
    """Check the segments from number `first` on; what comes behind the first bad batch is removed."""
    kept = segments[:first]
    expected = kept[-1].next_offset if kept else 0
    latest = epochs.latest
    for number in range(first, len(segments)):
        segment = segments[number]
        if number > first:
            with room_or_none():
                snapshot = take_snapshot(request.disk, request.directory, producers, segment.base_offset)
                sync_file(request.disk, snapshot)
        is_whole = recover_segment(segment, producers, epochs, request.config.index_interval_bytes, expected)
        request.segment_recovered()
        kept.append(segment)
        expected = segment.next_offset
        if not is_whole:
            for behind in segments[number + 1 :]:
                logger.warning(
                    "%s: %r comes behind a bad batch and is removed", request.directory.name, behind
                )
                behind.unlink()
                request.segment_recovered()
            break
    if epochs.latest != latest:
        with room_or_none():
            sync_file(request.disk, write_leader_epochs(request.disk, request.directory, epochs.entries))
    for segment in kept[first:]:
        segment.flush_closed()
    return kept


def recover_segment(
    segment: Segment,
    producers: ProducerStateManager,
    epochs: LeaderEpochs,
    interval_bytes: int,
    expected_offset: int,
) -> bool:
    """Check every batch, make all indexes anew, cut the file behind the last good batch; False if that was
    needed.
    """
    segment.offset_index.reset()
    segment.time_index.reset()
    segment.txn_index.reset()
    state = numpy.array([0, NO_TIMESTAMP, segment.base_offset, 0], numpy.int64)
    position, wanted = 0, SCAN_BYTES
    next_offset = max(expected_offset, segment.base_offset)
    is_whole = True
    while position < segment.size_bytes:
        data = segment.read_at(position, min(wanted, segment.size_bytes - position))
        table, stopped, reason = read_table(data)
        good = _good_batches(data, table, next_offset, segment.base_offset)
        if good:
            table = numpy.ascontiguousarray(table[:, :good])
            add_entries(segment.offset_index, segment.time_index, table, state, interval_bytes)
            _note_epochs(epochs, table)
            segment.txn_index.append(replay(producers, data, table))
            next_offset = int(table[batch_table.LAST_OFFSET, -1]) + 1
            end = int(table[batch_table.POSITION, -1] + table[batch_table.SIZE_BYTES, -1])
            position += end
            wanted = SCAN_BYTES
            if end == stopped and reason != BROKEN:
                continue
        elif not table.shape[1] and reason != BROKEN and len(data) == wanted:
            wanted *= 2  # one batch larger than the window
            continue
        is_whole = False
        break
    if not is_whole:
        logger.warning(
            "%s: %d bytes behind offset %d are no good batches and are cut off",
            segment.file.path,
            segment.size_bytes - position,
            next_offset,
        )
    segment.truncate(position, next_offset if position else segment.base_offset)
    segment.note_recovered(state)
    return is_whole


def _good_batches(data: bytes, table: batch_table.Table, next_offset: int, base_offset: int) -> int:
    """How many batches from the front have their checksum and follow each other."""
    view = memoryview(data)
    columns = table[
        [batch_table.POSITION, batch_table.SIZE_BYTES, batch_table.BASE_OFFSET, batch_table.LAST_OFFSET]
    ].T.tolist()
    checksums = table[batch_table.CHECKSUM].tolist()
    for number, (position, size, base, last) in enumerate(columns):
        if base < next_offset or last - base_offset > MAX_RELATIVE_OFFSET:
            return number
        if checksum(view, position, size) != checksums[number]:
            return number
        next_offset = last + 1
    return len(columns)


def _note_epochs(epochs: LeaderEpochs, table: batch_table.Table) -> None:
    for column in numpy.flatnonzero(table[batch_table.LEADER_EPOCH] > epochs.latest):
        epoch = int(table[batch_table.LEADER_EPOCH, column])
        if epoch > epochs.latest:
            epochs.assign(epoch, int(table[batch_table.BASE_OFFSET, column]))


def replay(
    producers: ProducerStateManager, data: bytes, table: batch_table.Table, from_offset: int = 0
) -> list[AbortedTransaction]:
    """Take note of the producers of these batches (positions in `data`); the aborted transactions among
    them.
    """
    aborted = []
    for column in numpy.flatnonzero(table[batch_table.PRODUCER_ID] >= 0):
        header = parse_header(data, int(table[batch_table.POSITION, column]))
        if header.base_offset < from_offset:
            continue
        if not header.is_control:
            producers.update(header, header.base_offset)
        elif header.record_count:
            record = decode_batch(data, int(table[batch_table.POSITION, column]))[0]
            marker = decode_marker(record.key, record.value)
            if marker is not None:
                entry = producers.update_marker(header, marker, header.base_offset)
                if entry is not None:
                    aborted.append(entry)
    return aborted


# Epochs, producers, snapshots


def _load_epochs(disk: Disk, directory: Path, segments: list[Segment]) -> LeaderEpochs:
    entries = read_leader_epochs(disk, directory)
    if entries is not None:
        return LeaderEpochs(entries)
    epochs = LeaderEpochs()
    for segment in segments:
        with contextlib.suppress(KafkaError):
            for table in segment.tables():
                _note_epochs(epochs, table)
    if epochs.entries or (directory / layout.LEADER_EPOCH_CHECKPOINT).exists():  # a damaged one
        with room_or_none():
            write_leader_epochs(disk, directory, epochs.entries)
    return epochs


def _load_producers(
    request: LoadRequest, producers: ProducerStateManager, segments: list[Segment], end_offset: int
) -> None:
    """The newest usable snapshot at or below `end_offset`, and the batches from there to `end_offset`."""
    start = load_newest_snapshot(request.disk, request.directory, producers, end_offset, request.now_ms)
    for segment in segments:
        if segment.base_offset >= end_offset or start >= end_offset or segment.next_offset <= start:
            continue
        position = segment.position_of(start)
        with contextlib.suppress(KafkaError):  # a damaged old segment is noticed by who reads it
            for table in segment.tables(position):
                begin = int(table[batch_table.POSITION, 0])
                end = int(table[batch_table.POSITION, -1] + table[batch_table.SIZE_BYTES, -1])
                table[batch_table.POSITION] -= begin
                replay(producers, segment.read_at(begin, end - begin), table, start)


def load_newest_snapshot(
    disk: Disk, directory: Path, producers: ProducerStateManager, end_offset: int, now_ms: int
) -> int:
    """Load the newest snapshot that is whole and not beyond `end_offset`; its offset, 0 when there is
    none.
    """
    for offset in sorted(snapshot_offsets(directory), reverse=True):
        path = directory / layout.segment_file_name(offset, layout.SNAPSHOT_SUFFIX)
        if offset > end_offset:
            continue
        try:
            states = decode_snapshot(read_whole(disk, path))
        except ValueError as problem:
            logger.warning("%s is damaged (%s) and removed", path, problem)
            disk.unlink(path)
            continue
        producers.load(states, now_ms)
        return offset
    return 0


def snapshot_offsets(directory: Path) -> list[int]:
    files = (layout.parse_segment_file(path.name) for path in directory.iterdir())
    return [
        file.base_offset for file in files if file and file.kind == layout.SNAPSHOT_SUFFIX and not file.state
    ]


def take_snapshot(disk: Disk, directory: Path, producers: ProducerStateManager, offset: int) -> Path:
    """Write the producers as they are at `offset`. Not synced here: a torn one is told by its checksum."""
    path = directory / layout.segment_file_name(offset, layout.SNAPSHOT_SUFFIX)
    try:
        write_whole(disk, path, producers.encode_snapshot(), is_durable=False)
    except OSError:
        with contextlib.suppress(OSError):
            disk.unlink(path)
        raise
    return path


def remove_stray_snapshots(disk: Disk, directory: Path, bases: set[int], end_offset: int) -> None:
    """Keep the snapshots at segment bases and the newest one; none may lie beyond the log's end."""
    offsets = sorted(snapshot_offsets(directory))
    newest = max((offset for offset in offsets if offset <= end_offset), default=None)
    for offset in offsets:
        if offset > end_offset or (offset not in bases and offset != newest):
            disk.unlink(directory / layout.segment_file_name(offset, layout.SNAPSHOT_SUFFIX))
