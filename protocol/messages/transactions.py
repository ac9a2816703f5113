"""InitProducerId: the identity under which a producer's batches are numbered. WriteTxnMarkers,
DescribeProducers, ListTransactions: by which an administrator finds and ends a transaction that hangs
(KIP-664).

InitProducerId v2: flexible. v3: a producer may bring the id and epoch it has (KIP-360). v4: PRODUCER_FENCED.
v5: transaction errors (KIP-890). ListTransactions v1: filter by duration.
"""

from __future__ import annotations

from protocol.schema import array, boolean, int16, int32, int64, request, response, string, struct


@request(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    """Ask for a producer id, or for the next epoch of a transactional one."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@response(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    """The producer id and epoch."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


@request(key=27, versions="1", flexible="1+")
class WriteTxnMarkersRequest:
    """Ask for the end of transactions in single partitions."""

    @struct
    class WritableTxnMarker:
        @struct
        class WritableTxnMarkerTopic:
            name: str = string()
            partition_indexes: list[int] = array(int32)

        producer_id: int = int64()
        producer_epoch: int = int16()
        transaction_result: bool = boolean()
        topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
        coordinator_epoch: int = int32()

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@response(key=27, versions="1", flexible="1+")
class WriteTxnMarkersResponse:
    """Where it was written."""

    @struct
    class WritableTxnMarkerResult:
        @struct
        class WritableTxnMarkerTopicResult:
            @struct
            class WritableTxnMarkerPartitionResult:
                partition_index: int = int32()
                error_code: int = int16()

            name: str = string()
            partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)

        producer_id: int = int64()
        topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


@request(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Ask what partitions know of their producers."""

    @struct
    class TopicRequest:
        name: str = string()
        partition_indexes: list[int] = array(int32)

    topics: list[TopicRequest] = array(TopicRequest)


@response(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """The producers of each partition."""

    @struct
    class TopicResponse:
        @struct
        class PartitionResponse:
            @struct
            class ProducerState:
                producer_id: int = int64()
                producer_epoch: int = int32()
                last_sequence: int = int32(default=-1)
                last_timestamp: int = int64(default=-1)
                coordinator_epoch: int = int32()
                current_txn_start_offset: int = int64(default=-1)

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            active_producers: list[ProducerState] = array(ProducerState)

        name: str = string()
        partitions: list[PartitionResponse] = array(PartitionResponse)

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)


@request(key=66, versions="0-1", flexible="0+")
class ListTransactionsRequest:
    """Ask for the transactions that a coordinator knows; an empty filter leaves all."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)


@response(key=66, versions="0-1", flexible="0+")
class ListTransactionsResponse:
    """The transactions."""

    @struct
    class TransactionState:
        transactional_id: str = string()
        producer_id: int = int64()
        transaction_state: str = string()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
