"""Produce (key 0), v3-v11, advertised from v0.

Appends each partition's batch in the order of the request, straight from the receive buffer. acks=1 is
answered from the page cache, acks=all when a flush has covered the batch (group commit), acks=0 not at all:
there an error closes the connection, as Kafka does, so that the client looks again. A refused partition
leaves the others alone (T145). v0-v2 are advertised and refused: librdkafka before 2.11.1 would else turn
compression off (G2). v7 allows zstd (T151b); v8 says which records were refused and why (T144); v10's
leader hints are absent (one node); v12 and v13 belong to transactions v2 and topic ids and are not served
(G15). `min.insync.replicas` never refuses: Kafka asks for no more replicas than there are. `timeout_ms`
bounds Kafka's wait for replicas; here it has nothing to bound.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.api import Later, handles
from broker.context import RequestContext
from broker.counters import TopicCounters
from broker.partition import Partition
from broker.produce_template import ProduceTemplate
from protocol.batch import CODEC_MASK, MAGIC, MAGIC_POSITION, TRANSACTIONAL
from protocol.compression import Codec
from protocol.errors import ErrorCode, InvalidRecords, KafkaError
from protocol.messages.produce import ProduceRequest, ProduceResponse
from storage.types import Appended

if TYPE_CHECKING:
    from broker.broker import Broker

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.TopicProduceResponse.PartitionProduceResponse.BatchIndexAndErrorMessage
Waits = list[tuple[PartitionAnswer, asyncio.Future[None]]]

ACKS_ALL = -1
NO_OFFSET = -1
ZSTD_VERSION = 7
ATTRIBUTES_POSITION = 22  # the low byte


@handles(ProduceRequest)
def produce(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Later | None:
    acks = request.acks
    waits: Waits = []
    topics: list[TopicAnswer] = []
    is_refused = False
    now_ms = broker.clock.now_ms()
    for topic in request.topic_data:
        name = topic.name
        answers: list[PartitionAnswer] = []
        for data in topic.partition_data:
            partition = broker.partition(name, data.index)
            try:
                base_offset, last_offset, log_append_time_ms, log_start_offset, _ = _appended(
                    partition, context.api_version, acks, request.transactional_id, data.records, now_ms
                )
            except KafkaError as error:
                is_refused = True
                answers.append(_refused(data.index, error))
                continue
            answer = PartitionAnswer(
                index=data.index,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
            )
            answers.append(answer)
            if acks == ACKS_ALL:
                assert partition is not None
                flushed = partition.when_flushed(last_offset + 1)
                if flushed is not None:
                    waits.append((answer, flushed))
        topics.append(TopicAnswer(name=name, partition_responses=answers))
    response = ProduceResponse(responses=topics)
    if waits:
        return Later([wait for _, wait in waits], lambda: _after_flush(response, waits))
    if acks:
        return response
    if is_refused and context.connection is not None:
        refused = next(
            answer for topic in topics for answer in topic.partition_responses if answer.error_code
        )
        code = ErrorCode(refused.error_code)
        context.connection.end(f"acks=0: {KafkaError(code, refused.error_message or '')}")
    return None


def produce_alike(
    broker: Broker, template: ProduceTemplate, correlation_id: int, index: int, records: memoryview
) -> bytearray | ProduceResponse | Later:
    """What `produce` answers to a request that `template` knows: a response where it has to tell of an error,
    else the encoded one.
    """
    topic = template.topic  # which is another one when a flush ends, if the client went on to that
    partition = broker.partition(topic, index)
    try:
        base_offset, last_offset, log_append_time_ms, log_start_offset, _ = _appended(
            partition, template.version, template.acks, None, records, broker.clock.now_ms()
        )
    except KafkaError as error:
        return _refusal(topic, index, error)
    answer = template.answer(correlation_id, index, base_offset, log_append_time_ms, log_start_offset)
    if template.acks == ACKS_ALL:
        assert partition is not None
        flushed = partition.when_flushed(last_offset + 1)
        if flushed is not None:
            return Later([flushed], lambda: _when_flushed(flushed, answer, topic, index))
    return answer


def _appended(
    partition: Partition | None,
    version: int,
    acks: int,
    transactional_id: str | None,
    records: memoryview | None,
    now_ms: int,
) -> Appended:
    """Append the records to the partition, and count them; KafkaError when they are refused."""
    try:
        checked = _checked(partition, version, acks, transactional_id, records)
        assert records is not None
        appended = checked.append(records, now_ms)
    except KafkaError as error:
        if partition is not None:
            _count_refusal(partition.counters, error, records)
        raise
    counters = checked.counters
    counters.produce_requests += 1
    counters.messages_in += appended.last_offset - appended.base_offset + 1
    counters.bytes_in += len(records)
    return appended


def _checked(
    partition: Partition | None,
    version: int,
    acks: int,
    transactional_id: str | None,
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
    if transactional_id is not None:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    if records and _is_transactional(records):
        # Nobody could end the transaction, and readers of committed records would wait at it for ever.
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional records without a transactional id",
        )
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "one record batch per partition is required")
    if (
        version < ZSTD_VERSION
        and len(records) > ATTRIBUTES_POSITION
        and records[ATTRIBUTES_POSITION] & CODEC_MASK == Codec.ZSTD
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7")
    return partition


def _is_transactional(records: memoryview) -> bool:
    is_readable = len(records) > ATTRIBUTES_POSITION and records[MAGIC_POSITION] == MAGIC
    return is_readable and bool(records[ATTRIBUTES_POSITION] & TRANSACTIONAL)


def _after_flush(response: ProduceResponse, waits: Waits) -> ProduceResponse:
    """The flushes are over; what one could not make durable is not acknowledged."""
    for answer, wait in waits:
        error = wait.exception()
        if error is not None:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            answer.error_message = str(error)
            answer.base_offset = NO_OFFSET
            answer.log_append_time_ms = NO_OFFSET
            answer.log_start_offset = NO_OFFSET
    return response


def _when_flushed(
    flushed: asyncio.Future[None], answer: bytearray, topic: str, index: int
) -> bytearray | ProduceResponse:
    """The flush of one partition is over; `answer` is what says so when it made the records durable."""
    error = flushed.exception()
    if error is None:
        return answer
    return _refusal(topic, index, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))


def _refusal(topic: str, index: int, error: KafkaError) -> ProduceResponse:
    answer = TopicAnswer(name=topic, partition_responses=[_refused(index, error)])
    return ProduceResponse(responses=[answer])


def _refused(index: int, error: KafkaError) -> PartitionAnswer:
    record_errors = error.record_errors if isinstance(error, InvalidRecords) else ()
    return PartitionAnswer(
        index=index,
        error_code=error.code,
        base_offset=NO_OFFSET,
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
