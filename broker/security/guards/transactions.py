"""Guards of transactions and producer ids."""

from __future__ import annotations

from typing import Any

from broker.api import Answer
from broker.security.acls import Operation, Resource
from broker.security.guards.call import Call, after, as_whole, by_row, guards, name_of, of_cluster, split
from protocol.errors import ErrorCode
from protocol.messages.transactions import (
    OF_BROKERS_VERSION,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

ID, TOPIC, GROUP = Resource.TRANSACTIONAL_ID, Resource.TOPIC, Resource.GROUP

guards(WriteTxnMarkersRequest)(of_cluster(Operation.ALTER, Operation.CLUSTER_ACTION))
guards(EndTxnRequest)(as_whole(Operation.WRITE, ID, "transactional_id"))


@guards(InitProducerIdRequest)
def init_producer_id(call: Call) -> Answer:
    """Without a transaction: who may write into some topic."""
    transactional_id = call.request.transactional_id
    if transactional_id is not None:
        if call.may(Operation.WRITE, ID, transactional_id):
            return call.go_on()
        return call.refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if call.may_cluster(Operation.IDEMPOTENT_WRITE):
        return call.go_on()
    if call.authorizer.allows_somewhere(call.asker, Operation.WRITE, TOPIC):
        return call.go_on()
    return call.refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


@guards(AddPartitionsToTxnRequest)
def add_partitions_to_txn(call: Call) -> Answer:
    """All of them, or none: those that could be added are not attempted. Of another broker that it is one."""
    request = call.request
    if call.context.api_version >= OF_BROKERS_VERSION:
        if call.may_cluster(Operation.CLUSTER_ACTION):
            return call.go_on()
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not call.may(Operation.WRITE, ID, request.v3_and_below_transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _none_added([(row, code) for row in request.v3_and_below_topics])
    allowed, refused = split(
        request.v3_and_below_topics, lambda row: call.may(Operation.WRITE, TOPIC, row.name)
    )
    if not refused:
        return call.go_on()
    codes = [(row, ErrorCode.OPERATION_NOT_ATTEMPTED) for row in allowed]
    codes += [(row, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for row in refused]
    return _none_added(codes)


def _none_added(codes: list[tuple[Any, ErrorCode]]) -> AddPartitionsToTxnResponse:
    topic = AddPartitionsToTxnTopicResult
    partition = topic.AddPartitionsToTxnPartitionResult
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            topic(
                name=row.name,
                results_by_partition=[
                    partition(partition_index=index, partition_error_code=code) for index in row.partitions
                ],
            )
            for row, code in codes
        ]
    )


@guards(AddOffsetsToTxnRequest)
def add_offsets_to_txn(call: Call) -> Answer:
    if not call.may(Operation.WRITE, ID, call.request.transactional_id):
        return call.refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not call.may(Operation.READ, GROUP, call.request.group_id):
        return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return call.go_on()


@guards(TxnOffsetCommitRequest)
def txn_offset_commit(call: Call) -> Answer:
    if not call.may(Operation.WRITE, ID, call.request.transactional_id):
        return call.refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not call.may(Operation.READ, GROUP, call.request.group_id):
        return call.refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return by_row(call, "topics", name_of, Operation.READ, TOPIC, "topics")


@guards(DescribeTransactionsRequest)
def describe_transactions(call: Call) -> Answer:
    """Of the topics of a transaction those that the client may know."""

    def without_secret_topics(answer: Any) -> Any:
        for row in answer.transaction_states:
            row.topics = [one for one in row.topics if call.may(Operation.DESCRIBE, TOPIC, one.topic)]
        return answer

    answer = by_row(call, "transactional_ids", str, Operation.DESCRIBE, ID, "transaction_states")
    return after(answer, without_secret_topics)


@guards(ListTransactionsRequest)
def list_transactions(call: Call) -> Answer:
    def those_that_may_be_known(answer: Any) -> Any:
        answer.transaction_states = [
            row for row in answer.transaction_states if call.may(Operation.DESCRIBE, ID, row.transactional_id)
        ]
        return answer

    return after(call.go_on(), those_that_may_be_known)
