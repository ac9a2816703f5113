"""What a driver asks the brokers before tasks exist: which partitions there are, where to begin and end."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from spark_connector.client import Cluster
from spark_connector.errors import ConnectorError, MissingTopicError
from spark_connector.offsets import EARLIEST, LATEST, TopicPartition, require_same_partitions
from spark_connector.options import Position, Subscription

logger = logging.getLogger("kompakt.spark")


def find_partitions(
    cluster: Cluster, subscription: Subscription, *, may_be_missing: bool = False
) -> list[TopicPartition]:
    """The partitions to read, in order. Internal topics are read only when they are named.

    Topics and partitions that are named must exist, unless they `may_be_missing`.
    """
    if may_be_missing:
        try:
            return find_partitions(cluster, subscription)
        except MissingTopicError as problem:
            logger.warning("%s; going on with what there is", problem)
        wanted = subscription.topics or {partition.topic for partition in subscription.partitions}
        found = {topic: numbers for topic, numbers in cluster.describe(None).items() if topic in wanted}
    elif subscription.pattern:
        pattern = re.compile(subscription.pattern)
        found = {
            topic: partitions
            for topic, partitions in cluster.describe(None).items()
            if pattern.fullmatch(topic)
        }
    else:
        topics = subscription.topics or {partition.topic for partition in subscription.partitions}
        found = cluster.describe(topics)
    existing = [TopicPartition(topic, number) for topic in sorted(found) for number in found[topic]]
    if not subscription.partitions:
        return existing
    missing = sorted(set(subscription.partitions) - set(existing))
    if missing and may_be_missing:
        return [partition for partition in subscription.partitions if partition not in missing]
    if missing:
        raise MissingTopicError(f"assign names partitions that do not exist: {', '.join(map(str, missing))}")
    return list(subscription.partitions)


def locate(
    cluster: Cluster, position: Position, partitions: Sequence[TopicPartition], *, latest_if_none: bool
) -> dict[TopicPartition, int]:
    """The offset of each partition at `position`; EARLIEST and LATEST stay as they are.

    Times are looked up. Where no record is that young: LATEST, or an error unless `latest_if_none`.
    """
    if position.offsets:
        offsets = dict(position.offsets)
        require_same_partitions(offsets, partitions, position.option)
        return offsets
    if position.timestamp_ms is not None:
        times = dict.fromkeys(partitions, position.timestamp_ms)
    elif position.timestamps:
        times = dict(position.timestamps)
        require_same_partitions(times, partitions, position.option)
    else:
        return dict.fromkeys(partitions, position.offset)
    found = cluster.list_offsets(times)
    for topic_partition, offset in found.items():
        if offset < 0 and not latest_if_none:
            raise ConnectorError(
                f"{position.option}: {topic_partition} has no record at or after {times[topic_partition]}; "
                f"startingOffsetsByTimestampStrategy=latest would start at its end"
            )
    return {topic_partition: offset if offset >= 0 else LATEST for topic_partition, offset in found.items()}


def resolve(cluster: Cluster, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """`offsets` with EARLIEST and LATEST looked up."""
    words = {partition: offset for partition, offset in offsets.items() if offset in (EARLIEST, LATEST)}
    return {**offsets, **cluster.list_offsets(words)} if words else dict(offsets)
