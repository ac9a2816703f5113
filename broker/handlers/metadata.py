"""Metadata (key 3) v0-v13, DescribeCluster (60) v0-v2, DescribeTopicPartitions (75) v0.

One node is broker, leader of everything and controller (G34). Clients are told the address of the listener
they came in on (G33). Metadata: a null list means all topics, an empty one none (in v0 an empty one means
all, G31); a topic that does not exist is made where client (v4+) and broker allow it, and is answered as
usable at once (G19); v10 adds topic ids, v12 asks by id (G6). Leader epoch is 0 always (G10). The answer of
a partition whose log is offline still names its leader, who answers KAFKA_STORAGE_ERROR, and lists the
replica as offline. Authorized operations are all: where there is an authorizer, its guards say which.
DescribeTopicPartitions has no eligible leader replicas to tell (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from broker.api import Answer, handles
from broker.context import RequestContext
from broker.topic import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from config.topic import topic_name_problem
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.topic import Topic

MetadataTopic = MetadataResponse.MetadataResponseTopic
MetadataPartition = MetadataTopic.MetadataResponsePartition
MetadataBroker = MetadataResponse.MetadataResponseBroker
Asked = MetadataRequest.MetadataRequestTopic
DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
DescribedPartition = DescribedTopic.DescribeTopicPartitionsResponsePartition
DescribedBroker = DescribeClusterResponse.DescribeClusterBroker

NO_ID = UUID(int=0)
NO_LEADER_EPOCH = -1
NOT_ASKED = -(2**31)
IDS_ALONE_VERSION = 12
BROKER_ENDPOINT = 1
CONTROLLER_ENDPOINT = 2
NO_CONTROLLER = (
    "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
)
MOST_MADE_AT_ONCE = 100
"""how many topics one Metadata request may make: files are made meanwhile, and nothing else happens"""


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(3, 4, 5, 6, 7, 8, 10, 11)
"""read, write, create, delete, alter, describe, describe and alter configs"""
CLUSTER_OPERATIONS = _bits(5, 7, 8, 9, 10, 11, 12)
"""create, alter, describe, cluster action, describe and alter configs, idempotent write"""


@handles(MetadataRequest)
def metadata(broker: Broker, context: RequestContext, request: MetadataRequest) -> Answer:
    listener = context.listener
    response = MetadataResponse(
        brokers=[
            MetadataBroker(
                node_id=broker.node_id, host=listener.advertised_host, port=listener.advertised_port
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if request.topics is None or (context.api_version == 0 and not request.topics):
        response.topics = [_topic(broker, topic, operations) for topic in broker.topics.all()]
        return response
    creation = Creation(broker, context, is_allowed=request.allow_auto_topic_creation)
    response.topics = [
        _asked_topic(broker, context, asked, operations, creation) for asked in _distinct(request.topics)
    ]
    return _when_flushed(broker, response) if creation.made else response


async def _when_flushed(broker: Broker, response: MetadataResponse) -> MetadataResponse:
    """A topic that was made is told when it is durable."""
    await broker.metadata.flushed()
    return response


def _distinct(asked: Sequence[Asked]) -> Iterable[Asked]:
    """A topic asked for twice is answered once."""
    return {(topic.name, topic.topic_id): topic for topic in asked}.values()


class Creation:
    """Topics made because one request asked for them (G19). Owned by: event loop."""

    def __init__(self, broker: Broker, context: RequestContext, *, is_allowed: bool) -> None:
        self._broker = broker
        self._context = context
        self._is_allowed = is_allowed and broker.config.auto_create_topics_enable
        self.made = 0

    def make(self, name: str) -> Topic:
        """The new topic; KafkaError when there cannot or may not be one."""
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if not self._is_allowed or name in INTERNAL_TOPICS or name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.made == MOST_MADE_AT_ONCE:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)  # the client asks again
        count = self._broker.config.num_partitions
        try:
            self._broker.quotas.mutations(self._context, 0).take(count)
            topic = self._broker.topics.create(name, count, {})
        except KafkaError as error:
            if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:  # as Kafka, which is asked again
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from error
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:  # it is being made, or deleted: not for long
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE) from error
            raise
        self.made += 1
        return topic


def _asked_topic(
    broker: Broker, context: RequestContext, asked: Asked, operations: int, creation: Creation
) -> MetadataTopic:
    """One topic asked for by name or id, made when that is allowed."""
    if asked.topic_id != NO_ID or asked.name is None:
        return _topic_by_id(broker, context, asked, operations)
    topic = broker.topics.get(asked.name)
    if topic is None:
        try:
            topic = creation.make(asked.name)
        except KafkaError as error:
            return MetadataTopic(
                error_code=error.code, name=asked.name, is_internal=asked.name in INTERNAL_TOPICS
            )
    return _topic(broker, topic, operations)


def _topic_by_id(broker: Broker, context: RequestContext, asked: Asked, operations: int) -> MetadataTopic:
    if context.api_version < IDS_ALONE_VERSION:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topics are asked for by their names in this version")
    if asked.topic_id == NO_ID:
        return MetadataTopic(error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=NO_ID)
    topic = broker.topics.by_id(asked.topic_id)
    if topic is None:
        return MetadataTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
    return _topic(broker, topic, operations)


def _topic(broker: Broker, topic: Topic, operations: int) -> MetadataTopic:
    node = [broker.node_id]
    return MetadataTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataPartition(
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=_epoch(broker, topic.name, index),
                replica_nodes=node,
                isr_nodes=node,
                offline_replicas=_offline(broker, topic.name, index),
            )
            for index in range(topic.partition_count)
        ],
        topic_authorized_operations=operations,
    )


def _epoch(broker: Broker, name: str, index: int) -> int:
    """That of the log, as Fetch compares it: a log of Apache Kafka's has another one after each start."""
    partition = broker.partition(name, index)
    return NO_LEADER_EPOCH if partition is None else partition.log.leader_epoch


