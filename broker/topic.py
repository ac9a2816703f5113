"""What one topic is, and which are the broker's own; the registry (`topics.py`) has them all."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from config.topic import TopicConfig
from storage.layout import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
METADATA_TOPIC = "__kompakt_metadata"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""Kafka's quorum log, whose directory no start opens as a topic's: there can be no topic of this name"""
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, METADATA_TOPIC, SHARE_STATE_TOPIC))
"""written by the broker only"""
METADATA_OVERRIDES = {
    "cleanup.policy": "compact",
    "flush.messages": "1",
    "max.message.bytes": str(16 << 20),
    "segment.bytes": str(16 << 20),
}
KEEP_EVERYTHING = {"retention.bytes": "-1", "retention.ms": "-1"}
COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it is now; a change replaces it. Owned by: any thread (immutable)."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    overrides: Mapping[str, str]
    config: TopicConfig
    is_internal: bool

    def partitions(self) -> Iterable[TopicPartition]:
        return (TopicPartition(self.name, index) for index in range(self.partition_count))

    def stored(self) -> dict[str, Any]:
        """What its record in `__kompakt_metadata` says."""
        configs = dict(self.overrides)
        return {"id": str(self.topic_id), "partitions": self.partition_count, "configs": configs}


def adopted_overrides(name: str, known: Mapping[str, str] | None) -> dict[str, str]:
    """What holds for a topic that is found as a directory, of whose settings these are `known`, if any are:
    by those that it lacks nothing of it is deleted.
    """
    is_compacted = name in INTERNAL_TOPICS and name != SHARE_STATE_TOPIC
    return {**(COMPACTED if is_compacted else KEEP_EVERYTHING), **(known or {})}
