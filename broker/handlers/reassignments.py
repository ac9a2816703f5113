"""AlterPartitionReassignments (key 45) v0-v1, ListPartitionReassignments (46) v0.

There is one node: a partition may be told to stay where it is, and none is ever on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from broker.placement import check_placement
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker

Wanted = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
TopicAnswer = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionAnswer = TopicAnswer.ReassignablePartitionResponse


@handles(AlterPartitionReassignmentsRequest)
def alter_partition_reassignments(
    broker: Broker, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        answered = TopicAnswer(name=topic.name)
        response.responses.append(answered)
        for wanted in topic.partitions:
            answer = PartitionAnswer(partition_index=wanted.partition_index, error_message=None)
            try:
                _judge(broker, topic.name, wanted)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            answered.partitions.append(answer)
    return response


def _judge(broker: Broker, topic: str, wanted: Wanted) -> None:
    """KafkaError unless the partition is to be where it is."""
    if broker.topics.get(topic) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if TopicPartition(topic, wanted.partition_index) not in broker.partitions:
        words = f"Unable to find partition {topic}:{wanted.partition_index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, words)
    if wanted.replicas is None:
        words = "No partition reassignment is in progress."
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, words)
    check_placement(wanted.replicas, broker.node_id)


@handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(
    broker: Broker, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
