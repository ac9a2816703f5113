"""Produce (key 0), v3-v13, advertised from v0.

Appends each partition's batch in the order of the request, straight from the receive buffer. acks=1 is
answered from the page cache, acks=all when a flush has covered the batch (group commit), acks=0 not at all:
there an error closes the connection, as Kafka does, so that the client looks again. A refused partition
leaves the others alone (T145). v0-v2 are advertised and refused: librdkafka before 2.11.1 would else turn
compression off (G2). Records of a transaction are taken where it takes part (KIP-890; v11 knows
TRANSACTION_ABORTABLE); with v12 it takes part by them (transactions v2, G15). v7 allows zstd (T151b); v8 says
which records were refused and why (T144); v10's leader hints are absent (one node). v13 knows topics by their
ids: what a producer still has for one that was deleted does not go into another of that name (G6).
`min.insync.replicas` never refuses: Kafka asks for no more replicas than there are. `timeout_ms` bounds
Kafka's wait for replicas; here it has nothing to bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker import produce_template
from broker.api import Later, handles
from broker.context import RequestContext
from broker.counters import TopicCounters
from broker.handlers.transactional import ATTRIBUTES_POSITION, Transaction, is_transactional
from broker.partition import Partition
from broker.produce_template import TOPIC_ID_VERSION, ProduceTemplate
from protocol.batch import CODEC_MASK
from protocol.compression import Codec
from protocol.errors import ErrorCode, InvalidRecords, KafkaError
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.one_look import Seen
from storage.types import Appended

if TYPE_CHECKING:
    from broker.broker import Broker

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.TopicProduceResponse.PartitionProduceResponse.BatchIndexAndErrorMessage
Asked = Sequence[tuple[int, memoryview | None, Seen | None]]
"""of each partition of a topic: its number, its records, and what was seen of them if they are usual"""
Placed = list[Appended | PartitionAnswer]
"""where the records of each of them went, or the answer that says why they did not: an error that was raised
would hold the records, by its traceback"""
Topics = Sequence[tuple[str, UUID, list[int], Placed]]
"""of each its name, its id, if the request has that, and the partitions by number: the records would be held
until a flush has ended"""
Waits = list[tuple[Placed, int, int, asyncio.Future[None]]]
"""what is safe when a flush has ended, and is not yet: which one of them, the number of its partition"""

ACKS_ALL = -1
NO_OFFSET = -1
ZSTD_VERSION = 7
WITHOUT_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)
"""refusals of an append that do not tell where the log begins, unless they are InvalidRecords (Kafka's
ReplicaManager.appendRecordsToLocalLog; before it, ProduceRequest.validateRecords)"""


@handles(ProduceRequest)
def produce(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Later | None:
    """HeldUp, before anything is written, where one of the partitions takes no records for a moment."""
    acks = request.acks
    waits: Waits = []
    topics: list[tuple[str, UUID, list[int], Placed]] = []
    refused: str | None = None
    now_ms = broker.clock.now_ms()
    if context.api_version >= TOPIC_ID_VERSION:
        broker.topics.name_rows(request.topic_data)
    if broker.moves.ending:
        for topic in request.topic_data:
            broker.moves.check(topic.name, (data.index for data in topic.partition_data))
    transaction = None
    if request.transactional_id is not None:
        transaction = Transaction(broker, request.transactional_id, context.api_version)
        transaction.join(request)
    for topic in request.topic_data:
        asked = [(data.index, data.records, None) for data in topic.partition_data]
        placed, reason = _append_each(
            broker, topic.name, asked, context.api_version, acks, transaction, waits, now_ms
        )
        topics.append((topic.name, topic.topic_id, [index for index, *_ in asked], placed))
        refused = refused or reason
    if waits:
        return _when_flushed(topics, waits, None)
    if acks:
        return _response(topics)
    if refused is not None and context.connection is not None:
        context.connection.end(f"acks=0: {refused}")
    return None


def produce_alike(
    broker: Broker,
    template: ProduceTemplate,
    correlation_id: int,
    asked: produce_template.Asked,
    now_ms: int,
) -> bytes | ProduceResponse | Later:
    """What `produce` answers to a request that `template` knows: a response where it has to tell of an error,
    else the encoded one. HeldUp, as there.
    """
    topic, topic_id = template.topic, template.topic_id  # others when a flush ends, if the client went on
    if broker.moves.ending:
        broker.moves.check(topic, (index for index, *_ in asked))
    waits: Waits = []
    placed, refused = _append_each(broker, topic, asked, template.version, template.acks, None, waits, now_ms)
    answer = template.answer(correlation_id, asked, placed) if refused is None else None
    if answer is not None and not waits:
        return answer
    topics = [(topic, topic_id, [index for index, *_ in asked], placed)]
    return _when_flushed(topics, waits, answer) if waits else _response(topics)


def _when_flushed(topics: Topics, waits: Waits, encoded: bytes | None) -> Later:
    """The answer when the flushes are over, which is `encoded` if there is one and none of them failed."""

    def finish() -> bytes | ProduceResponse:
        if encoded is None or any(wait.exception() for *_, wait in waits):
            return _after_flush(topics, waits)
        return encoded

    return Later([wait for *_, wait in waits], finish)


def _append_each(
    broker: Broker,
    topic: str,
    asked: Asked,
    version: int,
    acks: int,
    transaction: Transaction | None,
    waits: Waits,
    now_ms: int,
) -> tuple[Placed, str | None]:
    """Append the records of each partition of a topic, and count them; the first refusal's reason, if any.
    With acks=all those that are not flushed yet are put to `waits`, and what their transaction waits for.
    """
    placed: Placed = []
    refused: str | None = None
    partitions: Mapping[Any, Partition] = broker.partitions
    for index, records, seen in asked:
        partition: Partition | None = partitions.get((topic, index))
        checked: Partition | None = None
        try:
            if partition is None or partition.is_internal or seen is None:
                if not topic and version >= TOPIC_ID_VERSION:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                checked = _checked(partition, version, acks, transaction, records)
            else:
                checked = partition
            assert records is not None
            appended = checked.append(records, now_ms, seen=seen)
        except KafkaError as error:
            if partition is not None:
                _count_refusal(partition.counters, error, records)
            placed.append(_refused(index, error, _told_start(checked, error)))
            refused = refused or str(error)
            continue
        counters = checked.counters
        counters.produce_requests += 1
        counters.messages_in += appended.last_offset - appended.base_offset + 1
        counters.bytes_in += len(records)
        placed.append(appended)
        if acks == ACKS_ALL:
            flushed = checked.when_flushed(appended.last_offset + 1)
            if flushed is not None:
                waits.append((placed, len(placed) - 1, index, flushed))
        if acks and transaction is not None and transaction.joined is not None:
            waits.append((placed, len(placed) - 1, index, transaction.joined))
    return placed, refused


def _told_start(checked: Partition | None, error: KafkaError) -> int:
    """Where the log begins that these records were refused for, if its append has begun."""
    if checked is None or (error.code in WITHOUT_START and not isinstance(error, InvalidRecords)):
        return NO_OFFSET
    return checked.log.log_start_offset


def _checked(
    partition: Partition | None,
    version: int,
    acks: int,
    transaction: Transaction | None,
    records: memoryview | None,
) -> Partition:
    """The partition, when these records may be appended to it as far as can be seen without reading them."""
    if not -1 <= acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}")
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{partition.topic_partition.topic} is written by the broker only",
        )
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "one record batch per partition is required")
    if len(records) <= ATTRIBUTES_POSITION:
        return partition
    attributes = records[ATTRIBUTES_POSITION]
    if is_transactional(records):
        if transaction is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional records without a transactional id",
            )
        transaction.check(partition, records)
    if version < ZSTD_VERSION and attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7")
    return partition


def _after_flush(topics: Topics, waits: Waits) -> ProduceResponse:
    """The flushes are over; what one could not make durable is not acknowledged."""
    for placed, number, index, flushed in waits:
        error = flushed.exception()
        if error is not None:
            placed[number] = _refused(index, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
    return _response(topics)


def _response(topics: Topics) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicAnswer(
                name=name,
                topic_id=topic_id,
                partition_responses=[_answer(index, one) for index, one in zip(indices, placed, strict=True)],
            )
            for name, topic_id, indices, placed in topics
        ]
    )


def _answer(index: int, placed: Appended | PartitionAnswer) -> PartitionAnswer:
    if isinstance(placed, PartitionAnswer):
        return placed
    return PartitionAnswer(
        index=index,
        base_offset=placed.base_offset,
        log_append_time_ms=placed.log_append_time_ms,
        log_start_offset=placed.log_start_offset,
    )


def _refused(index: int, error: KafkaError, log_start_offset: int = NO_OFFSET) -> PartitionAnswer:
    record_errors = error.record_errors if isinstance(error, InvalidRecords) else ()
    return PartitionAnswer(
        index=index,
        error_code=error.code,
        base_offset=NO_OFFSET,
        log_start_offset=log_start_offset,
        record_errors=[
            RecordError(batch_index=batch_index, batch_index_error_message=text)
            for batch_index, text in record_errors
        ],
        error_message=error.message or None,
    )


def _count_refusal(counters: TopicCounters, error: KafkaError, records: memoryview | None) -> None:
    counters.produce_requests += 1
    counters.failed_produce_requests += 1
    counters.bytes_rejected += len(records or b"")
    match error.code:
        case ErrorCode.CORRUPT_MESSAGE:
            counters.invalid_message_crc_records += 1
        case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER | ErrorCode.INVALID_PRODUCER_EPOCH:
            counters.invalid_offset_or_sequence_records += 1
        case ErrorCode.INVALID_RECORD:
            reason = error.message
            if isinstance(error, InvalidRecords) and error.record_errors:
                reason = error.record_errors[0][1]
            if "without key" in reason:
                counters.no_key_compacted_topic_records += 1
            elif "magic" in reason:
                counters.invalid_magic_number_records += 1
            else:
                counters.invalid_offset_or_sequence_records += 1
