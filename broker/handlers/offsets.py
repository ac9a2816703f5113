"""ListOffsets (key 2, v1-v11), OffsetForLeaderEpoch (key 23, v2-v4), DeleteRecords (key 21, v0-v2).

ListOffsets knows latest (-1; for read_committed the last stable offset, T101), earliest (-2; the log start
offset, whatever compaction removed, T141), the largest timestamp (-3, v7, KIP-734), earliest local (-4, v8:
the same as earliest), last tiered (-5, v9: none) and first to be tiered (-6, v11: none) (G21). Searches by
time look inside batches and run on an I/O thread. A producer that got its acks=1 answer finds its records
below "latest" and by their time: the answer waits for the flush that is due. OffsetForLeaderEpoch answers
from the epoch cache, or -1 (G10); its end is the log's, as in Kafka. DeleteRecords moves the log start
offset, on topics with the delete policy only (T136), and is checkpointed before it is answered, with
KAFKA_STORAGE_ERROR where it cannot be; it waits as well for the flush of what it deletes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker.api import handles
from broker.context import RequestContext
from broker.handlers.fetch import READ_COMMITTED, check_leader_epoch
from broker.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offsets import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker
    from storage.log import Log
    from storage.types import TimestampOffset

logger = logging.getLogger(__name__)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
LOWEST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
DEBUG_REPLICA = -2
UNKNOWN = -1

ListedTopic = ListOffsetsResponse.ListOffsetsTopicResponse
ListedPartition = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
EpochTopic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochEndOffset = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult.EpochEndOffset
DeletedTopic = DeleteRecordsResponse.DeleteRecordsTopicResult
DeletedPartition = DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult
SEARCHES_TOGETHER = 32
"""by one I/O thread: to hand over each of a topic's partitions by itself takes longer than to search it"""


class Search(NamedTuple):
    """What is to be found on an I/O thread, in which partition, and the answer that it is for."""

    partition: Partition
    find: Callable[[], TimestampOffset | None]
    answer: ListedPartition


def find_partition(broker: Broker, topic: str, index: int) -> Partition:
    """The partition, readable; KafkaError otherwise."""
    partition = broker.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.log.offline_reason is not None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.log.offline_reason)
    return partition


