"""Committed offsets over all groups: commit, fetch, delete, expire, lag.

Mirrors Kafka's OffsetMetadataManager. A commit is answered when it is durable and visible from then on.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker.groups import records
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.contents import Contents
from broker.groups.membership import Group
from broker.groups.offsets import Commit
from broker.groups.rebalance import Rebalancer
from broker.groups.state import COMMIT_ANSWERS, GroupState
from broker.groups.storing import Flushed, append
from broker.groups.streams.group import StreamsGroup
from broker.node import Node
from broker.state_topic import KeyValue, Producer, StateTopic, fits, when_durable
from broker.topics import TopicRegistry
from config.definition import LONG_MAX
from protocol.errors import ErrorCode, KafkaError
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.partition import Partition
    from broker.topic import Topic

logger = logging.getLogger(__name__)

# The answer to a commit whose record could not be stored.
_STORE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


AnyGroup = Group | ConsumerGroup | StreamsGroup


class Lag(NamedTuple):
    """How far a group is behind on one partition."""

    group_id: str
    topic_partition: TopicPartition
    committed_offset: int
    lag: int


Committed = Sequence[tuple[str, Mapping[TopicPartition, Commit]]]
"""the durable commits of each group, by its id"""


class Position(NamedTuple):
    """What a client commits for one partition."""

    topic_partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """An OffsetCommit, freed from its version."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    # -1: by offsets.retention.minutes; OffsetCommit v2-4 may name their own.
    retention_ms: int
    positions: Sequence[Position]
    # The transaction that it is a part of (TxnOffsetCommit).
    producer: Producer | None = None


@dataclass(slots=True)
class Outcome:
    """What happened per partition; final once `flushed` is done (None: already)."""

    errors: dict[TopicPartition, ErrorCode]
    flushed: asyncio.Future[None] | None = None


