"""InitProducerId (key 22) v0-v5, AddPartitionsToTxn (24) v0-v5, AddOffsetsToTxn (25) v0-v4, EndTxn (26)
v0-v5, TxnOffsetCommit (28) v0-v5: producers, with transactions and without.

Without a transactional id every InitProducerId gets a fresh id with epoch 0, which is never given again, not
even after a crash (`producer_ids.py`). A producer that sends its old id and epoch (v3, KIP-360) gets a fresh
id as well, as Kafka does for producers without transactions. With one the coordinator decides
(`broker/transactions/`). Transactions v2 (KIP-890, G15) are EndTxn 5, which gives the producer its next
epoch, and TxnOffsetCommit 5, by which the transaction takes part in the group's offsets. AddPartitionsToTxn
v4 and v5 are how brokers of a Kafka ask each other, about several transactions, and whether a partition was
added. Kafka tells clients of them too (against G16): they take v3 at most, and some guess its release by it.

Version notes: PRODUCER_FENCED is known from AddPartitionsToTxn, AddOffsetsToTxn and EndTxn v2 and
InitProducerId v4 on, INVALID_PRODUCER_EPOCH before; TRANSACTION_ABORTABLE from TxnOffsetCommit v4 on,
INVALID_TXN_STATE before.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING

from broker.api import Later, handles
from broker.context import RequestContext
from broker.groups.commits import CommitRequest, Outcome
from broker.handlers.group_offsets import commit_rows, positions_of
from broker.handlers.transactional import check_epoch
from broker.state_topic import Producer
from broker.topic import INTERNAL_TOPICS
from broker.transactions.state import V2
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.transactions import (
    OF_BROKERS_VERSION,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker

logger = logging.getLogger(__name__)

NONE = -1
"""the id, or the epoch, of a producer that has none yet"""
ABORTABLE_VERSION = 4
"""of TxnOffsetCommit"""
V2_VERSION = 5
"""of EndTxn and TxnOffsetCommit"""
INIT_FENCED_VERSION = 4
FENCED_VERSION = 2
FINAL = frozenset(
    {ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""refusals of EndTxn behind which a client gives its producer up, where its user will ask why"""


# InitProducerId