@handles(ListOffsetsRequest)
def list_offsets(
    broker: Broker, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    response = ListOffsetsResponse()
    waiting: list[Awaitable[None]] = []
    searches: list[Search] = []
    times = Counter(
        (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )
    for topic in request.topics:
        answers: list[ListedPartition] = []
        for asked in topic.partitions:
            answer = ListedPartition(partition_index=asked.partition_index)
            answers.append(answer)
            try:
                if times[topic.name, asked.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                _check_time(context.api_version, asked.timestamp)
                partition = find_partition(broker, topic.name, asked.partition_index)
                check_leader_epoch(asked.current_leader_epoch, partition.log.leader_epoch)
                later = _list_one(request, partition, asked.timestamp, answer)
                if isinstance(later, Search):
                    searches.append(later)
                elif later is not None:
                    waiting.append(later)
            except KafkaError as error:
                answer.error_code = error.code
        response.topics.append(ListedTopic(name=topic.name, partitions=answers))
    is_committed_only = request.isolation_level == READ_COMMITTED
    waiting += [
        _search(broker, searches[start : start + SEARCHES_TOGETHER], is_committed_only)
        for start in range(0, len(searches), SEARCHES_TOGETHER)
    ]
    return _when_all(waiting, response) if waiting else response


async def _when_all(waiting: list[Awaitable[None]], response: ListOffsetsResponse) -> ListOffsetsResponse:
    await asyncio.gather(*waiting)
    return response


def _check_time(api_version: int, timestamp: int) -> None:
    if api_version < LOWEST_VERSION.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _list_one(
    request: ListOffsetsRequest,
    partition: Partition,
    timestamp: int,
    answer: ListedPartition,
) -> Awaitable[None] | Search | None:
    """Fill `answer`, now or by what is returned."""
    log = partition.log
    is_committed_only = request.isolation_level == READ_COMMITTED
    if timestamp == LATEST:
        if request.replica_id == DEBUG_REPLICA:
            answer.offset, answer.leader_epoch = log.log_end_offset, log.leader_epoch
            return None
        flushed = partition.when_flushed(log.log_end_offset)
        if flushed is not None:
            return _latest_after_flush(partition, is_committed_only, answer, flushed)
        _latest(log, is_committed_only, answer)
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = log.log_start_offset, _epoch_of_start(log)
    elif timestamp == MAX_TIMESTAMP:
        return Search(partition, log.max_timestamp_offset, answer)
    elif timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return Search(partition, lambda: log.offset_for_timestamp(timestamp), answer)
    return None


def _epoch_of_start(log: Log) -> int:
    return max(0, log.leader_epochs.epoch_at(log.log_start_offset))


def _latest(log: Log, is_committed_only: bool, answer: ListedPartition) -> None:
    answer.offset = log.last_stable_offset if is_committed_only else log.high_watermark
    answer.leader_epoch = log.leader_epoch


async def _latest_after_flush(
    partition: Partition, is_committed_only: bool, answer: ListedPartition, flushed: asyncio.Future[None]
) -> None:
    try:
        await flushed
    except KafkaError as error:
        answer.error_code = error.code
        return
    _latest(partition.log, is_committed_only, answer)


async def _search(broker: Broker, searches: Sequence[Search], is_committed_only: bool) -> None:
    """Searches by time; a found record's flush is waited for, one of an open transaction is not found."""
    for search, found in zip(searches, await broker.run_blocking(_find_each, searches), strict=True):
        log, answer = search.partition.log, search.answer
        try:
            if isinstance(found, Exception):
                raise found
            flushed = search.partition.when_flushed(found.offset + 1) if found is not None else None
            if flushed is not None:
                await flushed
        except KafkaError as error:
            answer.error_code = error.code
            continue
        except OSError:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        upper_offset = log.last_stable_offset if is_committed_only else log.high_watermark
        if found is not None and found.offset < upper_offset:
            answer.timestamp, answer.offset, answer.leader_epoch = found


def _find_each(searches: Sequence[Search]) -> list[TimestampOffset | KafkaError | OSError | None]:
    """What each found, or why it could not. May wait for the disk."""
    found: list[TimestampOffset | KafkaError | OSError | None] = []
    for search in searches:
        try:
            found.append(search.find())
        except (KafkaError, OSError) as error:
            found.append(error)
    return found


@handles(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(
    broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answers: list[EpochEndOffset] = []
        for asked in topic.partitions:
            answer = EpochEndOffset(partition=asked.partition, leader_epoch=UNKNOWN, end_offset=UNKNOWN)
            answers.append(answer)
            try:
                log = find_partition(broker, topic.topic, asked.partition).log
                check_leader_epoch(asked.current_leader_epoch, log.leader_epoch)
                answer.leader_epoch, answer.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
        response.topics.append(EpochTopic(topic=topic.topic, partitions=answers))
    return response


@handles(DeleteRecordsRequest)
def delete_records(
    broker: Broker, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:  # as in Kafka, who names a partition twice gets one answer, to the last
        offsets = {partition.partition_index: partition.offset for partition in topic.partitions}
        wanted.setdefault(topic.name, {}).update(offsets)
    waiting: list[Awaitable[None]] = []
    for name, offsets in wanted.items():
        for index, offset in offsets.items():
            partition = broker.partition(name, index)
            if partition is None:
                continue
            end_offset = partition.log.log_end_offset
            if offset == UNKNOWN:
                offsets[index] = offset = end_offset
            # What a producer with acks=1 was told of can be deleted, although nobody has read it yet.
            flushed = partition.when_flushed(min(offset, end_offset))
            if flushed is not None:
                waiting.append(flushed)
    return _delete_later(broker, wanted, waiting) if waiting else _delete(broker, wanted)


async def _delete_later(
    broker: Broker, wanted: dict[str, dict[int, int]], waiting: list[Awaitable[None]]
) -> DeleteRecordsResponse:
    await asyncio.gather(*waiting, return_exceptions=True)  # a log that it took offline says so itself
    deleted = _delete(broker, wanted)
    return deleted if isinstance(deleted, DeleteRecordsResponse) else await deleted


def _delete(
    broker: Broker, wanted: dict[str, dict[int, int]]
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    moved: dict[Path, list[DeletedPartition]] = {}
    for name, offsets in wanted.items():
        answers: list[DeletedPartition] = []
        for index, offset in offsets.items():
            answer = DeletedPartition(partition_index=index, low_watermark=UNKNOWN)
            answers.append(answer)
            try:
                log = _delete_one(broker, name, index, offset)
            except KafkaError as error:
                answer.error_code = error.code
            else:
                answer.low_watermark = log.log_start_offset
                moved.setdefault(log.directory.parent, []).append(answer)
        response.topics.append(DeletedTopic(name=name, partitions=answers))
    return _after_checkpoints(broker, response, moved) if moved else response


def _delete_one(broker: Broker, topic: str, index: int, offset: int) -> Log:
    """Move the log start offset; the log."""
    partition = find_partition(broker, topic, index)
    if partition.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own")
    partition.log.delete_records(offset)
    partition.wake()
    return partition.log


async def _after_checkpoints(
    broker: Broker, response: DeleteRecordsResponse, moved: Mapping[Path, Sequence[DeletedPartition]]
) -> DeleteRecordsResponse:
    """Each data directory for itself: one that is full is no matter of the others' partitions."""
    for directory, answers in moved.items():
        try:
            await broker.run_blocking(broker.logs.checkpoint, directory)
        except OSError as error:
            logger.error("where the logs of %s begin cannot be written down: %s", directory, error)
            for answer in answers:
                answer.error_code, answer.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, UNKNOWN
    return response
