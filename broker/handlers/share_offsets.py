"""DescribeShareGroupOffsets 0-1, AlterShareGroupOffsets 0, DeleteShareGroupOffsets 0 (KIP-932).

Where a share group stands in a partition is the first offset whose delivery is not over. It is told as it was
written down last; v1 says how many records are left behind it (KIP-1226). An empty group may begin elsewhere,
or forget a topic, which it then begins by share.auto.offset.reset.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from broker.api import Later, handles
from broker.context import RequestContext
from broker.share.partition import NO_COUNT, NO_OFFSET, ShareKey, SharePartition
from protocol.errors import NOT_HOSTED, ErrorCode, KafkaError
from protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from asyncio import Future

    from broker.broker import Broker

DescribedGroup = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
DescribedTopic = DescribedGroup.DescribeShareGroupOffsetsResponseTopic
DescribedPartition = DescribedTopic.DescribeShareGroupOffsetsResponsePartition
AlteredTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
AlteredPartition = AlteredTopic.AlterShareGroupOffsetsResponsePartition
DeletedTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic

T = TypeVar("T", AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponse)
R = TypeVar("R")
NO_LAG = -1
NO_GROUP_ID = "The group id is invalid."


# DescribeShareGroupOffsets


@handles(DescribeShareGroupOffsetsRequest)
def describe_share_group_offsets(
    broker: Broker, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    groups = []
    for asked in request.groups:
        try:
            topics = _described_topics(broker, asked)
            groups.append(DescribedGroup(group_id=asked.group_id, topics=topics))
        except KafkaError as error:
            groups.append(
                DescribedGroup(
                    group_id=asked.group_id, error_code=error.code, error_message=error.message or None
                )
            )
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _described_topics(broker: Broker, asked: Any) -> list[DescribedTopic]:
    if asked.topics is None:
        group = broker.groups.shared.find(asked.group_id)
        wanted: Iterable[tuple[str, Iterable[int]]] = (
            [(one.topic, sorted(one.partitions)) for one in group.begun.values()] if group is not None else ()
        )
    else:
        wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    topics = []
    for name, indexes in wanted:
        topic = broker.topics.get(name)
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        rows = [_described(broker, name, ShareKey(asked.group_id, topic_id, index)) for index in indexes]
        topics.append(DescribedTopic(topic_name=name, topic_id=topic_id, partitions=rows))
    return topics


def _described(broker: Broker, topic: str, key: ShareKey) -> DescribedPartition:
    """Nothing is known of a partition that the group does not read, or that does not exist. KafkaError: while
    all is being loaded.
    """
    row = DescribedPartition(partition_index=key.partition, start_offset=NO_OFFSET)
    partition = broker.partition(topic, key.partition)
    try:
        share = broker.shares.find(key)
    except KafkaError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise  # of a group a client asks again, a partition it leaves out
        row.error_code, row.error_message = error.code, error.message or None
        return row
    if share is not None and partition is not None:
        row.start_offset, row.leader_epoch = share.stored.start_offset, share.stored.leader_epoch
        row.lag = lag_of(share, partition.log.high_watermark)
    return row


def lag_of(share: SharePartition, high_watermark: int) -> int:
    """How many records are not delivered yet, or not to the end; NO_LAG: it is not known."""
    stored = share.stored
    if stored.start_offset == NO_OFFSET or stored.complete_count == NO_COUNT:
        return NO_LAG
    return high_watermark - stored.start_offset - stored.complete_count


# AlterShareGroupOffsets


@handles(AlterShareGroupOffsetsRequest)
def alter_share_group_offsets(
    broker: Broker, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | Later | Awaitable[AlterShareGroupOffsetsResponse | Later]:
    if not request.group_id:
        return AlterShareGroupOffsetsResponse(
            error_code=ErrorCode.INVALID_GROUP_ID, error_message=NO_GROUP_ID
        )
    if broker.shares.has_topic:
        return _alter(broker, request)
    return once_there_is_a_topic(broker, AlterShareGroupOffsetsResponse, lambda: _alter(broker, request))


async def once_there_is_a_topic(
    broker: Broker, response: Callable[..., R], answer: Callable[[], R | Later]
) -> R | Later:
    """The answer to who may be the first that needs `__share_group_state`."""
    try:
        await broker.shares.ensure_topic()
    except KafkaError as error:
        return response(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=error.message)
    return answer()


def _alter(broker: Broker, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse | Later:
    response = AlterShareGroupOffsetsResponse()
    start_offsets: dict[ShareKey, int] = {}
    for asked in request.topics:
        topic = broker.topics.get(asked.topic_name)
        answer = AlteredTopic(topic_name=asked.topic_name)
        response.responses.append(answer)
        if topic is not None:
            answer.topic_id = topic.topic_id
        for partition in asked.partitions:
            row = AlteredPartition(partition_index=partition.partition_index)
            answer.partitions.append(row)
            if topic is None or not 0 <= partition.partition_index < topic.partition_count:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                row.error_message = NOT_HOSTED
            else:
                key = ShareKey(request.group_id, topic.topic_id, partition.partition_index)
                start_offsets[key] = partition.start_offset
    return _when_durable(
        lambda: broker.groups.shared.alter_offsets(request.group_id, start_offsets),
        response,
    )


# DeleteShareGroupOffsets


@handles(DeleteShareGroupOffsetsRequest)
def delete_share_group_offsets(
    broker: Broker, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | Later:
    if not request.group_id:
        return DeleteShareGroupOffsetsResponse(
            error_code=ErrorCode.INVALID_GROUP_ID, error_message=NO_GROUP_ID
        )
    response = DeleteShareGroupOffsetsResponse()
    try:
        group = broker.groups.shared.existing(request.group_id)
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    doomed = set()
    for asked in request.topics:
        topic = broker.topics.get(asked.topic_name)
        answer = DeletedTopic(topic_name=asked.topic_name)
        response.responses.append(answer)
        if topic is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.error_message = NOT_HOSTED
        elif topic.topic_id not in group.begun:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.error_message = "There is no offset information to delete."
        else:
            answer.topic_id = topic.topic_id
            doomed.add(topic.topic_id)
    return _when_durable(lambda: broker.groups.shared.delete_offsets(request.group_id, doomed), response)


def _when_durable(change: Callable[[], list[Future[None]]], response: T) -> T | Later:
    """`response` once the change is on the disk, or one that says why it cannot be made."""
    try:
        waits = change()
    except KafkaError as error:
        return type(response)(error_code=error.code, error_message=error.message or None)

    def finish() -> T:
        if any(flushed.exception() is not None for flushed in waits):
            return type(response)(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return response

    return Later(waits, finish) if waits else response
