"""CreateTopics (key 19) v2-v7, DeleteTopics (20) v1-v6, CreatePartitions (37) v0-v3.

Each topic succeeds or fails for itself; the answer is sent when what was done is durable, so that
`timeout_ms` has nothing to bound. CreateTopics: v4 takes -1 for the default number of partitions and
replicas, v5 answers with the configuration, v7 with the id; one node holds one replica, more are
INVALID_REPLICATION_FACTOR; a manual assignment may name this node only. DeleteTopics: v6 by id; internal
topics stay. CreatePartitions: a topic grows, never shrinks (S20), and one row is answered for each topic
(G22). Who deletes or grows a topic that is growing waits for that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from broker.api import handles
from broker.context import RequestContext
from broker.handlers.config_entries import topic_entries
from broker.placement import check_placement
from broker.quotas.mutations import Unbounded
from broker.topic import INTERNAL_TOPICS
from config.definition import ConfigError
from config.topic import TopicConfig, check_client_overrides
from protocol.errors import NOT_HOSTED, ErrorCode, KafkaError
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.topic import Topic

Creatable = CreateTopicsRequest.CreatableTopic
Created = CreateTopicsResponse.CreatableTopicResult
CreatedConfig = Created.CreatableTopicConfigs
Deleted = DeleteTopicsResponse.DeletableTopicResult
Growable = CreatePartitionsRequest.CreatePartitionsTopic
Grown = CreatePartitionsResponse.CreatePartitionsTopicResult

T = TypeVar("T")
NO_ID = UUID(int=0)
DEFAULT = -1
IDS_VERSION = 6
DISABLED_CODE_VERSION = 3
STRICT_CREATION_VERSION, STRICT_DELETION_VERSION, STRICT_GROWTH_VERSION = 6, 5, 3
"""from here on clients know that a quota refuses"""
MAX_NEW_PARTITIONS = 10_000
"""of all topics that one request makes, as in Kafka; more where `max.partitions.per.topic` is higher"""
AT_ONCE = 8
"""topics of one request that are worked on side by side: each takes the loop a millisecond before it waits,
and a request may name thousands
"""


@handles(CreateTopicsRequest)
async def create_topics(
    broker: Broker, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}.values()
    most = max(MAX_NEW_PARTITIONS, broker.config.max_partitions_per_topic)
    if sum(_wanted_partitions(broker, topic) for topic in request.topics) > most:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request. {most} in all are allowed.",
        )
    quota = broker.quotas.mutations(context, STRICT_CREATION_VERSION)
    created = await _a_few_at_once(
        broker,
        (create_one(broker, topic, times[topic.name], request.validate_only, quota) for topic in topics),
    )
    return CreateTopicsResponse(throttle_time_ms=quota.wait_ms(), topics=created)


async def _a_few_at_once(broker: Broker, works: Iterable[Awaitable[T]]) -> list[T]:
    """What all of them return, in order; other clients have their turn between. A client that hangs up
    stops none of it.
    """
    left = iter(works)
    done: list[T] = []

    async def work() -> None:
        while some := list(islice(left, AT_ONCE)):
            done.extend(await asyncio.gather(*some))

    await broker.changes.to_the_end("a request about topics", work())
    return done


def _wanted_partitions(broker: Broker, topic: Creatable) -> int:
    """How many a topic would get, however wrong the rest of it may be."""
    if topic.assignments:
        return len(topic.assignments)
    return broker.config.num_partitions if topic.num_partitions == DEFAULT else max(0, topic.num_partitions)


async def create_one(
    broker: Broker, topic: Creatable, times: int, validate_only: bool, quota: Unbounded
) -> Created:
    """Make a topic that was asked for so many times in one request."""
    try:
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        broker.topics.check_new_name(topic.name)
        if topic.name in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' is made by the broker only."
            )
        overrides, config = _settings(broker, topic)
        partition_count = _partition_count(broker, topic)
        quota.take(partition_count)
        topic_id = NO_ID
        if not validate_only:
            topic_id = (await broker.topics.create_durably(topic.name, partition_count, overrides)).topic_id
    except KafkaError as error:
        return Created(name=topic.name, error_code=error.code, error_message=error.message or None)
    return Created(
        name=topic.name,
        error_message=None,
        topic_id=topic_id,
        num_partitions=partition_count,
        replication_factor=1,
        configs=_created_configs(broker, overrides, config),
    )


def _settings(broker: Broker, topic: Creatable) -> tuple[dict[str, str], TopicConfig]:
    """What the new topic sets itself, and all that holds for it then."""
    empty = [entry.name for entry in topic.configs if entry.value is None]
    if empty:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(empty)}"
        )
    overrides = {entry.name: entry.value or "" for entry in topic.configs}
    try:
        return overrides, check_client_overrides(overrides, broker.config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error


def _created_configs(broker: Broker, overrides: dict[str, str], config: TopicConfig) -> list[CreatedConfig]:
    return [
        CreatedConfig(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.config_source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in topic_entries(overrides, config, broker.config)
    ]


def _partition_count(broker: Broker, topic: Creatable) -> int:
    """How many partitions the new topic gets; KafkaError when they cannot be, or not with these replicas."""
    config = broker.config
    if topic.assignments:
        if topic.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        count = len(topic.assignments)
        _check_assignments(topic.assignments, broker.node_id)
    else:
        count = config.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions
        if topic.replication_factor == 0 or topic.replication_factor < DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if count < 1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        _check_replicas(topic.replication_factor)
    if count > config.max_partitions_per_topic:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions are more than max.partitions.per.topic ({config.max_partitions_per_topic}).",
        )
    return count


def _check_assignments(assignments: Sequence[Creatable.CreatableReplicaAssignment], node_id: int) -> None:
    seen: set[int] = set()
    for assignment in assignments:
        if assignment.partition_index in seen:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        check_placement(assignment.broker_ids, node_id)
        seen.add(assignment.partition_index)
    if seen != set(range(len(seen))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )


def _check_replicas(factor: int) -> None:
    if factor > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
            "cannot be reached because only 1 broker(s) are registered or some brokers have all their log "
            "directories cordoned.",
        )


@handles(DeleteTopicsRequest)
async def delete_topics(
    broker: Broker, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    if context.api_version < IDS_VERSION:
        asked: list[tuple[str | None, UUID]] = [(name, NO_ID) for name in request.topic_names]
    else:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    times = Counter(asked)
    quota = broker.quotas.mutations(context, STRICT_DELETION_VERSION)
    deleted = await _a_few_at_once(
        broker,
        (
            delete_one(broker, context.api_version, name, topic_id, times[name, topic_id], quota)
            for name, topic_id in times
        ),
    )
    return DeleteTopicsResponse(throttle_time_ms=quota.wait_ms(), responses=deleted)


async def delete_one(
    broker: Broker, api_version: int, name: str | None, topic_id: UUID, times: int, quota: Unbounded
) -> Deleted:
    """Delete a topic that was asked for so many times in one request, by its name or its id."""
    try:
        known = broker.topics.by_id(topic_id)
        await broker.topics.settled(name or (known.name if known else ""))  # it may be made just now, or grow
        topic = _deletable(broker, api_version, name, topic_id, times)
        name, topic_id = topic.name, topic.topic_id
        quota.take(topic.partition_count)
        await broker.deletions.delete(topic.name)
    except KafkaError as error:
        return Deleted(
            name=name, topic_id=topic_id, error_code=error.code, error_message=error.message or None
        )
    return Deleted(name=name, topic_id=topic_id)


def _deletable(broker: Broker, api_version: int, name: str | None, topic_id: UUID, times: int) -> Topic:
    if not broker.config.delete_topic_enable:
        is_told = api_version >= DISABLED_CODE_VERSION
        raise KafkaError(
            ErrorCode.TOPIC_DELETION_DISABLED if is_told else ErrorCode.INVALID_REQUEST,
            "Topic deletion is disabled.",
        )
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")
    if name is not None and topic_id != NO_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == NO_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    topic = broker.topics.by_id(topic_id) if name is None else broker.topics.get(name)
    if topic is None:
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' is internal and cannot be deleted."
        )
    return topic


@handles(CreatePartitionsRequest)
async def create_partitions(
    broker: Broker, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}.values()
    quota = broker.quotas.mutations(context, STRICT_GROWTH_VERSION)
    grown = await _a_few_at_once(
        broker,
        (grow_one(broker, topic, times[topic.name], request.validate_only, quota) for topic in topics),
    )
    return CreatePartitionsResponse(throttle_time_ms=quota.wait_ms(), results=grown)


async def grow_one(
    broker: Broker, topic: Growable, times: int, validate_only: bool, quota: Unbounded
) -> Grown:
    """Give partitions to a topic that was asked for so many times in one request."""
    try:
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        await broker.topics.settled(topic.name)
        quota.take(topic.count - _checked(broker, topic).partition_count)
        if not validate_only:
            await broker.topics.add_partitions(topic.name, topic.count)
    except KafkaError as error:
        return Grown(name=topic.name, error_code=error.code, error_message=error.message or None)
    return Grown(name=topic.name)


def _checked(broker: Broker, topic: Growable) -> Topic:
    """The topic, which can grow so. KafkaError."""
    current = broker.topics.get(topic.name)
    if current is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if current.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' is internal and cannot grow."
        )
    if topic.count == current.partition_count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {current.partition_count} partition(s)."
        )
    if topic.count < current.partition_count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current.partition_count} partition(s); "
            f"{topic.count} would not be an increase.",
        )
    if topic.count > broker.config.max_partitions_per_topic:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.count} partitions are more than max.partitions.per.topic "
            f"({broker.config.max_partitions_per_topic}).",
        )
    if topic.assignments is not None:
        wanted = topic.count - current.partition_count
        if len(topic.assignments) != wanted:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {wanted} additional partition(s), but only {len(topic.assignments)} "
                "assignment(s) were specified.",
            )
        for assignment in topic.assignments:
            check_placement(assignment.broker_ids, broker.node_id)
    return current
