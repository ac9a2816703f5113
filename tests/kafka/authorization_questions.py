"""Every API, asked about what a client may use and what it may not; for `test_authorization.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from protocol.messages.features import UnregisterBrokerRequest, UpdateFeaturesRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
)
from protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
)
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from protocol.messages.users import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from protocol.records import encode_batch

OWN, OTHER, MISSING = "own", "other", "own-missing"
DOOMED, OTHER_DOOMED = "own-doomed", "other-doomed"
"""made anew where somebody could delete them"""
GROUP, OTHER_GROUP = "g", "h"
TX, OTHER_TX = "t", "u"
TOPICS = (OWN, OTHER, MISSING)
TOPIC_KIND, BROKER_KIND, GROUP_KIND = 2, 4, 32
Question = tuple[Any, int]


def _records() -> memoryview:
    return memoryview(encode_batch([(1_700_000_000_000, b"k", b"v", ())]))


def records() -> dict[str, Question]:
    data, asked, wanted = ProduceRequest.TopicProduceData, FetchRequest.FetchTopic, ListOffsetsRequest
    topics = [
        data(name=name, partition_data=[data.PartitionProduceData(index=0, records=_records())])
        for name in TOPICS
    ]
    fetched = [
        asked(
            topic=name,
            partitions=[asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
        )
        for name in TOPICS
    ]
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000}
    places = [
        wanted.ListOffsetsTopic(
            name=name,
            partitions=[wanted.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-2)],
        )
        for name in TOPICS
    ]
    epoch = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    epochs = [
        epoch(topic=name, partitions=[epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        for name in TOPICS
    ]
    deleted = DeleteRecordsRequest.DeleteRecordsTopic
    deletions = [
        deleted(name=name, partitions=[deleted.DeleteRecordsPartition(partition_index=0, offset=0)])
        for name in TOPICS
    ]
    producers = [DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0]) for name in TOPICS]
    return {
        "Produce": (ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9),
        "Produce in a transaction": (
            ProduceRequest(transactional_id=TX, acks=-1, timeout_ms=30_000, topic_data=topics[1:2]),
            9,
        ),
        "Fetch": (FetchRequest(topics=fetched, **limits), 12),
        "ListOffsets": (ListOffsetsRequest(replica_id=-1, topics=places), 7),
        "OffsetForLeaderEpoch": (OffsetForLeaderEpochRequest(replica_id=-1, topics=epochs), 4),
        "DeleteRecords": (DeleteRecordsRequest(topics=deletions, timeout_ms=30_000), 2),
        "DescribeProducers": (DescribeProducersRequest(topics=producers), 0),
    }


def topics(ids: Mapping[str, UUID]) -> dict[str, Question]:
    asked = MetadataRequest.MetadataRequestTopic
    operations = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
        "allow_auto_topic_creation": False,
    }
    by_id = [asked(name=None, topic_id=ids[name]) for name in (OWN, OTHER)]
    by_id.append(asked(name=None, topic_id=UUID(int=7)))
    made = CreateTopicsRequest.CreatableTopic
    new = [made(name=name, num_partitions=1, replication_factor=1) for name in ("own-new", "other-new")]
    grown = [
        CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=3, assignments=None) for name in TOPICS
    ]
    removed = DeleteTopicsRequest.DeleteTopicState
    named = DescribeTopicPartitionsRequest.TopicRequest
    return {
        "Metadata": (MetadataRequest(topics=[asked(name=name) for name in TOPICS], **operations), 9),
        "Metadata of all": (MetadataRequest(topics=None, **operations), 9),
        "Metadata by id": (
            MetadataRequest(topics=by_id, **{**operations, "include_cluster_authorized_operations": False}),
            12,
        ),
        "DescribeTopicPartitions": (
            DescribeTopicPartitionsRequest(
                topics=[named(name=name) for name in TOPICS], response_partition_limit=100
            ),
            0,
        ),
        "DescribeTopicPartitions of all": (
            DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000),
            0,
        ),
        "CreateTopics": (CreateTopicsRequest(topics=new, timeout_ms=30_000, validate_only=True), 7),
        "CreatePartitions": (
            CreatePartitionsRequest(topics=grown, timeout_ms=30_000, validate_only=True), 3,
        ),
        "DeleteTopics": (
            DeleteTopicsRequest(topic_names=[OTHER_DOOMED, MISSING, DOOMED], timeout_ms=30_000), 5,
        ),
        "DeleteTopics by id": (
            DeleteTopicsRequest(
                topics=[removed(name=None, topic_id=ids[OTHER_DOOMED]), removed(name="other-none")],
                timeout_ms=30_000,
            ),
            6,
        ),
    }  # fmt: skip


def by_ids(ids: Mapping[str, UUID]) -> dict[str, Question]:
    """What versions with topic ids ask, of an id as well that no topic has."""
    asked = [ids[OWN], ids[OTHER], UUID(int=7)]
    data, committed = ProduceRequest.TopicProduceData, OffsetCommitRequest.OffsetCommitRequestTopic
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    written = [
        data(topic_id=one, partition_data=[data.PartitionProduceData(index=0, records=_records())])
        for one in asked
    ]
    offsets = [
        committed(
            topic_id=one,
            partitions=[committed.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
        )
        for one in asked
    ]
    wanted = [group.OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in asked]
    groups = [group(group_id=name, topics=wanted) for name in (GROUP, OTHER_GROUP)]
    all_of_groups = [group(group_id=name, topics=None) for name in (GROUP, OTHER_GROUP)]
    return {
        "Produce by ids": (ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=written), 13),
        "OffsetCommit by ids": (OffsetCommitRequest(group_id=GROUP, topics=offsets), 10),
        "OffsetFetch by ids": (OffsetFetchRequest(groups=groups), 10),
        "OffsetFetch of all by ids": (OffsetFetchRequest(groups=all_of_groups), 10),
    }


def groups() -> dict[str, Question]:
    committed = OffsetCommitRequest.OffsetCommitRequestTopic
    offsets = [
        committed(
            name=name,
            partitions=[committed.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
        )
        for name in TOPICS
    ]
    one = OffsetFetchRequest.OffsetFetchRequestTopic
    many = OffsetFetchRequest.OffsetFetchRequestGroup
    rows = [one(name=name, partition_indexes=[0]) for name in TOPICS]
    of_group = [many.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in TOPICS]
    gone = OffsetDeleteRequest.OffsetDeleteRequestTopic
    deleted = [
        gone(name=name, partitions=[gone.OffsetDeleteRequestPartition(partition_index=0)]) for name in TOPICS
    ]
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    names = [GROUP, OTHER_GROUP]
    beat = {"member_id": "m", "member_epoch": 5, "topic_partitions": None}
    return {
        "OffsetCommit": (OffsetCommitRequest(group_id=GROUP, topics=offsets), 8),
        "OffsetCommit of another": (OffsetCommitRequest(group_id=OTHER_GROUP, topics=offsets), 8),
        "OffsetFetch": (OffsetFetchRequest(group_id=GROUP, topics=rows), 7),
        "OffsetFetch of all": (OffsetFetchRequest(group_id=GROUP, topics=None), 7),
        "OffsetFetch of groups": (
            OffsetFetchRequest(groups=[many(group_id=name, topics=of_group) for name in names]), 8,
        ),
        "OffsetFetch of all of groups": (
            OffsetFetchRequest(groups=[many(group_id=name, topics=None) for name in names]), 8,
        ),
        "OffsetDelete": (OffsetDeleteRequest(group_id=GROUP, topics=deleted), 0),
        "FindCoordinator": (FindCoordinatorRequest(key=GROUP, key_type=0), 3),
        "FindCoordinator of a transaction": (FindCoordinatorRequest(key=TX, key_type=1), 3),
        "FindCoordinator of groups": (FindCoordinatorRequest(coordinator_keys=names, key_type=0), 4),
        "FindCoordinator of ids": (FindCoordinatorRequest(coordinator_keys=[TX, OTHER_TX], key_type=1), 4),
        "JoinGroup": (
            JoinGroupRequest(
                group_id=GROUP, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
                protocol_type="consumer", protocols=[protocol],
            ),
            5,
        ),
        "SyncGroup": (
            SyncGroupRequest(
                group_id=GROUP, generation_id=1, member_id="m", protocol_type="consumer",
                protocol_name="range",
            ),
            5,
        ),
        "Heartbeat": (HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), 4),
        "LeaveGroup": (
            LeaveGroupRequest(group_id=GROUP, members=[LeaveGroupRequest.MemberIdentity(member_id="m")]), 4,
        ),
        "DescribeGroups": (DescribeGroupsRequest(groups=names, include_authorized_operations=True), 5),
        "ListGroups": (ListGroupsRequest(), 4),
        "DeleteGroups": (DeleteGroupsRequest(groups_names=["none", "never"]), 2),
        "ConsumerGroupHeartbeat": (
            ConsumerGroupHeartbeatRequest(group_id=GROUP, subscribed_topic_names=[OWN], **beat), 1,
        ),
        "ConsumerGroupHeartbeat for another topic": (
            ConsumerGroupHeartbeatRequest(group_id=GROUP, subscribed_topic_names=[OTHER], **beat), 1,
        ),
        "ConsumerGroupDescribe": (
            ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=True), 1,
        ),
    }  # fmt: skip


def streams_groups() -> dict[str, Question]:
    """Of a group that is none; who joins says nothing of tasks, which is refused last of all."""
    beat, topology = StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatRequest.Topology

    def joins(*sources: str, changelog: str = OWN) -> Question:
        subtopology = Subtopology(
            subtopology_id="0", source_topics=list(sources),
            state_changelog_topics=[TopicInfo(name=changelog)],
        )  # fmt: skip
        request = beat(
            group_id=GROUP, member_id="m", rebalance_timeout_ms=60_000, process_id="p",
            topology=topology(subtopologies=[subtopology]),
        )  # fmt: skip
        return request, 0

    return {
        "StreamsGroupHeartbeat": (beat(group_id=GROUP, member_id="m", member_epoch=7), 0),
        "StreamsGroupHeartbeat joins": joins(OWN),
        "StreamsGroupHeartbeat joins on another topic": joins(OTHER),
        "StreamsGroupHeartbeat joins with another changelog": joins(OWN, changelog=OTHER),
        "StreamsGroupHeartbeat joins on no name": joins("a/b", OTHER),
        "StreamsGroupHeartbeat joins on the broker's": joins("__consumer_offsets", OTHER),
        "StreamsGroupDescribe": (
            StreamsGroupDescribeRequest(
                group_ids=[GROUP, OTHER_GROUP], include_authorized_operations=True
            ),
            0,
        ),
    }  # fmt: skip


def share_groups(ids: Mapping[str, UUID]) -> dict[str, Question]:
    beat, fetched, told = ShareGroupHeartbeatRequest, ShareFetchRequest.FetchTopic, ShareAcknowledgeRequest
    group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    of_topic = group.DescribeShareGroupOffsetsRequestTopic
    altered = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    to_zero = [altered.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)]
    deleted = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    known = [ids[name] for name in (OWN, OTHER)]
    wish = {"max_wait_ms": 100, "max_records": 10, "batch_size": 10}
    return {
        "ShareGroupHeartbeat": (
            beat(group_id=GROUP, member_id="m", member_epoch=7, subscribed_topic_names=[OWN]), 1,
        ),
        "ShareGroupHeartbeat for another topic": (
            beat(group_id=GROUP, member_id="m", member_epoch=7, subscribed_topic_names=[OTHER]), 1,
        ),
        "ShareGroupDescribe": (ShareGroupDescribeRequest(group_ids=[GROUP, OTHER_GROUP]), 1),
        "ShareFetch": (
            ShareFetchRequest(
                group_id=GROUP, member_id="m",
                topics=[
                    fetched(topic_id=one, partitions=[fetched.FetchPartition(partition_index=9)])
                    for one in known
                ],
                **wish,
            ),
            1,
        ),
        "ShareFetch of another group": (ShareFetchRequest(group_id=OTHER_GROUP, member_id="m", **wish), 1),
        "ShareAcknowledge": (told(group_id=GROUP, member_id="n", share_session_epoch=3), 1),
        "DescribeShareGroupOffsets": (
            DescribeShareGroupOffsetsRequest(
                groups=[
                    group(group_id=name, topics=[of_topic(topic_name=one, partitions=[0]) for one in TOPICS])
                    for name in (GROUP, OTHER_GROUP)
                ]
            ),
            1,
        ),
        "AlterShareGroupOffsets": (
            AlterShareGroupOffsetsRequest(
                group_id=GROUP,
                topics=[altered(topic_name=one, partitions=to_zero) for one in (OTHER, MISSING)],
            ),
            0,
        ),
        "DeleteShareGroupOffsets": (
            DeleteShareGroupOffsetsRequest(
                group_id=GROUP, topics=[deleted(topic_name=one) for one in TOPICS]
            ),
            0,
        ),
    }  # fmt: skip


def transactions() -> dict[str, Question]:
    both = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in (OWN, OTHER)]
    producer = {"producer_id": 99, "producer_epoch": 0}
    committed = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    offsets = [
        committed(
            name=name,
            partitions=[committed.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
        )
        for name in (OWN, OTHER)
    ]
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    markers = [marker(topics=[marker.WritableTxnMarkerTopic(name=MISSING, partition_indexes=[0])])]

    def add(names: list[Any]) -> Question:
        old = {f"v3_and_below_{name}": value for name, value in producer.items()}
        return (
            AddPartitionsToTxnRequest(v3_and_below_transactional_id=TX, v3_and_below_topics=names, **old),
            3,
        )

    return {
        "InitProducerId": (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4),
        "InitProducerId of an id": (
            InitProducerIdRequest(transactional_id=OTHER_TX, transaction_timeout_ms=60_000), 4,
        ),
        "AddPartitionsToTxn": add(both),
        "AddPartitionsToTxn of one": add(both[:1]),
        "AddPartitionsToTxn of a broker": (
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                        transactional_id=TX, topics=both, **producer
                    )
                ]
            ),
            5,
        ),
        "AddOffsetsToTxn": (AddOffsetsToTxnRequest(transactional_id=TX, group_id=GROUP, **producer), 3),
        "EndTxn": (EndTxnRequest(transactional_id=TX, **producer), 3),
        "TxnOffsetCommit": (
            TxnOffsetCommitRequest(transactional_id=TX, group_id=GROUP, topics=offsets, **producer), 3,
        ),
        "WriteTxnMarkers": (WriteTxnMarkersRequest(markers=markers), 1),
        "DescribeTransactions": (DescribeTransactionsRequest(transactional_ids=[TX, OTHER_TX]), 0),
        "ListTransactions": (ListTransactionsRequest(), 1),
    }  # fmt: skip


def cluster() -> dict[str, Question]:
    described = DescribeConfigsRequest.DescribeConfigsResource
    kinds = [(TOPIC_KIND, OWN), (TOPIC_KIND, OTHER), (BROKER_KIND, "1")]
    kinds += [(GROUP_KIND, GROUP), (GROUP_KIND, OTHER_GROUP)]
    altered = AlterConfigsRequest.AlterConfigsResource
    changed = IncrementalAlterConfigsRequest.AlterConfigsResource
    quota = AlterClientQuotasRequest.EntryData
    change = changed.AlterableConfig(name="retention.ms", config_operation=0, value="5")
    logs = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[0, 1]) for name in (OWN, OTHER)
    ]
    asked = DescribeQuorumRequest.TopicData
    zeroth = [asked.PartitionData(partition_index=0)]
    quorum, other_quorum = (asked(topic_name=name, partitions=zeroth) for name in ("__cluster_metadata", OWN))
    return {
        "DescribeConfigs": (
            DescribeConfigsRequest(
                resources=[
                    described(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
                    for kind, name in kinds
                ]
            ),
            4,
        ),
        "AlterConfigs": (
            AlterConfigsRequest(
                resources=[altered(resource_type=kind, resource_name=name) for kind, name in kinds[:2]],
                validate_only=True,
            ),
            2,
        ),
        "IncrementalAlterConfigs": (
            IncrementalAlterConfigsRequest(
                resources=[
                    changed(resource_type=kind, resource_name=name, configs=[change] if kind == 2 else [])
                    for kind, name in kinds
                ],
                validate_only=True,
            ),
            1,
        ),
        "ListConfigResources": (ListConfigResourcesRequest(), 1),
        "DescribeLogDirs": (DescribeLogDirsRequest(topics=logs), 4),
        "DescribeLogDirs v2": (DescribeLogDirsRequest(topics=logs), 2),
        "DescribeClientQuotas": (DescribeClientQuotasRequest(components=[], strict=False), 1),
        "AlterClientQuotas": (
            AlterClientQuotasRequest(
                entries=[quota(entity=[quota.EntityData(entity_type="client-id", entity_name="c")], ops=[])]
            ),
            1,
        ),
        "DescribeUserScramCredentials": (DescribeUserScramCredentialsRequest(users=None), 0),
        "AlterUserScramCredentials": (
            AlterUserScramCredentialsRequest(
                deletions=[
                    AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="nobody", mechanism=1)
                ]
            ),
            0,
        ),
        "DescribeQuorum": (DescribeQuorumRequest(topics=[quorum]), 2),
        "DescribeQuorum of a topic": (DescribeQuorumRequest(topics=[other_quorum]), 1),
        "UpdateFeatures": (UpdateFeaturesRequest(), 2),
        "UpdateFeatures, with results": (UpdateFeaturesRequest(), 1),
        "UnregisterBroker": (UnregisterBrokerRequest(broker_id=99), 0),
        "DescribeCluster": (DescribeClusterRequest(include_cluster_authorized_operations=True), 1),
    }  # fmt: skip


def placements() -> dict[str, Question]:
    """Who leads, and where partitions lie."""
    moving = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
    elections = [ElectLeadersRequest.TopicPartitions(topic=OWN, partitions=[0])]
    return {
        "ElectLeaders": (
            ElectLeadersRequest(election_type=0, topic_partitions=elections, timeout_ms=30_000), 2,
        ),
        "AlterPartitionReassignments": (
            AlterPartitionReassignmentsRequest(
                topics=[
                    AlterPartitionReassignmentsRequest.ReassignableTopic(
                        name=OWN, partitions=[moving(partition_index=0, replicas=None)]
                    )
                ]
            ),
            0,
        ),
        "AlterReplicaLogDirs": (
            AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                        path="/nowhere",
                        topics=[
                            AlterReplicaLogDirsRequest.AlterReplicaLogDir.AlterReplicaLogDirTopic(
                                name=OWN, partitions=[0]
                            )
                        ],
                    )
                ]
            ),
            2,
        ),
        "ListPartitionReassignments": (
            ListPartitionReassignmentsRequest(topics=None, timeout_ms=30_000), 0,
        ),
    }  # fmt: skip


def rules() -> dict[str, Question]:
    acl = {"principal": "User:nobody", "host": "*", "operation": 3, "permission_type": 3}
    return {
        "DescribeAcls": (
            DescribeAclsRequest(
                resource_type_filter=2, resource_name_filter="x", pattern_type_filter=1,
                principal_filter=None, host_filter=None, operation=1, permission_type=1,
            ),
            3,
        ),
        "CreateAcls": (
            CreateAclsRequest(
                creations=[CreateAclsRequest.AclCreation(resource_type=2, resource_name="x", **acl)]
            ),
            3,
        ),
        "DeleteAcls": (
            DeleteAclsRequest(
                filters=[
                    DeleteAclsRequest.DeleteAclsFilter(
                        resource_type_filter=2, resource_name_filter="x", principal_filter=None,
                        host_filter=None, operation=1, permission_type=1,
                    )
                ]
            ),
            3,
        ),
    }  # fmt: skip


def tokens() -> dict[str, Question]:
    """For oneself, and for others."""
    owners = {"oneself": (None, None), "another": ("User", "other"), "a group": ("Group", "other")}
    created = {
        f"CreateDelegationToken for {whose}": (
            CreateDelegationTokenRequest(
                owner_principal_type=kind, owner_principal_name=name, renewers=[], max_lifetime_ms=-1
            ),
            3,
        )
        for whose, (kind, name) in owners.items()
    }
    return {
        **created,
        "RenewDelegationToken": (RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), 2),
        "ExpireDelegationToken": (ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), 2),
        "DescribeDelegationToken": (DescribeDelegationTokenRequest(owners=None), 3),
    }


def every_question(ids: Mapping[str, UUID]) -> dict[str, Question]:
    return {
        **records(),
        **by_ids(ids),
        **topics(ids),
        **groups(),
        **share_groups(ids),
        **streams_groups(),
        **transactions(),
        **cluster(),
        **placements(),
        **rules(),
        **tokens(),
    }
