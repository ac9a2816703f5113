"""DescribeQuorum (key 55) v0-v2: who keeps the log of the cluster's metadata, which is this node alone.

That log is `__kompakt_metadata` here; clients ask for Kafka's `__cluster_metadata`, by which name alone it is
told of. v1 tells when a voter has fetched last, v2 where the voters listen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from broker.metadata_log import METADATA_PARTITION
from broker.topic import CLUSTER_METADATA_TOPIC
from protocol.errors import NOT_HOSTED, ErrorCode
from protocol.messages.admin import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from broker.broker import Broker

CONTROLLER = "CONTROLLER"
"""the name that Kafka's own files give to the listener of a quorum"""
Topic = DescribeQuorumResponse.TopicData
Partition = Topic.PartitionData
Node = DescribeQuorumResponse.Node


@handles(DescribeQuorumRequest)
def describe_quorum(
    broker: Broker, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """The one partition of that topic, or a refusal of all that was asked for."""
    asked = [(topic.topic_name, one.partition_index) for topic in request.topics for one in topic.partitions]
    if asked != [(CLUSTER_METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(
            error_message=None,
            topics=[
                Topic(
                    topic_name=topic.topic_name,
                    partitions=[_unknown(one.partition_index) for one in topic.partitions],
                )
                for topic in request.topics
            ],
        )
    listener = context.listener
    host, port = listener.advertised_host, listener.advertised_port
    address = Node.Listener(name=CONTROLLER, host=host, port=port)
    return DescribeQuorumResponse(
        error_message=None,
        topics=[Topic(topic_name=CLUSTER_METADATA_TOPIC, partitions=[_described(broker)])],
        nodes=[Node(node_id=broker.node_id, listeners=[address])],
    )


def _unknown(index: int) -> Partition:
    return Partition(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=NOT_HOSTED,
    )


def _described(broker: Broker) -> Partition:
    log = broker.partitions[METADATA_PARTITION].log
    voter = Partition.ReplicaState(
        replica_id=broker.node_id,
        log_end_offset=log.log_end_offset,
        last_caught_up_timestamp=broker.clock.now_ms(),
    )
    return Partition(
        error_message=None,
        leader_id=broker.node_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=[voter],
    )
