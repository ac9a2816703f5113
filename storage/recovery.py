"""From the files of a directory to a log that may be served (Kafka's `LogLoader`).

A swap that a crash interrupted is finished or undone. After a clean shutdown nothing is scanned. Otherwise
the segments from the recovery point on are read batch by batch (`segment_recovery.py`): the first bad batch
at or above that point ends the log, and indexes, transaction indexes and producer state are made anew from
what is left. Files that are not ours stay.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import KafkaError
from storage import batch_table, layout
from storage.aborted import settle as settle_aborted
from storage.checkpoint import read_leader_epochs, write_leader_epochs
from storage.emptied import had_batches, is_too_far
from storage.file import Disk
from storage.integrity import survey
from storage.leader_epochs import LeaderEpochs
from storage.overflow import overflows, split_segment
from storage.producer_state import ProducerStateManager
from storage.replay import (
    load_producers,
    read_snapshot,
    remove_stray_snapshots,
    snapshot_path,
    take_snapshot,
)
from storage.segment import MAX_RELATIVE_OFFSET, Segment
from storage.segment_recovery import Outcome, note_epochs, recover_segment
from storage.small_files import room_or_none, sync_file
from storage.trust import Health, Trust
from storage.types import LogLimits

if TYPE_CHECKING:
    from config.topic import TopicConfig

logger = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    """What a log starts from."""

    segments: tuple[Segment, ...]
    log_start_offset: int
    next_offset: int
    producers: ProducerStateManager
    leader_epochs: LeaderEpochs
    health: Health
    recovery_point: int
    unflushed: tuple[Segment, ...] = ()  # closed, and not surely on disk


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
    segments_left: Callable[[int], None] = lambda change: None
    writes_again: bool = False  # what was not flushed: a flush failed, and the page cache lies since


def load(request: LoadRequest) -> LoadedLog:
    """Open the log of a directory, repairing what a crash left behind."""
    disk, directory = request.disk, request.directory
    finish_swaps(disk, directory)
    segments = _open_segments(disk, directory)
    epochs = _load_epochs(disk, directory, segments)
    log_start_offset = max(request.log_start_offset, segments[0].base_offset if segments else 0)
    segments = _split_overflowing(request, segments)
    health = Health(epochs)
    _distrust(segments, health)
    _tell_emptied(request, segments, health, log_start_offset)
    first_dirty = len(segments) if request.is_clean else _first_to_recover(segments, request.recovery_point)
    request.segments_left(len(segments) - first_dirty)
    if request.is_clean and segments:
        _settle_end(segments[-1], request.recovery_point)
    producers = ProducerStateManager(request.limits)
    if first_dirty < len(segments):
        known_end = segments[first_dirty].base_offset
    else:
        known_end = _next_offset(segments, log_start_offset)
    load_producers(disk, directory, producers, segments[:first_dirty], known_end, request.now_ms)
    settle_aborted(segments, first_dirty)
    segments = _recover(request, segments, first_dirty, producers, epochs)
    unflushed = _make_durable(request, segments[first_dirty:])
    next_offset = _next_offset(segments, log_start_offset)
    if next_offset < request.recovery_point:
        logger.error(
            "%s ends at %d, and ended at %d or behind: offsets from there on are lost, "
            "unless %s is damaged",
            directory.name, next_offset, request.recovery_point, layout.RECOVERY_POINT_CHECKPOINT,
        )  # fmt: skip
    recovery_point = min(request.recovery_point, next_offset) if unflushed else next_offset
    if request.is_clean and segments and next_offset < log_start_offset:
        logger.error("%s: its start %d is beyond its end: damaged", directory.name, log_start_offset)
        log_start_offset = segments[0].base_offset
    if segments and next_offset < log_start_offset:
        logger.warning(
            "%s ends at %d, before its start %d: it is dropped", directory.name, next_offset, log_start_offset
        )
        for segment in segments:
            segment.unlink()
        segments, unflushed, next_offset = [], (), log_start_offset
        recovery_point = next_offset
        producers = ProducerStateManager(request.limits)
    if not segments or segments[-1].ends_damaged:  # nothing is appended behind damage
        segments += [Segment.create(disk, directory, next_offset, request.config, request.now_ms)]
    _settle_epochs(request, epochs, log_start_offset, next_offset)
    bases = {segment.base_offset for segment in segments}
    remove_stray_snapshots(disk, directory, bases, next_offset, request.is_clean)
    if not request.is_clean:
        disk.sync_directory(directory)
    return LoadedLog(
        tuple(segments), log_start_offset, next_offset, producers, epochs, health, recovery_point,
        tuple(segment for segment in unflushed if segment is not segments[-1]),
    )  # fmt: skip


def _settle_epochs(request: LoadRequest, epochs: LeaderEpochs, start: int, end: int) -> None:
    """Those of the records that are there. The last one goes on, records or none: clients remember it, and
    take an older one for old news.
    """
    before, latest = epochs.entries, epochs.latest
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    epochs.assign(latest, end)
    if epochs.entries != before:
        with room_or_none():
            sync_file(request.disk, write_leader_epochs(request.disk, request.directory, epochs.entries))


def unavailable(disk: Disk, directory: Path) -> LoadedLog:
    """What stands for a log that could not be loaded, so that it can be asked for and say why."""
    segments = (Segment.placeholder(disk, directory),)
    return LoadedLog(segments, 0, 0, ProducerStateManager(), LeaderEpochs(), Health(), 0)


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


# Trust


def _distrust(segments: list[Segment], health: Health | None) -> None:
    """What is on disk is checked before it is served; each segment ends where the next one begins."""
    for number, segment in enumerate(segments):
        segment.health = health
        if number + 1 < len(segments):
            segment.limit_offset = segments[number + 1].base_offset
            if segment.size_bytes:
                segment.trust = Trust.of(segment)


def _tell_emptied(
    request: LoadRequest, segments: list[Segment], health: Health, log_start_offset: int
) -> None:
    """Say what is missing where a segment that others follow has no batches."""
    for segment, behind in itertools.pairwise(segments):
        if segment.size_bytes or behind.base_offset <= log_start_offset:
            continue
        if had_batches(request.disk, request.directory, segment.base_offset):
            health.note_emptied(segment, behind.base_offset)
        elif not (request.config.is_compacted or is_too_far(segment.base_offset, behind.base_offset)):
            logger.warning(
                "%s is empty, and so are its indexes: if the topic was never compacted, offsets %d to %d are "
                "lost",
                segment.file.path, segment.base_offset, behind.base_offset - 1,
            )  # fmt: skip


def _settle_end(last: Segment, recovery_point: int) -> None:
    """After a clean stop the log ends at its recovery point: where the last batch says otherwise, one of the
    two is damaged, and the whole segment is looked at.
    """
    if not last.size_bytes:
        return
    is_agreed = last.next_offset == recovery_point if recovery_point else last.has_whole_end()
    if not is_agreed:
        place = Trust.of(last).place._replace(limit_offset=None)
        found = survey(last.read_at, place, doubts_last=True)
        end = max(found.next_offset, recovery_point) if found.damages else found.next_offset
        last.note_end(end)
    last.limit_offset = last.next_offset
    last.trust = Trust.of(last)
    if not is_agreed:
        last.trust.survey(last)


# Files


def finish_swaps(disk: Disk, directory: Path) -> None:
    """Finish a swap whose cleaned files were all renamed to `.swap`, undo one that did not come so far.

    The order of the removals matters: a second crash in between must find the same decision (T111-T118).
    """
    found = _segment_files(directory)
    cleaned = [file for file in found if file.state == layout.CLEANED_SUFFIX]
    swaps = [file for file in found if file.state == layout.SWAP_SUFFIX]
    for file in found:
        is_torn = file.state == layout.TEMPORARY_SUFFIX and file.kind in layout.REPLACED_IN_PLACE
        if file.state.endswith(layout.DELETED_SUFFIX) or is_torn:
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
    first, end = layout.LARGEST_OFFSET, -1
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
        elif not layout.is_log_file(path.name):
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
    """A segment whose offsets do not fit into 32 bits (made by old brokers) becomes several. Whether the last
    one does, nothing behind it tells: its recovery finds out.
    """
    result: list[Segment] = []
    for segment, behind in itertools.zip_longest(segments, segments[1:]):
        known_end = 0 if behind is None else behind.base_offset
        if known_end - segment.base_offset > MAX_RELATIVE_OFFSET and overflows(segment, known_end):
            result += split_segment(request.disk, request.directory, segment, request.config)
        else:
            result.append(segment)
    return result


# Batches


def _recover(
    request: LoadRequest,
    segments: list[Segment],
    first: int,
    producers: ProducerStateManager,
    epochs: LeaderEpochs,
) -> list[Segment]:
    """Check the segments from number `first` on; what comes behind the first bad batch is removed."""
    kept, left = segments[:first], segments[first:]
    latest = epochs.latest
    while left:
        segment = left.pop(0)
        if len(kept) > first:
            _settle_producers(request, producers, kept[-1].next_offset, segment.base_offset)
        outcome = recover_segment(
            segment, producers, epochs, request.config.index_interval_bytes, request.recovery_point
        )
        if outcome is Outcome.OVERFLOWS:
            left = split_segment(request.disk, request.directory, segment, request.config)
            _distrust(left, segment.health)
            request.segments_left(len(left) - 1)
            continue
        request.segments_left(-1)
        kept.append(segment)
        if outcome is Outcome.CUT:
            for one in left:
                _remove(request, one)
                request.segments_left(-1)
            segment.limit_offset = segment.next_offset
            break
    _drop_unfilled(request, kept)
    if epochs.latest != latest:
        with room_or_none():
            sync_file(request.disk, write_leader_epochs(request.disk, request.directory, epochs.entries))
    return kept


def _make_durable(request: LoadRequest, recovered: list[Segment]) -> tuple[Segment, ...]:
    """Flush what was recovered, or say what was not: a topic that leaves flushes to the system is served
    without waiting for one (as in Kafka).
    """
    if request.config.flush_messages != 1 and not request.writes_again:
        return tuple(recovered)
    for segment in recovered:
        if request.writes_again:
            segment.write_again(request.recovery_point)
        segment.flush_closed()
    return ()


def _remove(request: LoadRequest, segment: Segment) -> None:
    logger.warning("%s: %r comes behind what is lost and is removed", request.directory.name, segment)
    segment.unlink()


def _drop_unfilled(request: LoadRequest, kept: list[Segment]) -> None:
    """Remove what is left at the end of names that outlived a power cut, as the records before them did not:
    nobody flushed those, but a reader to the end of the log would wait for them. A cleaning leaves no such
    gap: the last batch of what it cleans stays (T55).
    """
    while len(kept) > 1 and not kept[-1].size_bytes:
        if not request.recovery_point <= kept[-2].next_offset < kept[-1].base_offset:
            break
        _remove(request, kept.pop())
        kept[-1].limit_offset = kept[-1].next_offset


def _settle_producers(request: LoadRequest, producers: ProducerStateManager, end: int, offset: int) -> None:
    """Between two segments, up to `end` and from `offset` on: the batches were replayed, but the snapshot of
    the roll may know more. Then it stays as it is, for it is the only one to know. Not beside a gap that no
    flush covered: the batches in there that it knows were taken by a power cut (or, once old, by a cleaning).
    """
    disk, directory = request.disk, request.directory
    states = read_snapshot(disk, directory, offset)
    has_gap = request.recovery_point <= end < offset
    if states is not None:
        producers.compare(states, request.now_ms, end if has_gap else offset)
        if not has_gap:
            sync_file(disk, snapshot_path(directory, offset))
            return
    with room_or_none():
        sync_file(disk, take_snapshot(disk, directory, producers, offset))


def _load_epochs(disk: Disk, directory: Path, segments: list[Segment]) -> LeaderEpochs:
    entries = read_leader_epochs(disk, directory)
    if entries is not None:
        return LeaderEpochs(entries)
    epochs = LeaderEpochs()
    for segment in segments:
        with contextlib.suppress(KafkaError):
            for table in segment.tables():
                note_epochs(epochs, table)
    if epochs.entries or (directory / layout.LEADER_EPOCH_CHECKPOINT).exists():  # a damaged one
        with room_or_none():
            write_leader_epochs(disk, directory, epochs.entries)
    return epochs
