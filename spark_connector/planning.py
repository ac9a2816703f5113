"""What a driver asks the brokers before tasks exist: which partitions there are, where to begin and end."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace

from spark_connector.client import Cluster
from spark_connector.errors import ConnectorError, MissingTopicError
from spark_connector.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition, require_same_partitions
from spark_connector.options import Options, Position, Subscription
from spark_connector.packing import pack_ranges
from spark_connector.probing import TopicSizes

logger = logging.getLogger("kompakt.spark")

NOTHING = Subscription()  # what is left of one when all that it names is gone


def find_partitions(cluster: Cluster, subscription: Subscription) -> list[TopicPartition]:
    """The partitions to read, in order. Internal topics are read only when they are named.

    MissingTopicError when topics or partitions that are named do not exist.
    """
    if subscription.pattern:
        pattern = re.compile(subscription.pattern)
        # As Spark's own source does, which takes any part of a name.
        found = cluster.describe(None, lambda topic: pattern.search(topic) is not None)
    else:
        topics = subscription.topics or {partition.topic for partition in subscription.partitions}
        found = cluster.describe(topics)
    existing = [TopicPartition(topic, number) for topic in sorted(found) for number in found[topic]]
    if not subscription.partitions:
        return existing
    missing = sorted(set(subscription.partitions) - set(existing))
    if missing:
        raise MissingTopicError(f"assign names partitions that do not exist: {', '.join(map(str, missing))}")
    return list(subscription.partitions)


def find_existing(
    cluster: Cluster, subscription: Subscription, absent: set[TopicPartition]
) -> list[TopicPartition]:
    """As `find_partitions`, without what does not exist.

    `absent` is what did not when it was looked for last (of a topic its partition 0), and is brought up to
    date: whatever stays away is told of once, and asked for once, not for as long as a new topic may take.
    """
    absent -= {place for place in absent if not cluster.is_missing(place)}
    left = _without(subscription, absent)
    try:
        return find_partitions(cluster, left) if left != NOTHING else []
    except MissingTopicError as problem:
        logger.warning("%s; going on with what there is", problem)
    wanted = set(subscription.partitions) or {TopicPartition(topic, 0) for topic in subscription.topics}
    topics = {place.topic for place in wanted}
    found = cluster.describe(None, lambda topic: topic in topics)
    existing = [TopicPartition(topic, number) for topic in sorted(found) for number in found[topic]]
    absent |= wanted - set(existing)
    if not subscription.partitions:
        return existing
    return [place for place in subscription.partitions if place in existing]


def _without(subscription: Subscription, absent: set[TopicPartition]) -> Subscription:
    topics = {place.topic for place in absent}
    return replace(
        subscription,
        topics=tuple(topic for topic in subscription.topics if topic not in topics),
        partitions=tuple(place for place in subscription.partitions if place not in absent),
    )


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


def resolve_ranges(cluster: Cluster, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """`ranges` with EARLIEST and LATEST looked up, as things are now."""
    starts = resolve(cluster, {wanted.topic_partition: wanted.start for wanted in ranges if wanted.start < 0})
    ends = resolve(cluster, {wanted.topic_partition: wanted.end for wanted in ranges if wanted.end < 0})
    return [
        replace(
            wanted,
            start=wanted.start if wanted.start >= 0 else starts[wanted.topic_partition],
            end=wanted.end if wanted.end >= 0 else ends[wanted.topic_partition],
        )
        for wanted in ranges
    ]


def pack(
    cluster: Cluster, options: Options, ranges: Sequence[OffsetRange], known: TopicSizes
) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task: small ones together. What a task looks up itself is only estimated here.

    Partitions that `minPartitions` had cut are not put together again.
    """
    limit = min(options.pack_offsets, options.max_records_per_partition or options.pack_offsets)
    at_least = options.min_partitions or 1
    if not limit or len({wanted.topic_partition for wanted in ranges}) <= at_least:
        return [(wanted,) for wanted in ranges]
    now = resolve_ranges(cluster, ranges)
    looks: dict[str, tuple[TopicPartition, int]] = {}
    for found in sorted(now, key=lambda found: found.size):
        if 0 < found.size <= limit:
            looks[found.topic_partition.topic] = found.topic_partition, found.start
    sizes = {wanted: found.size for wanted, found in zip(ranges, now, strict=True)}
    return pack_ranges(ranges, sizes, limit, at_least, known.bytes_per_offset(cluster, looks))
