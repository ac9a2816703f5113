"""What a partition remembers of its idempotent and transactional producers (Kafka's
`ProducerStateManager`).

Pure: takes headers and numbers, and the bytes of `.snapshot` files (`replay.py` reads and writes those), so
that every rule of T155-T164 can be tried without a disk. The last five batches of a producer are remembered,
by which a re-sent batch is recognised and answered with the offsets it already has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from struct import Struct, error
from typing import NamedTuple

import crc32c
import numpy

from protocol.batch import (
    CONTROL,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
)
from protocol.control import Marker
from protocol.errors import ErrorCode, KafkaError
from storage.batch_table import Longs
from storage.types import AbortedTransaction, LastRecord, LogLimits

REMEMBERED_BATCHES = 5
SNAPSHOT_VERSION = 1
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1

_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CHECKED_FROM = 6
_new_tuple = tuple.__new__  # of a named one, without its Python


class BatchMetadata(NamedTuple):
    """One remembered batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


class ProducerState:
    """One producer. Owned by: the log's owner."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_start: int | None = None
        self.batches: deque[BatchMetadata] = deque(maxlen=REMEMBERED_BATCHES)

    def copy(self) -> ProducerState:
        made = ProducerState(self.producer_id, self.epoch)
        made.coordinator_epoch = self.coordinator_epoch
        made.last_timestamp = self.last_timestamp
        made.transaction_start = self.transaction_start
        made.batches.extend(self.batches)
        return made

    def add(self, base_sequence: int, last_offset: int, last_offset_delta: int, timestamp: int) -> None:
        """A batch of this producer and its epoch is in the log."""
        last_sequence = base_sequence
        if last_sequence != NO_SEQUENCE:  # as `BatchHeader.last_sequence`, without a call
            last_sequence = (last_sequence + last_offset_delta) & MAX_SEQUENCE
        self.batches.append(
            _new_tuple(BatchMetadata, (last_sequence, last_offset, last_offset_delta, timestamp))
        )
        self.last_timestamp = timestamp

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int | None:
        return self.batches[-1].last_offset if self.batches else None

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch that `header` re-sends."""
        if header.producer_epoch != self.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended; it stays unstable until its marker is below the high
    watermark.
    """

    first_offset: int
    last_offset: int


class ProducerStateManager:
    """All producers of one partition. Owned by: event loop (recovery: the thread that opens the log)."""

    __slots__ = ("_completed", "_limits", "_open", "first_unstable_offset", "producers")

    def __init__(self, limits: LogLimits | None = None) -> None:
        self.producers: dict[int, ProducerState] = {}
        self._limits = limits or LogLimits()
        self.first_unstable_offset: int | None = None
        self._open: dict[int, int] = {}  # producer id -> first offset of its open transaction
        self._completed: list[CompletedTransaction] = []

    # Checking a batch of a client, before anything is written

    def check(self, header: BatchHeader, name: str) -> BatchMetadata | None:
        """None when the batch may be appended; the remembered batch when it is a duplicate; else
        KafkaError.
        """
        state = self.producers.get(header.producer_id)
        if state is None:
            return None
        batches = state.batches
        if (
            batches
            and header.base_sequence == batches[-1].last_sequence + 1
            and header.producer_epoch == state.epoch
            and (state.transaction_start is None or header.attributes & TRANSACTIONAL)
        ):
            return None  # the one behind the last, as nearly all are
        duplicate = state.duplicate_of(header)
        if duplicate is not None:
            return duplicate
        self._check_epoch(header, state, name)
        self._check_sequence(header, state, name)
        if state.transaction_start is not None and not header.attributes & TRANSACTIONAL:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id} at {name}",
            )
        return None

    def next_in_line(self, producer_id: int, epoch: int, base_sequence: int) -> ProducerState | None:
        """The producer, if it is known and goes on where its last batch ended, outside of a transaction: what
        `check` takes. None tells nothing.
        """
        state = self.producers.get(producer_id)
        if state is None or state.epoch != epoch or state.transaction_start is not None or not state.batches:
            return None
        return state if base_sequence == state.batches[-1].last_sequence + 1 else None

    def check_marker(self, header: BatchHeader, marker: Marker, name: str) -> None:
        """Whether a coordinator may end the transaction of this producer."""
        state = self.producers.get(header.producer_id)
        if state is None:
            return
        self._check_epoch(header, state, name)
        if state.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {header.producer_id} at {name}: "
                f"{marker.coordinator_epoch} (zombie), {state.coordinator_epoch} (current)",
            )

    @staticmethod
    def _check_epoch(header: BatchHeader, state: ProducerState, name: str) -> None:
        if header.producer_epoch < state.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} at {name} is {header.producer_epoch}, "
                f"which is smaller than the last seen epoch {state.epoch}",
            )

    @staticmethod
    def _check_sequence(header: BatchHeader, state: ProducerState, name: str) -> None:
        first = header.base_sequence
        if header.producer_epoch != state.epoch:
            if first != 0 and state.epoch != NO_PRODUCER_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {header.producer_id} at {name}: "
                    f"{header.producer_epoch} (request epoch), {first} (seq. number), "
                    f"{state.epoch} (current epoch)",
                )
            return
        last = state.last_sequence
        if first == last + 1 or (first == 0 and last == MAX_SEQUENCE):
            return
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id} at {name}: "
            f"{first} (incoming seq. number), {last} (current end sequence number)",
        )

    # Taking note of what was written or is found in the log

    def update(self, header: BatchHeader, base_offset: int) -> bool:
        """A batch is in the log at `base_offset`; whether it began a transaction. A control batch that is no
        marker changes nothing.
        """
        if header.attributes & CONTROL:
            return False
        state = self.producers.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = self._state(header)
        delta = header.last_offset_delta
        state.add(header.base_sequence, base_offset + delta, delta, header.max_timestamp)
        if header.attributes & TRANSACTIONAL and state.transaction_start is None:
            state.transaction_start = base_offset
            self._open[header.producer_id] = base_offset
            self._find_unstable()
            return True
        return False

    def update_marker(self, header: BatchHeader, marker: Marker, offset: int) -> AbortedTransaction | None:
        """A marker is in the log at `offset`; the transaction index entry that it makes."""
        state = self._state(header)
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp = header.max_timestamp
        first_offset, state.transaction_start = state.transaction_start, None
        if first_offset is None:
            return None
        del self._open[header.producer_id]
        completed = CompletedTransaction(first_offset, offset)
        stable = min(self._open.values(), default=offset + 1)
        self._completed.append(completed)
        self._find_unstable()
        if marker.is_commit:
            return None
        return AbortedTransaction(header.producer_id, first_offset, offset, stable)

    def _state(self, header: BatchHeader) -> ProducerState:
        state = self.producers.get(header.producer_id)
        if state is None:
            if len(self.producers) >= self._limits.max_producers:
                self._make_room()
            state = ProducerState(header.producer_id, header.producer_epoch)
            self.producers[header.producer_id] = state
        elif header.producer_epoch != state.epoch:
            state.epoch = header.producer_epoch
            state.batches.clear()
        return state

    def _make_room(self) -> None:
        """Forget the longest silent tenth of the producers that have no open transaction."""
        idle = [state for state in self.producers.values() if state.transaction_start is None]
        idle.sort(key=lambda state: state.last_timestamp)
        for state in idle[: max(1, len(self.producers) // 10)]:
            del self.producers[state.producer_id]

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions whose markers are below it are decided for good."""
        if self._completed:
            self._completed = [done for done in self._completed if done.last_offset >= high_watermark]
            self._find_unstable()

    def _find_unstable(self) -> None:
        first = min(self._open.values(), default=None)
        for done in self._completed:
            if first is None or done.first_offset < first:
                first = done.first_offset
        self.first_unstable_offset = first

    def open_transactions(self) -> dict[int, int]:
        """producer id -> first offset of its open transaction."""
        return dict(self._open)

    def expire(self, now_ms: int) -> None:
        """Forget producers that were silent too long and have no open transaction."""
        gone = [
            producer_id
            for producer_id, state in self.producers.items()
            if state.transaction_start is None and self._is_expired(state, now_ms)
        ]
        for producer_id in gone:
            del self.producers[producer_id]

    def active_producers(self) -> dict[int, LastRecord]:
        """What the cleaner has to spare for each living producer."""
        return {
            producer_id: LastRecord(state.last_data_offset, state.epoch)
            for producer_id, state in self.producers.items()
        }

    def has_room_for(self, producer_ids: Longs) -> bool:
        """Whether these can be added without any being forgotten."""
        room = self._limits.max_producers - len(self.producers)
        return len(producer_ids) <= room or len(numpy.unique(producer_ids)) <= room

    # Snapshots

    def copy(self) -> ProducerStateManager:
        """To go on from later, with `restore`."""
        made = ProducerStateManager(self._limits)
        made.restore(self)
        return made

    def restore(self, other: ProducerStateManager) -> None:
        """As `other` is now; the two have nothing in common."""
        self.producers = {one.producer_id: one.copy() for one in other.producers.values()}
        self._open, self._completed = dict(other._open), list(other._completed)
        self.first_unstable_offset = other.first_unstable_offset

    def load(self, states: Iterable[ProducerState], now_ms: int) -> None:
        """Start from a snapshot; producers that expired since are left out."""
        for state in states:
            if state.transaction_start is None and self._is_expired(state, now_ms):
                continue
            self.producers[state.producer_id] = state
            if state.transaction_start is not None:
                self._open[state.producer_id] = state.transaction_start
        self._find_unstable()

    def compare(self, states: Iterable[ProducerState], now_ms: int, end: int) -> None:
        """After a replay: what a snapshot of this very offset knows better, of producers whose last batch is
        before `end`. Who sends one again that was lost behind it must not be told that it is there.

        Batches tell less than they did once a cleaning removed markers, or damage hides them: a transaction
        whose marker is gone looks open for good, a producer's newer epoch is forgotten.
        """
        known_open = set()
        for state in states:
            if state.transaction_start is not None:
                known_open.add(state.producer_id)
            replayed = self.producers.get(state.producer_id)
            is_newer = (
                not self._is_expired(state, now_ms) if replayed is None else state.epoch > replayed.epoch
            )
            if is_newer and (state.last_data_offset is None or state.last_data_offset < end):
                state.transaction_start = None if replayed is None else replayed.transaction_start
                self.producers[state.producer_id] = state
        for producer_id in self._open.keys() - known_open:
            self.producers[producer_id].transaction_start = None
            del self._open[producer_id]
        self._find_unstable()

    def _is_expired(self, state: ProducerState, now_ms: int) -> bool:
        return now_ms - state.last_timestamp >= self._limits.producer_expiration_ms


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    """The bytes of a `.snapshot` file, which keeps the last batch of each producer only."""
    entries = [
        _SNAPSHOT_ENTRY.pack(
            state.producer_id,
            state.epoch,
            state.last_sequence,
            state.batches[-1].last_offset if state.batches else NO_OFFSET,
            state.batches[-1].offset_delta if state.batches else 0,
            state.last_timestamp,
            state.coordinator_epoch,
            NO_OFFSET if state.transaction_start is None else state.transaction_start,
        )
        for state in states
    ]
    body = b"".join(entries)
    head = _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, 0, len(entries))
    crc = crc32c.crc32c(body, crc32c.crc32c(head[_CHECKED_FROM:]))
    return _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc, len(entries)) + body


def decode_snapshot(data: bytes) -> list[ProducerState]:
    """The producers of a `.snapshot` file; ValueError when it is damaged."""
    try:
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    except error:
        raise ValueError(f"{len(data)} bytes are no snapshot") from None
    if version != SNAPSHOT_VERSION:
        raise ValueError(f"version {version}")
    if crc32c.crc32c(data[_CHECKED_FROM:]) != crc:
        raise ValueError("the checksum is wrong")
    if count < 0 or len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise ValueError(f"{count} entries in {len(data)} bytes")
    states = []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_start = fields
        state = ProducerState(producer_id, epoch)
        state.last_timestamp = timestamp
        state.coordinator_epoch = coordinator_epoch
        state.transaction_start = None if transaction_start == NO_OFFSET else transaction_start
        if sequence != NO_SEQUENCE:
            state.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        states.append(state)
    return states
