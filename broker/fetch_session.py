"""Fetch sessions (KIP-227): the broker remembers what a client fetches, so that requests and answers carry
changes only.

A fetch names a session and its epoch. Epoch -1 or session-less: the request is complete and nothing is
remembered. Epoch 0: complete, and a session is made when the cache has room or its eldest may go. Any other
epoch: the request changes the remembered partitions (new, altered, forgotten ones), the answer leaves out
partitions without news, and partitions that gave data go to the end of the line, so that none starves (G8).
A session has no more partitions than a request may name, all sessions together a number of their own: a
fetch beyond it is answered without a session, an increment as if its session were gone, so that the client
asks in full. Mirrors Kafka's `FetchSession`, `FetchSessionCache`, `FullFetchContext` and
`IncrementalFetchContext`.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.counters import Counters
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from broker.partition import Partition
    from config.broker import BrokerConfig

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000
UNKNOWN_OFFSET = -1

PartitionKey = tuple[str | UUID, int]


class FetchedPartition:
    """What a client wants of one partition, and what it was told last. Owned by: event loop."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "name",
        "partition",
        "served",
        "topic",
    )

    def __init__(self, topic: str | UUID, wanted: Any) -> None:
        self.topic = topic
        self.name = topic if isinstance(topic, str) else ""
        """the topic's, as it was found by the id: as in Kafka a session knows it on when the topic is gone"""
        self.partition: int = wanted.partition
        self.served: Partition | None = None  # as it was found last
        self.high_watermark = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.update(wanted)

    def update(self, wanted: Any) -> None:
        self.fetch_offset: int = wanted.fetch_offset
        self.max_bytes: int = wanted.partition_max_bytes
        self.current_leader_epoch: int = wanted.current_leader_epoch
        self.last_fetched_epoch: int = wanted.last_fetched_epoch

    def has_news(self, answer: Any) -> bool:
        """Whether an incremental answer must carry this partition; remembers what it carries."""
        has_news = bool(answer.records) or answer.error_code != 0 or answer.diverging_epoch is not None
        if answer.high_watermark != self.high_watermark:
            self.high_watermark = answer.high_watermark
            has_news = True
        if answer.log_start_offset != self.log_start_offset:
            self.log_start_offset = answer.log_start_offset
            has_news = True
        if answer.error_code != 0:
            self.high_watermark = UNKNOWN_OFFSET  # the recovery from an error is news
        return has_news


