"""The door of transactions: every transaction request enters here, and what ends by itself.

What is asked of a transactional id runs one thing at a time, in the order in which it was asked, to its end,
whether or not the client still waits: librdkafka sends two requests at once, of which Kafka reads the second
when the first is answered. What was decided when the broker stopped is carried out at the next start, before
the groups are read (their offsets may be a part of it); a transaction whose timeout is over is aborted, and
its producer fenced. An Apache Kafka's `__transaction_state` is as good as our own. Mirrors Kafka's
TransactionCoordinator.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from broker.latest_values import LatestValues, read_latest_values
from broker.state_topic import Producer, StateTopic, Written
from broker.topic import TRANSACTIONS_TOPIC
from broker.transactions.records import read_key, read_state, state_key, state_value
from broker.transactions.state import AT_REST, ENDING, Status, TransactionState
from protocol.batch import NO_PRODUCER_EPOCH
from protocol.errors import ErrorCode, KafkaError, MalformedFrame, UnsupportedVersion
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker

T = TypeVar("T")
logger = logging.getLogger(__name__)

MARKERS_A_TURN = 200
"""so many are written in one turn of the loop: a millisecond to two"""

# What a client is told when a state could not be stored: that it looks for the coordinator, and tries again.
_STORE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
# A log that knows a later epoch, or a later coordinator, has no transaction of this one any more.
_MARKER_IS_LATE = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Entry:
    """A transactional id. Owned by: event loop."""

    __slots__ = ("state", "transactional_id", "turn", "unmarked")

    def __init__(self, transactional_id: str, state: TransactionState) -> None:
        self.transactional_id = transactional_id
        self.state = state
        self.turn = asyncio.Lock()
        self.unmarked: set[TopicPartition] = set(state.partitions)
        """while it ends: where the marker is not on disk yet"""


class TransactionCoordinator:
    """Owned by: event loop."""

    def __init__(self, broker: Broker) -> None:
        self.entries: dict[str, Entry] = {}
        self._broker = broker
        config = broker.config
        self._topic: StateTopic[LatestValues] = StateTopic(
            broker,
            TRANSACTIONS_TOPIC,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_segment_bytes,
            read_latest_values,
        )
        self._tasks: set[asyncio.Task[Any]] = set()

    # life

    async def load(self) -> None:
        """Read `__transaction_state`. Before anything is served: what it says of offsets is read then."""
        await self._topic.load(self._apply)

    async def load_again(self, topic_partition: TopicPartition) -> None:
        """The log of a partition was opened anew: if it could not be read, it is now."""
        if topic_partition.topic == TRANSACTIONS_TOPIC:
            await self._topic.load_again(topic_partition.partition, self._apply)

    async def stop(self) -> None:
        """Accept nothing more, end what goes on."""
        self._topic.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def has_topic(self) -> bool:
        return self._topic.exists

    async def ensure_topic(self) -> None:
        """Bring `__transaction_state` into being: the first producer that looks for its coordinator needs
        it.
        """
        await self._topic.ensure()

    def _apply(self, latest: LatestValues) -> None:
        for key, (_, value) in latest.values.items():
            try:
                transactional_id, state = read_key(key), read_state(value)
            except (MalformedFrame, UnsupportedVersion, struct.error) as error:
                logger.warning("unreadable record of %s, key %r, skipped: %s", TRANSACTIONS_TOPIC, key, error)
                continue
            if state.status is not Status.DEAD:
                self.entries[transactional_id] = Entry(transactional_id, state)

    def producer_ids(self) -> Iterable[int]:
        """Those that are taken."""
        return (entry.state.producer_id for entry in self.entries.values())

    def shielded(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run to its end what a client may stop waiting for: half of it would be no state."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)

    # requests

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Producer:
        """The identity for a producer; one that had the id is fenced, its transaction aborted."""
        if not 0 < timeout_ms <= self._broker.config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms")
        self._topic.check_available(transactional_id)
        await self.ensure_topic()
        entry = self.entries.get(transactional_id)
        if entry is None:
            state = TransactionState(await self._broker.producer_ids.next(), NO_PRODUCER_EPOCH, timeout_ms)
            entry = self.entries.setdefault(transactional_id, Entry(transactional_id, state))
        async with entry.turn:
            state = entry.state
            if state.status is Status.ONGOING:
                await self._move(entry, state.fenced(self._now_ms()))
            if entry.state.status in ENDING and not await self._complete(entry):
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is ending")
            new_producer_id = None
            if entry.state.needs_new_producer_id(expected):
                new_producer_id = await self._broker.producer_ids.next()
            now_ms = self._now_ms()
            await self._move(entry, entry.state.initialized(expected, timeout_ms, now_ms, new_producer_id))
            return entry.state.producer

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> None:
        """The transaction takes part in these from now on; the first ones begin it."""
        entry = self._entry_of(transactional_id)
        async with entry.turn:
            entry.state.check_producer(producer)
            state = entry.state.with_partitions(partitions, self._now_ms())
            if state is not None:
                await self._move(entry, state)

    async def end(self, transactional_id: str, producer: Producer, *, is_commit: bool) -> None:
        """Commit or abort: decided when this returns, and carried out if its markers can be written."""
        entry = self._entry_of(transactional_id)
        async with entry.turn:
            entry.state.check_producer(producer)
            state = entry.state.ended(is_commit=is_commit, now_ms=self._now_ms())
            if state is not None:
                await self._move(entry, state)
                await self._complete(entry)

    def check_part(self, transactional_id: str, producer: Producer, topic_partition: TopicPartition) -> None:
        """Raise unless the producer's transaction takes part in a partition: records that were written there
        without would never be decided upon (KIP-890).
        """
        entry = self._entry_of(transactional_id)
        entry.state.check_producer(producer)
        entry.state.check_part(topic_partition)

    def _entry_of(self, transactional_id: str) -> Entry:
        self._topic.check_available(transactional_id)
        entry = self.entries.get(transactional_id)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"nobody has the id {transactional_id!r}")
        return entry

    def find(self, transactional_id: str) -> TransactionState | None:
        """What is known of an id."""
        self._topic.check_available(transactional_id)
        entry = self.entries.get(transactional_id)
        return None if entry is None else entry.state

    def going_on(self, topic_partition: TopicPartition, producer_id: int) -> Entry | None:
        """The id whose transaction, of this producer, takes part in a partition."""
        for entry in self.entries.values():
            state = entry.state
            if state.producer_id == producer_id and topic_partition in state.partitions:
                return entry
        return None

    def due_ms(self, topic_partition: TopicPartition, producer_id: int) -> int | None:
        """When a transaction that is open in a partition ends by itself at the latest; None: never."""
        entry = self.going_on(topic_partition, producer_id)
        if entry is None:
            return None
        return self._now_ms() if entry.state.due_ms is None else entry.state.due_ms

    async def abort(self, entry: Entry) -> None:
        """End a transaction against its producer. KafkaError: that cannot be stored now."""
        async with entry.turn:
            if entry.state.status is Status.ONGOING:
                await self._move(entry, entry.state.fenced(self._now_ms()))
            if entry.state.status in ENDING:
                await self._complete(entry)

    # what happens by itself

    async def end_due(self) -> None:
        """Abort transactions whose timeout is over, carry out what is decided, where that failed before."""
        now_ms = self._now_ms()
        for entry in tuple(self.entries.values()):
            due_ms = entry.state.due_ms
            is_overdue = due_ms is not None and due_ms <= now_ms
            if entry.turn.locked() or not (is_overdue or entry.state.status in ENDING):
                continue
            if is_overdue:
                logger.info(
                    "the transaction of %r (producer %d) is aborted: it went on for more than its %d ms",
                    entry.transactional_id, entry.state.producer_id, entry.state.timeout_ms,
                )  # fmt: skip
            try:
                await self.shielded(self.abort(entry))
            except KafkaError as error:
                logger.error("the transaction of %r goes on: %s", entry.transactional_id, error)

    async def expire(self) -> None:
        """Forget ids that nobody used for `transactional.id.expiration.ms`."""
        oldest_ms = self._now_ms() - self._broker.config.transactional_id_expiration_ms
        for entry in tuple(self.entries.values()):
            state = entry.state
            if entry.turn.locked() or state.status not in AT_REST or state.updated_ms > oldest_ms:
                continue
            try:
                self._topic.append(entry.transactional_id, [(state_key(entry.transactional_id), None)])
            except KafkaError as error:
                logger.warning("transactional id %r is kept: %s", entry.transactional_id, error)
            else:
                del self.entries[entry.transactional_id]
            await asyncio.sleep(0)

    # storing

    def _now_ms(self) -> int:
        return self._broker.clock.now_ms()

    def _append(self, entry: Entry, state: TransactionState) -> Written:
        record = (state_key(entry.transactional_id), state_value(state))
        return self._topic.append(entry.transactional_id, [record])

    async def _move(self, entry: Entry, state: TransactionState) -> None:
        """The id is in this state when that is durable."""
        try:
            written = self._append(entry, state)
            if written.flushed is not None:
                await written.flushed
        except KafkaError as error:
            logger.warning("transactional id %r: not stored: %s", entry.transactional_id, error)
            raise KafkaError(_STORE_ERRORS.get(error.code, error.code), error.message) from error
        entry.state = state
        entry.unmarked = set(state.partitions)

    async def _complete(self, entry: Entry) -> bool:
        """Carry out what is decided; whether nothing is left of it. What is left is tried again."""
        await self._mark(entry)
        if entry.unmarked:
            return False
        completed = entry.state.completed(self._now_ms())
        try:
            self._append(
                entry, completed
            )  # in the log before whatever this id does next: nobody waits for it
        except KafkaError as error:
            logger.warning("transactional id %r: not stored: %s", entry.transactional_id, error)
            return False
        entry.state = completed
        return True

    async def _mark(self, entry: Entry) -> None:
        """A marker into each partition that has none yet, all flushed at once."""
        state = entry.state
        flushes: list[tuple[TopicPartition, asyncio.Future[None] | None]] = []
        for number, place in enumerate(sorted(entry.unmarked), 1):
            partition = self._broker.partitions.get(place)
            if partition is None:  # deleted, and its part of the transaction with it
                entry.unmarked.discard(place)
                continue
            try:
                is_commit = state.status is Status.PREPARE_COMMIT
                flushed = partition.end_transaction_of(*state.producer, self._now_ms(), is_commit=is_commit)
            except KafkaError as error:
                if error.code in _MARKER_IS_LATE:
                    entry.unmarked.discard(place)
                logger.error("the transaction of %r, in %s: %s", entry.transactional_id, place, error)
            else:
                flushes.append((place, flushed))
            if number % MARKERS_A_TURN == 0:
                await asyncio.sleep(0)
        for place, flushed in flushes:
            try:
                if flushed is not None:
                    await flushed
            except KafkaError as error:
                logger.error("the transaction of %r, in %s: %s", entry.transactional_id, place, error)
                continue
            entry.unmarked.discard(place)
            self._broker.groups.end_transaction(
                place, state.producer_id, is_commit=state.status is Status.PREPARE_COMMIT
            )
