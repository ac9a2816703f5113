"""One transactional id: what may follow on what, who is fenced. Pure: no clock, no input or output.

With transactions v2 (KIP-890) each end gives the producer its next epoch, so that what it has sent before,
and comes late, is no part of what follows.

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
V2 = 2
"""what clients are told of as the version of the feature `transaction.version`"""


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
    # With v2: what follows on the producer id when the transaction has ended, if its epochs are used up.
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    """of transactions, as its producer knows them: V2 or less"""

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    @property
    def successor(self) -> Producer:
        """The producer when what is ending has ended."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer
        return Producer(self.next_producer_id, 0)

    @property
    def is_exhausted(self) -> bool:
        """Whether with v2 the end of the transaction needs another producer id."""
        return self.epoch >= EXHAUSTED_EPOCH

    @property
    def shares_epoch(self) -> bool:
        """Whether what follows has the epoch of the transaction that has ended: of what a power cut leaves,
        nobody could say then to which of them it belongs.
        """
        return self.client_version < V2 and self.status in (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)

    @property
    def due_ms(self) -> int | None:
        """When it is aborted if its producer does not end it; None: no transaction is going on."""
        return self.started_ms + self.timeout_ms if self.status is Status.ONGOING else None

    def check_producer(self, producer: Producer) -> None:
        """Raise unless this is who has the id now."""
        if producer == self.successor != self.producer:
            self._check_not_ending()
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

    def with_partitions(
        self, partitions: Iterable[TopicPartition], now_ms: int, client_version: int = 0
    ) -> TransactionState | None:
        """AddPartitionsToTxn, or with v2 the records themselves; None when they all take part already."""
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
            previous_producer_id=self.producer_id,  # who had the id before has lost it for good
            client_version=client_version,
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
            return replace(self, status=prepare, updated_ms=now_ms, client_version=0)
        if self.status is complete:
            return None
        if self.status is prepare:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is ending")
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"the transaction is {self.status.label}")

    def ended_v2(
        self, producer: Producer, next_producer_id: int, *, is_commit: bool, now_ms: int
    ) -> TransactionState | None:
        """EndTxn of v2, by `producer`; None when that has been done: the request was sent again. What has not
        begun can be aborted, for a producer need not know whether anything of it has arrived.
        """
        is_again = self._is_sent_again(producer)
        complete = Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT
        if self.status is Status.ONGOING:
            prepare = Status.PREPARE_COMMIT if is_commit else Status.PREPARE_ABORT
            return self._left(prepare, now_ms, next_producer_id, V2)
        if self.status in ENDING:
            if is_commit is (self.status is Status.PREPARE_COMMIT):
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is ending")
        elif is_again and self.status is complete:
            return None
        elif not is_again and not is_commit:
            aborted = self._left(Status.PREPARE_ABORT, now_ms, next_producer_id, V2)
            return replace(aborted, started_ms=now_ms)
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"the transaction is {self.status.label}")

    def _is_sent_again(self, producer: Producer) -> bool:
        """Whether it has ended the transaction already, and was not answered: it has the epoch that was
        before. Raise unless it may ask.
        """
        is_rotated = self.epoch == 0 and producer == (self.previous_producer_id, EXHAUSTED_EPOCH)
        if producer.producer_id != self.producer_id and not is_rotated:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the id belongs to another producer")
        is_bumped = producer == (self.producer_id, self.epoch - 1)
        if self.status in ENDING:
            is_known = is_bumped
        elif self.status in (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT):
            is_known = is_bumped or is_rotated or producer == self.producer
        else:
            is_known = producer == self.producer
        if not is_known:
            raise KafkaError(ErrorCode.PRODUCER_FENCED, f"the epoch is {self.epoch}, not {producer.epoch}")
        return is_bumped or is_rotated

    def fenced(self, now_ms: int, next_producer_id: int = NO_PRODUCER_ID) -> TransactionState:
        """Ongoing, aborted against its producer: what that sends from now on is of an old epoch. It may still
        go on by InitProducerId with the epoch that it had (KIP-360), or with v2 by ending it, as long as no
        other one has begun.
        """
        assert self.status is Status.ONGOING
        return self._left(Status.PREPARE_ABORT, now_ms, next_producer_id, self.client_version)

    def _left(
        self, status: Status, now_ms: int, next_producer_id: int, client_version: int
    ) -> TransactionState:
        """The next epoch has the id; what is of the one before is decided."""
        return replace(
            self,
            epoch=min(self.epoch + 1, MAX_EPOCH),
            last_epoch=self.epoch,
            status=status,
            updated_ms=now_ms,
            next_producer_id=next_producer_id,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> TransactionState:
        """All markers are on disk."""
        is_commit = self.status is Status.PREPARE_COMMIT
        return replace(
            self,
            producer_id=self.successor.producer_id,
            epoch=self.successor.epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            status=Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
        )

    def has(self, producer: Producer, topic_partition: TopicPartition) -> bool:
        """Whether what is open in a log at this epoch of the producer is a part of the transaction. With v2
        what has another epoch is not: what follows on one that is ending, or what an end was lost of.
        """
        if topic_partition not in self.partitions or producer.producer_id != self.producer_id:
            return False
        if self.client_version < V2:
            return True
        return producer.epoch < self.epoch if self.status in ENDING else producer.epoch == self.epoch

    def epoch_of_abort(self, producer: Producer) -> int:
        """Of the marker that aborts what is open in a log at this epoch of the producer, though it is no part
        of the transaction. With v2 its producer may not have been answered yet, and send the records again:
        they are refused then, where the log would else take them for what it has already.
        """
        is_v2 = self.client_version >= V2 or self.status is Status.EMPTY
        return min(producer.epoch + (is_v2 and producer == self.successor), MAX_EPOCH)
