"""DescribeLogDirs (key 35) v1-v4, ElectLeaders (43) v0-v2.

DescribeLogDirs: the size of every partition asked for in each of `log.dirs`, and from v4 the size of the
volume; a directory that cannot be read bears KAFKA_STORAGE_ERROR. There is one node: no leader is ever to
be elected (ELECTION_NOT_NEEDED), no partition moves.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from broker.api import handles
from broker.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.admin import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker

Directory = DescribeLogDirsResponse.DescribeLogDirsResult
DirectoryTopic = Directory.DescribeLogDirsTopic
DirectoryPartition = DirectoryTopic.DescribeLogDirsPartition
PREFERRED, UNCLEAN = 0, 1
"""the kinds of election that there are"""
Elected = ElectLeadersResponse.ReplicaElectionResult


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
    """Every log directory with the partitions asked for."""
    places = [Path(name).absolute() for name in broker.config.log_dirs]
    directories = {place: Directory(log_dir=str(place)) for place in places}
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
        }
    topics: dict[tuple[Path, str], DirectoryTopic] = {}
    for topic_partition in sorted(broker.partitions):
        if wanted is not None and topic_partition not in wanted:
            continue
        log = broker.partitions[topic_partition].log
        key = (log.directory.parent.absolute(), topic_partition.topic)
        if key not in topics:
            topics[key] = DirectoryTopic(name=topic_partition.topic)
            directories[key[0]].topics.append(topics[key])
        topics[key].partitions.append(
            DirectoryPartition(partition_index=topic_partition.partition, partition_size=log.size_bytes)
        )
    return list(directories.values())


@handles(ElectLeadersRequest)
def elect_leaders(
    broker: Broker, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """All partitions asked for at once: only those that had an election would be listed, that is none."""
    response = ElectLeadersResponse()
    unknown = f"Unknown election type {request.election_type}"
    is_known = request.election_type in (PREFERRED, UNCLEAN)
    if not is_known:
        response.error_code = ErrorCode.INVALID_REQUEST
    for topic in request.topic_partitions or ():
        results = []
        for index in topic.partitions:
            if not is_known:
                code, message = ErrorCode.INVALID_REQUEST, unknown
            elif TopicPartition(topic.topic, index) in broker.partitions:
                code, message = (
                    ErrorCode.ELECTION_NOT_NEEDED,
                    "Leader election not needed for topic partition.",
                )
            else:
                code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic partition."
            results.append(
                Elected.PartitionResult(partition_id=index, error_code=code, error_message=message)
            )
        response.replica_election_results.append(Elected(topic=topic.topic, partition_result=results))
    return response
