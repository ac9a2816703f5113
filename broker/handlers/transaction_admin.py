"""DescribeProducers (key 61) v0, WriteTxnMarkers (27) v1, DescribeTransactions (65) v0, ListTransactions (66)
v0-v2: by which Kafka's tools and clients see transactions and who writes to a partition, and find and end a
transaction that hangs (KIP-664).

A directory of Apache Kafka may bring open ones that no coordinator knows of, which hold readers of committed
records and the cleaner back (T104). An administrator reads producer, epoch and coordinator's epoch from
DescribeProducers and has a marker written. A marker is written whether or not a transaction is open, as in
Kafka; the answer waits for its flush.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.api import Later, handles
from broker.context import RequestContext
from broker.handlers.offsets import find_partition
from broker.patterns import compiled
from broker.state_topic import call_when_flushed
from broker.topic import METADATA_TOPIC, TRANSACTIONS_TOPIC
from broker.transactions.state import STATE_NAMES, TransactionState
from config.topic import topic_name_problem
from protocol.control import Marker
from protocol.errors import NOT_HOSTED, ErrorCode, KafkaError
from protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from broker.broker import Broker
    from storage.producer_state import ProducerState

WantedMarker = WriteTxnMarkersRequest.WritableTxnMarker
MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
MarkerTopic = MarkerResult.WritableTxnMarkerTopicResult
MarkerPartition = MarkerTopic.WritableTxnMarkerPartitionResult
ProducersTopic = DescribeProducersResponse.TopicResponse
ProducersPartition = ProducersTopic.PartitionResponse
DescribedId = DescribeTransactionsResponse.TransactionState
Flush = tuple[MarkerPartition, asyncio.Future[None]]
NONE = -1


@handles(DescribeProducersRequest)
def describe_producers(
    broker: Broker, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            ProducersTopic(
                name=topic.name,
                partitions=[_producers_of(broker, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers_of(broker: Broker, topic: str, index: int) -> ProducersPartition:
    try:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        partition = find_partition(broker, topic, index)
    except KafkaError as error:
        message = error.message or NOT_HOSTED
        return ProducersPartition(partition_index=index, error_code=error.code, error_message=message)
    states = partition.log.producers.producers.values()
    return ProducersPartition(partition_index=index, active_producers=[_described(one) for one in states])


def _described(state: ProducerState) -> ProducersPartition.ProducerState:
    return ProducersPartition.ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=NONE if state.transaction_start is None else state.transaction_start,
    )


@handles(WriteTxnMarkersRequest)
def write_txn_markers(
    broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Later:
    response, flushes = WriteTxnMarkersResponse(), list[Flush]()
    for marker in request.markers:
        result = MarkerResult(producer_id=marker.producer_id)
        for topic in marker.topics:
            rows = [MarkerPartition(partition_index=index) for index in topic.partition_indexes]
            for row in rows:
                try:
                    flushed = _write_one(broker, marker, topic.name, row.partition_index)
                except KafkaError as error:
                    row.error_code = error.code
                else:
                    flushes += [(row, flushed)] if flushed is not None else []
            result.topics.append(MarkerTopic(name=topic.name, partitions=rows))
        response.markers.append(result)
    if not flushes:
        return response

    def finish() -> WriteTxnMarkersResponse:
        for row, flushed in flushes:
            if flushed.exception() is not None:
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return response

    return Later([flushed for _, flushed in flushes], finish)


def _write_one(broker: Broker, wanted: WantedMarker, topic: str, index: int) -> asyncio.Future[None] | None:
    """The flush that makes it durable, if that is not over. KafkaError: nothing was written."""
    partition = find_partition(broker, topic, index)
    if topic in (METADATA_TOPIC, TRANSACTIONS_TOPIC):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    is_commit = wanted.transaction_result
    flushed = partition.end_transaction(
        Marker(is_commit, wanted.coordinator_epoch),
        wanted.producer_id,
        wanted.producer_epoch,
        broker.clock.now_ms(),
    )

    def end_offsets(error: KafkaError | None) -> None:
        if error is None:
            place = partition.topic_partition
            broker.groups.end_transaction(place, wanted.producer_id, is_commit=is_commit)

    call_when_flushed(flushed, end_offsets)
    return flushed


@handles(DescribeTransactionsRequest)
def describe_transactions(
    broker: Broker, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_described_id(broker, one) for one in dict.fromkeys(request.transactional_ids)]
    )


def _described_id(broker: Broker, transactional_id: str) -> DescribedId:
    code, state = ErrorCode.NONE, None
    if not transactional_id:
        code = ErrorCode.INVALID_REQUEST
    else:
        try:
            state = broker.transactions.find(transactional_id)
        except KafkaError as error:
            code = error.code
        else:
            code = ErrorCode.NONE if state is not None else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if state is None:
        return DescribedId(error_code=code, transactional_id=transactional_id)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(state.partitions):
        by_topic.setdefault(topic, []).append(index)
    return DescribedId(
        transactional_id=transactional_id,
        transaction_state=state.status.label,
        transaction_timeout_ms=state.timeout_ms,
        transaction_start_time_ms=state.started_ms,
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        topics=[DescribedId.TopicData(topic=name, partitions=indexes) for name, indexes in by_topic.items()],
    )


@handles(ListTransactionsRequest)
def list_transactions(
    broker: Broker, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in STATE_NAMES]
    pattern = None
    if request.transactional_id_pattern:
        pattern = compiled(request.transactional_id_pattern, "Transaction ID pattern")
    now_ms = broker.clock.now_ms()
    listed = ListTransactionsResponse.TransactionState
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            listed(
                transactional_id=transactional_id,
                producer_id=state.producer_id,
                transaction_state=state.status.label,
            )
            for transactional_id, state in broker.transactions.states.items()
            if _is_wanted(state, request, now_ms) and (pattern is None or pattern.fullmatch(transactional_id))
        ],
    )


def _is_wanted(state: TransactionState, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.producer_id_filters and state.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and state.status.label not in request.state_filters:
        return False
    if request.duration_filter < 0:
        return True
    return now_ms - state.started_ms > request.duration_filter  # of what never began, too, as in Kafka
