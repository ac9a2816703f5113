"""ElectLeaders (key 43) v0-v2: there is one node, no leader is ever to be elected (ELECTION_NOT_NEEDED).

Of all partitions at once only those would be listed that had an election, that is none; Kafka names their
topics, each without partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.admin import ElectLeadersRequest, ElectLeadersResponse
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker

PREFERRED, UNCLEAN = 0, 1
"""the kinds of election that there are"""
Elected = ElectLeadersResponse.ReplicaElectionResult


@handles(ElectLeadersRequest)
def elect_leaders(
    broker: Broker, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    response = ElectLeadersResponse()
    unknown = KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    is_known = request.election_type in (PREFERRED, UNCLEAN)
    if not is_known:
        response.error_code = unknown.code
    elif request.topic_partitions is None:
        response.replica_election_results = [
            Elected(topic=topic.name, partition_result=[]) for topic in broker.topics.all()
        ]
    for asked in request.topic_partitions or ():
        results = []
        for index in asked.partitions:
            why = _why_not(broker, asked.topic, index) if is_known else unknown
            results.append(
                Elected.PartitionResult(partition_id=index, error_code=why.code, error_message=why.message)
            )
        response.replica_election_results.append(Elected(topic=asked.topic, partition_result=results))
    return response


def _why_not(broker: Broker, topic: str, index: int) -> KafkaError:
    """Why no leader is elected, in the words of Kafka's `ReplicationControlManager`."""
    if broker.topics.get(topic) is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if TopicPartition(topic, index) not in broker.partitions:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
