"""A broker as the members of a consumer group see it, of either protocol: one request at a time, the answers
in a form that can be compared with another broker's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from protocol.codegen import decode, encode
from protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from protocol.messages.group_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from protocol.messages.metadata import MetadataRequest
from tests.kafka.raw import Raw
from tests.waiting import wait_for

NOT_YET = {14, 15, 16}
"""loading, no coordinator yet: what a client tries again"""
MEMBER_ID_REQUIRED = 79
NOTHING: list[tuple[str, int]] = []


class Player:
    """One of the two brokers, and the members that speak to it."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.group = "g"
        self._topics: dict[Any, str] = {}
        self._ids_given: dict[str, str] = {}

    def prepare(self, topics: dict[str, int]) -> None:
        """Make topics, and wait for who coordinates groups."""
        for topic, count in topics.items():
            self.raw.create(topic, {}, partitions=count)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        wait_for(lambda: self.raw.ask(request, 4).coordinators[0].error_code == 0, "a coordinator of groups")
        answer = self.raw.ask(MetadataRequest(topics=None), 12)
        self._topics = {topic.topic_id: topic.name for topic in answer.topics}

    def _rows(self, places: list[tuple[str, int]]) -> list[Any]:
        topic = ConsumerGroupHeartbeatRequest.TopicPartitions
        ids = {name: topic_id for topic_id, name in self._topics.items()}
        return [topic(topic_id=ids[name], partitions=found) for name, found in by_topic(places)]

    def _id(self, member: str) -> str:
        """The member id that a broker gave to a classic member, which it has no say in."""
        return self._ids_given.get(member, member)

    def _name(self, member_id: str) -> str:
        return next((name for name, given in self._ids_given.items() if given == member_id), member_id)

    def _places(self, rows: list[Any]) -> list[tuple[str, int]]:
        return sorted((self._topics[row.topic_id], index) for row in rows for index in row.partitions)

    # the consumer protocol

    def beat(
        self,
        member: str,
        epoch: int,
        *,
        owned: list[tuple[str, int]] | None = None,
        topics: list[str] | None = None,
        version: int = 1,
        group: str | None = None,
        **more: Any,
    ) -> Any:
        """(error, message) or (epoch, interval, assignment if one was told)."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group if group is None else group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=topics,
            topic_partitions=None if owned is None else self._rows(owned),
            **more,
        )
        answers: list[Any] = []

        def is_ready() -> bool:
            answers.append(self.raw.ask(request, version))
            return answers[-1].error_code not in NOT_YET

        wait_for(is_ready, f"an answer to {request}")
        answer = answers[-1]
        if answer.error_code:
            return answer.error_code, answer.error_message
        places = None if answer.assignment is None else self._places(answer.assignment.topic_partitions)
        return answer.member_id == member, answer.member_epoch, answer.heartbeat_interval_ms, places

    def join(self, member: str, topics: list[str], **more: Any) -> Any:
        return self.beat(member, 0, owned=NOTHING, topics=topics, **{"rebalance_timeout_ms": 60_000, **more})

    def settled(self, member: str, epoch: int, **more: Any) -> Any:
        """What the member has once its target is reached: Kafka looks up regular expressions on the side."""
        said = self.beat(member, epoch, **more)
        found: list[Any] = []

        def is_settled() -> bool:
            found[:] = self.described(self.group)[0][8]
            if not found[0][8]:
                self.beat(member, found[0][3])
            return bool(found[0][8]) and found[0][8] == found[0][9]

        wait_for(is_settled, f"partitions of {member}, who was told {said}")
        return found[0][6:10]

    def described(self, *groups: str, version: int = 1) -> Any:
        answer = self.raw.ask(ConsumerGroupDescribeRequest(group_ids=list(groups)), version)
        return [
            (
                row.error_code, row.error_message, row.group_id, row.group_state, row.group_epoch,
                row.assignment_epoch, row.assignor_name, row.authorized_operations,
                sorted(self._member(member) for member in row.members),
            )
            for row in answer.groups
        ]  # fmt: skip

    def _member(self, row: Any) -> Any:
        return (
            self._name(row.member_id), row.instance_id or "", row.rack_id or "", row.member_epoch,
            row.client_id, row.client_host, sorted(row.subscribed_topic_names), row.subscribed_topic_regex,
            self._places(row.assignment.topic_partitions),
            self._places(row.target_assignment.topic_partitions), row.member_type,
        )  # fmt: skip

    def listed(self, version: int = 5, **filters: Any) -> Any:
        rows = self.raw.ask(ListGroupsRequest(**filters), version).groups
        return sorted((row.group_id, row.protocol_type, row.group_state, row.group_type) for row in rows)

    # offsets

    def commit(self, member: str, epoch: int, *places: tuple[str, int], version: int = 9) -> Any:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=self._id(member),
            topics=[
                topic(name=name, partitions=[partition(partition_index=index, committed_offset=7)])
                for name, index in places
            ],
        )
        answer = self.raw.ask(request, version)
        return sorted(
            (found.name, row.partition_index, row.error_code)
            for found in answer.topics
            for row in found.partitions
        )

    def fetch(self, member: str | None, epoch: int) -> Any:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup
        group = asked(group_id=self.group, member_id=member, member_epoch=epoch, topics=None)
        row = self.raw.ask(OffsetFetchRequest(groups=[group]), 9).groups[0]
        return row.error_code, sorted(
            (topic.name, one.partition_index, one.committed_offset, one.error_code)
            for topic in row.topics
            for one in topic.partitions
        )

    def delete_offsets(self, *places: tuple[str, int]) -> Any:
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = topic.OffsetDeleteRequestPartition
        topics = [topic(name=name, partitions=[partition(partition_index=index)]) for name, index in places]
        answer = self.raw.ask(OffsetDeleteRequest(group_id=self.group, topics=topics), 0)
        return answer.error_code, [
            (found.name, row.partition_index, row.error_code)
            for found in answer.topics
            for row in found.partitions
        ]

    def delete_group(self, group: str) -> Any:
        return [row.error_code for row in self.raw.ask(DeleteGroupsRequest(groups_names=[group]), 2).results]

    # the classic protocol

    def classic_described(self, group: str, version: int = 6) -> Any:
        row = self.raw.ask(DescribeGroupsRequest(groups=[group]), version).groups[0]
        members = sorted(
            (self._name(one.member_id), assigned_places(one.member_assignment)) for one in row.members
        )
        return row.error_code, row.error_message, row.group_state, row.protocol_type, members

    def classic_join(
        self,
        member: str,
        topics: list[str],
        owned: tuple[tuple[str, int], ...] = (),
        protocol: str = "range",
        version: int = 9,
        protocol_type: str = "consumer",
        instance: str | None = None,
    ) -> Any:
        own = JoinGroupRequest.JoinGroupRequestProtocol(
            name=protocol, metadata=subscription_bytes(topics, owned)
        )
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self._ids_given.get(member, ""),
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[own],
        )
        row = self.raw.ask(request, version)
        if row.error_code == MEMBER_ID_REQUIRED:
            self._ids_given[member] = request.member_id = row.member_id
            row = self.raw.ask(request, version)
        if row.error_code == 0:
            self._ids_given[member] = row.member_id
        return row.error_code, row.generation_id, row.protocol_name, self._name(row.leader), len(row.members)

    def classic_sync(self, member: str, generation: int, protocol: str = "range", **given: Any) -> Any:
        each = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self._id(member),
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                each(member_id=self._id(name), assignment=assignment_bytes(places))
                for name, places in given.items()
            ],
        )
        row = self.raw.ask(request, 5)
        return row.error_code, row.protocol_type, row.protocol_name, assigned_places(row.assignment)

    def classic_beat(self, member: str, generation: int) -> Any:
        request = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=self._id(member))
        return self.raw.ask(request, 4).error_code

    def classic_leave(self, *members: str) -> Any:
        identity = LeaveGroupRequest.MemberIdentity
        leaving = [identity(member_id=self._id(one)) for one in members]
        answer = self.raw.ask(LeaveGroupRequest(group_id=self.group, members=leaving), 5)
        return answer.error_code, [(self._name(row.member_id), row.error_code) for row in answer.members]

    def use(self, group: str) -> None:
        self.group = group

    def set_group(self, settings: Mapping[str, str]) -> Any:
        return self.raw.set_group(self.group, settings)


# what members of the classic protocol tell each other


def by_topic(places: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for name, index in places:
        found.setdefault(name, []).append(index)
    return list(found.items())


def subscription_bytes(topics: Sequence[str], owned: Iterable[tuple[str, int]]) -> bytes:
    """What a member says when it joins."""
    said = ConsumerProtocolSubscription
    place = said.TopicPartition
    rows = [place(topic=name, partitions=found) for name, found in by_topic(owned)]
    return struct.pack(">h", 1) + b"".join(encode(said(topics=list(topics), owned_partitions=rows), 1))


def assignment_bytes(places: Iterable[tuple[str, int]]) -> bytes:
    """What the leader says of a member."""
    said = ConsumerProtocolAssignment
    place = said.TopicPartition
    rows = [place(topic=name, partitions=found) for name, found in by_topic(places)]
    return struct.pack(">h", 1) + b"".join(encode(said(assigned_partitions=rows), 1))


def assigned_places(assignment: bytes) -> list[tuple[str, int]] | None:
    if not assignment:
        return None
    said = decode(ConsumerProtocolAssignment, 1, bytes(assignment), 2)
    return sorted((row.topic, index) for row in said.assigned_partitions for index in row.partitions)
