"""Whom to believe: a segment that this process did not write is checked before anything of it is served.

Not at the start, which reads nothing, and not whole, which could be a gigabyte for one record: the stretch
between the index entries around what is asked for, once, on the thread that reads it (the event loop never
checks). When all of a segment has been found good it is like one of our own. When a stretch is not good, the
whole segment is surveyed: damaged places are noted and counted, the indexes are made anew from what is good.
A segment of our own is checked again where it is read from the disk, for bits rot there too.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING

from protocol.batch import HEADER_BYTES, parse_header
from protocol.errors import ErrorCode, KafkaError
from storage.foreign_format import foreign_format
from storage.index import BrokenIndex
from storage.integrity import NO_ANCHORS, Anchors, Damage, Place, survey, walk_stretch
from storage.prefixes import STRETCH_BYTES, stretches_in
from storage.sidecar import witness_of
from storage.stretch import is_good

if TYPE_CHECKING:
    from storage.leader_epochs import LeaderEpochs
    from storage.stored_batches import StoredBatches

logger = logging.getLogger(__name__)


class Health:
    """What was found wrong with one log. Owned by: any thread, under lock."""

    __slots__ = ("_lock", "damaged_places", "epochs")

    def __init__(self, epochs: LeaderEpochs | None = None) -> None:
        self._lock = threading.Lock()
        self.epochs = epochs
        self.damaged_places = 0

    def note(self, segment: StoredBatches, damages: tuple[Damage, ...], cut_off: int = 0) -> None:
        """Count damaged places that stay, and those that recovery has cut off.

        Not of a segment that has left the log: what it held there, others hold, or nobody is to have.
        """
        if segment.has_left:
            return
        with self._lock:
            self.damaged_places += len(damages) + cut_off
        for damage in damages:
            found = foreign_format(segment.read_at, damage.position, damage.end)
            logger.error(
                "%s %s between %d and %d: offsets %d to %d %s, all others can be read",
                segment.file.path, f"has {found}" if found else "is damaged", damage.position, damage.end,
                damage.first_offset, damage.next_offset - 1, "cannot be read here" if found else "are lost",
            )  # fmt: skip

    def note_cut(self, segment: StoredBatches, position: int, limit_offset: int) -> None:
        """Count one that is shorter than its index says, and so has lost its end."""
        if segment.has_left:
            return
        with self._lock:
            self.damaged_places += 1
        logger.error(
            "%s ends at %d, and its index goes on to %d: its last offsets before %d are lost, "
            "unless the index is damaged; all others can be read",
            segment.file.path, segment.size_bytes, position, limit_offset,
        )  # fmt: skip

    def note_emptied(self, segment: StoredBatches, limit_offset: int) -> None:
        """Count one that has lost all that it held."""
        with self._lock:
            self.damaged_places += 1
        logger.error(
            "%s is empty: offsets %d to %d are lost, all others can be read",
            segment.file.path, segment.base_offset, limit_offset - 1,
        )  # fmt: skip


class Trust:
    """Which bytes of a segment were checked. Owned by: any thread, under lock; `covers` without."""

    __slots__ = ("_checked", "_lock", "has_anchors", "is_surveyed", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.is_surveyed = False
        self.has_anchors = True  # the index was read from its file: it is a second witness
        self._checked: tuple[tuple[int, int], ...] = ()  # ascending, apart
        self._lock = threading.Lock()

    @classmethod
    def of(cls, segment: StoredBatches) -> Trust:
        """All that `segment` holds at this moment, of which nothing was checked."""
        size = segment.size_bytes  # before the end, which appends move first
        epochs = segment.health.epochs if segment.health is not None else None
        return cls(Place(segment.base_offset, size, segment.upper_offset, epochs))

    @classmethod
    def surveyed(cls, segment: StoredBatches) -> Trust:
        """Of a segment of which all is known."""
        trust = cls.of(segment)
        trust.is_surveyed = True
        return trust

    def covers(self, position: int, end: int) -> bool:
        """Whether these bytes were checked, or the damage among them is known."""
        if self.is_surveyed or position >= self.place.size_bytes:
            return True
        end = min(end, self.place.size_bytes)
        checked = self._checked
        found = bisect_right(checked, (position, 1 << 63)) - 1
        return found >= 0 and checked[found][1] >= end

    def check(self, segment: StoredBatches, position: int, end: int) -> bool:
        """See that `covers` is true; False when something was found wrong, the index maybe. May read much,
        once.
        """
        with self._lock:
            if self.covers(position, end):
                return True
            end = min(end, self.place.size_bytes)
            stretch = self._intact_stretch(segment, position, end)
            if stretch is None:
                self.survey(segment)
            else:
                self._add(*stretch)
                self.is_surveyed = self._checked == ((0, self.place.size_bytes),)
        if self.is_surveyed and not segment.damages:
            segment.trust = None
        return stretch is not None

    def _intact_stretch(self, segment: StoredBatches, position: int, end: int) -> tuple[int, int] | None:
        """The checked stretch around [position, end); None when something about it is wrong."""
        place = self.place
        anchors = NO_ANCHORS
        witness = witness_of(segment, position, end)
        if witness is not None:  # it speaks of whole stretches
            position = position // STRETCH_BYTES * STRETCH_BYTES
            end = min(stretches_in(end) * STRETCH_BYTES, place.size_bytes)
            place = place._replace(witness=witness)
        if self.has_anchors:
            try:
                offsets, positions = segment.offset_index.columns()
            except (BrokenIndex, FileNotFoundError):
                return None
            # Not active is asked first: an append has its entry before its bytes count.
            if not segment.is_active and len(positions) and positions[-1] >= segment.size_bytes:
                self._say_cut(segment, int(positions[-1]))
                return None
            anchors = Anchors.around(offsets, positions, position, end)
        start, stop, behind = anchors.start, place.size_bytes, place.limit_offset
        if anchors.stop is not None and anchors.stop < stop:
            stop = anchors.stop
            head = segment.read_at(stop, HEADER_BYTES)
            header = parse_header(head) if len(head) == HEADER_BYTES else None
            if header is None or header.last_offset - place.base_offset != anchors.stop_offset:
                return None
            behind = header.base_offset
        if (
            not is_good(segment.file, place, start, stop, behind, anchors)
            and not walk_stretch(segment.read_at, place, start, stop, behind, anchors).is_intact
        ):
            return None
        return (start, stop) if witness is None else (position, end)

    def _say_cut(self, segment: StoredBatches, position: int) -> None:
        """No damaged batch tells of what was cut off behind a whole one."""
        if segment.health is not None:
            segment.health.note_cut(segment, position, self.place.end_offset)

    def _add(self, start: int, end: int) -> None:
        merged: list[tuple[int, int]] = []
        for one in sorted((*self._checked, (start, end))):
            if merged and one[0] <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(one[1], merged[-1][1]))
            else:
                merged.append(one)
        self._checked = tuple(merged)

    def survey(self, segment: StoredBatches) -> None:
        """Find everything that is wrong with the segment, and make its indexes anew from the rest."""
        witness = witness_of(segment, 0, self.place.size_bytes)
        found = survey(segment.read_at, self.place._replace(witness=witness))
        if found.damages:
            segment.set_damages(found.damages)
            segment.trust = self
            if segment.health is not None:
                segment.health.note(segment, found.damages)
        segment.rebuild_indexes()
        self.is_surveyed = True


def lost(segment: StoredBatches, damage: Damage) -> KafkaError:
    """What somebody is told who asks for an offset that was damaged."""
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"offsets {damage.first_offset} to {damage.next_offset - 1} of {segment.directory.name} are damaged, "
        f"between {damage.position} and {damage.end} of {segment.file.path.name}",
    )