@handles(InitProducerIdRequest)
def init_producer_id(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    has_id, has_epoch = request.producer_id != NONE, request.producer_epoch != NONE
    if request.transactional_id == "" or has_id != has_epoch:
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _with_transactions(broker, context, request.transactional_id, request)
    producer_id = broker.producer_ids.next_now()
    if producer_id is not None:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    return _after_allocation(broker)


async def _after_allocation(broker: Broker) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        return _refused(error.code)


async def _with_transactions(
    broker: Broker, context: RequestContext, transactional_id: str, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    expected = None
    if request.producer_id != NONE:
        expected = Producer(request.producer_id, request.producer_epoch)
    transactions = broker.transactions
    try:
        producer = await transactions.shielded(
            transactions.init_producer_id(transactional_id, request.transaction_timeout_ms, expected)
        )
    except KafkaError as error:
        return _refused(_known(error.code, context.api_version >= INIT_FENCED_VERSION))
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)


def _known(code: ErrorCode, knows_fenced: bool) -> ErrorCode:
    """The code in a version that may not know PRODUCER_FENCED."""
    is_new = code is ErrorCode.PRODUCER_FENCED and not knows_fenced
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_new else code


# AddPartitionsToTxn, AddOffsetsToTxn


@handles(AddPartitionsToTxnRequest)
async def add_partitions(
    broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.api_version >= OF_BROKERS_VERSION:
        return await _of_brokers(broker, request)
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    codes = _obstacles(broker, _places(request.v3_and_below_topics))
    if not any(codes.values()):
        code = await _take_part(broker, request.v3_and_below_transactional_id, producer, codes)
        codes = dict.fromkeys(codes, _known(code, context.api_version >= FENCED_VERSION))
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_results(request.v3_and_below_topics, codes)
    )


async def _of_brokers(broker: Broker, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Each transaction by itself. To none at all Kafka never answers."""
    results = []
    for row in request.transactions:
        codes = _obstacles(broker, _places(row.topics))
        producer = Producer(row.producer_id, row.producer_epoch)
        if not any(codes.values()) and row.verify_only:
            codes = _taking_part(broker, row.transactional_id, producer, codes)
        elif not any(codes.values()):
            code = await _take_part(broker, row.transactional_id, producer, codes, V2)
            codes = dict.fromkeys(codes, code)
        results.append(
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=row.transactional_id, topic_results=_results(row.topics, codes)
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _places(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _results(
    topics: list[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    partition_result = AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                partition_result(
                    partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _obstacles(broker: Broker, places: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """What each is refused with, NONE if nothing: where one cannot be, the others are not attempted."""
    codes = {place: _why_not(broker, place) for place in places}
    if any(codes.values()):
        return {place: code or ErrorCode.OPERATION_NOT_ATTEMPTED for place, code in codes.items()}
    return codes


def _taking_part(
    broker: Broker, transactional_id: str, producer: Producer, places: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether the transaction does already, as Produce asks."""
    if not transactional_id:
        return dict.fromkeys(places, ErrorCode.INVALID_REQUEST)
    codes = {}
    for place in places:
        try:
            broker.transactions.check_part(transactional_id, producer, place)
        except KafkaError as error:
            codes[place] = error.code
        else:
            codes[place] = ErrorCode.NONE
    return codes


def _why_not(broker: Broker, place: TopicPartition) -> ErrorCode:
    if place.topic in INTERNAL_TOPICS:  # which no producer could write to
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE if place in broker.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _take_part(
    broker: Broker,
    transactional_id: str,
    producer: Producer,
    places: Iterable[TopicPartition],
    client_version: int = 0,
) -> ErrorCode:
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    transactions = broker.transactions
    try:
        adding = transactions.add_partitions(transactional_id, producer, places, client_version)
        await transactions.shielded(adding)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@handles(AddOffsetsToTxnRequest)
async def add_offsets(
    broker: Broker, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    try:
        await broker.groups.ensure_offsets_topic()
    except KafkaError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    producer = Producer(request.producer_id, request.producer_epoch)
    place = broker.groups.place_of(request.group_id)
    code = await _take_part(broker, request.transactional_id, producer, [place])
    return AddOffsetsToTxnResponse(error_code=_known(code, context.api_version >= FENCED_VERSION))


# EndTxn


@handles(EndTxnRequest)
async def end_txn(broker: Broker, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    transactions = broker.transactions
    producer = Producer(request.producer_id, request.producer_epoch)
    is_v2 = context.api_version >= V2_VERSION
    end = transactions.end_v2 if is_v2 else transactions.end
    try:
        after = await transactions.shielded(
            end(request.transactional_id, producer, is_commit=request.committed)
        )
    except KafkaError as error:
        if error.code in FINAL:
            logger.info(
                "%s of %r is refused to producer %d with epoch %d (client %r on %s): %s",
                "commit" if request.committed else "abort", request.transactional_id, *producer,
                context.client_id, context.client_host, error,
            )  # fmt: skip
        return EndTxnResponse(error_code=_known(error.code, context.api_version >= FENCED_VERSION))
    return EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.epoch)


# TxnOffsetCommit


@handles(TxnOffsetCommitRequest)
def commit_offsets_in_transaction(
    broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Later:
    producer = Producer(request.producer_id, request.producer_epoch)
    commit = CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        retention_ms=NONE,
        positions=positions_of(request.topics),
        producer=producer,
    )
    if not any(position.topic_partition in broker.partitions for position in commit.positions):
        # Nothing begins then, and nothing else is looked at (as in Kafka).
        nowhere = broker.groups.refused_commit(commit, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _commit_response(request, nowhere)
    joined = None
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        place = broker.groups.place_of(request.group_id)
        partition = broker.partitions.get(place)
        if partition is not None:
            check_epoch(partition, producer)
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if context.api_version >= V2_VERSION:
            joined = broker.transactions.join(request.transactional_id, producer, [place])
        else:
            broker.transactions.check_part(request.transactional_id, producer, place)
        outcome = broker.groups.commit(commit, api_version=context.api_version)
    except KafkaError as error:
        outcome = broker.groups.refused_commit(commit, _of_commit(error.code, context.api_version))
    waits = [wait for wait in (joined, outcome.flushed) if wait is not None]
    if not waits:
        return _commit_response(request, outcome)

    def finish() -> TxnOffsetCommitResponse:
        if joined is not None and joined.exception() is not None:
            refused = broker.groups.refused_commit(commit, ErrorCode.NOT_COORDINATOR)
            return _commit_response(request, refused)
        return _commit_response(request, outcome)

    return Later(waits, finish)


def _of_commit(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < V2_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.STALE_MEMBER_EPOCH:
        return ErrorCode.ILLEGAL_GENERATION
    return _known(code, knows_fenced=False)


def _commit_response(request: TxnOffsetCommitRequest, outcome: Outcome) -> TxnOffsetCommitResponse:
    topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    rows = commit_rows(request.topics, outcome, topic, topic.TxnOffsetCommitResponsePartition)
    return TxnOffsetCommitResponse(topics=rows)
