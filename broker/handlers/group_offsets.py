"""OffsetCommit 2-10, OffsetFetch 1-10, OffsetDelete 0.

Behaviour: commits are answered when they are durable and visible from then on; an unknown group or partition
is no error in OffsetFetch but offset -1; where a transaction that goes on commits one, who requires stable
offsets (v7+) is answered UNSTABLE_OFFSET_COMMIT.

Version notes: OffsetCommit v2-4 may name a retention of its own, v9 says GROUP_ID_NOT_FOUND instead of
ILLEGAL_GENERATION, and members of consumer groups (KIP-848) need it. OffsetFetch v2+ takes null topics for
all, v8+ several groups, v9 says who of a consumer group asks (a classic group's members need not tell). v10
of both knows topics by their ids (KIP-516): how far a consumer was in one that was deleted is never taken for
a position in another of that name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from broker.api import Later, handles
from broker.context import RequestContext
from broker.groups.commits import CommitRequest, Outcome, Position
from broker.groups.offsets import Commit
from protocol.errors import ErrorCode, KafkaError
from protocol.framing import encode_response
from protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.schema import ZERO_UUID
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker

T = TypeVar("T")

_NO_COMMIT = Commit(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)
_UNSTABLE = Commit(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)
"""instead of one that a transaction is about to replace, for who requires stable ones"""
_UNKNOWN = Commit(offset=-1, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)
"""instead of one of a topic id that no topic has"""
_NO_MEMBER = (None, -1)
_ReadTopics = list[tuple[str, list[tuple[int, Commit]]]]
_Topic = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics
_Committed = Mapping[TopicPartition, Commit]
_Wanted = Sequence[tuple[str, Sequence[int]]] | None

TOPIC_ID_VERSION = 10
"""of OffsetCommit and OffsetFetch"""
COMMITS_AT_ONCE = 10_000
"""an answer of more is made on a thread: whoever watches all groups asks for hundreds of thousands, again and
again, and every other client would wait"""


# OffsetCommit


@handles(OffsetCommitRequest)
def commit_offsets(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Later:
    by_id = context.api_version >= TOPIC_ID_VERSION
    if by_id:
        broker.topics.name_rows(request.topics)
    commit = CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        retention_ms=request.retention_time_ms,
        positions=positions_of(request.topics),
    )
    try:
        outcome = broker.groups.commit(commit, api_version=context.api_version)
    except KafkaError as error:
        outcome = broker.groups.refused_commit(commit, error.code)
    if outcome.flushed is None:
        return _commit_response(request, outcome, by_id)
    return Later([outcome.flushed], lambda: _commit_response(request, outcome, by_id))


def _commit_response(request: OffsetCommitRequest, outcome: Outcome, by_id: bool) -> OffsetCommitResponse:
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    rows = commit_rows(request.topics, outcome, topic, topic.OffsetCommitResponsePartition)
    if by_id:
        for row, asked in zip(rows, request.topics, strict=True):
            row.topic_id = asked.topic_id
            for partition in row.partitions if not asked.name else ():
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID
    return OffsetCommitResponse(topics=rows)


def positions_of(topics: Iterable[Any]) -> list[Position]:
    """What a request commits, OffsetCommit or TxnOffsetCommit."""
    return [
        Position(
            TopicPartition(topic.name, partition.partition_index),
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
        )
        for topic in topics
        for partition in topic.partitions
    ]


def commit_rows(
    topics: Iterable[Any], outcome: Outcome, topic_response: type[T], partition_response: type[Any]
) -> list[T]:
    """What came of it, in the classes of the response."""
    make: Any = topic_response
    return [
        make(
            name=topic.name,
            partitions=[
                partition_response(
                    partition_index=partition.partition_index,
                    error_code=outcome.errors[TopicPartition(topic.name, partition.partition_index)],
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


# OffsetFetch


@handles(OffsetFetchRequest)
def fetch_offsets(
    broker: Broker, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[bytes] | Awaitable[OffsetFetchResponse]:
    if context.api_version < 8:
        return _fetch_one(broker, context.api_version, request)
    distinct = {group.group_id: group for group in request.groups}
    by_id = context.api_version >= TOPIC_ID_VERSION
    found = [_look_up(broker, group, request.require_stable, by_id) for group in distinct.values()]
    if sum(1 + one.commit_count for one in found) <= COMMITS_AT_ONCE:
        return _fetched(found)
    copies = [one._replace(committed=dict(one.committed)) for one in found]
    if broker.authorizer is not None:
        return broker.run_blocking(_fetched, copies)  # its guard looks at the topics: bytes have none
    return broker.run_blocking(_encoded, copies, context)


class _Found(NamedTuple):
    """What one group has committed, and what of it is asked for."""

    group_id: str
    code: ErrorCode
    committed: _Committed
    wanted: _Wanted
    ids: Mapping[str, UUID]
    """of the topics"""
    unknown: Sequence[_Topic] = ()
    """asked for by ids that no topic has"""

    @property
    def commit_count(self) -> int:
        if self.wanted is None:
            return len(self.committed)
        return sum(len(indexes) for _, indexes in self.wanted)


def _committed(
    broker: Broker, group_id: str, require_stable: bool, wants_all: bool, member: tuple[str | None, int]
) -> _Committed:
    """What a group has committed; KafkaError: that is not known, or not for this `member` (id, epoch). Who
    wants all is told of nothing that was never committed.
    """
    committed = broker.groups.fetch_offsets(group_id, *member)
    undecided = broker.groups.undecided_offsets(group_id) if require_stable else frozenset()
    if wants_all:
        undecided &= committed.keys()
    return {**committed, **dict.fromkeys(undecided, _UNSTABLE)} if undecided else committed


def _look_up(
    broker: Broker, group: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, by_id: bool
) -> _Found:
    try:
        member = (group.member_id, group.member_epoch)
        committed = _committed(broker, group.group_id, require_stable, group.topics is None, member)
    except KafkaError as error:
        return _Found(group.group_id, error.code, {}, [], {})
    if group.topics is None:
        names = {place.topic for place in committed} if by_id else ()
        ids = {name: topic_id for name in names if (topic_id := broker.topics.id_of(name)) is not None}
        if by_id:
            committed = {place: commit for place, commit in committed.items() if place.topic in ids}
        return _Found(group.group_id, ErrorCode.NONE, committed, None, ids)
    if by_id:
        broker.topics.name_rows(group.topics)
    unknown = [topic for topic in group.topics if by_id and not topic.name]
    named = [topic for topic in group.topics if topic.name or not by_id]
    ids = {topic.name: topic.topic_id for topic in named}
    return _Found(group.group_id, ErrorCode.NONE, committed, _distinct(named), ids, unknown)


def _encoded(found: Sequence[_Found], context: RequestContext) -> bytes:
    """The whole answer; on any thread."""
    parts = encode_response(_fetched(found), context.api_version, context.correlation_id)
    return b"".join(parts)


def _fetched(found: Sequence[_Found]) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=[_fetched_group(one) for one in found])


def _fetched_group(found: _Found) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    group_response = OffsetFetchResponse.OffsetFetchResponseGroup
    topic_response = group_response.OffsetFetchResponseTopics
    partition_response = topic_response.OffsetFetchResponsePartitions
    rows = [
        (name, found.ids.get(name, ZERO_UUID), commits)
        for name, commits in _read(found.committed, found.wanted)
    ]
    rows += [
        ("", topic.topic_id, [(index, _UNKNOWN) for index in topic.partition_indexes])
        for topic in found.unknown
    ]
    return group_response(
        group_id=found.group_id,
        error_code=found.code,
        topics=[
            topic_response(
                name=name,
                topic_id=topic_id,
                partitions=[
                    partition_response(
                        partition_index=index,
                        committed_offset=commit.offset,
                        committed_leader_epoch=commit.leader_epoch,
                        metadata=commit.metadata,
                        error_code=_code_of(commit),
                    )
                    for index, commit in commits
                ],
            )
            for name, topic_id, commits in rows
        ],
    )


def _fetch_one(broker: Broker, version: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
    topic_response = OffsetFetchResponse.OffsetFetchResponseTopic
    partition_response = topic_response.OffsetFetchResponsePartition
    wanted = None if request.topics is None else _distinct(request.topics)
    code = ErrorCode.NONE
    try:
        committed = _committed(broker, request.group_id, request.require_stable, wanted is None, _NO_MEMBER)
        topics = _read(committed, wanted)
    except KafkaError as error:
        code = error.code
        # v1 has no room for the error but in the partitions.
        topics = _unread(wanted) if version < 2 else []
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            topic_response(
                name=name,
                partitions=[
                    partition_response(
                        partition_index=index,
                        committed_offset=commit.offset,
                        committed_leader_epoch=commit.leader_epoch,
                        metadata=commit.metadata,
                        error_code=code or _code_of(commit),
                    )
                    for index, commit in commits
                ],
            )
            for name, commits in topics
        ],
    )


def _code_of(commit: Commit) -> ErrorCode:
    if commit is _UNKNOWN:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if commit is _UNSTABLE else ErrorCode.NONE


def _distinct(
    topics: Iterable[OffsetFetchRequest.OffsetFetchRequestTopic] | Iterable[_Topic],
) -> list[tuple[str, Sequence[int]]]:
    """What is asked for twice is answered once: a small question has no giant answer."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return [(name, list(indexes)) for name, indexes in wanted.items()]


