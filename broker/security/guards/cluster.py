"""Guards of what is about the broker as a whole: rules and users, directories, elections, its description."""

from __future__ import annotations

from typing import Any

from broker.api import Answer
from broker.security.acls import CLUSTER_NAME, Operation, Resource
from broker.security.delegation import not_created, owner, who_may_not_ask
from broker.security.guards.call import Call, after, guards, of_cluster
from protocol.errors import ErrorCode
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from protocol.messages.configs import ListConfigResourcesRequest
from protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from protocol.messages.features import UnregisterBrokerRequest, UpdateFeaturesRequest
from protocol.messages.metadata import DescribeClusterRequest
from protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from protocol.messages.users import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest

DESCRIBING = of_cluster(Operation.DESCRIBE)
ALTERING = of_cluster(Operation.ALTER)
Altered = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
NOT_ASKED = -(1 << 31)

DESCRIBED: tuple[type[Any], ...] = (
    DescribeAclsRequest, DescribeUserScramCredentialsRequest, ListPartitionReassignmentsRequest,
)  # fmt: skip
ALTERED: tuple[type[Any], ...] = (
    CreateAclsRequest, DeleteAclsRequest, AlterUserScramCredentialsRequest, ElectLeadersRequest,
    AlterPartitionReassignmentsRequest, UnregisterBrokerRequest, UpdateFeaturesRequest,
)  # fmt: skip
for request in DESCRIBED:
    guards(request)(DESCRIBING)
for request in ALTERED:
    guards(request)(ALTERING)
for request in (DescribeClientQuotasRequest, ListConfigResourcesRequest):
    guards(request)(of_cluster(Operation.DESCRIBE_CONFIGS))
guards(AlterClientQuotasRequest)(of_cluster(Operation.ALTER_CONFIGS))
for request in (DescribeDelegationTokenRequest, ExpireDelegationTokenRequest, RenewDelegationTokenRequest):
    guards(request)(Call.go_on)  # rules are about tokens that are there


def cluster_operations(call: Call) -> int:
    """What the client may do with the cluster, if it may know it."""
    if not call.may_cluster(Operation.DESCRIBE):
        return 0
    return call.authorizer.operations(call.asker, Resource.CLUSTER, CLUSTER_NAME)


@guards(AlterReplicaLogDirsRequest)
def alter_replica_log_dirs(call: Call) -> Answer:
    """The answer is by topic, where the request is by directory."""
    if call.may_cluster(Operation.ALTER):
        return call.go_on()
    topics = [topic for directory in call.request.dirs for topic in directory.topics]
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return AlterReplicaLogDirsResponse(
        results=[
            Altered(
                topic_name=topic.name,
                partitions=[
                    Altered.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


@guards(DescribeLogDirsRequest)
def describe_log_dirs(call: Call) -> Answer:
    """Old versions have no place to say that it is refused: there are no directories."""
    if call.may_cluster(Operation.DESCRIBE):
        return call.go_on()
    return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@guards(DescribeQuorumRequest)
def describe_quorum(call: Call) -> Answer:
    """The partitions are not told of one by one."""
    if call.may_cluster(Operation.DESCRIBE):
        return call.go_on()
    return call.refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[])


@guards(DescribeClusterRequest)
def describe_cluster(call: Call) -> Answer:
    def with_operations(answer: Any) -> Any:
        if answer.cluster_authorized_operations != NOT_ASKED:
            answer.cluster_authorized_operations = cluster_operations(call)
        return answer

    return after(call.go_on(), with_operations)


@guards(CreateDelegationTokenRequest)
def create_delegation_token(call: Call) -> Answer:
    """For oneself everybody may ask."""
    whose = owner(call.context, call.request)
    if (
        whose == call.context.principal
        or who_may_not_ask(call.context)
        or call.may(Operation.CREATE_TOKENS, Resource.USER, whose)
    ):
        return call.go_on()
    code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    return not_created(call.context, call.request, code)
