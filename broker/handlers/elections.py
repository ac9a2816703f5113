"""ElectLeaders (key 43) v0-v2: there is one node, no leader is ever to be elected (ELECTION_NOT_NEEDED)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from protocol.errors import ErrorCode
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
    """All partitions asked for at once: only those that had an election would be listed, that is none."""
    response = ElectLeadersResponse()
    unknown = f"Unknown election type {request.election_type}"
    is_known = request.election_type in (PREFERRED, UNCLEAN)
    if not is_known:
        response.error_code = ErrorCode.INVALID_REQUEST
    for topic in request.topic_partitions or ():
        results = []
        for index in topic.partitions:
            if not is_known:
                code, message = ErrorCode.INVALID_REQUEST, unknown
            elif TopicPartition(topic.topic, index) in broker.partitions:
                code, message = (
                    ErrorCode.ELECTION_NOT_NEEDED,
                    "Leader election not needed for topic partition.",
                )
            else:
                code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic partition."
            results.append(
                Elected.PartitionResult(partition_id=index, error_code=code, error_message=message)
            )
        response.replica_election_results.append(Elected(topic=topic.topic, partition_result=results))
    return response
