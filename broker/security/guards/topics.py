"""Guards of what is asked about topics, and of making, growing and deleting them.

Who may not describe a topic does not learn whether there is one: it is not among all topics, and asked for by
its name, it is refused like one that does not exist.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from broker.api import Answer
from broker.security.acls import Operation, Resource
from broker.security.guards.call import Call, after, guards, rows_by, split, with_told
from broker.security.guards.cluster import NOT_ASKED, cluster_operations
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

NO_ID = UUID(int=0)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
IDS_VERSION = 6
"""of DeleteTopics: from here on topics are asked for by name or id"""

guards(CreatePartitionsRequest)(rows_by(Operation.ALTER, Resource.TOPIC, "topics", "name", "results"))


def _may(call: Call, operation: Operation, name: str) -> bool:
    return call.may(operation, Resource.TOPIC, name)


def _name_of(call: Call, row: Any) -> str | None:
    """The name of a topic that is asked for by name or id; None where there is none of that id."""
    if row.topic_id == NO_ID:
        name: str | None = row.name
        return name
    topic = call.broker.topics.by_id(row.topic_id)
    return None if topic is None else topic.name


@guards(MetadataRequest)
def metadata(call: Call) -> Answer:
    asked = call.request.topics
    is_all = asked is None or (call.context.api_version == 0 and not asked)
    if is_all:
        return after(call.go_on(), lambda answer: _with_what_may_be_known(call, answer, []))
    allowed, refused = split(asked, lambda row: _may_have_metadata(call, row))
    rows = [
        MetadataResponse.MetadataResponseTopic(
            error_code=REFUSED, name=row.name if row.topic_id == NO_ID else None, topic_id=row.topic_id
        )
        for row in refused
    ]
    return after(call.go_on(topics=allowed), lambda answer: _with_what_may_be_known(call, answer, rows))


def _may_have_metadata(call: Call, row: Any) -> bool:
    """One that there is, or that may be made by asking for it."""
    name = _name_of(call, row)
    if name is None:
        return True  # which is said to be unknown
    if not _may(call, Operation.DESCRIBE, name):
        return False
    makes = call.request.allow_auto_topic_creation and call.broker.config.auto_create_topics_enable
    if not makes or call.broker.topics.get(name) is not None:
        return True
    return call.may_cluster(Operation.CREATE) or _may(call, Operation.CREATE, name)


def _with_what_may_be_known(call: Call, answer: Any, refused: list[Any]) -> Any:
    answer.topics = [
        row for row in answer.topics if row.name is None or _may(call, Operation.DESCRIBE, row.name)
    ]
    if answer.cluster_authorized_operations != NOT_ASKED:
        answer.cluster_authorized_operations = cluster_operations(call)
    for row in answer.topics if call.request.include_topic_authorized_operations else ():
        if row.name is not None:
            row.topic_authorized_operations = _operations(call, row.name)
    answer.topics += refused
    return answer


def _operations(call: Call, name: str) -> int:
    return call.authorizer.operations(call.asker, Resource.TOPIC, name)


@guards(DescribeTopicPartitionsRequest)
def describe_topic_partitions(call: Call) -> Answer:
    topic = DescribeTopicPartitionsRequest.TopicRequest
    asked, cursor = call.request.topics, call.request.cursor
    refused: list[Any] = []
    if asked:
        asked, refused = split(asked, lambda row: _may(call, Operation.DESCRIBE, row.name))
    else:
        names = [one.name for one in call.broker.topics.all() if _may(call, Operation.DESCRIBE, one.name)]
        if cursor is not None:
            names = [name for name in names if name >= cursor.topic_name]
            cursor = cursor if cursor.topic_name in names else None
        asked = [topic(name=name) for name in names]
    row = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    told = [row(error_code=REFUSED, name=one.name) for one in refused]
    if not asked:
        return DescribeTopicPartitionsResponse(topics=told)

    def with_refused(answer: Any) -> Any:
        for one in answer.topics:
            one.topic_authorized_operations = _operations(call, one.name)
        answer.topics += told
        return answer

    return after(call.go_on(topics=asked, cursor=cursor), with_refused)


@guards(CreateTopicsRequest)
def create_topics(call: Call) -> Answer:
    may_all = call.may_cluster(Operation.CREATE)
    allowed, refused = split(
        call.request.topics, lambda row: may_all or _may(call, Operation.CREATE, row.name)
    )
    result = CreateTopicsResponse.CreatableTopicResult
    told = [
        result(name=name, error_code=REFUSED, error_message="Authorization failed.")
        for name in dict.fromkeys(row.name for row in refused)
    ]

    def with_refused(answer: Any) -> Any:
        for row in answer.topics:
            if not row.error_code and not _may(call, Operation.DESCRIBE_CONFIGS, row.name):
                row.topic_config_error_code = REFUSED
                row.num_partitions = row.replication_factor = -1
                row.configs = None
        answer.topics += told
        return answer

    return after(call.go_on(topics=allowed), with_refused)


@guards(DeleteTopicsRequest)
def delete_topics(call: Call) -> Answer:
    """Who may not describe a topic that it knows the id of is not told its name. As in Kafka, DELETE of the
    cluster is that of all topics.
    """
    if call.may_cluster(Operation.DELETE):
        return call.go_on()
    is_by_id = call.context.api_version >= IDS_VERSION
    deleted = DeleteTopicsResponse.DeletableTopicResult
    asked = call.request.topics if is_by_id else call.request.topic_names
    told: list[Any] = []
    allowed = []
    for row in asked:
        name = _name_of(call, row) if is_by_id else row
        is_known = name is None or _may(call, Operation.DESCRIBE, name)
        topic = None if name is None or not is_known else call.broker.topics.get(name)
        is_missing = is_known and topic is None  # which is said
        if name is None or is_missing or (is_known and _may(call, Operation.DELETE, name)):
            allowed.append(row)
            continue
        topic_id = row.topic_id if is_by_id else NO_ID
        told.append(
            deleted(
                name=name if is_known or topic_id == NO_ID else None,
                topic_id=topic_id if topic is None else topic.topic_id,
                error_code=REFUSED,
                error_message="Topic authorization failed.",
            )
        )
    field = "topics" if is_by_id else "topic_names"
    return with_told(call.go_on(**{field: allowed}), "responses", told)
