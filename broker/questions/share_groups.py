"""Share groups as a person looks at them: members, what each has, where the group stands in each partition.

A share group commits no offsets: it stands at the first one whose delivery is not over. Behind that some are
delivered already, and some are with members now; what is left is the lag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.groups.commits import Lag
from broker.groups.share.group import ShareGroup, ShareMember
from broker.share.batches import ACQUIRED
from broker.share.partition import NO_COUNT, NO_OFFSET, ShareKey, SharePartition
from storage.layout import TopicPartition

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.partition import Partition


def share_group_head(group: ShareGroup) -> dict[str, Any]:
    """On the event loop: what it is."""
    return {
        "group": group.group_id,
        "type": group.kind,
        "state": group.state.value,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
    }


def share_group_row(broker: Broker, group: ShareGroup) -> dict[str, Any]:
    """On the event loop: what it is in one line, with what it reads and its lag over all."""
    places = share_group_places(broker, group)
    return {
        **share_group_head(group),
        "members": len(group.members),
        "topics": sorted({row["topic"] for row in places}),
        "lag": sum(row["lag"] or 0 for row in places),
    }


def _member_row(broker: Broker, member: ShareMember) -> dict[str, Any]:
    topics = {topic_id: broker.topics.by_id(topic_id) for topic_id in member.assigned}
    places = sorted(
        TopicPartition(topic.name, index)
        for topic_id, indexes in member.assigned.items()
        if (topic := topics[topic_id]) is not None
        for index in indexes
    )
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "instance_id": None,
        "regex": None,
        "epoch": member.epoch,
        "subscribed": sorted(member.topic_names),
        "partitions": [{"topic": one.topic, "partition": one.partition} for one in places],
    }


def share_group_places(broker: Broker, group: ShareGroup) -> list[dict[str, Any]]:
    """On the event loop: where it stands in each partition that it reads."""
    rows = []
    for topic_id, begun in group.begun.items():
        for index in sorted(begun.partitions):
            share = broker.shares.partitions.get(ShareKey(group.group_id, topic_id, index))
            partition = broker.partition(begun.topic, index)
            rows.append(_place_row(begun.topic, index, share, partition))
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def _place_row(
    topic: str, index: int, share: SharePartition | None, partition: Partition | None
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": topic,
        "partition": index,
        "start_offset": None,
        "high_watermark": None if partition is None else partition.log.high_watermark,
        "lag": None,
        "acquired": 0,
    }
    if share is None or partition is None:
        return row
    stored, in_flight = share.stored, share.in_flight
    if in_flight is not None:
        row["start_offset"], complete_count = in_flight.start_offset, in_flight.complete_count
        row["acquired"] = in_flight.count_of(ACQUIRED)
    elif stored.start_offset == NO_OFFSET or stored.complete_count == NO_COUNT:
        return row
    else:
        row["start_offset"], complete_count = stored.start_offset, stored.complete_count
    row["lag"] = _lag(partition, row["start_offset"], complete_count)
    return row


def _lag(partition: Partition, start_offset: int, complete_count: int) -> int:
    """How many records are left of those that the log still has."""
    log = partition.log
    return max(0, log.high_watermark - max(start_offset, log.log_start_offset) - complete_count)


def share_group(broker: Broker, group: ShareGroup) -> dict[str, Any]:
    """On the event loop: all of it."""
    return {
        **share_group_head(group),
        "members": [_member_row(broker, member) for member in group.members.values()],
        "offsets": share_group_places(broker, group),
    }


def share_lags(broker: Broker) -> list[Lag]:
    """On the event loop: of each share group in each partition where it has begun, as it was written down."""
    found = []
    for key, share in broker.shares.partitions.items():
        topic, stored = broker.topics.by_id(key.topic_id), share.stored
        partition = broker.partition(topic.name, key.partition) if topic is not None else None
        if partition is not None and stored.start_offset != NO_OFFSET and stored.complete_count != NO_COUNT:
            lag = _lag(partition, stored.start_offset, stored.complete_count)
            found.append(Lag(key.group_id, partition.topic_partition, stored.start_offset, lag))
    return found
