"""DescribeProducers (key 61) v0, WriteTxnMarkers (27) v1, ListTransactions (66) v0-v1: by which Kafka's tools
and clients find and end a transaction that hangs (KIP-664), and see who writes to a partition.

Transactions are not served, but a directory of Apache Kafka may bring open ones, which hold readers of
committed records and the cleaner back (T104). An administrator reads producer, epoch and coordinator's epoch
from DescribeProducers and has a marker written. A marker is written whether or not a transaction is open, as
in Kafka; the answer waits for its flush. No coordinator is here that would know a transactional id.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.api import Later, handles
from broker.context import RequestContext
from broker.handlers.offsets import find_partition
from broker.left_transactions import STATE_NAMES
from broker.topic import METADATA_TOPIC, OFFSETS_TOPIC
from protocol.control import Marker
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
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
        partition = find_partition(broker, topic, index)
    except KafkaError as error:
        return ProducersPartition(partition_index=index, error_code=error.code)
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
    """The flush that makes it durable, if that is not over. KafkaError: nothing was written.

    What a commit says of `__consumer_offsets` is read at start only: there transactions are but aborted.
    """
    partition = find_partition(broker, topic, index)
    if topic == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if wanted.transaction_result and topic == OFFSETS_TOPIC:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    marker = Marker(wanted.transaction_result, wanted.coordinator_epoch)
    return partition.end_transaction(marker, wanted.producer_id, wanted.producer_epoch, broker.clock.now_ms())


@handles(ListTransactionsRequest)
def list_transactions(
    broker: Broker, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in STATE_NAMES]
    return ListTransactionsResponse(unknown_state_filters=unknown)
