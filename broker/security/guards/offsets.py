"""Guards of what is asked about the places in topics, and of the deletion of what is before one."""

from __future__ import annotations

from broker.api import Answer
from broker.security.acls import Operation, Resource
from broker.security.guards.call import Call, guards, rows_by
from protocol.messages.offsets import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from protocol.messages.transactions import DescribeProducersRequest

TOPICS = "topics"
EPOCHS = rows_by(Operation.DESCRIBE, Resource.TOPIC, TOPICS, "topic", TOPICS, ("leader_epoch", "end_offset"))

guards(ListOffsetsRequest)(
    rows_by(Operation.DESCRIBE, Resource.TOPIC, TOPICS, "name", TOPICS, ("timestamp", "offset"))
)
guards(DeleteRecordsRequest)(
    rows_by(Operation.DELETE, Resource.TOPIC, TOPICS, "name", TOPICS, ("low_watermark",))
)
guards(DescribeProducersRequest)(rows_by(Operation.READ, Resource.TOPIC, TOPICS, "name", TOPICS))


@guards(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(call: Call) -> Answer:
    """Also for who would be another broker."""
    return call.go_on() if call.may_cluster(Operation.CLUSTER_ACTION) else EPOCHS(call)
