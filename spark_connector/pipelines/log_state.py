"""What a refresh asks the brokers: where a topic's logs begin and end, its id, how long tombstones stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from spark_connector.client import Cluster, connect, refusal
from spark_connector.connection import DESCRIBE_CONFIGS
from spark_connector.offsets import TopicPartition, from_json_object, to_json_object
from spark_connector.options import parse_options

DELETE_RETENTION = "delete.retention.ms"
TOPIC_RESOURCE = 2


@dataclass(frozen=True)
class LogState:
    """One topic at one moment; offsets by partition, the ends exclusive."""

    topic_id: str
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    delete_retention_ms: int


def look_up(source: Mapping[str, str], topic: str) -> LogState:
    """Ask the cluster of the options `source` about `topic`; ConnectorError when it cannot be had."""
    cluster = connect(parse_options({**source, "subscribe": topic}).client)
    numbers = cluster.describe([topic])[topic]
    partitions = [TopicPartition(topic, number) for number in numbers]
    return LogState(
        str(cluster.topic_id(topic)),
        cluster.earliest_offsets(partitions),
        cluster.latest_offsets(partitions),
        _delete_retention_ms(cluster, topic),
    )


def offsets_text(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as the option `startingOffsets` and a manifest have them."""
    return to_json_object(offsets)


def offsets_of(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The offsets that a manifest has."""
    return from_json_object(found, "the manifest's offsets")


def _delete_retention_ms(cluster: Cluster, topic: str) -> int:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[DELETE_RETENTION]
    )
    request = DescribeConfigsRequest(resources=[asked])

    def ask() -> int:
        with cluster.any_connection() as connection:
            answer = connection.call(request, DESCRIBE_CONFIGS, DescribeConfigsResponse)
        (found,) = answer.results
        if found.error_code:
            raise refusal(found.error_code, f"{DELETE_RETENTION} of {topic}")
        (entry,) = found.configs
        return int(entry.value or 0)

    return cluster.retrying(f"looking up {DELETE_RETENTION} of {topic}", ask)