def _offline(broker: Broker, name: str, index: int) -> list[int]:
    partition = broker.partitions.get(TopicPartition(name, index))
    return [broker.node_id] if partition is None or partition.log.offline_reason is not None else []


@handles(DescribeClusterRequest)
def describe_cluster(
    broker: Broker, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKER_ENDPOINT:
        code, words = (
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
        if request.endpoint_type == CONTROLLER_ENDPOINT:
            code, words = ErrorCode.MISMATCHED_ENDPOINT_TYPE, NO_CONTROLLER
        return DescribeClusterResponse(error_code=code, error_message=words)
    listener = context.listener
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribedBroker(
                broker_id=broker.node_id, host=listener.advertised_host, port=listener.advertised_port
            )
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics in the order of their names, as many partitions as fit; the cursor says where to go on."""
    left = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))
    cursor = request.cursor
    asked = {topic.name for topic in request.topics} or {topic.name for topic in broker.topics.all()}
    names = sorted(name for name in asked if cursor is None or name >= cursor.topic_name)
    response = DescribeTopicPartitionsResponse()
    if cursor is not None:
        if cursor.partition_index < 0 and not request.topics:
            return response  # as Kafka: the error has its place in the topics that were asked for
        if cursor.partition_index < 0 or (request.topics and names[:1] != [cursor.topic_name]):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the cursor is of none of the topics asked for")
    for name in names:
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if left <= 0:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=first
            )
            break
        topic = broker.topics.get(name)
        if topic is None:
            is_bad = topic_name_problem(name) is not None
            code = ErrorCode.INVALID_TOPIC_EXCEPTION if is_bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response.topics.append(
                DescribedTopic(error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS)
            )
            continue
        end = min(topic.partition_count, first + left)
        response.topics.append(_described(broker, topic, first, end))
        left -= max(0, end - first)
        if end < topic.partition_count:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=end
            )
            break
    return response


def _described(broker: Broker, topic: Topic, first: int, end: int) -> DescribedTopic:
    node = [broker.node_id]
    return DescribedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribedPartition(
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=_epoch(broker, topic.name, index),
                replica_nodes=node,
                isr_nodes=node,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=_offline(broker, topic.name, index),
            )
            for index in range(first, end)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
