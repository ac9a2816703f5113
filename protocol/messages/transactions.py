"""Transactions: the identity of a producer (InitProducerId), what a transaction takes part in
(AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit), its end (EndTxn). WriteTxnMarkers, DescribeProducers,
DescribeTransactions, ListTransactions: by which an administrator sees them and ends one that hangs (KIP-664).

InitProducerId v2: flexible. v3: a producer may bring the id and epoch it has (KIP-360). v4: PRODUCER_FENCED.
v5: transaction errors (KIP-890). The four others of producers: v2 PRODUCER_FENCED (TxnOffsetCommit: leader
epochs), v3 flexible (TxnOffsetCommit: the member and its generation as well, KIP-447), v4
TRANSACTION_ABORTABLE (AddPartitionsToTxn: v5; its v4 is how one broker asks another, about several
transactions). EndTxn and TxnOffsetCommit v5: transactions v2 (KIP-890, G15). ListTransactions v1: filter by
duration.
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


OF_BROKERS_VERSION = 4
"""of AddPartitionsToTxn, from which on one broker asks another"""


@struct
class AddPartitionsToTxnTopic:
    """What to add of a topic."""

    name: str = string()
    partitions: list[int] = array(int32)


@request(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """Before the first record goes to a partition: the transaction takes part in it. Of brokers that ask for
    their clients (v4): of several transactions at once, or only whether they do.
    """

    @struct
    class AddPartitionsToTxnTransaction:
        transactional_id: str = string("4+")
        producer_id: int = int64("4+")
        producer_epoch: int = int16("4+")
        verify_only: bool = boolean("4+")
        topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@struct
class AddPartitionsToTxnTopicResult:
    """What came of it, a row a partition."""

    @struct
    class AddPartitionsToTxnPartitionResult:
        partition_index: int = int32()
        partition_error_code: int = int16()

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@response(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """By topic, or by transaction."""

    @struct
    class AddPartitionsToTxnResult:
        transactional_id: str = string("4+")
        topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")

    throttle_time_ms: int = int32()
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )


@request(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Before a group's offsets are committed by a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@response(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """What came of it."""

    throttle_time_ms: int = int32()
    error_code: int = int16()


@request(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """Commit or abort."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@response(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """What came of it, and who the producer is from now on."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)


@request(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """Store how far a group has consumed, as a part of a transaction."""

    @struct
    class TxnOffsetCommitRequestTopic:
        @struct
        class TxnOffsetCommitRequestPartition:
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("2+", default=-1)
            committed_metadata: str | None = string(nullable="0+")

        name: str = string()
        partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@response(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """What came of it, a row a partition."""

    @struct
    class TxnOffsetCommitResponseTopic:
        @struct
        class TxnOffsetCommitResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


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


@request(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Ask what a coordinator knows of transactional ids."""

    transactional_ids: list[str] = array(string)


@response(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """Each of them."""

    @struct
    class TransactionState:
        @struct
        class TopicData:
            topic: str = string()
            partitions: list[int] = array(int32)

        error_code: int = int16()
        transactional_id: str = string()
        transaction_state: str = string()
        transaction_timeout_ms: int = int32()
        transaction_start_time_ms: int = int64()
        producer_id: int = int64()
        producer_epoch: int = int16()
        topics: list[TopicData] = array(TopicData)

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)


@request(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Ask for the transactions that a coordinator knows; an empty filter leaves all."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


@response(key=66, versions="0-2", flexible="0+")
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
