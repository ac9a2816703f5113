"""The Fetch request of this client: one partition at a time, no sessions."""

from __future__ import annotations

from protocol.messages.fetch import FetchRequest
from spark_connector.offsets import TopicPartition


def fetch_request(
    topic_partition: TopicPartition, offset: int, max_bytes: int, *, read_committed: bool, wait_ms: int = 0
) -> FetchRequest:
    """Ask for what lies at `offset`; with `wait_ms` the broker may wait so long for records to arrive."""
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=topic_partition.partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic_partition.topic, partitions=[partition])],
    )
