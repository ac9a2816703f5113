"""How large records are, by looking at a few batches: for limits in bytes and for packing tasks.

No Kafka API says how many bytes lie between two offsets, so a small fetch asks for the first batches of a
range and reads nothing but their headers. Sizes are those of the log: compressed, with headers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from protocol.batch import HEADER_BYTES, iterate_headers, parse_header
from protocol.errors import KafkaError
from protocol.messages.fetch import FetchResponse
from spark_connector.client import Cluster
from spark_connector.connection import FETCH, Unavailable
from spark_connector.fetch_request import fetch_request
from spark_connector.offsets import TopicPartition

logger = logging.getLogger("kompakt.spark")

PROBE_BYTES = 16 * 1024
KEPT_S = 60.0


class Probe(NamedTuple):
    """What a look at one place has shown. `next_offset`: behind the first batch there; `end`: behind the last
    one that was seen.
    """

    next_offset: int
    bytes_per_offset: float
    end: int = 0


class TopicSizes:
    """What has been seen of topics' record sizes, good for a minute. Owned by: one planning process."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def bytes_per_offset(
        self, cluster: Cluster, places: Mapping[str, tuple[TopicPartition, int]]
    ) -> dict[str, float]:
        """For each topic by a look at its place; a topic that shows nothing is left out."""
        now = time.monotonic()
        stale = dict(
            place
            for topic, place in places.items()
            if topic not in self._seen or now - self._seen[topic][0] > KEPT_S
        )
        for topic_partition, seen in probe(cluster, stale).items():
            self._seen[topic_partition.topic] = now, seen.bytes_per_offset
        return {topic: self._seen[topic][1] for topic in places if topic in self._seen}


def probe(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Probe]:
    """Look at each offset; places where nothing is to be seen, or nobody answers, are left out."""
    found = {}
    for topic_partition, offset in offsets.items():
        try:
            seen = _look(cluster, topic_partition, offset)
        except (Unavailable, KafkaError) as problem:
            logger.info("no look at the sizes of %s: %s", topic_partition, problem)
            cluster.forget_leaders([topic_partition])
            continue
        if seen is not None:
            found[topic_partition] = seen
    return found


def _look(cluster: Cluster, topic_partition: TopicPartition, offset: int) -> Probe | None:
    request = fetch_request(
        topic_partition, offset, PROBE_BYTES, read_committed=cluster.settings.read_committed
    )
    with cluster.connection(cluster.leader_of(topic_partition)) as connection:
        answer = connection.call(request, FETCH, FetchResponse)
    rows = [row for topic in answer.responses for row in topic.partitions]
    if len(rows) != 1 or rows[0].error_code or not rows[0].records:
        return None
    return measure(rows[0].records, offset)


def measure(records: bytes | memoryview, offset: int) -> Probe | None:
    """The sizes of the batches that hold `offset` and what follows; None without a whole header."""
    if len(records) < HEADER_BYTES:
        return None
    first = parse_header(records)
    size, end = first.size_bytes, first.next_offset
    for _, header in iterate_headers(records):
        if header.next_offset > end:
            size += header.size_bytes
            end = header.next_offset
    if end <= offset:
        return None
    # A batch that begins before the offset is read whole, and a hole before the first batch costs nothing.
    begin = min(first.base_offset, offset)
    return Probe(first.next_offset, size / (end - begin), end)
