"""One segment after a crash (Kafka's `LogSegment.recover`): every batch is checked, the file is cut where the
good ones end, and indexes, transaction index, leader epochs and producers are made from what is left.

A segment that is whole is read once: its batches are told of as they are judged. What that has changed is
taken back where something is wrong; then what stays is found out first, and read once more.
"""

from __future__ import annotations

import enum
import logging

import numpy

from protocol.batch import NO_TIMESTAMP
from protocol.errors import ErrorCode, KafkaError
from storage import batch_table
from storage.aborted import drop_stale_statistics
from storage.foreign_format import foreign_format
from storage.index import add_entries
from storage.integrity import NO_ANCHORS, Damage, Place, Survey, Walk, survey, walk_stretch
from storage.leader_epochs import LeaderEpochs
from storage.overflow import overflows
from storage.producer_state import ProducerStateManager
from storage.replay import replay
from storage.segment import Segment
from storage.sidecar import witness_of
from storage.stretch import WholeFile
from storage.trust import Trust
from storage.types import AbortedTransaction

logger = logging.getLogger(__name__)

ZEROS = " (zeros: room that preallocate=true has made, or writes that never came to the disk)"
_PIECE_BYTES = 1 << 20


class Outcome(enum.Enum):
    """What `recover_segment` has found."""

    WHOLE = enum.auto()
    CUT = enum.auto()  # behind it nothing can be right
    OVERFLOWS = enum.auto()  # nothing was done: it has to be split first


def recover_segment(
    segment: Segment,
    producers: ProducerStateManager,
    epochs: LeaderEpochs,
    interval_bytes: int,
    recovery_point: int,
) -> Outcome:
    """Check every batch, make all indexes anew, cut the file where its good batches end.

    What is damaged below the recovery point was once on disk and acknowledged: it is no torn write, and no
    reason to cut off what stands behind it.
    """
    size = segment.size_bytes
    place = Place(
        segment.base_offset, size, segment.limit_offset, epochs, witness=witness_of(segment, 0, size)
    )
    if _recover_whole(segment, place, producers, epochs, interval_bytes, recovery_point):
        return Outcome.WHOLE
    if place.limit_offset is None and overflows(segment, recovery_point):
        return Outcome.OVERFLOWS
    found = _survey(segment, place, recovery_point)
    kept = [damage for damage in found.damages if damage.first_offset < recovery_point]
    cut = next((damage for damage in found.damages if damage.first_offset >= recovery_point), None)
    end, next_offset = segment.size_bytes, found.next_offset
    if cut is not None:
        _refuse_foreign(segment, cut)
        end, next_offset = cut.position, cut.first_offset
        hint = ZEROS if _are_zeros(segment, end) else ""
        logger.warning(
            "%s: %d bytes behind offset %d are no good batches and are cut off%s",
            segment.file.path, segment.size_bytes - end, next_offset, hint,
        )  # fmt: skip
    elif kept and kept[-1].end == end:  # the log goes on where it is known to have ended, at least
        limit = segment.limit_offset
        next_offset = max(kept[-1].next_offset, recovery_point) if limit is None else limit
        kept[-1] = kept[-1]._replace(next_offset=next_offset)
    next_offset = next_offset if end else segment.base_offset
    segment.truncate(end, next_offset)
    segment.set_damages(tuple(kept))
    anew = _Anew(segment, producers, epochs, interval_bytes)
    for table in segment.tables():
        anew.add(table)
    anew.finish(next_offset)
    segment.trust = Trust.surveyed(segment) if kept else None
    if segment.health is not None and found.damages:
        segment.health.note(segment, tuple(kept), len(found.damages) - len(kept))
    return Outcome.WHOLE if cut is None else Outcome.CUT


def _are_zeros(segment: Segment, position: int) -> bool:
    """Whether nothing else follows in the file."""
    pieces = (segment.read_at(at, _PIECE_BYTES) for at in range(position, segment.size_bytes, _PIECE_BYTES))
    return not any(numpy.frombuffer(piece, dtype=numpy.uint8).any() for piece in pieces)