def _unread(wanted: _Wanted) -> _ReadTopics:
    return [(name, [(index, _NO_COMMIT) for index in indexes]) for name, indexes in wanted or ()]


def _read(committed: _Committed, wanted: _Wanted) -> _ReadTopics:
    if wanted is None:
        by_topic: dict[str, list[tuple[int, Commit]]] = {}
        for topic_partition, commit in committed.items():
            by_topic.setdefault(topic_partition.topic, []).append((topic_partition.partition, commit))
        return list(by_topic.items())
    return [
        (name, [(index, committed.get(TopicPartition(name, index), _NO_COMMIT)) for index in indexes])
        for name, indexes in wanted
    ]


# OffsetDelete


@handles(OffsetDeleteRequest)
def delete_offsets(
    broker: Broker, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Later:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    wanted = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        outcome = broker.groups.delete_offsets(request.group_id, wanted)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)

    def finish() -> OffsetDeleteResponse:
        if outcome.flushed is not None and outcome.flushed.exception() is not None:
            return OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR)
        return _delete_response(request, outcome)

    return finish() if outcome.flushed is None else Later([outcome.flushed], finish)


def _delete_response(request: OffsetDeleteRequest, outcome: Outcome) -> OffsetDeleteResponse:
    topic_response = OffsetDeleteResponse.OffsetDeleteResponseTopic
    partition_response = topic_response.OffsetDeleteResponsePartition
    return OffsetDeleteResponse(
        topics=[
            topic_response(
                name=topic.name,
                partitions=[
                    partition_response(
                        partition_index=partition.partition_index,
                        error_code=outcome.errors[TopicPartition(topic.name, partition.partition_index)],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
