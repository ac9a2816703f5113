"""Directories of topics that nobody knows: those of a Kafka data directory become topics, others stay.

A directory whose name ends in a number is soon made, of a copy (`orders-0-20261123`) or of something else. As
a topic it would have all the partitions before that number as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from storage import layout
from storage.checkpoint import read_topic_id
from storage.file import SYSTEM_DISK

if TYPE_CHECKING:
    from broker.topics import TopicRegistry
    from storage.layout import TopicPartition


def why_not_adopted(
    topics: TopicRegistry, most_partitions: int, topic_partition: TopicPartition, directory: Path
) -> str | None:
    """Why a directory is no partition, for all its name; None when it is one. OSError."""
    if topics.knows(topic_partition.topic):
        return None
    names = [path.name for path in directory.iterdir()]
    if layout.PARTITION_METADATA not in names and not any(map(layout.parse_segment_file, names)):
        return "no file of a log is in it"
    if topic_partition.partition >= most_partitions:
        return f"its number is not below max.partitions.per.topic ({most_partitions})"
    topic_id = read_topic_id(SYSTEM_DISK, directory)
    other = None if topic_id is None else topics.by_id(topic_id)
    if other is not None:
        return f"{layout.PARTITION_METADATA} says that it is a copy of one of {other.name}"
    return None
