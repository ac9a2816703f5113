"""Which of the oldest segments may go. Pure: sizes, times and offsets in, a count of segments out.

Kafka's `UnifiedLog.deleteOldSegments`. Only whole segments go, the oldest first, up to the first that
stays; never one that reaches to or above the high watermark, so that what is not yet safe is not yet old
either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from config.topic import TopicConfig

MOST_AT_ONCE = 32
"""segments: the log's owner renames the files of all, 0.1 ms each, and serves nobody meanwhile"""


class Aged(Protocol):
    """What retention looks at in a segment; the timestamp only when retention by time needs it."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def largest_timestamp(self) -> int: ...


class SegmentFacts(NamedTuple):
    """A segment, and where the next one begins (or would)."""

    segment: Aged
    next_base_offset: int


def facts_of(segments: Sequence[Aged], log_end_offset: int) -> list[SegmentFacts]:
    """All segments of a log, ascending."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    return [SegmentFacts(segment, end) for segment, end in zip(segments, ends, strict=True)]


class RetentionRules(NamedTuple):
    """The settings of a topic that retention looks at."""

    is_deleted: bool
    retention_ms: int
    retention_bytes: int

    @classmethod
    def of(cls, config: TopicConfig) -> RetentionRules:
        return cls(config.is_deleted, config.retention_ms, config.retention_bytes)


def expired_segments(
    segments: Sequence[SegmentFacts],
    rules: RetentionRules,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many segments from the front may be deleted by time, by size, or because the log starts behind
    them; so many at most as may be at once, then there may be more.

    The last one counts too (then a new empty one has to be made first), unless it is empty.
    """
    allowed = _deletable(segments, high_watermark)
    count = 0
    if rules.is_deleted and rules.retention_ms >= 0:
        count = _by_time(segments[:allowed], now_ms - rules.retention_ms)
    if rules.is_deleted and rules.retention_bytes >= 0:
        count += _by_size(segments, count, allowed, rules.retention_bytes)
    while count < min(allowed, len(segments) - 1) and segments[count].next_base_offset <= log_start_offset:
        count += 1
    return min(count, MOST_AT_ONCE)


def _deletable(segments: Sequence[SegmentFacts], high_watermark: int) -> int:
    """How many from the front lie wholly below the high watermark and are not the empty last one."""
    count = 0
    for segment in segments:
        if segment.next_base_offset > high_watermark:
            break
        count += 1
    if count == len(segments) and segments and not segments[-1].segment.size_bytes:
        count -= 1
    return count


def _by_time(segments: Sequence[SegmentFacts], before_ms: int) -> int:
    count = 0
    for facts in segments:
        if facts.segment.largest_timestamp >= before_ms:
            break
        count += 1
    return count


def _by_size(segments: Sequence[SegmentFacts], start: int, allowed: int, retention_bytes: int) -> int:
    surplus = sum(facts.segment.size_bytes for facts in segments[start:]) - retention_bytes
    count = 0
    for facts in segments[start:allowed]:
        surplus -= facts.segment.size_bytes
        if surplus < 0:
            break
        count += 1
    return count