class FetchSession:
    """The partitions one client follows, in the order in which they are read next. Owned by: event loop."""

    __slots__ = ("epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, passed_ms: int) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = INITIAL_EPOCH + 1
        self.last_used_ms = passed_ms
        self.partitions: OrderedDict[PartitionKey, FetchedPartition] = OrderedDict()

    def apply(self, topics: Iterable[tuple[str | UUID, Any]], forgotten: Iterable[PartitionKey]) -> None:
        """Take over what an incremental request adds and alters, and then what it forgets, as in Kafka."""
        for topic, wanted in topics:
            known = self.partitions.get((topic, wanted.partition))
            if known is None:
                self.partitions[topic, wanted.partition] = FetchedPartition(topic, wanted)
            else:
                known.update(wanted)
        for key in forgotten:
            self.partitions.pop(key, None)


class FetchContext:
    """One fetch request, put into the light of its session. Owned by: event loop."""

    __slots__ = ("is_incremental", "partitions", "session")

    def __init__(
        self, partitions: list[FetchedPartition], session: FetchSession | None, is_incremental: bool
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.is_incremental = is_incremental

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else 0

    def select(self, answers: list[Any]) -> list[tuple[FetchedPartition, Any]]:
        """(partition, answer) for those the client must hear of; `answers` are in the order of
        `partitions`.
        """
        paired = list(zip(self.partitions, answers, strict=True))
        if self.session is None:
            return paired
        told = []
        order = self.session.partitions
        for partition, answer in paired:
            if partition.has_news(answer) or not self.is_incremental:
                told.append((partition, answer))
            if self.is_incremental and answer.records and len(order) > 1:
                key = (partition.topic, partition.partition)
                if key in order:
                    order.move_to_end(key)
        return told


def _wanted(request: FetchRequest, uses_topic_ids: bool) -> Iterable[tuple[str | UUID, Any]]:
    for topic in request.topics:
        name = topic.topic_id if uses_topic_ids else topic.topic
        for wanted in topic.partitions:
            yield name, wanted


def _asked(request: FetchRequest, uses_topic_ids: bool) -> list[FetchedPartition]:
    return [FetchedPartition(topic, wanted) for topic, wanted in _wanted(request, uses_topic_ids)]


class FetchSessions:
    """The sessions of all clients, bounded in number and in partitions. Owned by: event loop."""

    def __init__(self, config: BrokerConfig, counters: Counters) -> None:
        self._max_sessions = config.max_incremental_fetch_session_cache_slots
        self._max_partitions = config.max_incremental_fetch_session_partitions
        self._max_partitions_each = config.max_request_elements
        self._counters = counters
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the one unused for longest first
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int, passed_ms: int) -> FetchContext:
        """The context of `request`; KafkaError when its session or epoch is not what the client believes."""
        uses_topic_ids = version >= 13
        session_id = request.session_id
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id:
                self.drop(session_id)
            partitions, session = _asked(request, uses_topic_ids), None
            if request.session_epoch == INITIAL_EPOCH and version >= 7 and partitions:
                session = self._make(partitions, uses_topic_ids, passed_ms)
            return FetchContext(partitions, session, False)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.last_used_ms = passed_ms
        self._sessions.move_to_end(session_id)
        if request.topics or request.forgotten_topics_data:
            self._change(session, request, passed_ms)
        if not session.partitions:
            self.drop(session_id)  # what is asked for is answered without one, as in Kafka
            return FetchContext(_asked(request, uses_topic_ids), None, False)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        return FetchContext(list(session.partitions.values()), session, True)

    def _change(self, session: FetchSession, request: FetchRequest, passed_ms: int) -> None:
        """Apply an increment; KafkaError, and the session is gone, when it has become too large."""
        before = len(session.partitions)
        session.apply(
            _wanted(request, session.uses_topic_ids),
            (
                (topic.topic_id if session.uses_topic_ids else topic.topic, partition)
                for topic in request.forgotten_topics_data
                for partition in topic.partitions
            ),
        )
        after = len(session.partitions)
        self.partition_count += after - before
        if after > before and (after > self._max_partitions_each or not self._make_room(0, 0, passed_ms)):
            self.drop(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def drop(self, session_id: int) -> None:
        """Forget a session, if there is such a one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _make_room(self, sessions: int, partitions: int, passed_ms: int) -> bool:
        """Whether so many more fit now, those gone that nobody has used for long."""
        while (
            len(self._sessions) + sessions > self._max_sessions
            or self.partition_count + partitions > self._max_partitions
        ):
            eldest = next(iter(self._sessions.values()), None)
            if eldest is None or passed_ms - eldest.last_used_ms <= EVICTION_MS:
                return False
            self.drop(eldest.id)
            self._counters.fetch_sessions_evicted += 1
        return True

    def _make(
        self, partitions: list[FetchedPartition], uses_topic_ids: bool, passed_ms: int
    ) -> FetchSession | None:
        """A new session, or None when the cache is full of sessions that are in use."""
        if not self._make_room(1, len(partitions), passed_ms):
            return None
        session_id = random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = random.randint(1, 2**31 - 1)
        session = FetchSession(session_id, uses_topic_ids, passed_ms)
        for partition in partitions:
            session.partitions[partition.topic, partition.partition] = partition
        self._sessions[session_id] = session
        self.partition_count += len(session.partitions)
        return session
