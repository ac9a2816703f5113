"""A segment whose offsets do not fit into 32 bits behind its base offset, as old brokers made them (T110).

Its indexes could not say where its last batches are: it becomes several segments with the same batches.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from protocol.batch import checksum
from protocol.errors import KafkaError
from storage import layout
from storage.batch_table import BASE_OFFSET, CHECKSUM, LAST_OFFSET, POSITION, SIZE_BYTES
from storage.cleaned_segment import CleanedSegment, share_out
from storage.file import Disk
from storage.segment import MAX_RELATIVE_OFFSET, Segment

if TYPE_CHECKING:
    from config.topic import TopicConfig

SPLIT_ROWS = [POSITION, SIZE_BYTES, BASE_OFFSET, LAST_OFFSET]


def overflows(segment: Segment, known_end: int) -> bool:
    """Whether batches with good checksums lie farther from the base offset than an index can say. One alone
    is a flipped bit, unless it lies before an offset that the log is known to have reached.
    """
    count = 0
    with contextlib.suppress(KafkaError):
        for table in segment.tables():
            lasts = table[LAST_OFFSET]
            for column in numpy.flatnonzero(lasts - segment.base_offset > MAX_RELATIVE_OFFSET).tolist():
                size = int(table[SIZE_BYTES, column])
                data = segment.read_at(int(table[POSITION, column]), size)
                if checksum(data, 0, size) != int(table[CHECKSUM, column]):
                    return False
                count += 1
                if count > 1 or lasts[column] < known_end:
                    return True
    return False


def split_segment(disk: Disk, directory: Path, segment: Segment, config: TopicConfig) -> list[Segment]:
    """The same batches in as many segments as their offsets need, swapped in as a cleaning would."""
    # The first one begins as the segment does, even if it stays empty: a start that finds both must know it.
    parts = [CleanedSegment(disk, directory, segment.base_offset, config)]
    for table in segment.tables():
        for position, size, base, last in table[SPLIT_ROWS].T.tolist():
            if last - parts[-1].base_offset > MAX_RELATIVE_OFFSET:
                parts.append(CleanedSegment(disk, directory, base, config))
            parts[-1].append(segment.read_at(position, size))
    with contextlib.suppress(ValueError):  # a damaged one says nothing
        share_out(segment.txn_index.entries(), parts)
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
