"""One transactional id: what may follow on what, who is fenced. Pure: no clock, no input or output.

    Empty, CompleteCommit, CompleteAbort ──partitions──> Ongoing ──end──> PrepareCommit, PrepareAbort
      ^ └─producer (next epoch)─┘                          │ └partitions┘          │
      │                                                    └─fence (next epoch)────┤
      └──────────────────────── completed (all markers are on disk) ───────────────┘

Mirrors Kafka's `TransactionMetadata` and the checks of `TransactionCoordinator`. A function returns the state
that follows, or raises what the producer is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from broker.state_topic import Producer
from protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from protocol.errors import ErrorCode, KafkaError
from storage.layout import TopicPartition

MAX_EPOCH = 2**15 - 1
EXHAUSTED_EPOCH = MAX_EPOCH - 1
"""the last that a producer is given: the one behind it is left for who fences it"""


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

    @property
    def label(self) -> str:
        """As clients spell it."""
        return self.name.title().replace("_", "")


ENDING = frozenset({Status.PREPARE_COMMIT, Status.PREPARE_ABORT})
AT_REST = frozenset({Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT})
STATE_NAMES = frozenset(status.label for status in Status)


@dataclass(frozen=True, slots=True)
class TransactionState:
    """What is known of a transactional id; times are ms since 1970."""

    producer_id: int
    epoch: int
    timeout_ms: int
    status: Status = Status.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    # Of the same producer, before its last InitProducerId: by which one that is sent again is known.
    last_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    @property
    def due_ms(self) -> int | None:
        """When it is aborted if its producer does not end it; None: no transaction is going on."""
        return self.started_ms + self.timeout_ms if self.status is Status.ONGOING else None

    def check_producer(self, producer: Producer) -> None:
        """Raise unless this is who has the id now."""
        if producer.producer_id != self.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the id belongs to another producer")
        if producer.epoch != self.epoch:
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED, f"the epoch is {self.epoch}, that of the request {producer.epoch}"
            )

    def needs_new_producer_id(self, expected: Producer | None) -> bool:
        """Whether the next producer cannot have an epoch of this producer id."""
        return self.epoch >= EXHAUSTED_EPOCH and (expected is None or expected.epoch == self.epoch)

    def initialized(
        self, expected: Producer | None, timeout_ms: int, now_ms: int, new_producer_id: int | None = None
    ) -> TransactionState:
        """InitProducerId, while nothing is going on: the next epoch, or a new producer id when there is none.
        `expected` is who goes on after an error (KIP-360), None a producer that begins.
        """
        self.check_expected(expected)
        if new_producer_id is not None:
            return TransactionState(
                new_producer_id,
                0,
                timeout_ms,
                updated_ms=now_ms,
                last_epoch=NO_PRODUCER_EPOCH if expected is None else self.epoch,
                previous_producer_id=self.producer_id,
            )
        epoch, last_epoch = self.epoch + 1, NO_PRODUCER_EPOCH
        if expected is not None and self.epoch != NO_PRODUCER_EPOCH:
            if expected.epoch == self.epoch:
                last_epoch = self.epoch
            elif expected.epoch == self.last_epoch:  # sent again: the answer was lost
                epoch, last_epoch = self.epoch, self.last_epoch
            else:
                raise KafkaError(ErrorCode.PRODUCER_FENCED, f"the epoch is {self.epoch}")
        return TransactionState(
            self.producer_id,
            epoch,
            timeout_ms,
            updated_ms=now_ms,
            last_epoch=last_epoch,
            previous_producer_id=self.previous_producer_id,
        )

    def check_expected(self, expected: Producer | None) -> None:
        """Raise unless a producer that goes on is the one that had the id."""
        if expected is None or self.epoch == NO_PRODUCER_EPOCH or expected.producer_id == self.producer_id:
            return
        if expected.producer_id != self.previous_producer_id or expected.epoch < EXHAUSTED_EPOCH:
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "the id belongs to another producer")

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int) -> TransactionState | None:
        """AddPartitionsToTxn; None when they all take part already."""
        self._check_not_ending()
        wanted = frozenset(partitions)
        if self.status is Status.ONGOING and wanted <= self.partitions:
            return None
        return replace(
            self,
            status=Status.ONGOING,
            partitions=self.partitions | wanted,
            started_ms=self.started_ms if self.status is Status.ONGOING else now_ms,
            updated_ms=now_ms,
        )

    def check_part(self, topic_partition: TopicPartition) -> None:
        """Raise unless the transaction takes part in the partition (KIP-890)."""
        self._check_not_ending()
        if self.status is not Status.ONGOING or topic_partition not in self.partitions:
            raise KafkaError(
                ErrorCode.TRANSACTION_ABORTABLE, f"{topic_partition} was not added to the transaction"
            )

    def _check_not_ending(self) -> None:
        if self.status in ENDING:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is ending")

    def ended(self, *, is_commit: bool, now_ms: int) -> TransactionState | None:
        """EndTxn; None when it has just ended so: the request was sent again."""
        complete = Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT
        prepare = Status.PREPARE_COMMIT if is_commit else Status.PREPARE_ABORT
        if self.status is Status.ONGOING:
            return replace(self, status=prepare, updated_ms=now_ms)
        if self.status is complete:
            return None
        if self.status is prepare:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is ending")
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"the transaction is {self.status.label}")

    def fenced(self, now_ms: int) -> TransactionState:
        """Ongoing, aborted against its producer: what that sends from now on is of an old epoch. It may still
        go on by InitProducerId with the epoch that it had (KIP-360), as long as no other one has begun.
        """
        assert self.status is Status.ONGOING
        return replace(
            self,
            epoch=min(self.epoch + 1, MAX_EPOCH),
            last_epoch=self.epoch,
            status=Status.PREPARE_ABORT,
            updated_ms=now_ms,
        )

    def completed(self, now_ms: int) -> TransactionState:
        """All markers are on disk."""
        is_commit = self.status is Status.PREPARE_COMMIT
        return replace(
            self,
            status=Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
        )
