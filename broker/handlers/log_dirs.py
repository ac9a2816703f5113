"""AlterReplicaLogDirs (key 34) v1-v2, DescribeLogDirs (35) v1-v4.

DescribeLogDirs: the size of every partition asked for in each of `log.dirs`, of those that are on their way
there as well, and from v4 the size of the volume; a directory that cannot be read bears KAFKA_STORAGE_ERROR.
AlterReplicaLogDirs is answered when the moves have begun (`broker/moves.py`).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.admin import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker

logger = logging.getLogger(__name__)

Altered = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
Directory = DescribeLogDirsResponse.DescribeLogDirsResult
DirectoryTopic = Directory.DescribeLogDirsTopic
DirectoryPartition = DirectoryTopic.DescribeLogDirsPartition


@handles(DescribeLogDirsRequest)
async def describe_log_dirs(
    broker: Broker, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    directories = _directories(broker, request)
    for directory in directories:
        try:
            usage = await broker.run_blocking(shutil.disk_usage, directory.log_dir)
        except OSError:
            directory.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            directory.total_bytes, directory.usable_bytes = usage.total, usage.free
    return DescribeLogDirsResponse(results=directories)


def _directories(broker: Broker, request: DescribeLogDirsRequest) -> list[Directory]:
    """Every log directory with the partitions asked for, those on their way there among them."""
    places = [Path(name).absolute() for name in broker.config.log_dirs]
    directories = {place: Directory(log_dir=str(place)) for place in places}
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
        }
    topics: dict[tuple[Path, str], DirectoryTopic] = {}
    for place, topic_partition, size in (*_served(broker), *_coming(broker)):
        if wanted is not None and topic_partition not in wanted:
            continue
        key = (place.absolute(), topic_partition.topic)
        if key not in topics:
            topics[key] = DirectoryTopic(name=topic_partition.topic)
            directories[key[0]].topics.append(topics[key])
        topics[key].partitions.append(size)
    return list(directories.values())


def _served(broker: Broker) -> Iterator[tuple[Path, TopicPartition, DirectoryPartition]]:
    for topic_partition in sorted(broker.partitions):
        log = broker.partitions[topic_partition].log
        size = DirectoryPartition(partition_index=topic_partition.partition, partition_size=log.size_bytes)
        yield log.directory.parent, topic_partition, size


def _coming(broker: Broker) -> Iterator[tuple[Path, TopicPartition, DirectoryPartition]]:
    """As far as they have come: the lag is in offsets."""
    for move in broker.moves.all():
        partition = broker.partitions.get(move.topic_partition)
        if partition is not None:
            copied = move.copy
            size = DirectoryPartition(
                partition_index=move.topic_partition.partition,
                partition_size=copied.copied_bytes if copied else 0,
                offset_lag=max(0, partition.log.log_end_offset - (copied.next_offset if copied else 0)),
                is_future_key=True,
            )
            yield move.directory.path, move.topic_partition, size


@handles(AlterReplicaLogDirsRequest)
async def alter_replica_log_dirs(
    broker: Broker, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """A partition that is named for several directories goes to the last of them, as in Kafka."""
    wanted = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, Altered] = {}
    for topic_partition, path in wanted.items():
        answer = Altered.AlterReplicaLogDirPartitionResult(partition_index=topic_partition.partition)
        try:
            await broker.moves.begin(topic_partition, path)
        except KafkaError as error:
            logger.warning("%s does not move to %s: %s", topic_partition, path, error)
            answer.error_code = error.code
        topic = topics.setdefault(topic_partition.topic, Altered(topic_name=topic_partition.topic))
        topic.partitions.append(answer)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
