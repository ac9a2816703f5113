"""Guards of share groups: a member needs READ of its group and of the topics, which its handlers look at; who
looks at a group DESCRIBE.
"""

from __future__ import annotations

from typing import Any

from broker.api import Answer
from broker.security.acls import Operation, Resource
from broker.security.guards.call import MESSAGES, Call, after, guards, split
from broker.security.guards.groups import describe_known_groups, with_refused_topics
from protocol.errors import ErrorCode
from protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

GROUP, TOPIC = Resource.GROUP, Resource.TOPIC

guards(ShareGroupDescribeRequest)(describe_known_groups)


@guards(ShareFetchRequest)
def share_fetch(call: Call) -> Answer:
    return _as_member(call)


@guards(ShareAcknowledgeRequest)
def share_acknowledge(call: Call) -> Answer:
    return _as_member(call)


def _as_member(call: Call) -> Answer:
    """A request without a group is refused by its handler; the partitions are not told of one by one."""
    group_id = call.request.group_id
    if group_id is None or call.may(Operation.READ, GROUP, group_id):
        return call.go_on()
    return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])


@guards(ShareGroupHeartbeatRequest)
def share_group_heartbeat(call: Call) -> Answer:
    if not call.may(Operation.READ, GROUP, call.request.group_id):
        return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = call.request.subscribed_topic_names or ()
    if not all(call.may(Operation.DESCRIBE, TOPIC, name) for name in names):
        return call.refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return call.go_on()


@guards(DescribeShareGroupOffsetsRequest)
def describe_share_group_offsets(call: Call) -> Answer:
    """Of all offsets of a group those whose topics may be known, of those asked for each or its refusal."""
    row_of = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    told: list[Any] = []
    allowed: list[Any] = []
    secret: dict[str, list[Any]] = {}
    for group in call.request.groups:
        if not call.may(Operation.DESCRIBE, GROUP, group.group_id):
            told.append(row_of(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        known, refused = split(group.topics or (), lambda row: _may_know(call, row))
        secret[group.group_id] = [_secret(row, row_of) for row in refused]
        topics = None if group.topics is None else known
        allowed.append(type(group)(group_id=group.group_id, topics=topics))
    return with_refused_topics(call.go_on(groups=allowed), told, secret, lambda row: _may_know(call, row))


def _may_know(call: Call, row: Any) -> bool:
    return call.may(Operation.DESCRIBE, TOPIC, row.topic_name)


def _secret(asked: Any, row_of: Any) -> Any:
    topic = row_of.DescribeShareGroupOffsetsResponseTopic
    partition = topic.DescribeShareGroupOffsetsResponsePartition
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return topic(
        topic_name=asked.topic_name,
        partitions=[
            partition(partition_index=index, error_code=code, error_message=MESSAGES[code])
            for index in asked.partitions
        ],
    )


@guards(AlterShareGroupOffsetsRequest)
def alter_share_group_offsets(call: Call) -> Answer:
    return _of_topics(call, Operation.READ)


@guards(DeleteShareGroupOffsetsRequest)
def delete_share_group_offsets(call: Call) -> Answer:
    return _of_topics(call, Operation.DELETE)


def _of_topics(call: Call, operation: Operation) -> Answer:
    """Who may do that to the group, and of the topics those that it may read."""
    if not call.may(operation, GROUP, call.request.group_id):
        return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
    allowed, refused = split(call.request.topics, lambda row: call.may(Operation.READ, TOPIC, row.topic_name))
    if not refused:
        return call.go_on()
    told = call.refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topics=refused).responses

    def with_refused(answer: Any) -> Any:
        if not answer.error_code:
            answer.responses += told
        return answer

    return after(call.go_on(topics=allowed), with_refused)
