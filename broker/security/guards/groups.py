"""Guards of groups: a member needs READ, who looks at one DESCRIBE; offsets need the same of their topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from broker.api import Answer
from broker.handlers.group_offsets import TOPIC_ID_VERSION
from broker.security.acls import Operation, Resource
from broker.security.guards.call import (
    MESSAGES,
    REFUSED,
    Call,
    after,
    as_whole,
    by_row,
    guards,
    names_by_ids,
    rows_by,
    split,
    with_told,
)
from broker.security.guards.cluster import NOT_ASKED
from protocol.errors import ErrorCode
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)

GROUP, TOPIC = Resource.GROUP, Resource.TOPIC
KEY_RESOURCES = {0: Resource.GROUP, 1: Resource.TRANSACTIONAL_ID}
"""of FindCoordinator"""
LISTS_VERSION = 4
"""of FindCoordinator: from here on it asks for several"""
GROUPS_VERSION = 8
"""of OffsetFetch: from here on it asks for several groups"""
CODE_VERSION = 2
"""of OffsetFetch: from here on an answer has an error of its own"""
NO_OFFSET = -1
SECRET_TOPICS = "The group has described topic(s) that the client is not authorized to describe."

MEMBERS: tuple[type[Any], ...] = (HeartbeatRequest, JoinGroupRequest, SyncGroupRequest)
for request in MEMBERS:
    guards(request)(as_whole(Operation.READ, GROUP, "group_id"))
guards(DeleteGroupsRequest)(rows_by(Operation.DELETE, GROUP, "groups_names", "", "results"))


@guards(LeaveGroupRequest)
def leave_group(call: Call) -> Answer:
    """The members are not told of one by one."""
    if call.may(Operation.READ, GROUP, call.request.group_id):
        return call.go_on()
    return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, members=[])


@guards(FindCoordinatorRequest)
def find_coordinator(call: Call) -> Answer:
    resource = KEY_RESOURCES.get(call.request.key_type)
    if resource is None:
        return call.go_on()
    code = REFUSED[resource]
    if call.context.api_version < LISTS_VERSION:
        if call.may(Operation.DESCRIBE, resource, call.request.key):
            return call.go_on()
        return FindCoordinatorResponse(
            error_code=code, error_message=MESSAGES[code], node_id=-1, host="", port=-1
        )
    allowed, refused = split(
        call.request.coordinator_keys, lambda key: call.may(Operation.DESCRIBE, resource, key)
    )
    row = FindCoordinatorResponse.Coordinator
    told = [row(key=key, node_id=-1, port=-1, error_code=code, error_message=None) for key in refused]
    return with_told(call.go_on(coordinator_keys=allowed), "coordinators", told)


@guards(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(call: Call) -> Answer:
    """Of the topics that a regular expression finds the handler takes those that the client may know."""
    if not call.may(Operation.READ, GROUP, call.request.group_id):
        return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = call.request.subscribed_topic_names or ()
    if not all(call.may(Operation.DESCRIBE, TOPIC, name) for name in names):
        return call.refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return call.go_on()


def _described(call: Call, answer: Answer) -> Answer:
    def with_operations(answer: Any) -> Any:
        for row in answer.groups:
            if not row.error_code and row.authorized_operations != NOT_ASKED:
                row.authorized_operations = call.authorizer.operations(call.asker, GROUP, row.group_id)
        return answer

    return after(answer, with_operations)


@guards(DescribeGroupsRequest)
def describe_groups(call: Call) -> Answer:
    return _described(call, by_row(call, "groups", str, Operation.DESCRIBE, GROUP, "groups"))


def describe_known_groups(call: Call) -> Answer:
    """Who may not know a topic that a member reads is not told of the group."""
    return describe_unless_secret(call, _topics_of, SECRET_TOPICS)


def describe_unless_secret(call: Call, topics_of: Callable[[Any], Iterable[str]], message: str) -> Answer:
    """Each group that the client may describe, unless there is one among its topics that it may not."""

    def without_secret_topics(answer: Any) -> Any:
        row_of = type(answer).DescribedGroup
        answer.groups = [
            row
            if all(call.may(Operation.DESCRIBE, TOPIC, name) for name in topics_of(row))
            else row_of(
                group_id=row.group_id,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message=message,
            )
            for row in answer.groups
        ]
        return answer

    answer = by_row(call, "group_ids", str, Operation.DESCRIBE, GROUP, "groups")
    return after(_described(call, answer), without_secret_topics)


guards(ConsumerGroupDescribeRequest)(describe_known_groups)


def _topics_of(row: Any) -> set[str]:
    return {
        place.topic_name
        for member in row.members
        for assignment in (member.assignment, getattr(member, "target_assignment", member.assignment))
        for place in assignment.topic_partitions
    }


@guards(ListGroupsRequest)
def list_groups(call: Call) -> Answer:
    """All, or those that the client may describe."""
    if call.may_cluster(Operation.DESCRIBE):
        return call.go_on()

    def those_that_may_be_known(answer: Any) -> Any:
        answer.groups = [row for row in answer.groups if call.may(Operation.DESCRIBE, GROUP, row.group_id)]
        return answer

    return after(call.go_on(), those_that_may_be_known)


@guards(OffsetCommitRequest)
def offset_commit(call: Call) -> Answer:
    if not call.may(Operation.READ, GROUP, call.request.group_id):
        return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    name = names_by_ids(call, call.request.topics, TOPIC_ID_VERSION)
    return by_row(call, "topics", name, Operation.READ, TOPIC, "topics")


@guards(OffsetDeleteRequest)
def offset_delete(call: Call) -> Answer:
    if not call.may(Operation.DELETE, GROUP, call.request.group_id):
        return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
    allowed, refused = split(call.request.topics, lambda row: call.may(Operation.READ, TOPIC, row.name))
    told = call.refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topics=refused).topics
    return with_told(call.go_on(topics=allowed), "topics", told)


@guards(OffsetFetchRequest)
def offset_fetch(call: Call) -> Answer:
    """Of all offsets of a group those whose topics may be known, of those asked for each or its refusal."""
    if call.context.api_version < GROUPS_VERSION:
        return _offset_fetch_of_one(call)
    row_of = OffsetFetchResponse.OffsetFetchResponseGroup
    rows = [row for group in call.request.groups for row in group.topics or ()]
    name = names_by_ids(call, rows, TOPIC_ID_VERSION)

    def may_know(row: Any) -> bool:
        topic = name(row)
        return topic is None or call.may(Operation.DESCRIBE, TOPIC, topic)

    told: list[Any] = []
    allowed: list[Any] = []
    secret: dict[str, list[Any]] = {}
    for group in call.request.groups:
        if not call.may(Operation.DESCRIBE, GROUP, group.group_id):
            told.append(row_of(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        known, refused = split(group.topics or (), may_know)
        secret[group.group_id] = _secret(refused, row_of.OffsetFetchResponseTopics)
        for row, asked in zip(secret[group.group_id], refused, strict=True):
            row.topic_id = asked.topic_id
        topics = None if group.topics is None else known
        allowed.append(
            type(group)(
                group_id=group.group_id,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
                topics=topics,
            )
        )
    return with_refused_topics(call.go_on(groups=allowed), told, secret, may_know)


def with_refused_topics(
    answer: Answer, told: list[Any], secret: Mapping[str, list[Any]], may_know: Callable[[Any], bool]
) -> Answer:
    """The offsets of groups without topics that may not be known; with the topics that were asked for all the
    same and may not (`secret`, by group), and the groups that may not (`told`).
    """

    def with_refused(answered: Any) -> Any:
        for row in answered.groups:
            row.topics = [one for one in row.topics if may_know(one)]
            if not row.error_code:
                row.topics += secret.get(row.group_id, [])
        answered.groups += told
        return answered

    return after(answer, with_refused)


def _may_know(call: Call, row: Any) -> bool:
    return call.may(Operation.DESCRIBE, TOPIC, row.name)


def _secret(rows: list[Any], topic_of: Any) -> list[Any]:
    partition = next(one for one in vars(topic_of).values() if isinstance(one, type))
    return [
        topic_of(
            name=row.name,
            partitions=[
                partition(
                    partition_index=index,
                    committed_offset=NO_OFFSET,
                    metadata="",
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )
                for index in row.partition_indexes
            ],
        )
        for row in rows
    ]


def _offset_fetch_of_one(call: Call) -> Answer:
    asked = call.request.topics
    if not call.may(Operation.DESCRIBE, GROUP, call.request.group_id):
        topics = asked if call.context.api_version < CODE_VERSION else []
        return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=topics)
    known, refused = split(asked or (), lambda row: _may_know(call, row))
    told = _secret(refused, OffsetFetchResponse.OffsetFetchResponseTopic)

    def with_refused(answer: Any) -> Any:
        answer.topics = [row for row in answer.topics if _may_know(call, row)] + told
        return answer

    return after(call.go_on(topics=None if asked is None else known), with_refused)
