"""What a refresh asks the brokers: where a topic's logs begin and end, its id, how it is compacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from spark_connector.client import Cluster, connect, refusal
from spark_connector.connection import DESCRIBE_CONFIGS
from spark_connector.offsets import TopicPartition, from_json_object, to_json_object
from spark_connector.options import parse_options

DELETE_RETENTION = "delete.retention.ms"
POLICY, COMPACT = "cleanup.policy", "compact"
STRATEGY = "compaction.strategy"
STRATEGY_HEADER = "compaction.strategy.header"
OFFSET, HEADER = "offset", "header"
TOPIC_RESOURCE = 2


@dataclass(frozen=True)
class LogState:
    """One topic at one moment; offsets by partition, the ends exclusive.

    `strategy` says which record of a key compaction keeps, `version_header` where its version is for HEADER.
    """

    topic_id: str
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    delete_retention_ms: int
    strategy: str = OFFSET
    version_header: str = ""
    is_compacted: bool = True
    read_committed: bool = True
    """whether `ends`, and what is read up to them, leave out what transactions have not committed"""


def look_up(source: Mapping[str, str], topic: str) -> LogState:
    """Ask the cluster of the options `source` about `topic`; ConnectorError when it cannot be had."""
    client = parse_options({**source, "subscribe": topic}).client
    cluster = connect(client)
    numbers = cluster.describe([topic])[topic]
    partitions = [TopicPartition(topic, number) for number in numbers]
    starts, ends = cluster.earliest_offsets(partitions), cluster.latest_offsets(partitions)
    settings = _settings(cluster, topic)
    header = settings.get(STRATEGY_HEADER, "")
    strategy = settings.get(STRATEGY, OFFSET)  # Apache Kafka has no other
    if strategy == HEADER and not header:
        strategy = OFFSET  # such a log is not cleaned
    retention_ms = int(settings.get(DELETE_RETENTION) or 0)
    is_compacted = COMPACT in settings.get(POLICY, COMPACT)
    topic_id = str(cluster.topic_id(topic))
    return LogState(
        topic_id, starts, ends, retention_ms, strategy, header, is_compacted, client.read_committed
    )


def offsets_text(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as the option `startingOffsets` and a manifest have them."""
    return to_json_object(offsets)


def offsets_of(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The offsets that a manifest has."""
    return from_json_object(found, "the manifest's offsets")


def _settings(cluster: Cluster, topic: str) -> dict[str, str]:
    """What compaction of `topic` goes by; a broker leaves out what it does not know."""
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=topic,
        configuration_keys=[DELETE_RETENTION, POLICY, STRATEGY, STRATEGY_HEADER],
    )
    request = DescribeConfigsRequest(resources=[asked])

    def ask() -> dict[str, str]:
        with cluster.any_connection() as connection:
            answer = connection.call(request, DESCRIBE_CONFIGS, DescribeConfigsResponse)
        (found,) = answer.results
        if found.error_code:
            raise refusal(found.error_code, f"the settings of {topic}")
        return {entry.name: entry.value or "" for entry in found.configs}

    return cluster.retrying(f"looking up the settings of {topic}", ask)
