"""How far a micro-batch of so many bytes reaches, in offsets. Pure; the sizes come from `probing.py`."""

from __future__ import annotations

from collections.abc import Mapping

from spark_connector.offsets import Offsets, TopicPartition, backlogs
from spark_connector.probing import Probe

LOOKS = 32


def places_to_look(start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """Where to look at sizes: at the beginnings of the largest backlogs."""
    backlog = backlogs(start, end)
    largest = sorted(backlog, key=lambda tp: (-backlog[tp], tp))[:LOOKS]
    return {tp: start[tp] for tp in largest}


def limit_bytes(
    start: Offsets, end: Offsets, limit: int, probes: Mapping[TopicPartition, Probe]
) -> dict[TopicPartition, int]:
    """Ends about `limit` bytes behind `start` in all, shared in proportion to each partition's backlog.

    The first batch of a partition is never cut: it would be fetched, whole, once more. A partition that
    could not be looked at takes the average of its topic, or of all; without any, nothing is limited.
    """
    if not probes:
        return dict(end)
    backlog = backlogs(start, end)
    sizes = {tp: _bytes_per_offset(tp, probes) for tp in backlog}
    total = sum(size * sizes[tp] for tp, size in backlog.items())
    limited = dict(end)
    for topic_partition, size in backlog.items():
        granted = max(int(limit * size / total), 1) if total > limit else size
        reached = start[topic_partition] + granted
        if topic_partition in probes:
            reached = max(reached, probes[topic_partition].next_offset)
        limited[topic_partition] = min(reached, end[topic_partition])
    return limited


def _bytes_per_offset(topic_partition: TopicPartition, probes: Mapping[TopicPartition, Probe]) -> float:
    if topic_partition in probes:
        return probes[topic_partition].bytes_per_offset
    same = [seen.bytes_per_offset for tp, seen in probes.items() if tp.topic == topic_partition.topic]
    known = same or [seen.bytes_per_offset for seen in probes.values()]
    return sum(known) / len(known)
