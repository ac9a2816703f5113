"""Goal: an administrator sees where the bytes are, and that one node has nothing to elect or to move.

Method: a broker in the loop; DescribeLogDirs, ElectLeaders, those about reassignments and about ACLs
are asked over a connection.
"""

from __future__ import annotations

import shutil

import pytest

from protocol.errors import ErrorCode
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from storage.layout import TopicPartition
from tests.broker.conftest import World

Wanted = DescribeLogDirsRequest.DescribableLogDirTopic
Reassignable = AlterPartitionReassignmentsRequest.ReassignableTopic


@pytest.mark.parametrize("version", range(1, 5))
async def test_log_dirs_list_every_partition(world: World, version: int) -> None:
    world.topic("t", 2)
    client = await world.connect()
    await world.produce(client, world.batch((b"k", b"v" * 100)), partition=1)
    answer = await client.ask(DescribeLogDirsRequest(topics=None), version)
    (result,) = answer.results
    assert result.log_dir == str(world.directory)
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }
    assert sizes["t", 0] == 0
    assert sizes["t", 1] == world.broker.partitions[TopicPartition("t", 1)].log.size_bytes > 100
    if version >= 4:
        assert result.total_bytes == shutil.disk_usage(world.directory).total
        assert 0 < result.usable_bytes <= result.total_bytes


async def test_log_dirs_list_what_was_asked_for(world: World) -> None:
    world.topic("t", 3)
    client = await world.connect()
    wanted = [Wanted(topic="t", partitions=[2, 9]), Wanted(topic="none", partitions=[0])]
    answer = await client.ask(DescribeLogDirsRequest(topics=wanted), 4)
    (result,) = answer.results
    assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in result.topics] == [
        ("t", [2])
    ]
    answer = await client.ask(DescribeLogDirsRequest(topics=[]), 4)
    assert answer.results[0].topics == []


async def test_a_log_dir_that_cannot_be_read_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("broker.handlers.log_dirs.shutil.disk_usage", broken)
    client = await world.connect()
    answer = await client.ask(DescribeLogDirsRequest(topics=None), 4)
    assert answer.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("version", range(3))
async def test_no_leader_is_to_be_elected(world: World, version: int) -> None:
    world.topic("t")
    client = await world.connect()
    wanted = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 1])]
    answer = await client.ask(ElectLeadersRequest(topic_partitions=wanted), version)
    (result,) = answer.replica_election_results
    assert [(partition.partition_id, partition.error_code) for partition in result.partition_result] == [
        (0, ErrorCode.ELECTION_NOT_NEEDED),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert result.partition_result[1].error_message == "No such partition as t-1"
    wanted = [ElectLeadersRequest.TopicPartitions(topic="none", partitions=[0])]
    answer = await client.ask(ElectLeadersRequest(topic_partitions=wanted), version)
    assert answer.replica_election_results[0].partition_result[0].error_message == "No such topic as none"
    wanted = [ElectLeadersRequest.TopicPartitions(topic="n" * 32_000, partitions=[0])]
    answer = await client.ask(ElectLeadersRequest(topic_partitions=wanted), version)
    assert answer.replica_election_results[0].partition_result[0].error_message.endswith("nnn...")
    answer = await client.ask(ElectLeadersRequest(topic_partitions=None), version)
    assert [(row.topic, row.partition_result) for row in answer.replica_election_results] == [
        (name, []) for name in ("__kompakt_metadata", "t")
    ]


@pytest.mark.parametrize(("election_type", "version"), [(7, 2), (-1, 1)])
async def test_an_election_is_of_a_known_kind(world: World, election_type: int, version: int) -> None:
    world.topic("t")
    client = await world.connect()
    wanted = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    asked = ElectLeadersRequest(election_type=election_type, topic_partitions=wanted)
    answer = await client.ask(asked, version)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    (row,) = answer.replica_election_results[0].partition_result
    assert (row.error_code, row.error_message) == (
        ErrorCode.INVALID_REQUEST,
        f"Unknown election type {election_type}",
    )


async def test_no_partition_moves(world: World) -> None:
    client = await world.connect()
    answer = await client.ask(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (answer.error_code, answer.topics) == (0, [])


@pytest.mark.parametrize("version", range(2))
async def test_a_partition_may_only_stay_where_it_is(world: World, version: int) -> None:
    """Codes and words are those of a Kafka of one node."""
    world.topic("t")
    node = world.broker.node_id
    client = await world.connect()
    assignment = "The manual partition assignment includes"
    for name, index, replicas, code, words in (
        ("t", 0, [node], ErrorCode.NONE, None),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
        ("t", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{assignment} an empty replica list."),
        (
            "t",
            0,
            [node, 7],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{assignment} broker 7, but no such broker is registered.",
        ),
        (
            "t",
            0,
            [node, node],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{assignment} the broker {node} more than once.",
        ),
        ("t", 3, [node], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:3."),
        ("x", 0, [node], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named x."),
    ):
        part = Reassignable.ReassignablePartition(partition_index=index, replicas=replicas)
        asked = AlterPartitionReassignmentsRequest(topics=[Reassignable(name=name, partitions=[part])])
        answer = await client.ask(asked, version)
        assert answer.error_code == ErrorCode.NONE
        (row,) = answer.responses[0].partitions
        assert (answer.responses[0].name, row.partition_index) == (name, index)
        assert (row.error_code, row.error_message) == (code, words)


@pytest.mark.parametrize("version", range(1, 4))
async def test_there_are_no_acls_as_in_a_kafka_without_an_authorizer(world: World, version: int) -> None:
    """MirrorMaker asks for them at each of its rounds, and knows by SECURITY_DISABLED that there are none."""
    client = await world.connect()
    refused = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    described = await client.ask(DescribeAclsRequest(), version)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    assert described.error_message == "No Authorizer is configured on the broker"
    creations = [CreateAclsRequest.AclCreation(resource_name=name) for name in ("a", "b")]
    created = await client.ask(CreateAclsRequest(creations=creations), version)
    assert [(result.error_code, result.error_message) for result in created.results] == [refused] * 2
    filters = [DeleteAclsRequest.DeleteAclsFilter(resource_name_filter=name) for name in ("a", None)]
    deleted = await client.ask(DeleteAclsRequest(filters=filters), version)
    assert [(result.error_code, result.error_message) for result in deleted.filter_results] == [refused] * 2
