"""When a segment is full and the next one begins (the settings half of Kafka's `LogSegment.shouldRoll`)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES

if TYPE_CHECKING:
    from config.topic import TopicConfig


class RollLimits:
    """When a segment is full, worked out once from the topic's settings."""

    __slots__ = ("index_entries", "jitter_ms", "segment_bytes", "segment_ms")

    def __init__(self, config: TopicConfig) -> None:
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.max_segment_ms
        # A jitter as large as the age itself would roll a segment for every batch.
        self.jitter_ms = max(0, min(config.segment_jitter_ms, self.segment_ms - 1))
        self.index_entries = max(1, config.segment_index_bytes // max(OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES))

    def draw_jitter_ms(self, source: random.Random) -> int:
        """By how much earlier one segment is closed, so that not all topics do it at once."""
        return source.randint(0, self.jitter_ms) if self.jitter_ms else 0
