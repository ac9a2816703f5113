"""Consumer groups as a person looks at them: members, what each has, how far the group is behind.

What is behind is told in offsets, as Kafka does, and in records: compaction and transactions leave
fewer of them, and a group that has read everything would seem to be behind for ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.groups.commits import AnyGroup, Committed, lags
from broker.groups.consumer.classic_protocol import read_assignment, read_subscription
from broker.groups.consumer.member import (
    ConsumerMember,
    partitions_of,
)
from broker.groups.membership import Group, Member
from broker.groups.offsets import Commit
from broker.groups.share.group import ShareGroup
from broker.groups.streams.endpoints import partitions_read
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.member import StreamsMember, Tasks
from broker.groups.topics import GroupTopics, Partitions
from broker.questions.records import records_between, steadily
from broker.questions.share_groups import share_group_row
from protocol.errors import KafkaError
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.partition import Partition
    from storage.log import Log


class Place(NamedTuple):
    """Where a group stands in a partition, taken on the event loop. Without a commit `commit` is None."""

    topic_partition: TopicPartition
    commit: Commit | None
    member_id: str | None
    log: Log | None
    expires_ms: int | None


def group_heads(broker: Broker) -> list[dict[str, Any]]:
    """On the event loop: every group, a share group with what it reads. KafkaError while they are loaded."""
    return [
        share_group_row(broker, group)
        if isinstance(group, ShareGroup)
        else {**_head(group), "members": len(group.members)}
        for group in broker.groups.list_groups((), ())
    ]


def group_rows(
    heads: list[dict[str, Any]], committed: Committed, partitions: Mapping[TopicPartition, Partition]
) -> list[dict[str, Any]]:
    """On an I/O thread: and what each of the others has read of, and its lag over all."""
    topics, behind = defaultdict[str, set[str]](set), Counter[str]()
    for lag in lags(committed, partitions):
        topics[lag.group_id].add(lag.topic_partition.topic)
        behind[lag.group_id] += lag.lag
    return [{"topics": sorted(topics[head["group"]]), "lag": behind[head["group"]], **head} for head in heads]


def _head(group: AnyGroup) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.kind,
        "state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "assignor": group.protocol_name if isinstance(group, Group) else group.assignor,
        "epoch": group.generation if isinstance(group, Group) else group.epoch,
    }


def _behind(log: Log, offset: int) -> int:
    """What lies before the log start is no lag, nobody can read it (T203)."""
    return max(0, log.high_watermark - max(offset, log.log_start_offset))


def group_head(broker: Broker, group: AnyGroup) -> tuple[dict[str, Any], list[Place]]:
    """On the event loop: what a group is, its members, and where it stands."""
    topics = GroupTopics(broker.topics, broker.authorizer)
    members, holders = [], dict[TopicPartition, str]()
    for member in group.members.values():
        row, partitions = _member_row(group, member, topics)
        members.append(row)
        holders |= dict.fromkeys(partitions, member.member_id)
    places = []
    for topic_partition in sorted(group.offsets.committed.keys() | holders.keys()):
        commit = group.offsets.committed.get(topic_partition)
        partition = broker.partitions.get(topic_partition)
        expires_ms = (
            None if commit is None else broker.groups.expires_ms(group, topic_partition.topic, commit)
        )
        log = None if partition is None else partition.log
        places.append(Place(topic_partition, commit, holders.get(topic_partition), log, expires_ms))
    return {**_head(group), "members": members}, places


def _member_row(
    group: AnyGroup, member: Member | ConsumerMember | StreamsMember, topics: GroupTopics
) -> tuple[dict[str, Any], list[TopicPartition]]:
    more: dict[str, Any]
    if isinstance(member, StreamsMember):
        assert isinstance(group, StreamsGroup)
        subscribed, held = sorted(group.subscribed_topics()), member.assigned
        active = partitions_read(group, held.without_epochs().active, topics)
        partitions = [TopicPartition(topic, index) for topic, indexes in active for index in indexes]
        more = {"instance_id": None, "regex": None, "epoch": member.epoch, "standby": _task_ids(held.standby)}
    elif isinstance(member, ConsumerMember):
        subscribed = sorted(member.topic_names)
        partitions = _named(partitions_of(member.assigned), topics)
        more = {"instance_id": member.instance_id, "regex": member.topic_regex, "epoch": member.epoch}
    else:
        subscribed, had = _classic(group, member, topics)
        partitions = _named(had, topics)
        more = {"instance_id": member.group_instance_id, "regex": None, "epoch": None}
    row = {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.client_host,
        **more,
        "subscribed": subscribed,
        "partitions": [{"topic": one.topic, "partition": one.partition} for one in sorted(partitions)],
    }
    return row, partitions


def _named(had: Partitions, topics: GroupTopics) -> list[TopicPartition]:
    names = topics.names(had)
    return [
        TopicPartition(names[one], index) for one, indexes in had.items() if one in names for index in indexes
    ]


def _task_ids(tasks: Tasks) -> list[str]:
    """As Kafka Streams writes them."""
    return [f"{name}_{partition}" for name in sorted(tasks) for partition in sorted(tasks[name])]


def _classic(group: AnyGroup, member: Member, topics: GroupTopics) -> tuple[list[str], Partitions]:
    """What a member of a group that is no consumer group says is its own affair."""
    if not isinstance(group, Group) or not group.is_consumer_group:
        return [], {}
    try:
        said = read_subscription(member.metadata_of(group.protocol_name), topics)
        return sorted(said.topic_names), read_assignment(member.assignment, topics)
    except KafkaError:
        return [], {}


def place_rows(places: Sequence[Place]) -> list[dict[str, Any]]:
    """On an I/O thread: where the group stands in each partition."""
    return [_place_row(one) for one in places]


def _place_row(place: Place) -> dict[str, Any]:
    log, commit = place.log, place.commit
    row: dict[str, Any] = {
        "topic": place.topic_partition.topic,
        "partition": place.topic_partition.partition,
        "member_id": place.member_id,
        "committed_offset": None if commit is None else commit.offset,
        "metadata": None if commit is None else commit.metadata,
        "committed_ms": None if commit is None else commit.commit_timestamp_ms,
        "expires_ms": place.expires_ms,
    }
    if log is None:
        return row
    row |= {
        "log_start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
    }
    if commit is None:
        return row
    offset = commit.offset
    return row | {
        "lag": _behind(log, offset),
        "records_left": steadily(lambda: records_between(log, offset, log.high_watermark)),
        "is_below_start": offset < log.log_start_offset,
        "is_beyond_end": offset > log.log_end_offset,
    }
