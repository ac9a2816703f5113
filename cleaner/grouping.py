"""Which neighbouring segments are rewritten as one, so that cleaning does not leave ever smaller files.

Mirrors `Cleaner.groupSegmentsBySize`. Pure: sizes and offsets in, slices out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.segment import MAX_RELATIVE_OFFSET

MOST_SEGMENTS = 32
"""of a group: the log's owner renames the files of all at once, 0.1 ms each, and serves nobody meanwhile; the
next cleaning joins what became of them (Kafka has no such limit)
"""


class SegmentSize(NamedTuple):
    """What grouping asks about a segment."""

    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Sequence[SegmentSize],
    *,
    max_log_bytes: int,
    max_index_bytes: int,
    first_uncleanable_offset: int,
) -> list[range]:
    """Index ranges of segments that become one each, covering all of them in order (T105).

    A group stays within the sizes of one segment and within `MOST_SEGMENTS`, and its offsets within 31 bits
    of the first (T106, T107). The last offset of a segment is judged by where the next one begins, since its
    index may be empty or missing (T109). An empty segment joins whatever its offsets are, or an empty file
    would be left every 2**31 offsets (T108).
    """
    groups: list[range] = []
    start = 0
    while start < len(segments):
        end = start + 1
        log_bytes, index_bytes, time_index_bytes = segments[start][1:]
        while end < min(len(segments), start + MOST_SEGMENTS):
            following = segments[end]
            log_bytes += following.log_bytes
            index_bytes += following.index_bytes
            time_index_bytes += following.time_index_bytes
            if log_bytes > max_log_bytes or max(index_bytes, time_index_bytes) > max_index_bytes:
                break
            is_last = end + 1 == len(segments)
            last_offset = (first_uncleanable_offset if is_last else segments[end + 1].base_offset) - 1
            if following.log_bytes and last_offset - segments[start].base_offset > MAX_RELATIVE_OFFSET:
                break
            end += 1
        groups.append(range(start, end))
        start = end
    return groups
