"""The door of transactions: every transaction request enters here, and what ends by itself.

What is asked of a transactional id is done one thing at a time, in the order in which it was asked, to its
end, whether or not the client still waits: librdkafka sends two requests at once, of which Kafka reads the
second when the first is answered. What was decided when the broker stopped is carried out at the next start,
before the groups are read (their offsets may be a part of it); a transaction whose timeout is over is
aborted, and its producer fenced. With transactions v2 (KIP-890) records bring their partition into the
transaction themselves: what is known of that and the records are written beside each other, and answered
when both are durable. An Apache Kafka's `__transaction_state` is as good as our own. Mirrors Kafka's
TransactionCoordinator.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from broker.groups.coordinator import GroupCoordinator
from broker.latest_values import LatestValues, read_latest_values
from broker.moves import Moves
from broker.node import Node
from broker.producer_ids import ProducerIds
from broker.state_topic import Producer, StateTopic, Written, fits
from broker.tasks import ended
from broker.topic import TRANSACTIONS_TOPIC
from broker.topics import TopicRegistry
from broker.transactions.markers import Markers
from broker.transactions.records import read_key, read_state, state_key, state_value
from broker.transactions.state import AT_REST, ENDING, V2, Status, TransactionState
from protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.errors import ErrorCode, KafkaError, MalformedFrame, UnsupportedVersion
from storage.layout import TopicPartition

T = TypeVar("T")
logger = logging.getLogger(__name__)

FORGOTTEN_A_TURN = 500

# What a client is told when a state could not be stored: that it looks for the coordinator, and tries again.
_STORE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class TransactionCoordinator:
    """Owned by: event loop."""

    def __init__(
        self,
        node: Node,
        topics: TopicRegistry,
        producer_ids: ProducerIds,
        moves: Moves,
        groups: GroupCoordinator,
    ) -> None:
        self.states: dict[str, TransactionState] = {}
        self._node = node
        self._producer_ids = producer_ids
        self._moves = moves
        self._groups = groups
        self._markers = Markers(node, moves, groups)
        config = node.config
        self._topic: StateTopic[LatestValues] = StateTopic(
            node,
            topics,
            TRANSACTIONS_TOPIC,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_segment_bytes,
            read_latest_values,
            # What is decided is never less safe than what it decides about: a log may be flushed each time
            # though others are not.
            {"flush.messages": "1"},
        )
        self._ids: dict[int, str] = {}  # by producer id
        self._active: set[str] = set()  # of which anything goes on
        self._joining: dict[str, asyncio.Future[None]] = {}  # what was joined last, until it is durable
        self._unmarked: dict[str, set[TopicPartition]] = {}  # of what ends, where the marker is not on disk
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._told_of: asyncio.Future[None] | None = None  # the end of the move that was told of last

    # life

    async def load(self) -> None:
        """Read `__transaction_state`. Before anything is served: what it says of offsets is read then."""
        await self._topic.load(self._apply)

    async def load_again(self, topic_partition: TopicPartition) -> None:
        """The log of a partition was opened anew: if it could not be read, it is now."""
        if topic_partition.topic == TRANSACTIONS_TOPIC:
            await self._topic.load_again(topic_partition.partition, self._apply)
        self.abort_lost()

    def abort_lost(self) -> None:
        """After `load`: abort what is open in a log though its coordinator knows that the transaction has
        ended, or that it takes no part there. A power cut took its end from a log that is not flushed
        each time, with whatever else was behind it; or took that it was joined, when nobody was answered yet.
        """
        # Of what is ending the producer may have its next id already.
        ids = {self.states[one].next_producer_id: one for one in self._active} | self._ids
        for topic_partition, partition in self._node.partitions.items():
            known = partition.log.producers
            for producer_id in known.open_transactions():
                producer = Producer(producer_id, known.producers[producer_id].epoch)
                state = self.states.get(ids.get(producer_id, ""))
                if state is None or state.has(producer, topic_partition):
                    continue
                epoch = state.epoch_of_abort(producer)
                try:
                    partition.end_transaction_of(producer_id, epoch, self._now_ms(), is_commit=False)
                except KafkaError as error:
                    logger.error("a transaction of %s stays open: %s", topic_partition, error)
                else:
                    logger.warning(
                        "%s: the transaction of producer %d is aborted: its end was lost",
                        topic_partition, producer_id,
                    )  # fmt: skip
                    # At once: nothing becomes visible by it.
                    self._groups.end_transaction(topic_partition, producer_id, is_commit=False)

    async def stop(self) -> None:
        """Accept nothing more, end what goes on."""
        self._topic.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def place_of(self, transactional_id: str) -> TopicPartition:
        """Where what is known of an id is written down."""
        return self._topic.place_of(transactional_id)

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
                self._set(transactional_id, state)

    def producer_ids(self) -> Iterable[int]:
        """Those that are taken."""
        return self._ids.keys()

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to its end what a client may stop waiting for: half of it would be no state."""
        return await ended(self._begun(work))

    def _begun(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Its error is told to whoever waits; that nobody does any more is no news."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def _turn(self, transactional_id: str) -> asyncio.Lock:
        """Who holds it does something with the id, the others wait. It is there while anybody needs it."""
        lock = self._turns.get(transactional_id)
        if lock is None:
            lock = self._turns[transactional_id] = asyncio.Lock()
        return lock

    # requests

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Producer:
        """The identity for a producer; one that had the id is fenced, its transaction aborted."""
        config = self._node.config
        if not 0 < timeout_ms <= config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms")
        if not fits(transactional_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is too long")
        self._topic.check_available(transactional_id)
        await self.ensure_topic()
        if len(self.states) >= config.max_transactional_ids and transactional_id not in self.states:
            await self._make_room()
        async with self._turn(transactional_id):
            state = self.states.get(transactional_id)
            if state is None:
                state = TransactionState(await self._producer_ids.next(), NO_PRODUCER_EPOCH, timeout_ms)
            state.check_expected(expected)  # or a stranger would abort what its producer is doing
            if state.status is Status.ONGOING:
                state = await self._fence(transactional_id, state)
            if state.status in ENDING:
                if not await self._complete(transactional_id):
                    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is ending")
                state = self.states[transactional_id]
            new_producer_id = None
            if state.needs_new_producer_id(expected):
                new_producer_id = await self._producer_ids.next()
            begun = state.initialized(expected, timeout_ms, self._now_ms(), new_producer_id)
            return (await self._move(transactional_id, begun)).producer

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        client_version: int = 0,
    ) -> None:
        """The transaction takes part in these from now on; the first ones begin it."""
        async with self._turn(transactional_id):
            state = self._state_of(transactional_id, producer)
            begun = state.with_partitions(partitions, self._now_ms(), client_version)
            if begun is not None:
                await self._move(transactional_id, begun)

    def join(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> asyncio.Future[None] | None:
        """With v2, as `add_partitions`, at once: records may follow. What is returned is the end of the flush
        that makes it durable, unless that is over: nothing of the transaction may be answered before, for a
        commit reaches only what is known to take part. The first one behind a transaction of an older client,
        whose epoch it has, is refused until it is durable that this has ended.
        """
        if transactional_id in self._turns:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "something else is done with the id")
        state = self._state_of(transactional_id, producer)
        if state.shares_epoch:
            self._begun(self.add_partitions(transactional_id, producer, partitions, V2))
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is written down before")
        begun = state.with_partitions(partitions, self._now_ms(), V2)
        joining = self._joining.get(transactional_id)
        if joining is not None and joining.done() and joining.exception() is None:
            joining = None
        if begun is None and (joining is None or not joining.done()):
            return joining
        flushed = self._stored(transactional_id, begun or state).flushed  # or once more, if a flush failed
        self._set(transactional_id, begun or state)
        self._joining.pop(transactional_id, None)
        if flushed is not None:
            self._joining[transactional_id] = flushed
            flushed.add_done_callback(lambda over: self._joined(transactional_id, over))
        return flushed

    def _joined(self, transactional_id: str, flushed: asyncio.Future[None]) -> None:
        """One that failed is kept: it is not known then what is on disk."""
        if flushed.exception() is None and self._joining.get(transactional_id) is flushed:
            del self._joining[transactional_id]

    async def end(self, transactional_id: str, producer: Producer, *, is_commit: bool) -> Producer:
        """Commit or abort: decided when this returns, and carried out if its markers can be written. Who the
        producer is from now on.
        """
        async with self._turn(transactional_id):
            state = self._state_of(transactional_id, producer)
            await self._end(transactional_id, state.ended(is_commit=is_commit, now_ms=self._now_ms()))
            return producer

    async def end_v2(self, transactional_id: str, producer: Producer, *, is_commit: bool) -> Producer:
        """As `end`, of v2."""
        async with self._turn(transactional_id):
            state = self._known(transactional_id)
            next_id = await self._next_producer_id(state)
            decided = state.ended_v2(producer, next_id, is_commit=is_commit, now_ms=self._now_ms())
            await self._end(transactional_id, decided)
            return self.states[transactional_id].successor

    async def _end(self, transactional_id: str, decided: TransactionState | None) -> None:
        """Carry out what is decided; None: that was done before."""
        if decided is not None:
            await self._move(transactional_id, decided)
            await self._complete(transactional_id)

    async def _next_producer_id(self, state: TransactionState) -> int:
        """With v2, where an end leaves no epoch of the producer id."""
        return await self._producer_ids.next() if state.is_exhausted else NO_PRODUCER_ID

    def check_part(self, transactional_id: str, producer: Producer, topic_partition: TopicPartition) -> None:
        """Raise unless the producer's transaction takes part in a partition: records that were written there
        without would never be decided upon (KIP-890).
        """
        self._state_of(transactional_id, producer).check_part(topic_partition)

    def _state_of(self, transactional_id: str, producer: Producer) -> TransactionState:
        state = self._known(transactional_id)
        state.check_producer(producer)
        return state

    def _known(self, transactional_id: str) -> TransactionState:
        state = self.find(transactional_id)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"nobody has the id {transactional_id!r}")
        return state

    # what is known

    def find(self, transactional_id: str) -> TransactionState | None:
        """What is known of an id; KafkaError: that cannot be told."""
        self._topic.check_available(transactional_id)
        return self.states.get(transactional_id)

    def taking_part(self, topic_partition: TopicPartition, producer_id: int) -> str | None:
        """The id whose transaction, of this producer, takes part in a partition."""
        transactional_id = self._ids.get(producer_id, "")
        state = self.states.get(transactional_id)
        return transactional_id if state is not None and topic_partition in state.partitions else None

    def due_ms(self, topic_partition: TopicPartition, producer_id: int) -> int | None:
        """When a transaction that is open in a partition ends by itself at the latest; None: never."""
        transactional_id = self.taking_part(topic_partition, producer_id)
        if transactional_id is None:
            return None
        due_ms = self.states[transactional_id].due_ms
        return self._now_ms() if due_ms is None else due_ms

    # what happens without a producer

    async def abort(self, transactional_id: str) -> None:
        """End what goes on against its producer. KafkaError: that cannot be stored now."""
        async with self._turn(transactional_id):
            await self._abort(transactional_id)

    async def _abort(self, transactional_id: str) -> None:
        state = self.states[transactional_id]
        if state.status is Status.ONGOING:
            state = await self._fence(transactional_id, state)
        if state.status in ENDING:
            await self._complete(transactional_id)

    async def _fence(self, transactional_id: str, state: TransactionState) -> TransactionState:
        """What goes on is to be aborted."""
        next_id = await self._next_producer_id(state) if state.client_version == V2 else NO_PRODUCER_ID
        return await self._move(transactional_id, state.fenced(self._now_ms(), next_id))

    async def end_due(self) -> None:
        """Abort transactions whose timeout is over, carry out what is decided, where that failed before."""
        now_ms = self._now_ms()
        due = [one for one in self._active if one not in self._turns and self._is_due(one, now_ms)]
        await asyncio.gather(*(self.shielded(self._end_due(one)) for one in due))

    def _is_due(self, transactional_id: str, now_ms: int) -> bool:
        state = self.states[transactional_id]
        return state.status in ENDING or (state.due_ms is not None and state.due_ms <= now_ms)

    async def _end_due(self, transactional_id: str) -> None:
        async with self._turn(transactional_id):
            state, now_ms = self.states.get(transactional_id), self._now_ms()
            if state is None or not self._is_due(transactional_id, now_ms):  # its producer was quicker
                return
            if state.status is Status.ONGOING:
                logger.info(
                    "the transaction of %r (producer %d) is aborted: it went on for more than its %d ms",
                    transactional_id, state.producer_id, state.timeout_ms,
                )  # fmt: skip
            try:
                await self._abort(transactional_id)
            except KafkaError as error:
                logger.error("the transaction of %r goes on: %s", transactional_id, error)

    async def expire(self) -> None:
        """Forget ids that nobody used for `transactional.id.expiration.ms`."""
        oldest_ms = self._now_ms() - self._node.config.transactional_id_expiration_ms
        for number, (one, state) in enumerate(tuple(self.states.items()), 1):
            if state.updated_ms <= oldest_ms:
                self._forget(one, state)
            if number % FORGOTTEN_A_TURN == 0:
                await asyncio.sleep(0)

    async def _make_room(self) -> None:
        """Forget the tenth of the ids that nobody has used for the longest time."""
        unused = [(one, state) for one, state in self.states.items() if one not in self._active]
        unused.sort(key=lambda pair: pair[1].updated_ms)
        for number, (one, state) in enumerate(unused[: max(1, len(self.states) // 10)], 1):
            self._forget(one, state)
            if number % FORGOTTEN_A_TURN == 0:
                await asyncio.sleep(0)

    def _forget(self, transactional_id: str, state: TransactionState) -> None:
        """Unless it is used, was since it had this state, or that cannot be stored."""
        is_same = self.states.get(transactional_id) is state
        if not is_same or transactional_id in self._active or transactional_id in self._turns:
            return
        try:
            self._topic.append(transactional_id, [(state_key(transactional_id), None)])
        except KafkaError as error:
            logger.warning("transactional id %r is kept: %s", transactional_id, error)
        else:
            del self.states[transactional_id]
            self._ids.pop(state.producer_id, None)

    # storing

    def _now_ms(self) -> int:
        return self._node.clock.now_ms()

    def _set(self, transactional_id: str, state: TransactionState) -> None:
        known = self.states.get(transactional_id)
        if known is not None and known.producer_id != state.producer_id:
            self._ids.pop(known.producer_id, None)
        self.states[transactional_id] = state
        self._ids[state.producer_id] = transactional_id
        if state.status in AT_REST:
            self._active.discard(transactional_id)
            self._joining.pop(transactional_id, None)
        else:
            self._active.add(transactional_id)

    def _append(self, transactional_id: str, state: TransactionState) -> Written:
        return self._topic.append(transactional_id, [(state_key(transactional_id), state_value(state))])

    async def _move(self, transactional_id: str, state: TransactionState) -> TransactionState:
        """The id is in this state when that is durable."""
        flushed = self._stored(transactional_id, state).flushed
        if flushed is not None:
            try:
                await flushed
            except KafkaError as error:
                raise self._not_stored(transactional_id, error) from error
        self._set(transactional_id, state)
        return state

    def _stored(self, transactional_id: str, state: TransactionState) -> Written:
        try:
            return self._append(transactional_id, state)
        except KafkaError as error:
            raise self._not_stored(transactional_id, error) from error

    def _not_stored(self, transactional_id: str, error: KafkaError) -> KafkaError:
        """What a client is told."""
        self._tell(transactional_id, error)
        return KafkaError(_STORE_ERRORS.get(error.code, error.code), error.message)

    def _tell(self, transactional_id: str, error: KafkaError) -> None:
        """Why a state could not be stored: while a move ends nothing is wrong, and once is enough."""
        place = self.place_of(transactional_id)
        over = self._moves.ending.get(place)
        if over is None or error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            logger.warning("transactional id %r: not stored: %s", transactional_id, error)
        elif over is not self._told_of:
            self._told_of = over
            logger.info("%s takes no states while it ends its move: they are tried again", place)

    async def _complete(self, transactional_id: str) -> bool:
        """Carry out what is decided; whether nothing is left of it. What is left is tried again."""
        state = self.states[transactional_id]
        unmarked = self._unmarked.setdefault(transactional_id, set(state.partitions))
        await self._markers.write(transactional_id, state, unmarked)
        if unmarked:
            return False
        completed = state.completed(self._now_ms())
        await self._moves.settled(self.place_of(transactional_id))
        try:
            self._append(
                transactional_id, completed
            )  # before whatever this id does next: nobody waits for it
        except KafkaError as error:
            self._tell(transactional_id, error)
            return False
        self._set(transactional_id, completed)
        del self._unmarked[transactional_id]
        return True
