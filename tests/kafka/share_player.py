"""A broker as the members of share groups see it: one request at a time, the answers in a form that can be
compared with another broker's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from protocol.batch import iterate_headers
from protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest, ListGroupsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from protocol.records import encode_batch
from tests.kafka.raw import Raw
from tests.waiting import wait_for

NOT_YET = {14, 15, 16}
"""loading, no coordinator yet: what a client tries again"""
RELEASE = 2
Place = tuple[str, int]
Acks = Mapping[Place, Sequence[tuple[int, int, list[int]]]]
"""of a partition: first offset, last offset, types"""


class SharePlayer:
    """One of the two brokers, and a connection for each member that speaks to it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.raw = Raw(port)
        self._members: dict[tuple[str, str], Raw] = {}
        self.epochs: dict[tuple[str, str], int] = {}
        """of the session of a member, by group"""
        self.ids: dict[str, UUID] = {}
        self._acquired: dict[tuple[str, str], dict[Place, list[tuple[int, int, list[int]]]]] = {}
        """by the last fetch of a member, by group"""

    def prepare(self, topics: Mapping[str, int]) -> None:
        """Make topics, and wait for who coordinates groups."""
        for topic, count in topics.items():
            self.raw.create(topic, {}, partitions=count)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        wait_for(lambda: self.raw.ask(request, 4).coordinators[0].error_code == 0, "a coordinator of groups")
        self.ids = {one.name: one.topic_id for one in self.raw.ask(MetadataRequest(topics=None), 12).topics}

    def close(self) -> None:
        for raw in (self.raw, *self._members.values()):
            raw.close()

    def produce(self, topic: str, *sizes: int, partition: int = 0, **more: Any) -> int:
        """Batches of so many records, each by itself."""
        for size in sizes:
            now_ms = time.time_ns() // 1_000_000
            records = [(now_ms, None, b"%d" % number, ()) for number in range(size)]
            answer = self.raw.produce(topic, encode_batch(records, **more), partition)
            assert answer.error_code == 0, answer
        return 0

    def settings(self, group: str, settings: Mapping[str, str]) -> Any:
        return self.raw.set_group(group, settings)

    # records

    def connection(self, group: str, member: str) -> Raw:
        """One for each: Kafka ends only one session with a connection."""
        if (group, member) not in self._members:
            self._members[group, member] = Raw(self._port)
        return self._members[group, member]

    def disconnect(self, member: str, group: str = "g") -> int:
        self._members.pop((group, member)).close()
        self.epochs.pop((group, member), None)
        return 0

    def fetch(
        self,
        member: str,
        *places: Place,
        acks: Acks | None = None,
        forgotten: Sequence[Place] = (),
        epoch: int | None = None,
        records: int = 500,
        batch: int = 500,
        wait_ms: int = 200,
        version: int = 2,
        group: str = "g",
        **more: Any,
    ) -> Any:
        """(error, lock duration, a row for each partition)."""
        asked = ShareFetchRequest.FetchTopic
        told = acks or {}
        topics = [
            asked(
                topic_id=self.ids[name],
                partitions=[
                    asked.FetchPartition(
                        partition_index=index, acknowledgement_batches=_batches(told.get((name, index), ()))
                    )
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic([*places, *told])
        ]
        gone = [
            ShareFetchRequest.ForgottenTopic(topic_id=self.ids[name], partitions=indexes)
            for name, indexes in _by_topic(forgotten)
        ]
        request = ShareFetchRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=self._epoch(group, member, epoch),
            max_wait_ms=more.pop("max_wait_ms", wait_ms),
            min_bytes=more.pop("min_bytes", 1),
            max_records=records,
            batch_size=batch,
            topics=topics,
            forgotten_topics_data=gone,
            **more,
        )
        answer = self.connection(group, member).ask(request, version)
        self._count(group, member, epoch, answer.error_code)
        names = {topic_id: name for name, topic_id in self.ids.items()}
        self._acquired[group, member] = {
            (names[topic.topic_id], row.partition_index): [
                (one.first_offset, one.last_offset, [RELEASE]) for one in row.acquired_records
            ]
            for topic in answer.responses
            for row in topic.partitions
            if row.acquired_records
        }
        rows = [
            (
                names.get(topic.topic_id), row.partition_index, row.error_code, row.error_message,
                row.acknowledge_error_code, row.acknowledge_error_message,
                [(one.base_offset, one.record_count) for _, one in iterate_headers(row.records or b"")],
                [(one.first_offset, one.last_offset, one.delivery_count) for one in row.acquired_records],
            )
            for topic in answer.responses
            for row in topic.partitions
        ]  # fmt: skip
        return answer.error_code, answer.acquisition_lock_timeout_ms, sorted(rows, key=lambda row: row[:2])

    def acknowledge(
        self,
        member: str,
        acks: Acks,
        *,
        epoch: int | None = None,
        version: int = 2,
        group: str = "g",
        **more: Any,
    ) -> Any:
        """(error, lock duration, a row for each partition)."""
        asked = ShareAcknowledgeRequest.AcknowledgeTopic
        topics = [
            asked(
                topic_id=self.ids[name],
                partitions=[
                    asked.AcknowledgePartition(
                        partition_index=index, acknowledgement_batches=_batches(acks[name, index])
                    )
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic(list(acks))
        ]
        request = ShareAcknowledgeRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=self._epoch(group, member, epoch),
            topics=topics,
            **more,
        )
        answer = self.connection(group, member).ask(request, version)
        self._count(group, member, epoch, answer.error_code)
        names = {topic_id: name for name, topic_id in self.ids.items()}
        rows = [
            (names.get(topic.topic_id), row.partition_index, row.error_code, row.error_message)
            for topic in answer.responses
            for row in topic.partitions
        ]
        return answer.error_code, answer.acquisition_lock_timeout_ms, sorted(rows)

    def leave(self, group: str) -> None:
        """Disconnect all its members."""
        for of_group, member in list(self._members):
            if of_group == group:
                self.disconnect(member, group)

    def acquired(self, group: str, member: str, place: Place) -> list[tuple[int, int]]:
        """Runs of offsets that the last fetch of the member brought."""
        told = self._acquired.get((group, member), {}).get(place, [])
        return [(first, last) for first, last, _ in told]

    def open(self, *places: Place, group: str = "g") -> int:
        """Return when the partitions are read: Kafka leaves out of an answer what it has still to open. What
        was delivered for that, once, is given back; the session stays, or Kafka would close them again.
        """
        for place in places:
            found: list[Any] = []

            def is_open(place: Place = place, found: list[Any] = found) -> bool:
                error, _, found[:] = self.fetch("opener", place, epoch=0, group=group)
                assert not error, error
                self.give_back("opener", group)
                return bool(found) and not found[0][2]

            wait_for(is_open, (place, "open for", group, "on port", self._port, found))
        return 0

    def give_back(self, member: str, group: str = "g") -> Any:
        """What the last fetch brought; Kafka gives back what a session had some time behind its end."""
        return self.acknowledge(member, self._acquired[group, member], group=group)

    def _epoch(self, group: str, member: str, epoch: int | None) -> int:
        return self.epochs.get((group, member), 0) if epoch is None else epoch

    def _count(self, group: str, member: str, epoch: int | None, error_code: int) -> None:
        sent = self._epoch(group, member, epoch)
        if error_code:
            return
        if sent == -1:
            self.epochs.pop((group, member), None)
        else:
            self.epochs[group, member] = sent + 1

    # members

    def beat(
        self, member: str, epoch: int, topics: list[str] | None = None, group: str = "g", **more: Any
    ) -> Any:
        """(error, message) or (epoch, interval, assignment if one was told)."""
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics, **more
        )
        answers: list[Any] = []

        def is_ready() -> bool:
            answers.append(self.raw.ask(request, 1))
            return answers[-1].error_code not in NOT_YET

        wait_for(is_ready, f"an answer to {request}")
        answer = answers[-1]
        if answer.error_code:
            return answer.error_code, answer.error_message
        places = None if answer.assignment is None else self._places(answer.assignment.topic_partitions)
        return answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms, places

    def settled(self, group: str, *wanted: tuple[str, list[str]], size: int) -> Any:
        """Who has what once all members beat and have something, `size` partitions in all: Kafka begins in
        partitions behind an answer, and assigns with a later one. Epochs are not told: there are more there.
        """
        found: list[Any] = []

        def is_settled() -> bool:
            rows = {row[0]: row for row in self.described(group)[0][-1]}
            for member, topics in wanted:
                self.beat(member, rows[member][2] if member in rows else 0, topics, group)
            found[:] = self.described(group)[0][-1]
            return all(row[-1] for row in found) and sum(len(row[-1]) for row in found) >= size

        wait_for(is_settled, (size, "partitions of", group, found))
        return [(row[0], row[1], row[3], row[4], row[5], row[6]) for row in found]

    def epoch_of(self, member: str, group: str = "g") -> int:
        return next(row[2] for row in self.described(group)[0][-1] if row[0] == member)

    def described(self, *groups: str) -> Any:
        answer = self.raw.ask(ShareGroupDescribeRequest(group_ids=list(groups)), 1)
        return [
            (
                row.error_code, row.error_message, row.group_id, row.group_state, row.assignor_name,
                row.authorized_operations, sorted(self._member(member) for member in row.members),
            )
            for row in sorted(answer.groups, key=lambda row: row.group_id)
        ]  # fmt: skip

    def _member(self, row: Any) -> Any:
        return (
            row.member_id, row.rack_id or "", row.member_epoch, row.client_id, row.client_host,
            sorted(row.subscribed_topic_names), self._places(row.assignment.topic_partitions),
        )  # fmt: skip

    def _places(self, rows: list[Any]) -> list[Place]:
        names = {topic_id: name for name, topic_id in self.ids.items()}
        return sorted((names[row.topic_id], index) for row in rows for index in row.partitions)

    def listed(self, version: int = 5, **filters: Any) -> Any:
        rows = self.raw.ask(ListGroupsRequest(**filters), version).groups
        return sorted((row.group_id, row.protocol_type, row.group_state, row.group_type) for row in rows)

    def delete(self, *groups: str) -> Any:
        answer = self.raw.ask(DeleteGroupsRequest(groups_names=list(groups)), 2)
        return sorted((row.group_id, row.error_code) for row in answer.results)

    # offsets

    def offsets(self, *places: Place, group: str = "g", version: int = 1) -> Any:
        """Where a group stands; all that it reads without places."""
        asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        topic = asked.DescribeShareGroupOffsetsRequestTopic
        topics = [topic(topic_name=name, partitions=indexes) for name, indexes in _by_topic(places)]
        request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id=group, topics=topics or None)])
        (row,) = self.raw.ask(request, version).groups
        return row.error_code, row.error_message, sorted(
            (
                one.topic_name, one.topic_id == self.ids.get(one.topic_name), part.partition_index,
                part.start_offset, part.leader_epoch, part.lag, part.error_code, part.error_message,
            )
            for one in row.topics
            for part in one.partitions
        )  # fmt: skip

    def alter(self, offsets: Mapping[Place, int], group: str = "g") -> Any:
        asked = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        part = asked.AlterShareGroupOffsetsRequestPartition
        topics = [
            asked(
                topic_name=name,
                partitions=[part(partition_index=one, start_offset=offsets[name, one]) for one in indexes],
            )
            for name, indexes in _by_topic(list(offsets))
        ]
        answers: list[Any] = []

        def is_ready() -> bool:
            answers.append(self.raw.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0))
            return answers[-1].error_code not in NOT_YET

        wait_for(is_ready, f"an answer about offsets of {group}")
        answer = answers[-1]
        return answer.error_code, answer.error_message, sorted(
            (one.topic_name, row.partition_index, row.error_code, row.error_message)
            for one in answer.responses
            for row in one.partitions
        )  # fmt: skip

    def forget(self, *topics: str, group: str = "g") -> Any:
        asked = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        request = DeleteShareGroupOffsetsRequest(
            group_id=group, topics=[asked(topic_name=name) for name in topics]
        )
        answer = self.raw.ask(request, 0)
        return answer.error_code, answer.error_message, sorted(
            (one.topic_name, one.error_code, one.error_message) for one in answer.responses
        )  # fmt: skip


def _batches(told: Sequence[tuple[int, int, list[int]]]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in told
    ]


def _by_topic(places: Sequence[Place]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for name, index in dict.fromkeys(places):
        topics.setdefault(name, []).append(index)
    return list(topics.items())