def _refuse_foreign(segment: Segment, cut: Damage) -> None:
    """KafkaError where what would be cut off is of another format: its log stays as it is, and offline."""
    found = foreign_format(segment.read_at, cut.position, segment.size_bytes)
    if found is not None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{segment.file.path} has records of {found} from offset {cut.first_offset} on, which are not "
            "read here: have a Kafka that reads them copy the topic",
        )


def _recover_whole(
    segment: Segment,
    place: Place,
    producers: ProducerStateManager,
    epochs: LeaderEpochs,
    interval_bytes: int,
    recovery_point: int,
) -> bool:
    """Recover a segment in which nothing is wrong, which is nearly every one; False, and nothing has changed
    but indexes in memory, where that cannot be said.
    """
    producers_before, epochs_before = producers.copy(), epochs.entries
    anew = _Anew(segment, producers, epochs, interval_bytes)
    walk = WholeFile(segment.file, place)
    for table in walk.tables():
        anew.add(table)
    if walk.is_intact and not _is_doubtful(place, walk, recovery_point):
        segment.truncate(place.size_bytes, walk.next_offset)
        segment.set_damages(())
        anew.finish(walk.next_offset)
        segment.trust = None
        return True
    producers.restore(producers_before)
    epochs.restore(epochs_before)
    return False


def _is_doubtful(place: Place, walk: WholeFile | Walk, recovery_point: int) -> bool:
    """Whether the last batch, of which only a gap before it tells, may be one whose offset is wrong."""
    return place.limit_offset is None and walk.is_apart and walk.next_offset != recovery_point


def _survey(segment: Segment, place: Place, recovery_point: int) -> Survey:
    """What is wrong with a segment: nothing, maybe, where the quick walk could not tell."""
    walk = walk_stretch(segment.read_at, place, 0, place.size_bytes, place.limit_offset, NO_ANCHORS)
    if not walk.is_intact:
        return survey(segment.read_at, place._replace(start=walk.restart, start_offset=walk.restart_offset))
    if _is_doubtful(place, walk, recovery_point):
        return survey(segment.read_at, place, doubts_last=True)
    return Survey((), place.size_bytes, walk.next_offset)


class _Anew:
    """What is made from the batches of a segment, told of in order. Owned by: the thread that recovers it."""

    def __init__(
        self, segment: Segment, producers: ProducerStateManager, epochs: LeaderEpochs, interval_bytes: int
    ) -> None:
        self._segment = segment
        self._producers = producers
        self._epochs = epochs
        self._interval_bytes = interval_bytes
        self._aborted: list[AbortedTransaction] = []
        self._state = numpy.array([0, NO_TIMESTAMP, segment.base_offset, 0], numpy.int64)
        segment.offset_index.reset()
        segment.time_index.reset()

    def add(self, table: batch_table.Table) -> None:
        segment = self._segment
        self._state[3] = table[batch_table.POSITION, 0]  # behind a damage it is farther on
        add_entries(segment.offset_index, segment.time_index, table, self._state, self._interval_bytes)
        note_epochs(self._epochs, table)
        self._aborted += replay(self._producers, segment.read_at, table)

    def finish(self, next_offset: int) -> None:
        """There are no more: write the indexes."""
        segment = self._segment
        segment.txn_index.reset()
        segment.txn_index.append(self._aborted)
        drop_stale_statistics(segment)
        segment.note_recovered(self._state)
        segment.note_end(next_offset)


def note_epochs(epochs: LeaderEpochs, table: batch_table.Table) -> None:
    """What the batches say of leader epochs that are not known yet."""
    for column in numpy.flatnonzero(table[batch_table.LEADER_EPOCH] > epochs.latest):
        epoch = int(table[batch_table.LEADER_EPOCH, column])
        if epoch > epochs.latest:
            epochs.assign(epoch, int(table[batch_table.BASE_OFFSET, column]))
