"""Transactions that an Apache Kafka left open in its data directory, ended as its coordinator would (T104).

Transactions are not served, so that no producer can end them: readers of committed records and the cleaner
would wait for good. `__transaction_state` says what the coordinator had decided: those markers are written at
start, before the groups are read; and what was going on: that is aborted when its timeout is over, as by a
Kafka that starts again. What it does not know of stays open for an administrator (`kompakt topics abort`,
WriteTxnMarkers). Mirrors Kafka's `TransactionCoordinator`.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from broker.topic import TRANSACTIONS_TOPIC
from protocol.batch import is_intact
from protocol.codegen import decode
from protocol.errors import KafkaError, MalformedFrame, UnsupportedVersion
from protocol.messages.internal import TransactionLogValue
from protocol.records import decode_batch
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from storage.log import Log

logger = logging.getLogger(__name__)

LOOK_MS = 10_000
"""Kafka's transaction.abort.timed.out.transaction.cleanup.interval.ms"""
_VERSION = struct.Struct(">h")


class Status(IntEnum):
    """Of a transactional id (Kafka's `TransactionState`)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


STATE_NAMES = frozenset(status.name.title().replace("_", "") for status in Status)
"""as clients spell them"""


class Left(NamedTuple):
    """A transaction that is open in a partition, how it ends, and when (0: at once)."""

    topic_partition: TopicPartition
    producer_id: int
    is_commit: bool
    due_ms: int


def read_values(logs: Iterable[Log]) -> list[TransactionLogValue]:
    """The last value of every transactional id, as far as it can be read. May wait for the disk."""
    latest: dict[bytes, bytes | None] = {}
    for log in logs:
        try:
            for header, data in log.scan(log.log_start_offset):
                if not header.is_control and is_intact(data, 0, header):
                    latest.update((one.key, one.value) for one in decode_batch(data) if one.key is not None)
        except (OSError, KafkaError) as error:
            logger.error("what %s knows of transactions is not read: %s", log.name, error)
    values = []
    for key, raw in latest.items():
        if raw is None:
            continue
        try:
            (version,) = _VERSION.unpack_from(raw)
            values.append(decode(TransactionLogValue, version, raw, _VERSION.size))
        except (MalformedFrame, UnsupportedVersion, struct.error) as error:
            logger.warning("unreadable record of %s, key %r, skipped: %s", TRANSACTIONS_TOPIC, key, error)
    return values


def left_open(
    values: Iterable[TransactionLogValue], open_ones: Mapping[TopicPartition, Iterable[int]]
) -> Iterator[Left]:
    """Which of the open transactions (producer ids by partition) a coordinator knew, and their ends."""
    open_pairs = {(place, producer_id) for place, ids in open_ones.items() for producer_id in ids}
    for value in values:
        status, due_ms = value.transaction_status, 0
        if status == Status.ONGOING:
            due_ms = value.transaction_start_timestamp_ms + value.transaction_timeout_ms
        elif status not in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT, Status.PREPARE_EPOCH_FENCE):
            continue
        for topic in value.transaction_partitions or ():
            for index in topic.partition_ids:
                place = TopicPartition(topic.topic, index)
                if (place, value.producer_id) in open_pairs:
                    yield Left(place, value.producer_id, status == Status.PREPARE_COMMIT, due_ms)


class LeftTransactions:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._left: list[Left] = []

    async def find(self) -> None:
        """Before anything is served: end what was decided, remember what has its time."""
        broker = self._broker
        open_ones = {
            topic_partition: partition.log.producers.open_transactions()
            for topic_partition, partition in broker.partitions.items()
        }
        if not any(open_ones.values()):
            return
        logs = [
            partition.log
            for topic_partition, partition in broker.partitions.items()
            if topic_partition.topic == TRANSACTIONS_TOPIC and partition.log.offline_reason is None
        ]
        values = await broker.run_blocking(read_values, logs)
        self._left = list(left_open(values, open_ones))
        await self.end_due()

    def due_ms(self, topic_partition: TopicPartition, producer_id: int) -> int | None:
        """When this transaction is aborted; None: never by itself."""
        return next((one.due_ms for one in self._left if one[:2] == (topic_partition, producer_id)), None)

    async def end_due(self) -> None:
        """End those whose time has come; one that cannot be written is tried again."""
        now_ms = self._broker.clock.now_ms()
        self._left = [one for one in self._left if one.due_ms > now_ms or not self._end(one, now_ms)]

    def _end(self, left: Left, now_ms: int) -> bool:
        """Whether nothing is to be done any more."""
        partition = self._broker.partitions.get(left.topic_partition)
        first_offset = (
            None if partition is None else partition.log.producers.open_transactions().get(left.producer_id)
        )
        if partition is None or first_offset is None:
            return True  # deleted, or ended by somebody
        try:
            partition.end_open_transaction(left.producer_id, now_ms, is_commit=left.is_commit)
        except KafkaError as error:
            logger.error("a transaction of %s stays open: %s", left.topic_partition, error)
            return False
        logger.info(
            "%s: the transaction of producer %d, open since offset %d, was %s, as its coordinator would",
            left.topic_partition,
            left.producer_id,
            first_offset,
            "committed" if left.is_commit else "aborted",
        )
        return True
