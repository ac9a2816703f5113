"""Records of a transaction in a Produce: whether somebody will end the transaction that they are a part of,
for readers of committed records would wait at them for ever.

Up to v11 the transaction takes part in a partition before (AddPartitionsToTxn, KIP-890 part 1); from v12 on
it does so by the records themselves (transactions v2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.state_topic import Producer
from broker.topic import TRANSACTIONS_TOPIC
from protocol.batch import HEADER_BYTES, MAGIC, MAGIC_POSITION, TRANSACTIONAL, unpack_producer
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.partition import Partition
    from protocol.messages.produce import ProduceRequest
    from storage.layout import TopicPartition

ATTRIBUTES_POSITION = 22  # the low byte
ABORTABLE_VERSION = 11
JOINING_VERSION = 12
# What a producer is told where the coordinator cannot say now: to send again.
_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


def is_transactional(records: memoryview) -> bool:
    """Whether a batch is a part of a transaction; one that is no batch will be refused for that."""
    return (
        len(records) >= HEADER_BYTES
        and records[MAGIC_POSITION] == MAGIC
        and bool(records[ATTRIBUTES_POSITION] & TRANSACTIONAL)
    )


def is_superseded(partition: Partition, producer: Producer) -> bool:
    """Whether the log knows a later epoch of the producer: what it sends is refused there, and no transaction
    takes part by it.
    """
    state = partition.log.producers.producers.get(producer.producer_id)
    return state is not None and producer.epoch < state.epoch


def check_epoch(partition: Partition, producer: Producer) -> None:
    """Raise if the producer `is_superseded`, before its coordinator is asked, as Kafka does."""
    if is_superseded(partition, producer):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{partition.topic_partition} knows a later epoch of producer {producer.producer_id} "
            f"than {producer.epoch}",
        )


class Transaction:
    """That of one request. Owned by: event loop."""

    def __init__(self, broker: Broker, transactional_id: str, version: int) -> None:
        self.joined: asyncio.Future[None] | None = None
        """before this has ended, nothing is answered"""
        self._broker = broker
        self._id = transactional_id
        self._version = version
        self._refusal: KafkaError | None = None

    @property
    def _joins(self) -> bool:
        return self._version >= JOINING_VERSION

    def join(self, request: ProduceRequest) -> None:
        """Take part where the request writes to, if its version means that. HeldUp, where that cannot be
        written down for a moment.
        """
        if not self._joins:
            return
        broker, producer = self._broker, None
        places: list[TopicPartition] = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                partition = broker.partitions.get((topic.name, data.index))  # type: ignore[call-overload]
                if partition is None or partition.is_internal or not data.records:
                    continue
                if not is_transactional(data.records):
                    continue
                producer = producer or _producer_of(data.records)
                if not is_superseded(partition, _producer_of(data.records)):
                    places.append(partition.topic_partition)
        if producer is None or not places:
            return
        if broker.moves.ending:
            place = broker.transactions.place_of(self._id)
            broker.moves.check(TRANSACTIONS_TOPIC, (place.partition,))
        try:
            self.joined = broker.transactions.join(self._id, producer, places)
        except KafkaError as error:
            self._refusal = error

    def check(self, partition: Partition, records: memoryview) -> None:
        """Raise unless these records may follow, which `is_transactional`."""
        producer_id, epoch, base_sequence = unpack_producer(records)
        check_epoch(partition, Producer(producer_id, epoch))
        try:
            if self._refusal is not None:
                raise self._refusal
            self._broker.transactions.check_part(
                self._id, Producer(producer_id, epoch), partition.topic_partition
            )
        except KafkaError as error:
            raise KafkaError(self._code(error.code), error.message) from error
        if self._joins and base_sequence != 0 and producer_id not in partition.log.producers.producers:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"nothing is known of producer {producer_id} in {partition.topic_partition}, and its "
                f"sequence begins with {base_sequence}",
            )

    def _code(self, code: ErrorCode) -> ErrorCode:
        """As the request's version knows it."""
        if code is ErrorCode.TRANSACTION_ABORTABLE and self._version < ABORTABLE_VERSION:
            return ErrorCode.INVALID_TXN_STATE
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and not self._joins:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return _ERRORS.get(code, code)


def _producer_of(records: memoryview) -> Producer:
    producer_id, epoch, _ = unpack_producer(records)
    return Producer(producer_id, epoch)