class Commits:
    """Owned by: event loop."""

    def __init__(
        self, node: Node, topics: TopicRegistry, store: StateTopic[Contents], rebalancer: Rebalancer
    ) -> None:
        self._node = node
        self._topics = topics
        self._store = store
        self._rebalancer = rebalancer
        self._undecided: dict[int, set[AnyGroup]] = {}
        """by producer id, where its transaction commits offsets"""

    # commit

    def check_commit(self, group: AnyGroup, request: CommitRequest, api_version: int) -> None:
        """Whether this sender may commit now (T191, T192); KafkaError: it may not.

        A transaction of a client that knows nothing of members may always, as before KIP-447; what fences it
        is its producer's epoch.
        """
        if not isinstance(group, Group):
            self._check_member_commit(group, request, api_version)
            return
        if request.generation < 0 and group.state is GroupState.EMPTY:
            return
        is_nobody = request.generation < 0 and not request.member_id and request.group_instance_id is None
        if is_nobody and request.producer is not None:
            return
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation is {group.generation}")
        answer = COMMIT_ANSWERS[group.state]
        if answer is not ErrorCode.NONE and request.producer is None:
            raise KafkaError(answer, f"the group is {group.state.value}")
        self._rebalancer.touch(member, group)

    def _check_member_commit(
        self, group: ConsumerGroup | StreamsGroup, request: CommitRequest, api_version: int
    ) -> None:
        """A member in an older epoch commits what it has held since, or nothing (KIP-1251)."""
        member = group.check_commit(
            request.member_id,
            request.group_instance_id,
            request.generation,
            is_transaction=request.producer is not None,
            api_version=api_version,
        )
        if member is None:
            return
        for position in request.positions:
            topic_partition = position.topic_partition
            topic = self._topic_of(topic_partition)
            if topic is None:
                continue
            since = group.held_since(member.member_id, topic, topic_partition.partition)
            if since is None or request.generation < since:
                is_told = request.producer is None
                code = member.stale_epoch if is_told else ErrorCode.ILLEGAL_GENERATION
                raise KafkaError(code, f"the member's epoch is {member.epoch}")

    def commit(self, group: AnyGroup, request: CommitRequest) -> Outcome:
        """Append one record a partition, all in one batch."""
        now_ms = self._node.clock.now_ms()
        limit = self._node.config.offset_metadata_max_bytes
        errors: dict[TopicPartition, ErrorCode] = {}
        commits: dict[TopicPartition, Commit] = {}
        for position in request.positions:
            topic_partition = position.topic_partition
            topic = self._topic_of(topic_partition)
            if topic is None:
                errors[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(position.metadata) > limit or not fits(position.metadata):
                errors[topic_partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                errors[topic_partition] = ErrorCode.NONE
                expiry_ms = min(now_ms + request.retention_ms, LONG_MAX) if request.retention_ms >= 0 else -1
                commits[topic_partition] = Commit(
                    position.offset,
                    position.leader_epoch,
                    position.metadata,
                    now_ms,
                    expiry_ms,
                    topic_id=topic.topic_id,
                )
        if not commits:
            return Outcome(errors)
        return self._append(group, commits, errors, request.producer)

    def refused(self, request: CommitRequest, code: ErrorCode) -> Outcome:
        """The group does not take the request; of partitions that do not exist that is said all the same."""
        errors: dict[TopicPartition, ErrorCode] = {}
        for position in request.positions:
            topic = self._topic_of(position.topic_partition)
            errors[position.topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else code
        return Outcome(errors)

    def _append(
        self,
        group: AnyGroup,
        commits: dict[TopicPartition, Commit],
        errors: dict[TopicPartition, ErrorCode],
        producer: Producer | None,
    ) -> Outcome:
        entries: list[KeyValue] = [
            (records.offset_key(group.group_id, topic_partition), records.offset_value(commit))
            for topic_partition, commit in commits.items()
        ]
        offsets = group.offsets

        def finish(error: KafkaError | None) -> None:
            for topic_partition, commit in commits.items():
                if error is not None:
                    errors[topic_partition] = _STORE_ERRORS.get(error.code, error.code)
                if producer is None:
                    (offsets.complete if error is None else offsets.fail)(topic_partition, commit)
                elif error is not None:
                    offsets.fail_undecided(producer.producer_id, topic_partition, commit)

        try:
            written = self._store.append(group.group_id, entries, producer)
        except KafkaError as error:
            logger.warning("group %s: commit not stored: %s", group.group_id, error)
            finish(error)
            return Outcome(errors)
        for log_offset, (topic_partition, commit) in enumerate(commits.items(), written.base_offset):
            commit.log_offset = log_offset
            if producer is None:
                offsets.append(topic_partition, commit)
            else:
                self.append_undecided(group, producer.producer_id, topic_partition, commit)
        when_durable(written, finish)
        return Outcome(errors, written.flushed)

    # transactions

    def append_undecided(
        self, group: AnyGroup, producer_id: int, topic_partition: TopicPartition, commit: Commit
    ) -> None:
        """A commit of a transaction lies in the group's partition (T195)."""
        group.offsets.append_undecided(producer_id, topic_partition, commit)
        self._undecided.setdefault(producer_id, set()).add(group)

    def end_transaction(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """A marker is durable in a partition of `__consumer_offsets`: offsets that the transaction commits
        there are visible from now on, or gone. While that partition is being read it waits: what is read may
        be from before the marker.
        """
        self._store.when_read(
            index, functools.partial(self._end_transaction, index, producer_id, is_commit=is_commit)
        )

    def _end_transaction(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        groups: set[AnyGroup] = self._undecided.pop(producer_id, set())
        elsewhere = {one for one in groups if self._store.place_of(one.group_id).partition != index}
        for group in groups - elsewhere:
            group.offsets.end_transaction(producer_id, is_commit=is_commit)
        if elsewhere:
            self._undecided[producer_id] = elsewhere

    def _topic_of(self, topic_partition: TopicPartition) -> Topic | None:
        """None where there is no such partition."""
        topic = self._topics.get(topic_partition.topic)
        return topic if topic and 0 <= topic_partition.partition < topic.partition_count else None

    # delete and expire

    def delete(self, group: AnyGroup, topic_partitions: Iterable[TopicPartition]) -> Outcome:
        """OffsetDelete: forget positions that nobody in the group uses (T197)."""
        if group.members and isinstance(group, Group) and not group.is_consumer_group:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "what the members use is not known")
        errors: dict[TopicPartition, ErrorCode] = {}
        doomed: list[TopicPartition] = []
        known = group.offsets.known()
        is_used = _is_used(group)
        for topic_partition in topic_partitions:
            errors[topic_partition] = ErrorCode.NONE
            if self._topic_of(topic_partition) is None and topic_partition not in known:
                errors[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.members and is_used(topic_partition.topic):
                errors[topic_partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif topic_partition in known:
                doomed.append(topic_partition)
        flushed = self.forget(group, doomed)
        return Outcome(errors, flushed)

    def forget(
        self, group: AnyGroup, topic_partitions: Sequence[TopicPartition], more: Iterable[bytes] = ()
    ) -> Flushed | None:
        """Remove commits, and what else has the keys `more`, by tombstones; the future of the last one.
        KafkaError, as clients are told it: they are still there.
        """
        keys = [records.offset_key(group.group_id, topic_partition) for topic_partition in topic_partitions]
        flushed = append(self._store, group.group_id, [(key, None) for key in (*keys, *more)])
        for topic_partition in topic_partitions:
            group.offsets.remove(topic_partition)
        return flushed

    def expired(self, group: AnyGroup, now_ms: int) -> list[TopicPartition]:
        """What `offsets.retention.minutes` lets go (T196).

        An empty group's positions age from the moment it became empty, all together. A stable consumer
        group's age one by one if their topic is no longer subscribed, as do those of a group of the consumer
        protocol. Positions without a group age from their commit.
        """
        aging = _aging(group)
        return [] if aging is None else group.offsets.expired(now_ms, self._retention_ms, *aging)

    def expires_ms(self, group: AnyGroup, topic: str, commit: Commit) -> int | None:
        """When a commit may go by that, if nothing happens meanwhile; None: it is kept."""
        aging = _aging(group)
        if aging is None or aging[1](topic):
            return None
        if commit.expire_timestamp_ms >= 0:
            return commit.expire_timestamp_ms
        return aging[0](commit) + self._retention_ms

    @property
    def _retention_ms(self) -> int:
        return self._node.config.offsets_retention_minutes * 60_000


def _aging(group: AnyGroup) -> tuple[Callable[[Commit], int], Callable[[str], bool]] | None:
    """From when on a commit of the group ages, and which topics keep theirs; None where all are kept."""
    if not isinstance(group, Group):
        return _committed_at, _is_used(group)
    if group.protocol_type is None:
        return _committed_at, lambda topic: False
    if group.state is GroupState.EMPTY:
        return lambda commit: group.state_since_ms, lambda topic: False
    if group.state is GroupState.STABLE and group.is_consumer_group:
        return _committed_at, _is_used(group)
    return None


def lags(committed: Committed, partitions: Mapping[TopicPartition, Partition]) -> Iterator[Lag]:
    """Per committed partition (T203): what lies before the log start is no lag, nobody can read it. On any
    thread.
    """
    for group_id, commits in committed:
        for topic_partition, commit in commits.items():
            partition = partitions.get(topic_partition)
            if partition is None:
                continue
            log = partition.log
            behind = log.high_watermark - max(commit.offset, log.log_start_offset)
            yield Lag(group_id, topic_partition, commit.offset, max(0, behind))


def _is_used(group: AnyGroup) -> Callable[[str], bool]:
    """Whether a topic is one that the group's members subscribe to."""
    return group.is_subscribed if isinstance(group, Group) else group.subscribed_topics().__contains__


def _committed_at(commit: Commit) -> int:
    return commit.commit_timestamp_ms
