"""Guards of streams groups: a member needs READ of its group and DESCRIBE of all topics of its topology (its
handler makes them by its rights); who looks at a group needs DESCRIBE of it and of its topics.
"""

from __future__ import annotations

from typing import Any

from broker.api import Answer
from broker.groups.streams.topology import is_well_named, names_of
from broker.security.acls import Operation, Resource
from broker.security.guards.call import Call, guards
from broker.security.guards.groups import describe_unless_secret
from protocol.errors import ErrorCode
from protocol.messages.streams_groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest

SECRET_TOPICS = "The described group uses topics that the client is not authorized to describe."


@guards(StreamsGroupHeartbeatRequest)
def streams_group_heartbeat(call: Call) -> Answer:
    if not call.may(Operation.READ, Resource.GROUP, call.request.group_id):
        return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    topology = call.request.topology
    names = [] if topology is None else names_of(topology)
    # Names that cannot be are the handler's to refuse.
    may_know = all(call.may(Operation.DESCRIBE, Resource.TOPIC, name) for name in names)
    if all(map(is_well_named, names)) and not may_know:
        return call.refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return call.go_on()


@guards(StreamsGroupDescribeRequest)
def describe_streams_groups(call: Call) -> Answer:
    return describe_unless_secret(call, _topics_of, SECRET_TOPICS)


def _topics_of(row: Any) -> list[str]:
    return [] if row.topology is None else names_of(row.topology)
